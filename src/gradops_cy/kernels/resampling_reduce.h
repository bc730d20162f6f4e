/* Rows of the result that take rows of diff_dst alike, with the same weights and equal distances apart:
 * reduced over depth and height, before the pass along the width. */
#ifndef GRADOPS_RESAMPLING_REDUCE_H
#define GRADOPS_RESAMPLING_REDUCE_H

#include "resampling.h"

enum {
    REDUCED_ROWS = 64,               /* of diff_dst at most, for a row of the result */
    REDUCED_AT_ONCE = 2 * LANES_F32, /* elements for each time that something is asked for `meanwhile` */
};

#if defined(__AVX2__) && defined(__FMA__)
/* So many pairs of vectors, `offset` bytes into the rows. */
INLINE void reduce_pairs(const int dtype, const int pairs, const char *const *src, const vec_f32 *weight,
                         ptrdiff_t rows, ptrdiff_t offset, float *dst) {
    const ptrdiff_t step = 2 * LANES_F32 * element_size(dtype);
    vec_f32 sum[4] = {{0}}, part[2];
#pragma GCC unroll 4
    for (ptrdiff_t r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int p = 0; p < pairs; p++) {
            load_pair_f32(dtype, src[r] + offset + p * step, part);
            sum[2 * p] += weight[r] * part[0];
            sum[2 * p + 1] += weight[r] * part[1];
        }
#pragma GCC unroll 2
    for (int p = 0; p < pairs; p++) {
        order_pair_f32(dtype, sum + 2 * p);
        write_f32_pair((char *)(dst + 2 * p * LANES_F32), sum[2 * p], sum[2 * p + 1]);
    }
}

/* See reduce_rows. A constant count of `rows` (not 0) keeps weights in registers, and `whole` vectors are read
 * beyond the end of a row. Long sums of two vectors would wait for each product. */
INLINE void reduce_rows_for(const int dtype, const int constant, const int whole, const char *const *row,
                            const float *weight, ptrdiff_t rows, ptrdiff_t n, ptrdiff_t count,
                            ptrdiff_t row_step, Asking *meanwhile, float *dst, ptrdiff_t dst_step) {
    const ptrdiff_t size = element_size(dtype);
    const int tail = (int)(n % LANES_F32);
    const char *src[REDUCED_ROWS];
    vec_f32 w[REDUCED_ROWS];
    if (constant) rows = constant;
#pragma GCC unroll 4
    for (ptrdiff_t r = 0; r < rows; r++) src[r] = row[r], w[r] = splat_f32(weight[r]);
    for (ptrdiff_t i = 0; i < count; i++, dst += dst_step) {
        ptrdiff_t j = 0;
        for (; !constant && j + 4 * LANES_F32 <= n; j += 4 * LANES_F32) {
            if (meanwhile) ask_on(meanwhile, 2);
            reduce_pairs(dtype, 2, src, w, rows, j * size, dst + j);
        }
        for (; j + 2 * LANES_F32 <= n; j += 2 * LANES_F32) {
            if (meanwhile) ask_on(meanwhile, 1);
            reduce_pairs(dtype, 1, src, w, rows, j * size, dst + j);
        }
        if (n & LANES_F32) {
            vec_f32 sum = {0};
#pragma GCC unroll 4
            for (ptrdiff_t r = 0; r < rows; r++)
                sum += w[r] * load_first(dtype, src[r] + j * size, LANES_F32);
            write_f32((char *)(dst + j), sum, LANES_F32);
            j += LANES_F32;
        }
        if (tail) {
            vec_f32 sum = {0};
            if (meanwhile) ask_on(meanwhile, 1);
#pragma GCC unroll 4
            for (ptrdiff_t r = 0; r < rows; r++)
                sum += w[r] * load_first(dtype, src[r] + j * size, whole ? LANES_F32 : tail);
            write_f32((char *)(dst + j), sum, tail);
        }
#pragma GCC unroll 4
        for (ptrdiff_t r = 0; r < rows; r++) src[r] += row_step;
    }
}

/* dst[j] = sum_r weight[r] * row_r[j] for j < n and r < rows <= REDUCED_ROWS, and the same `count` times, of
 * rows that lie row_step bytes further on, to dst_step floats further on; see REDUCED_AT_ONCE. */
static void reduce_rows(int dtype, int whole, const char *const *row, const float *weight, ptrdiff_t rows,
                        ptrdiff_t n, ptrdiff_t count, ptrdiff_t row_step, Asking *meanwhile, float *dst,
                        ptrdiff_t dst_step) {
#define REDUCE(dtype, constant, whole)                                                             \
    reduce_rows_for(dtype, constant, whole, row, weight, rows, n, count, row_step, meanwhile, dst, \
                    dst_step)
#define BY_ROWS(dtype)                                                                             \
    do {                                                                                           \
        if (!whole) REDUCE(dtype, 0, 0);                                                           \
        else if (rows == 1) REDUCE(dtype, 1, 1);                                                   \
        else if (rows == 2) REDUCE(dtype, 2, 1);                                                   \
        else if (rows == 3) REDUCE(dtype, 3, 1);                                                   \
        else if (rows == 4) REDUCE(dtype, 4, 1);                                                   \
        else REDUCE(dtype, 0, 1);                                                                  \
    } while (0)
    if (dtype == F32) BY_ROWS(F32);
    else if (dtype == F16) BY_ROWS(F16);
    else BY_ROWS(BF16);
#undef BY_ROWS
#undef REDUCE
}
#else
static void reduce_rows(int dtype, int whole, const char *const *row, const float *weight, ptrdiff_t rows,
                        ptrdiff_t n, ptrdiff_t count, ptrdiff_t row_step, Asking *meanwhile, float *dst,
                        ptrdiff_t dst_step) {
    (void)dtype, (void)whole, (void)row, (void)weight, (void)rows, (void)n, (void)count;
    (void)row_step, (void)meanwhile, (void)dst, (void)dst_step;
}
#endif

#endif
