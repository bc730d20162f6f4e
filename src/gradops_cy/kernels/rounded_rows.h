/* Short sums of ROWS, channels last, on their way to their places: halves of a tile, or of few products each.
 * Whole lines go past the caches where that is asked for. */
#ifndef GRADOPS_ROUNDED_ROWS_H
#define GRADOPS_ROUNDED_ROWS_H

#include "rows.h"

/* Two vectors, whole. */
INLINE void put_pair_f32(vec_f32 v0, vec_f32 v1, char *dst, int streams) {
    if (streams && (uintptr_t)dst % VECTOR_BYTES == 0) {
        STREAM_VECTOR((float *)dst, v0);
        STREAM_VECTOR((float *)dst + LANES_F32, v1);
    } else {
        write_pair_f32(dst, v0, v1);
    }
}
#define DEFINE_PUT_PAIR(suffix)                                                                    \
    INLINE void put_pair_##suffix(vec_f32 v0, vec_f32 v1, char *dst, int streams) {                \
        vec_f32 line;                                                                              \
        if (streams && (uintptr_t)dst % VECTOR_BYTES == 0) {                                       \
            write_pair_##suffix((char *)&line, v0, v1);                                            \
            STREAM_VECTOR((float *)dst, line);                                                     \
        } else {                                                                                   \
            write_pair_##suffix(dst, v0, v1);                                                      \
        }                                                                                          \
    }
DEFINE_PUT_PAIR(f16)
DEFINE_PUT_PAIR(bf16)

/* The first n channels of `vectors` of a position. */
#define DEFINE_PUT_POSITION(suffix, size)                                                          \
    INLINE void put_position_##suffix(const vec_f32 *sums, ptrdiff_t vectors, char *dst,           \
                                      ptrdiff_t n, int streams) {                                  \
        const ptrdiff_t step = size * LANES_F32;                                                   \
        for (ptrdiff_t v = 0; v < vectors; v += 2, dst += 2 * step, n -= 2 * LANES_F32) {          \
            if (v + 1 < vectors && n >= 2 * LANES_F32) {                                           \
                put_pair_##suffix(sums[v], sums[v + 1], dst, streams);                             \
                continue;                                                                          \
            }                                                                                      \
            write_##suffix(dst, sums[v], (int)MIN(n, LANES_F32));                                  \
            if (v + 1 < vectors) write_##suffix(dst + step, sums[v + 1], (int)(n - LANES_F32));    \
        }                                                                                          \
    }
DEFINE_PUT_POSITION(f32, 4)
DEFINE_PUT_POSITION(f16, 2)
DEFINE_PUT_POSITION(bf16, 2)

/* A tile's sums of n channels: rows of whole vectors, `pitch` elements apart, to their places, `shift`
 * elements on. */
#define DEFINE_STORE_TILE(suffix)                                                                  \
    static void store_tile_##suffix(const float *sums, ptrdiff_t pitch, char *const *place,        \
                                    ptrdiff_t shift, ptrdiff_t rows, ptrdiff_t n, int streams) {   \
        for (ptrdiff_t i = 0; i < rows; i++, sums += pitch)                                        \
            put_position_##suffix((const vec_f32 *)sums, (n + LANES_F32 - 1) / LANES_F32,          \
                                    place[i] + 2 * shift, n, streams);                             \
    }
DEFINE_STORE_TILE(f16)
DEFINE_STORE_TILE(bf16)

static void store_tile(int dtype, const float *sums, ptrdiff_t pitch, char *const *place,
                       ptrdiff_t shift, ptrdiff_t rows, ptrdiff_t n, int streams) {
    (dtype == F16 ? store_tile_f16 : store_tile_bf16)(sums, pitch, place, shift, rows, n, streams);
}

/* Sums of up to FEW_PRODUCTS products of a single tap, for which tiles took longer than memory: n channels of
 * each position, of which `weights` has the nv vectors for each k. The last ones, up to FEW_VECTORS, stay in
 * registers; the first-level cache keeps FewWeights. What is left of whole pairs is rounded from a copy, so
 * that other sums need no place in memory. */
enum { FEW_PRODUCTS = 4, FEW_VECTORS = 4, FEW_WEIGHTS = 1 << 12 };
typedef struct { _Alignas(VECTOR_BYTES) float w[FEW_WEIGHTS]; } FewWeights;

/* FEW_VECTORS, whole; of bfloat16 with one test. */
INLINE void put_few_f32(const vec_f32 *sum, char *dst, int streams) {
    put_pair_f32(sum[0], sum[1], dst, streams);
    put_pair_f32(sum[2], sum[3], dst + 2 * VECTOR_BYTES, streams);
}
INLINE void put_few_f16(const vec_f32 *sum, char *dst, int streams) {
    put_pair_f16(sum[0], sum[1], dst, streams);
    put_pair_f16(sum[2], sum[3], dst + VECTOR_BYTES, streams);
}
INLINE void put_few_bf16(const vec_f32 *sum, char *dst, int streams) {
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    __mmask16 differs = 0;
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) differs |= _mm512_fpclass_ps_mask((__m512)sum[v], BF16_DIFFERS);
    if (!differs) {
        const __m512i first = (__m512i)_mm512_cvtne2ps_pbh((__m512)sum[1], (__m512)sum[0]);
        const __m512i second = (__m512i)_mm512_cvtne2ps_pbh((__m512)sum[3], (__m512)sum[2]);
        if (streams && (uintptr_t)dst % VECTOR_BYTES == 0) {
            _mm512_stream_si512((void *)dst, first);
            _mm512_stream_si512((void *)(dst + VECTOR_BYTES), second);
        } else {
            _mm512_storeu_si512((void *)dst, first);
            _mm512_storeu_si512((void *)(dst + VECTOR_BYTES), second);
        }
        return;
    }
