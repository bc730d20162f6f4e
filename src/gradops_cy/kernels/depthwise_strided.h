/* Depthwise transposed convolution with a stride along the row, channels first: lanes are columns of
 * diff_dst, those of a stride side by side, and weights are repeated over the strides of a vector.
 *
 *     columns      0 1 2 3 | 4 5 6 7 | 8 9 ...      stride 4, eight taps
 *     first sums   ×w0..w3 | ×w0..w3 | ×w0 ...      of position p: those of its stride
 *     second       ×w4..w7 | ×w4..w7 | ×w4 ...      ... and of the stride after it
 *
 * To deal rows out by residues of the stride, for positions to be lanes, took longer than to multiply.
 * Now columns are multiplied in their order, and the sums of a row alone are dealt out and added up. */
#ifndef GRADOPS_DEPTHWISE_STRIDED_H
#define GRADOPS_DEPTHWISE_STRIDED_H

#include "depthwise_rows.h"

/* Vectors of columns of a tile, which has two sums of each. */
#define STRIDED_NV (VECTOR_REGISTERS / 4)
#if VECTOR_REGISTERS == 32
#define STRIDED_WIDTHS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)
#else
#define STRIDED_WIDTHS(X) X(1) X(2) X(3) X(4)
#endif

#define BODY "depthwise_strided_body.h"
#include "for_reals.h"

/* A channel's weights, `src_step` bytes apart: [rows of taps][strides of taps][lane]. */
static void repeat_over_strides(int f64, const char *src, ptrdiff_t src_step, ptrdiff_t taps, ptrdiff_t stride,
                           void *dst) {
    if (f64) repeat_over_strides_f64(src, src_step, taps, stride, dst);
    else repeat_over_strides_f32(src, src_step, taps, stride, dst);
}

/* Rows of results of a tensor's dtype, as run_stencil. */
static void run_strided(int dtype, const Stencil *stencil, const void *window, ptrdiff_t rows, char *dst,
                        ptrdiff_t dst_pitch) {
    if (dtype == F64) strided_rows_f64(dtype, stencil, window, rows, dst, dst_pitch);
    else strided_rows_f32(dtype, stencil, window, rows, dst, dst_pitch);
}

#endif
