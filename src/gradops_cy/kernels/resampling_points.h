/* The kernel of points: no element of a row of the result reads more than one column of diff_dst, as where
 * widths shrink, and most may read none. Depth and height are reduced in registers; rows are written in one
 * go, zeros and all. */
#ifndef GRADOPS_RESAMPLING_POINTS_H
#define GRADOPS_RESAMPLING_POINTS_H

#include "resampling.h"

/* Words of a table. A block is a vector of elements of the result: the first element of diff_dst that they
 * read, where each one's lies from there on, or -1 for none, and their weights. Where positions have whole
 * vectors of channels, each has but a column, or -1, and a weight. */
enum { POINT_BLOCK = 1 + 2 * LANES_F32, POINT_POSITION = 2 };

enum { POINT_ROWS = 64 /* rows that are reduced at once */ };

/* A plane of the result: the planes of diff_dst that it reads, where the first one's rows begin, the bytes
 * between them and between rows, the elements that are left of each, and their weights; the tables of the
 * height, of which row h reads those from start[h] on with weights from first[h] to first[h + 1], and how many
 * rows from h on are the same, if any are; the bytes between rows of the result, and how far ahead diff_dst is
 * asked for. */
typedef struct {
    const char *src;
    ptrdiff_t depths, src_pitch, src_step, extent;
    const float *depth_weight;
    const ptrdiff_t *start, *first, *alike;
    const float *height_weight;
    ptrdiff_t dst_step, ahead;
} PointPlane;

/* The rows of diff_dst that some rows of the result read, which are the same, and their weights. */
typedef struct {
    const char *src[POINT_ROWS];
    float weight[POINT_ROWS];
    ptrdiff_t products, extent, rows, step, ahead;
} PointRow;

/* The elements at `places`; zero where one is negative. */
INLINE vec_f32 pick_points(vec_f32 x, const int *places) {
#if defined(__AVX512F__)
    const __m512i place = _mm512_loadu_si512(places);
    const __mmask16 used = _mm512_cmpge_epi32_mask(place, _mm512_setzero_si512());
    return (vec_f32)_mm512_maskz_permutexvar_ps(used, place, (__m512)x);
#elif defined(__AVX2__)
    const __m256i place = _mm256_loadu_si256((const __m256i *)places);
    const __m256 unused = _mm256_castsi256_ps(_mm256_srai_epi32(place, 31));
    return (vec_f32)_mm256_andnot_ps(unused, _mm256_permutevar8x32_ps((__m256)x, place));
#else
    vec_f32 picked = {0};
    for (int i = 0; i < LANES_F32; i++)
        if (places[i] >= 0) picked[i] = x[places[i]];
    return picked;
#endif
}

/* A vector of the rows, `offset` bytes into them, of which `left` elements count. */
INLINE vec_f32 reduce_points(const int dtype, const int one, const PointRow *row, ptrdiff_t offset,
                             ptrdiff_t left) {
    const ptrdiff_t products = one ? 1 : row->products;
    vec_f32 sum = {0};
    for (ptrdiff_t r = 0; r < products; r++) {
        const char *p = row->src[r] + offset;
        sum += splat_f32(row->weight[r])
               * (left >= LANES_F32 ? load_first(dtype, p, LANES_F32) : load_first(dtype, p, left));
    }
    return sum;
}

INLINE vec_f32 point_block(const int dtype, const int one, const PointRow *row, const int *block) {
    const vec_f32 zero = {0}, weight = *(const vec_f32 *)(block + 1 + LANES_F32);
    const ptrdiff_t size = element_size(dtype);
    const vec_f32 sum = reduce_points(dtype, one, row, block[0] * size, row->extent - block[0]);
    return weight * pick_points(sum, block + 1) + zero;
}

/* Two vectors of the result, in all rows that are the same. */
INLINE void put_pair(const int dtype, const int streams, const PointRow *row, const vec_f32 *pair,
                     char *dst) {
    for (ptrdiff_t i = 0; i < row->rows; i++, dst += row->step)
        if (streams) stream_pair_f32(dtype, pair, dst);
        else store_pair_f32(dtype, pair, dst);
}

/* The first n elements of one; with `streams` all of them. */
INLINE void put_vector(const int dtype, const int streams, const PointRow *row, vec_f32 x, char *dst,
                       ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < row->rows; i++, dst += row->step)
        if (dtype == F32 && streams) STREAM_VECTOR(dst, x);
        else store_first(dtype, x, dst, n);
}

/* Zeros; with `streams` whole lines of them. */
INLINE void put_zeros(const int streams, char *dst, ptrdiff_t bytes) {
    const vec_f32 zero = {0};
    if (streams)
        for (ptrdiff_t j = 0; j < bytes; j += VECTOR_BYTES) STREAM_VECTOR(dst + j, zero);
    else memset(dst, 0, (size_t)bytes);
}

INLINE void put_points_for(const int dtype, const int streams, const int one, const PointRow *row,
                           const int *block, ptrdiff_t n, char *dst) {
    const ptrdiff_t bytes = LANES_F32 * element_size(dtype);
    for (; n >= 2 * LANES_F32; n -= 2 * LANES_F32, block += 2 * POINT_BLOCK, dst += 2 * bytes) {
        const vec_f32 pair[2] = {point_block(dtype, one, row, block),
                                 point_block(dtype, one, row, block + POINT_BLOCK)};
        if (one && row->ahead)
            prefetch_ahead(row->src[0] + block[0] * element_size(dtype), row->ahead, 1);
        put_pair(dtype, streams, row, pair, dst);
    }
    for (; n > 0; n -= LANES_F32, block += POINT_BLOCK, dst += bytes)
        put_vector(dtype, streams, row, point_block(dtype, one, row, block), dst, n);
}