#endif
    put_pair_bf16(sum[0], sum[1], dst, streams);
    put_pair_bf16(sum[2], sum[3], dst + VECTOR_BYTES, streams);
}

/* The `last` vectors, and those before them, some times FEW_VECTORS, if there are `many`. */
#define UNROLL _Pragma("GCC unroll 4")
#define DEFINE_FEW_PRODUCTS(suffix, size)                                                          \
    INLINE void few_products_of_##suffix(const int kc, const int last, const int many,             \
                                         ptrdiff_t nv, const char *const *row,                     \
                                         ptrdiff_t row_shift, const vec_f32 *weights,              \
                                         char *const *place, ptrdiff_t shift, ptrdiff_t rows,      \
                                         ptrdiff_t n, int streams) {                               \
        const ptrdiff_t before = many ? nv - last : 0, left = n - before * LANES_F32;              \
        const int whole = last % 2 == 0 && left == last * LANES_F32;                               \
        vec_f32 w[FEW_PRODUCTS][FEW_VECTORS], sum[FEW_VECTORS], copy[FEW_VECTORS];                 \
        for (int k = 0; k < kc; k++)                                                               \
            for (int v = 0; v < last; v++) w[k][v] = weights[k * nv + before + v];                 \
        for (ptrdiff_t i = 0; i < rows; i++) {                                                     \
            const float *x = (const float *)row[i] + row_shift;                                    \
            char *dst = place[i] + size * shift;                                                   \
            for (ptrdiff_t v = 0; v < before; v += FEW_VECTORS) {                                  \
                vec_f32 part[FEW_VECTORS];                                                         \
                UNROLL for (int j = 0; j < FEW_VECTORS; j++) part[j] = (vec_f32){0};               \
                UNROLL for (int k = 0; k < kc; k++)                                                \
                    UNROLL for (int j = 0; j < FEW_VECTORS; j++)                                   \
                        part[j] += splat_f32(x[k]) * weights[k * nv + v + j];                      \
                put_few_##suffix(part, dst, streams);                                              \
                dst += FEW_VECTORS * size * LANES_F32;                                             \
            }                                                                                      \
            for (int v = 0; v < last; v++) sum[v] = (vec_f32){0};                                  \
            for (int k = 0; k < kc; k++)                                                           \
                for (int v = 0; v < last; v++) sum[v] += splat_f32(x[k]) * w[k][v];                \
            if (whole && last == FEW_VECTORS) {                                                    \
                put_few_##suffix(sum, dst, streams);                                               \
            } else if (whole) {                                                                    \
                UNROLL for (int v = 0; v < last; v += 2)                                           \
                    put_pair_##suffix(sum[v], sum[v + 1], dst + size * v * LANES_F32, streams);    \
            } else {                                                                               \
                for (int v = 0; v < last; v++) copy[v] = sum[v];                                   \
                put_position_##suffix(copy, last, dst, left, streams);                             \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void few_products_##suffix(ptrdiff_t kc, ptrdiff_t nv, const char *const *row,          \
                                      ptrdiff_t row_shift, const vec_f32 *weights,                 \
                                      char *const *place, ptrdiff_t shift, ptrdiff_t rows,         \
                                      ptrdiff_t n, int streams) {                                  \
        if (kc == 1) BY_VECTORS(suffix, 1);                                                        \
        else if (kc == 2) BY_VECTORS(suffix, 2);                                                   \
        else if (kc == 3) BY_VECTORS(suffix, 3);                                                   \
        else BY_VECTORS(suffix, 4);                                                                \
    }
#define OF(suffix, kc, last, many)                                                                 \
    few_products_of_##suffix(kc, last, many, nv, row, row_shift, weights, place, shift, rows, n, streams)
#define BY_LAST(suffix, kc, many)                                                                  \
    do {                                                                                           \
        if (nv % 4 == 1) OF(suffix, kc, 1, many);                                                  \
        else if (nv % 4 == 2) OF(suffix, kc, 2, many);                                             \
        else if (nv % 4 == 3) OF(suffix, kc, 3, many);                                             \
        else OF(suffix, kc, 4, many);                                                              \
    } while (0)
#define BY_VECTORS(suffix, kc)                                                                     \
    do {                                                                                           \
        if (nv <= FEW_VECTORS) BY_LAST(suffix, kc, 0);                                             \
        else BY_LAST(suffix, kc, 1);                                                               \
    } while (0)
DEFINE_FEW_PRODUCTS(f32, 4)
DEFINE_FEW_PRODUCTS(f16, 2)
DEFINE_FEW_PRODUCTS(bf16, 2)
#undef BY_VECTORS
#undef BY_LAST
#undef OF
#undef UNROLL

static void few_products(int dtype, ptrdiff_t kc, ptrdiff_t nv, const char *const *row, ptrdiff_t row_shift,
                         const float *weights, char *const *place, ptrdiff_t shift, ptrdiff_t rows,
                         ptrdiff_t n, int streams) {
    const vec_f32 *w = (const vec_f32 *)weights;
    if (dtype == F32) few_products_f32(kc, nv, row, row_shift, w, place, shift, rows, n, streams);
    else if (dtype == F16) few_products_f16(kc, nv, row, row_shift, w, place, shift, rows, n, streams);
    else few_products_bf16(kc, nv, row, row_shift, w, place, shift, rows, n, streams);
}

#endif
