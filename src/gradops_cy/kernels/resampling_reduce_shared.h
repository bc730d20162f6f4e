/* Rows of the result that follow each other in a plane, reduced over depth and height where no row of diff_dst
 * touches more than two of them: each is loaded once, for both. A few columns at a time of all rows, so that
 * what is begun for the next one stays in registers; or one row after the other, where much is read for each
 * from memory, which prefetchers follow then: what is begun is carried in cache. */
#ifndef GRADOPS_RESAMPLING_REDUCE_SHARED_H
#define GRADOPS_RESAMPLING_REDUCE_SHARED_H

#include "resampling_reduce.h"

/* Rows h0 <= h < h1 of the result in each of some planes, their first n columns. Row h takes the rows of diff_dst
 * from start[h] on, of each of `depths` slices, with the weights from place first[h] on, where those of row
 * h + 1 follow. */
typedef struct {
    const char *src; /* row 0 of the first slice of the first plane, and the bytes to the next of each */
    ptrdiff_t step, depth_step, plane_step;
    ptrdiff_t depths, planes, h0, h1, n;
    const float *depth_weight, *weight;
    const ptrdiff_t *start, *first;
    float *dst; /* and the floats to the next row and the next plane */
    ptrdiff_t dst_step, dst_plane;
    float *carry; /* of a single plane, what was begun for row h0, or is for row h1, as it was loaded */
    int carried, carries;
    int by_rows;       /* one after the other */
    Asking *meanwhile; /* what is asked for; see REDUCED_AT_ONCE */
} SharedRows;

#if defined(__AVX2__) && defined(__FMA__)
enum { SHARED_VECTORS = 4 };

/* Columns from j on, n of them or whole vectors, of rows h0 <= h < h1 in planes from `plane` on. */
typedef struct {
    ptrdiff_t plane, j, n, h0, h1;
} Strip;

/* So many vectors; of one, the first n elements. Even numbers are pairs. */
INLINE void load_vectors(const int dtype, const int vectors, const char *p, ptrdiff_t n, vec_f32 *x) {
    if (vectors == 1) x[0] = load_first(dtype, p, n);
    else
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v += 2) load_pair_f32(dtype, p + v * LANES_F32 * element_size(dtype), x + v);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) HOLD_VECTOR(x[v]);
}

/* A strip of so many planes and vectors. Of one vector n elements are read and written, else whole ones are
 * written, beyond the end of all rows but the last: there begins the next one. */
INLINE void reduce_strip(const int dtype, const int planes, const int vectors, const int deep,
                         const SharedRows *rows, const Strip strip) {
    const ptrdiff_t *start = rows->start, *first = rows->first, step = rows->step, h1 = strip.h1, n = strip.n;
    const ptrdiff_t plane_step = rows->plane_step, dst_plane = rows->dst_plane, dst_step = rows->dst_step;
    const ptrdiff_t depths = deep ? rows->depths : 1, depth_step = deep ? rows->depth_step : 0;
    const float *weights = rows->weight, *depth_weight = rows->depth_weight;
    float *dst = rows->dst + strip.plane * dst_plane + (strip.h0 - rows->h0) * dst_step + strip.j;
    float *carry = rows->carry + strip.j;
    Asking *meanwhile = rows->meanwhile;
    const int carried = strip.h0 > rows->h0 || rows->carried, carries = h1 < rows->h1 || rows->carries;
    vec_f32 sum[SHARED_VECTORS], next[SHARED_VECTORS], x[SHARED_VECTORS];
    ptrdiff_t h = strip.h0, y = start[h];
    for (int v = 0; v < planes * vectors; v++) next[v] = (vec_f32){0};
    if (planes == 1 && carried) {
        y = start[h - 1] + first[h] - first[h - 1];
        for (int v = 0; v < vectors && v / 2 * 2 * LANES_F32 < n; v++)
            next[v] = *(const vec_f32 *)(carry + v * LANES_F32);
    }
    const char *src = rows->src + strip.plane * plane_step + y * step + strip.j * element_size(dtype);
    for (; h < h1; h++, dst += dst_step) {
        const ptrdiff_t begin = start[h], end = begin + first[h + 1] - first[h];
        const ptrdiff_t after = h + 1 < h1 || carries ? start[h + 1] : end;
        const float *weight = weights + first[h] + y - begin, *weight_next = weights + first[h + 1];
        if (meanwhile) ask_near(meanwhile, (planes * vectors + 1) / 2);
        for (int v = 0; v < planes * vectors; v++) sum[v] = next[v], next[v] = (vec_f32){0};
#define ADD_ROW(both, k)                                                                           \
    for (ptrdiff_t d = 0; d < depths; d++) {                                                       \
        const vec_f32 w = splat_f32(deep ? weight[k] * depth_weight[d] : weight[k]);               \
        const vec_f32 w_next = splat_f32(!both ? 0 : deep ? weight_next[k] * depth_weight[d]       \
                                               : weight_next[k]);                                  \
        for (int p = 0; p < planes; p++)                                                           \
            load_vectors(dtype, vectors, src + k * step + p * plane_step + d * depth_step, n,      \
                         x + p * vectors);                                                         \
        for (int v = 0; v < planes * vectors; v++) {                                               \
            sum[v] += w * x[v];                                                                    \
            if (both) next[v] += w_next * x[v];                                                    \
        }                                                                                          \
    }
        for (; y < after; y++, weight++, src += step) ADD_ROW(0, 0)
        for (; y + 2 <= end; y += 2, weight += 2, weight_next += 2, src += 2 * step) {
            ADD_ROW(1, 0)
            ADD_ROW(1, 1)
        }
        if (y < end) {
            ADD_ROW(1, 0)
            y++, src += step;
        }
#undef ADD_ROW
        if (vectors > 1)
            for (int v = 0; v < planes * vectors; v += 2) order_pair_f32(dtype, sum + v);
        for (int p = 0; p < planes; p++) {
            float *row = dst + p * dst_plane;
            if (vectors == 1) write_f32((char *)row, sum[p], (int)n);
            else if (h + 1 < h1)
                for (int v = 0; v < vectors; v++)
                    write_f32((char *)(row + v * LANES_F32), sum[p * vectors + v], LANES_F32);
            else
                for (int v = 0; v < vectors && v * LANES_F32 < n; v++)
                    write_f32((char *)(row + v * LANES_F32), sum[p * vectors + v],
                              (int)MIN(n - v * LANES_F32, LANES_F32));
        }
    }
    if (planes == 1 && carries)
        for (int v = 0; v < vectors && v / 2 * 2 * LANES_F32 < n; v++)
            *(vec_f32 *)(carry + v * LANES_F32) = next[v];
}

