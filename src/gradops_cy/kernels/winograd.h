/* Winograd's F(2x2, 3x3): 2x2 results of 3x3 filters from 16 products in place of 36.
 *
 *   4 results = A' [ (G filter G') . (B' patch B) ] A
 *
 *   B' = | 1  0 -1  0 |    G = | 2  0  0 |    A' = | 1  1  1  0 |
 *        | 0  1  1  0 |        | 1  1  1 |         | 0  1 -1 -1 |
 *        | 0 -1  1  0 |        | 1 -1  1 |
 *        | 0  1  0 -1 |        | 0  0  2 |
 *
 * The dot is a product and a sum over channels for each of 16 planes: those that the tiles compute. */
#ifndef GRADOPS_WINOGRAD_H
#define GRADOPS_WINOGRAD_H

#include "vector_io.h"

enum { TILE = 2, PATCH = 4, PLANES = PATCH * PATCH, FILTER = 3, FILTER_TAPS = FILTER * FILTER };
enum { FILTER_RUN = 64 / VECTOR_BYTES }; /* vectors of a line */

#define UNROLL _Pragma("GCC unroll 4")

/* B' times a column. */
INLINE vec_f32 patch_row(const int r, const vec_f32 *d) {
    return r == 0 ? d[0] - d[2] : r == 1 ? d[1] + d[2] : r == 2 ? d[2] - d[1] : d[1] - d[3];
}

/* A vector of channels of a patch, or the first n elements of one. */
INLINE void transform_vector(const float *const *row, ptrdiff_t pitch, float *dst, ptrdiff_t plane,
                             const int n) {
    vec_f32 column[PATCH][PATCH];
    UNROLL for (int w = 0; w < PATCH; w++) {
        vec_f32 d[PATCH];
        UNROLL for (int h = 0; h < PATCH; h++) d[h] = read_f32((const char *)(row[h] + w * pitch), n);
        UNROLL for (int r = 0; r < PATCH; r++) column[r][w] = patch_row(r, d);
    }
    UNROLL for (int r = 0; r < PATCH; r++)
        UNROLL for (int w = 0; w < PATCH; w++)
            write_f32((char *)(dst + (PATCH * r + w) * plane), patch_row(w, column[r]), n);
}

/* Where a tile begins: those of a dilated filter lie between each other. */
static ptrdiff_t first_pixel(ptrdiff_t tile, ptrdiff_t dilation) {
    return tile + tile / dilation * dilation;
}

/* `tiles` patches of four rows, of columns `channels` elements apart: to planes `plane` elements apart. */
static void transform_patches(const float *const *rows, ptrdiff_t tiles, ptrdiff_t channels,
                              ptrdiff_t dilation, float *dst, ptrdiff_t plane) {
    for (ptrdiff_t tile = 0; tile < tiles; tile++, dst += channels) {
        const float *row[PATCH];
        ptrdiff_t i = 0;
        for (int h = 0; h < PATCH; h++) row[h] = rows[h] + first_pixel(tile, dilation) * channels;
        for (; i + LANES_F32 <= channels; i += LANES_F32) {
            transform_vector(row, dilation * channels, dst + i, plane, LANES_F32);
            for (int h = 0; h < PATCH; h++) row[h] += LANES_F32;
        }
        if (i < channels)
            transform_vector(row, dilation * channels, dst + i, plane, (int)(channels - i));
    }
}

/* G times a column. Without halves, what is a multiple of the smallest number stays one. */
INLINE void filter_column(const vec_f32 *g, vec_f32 *u) {
    const vec_f32 outer = g[0] + g[2];
    u[0] = g[0] + g[0], u[1] = outer + g[1], u[2] = outer - g[1], u[3] = g[2] + g[2];
}

/* `run` vectors of nine taps `pitch` elements apart, to planes `plane` elements apart. */
INLINE void filter_vectors(const int run, const float *taps, ptrdiff_t pitch, float *dst,
                           ptrdiff_t plane) {
    vec_f32 column[FILTER_RUN][FILTER][PATCH];
    UNROLL for (int w = 0; w < FILTER; w++) {
        const float *tap = taps + w * pitch;
        vec_f32 g[FILTER_RUN][FILTER];
        UNROLL for (int h = 0; h < FILTER; h++, tap += FILTER * pitch) {
            HOLD(tap);
            UNROLL for (int v = 0; v < run; v++) g[v][h] = *(const vec_f32 *)(tap + v * LANES_F32);
        }
        UNROLL for (int v = 0; v < run; v++) filter_column(g[v], column[v][w]);
    }
    UNROLL for (int r = 0; r < PATCH; r++) {
        vec_f32 u[FILTER_RUN][PATCH];
        UNROLL for (int v = 0; v < run; v++) {
            vec_f32 g[FILTER];
            UNROLL for (int w = 0; w < FILTER; w++) g[w] = column[v][w][r];
            filter_column(g, u[v]);
        }
        UNROLL for (int w = 0; w < PATCH; w++, dst += plane) {
            HOLD(dst);
            UNROLL for (int v = 0; v < run; v++) *(vec_f32 *)(dst + v * LANES_F32) = u[v][w];
        }
    }
}

/* n elements, whole vectors. Planes of filters are often powers of two apart, where lines displace each
 * other: each is written at once. */
static void transform_filters(const float *taps, ptrdiff_t pitch, ptrdiff_t n, float *dst,
                              ptrdiff_t plane) {
    ptrdiff_t i = 0;
    for (; i + FILTER_RUN * LANES_F32 <= n; i += FILTER_RUN * LANES_F32)
        filter_vectors(FILTER_RUN, taps + i, pitch, dst + i, plane);
    for (; i < n; i += LANES_F32) filter_vectors(1, taps + i, pitch, dst + i, plane);
}

/* The sums of `tiles` patches, planes `plane` elements apart and tiles `pitch`, to two rows of pixels,
 * `pitch` elements apart. Whole vectors of `channels`; returns whether all are finite. */
static int transform_sums(const float *sums, ptrdiff_t plane, ptrdiff_t pitch, ptrdiff_t tiles,
                          ptrdiff_t channels, ptrdiff_t dilation, float *upper, float *lower) {
    vec_f32 zero = {0};
    for (ptrdiff_t tile = 0; tile < tiles; tile++, sums += pitch) {
        const ptrdiff_t pixel = first_pixel(tile, dilation) * pitch;
        for (ptrdiff_t i = 0; i < channels; i += LANES_F32) {
            vec_f32 row[TILE][PATCH];
            UNROLL for (int w = 0; w < PATCH; w++) {
                vec_f32 m[PATCH];
                UNROLL for (int h = 0; h < PATCH; h++)
                    m[h] = *(const vec_f32 *)(sums + (PATCH * h + w) * plane + i);
                row[0][w] = m[0] + m[1] + m[2];
                row[1][w] = m[1] - m[2] - m[3];
            }
            UNROLL for (int h = 0; h < TILE; h++) {
                const vec_f32 *m = row[h];
                const vec_f32 left = m[0] + m[1] + m[2], right = m[1] - m[2] - m[3];
                float *to = (h ? lower : upper) + pixel + i;
                *(vec_f32 *)to = 0.25f * left;
                *(vec_f32 *)(to + dilation * pitch) = 0.25f * right;
                zero += left * 0 + right * 0;
            }
        }
    }
    int fine = 1;
    for (int i = 0; i < LANES_F32; i++) fine &= zero[i] == 0;
    return fine;
}

#undef UNROLL

#endif
