/* Depthwise convolution with channels first: lanes are positions of a row, and nothing is transposed.
 *
 * diff_dst stands in a window of the computing type, with zeros around it. Rows of taps that read one
 * row after the other share what is loaded: a tile has `mr` rows of results, and each row of the
 * window is multiplied with as many rows of taps. With a stride, what neighbouring results read lies
 * side by side: a row of the window is in parts, of which each has every so many elements. Two residue
 * classes of a row are computed together: a class by itself would load again what the other has loaded,
 * and write every other element. Where vectors multiply pairs of bfloat16, an entry of the window is an
 * element and its right neighbour; for a last tap without one, zero and its element. */
#ifndef GRADOPS_DEPTHWISE_ROWS_H
#define GRADOPS_DEPTHWISE_ROWS_H

#include "interleave.h"
#include "prefetch.h"
#include "rows.h"

/* What a tile reads; in elements. */
typedef struct {
    ptrdiff_t first;                /* from the window's first element to what the first result reads */
    ptrdiff_t turns;                /* rows of results so far apart are a tile's: taps do not meet others */
    ptrdiff_t pitch;                /* from what one reads to what the next one reads */
    ptrdiff_t layers;               /* taps of the first axis */
    ptrdiff_t layer_pitch;          /* from what one reads to what the next one reads */
    ptrdiff_t row_pitch;            /* ... and taps of the second */
    ptrdiff_t apart;                /* every so many of them read one row of results after the other: */
    ptrdiff_t slides, longer;       /* so many in turn, one more of the first `longer` */
    ptrdiff_t entries;              /* of a row, that taps of the last axis read for the first result */
    const ptrdiff_t *offset;        /* [entries] */
    int classes;                    /* residue classes of a row: one, or two whose results take turns */
    int paired;                     /* entries are two neighbours of bfloat16, and so are weights */
    ptrdiff_t begin[2], end[2];     /* the entries that a class reads, with a tap each */
    const void *weights[2];         /* [layers][apart][taps][slides] */
    ptrdiff_t count;                /* results of a row, */
    ptrdiff_t vectors;              /* ... in vectors of each class, */
    ptrdiff_t nv;                   /* ... so many of them in a tile; */
    ptrdiff_t last;                 /* the first position of the last tile */
    const char *next;               /* what comes after the window, asked for by tiles: */
    ptrdiff_t next_step;            /* so many bytes for each row of results, or none */
    /* Of depthwise_strided.h: */
    ptrdiff_t stride, columns;      /* taps of the last axis, */
    ptrdiff_t tap_rows;             /* and of the second, all of them */
    void *sums;                     /* room for those of a row */
} Stencil;

enum { STENCIL_WORDS = sizeof(Stencil) / sizeof(ptrdiff_t) };

/* Tiles of a single row have up to twice the vectors. */
#define STENCIL_MR 4
#if VECTOR_REGISTERS == 32
#define STENCIL_NV 4
#define STENCIL_WIDTHS(X) \
    X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(1, 5) X(1, 6) X(1, 7) X(1, 8) X(2, 1) X(2, 2) X(2, 3) X(2, 4)
#else
#define STENCIL_NV 2
#define STENCIL_WIDTHS(X) X(1, 1) X(1, 2) X(1, 3) X(1, 4) X(2, 1) X(2, 2)
#endif
#define STENCIL_MOST_NV (2 * STENCIL_NV)

INLINE void write_sums_f32(const int dtype, char *dst, vec_f32 v, int n) {
    if (dtype == F32) write_f32(dst, v, n);
    else if (dtype == F16) write_f16(dst, v, n);
    else write_bf16(dst, v, n);
}
INLINE void write_sums_f64(const int dtype, char *dst, vec_f64 v, int n) {
    (void)dtype;
    write_f64(dst, v, n);
}

/* Two vectors of bfloat16. */
#define write_two_f32 write_pair_bf16
#define write_two_f64(dst, v0, v1) (void)0

