/* What the resampling kernels do to rows and columns, in the type that computes: float, or double
 * where f64 is set. Sums run in one order whatever the block sizes, so a result depends neither on
 * the split of the work nor on the layout. */
#ifndef GRADOPS_RESAMPLING_H
#define GRADOPS_RESAMPLING_H

#include "interleave.h"
#include "prefetch.h"
#include "rows.h"
#include "stream.h"

enum {
    ROWS_AT_ONCE = 16,        /* rows that add_rows takes: as many streams as prefetchers follow */
    ROWS_OF_A_PLANE = 8,      /* of one plane, where more than these lie a row apart */
    COLUMNS_IN_SEQUENCE = 32, /* products summed before their sum is added to the total */
    STRIDED_PIECE = 64,       /* elements gathered at once from rows that are not contiguous */
    SLACK = 4 * VECTOR_BYTES,
    ASKING_LANES = 4 * LANES_F32, /* elements summed for each time that something is asked for */
};

/* The first n of a vector's elements, of a type narrower than float64; the others are zero. */
INLINE vec_f32 load_first(int dtype, const char *p, ptrdiff_t n) {
    int count = n < LANES_F32 ? (int)n : LANES_F32;
    return dtype == F32 ? read_f32(p, count) : dtype == F16 ? read_f16(p, count) : read_bf16(p, count);
}
INLINE void store_first(int dtype, vec_f32 x, char *p, ptrdiff_t n) {
    int count = n < LANES_F32 ? (int)n : LANES_F32;
    if (dtype == F32) write_f32(p, x, count);
    else if (dtype == F16) write_f16(p, x, count);
    else write_bf16(p, x, count);
}

/* The first n positions of a block, or added to what is there. */
INLINE void store_block(int dtype, int accumulate, vec_f32 sum, char *dst, ptrdiff_t n) {
    if (accumulate) sum += load_first(dtype, dst, n);
    store_first(dtype, sum, dst, n);
}

INLINE void store_pair_f32(int dtype, const vec_f32 *pair, char *p) {
    if (dtype == F32) write_pair_f32(p, pair[0], pair[1]);
    else if (dtype == F16) write_pair_f16(p, pair[0], pair[1]);
    else write_pair_bf16(p, pair[0], pair[1]);
}

/* Two vectors of elements. A word of 32 bits holds two bf16, a shift and a mask away from floats: so
 * they come even and odd ones apart, and sums of them are put in order once, at the end. */
INLINE void load_pair_f32(int dtype, const char *p, vec_f32 *pair) {
    if (dtype == BF16) {
        typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
        words both = *(const words *)p;
        HOLD_VECTOR(both);
        pair[0] = (vec_f32)(both << 16);
        pair[1] = (vec_f32)(both & 0xffff0000u);
        return;
    }
    pair[0] = load_first(dtype, p, LANES_F32);
    pair[1] = load_first(dtype, p + LANES_F32 * element_size(dtype), LANES_F32);
}
INLINE void order_pair_f32(int dtype, vec_f32 *pair) {
    if (dtype != BF16) return;
    vec_f32 even = pair[0], odd = pair[1];
    pair[0] = __builtin_shufflevector(even, odd, LANES_OF_f32(FIRST_HALF));
    pair[1] = __builtin_shufflevector(even, odd, LANES_OF_f32(SECOND_HALF));
}
/* The inverse of order_pair_f32. */
INLINE void deal_pair_f32(int dtype, vec_f32 *pair) {
    if (dtype != BF16) return;
    vec_f32 low = pair[0], high = pair[1];
    pair[0] = __builtin_shufflevector(low, high, LANES_OF_f32(EVENS));
    pair[1] = __builtin_shufflevector(low, high, LANES_OF_f32(ODDS));
}

/* Elements from p to where a line begins, as far as vectors are concerned: one across two lines takes two loads. */
INLINE ptrdiff_t elements_to_line(const char *p, ptrdiff_t size) {
    return (-(intptr_t)p & (VECTOR_BYTES - 1)) / size;
}

/* In how far ahead is asked, a multiple of 2: for the first-level cache instead of the second. */
enum { NEAR = 1 };

/* Asks for bytes that are loaded so much later. The hardware stops at the end of a page, and runs behind
 * where several rows are read side by side. */
INLINE void prefetch_ahead(const char *p, ptrdiff_t ahead, ptrdiff_t bytes) {
    const int near = ahead & NEAR;
    p += ahead - near;
    for (ptrdiff_t j = 0; j < bytes; j += 64) {
        if (near) __builtin_prefetch(p + j, 0, 3);
        else __builtin_prefetch(p + j, 0, 2);
    }
}

/* Whether each row ends where the next one begins. */
INLINE int are_joined(const char *const *row, ptrdiff_t rows, ptrdiff_t bytes) {
    for (ptrdiff_t r = 1; r < rows; r++)
        if (row[r] - row[r - 1] != bytes) return 0;
    return 1;
}

/* The same for several rows from `offset` on. Those that are joined are asked for one after the other
 * while all of them are read side by side: memory follows one stream better than several. */
