/* What the kernels of phases and of windows are given, which do both passes at once, in registers. */
#ifndef GRADOPS_RESAMPLING_FUSED_H
#define GRADOPS_RESAMPLING_FUSED_H

#include "resampling.h"

enum { FUSED_ROWS = 64 /* rows that are reduced at once */ };

/* `count` rows of the result, from dst on: each takes the same `rows` of diff_dst, which lie row_step bytes
 * further on for the next one, and so does what is `asked` for meanwhile. Phases count positions of the
 * result: rows have `extent` and begin at `origin`; their taps' weights are those of [first, middle and last
 * vector of a row][tap][lane], and zero where a tap lies outside. Windows count elements of diff_dst, from
 * where rows begin on: of so many as may be read, they are the first to read `advance` bytes for each
 * vector. */
typedef struct {
    const char *const *row, *const *asked;
    const float *weight, *taps;
    ptrdiff_t rows, asked_rows, origin, extent, advance;
    ptrdiff_t count, row_step, dst_step;
    ptrdiff_t shift;   /* row r + shift of a row of the result is row r of the next one; 0 where none is */
    char *dst;
    ptrdiff_t joined;  /* rows that each one asked for stands for, which follow it in memory */
    Asking *meanwhile; /* what windows ask for instead, a time for each block, or NULL */
    int in_order;      /* rows come from memory, and all of them are asked for */
    int near;          /* NEAR, where what is asked for goes to the first-level cache, or 0 */
    int streams;       /* results of whole lines go past the caches: of float32, or spread far */
} FusedRows;

/* Asks for the share of a block of `together` rows of the result, which read `bytes` of each row, `offset`
 * bytes into those that lie `row` bytes further on. */
INLINE void ask_for_block(const FusedRows *job, const int together, ptrdiff_t row, ptrdiff_t offset,
                          ptrdiff_t bytes) {
    const ptrdiff_t joined = together * job->joined;
    if (job->joined > 1) {
        for (ptrdiff_t r = 0; r < job->asked_rows; r++)
            prefetch_ahead(job->asked[r] + row + joined * offset, 0, joined * bytes);
        return;
    }
#pragma GCC unroll 2
    for (int t = 0; t < together; t++, row += job->row_step)
        for (ptrdiff_t r = 0; r < job->asked_rows; r++)
            prefetch_ahead(job->asked[r] + row + offset, job->near, bytes);
}

#endif