#define COLUMN_PAIRS 0
#define BODY "depthwise_rows_body.h"
#include "for_reals.h"
#undef COLUMN_PAIRS
#if VECTOR_PAIRS
#define COLUMN_PAIRS 1
#define REAL float
#define VEC vec_f32
#define LANES LANES_F32
#define NAME(x) x##_pairs
#define write_sums_pairs write_sums_f32
#define write_two_pairs write_pair_bf16
#define take_turns_pairs take_turns_f32
#include "depthwise_rows_body.h"
#undef REAL
#undef VEC
#undef LANES
#undef NAME
#undef write_sums_pairs
#undef write_two_pairs
#undef take_turns_pairs
#undef COLUMN_PAIRS
#endif

/* dst[i] = (src[i], src[i + 1]) for i < n, the last one with zero. */
static void pair_neighbours(const uint16_t *src, ptrdiff_t n, uint32_t *dst) {
    ptrdiff_t i = 0;
#if VECTOR_BYTES == 64
    uint16_t from[32];
    for (int j = 0; j < 32; j++) from[j] = (uint16_t)((j + 1) / 2);
    const __m512i places = _mm512_loadu_si512(from);
    for (; i + 32 <= n; i += 16)
        _mm512_storeu_si512(dst + i, _mm512_permutexvar_epi16(places, _mm512_loadu_si512(src + i)));
    for (; i < n; i += 16) {
        const __m512i left = _mm512_maskz_loadu_epi16(n - i < 32 ? (1u << (n - i)) - 1 : ~0u, src + i);
        _mm512_mask_storeu_epi32(dst + i, (__mmask16)(n - i < 16 ? (1u << (n - i)) - 1 : ~0u),
                                 _mm512_permutexvar_epi16(places, left));
    }
#endif
    for (; i < n; i++) dst[i] = src[i] | (i + 1 < n ? (uint32_t)src[i + 1] << 16 : 0);
}

/* dst[place[t]] = src[t], a channel's weights; `stride` in bytes. Paired, places are those of halves, of
 * which a float is the latter. */
static void place_weights(int f64, int paired, const char *src, ptrdiff_t stride, ptrdiff_t taps,
                          const ptrdiff_t *place, void *dst) {
    for (ptrdiff_t t = 0; t < taps; t++, src += stride)
        if (f64) ((double *)dst)[place[t]] = *(const double *)src;
        else if (paired) memcpy((uint16_t *)dst + place[t], src + 2, 2);
        else ((float *)dst)[place[t]] = *(const float *)src;
}

/* Cuts `rows` of `count` results into tiles. Without masks the last one ends with the row, where it can:
 * it computes again some of what the tile before it has. */
static void set_tiles(int dtype, Stencil *s, ptrdiff_t rows, ptrdiff_t count) {
    const ptrdiff_t lanes = VECTOR_BYTES / compute_size(dtype);
    const ptrdiff_t most = (rows == 1 ? STENCIL_MOST_NV : STENCIL_NV) / s->classes;
    const ptrdiff_t positions = (count + s->classes - 1) / s->classes;
    s->count = count;
    s->vectors = (positions + lanes - 1) / lanes;
    const ptrdiff_t tiles = (s->vectors + most - 1) / most;
    s->nv = (s->vectors + tiles - 1) / tiles;
    const ptrdiff_t before = (s->vectors - 1) / s->nv * s->nv;
    const ptrdiff_t whole = positions - (s->vectors - before) * lanes;
    const int ends = !HAVE_MASKS && whole >= 0 && positions * s->classes == count;
    s->last = ends ? whole : before * lanes;
}

/* Rows of results of a tensor's dtype; the window is of the type that computes. */
static void run_stencil(int dtype, const Stencil *stencil, const void *window, ptrdiff_t rows,
                        char *dst, ptrdiff_t dst_pitch) {
#if VECTOR_PAIRS
    if (stencil->paired) {
        stencil_pairs(dtype, stencil, window, rows, dst, dst_pitch);
        return;
    }
#endif
    if (dtype == F64) stencil_f64(dtype, stencil, window, rows, dst, dst_pitch);
    else stencil_f32(dtype, stencil, window, rows, dst, dst_pitch);
}

#endif
