/* Depthwise convolution with channels first: lanes are positions of a row, and nothing is transposed.
 *
 * diff_dst stands in a window of the computing type, with zeros around it. Rows of taps that read one
 * row after the other share what is loaded: a tile has `mr` rows of results, and each row of the
 * window is multiplied with as many rows of taps. With a stride, what neighbouring results read lies
 * side by side: a row of the window is in parts, of which each has every so many elements. */
#ifndef GRADOPS_DEPTHWISE_ROWS_H
#define GRADOPS_DEPTHWISE_ROWS_H

#include "rows.h"

/* What a tile reads; in elements. */
typedef struct {
    ptrdiff_t pitch;                /* from what a row of results reads to what the next one reads */
    ptrdiff_t layers;               /* taps of the first axis */
    ptrdiff_t layer_pitch;          /* from what one reads to what the next one reads */
    ptrdiff_t rows;                 /* taps of the second */
    ptrdiff_t row_pitch;
    ptrdiff_t apart;                /* every so many of them read one row of results after the other */
    ptrdiff_t taps;                 /* taps of the last */
    const ptrdiff_t *offset;        /* [taps] */
    const void *weights;            /* [layers][rows][taps] */
} Stencil;

#define STENCIL_MR 4
#if VECTOR_REGISTERS == 32
#define STENCIL_NV 4
#define STENCIL_WIDTHS(X) X(1) X(2) X(3) X(4)
#else
#define STENCIL_NV 2
#define STENCIL_WIDTHS(X) X(1) X(2)
#endif

#define BODY "depthwise_rows_body.h"
#include "for_reals.h"

/* Rows of `count` results; `window` is what the first tap reads for the first of them,
 * `dst_pitch` in bytes. */
static void run_stencil(int f64, const Stencil *stencil, const void *window, ptrdiff_t rows,
                        ptrdiff_t count, char *dst, ptrdiff_t dst_pitch) {
    if (f64) stencil_f64(stencil, window, rows, count, dst, dst_pitch);
    else stencil_f32(stencil, window, rows, count, dst, dst_pitch);
}

#endif