/* Some planes, of which whole vectors are read beyond the end of a row, or not. */
INLINE void reduce_strips(const int dtype, const int deep, const int whole, const SharedRows *rows,
                          ptrdiff_t plane, ptrdiff_t planes) {
    const ptrdiff_t full = SHARED_VECTORS * LANES_F32, end = plane + planes, h0 = rows->h0, h1 = rows->h1;
    const ptrdiff_t columns = rows->n / full * full;
    ptrdiff_t rest = rows->n - columns;
#define STRIP(planes, vectors, ...)                                                                \
    reduce_strip(dtype, planes, vectors, deep, rows, (Strip){__VA_ARGS__, h0, h1})
    /* The last columns first: beyond them begins the next row. */
    for (; !whole && rest > 0; rest = (rest - 1) / LANES_F32 * LANES_F32)
        for (ptrdiff_t p = plane, k = (rest - 1) / LANES_F32 * LANES_F32; p < end; p++)
            STRIP(1, 1, p, columns + k, rest - k);
    for (ptrdiff_t p = plane; rest > 0 && p < end;) {
        if (rest > 2 * LANES_F32) STRIP(1, 4, p++, columns, rest);
        else if (rest > LANES_F32 && p + 2 <= end) STRIP(2, 2, p, columns, rest), p += 2;
        else if (rest > LANES_F32) STRIP(1, 2, p++, columns, rest);
        else if (p + 4 <= end) STRIP(4, 1, p, columns, rest), p += 4;
        else STRIP(1, 1, p++, columns, rest);
    }
    for (ptrdiff_t p = plane; p < end; p++) {
        for (ptrdiff_t j = 0; !rows->by_rows && j < columns; j += full) STRIP(1, 4, p, j, full);
        for (ptrdiff_t h = h0; rows->by_rows && h < h1; h++)
            for (ptrdiff_t j = 0; j < columns; j += full)
                reduce_strip(dtype, 1, 4, deep, rows, (Strip){p, j, full, h, h + 1});
    }
#undef STRIP
}

/* The last plane may end where the memory does. */
static void reduce_shared(int dtype, int whole, const SharedRows *rows) {
    const ptrdiff_t planes = rows->planes - !whole;
    const int deep = rows->depths != 1 || rows->depth_weight[0] != 1;
#define REDUCE(dtype)                                                                              \
    do {                                                                                           \
        if (deep) reduce_strips(dtype, 1, 1, rows, 0, planes);                                     \
        else reduce_strips(dtype, 0, 1, rows, 0, planes);                                          \
        if (!whole) reduce_strips(dtype, 1, 0, rows, planes, 1);                                   \
    } while (0)
    if (dtype == F32) REDUCE(F32);
    else if (dtype == F16) REDUCE(F16);
    else REDUCE(BF16);
#undef REDUCE
}
#else
static void reduce_shared(int dtype, int whole, const SharedRows *rows) { (void)dtype, (void)whole, (void)rows; }
#endif

#endif
