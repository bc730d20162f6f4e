/* Depthwise convolution with channels last: one input and one output channel a group, so that every
 * lane of a vector is a channel and diff_dst is read where it lies, in its own type.
 *
 * A span is a run of positions that read the same taps of the last axis; or a whole row, where taps
 * slide. With a load for each product 5x5 and 7x7 layers waited for the first-level cache, twice as
 * long where vectors cross its lines, as those of most NumPy arrays do: so what is loaded serves all
 * taps of its row. The ends of a row, one position with two taps and one with three, took as long as
 * three times as many positions between them.
 */
#ifndef GRADOPS_DEPTHWISE_H
#define GRADOPS_DEPTHWISE_H

#include "prefetch.h"
#include "stream.h"
#include "vector_io.h"

/* Taps of a row of which each reads for a position what the one before reads for the next: all of them,
 * or with strides every so many. Entry j + tap is what position j reads. */
typedef struct {
    ptrdiff_t taps;
    ptrdiff_t offset;               /* from row to entry 0 */
    ptrdiff_t low, high;            /* the entries that lie inside */
} Slide;

/* What a span reads; bytes, except `weight_pitch` and the sizes of arrays. */
typedef struct {
    ptrdiff_t rows;                 /* rows of taps that lie inside diff_dst */
    const char *const *row;         /* [rows] */
    const char *const *weight;      /* [rows]: panels [tap][channel] of the computing type */
    ptrdiff_t weight_pitch;         /* elements from tap to tap */
    ptrdiff_t taps;                 /* taps of each row */
    const ptrdiff_t *offset;        /* [taps]: from row to what the tap reads at the first position */
    ptrdiff_t step;                 /* from position to position in diff_dst */
    ptrdiff_t dst_step;             /* ... and in diff_src */
    const char *ahead;              /* the row of diff_dst that is asked for meanwhile, or NULL: */
    ptrdiff_t ahead_step;           /* so many bytes of it for each position */
    int sliding;                    /* taps slide: */
    ptrdiff_t slides;
    const Slide *slide;             /* [slides], each beginning with the tap after the one before's */
    int classes;                    /* 2: entry j + tap is what position 2 j + tap reads */
    ptrdiff_t before;               /* positions that are not written, for the first to be even */
    int accumulate;
    int streams;                    /* whole vectors of the computing type go past the caches */
    void *sums;                     /* where sums go in the type that computes, from position */
    ptrdiff_t sums_first;           /* ... sums_first on */
    ptrdiff_t sums_pitch;           /* elements from position to position; or NULL */
    ptrdiff_t row_panel;            /* in pairs of rows (depthwise_pairs.h): from a row's weights to */
                                    /* those of the next; or 0 */
    int flat;                       /* positions and channels are one, weights are repeated */
    /* Of grouped.h: the k's of each tap. */
    int broadcast;                  /* ... are scalars, for so many lanes; or vectors: 0 */
    int quads;                      /* ... are spread by the tile, four from a vector */
    int paired;                     /* ... are pairs of bfloat16 */
    ptrdiff_t depth;
    ptrdiff_t source_pitch;         /* from k to k */
    ptrdiff_t panel;                /* elements from k to k */
} Span;

#if VECTOR_REGISTERS == 32
#define SPAN_MR 8
#define SPAN_NV 4
#define SPAN_HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
#define SPAN_MR 4
#define SPAN_NV 2
#define SPAN_HEIGHTS(X) X(1) X(2) X(3) X(4)
#endif

/* Whether `width` of the taps that are left are next; of two classes, others begin with an even one. */
#define FITS(width) (classes == 1 ? left >= width : left == width)

/* So many positions from `first` on, channels `begin` to `end` - 1. */
typedef void (*SlidingTile)(const Span *span, ptrdiff_t first, ptrdiff_t begin, ptrdiff_t end, char *dst);

#define REAL float
#define VEC vec_f32
#define LANES LANES_F32
#define NAME(x) x##_f32
#define SIZE 4
#include "depthwise_body.h"
#undef NAME
#undef SIZE
#define NAME(x) x##_f16
#define SIZE 2
#include "depthwise_body.h"
#undef NAME
#define NAME(x) x##_bf16
#include "depthwise_body.h"
#undef REAL
#undef VEC
#undef LANES
#undef NAME
#undef SIZE
#define REAL double
#define VEC vec_f64
#define LANES LANES_F64
#define NAME(x) x##_f64
#define SIZE 8
#include "depthwise_body.h"
#undef REAL
#undef VEC
#undef LANES
#undef NAME
#undef SIZE

#include "depthwise_pairs.h"
#undef FITS

static void run_span(int dtype, const Span *span, ptrdiff_t first, ptrdiff_t positions,
                     ptrdiff_t channels, char *dst) {
    BY_DTYPE(dtype, span, span, first, positions, channels, dst);
}

static const SlidingTile *sliding_tiles(int dtype, const Span *span) {
#if VECTOR_PAIRS
    if (span->row_panel) return slides_pairs;
#endif
    if (dtype == F64) return slides_f64;
    return dtype == F32 ? slides_f32 : dtype == F16 ? slides_f16 : slides_bf16;
}

/* Positions of a row whose taps slide, channels `begin` to `end` - 1; taps outside are left out. Tiles go
 * through all channels of their positions, in the order of memory. */
static void run_sliding_span(int dtype, const Span *span, ptrdiff_t first, ptrdiff_t positions,
                             ptrdiff_t begin, ptrdiff_t end, char *dst) {
    const SlidingTile *tile = sliding_tiles(dtype, span);
    const ptrdiff_t tiles = (positions + SPAN_MR - 1) / SPAN_MR, last = first + positions;
    for (ptrdiff_t i = 1, j = first, next; i <= tiles; i++, j = next) {
        /* Of two classes, each tile has to begin with an even position. */
        next = span->classes == 1 ? first + positions * i / tiles : MIN(j + SPAN_MR, last);
        if (span->ahead)
            fetch_ahead(span->ahead + (j - first) * span->ahead_step, 0, 0, 1,
                        (next - j) * span->ahead_step);
        tile[next - j](span, j, begin, end, dst);
    }
}

/* The sums of columns beside each other, `begin` to `end` - 1, become results. */
static void add_up_columns(int dtype, const Span *span, ptrdiff_t positions, ptrdiff_t begin,
                           ptrdiff_t end, ptrdiff_t channels, char *dst) {
    BY_DTYPE(dtype, sum_columns, span, positions, begin, end, channels, dst);
}

/* Positions that read the same taps, in dense rows of fewer channels than lanes; weights are repeated. */
static void run_flat_span(int dtype, const Span *span, ptrdiff_t first, ptrdiff_t positions,
                          ptrdiff_t channels, char *dst) {
    BY_DTYPE(dtype, flat_span, span, first, positions, channels, dst);
}

#endif
