/* Streams that take turns, an element at a time: dst[j * streams + s] = src[s][j], n elements in all; and
 * dealt out again. */
#ifndef GRADOPS_INTERLEAVE_H
#define GRADOPS_INTERLEAVE_H

#include "transpose.h"

#define FIRST_HALF(i, h, L) ((i) / 2 + ((i) & 1) * (L))
#define SECOND_HALF(i, h, L) ((i) / 2 + (L) / 2 + ((i) & 1) * (L))
/* And back. */
#define EVENS(i, h, L) (2 * (i))
#define ODDS(i, h, L) (2 * (i) + 1)
/* One of these for two vec_f32. */
#if VECTOR_BYTES == 64
#define FLOAT_LANES(f) LANES_16(f, 0, 16)
#elif VECTOR_BYTES == 32
#define FLOAT_LANES(f) LANES_8(f, 0, 8)
#else
#define FLOAT_LANES(f) LANES_4(f, 0, 4)
#endif

#define UNROLL _Pragma("GCC unroll 8")

/* One vector of each stream, of which there are a power of two: in every round vectors half of all
 * apart take turns. */
#define DEFINE_INTERLEAVE(suffix, real, vec, L, LANE_LIST)                                         \
    INLINE void take_turns_##suffix(vec a, vec b, vec *dst) {                                      \
        dst[0] = __builtin_shufflevector(a, b, LANE_LIST(FIRST_HALF, 0, L));                       \
        dst[1] = __builtin_shufflevector(a, b, LANE_LIST(SECOND_HALF, 0, L));                      \
    }                                                                                              \
    INLINE ptrdiff_t interleave_vectors_##suffix(const int streams, const char *const *src,        \
                                                 ptrdiff_t n, real *dst) {                         \
        ptrdiff_t j = 0;                                                                           \
        for (; streams * (j + L) <= n; j += L) {                                                   \
            vec v[8], w[8];                                                                        \
            UNROLL for (int s = 0; s < streams; s++) v[s] = ((const vec *)src[s])[j / L];          \
            UNROLL for (int round = streams; round > 1; round /= 2) {                              \
                UNROLL for (int s = 0; s < streams / 2; s++)                                       \
                    take_turns_##suffix(v[s], v[s + streams / 2], w + 2 * s);                      \
                UNROLL for (int s = 0; s < streams; s++) v[s] = w[s];                              \
            }                                                                                      \
            UNROLL for (int s = 0; s < streams; s++) *(vec *)(dst + streams * j + s * L) = v[s];   \
        }                                                                                          \
        return j;                                                                                  \
    }                                                                                              \
    INLINE void interleave_##suffix(ptrdiff_t streams, const char *const *src, ptrdiff_t n,        \
                                     real *dst) {                                                  \
        ptrdiff_t j = 0;                                                                           \
        if (streams == 2) j = interleave_vectors_##suffix(2, src, n, dst);                         \
        else if (streams == 4) j = interleave_vectors_##suffix(4, src, n, dst);                    \
        else if (streams == 8) j = interleave_vectors_##suffix(8, src, n, dst);                    \
        for (ptrdiff_t s = 0; s < streams; s++)                                                    \
            for (ptrdiff_t i = j; i * streams + s < n; i++)                                        \
                dst[i * streams + s] = ((const real *)src[s])[i];                                  \
    }                                                                                              \
    INLINE ptrdiff_t deal_vectors_##suffix(const int streams, const real *src, ptrdiff_t n,        \
                                           real *dst, ptrdiff_t pitch) {                           \
        ptrdiff_t j = 0;                                                                           \
        for (; streams * (j + L) <= n; j += L) {                                                   \
            vec v[8], w[8];                                                                        \
            UNROLL for (int s = 0; s < streams; s++)                                               \
                v[s] = *(const vec *)(src + streams * j + s * L);                                  \
            UNROLL for (int round = streams; round > 1; round /= 2) {                              \
                UNROLL for (int s = 0; s < streams / 2; s++) {                                     \
                    vec a = v[2 * s], b = v[2 * s + 1];                                            \
                    w[s] = __builtin_shufflevector(a, b, LANE_LIST(EVENS, 0, L));                  \
                    w[s + streams / 2] = __builtin_shufflevector(a, b, LANE_LIST(ODDS, 0, L));     \
                }                                                                                  \
                UNROLL for (int s = 0; s < streams; s++) v[s] = w[s];                              \
            }                                                                                      \
            UNROLL for (int s = 0; s < streams; s++) *(vec *)(dst + s * pitch + j) = v[s];         \
        }                                                                                          \
        return j;                                                                                  \
    }                                                                                              \
    INLINE void deal_##suffix(ptrdiff_t streams, const real *src, ptrdiff_t n, real *dst,          \
                              ptrdiff_t pitch) {                                                   \
        ptrdiff_t j = 0;                                                                           \
        if (streams == 2) j = deal_vectors_##suffix(2, src, n, dst, pitch);                        \
        else if (streams == 4) j = deal_vectors_##suffix(4, src, n, dst, pitch);                   \
        else if (streams == 8) j = deal_vectors_##suffix(8, src, n, dst, pitch);                   \
        for (ptrdiff_t s = 0; s < streams; s++)                                                    \
            for (ptrdiff_t i = j; i * streams + s < n; i++)                                        \
                dst[s * pitch + i] = src[i * streams + s];                                         \
    }
#if VECTOR_BYTES == 64
DEFINE_INTERLEAVE(f32, float, vec_f32, 16, LANES_16)
DEFINE_INTERLEAVE(f64, double, vec_f64, 8, LANES_8)
#elif VECTOR_BYTES == 32
DEFINE_INTERLEAVE(f32, float, vec_f32, 8, LANES_8)
DEFINE_INTERLEAVE(f64, double, vec_f64, 4, LANES_4)
#else
DEFINE_INTERLEAVE(f32, float, vec_f32, 4, LANES_4)
DEFINE_INTERLEAVE(f64, double, vec_f64, 2, LANES_2)
#endif

#undef UNROLL

static void interleave(int size, ptrdiff_t streams, const char *const *src, ptrdiff_t n,
                       void *dst) {
    if (size == 8) interleave_f64(streams, src, n, dst);
    else interleave_f32(streams, src, n, dst);
}

/* dst[s * pitch + j] = src[j * streams + s], n elements in all. */
static void deal_out(int size, ptrdiff_t streams, const void *src, ptrdiff_t n, void *dst,
                     ptrdiff_t pitch) {
    if (size == 8) deal_f64(streams, src, n, dst, pitch);
    else deal_f32(streams, src, n, dst, pitch);
}

#endif
