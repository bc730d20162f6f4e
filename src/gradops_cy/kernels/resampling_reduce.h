/* Rows of the result that take rows of diff_dst alike, with the same weights and equal distances apart:
 * reduced over depth and height, before the pass along the width. */
#ifndef GRADOPS_RESAMPLING_REDUCE_H
#define GRADOPS_RESAMPLING_REDUCE_H

#include "resampling.h"

enum {
    REDUCED_ROWS = 64,                /* of diff_dst at most, for a row of the result */
    HELD_ROWS = 4,                    /* the most of a constant count */
    ALIGNED_ELEMENTS = 8 * LANES_F32, /* of a row from which on vectors are read where lines begin */
    REDUCED_AT_ONCE = 2 * LANES_F32,  /* elements for each time that something is asked for `meanwhile` */
};

#if defined(__AVX2__) && defined(__FMA__)
/* So many pairs of vectors, `offset` bytes into the rows; those of a constant count (not 0) are held. */
INLINE void reduce_pairs(const int dtype, const int constant, const int pairs, const char *const *row,
                         const float *weight, const vec_f32 *held, ptrdiff_t rows, ptrdiff_t offset,
                         float *dst) {
    const ptrdiff_t step = 2 * LANES_F32 * element_size(dtype), count = constant ? constant : rows;
    vec_f32 sum[4] = {{0}}, part[2];
#pragma GCC unroll 4
    for (ptrdiff_t r = 0; r < count; r++) {
        const vec_f32 w = constant ? held[r] : splat_f32(weight[r]);
#pragma GCC unroll 2
        for (int p = 0; p < pairs; p++) {
            load_pair_f32(dtype, row[r] + offset + p * step, part);
            sum[2 * p] += w * part[0];
            sum[2 * p + 1] += w * part[1];
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < pairs; p++) {
        order_pair_f32(dtype, sum + 2 * p);
        write_pair_f32((char *)(dst + 2 * p * LANES_F32), sum[2 * p], sum[2 * p + 1]);
    }
}

/* The same of one vector, of which n elements are read. */
INLINE vec_f32 reduce_vector(const int dtype, const int constant, const char *const *row,
                             const float *weight, const vec_f32 *held, ptrdiff_t rows, ptrdiff_t offset,
                             ptrdiff_t n) {
    const ptrdiff_t count = constant ? constant : rows;
    vec_f32 sum = {0};
#pragma GCC unroll 4
    for (ptrdiff_t r = 0; r < count; r++)
        sum += (constant ? held[r] : splat_f32(weight[r])) * load_first(dtype, row[r] + offset, n);
    return sum;
}

/* Whether rows begin at the same place of a vector in memory. */
INLINE int lie_alike(const char *const *row, ptrdiff_t rows) {
    for (ptrdiff_t r = 1; r < rows; r++)
        if ((row[r] - row[0]) % VECTOR_BYTES) return 0;
    return 1;
}

/* The columns of a row from j on. `whole` vectors are read beyond its end. Long sums of two vectors would wait
 * for each product. */
INLINE void reduce_columns(const int dtype, const int constant, const int whole, const char *const *row,
                           const float *weight, const vec_f32 *held, ptrdiff_t rows, ptrdiff_t begin,
                           ptrdiff_t j, ptrdiff_t n, Asking *meanwhile, float *dst) {
    const ptrdiff_t size = element_size(dtype);
#define PAIRS(pairs)                                                                               \
    reduce_pairs(dtype, constant, pairs, row, weight, held, rows, begin + j * size, dst + j)
#define VECTOR(n)                                                                                  \
    reduce_vector(dtype, constant, row, weight, held, rows, begin + j * size, n)
    for (; !constant && j + 4 * LANES_F32 <= n; j += 4 * LANES_F32) {
        if (meanwhile) ask_near(meanwhile, 2);
        PAIRS(2);
    }
    for (; j + 2 * LANES_F32 <= n; j += 2 * LANES_F32) {
        if (meanwhile) ask_near(meanwhile, 1);
        PAIRS(1);
    }
    if (j + LANES_F32 <= n) {
        write_f32((char *)(dst + j), VECTOR(LANES_F32), LANES_F32);
        j += LANES_F32;
    }
    if (j < n) {
        if (meanwhile) ask_near(meanwhile, 1);
        write_f32((char *)(dst + j), VECTOR(whole ? LANES_F32 : n - j), (int)(n - j));
    }
#undef VECTOR
#undef PAIRS
}

/* See reduce_rows. Where rows lie alike, vectors after the first pair are read from where a line begins. */
INLINE void reduce_rows_for(const int dtype, const int constant, const int whole, const char *const *rows_at,
                            const float *weight, ptrdiff_t rows, ptrdiff_t n, ptrdiff_t count,
                            ptrdiff_t row_step, Asking *meanwhile, float *dst, ptrdiff_t dst_step) {
    const ptrdiff_t size = element_size(dtype);
    const int aligns = rows > 1 && n >= ALIGNED_ELEMENTS && lie_alike(rows_at, rows);
    const char *held_row[HELD_ROWS], *const *row = constant ? held_row : rows_at;
    vec_f32 held[HELD_ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < constant; r++) held_row[r] = rows_at[r], held[r] = splat_f32(weight[r]);
    for (ptrdiff_t i = 0; i < count; i++, dst += dst_step) {
        const ptrdiff_t begin = i * row_step;
        ptrdiff_t j = 0;
        if (aligns) j = elements_to_line(rows_at[0] + begin, size);
        if (j) reduce_pairs(dtype, constant, 1, row, weight, held, rows, begin, dst);
        reduce_columns(dtype, constant, whole, row, weight, held, rows, begin, j, n, meanwhile, dst);
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