INLINE void prefetch_rows(const char *const *row, ptrdiff_t rows, int joined, ptrdiff_t offset,
                          ptrdiff_t ahead, ptrdiff_t bytes) {
    if (joined) {
        prefetch_ahead(row[0] + rows * offset, ahead, rows * bytes);
        return;
    }
#pragma GCC unroll 1
    for (ptrdiff_t r = 0; r < rows; r++) prefetch_ahead(row[r] + offset, ahead, bytes);
}

#define REAL float
#define VEC vec_f32
#define LANES LANES_F32
#define SPLAT splat_f32
#define LOAD_FIRST load_first
#define STORE_FIRST store_first
#define LOAD_PAIR load_pair_f32
#define STORE_PAIR store_pair_f32
#define ORDER_PAIR order_pair_f32
#define DEAL_PAIR deal_pair_f32
#define NAME(x) x##_f32
#include "resampling_rows.h"
#include "resampling_boxes.h"
#undef REAL
#undef VEC
#undef LANES
#undef SPLAT
#undef LOAD_FIRST
#undef STORE_FIRST
#undef LOAD_PAIR
#undef STORE_PAIR
#undef ORDER_PAIR
#undef DEAL_PAIR
#undef NAME

#define REAL double
#define VEC vec_f64
#define LANES LANES_F64
#define SPLAT splat_f64
#define LOAD_FIRST(dtype, p, n) read_f64(p, (n) < LANES_F64 ? (int)(n) : LANES_F64)
#define STORE_FIRST(dtype, x, p, n) write_f64(p, x, (n) < LANES_F64 ? (int)(n) : LANES_F64)
#define STORE_PAIR(dtype, pair, p) \
    (((vec_f64 *)(p))[0] = (pair)[0], ((vec_f64 *)(p))[1] = (pair)[1])
#define LOAD_PAIR(dtype, p, pair) \
    ((pair)[0] = ((const vec_f64 *)(p))[0], (pair)[1] = ((const vec_f64 *)(p))[1])
#define ORDER_PAIR(dtype, pair) ((void)0)
#define DEAL_PAIR(dtype, pair) ((void)0)
#define NAME(x) x##_f64
#include "resampling_rows.h"
#include "resampling_boxes.h"
#undef REAL
#undef VEC
#undef LANES
#undef SPLAT
#undef LOAD_FIRST
#undef STORE_FIRST
#undef LOAD_PAIR
#undef STORE_PAIR
#undef ORDER_PAIR
#undef DEAL_PAIR
#undef NAME

static void add_contiguous_rows(int dtype, const char *const *row, const void *weight,
                                ptrdiff_t rows, ptrdiff_t ahead, ptrdiff_t n, void *dst,
                                int add) {
    if (dtype == F64) add_rows_of_f64(F64, row, weight, rows, ahead, n, dst, add);
    else if (dtype == F32) add_rows_of_f32(F32, row, weight, rows, ahead, n, dst, add);
    else if (dtype == F16) add_rows_of_f32(F16, row, weight, rows, ahead, n, dst, add);
    else add_rows_of_f32(BF16, row, weight, rows, ahead, n, dst, add);
}

/* Contiguous rows for two results: dst[i][j] (+)= sum_r weight[i][r] * row_r[j], j < n and r < rows. */
static void add_shared_rows(int dtype, const char *const *row, const void *const *weight,
                            ptrdiff_t rows, ptrdiff_t ahead, Asking *meanwhile, ptrdiff_t n,
                            char *const *dst, const int *add) {
#define ADD(type, dtype)                                                                           \
    add_shared_of_##type(dtype, row, (const void *)weight, rows, ahead, meanwhile, n, (void *)dst,  \
                         add)
    if (dtype == F64) ADD(f64, F64);
    else if (dtype == F32) ADD(f32, F32);
    else if (dtype == F16) ADD(f32, F16);
    else ADD(f32, BF16);
#undef ADD
}

/* dst[j] (+)= sum_r weight[r] * row_r[j] for j < n and r < rows <= ROWS_AT_ONCE; stride in bytes. Each
 * is asked for `ahead` bytes before it is loaded, unless that is 0. */
static void add_rows(int dtype, const char *const *row, ptrdiff_t stride, const void *weight,
                     ptrdiff_t rows, ptrdiff_t ahead, ptrdiff_t n, void *dst, int add) {
    if (stride == element_size(dtype)) {
        add_contiguous_rows(dtype, row, weight, rows, ahead, n, dst, add);
        return;
    }
    double piece[ROWS_AT_ONCE][STRIDED_PIECE];
    const char *piece_row[ROWS_AT_ONCE];
    int real = dtype == F64 ? F64 : F32, size = compute_size(dtype);
    for (ptrdiff_t r = 0; r < rows; r++) piece_row[r] = (const char *)piece[r];
    for (ptrdiff_t j = 0; j < n; j += STRIDED_PIECE) {
        ptrdiff_t m = n - j < STRIDED_PIECE ? n - j : STRIDED_PIECE;
        for (ptrdiff_t r = 0; r < rows; r++)
            load_row(dtype, row[r] + j * stride, stride, m, piece[r]);
        add_contiguous_rows(real, piece_row, weight, rows, 0, m, (char *)dst + j * size, add);
    }
}

