/* Taps side by side: each position's own row of what it multiplies (im2col). */
#ifndef GRADOPS_UNFOLD_H
#define GRADOPS_UNFOLD_H

#include "simd.h"

/* One piece of a row: `bytes` from the entry of `row` that `entry` tells for the position. */
typedef struct {
    const char *row;
    const ptrdiff_t *entry;
    ptrdiff_t bytes;
} Run;

/* Runs are copied in pieces of `unit` bytes; the next run, zeros or row goes over what was too much. Runs of
 * one piece, all as long and from the same entries, are all but the copies of them. */
#define DEFINE_UNFOLD(unit)                                                                        \
    typedef char piece_##unit __attribute__((vector_size(unit), aligned(1), may_alias));           \
    static void unfold_rows_##unit(const Run *run, ptrdiff_t runs, ptrdiff_t pitch,                \
                                   ptrdiff_t positions, char *dst, ptrdiff_t dst_pitch) {          \
        for (ptrdiff_t j = 0; j < positions; j++) {                                                \
            char *to = dst + j * dst_pitch, *end = to + dst_pitch;                                 \
            for (ptrdiff_t r = 0; r < runs; r++) {                                                 \
                const char *from = run[r].row + run[r].entry[j] * pitch;                           \
                const ptrdiff_t bytes = run[r].bytes;                                              \
                for (ptrdiff_t i = 0; i < bytes; i += unit)                                        \
                    *(piece_##unit *)(to + i) = *(const piece_##unit *)(from + i);                 \
                to += bytes;                                                                       \
            }                                                                                      \
            if (to < end) *(piece_64 *)to = (piece_64){0};                                         \
        }                                                                                          \
    }                                                                                              \
    static void unfold_alike_##unit(const Run *run, ptrdiff_t runs, ptrdiff_t pitch,               \
                                    ptrdiff_t positions, char *dst, ptrdiff_t dst_pitch) {         \
        const ptrdiff_t bytes = run->bytes, *entry = run->entry;                                   \
        for (ptrdiff_t j = 0; j < positions; j++, dst += dst_pitch) {                              \
            const ptrdiff_t place = entry[j] * pitch;                                              \
            for (ptrdiff_t r = 0; r < runs; r++)                                                   \
                *(piece_##unit *)(dst + r * bytes) = *(const piece_##unit *)(run[r].row + place);  \
            if (runs * bytes < dst_pitch) *(piece_64 *)(dst + runs * bytes) = (piece_64){0};       \
        }                                                                                          \
    }

DEFINE_UNFOLD(64)
DEFINE_UNFOLD(32)
DEFINE_UNFOLD(16)

/* Rows `dst_pitch` bytes apart, ending in less than 64 bytes of zeros, of entries `pitch` bytes
 * apart. dst and the entries are 64 bytes longer than what they hold. */
static void unfold_rows(const Run *run, ptrdiff_t runs, ptrdiff_t pitch, ptrdiff_t positions,
                        char *dst, ptrdiff_t dst_pitch) {
    ptrdiff_t longest = 0;
    int alike = 1;
    for (ptrdiff_t r = 0; r < runs; r++) {
        longest = run[r].bytes > longest ? run[r].bytes : longest;
        alike &= run[r].bytes == run->bytes && run[r].entry == run->entry;
    }
#define UNFOLD(unit)                                                                               \
    (alike && longest <= unit ? unfold_alike_##unit : unfold_rows_##unit)(run, runs, pitch, positions, \
                                                                           dst, dst_pitch)
    if (longest <= 16) UNFOLD(16);
    else if (longest <= 32) UNFOLD(32);
    else UNFOLD(64);
#undef UNFOLD
}

#endif