/* `pixel` channels of a position, reduced, times its weight, `offset` bytes into the rows. */
INLINE void put_position(const int dtype, const int streams, const int one, const PointRow *row,
                         ptrdiff_t offset, float weight, ptrdiff_t pixel, char *dst) {
    const ptrdiff_t bytes = LANES_F32 * element_size(dtype), products = one ? 1 : row->products;
    const vec_f32 of_position = splat_f32(weight), zero = {0};
    for (; pixel >= 2 * LANES_F32; pixel -= 2 * LANES_F32, offset += 2 * bytes, dst += 2 * bytes) {
        vec_f32 sum[2] = {{0}}, pair[2];
        for (ptrdiff_t r = 0; r < products; r++) {
            load_pair_f32(dtype, row->src[r] + offset, pair);
            for (int v = 0; v < 2; v++) sum[v] += splat_f32(row->weight[r]) * pair[v];
        }
        for (int v = 0; v < 2; v++) sum[v] = of_position * sum[v] + zero;
        order_pair_f32(dtype, sum);
        if (one && row->ahead) prefetch_ahead(row->src[0] + offset, row->ahead, 2 * bytes);
        put_pair(dtype, streams, row, sum, dst);
    }
    for (; pixel > 0; pixel -= LANES_F32, offset += bytes, dst += bytes)
        put_vector(dtype, streams, row,
                   of_position * reduce_points(dtype, one, row, offset, pixel) + zero, dst, pixel);
}

INLINE void put_positions_for(const int dtype, const int streams, const int one, const PointRow *row,
                              const int *position, ptrdiff_t pixel, ptrdiff_t n, char *dst) {
    const ptrdiff_t bytes = pixel * element_size(dtype);
    for (ptrdiff_t x = 0, end; x < n; x = end) {
        const int *at = position + x * POINT_POSITION;
        end = x + 1;
        if (at[0] >= 0) {
            float weight;
            memcpy(&weight, at + 1, sizeof weight);
            put_position(dtype, streams, one, row, at[0] * bytes, weight, pixel, dst + x * bytes);
            continue;
        }
        while (end < n && position[end * POINT_POSITION] < 0) end++;
        for (ptrdiff_t i = 0; i < row->rows; i++)
            put_zeros(streams, dst + i * row->step + x * bytes, (end - x) * bytes);
    }
}

INLINE void put_row_for(const int dtype, const int streams, const int one, const PointRow *row,
                        const int *table, ptrdiff_t pixel, ptrdiff_t n, char *dst) {
    if (pixel >= LANES_F32) put_positions_for(dtype, streams, one, row, table, pixel, n, dst);
    else put_points_for(dtype, streams, one, row, table, n * pixel, dst);
}

INLINE void put_plane_for(const int dtype, const int streams, const PointPlane *plane, ptrdiff_t h,
                          ptrdiff_t h1, const int *table, ptrdiff_t pixel, ptrdiff_t n, char *dst) {
    PointRow row;
    row.extent = plane->extent;
    row.step = plane->dst_step;
    row.ahead = plane->ahead;
    for (; h < h1; h += row.rows, dst += row.rows * row.step) {
        const ptrdiff_t first = plane->first[h];
        row.rows = plane->alike ? MIN(plane->alike[h], h1 - h) : 1;
        row.products = (plane->first[h + 1] - first) * plane->depths;
        if (row.products == 0) {
            put_zeros(streams, dst, row.rows * n * pixel * element_size(dtype));
            continue;
        }
        row_products(0, plane->src + plane->start[h] * plane->src_step, plane->src_step,
                     plane->height_weight + first, plane->src_pitch, plane->depth_weight, plane->depths, 0,
                     row.products, row.src, row.weight);
        if (row.products == 1) put_row_for(dtype, streams, 1, &row, table, pixel, n, dst);
        else put_row_for(dtype, streams, 0, &row, table, pixel, n, dst);
    }
}

/* Rows h0 <= h < h1 of a plane of the result, n positions of `pixel` channels, from dst on, where one row ends
 * and the next begins; with `streams`, which vectors must be whole for, past the caches. */
static void put_points(int dtype, int streams, const PointPlane *plane, ptrdiff_t h0, ptrdiff_t h1,
                       const int *table, ptrdiff_t pixel, ptrdiff_t n, char *dst) {
#define PUT(dtype)                                                                                 \
    do {                                                                                           \
        if (streams) put_plane_for(dtype, 1, plane, h0, h1, table, pixel, n, dst);                 \
        else put_plane_for(dtype, 0, plane, h0, h1, table, pixel, n, dst);                         \
    } while (0)
    if (dtype == F32) PUT(F32);
    else if (dtype == F16) PUT(F16);
    else PUT(BF16);
#undef PUT
}

/* Zeros, with `streams` past the caches. */
static void clear_points(int streams, char *dst, ptrdiff_t bytes) {
    const ptrdiff_t edge = streams ? MIN(-(intptr_t)dst & 63, bytes) : bytes, lines = (bytes - edge) & ~63;
    memset(dst, 0, (size_t)edge);
    put_zeros(1, dst + edge, lines);
    memset(dst + edge + lines, 0, (size_t)(bytes - edge - lines));
}

#endif