/* A block that is stored where it belongs, or summed into a buffer of its type. Products k of a column
 * are summed in `chains`, by k modulo their number, which then are added up: of four, the first and
 * the third, the second and the fourth, and both. One chain where there may be more products than
 * COLUMNS_IN_SEQUENCE. */
static void add_columns(int dtype, int accumulate, const void *src, ptrdiff_t lanes,
                        const ptrdiff_t *start, const ptrdiff_t *first, const void *weight, int chains,
                        ptrdiff_t origin, ptrdiff_t x0, ptrdiff_t x1, char *dst, ptrdiff_t step) {
#define ADD(type, dtype, accumulate, lanes, chains)                                                \
    add_columns_for_##type(dtype, accumulate, src, lanes, start, first, weight, chains, origin, x0, x1, \
                           dst, step)
#define BY_CHAINS(dtype, lanes)                                                                    \
    do {                                                                                           \
        if (chains == 4) ADD(f32, dtype, 0, lanes, 4);                                             \
        else if (chains == 2) ADD(f32, dtype, 0, lanes, 2);                                        \
        else ADD(f32, dtype, 0, lanes, 1);                                                         \
    } while (0)
    if (dtype == F64) ADD(f64, F64, accumulate, lanes, 1);
    else if (accumulate) ADD(f32, dtype, 1, lanes, chains);
    else if (dtype == F16) BY_CHAINS(F16, lanes);
    else if (dtype == BF16) BY_CHAINS(BF16, lanes);
    else if (lanes == 16) BY_CHAINS(F32, 16);
    else BY_CHAINS(F32, lanes);
#undef BY_CHAINS
#undef ADD
}

/* dst[x][c] = the sum of the rows' columns start[x] to start[x] + first[x+1] - first[x] - 1, in `chains`,
 * for x0 <= x < x1 and c < lanes; columns are `step` and `dst_step` bytes apart. With `streams`, dst and
 * dst_step are whole lines. */
static void add_boxes(int dtype, int chains, int streams, const char *const *row, ptrdiff_t rows,
                      const ptrdiff_t *start, const ptrdiff_t *first, ptrdiff_t step,
                      ptrdiff_t lanes, ptrdiff_t x0, ptrdiff_t x1, char *dst, ptrdiff_t dst_step) {
#define ADD(type, dtype, chains, streams, rows)                                                    \
    add_boxes_for_##type(dtype, chains, streams, row, rows, start, first, step, lanes, x0, x1, dst, dst_step)
#define BY_STREAMS(type, dtype, chains, rows)                                                      \
    do {                                                                                           \
        if (streams) ADD(type, dtype, chains, 1, rows);                                            \
        else ADD(type, dtype, chains, 0, rows);                                                    \
    } while (0)
#define BY_CHAINS(dtype)                                                                           \
    do {                                                                                           \
        if (chains == 4) BY_STREAMS(f32, dtype, 4, rows);                                          \
        else if (chains == 2) BY_STREAMS(f32, dtype, 2, rows);                                     \
        else BY_STREAMS(f32, dtype, 1, rows);                                                      \
    } while (0)
    if (dtype == F64) BY_STREAMS(f64, F64, 1, rows);
    else if (dtype == F16) BY_CHAINS(F16);
    else if (dtype == BF16) BY_CHAINS(BF16);
    else if (rows == 2 && chains == 1) BY_STREAMS(f32, F32, 1, 2);
    else BY_CHAINS(F32);
#undef BY_CHAINS
#undef BY_STREAMS
#undef ADD
}

#include "resampling_sliding.h"
#include "resampling_width.h"

static void add_to(int f64, const void *src, ptrdiff_t n, void *dst) {
    if (f64) add_to_f64(src, n, dst);
    else add_to_f32(src, n, dst);
}

/* weight[r] = outer[(r0 + r) / inner_count] * inner[(r0 + r) % inner_count], and the rows. */
static void row_products(int f64, const char *base, ptrdiff_t outer_stride, const void *outer,
                         ptrdiff_t inner_stride, const void *inner, ptrdiff_t inner_count,
                         ptrdiff_t r0, ptrdiff_t rows, const char **row, void *weight) {
    ptrdiff_t o = 0, i = 0;
    if (r0) o = r0 / inner_count, i = r0 % inner_count;
    for (ptrdiff_t r = 0; r < rows; r++) {
        row[r] = base + o * outer_stride + i * inner_stride;
        if (f64) ((double *)weight)[r] = ((const double *)outer)[o] * ((const double *)inner)[i];
        else ((float *)weight)[r] = ((const float *)outer)[o] * ((const float *)inner)[i];
        if (++i == inner_count) { i = 0; o++; }
    }
}

#endif
