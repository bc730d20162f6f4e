/* Halves of short sums of ROWS, channels last, rounded on their way to their places: those of a tile, or of
 * few products each. Whole lines go past the caches where that is asked for. */
#ifndef GRADOPS_ROUNDED_ROWS_H
#define GRADOPS_ROUNDED_ROWS_H

#include "rows.h"

/* Two vectors, whole, and the first n of `vectors` of a position. */
#define DEFINE_ROUND_POSITION(suffix)                                                              \
    INLINE void store_pair_##suffix(vec_f32 v0, vec_f32 v1, char *dst, int streams) {              \
        vec_f32 line;                                                                              \
        if (streams && (uintptr_t)dst % VECTOR_BYTES == 0) {                                       \
            write_##suffix##_pair((char *)&line, v0, v1);                                          \
            STREAM_VECTOR((float *)dst, line);                                                     \
        } else {                                                                                   \
            write_##suffix##_pair(dst, v0, v1);                                                    \
        }                                                                                          \
    }                                                                                              \
    INLINE void round_position_##suffix(const vec_f32 *sums, ptrdiff_t vectors, char *dst,         \
                                        ptrdiff_t n, int streams) {                                \
        for (ptrdiff_t v = 0; v < vectors; v += 2, dst += 4 * LANES_F32, n -= 2 * LANES_F32) {     \
            if (v + 1 < vectors && n >= 2 * LANES_F32) {                                           \
                store_pair_##suffix(sums[v], sums[v + 1], dst, streams);                           \
                continue;                                                                          \
            }                                                                                      \
            write_##suffix(dst, sums[v], (int)MIN(n, LANES_F32));                                  \
            if (v + 1 < vectors)                                                                   \
                write_##suffix(dst + 2 * LANES_F32, sums[v + 1], (int)(n - LANES_F32));            \
        }                                                                                          \
    }
DEFINE_ROUND_POSITION(f16)
DEFINE_ROUND_POSITION(bf16)

/* A tile's sums of n channels: rows of whole vectors, `pitch` elements apart, to their places, `shift`
 * elements on. */
#define DEFINE_STORE_TILE(suffix)                                                                  \
    static void store_tile_##suffix(const float *sums, ptrdiff_t pitch, char *const *place,        \
                                    ptrdiff_t shift, ptrdiff_t rows, ptrdiff_t n, int streams) {   \
        for (ptrdiff_t i = 0; i < rows; i++, sums += pitch)                                        \
            round_position_##suffix((const vec_f32 *)sums, (n + LANES_F32 - 1) / LANES_F32,        \
                                    place[i] + 2 * shift, n, streams);                             \
    }
DEFINE_STORE_TILE(f16)
DEFINE_STORE_TILE(bf16)

static void store_tile(int dtype, const float *sums, ptrdiff_t pitch, char *const *place,
                       ptrdiff_t shift, ptrdiff_t rows, ptrdiff_t n, int streams) {
    (dtype == F16 ? store_tile_f16 : store_tile_bf16)(sums, pitch, place, shift, rows, n, streams);
}

/* Sums of up to FEW_PRODUCTS products of a single tap, for which tiles and their sums in cache took longer
 * than memory: n channels of each position, up to FEW_VECTORS vectors, as `weights` have them for each k.
 * What is left of whole pairs is rounded from a copy, so that other sums need no place in memory. */
enum { FEW_PRODUCTS = 4, FEW_VECTORS = 4 };
#define UNROLL _Pragma("GCC unroll 2")
#define DEFINE_FEW_PRODUCTS(suffix)                                                                \
    INLINE void few_products_of_##suffix(const int kc, const int nv, const char *const *row,       \
                                         ptrdiff_t row_shift, const vec_f32 *weights,              \
                                         char *const *place, ptrdiff_t shift, ptrdiff_t rows,      \
                                         ptrdiff_t n, int streams) {                               \
        const int whole = nv % 2 == 0 && n == nv * LANES_F32;                                      \
        vec_f32 w[FEW_PRODUCTS][FEW_VECTORS], sum[FEW_VECTORS], left[FEW_VECTORS];                 \
        for (int k = 0; k < kc; k++)                                                               \
            for (int v = 0; v < nv; v++) w[k][v] = weights[k * nv + v];                            \
        for (ptrdiff_t i = 0; i < rows; i++) {                                                     \
            const float *x = (const float *)row[i] + row_shift;                                    \
            char *dst = place[i] + 2 * shift;                                                      \
            for (int v = 0; v < nv; v++) sum[v] = (vec_f32){0};                                    \
            for (int k = 0; k < kc; k++)                                                           \
                for (int v = 0; v < nv; v++) sum[v] += splat_f32(x[k]) * w[k][v];                  \
            if (whole) {                                                                           \
                UNROLL for (int v = 0; v < nv; v += 2)                                             \
                    store_pair_##suffix(sum[v], sum[v + 1], dst + 2 * v * LANES_F32, streams);     \
            } else {                                                                               \
                for (int v = 0; v < nv; v++) left[v] = sum[v];                                     \
                round_position_##suffix(left, nv, dst, n, streams);                                \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void few_products_##suffix(ptrdiff_t kc, ptrdiff_t nv, const char *const *row,          \
                                      ptrdiff_t row_shift, const vec_f32 *weights,                 \
                                      char *const *place, ptrdiff_t shift, ptrdiff_t rows,         \
                                      ptrdiff_t n, int streams) {                                  \
        BY_PRODUCTS(few_products_of_##suffix, row, row_shift, weights, place, shift, rows, n,      \
                    streams);                                                                      \
    }
#define BY_PRODUCTS(of, ...)                                                                       \
    do {                                                                                           \
        if (kc == 1) BY_VECTORS(of, 1, __VA_ARGS__);                                               \
        else if (kc == 2) BY_VECTORS(of, 2, __VA_ARGS__);                                          \
        else if (kc == 3) BY_VECTORS(of, 3, __VA_ARGS__);                                          \
        else BY_VECTORS(of, 4, __VA_ARGS__);                                                       \
    } while (0)
#define BY_VECTORS(of, kc, ...)                                                                    \
    do {                                                                                           \
        if (nv == 1) of(kc, 1, __VA_ARGS__);                                                       \
        else if (nv == 2) of(kc, 2, __VA_ARGS__);                                                  \
        else if (nv == 3) of(kc, 3, __VA_ARGS__);                                                  \
        else of(kc, 4, __VA_ARGS__);                                                               \
    } while (0)
DEFINE_FEW_PRODUCTS(f16)
DEFINE_FEW_PRODUCTS(bf16)
#undef BY_VECTORS
#undef BY_PRODUCTS
#undef UNROLL

static void few_products(int dtype, ptrdiff_t kc, ptrdiff_t nv, const char *const *row, ptrdiff_t row_shift,
                         const char *weights, char *const *place, ptrdiff_t shift, ptrdiff_t rows,
                         ptrdiff_t n, int streams) {
    (dtype == F16 ? few_products_f16 : few_products_bf16)(kc, nv, row, row_shift, (const vec_f32 *)weights,
                                                          place, shift, rows, n, streams);
}

#endif
