/* Streams that take turns, an element at a time: dst[j * streams + s] = src[s][j], n elements in all; and
 * dealt out again. */
#ifndef GRADOPS_INTERLEAVE_H
#define GRADOPS_INTERLEAVE_H

#include "transpose.h"

/* Lanes of two vectors: of each the first half by turns, or the second. */
#define FIRST_HALF(i, h, L) ((i) / 2 + ((i) & 1) * (L))
#define SECOND_HALF(i, h, L) ((i) / 2 + (L) / 2 + ((i) & 1) * (L))
#define UNROLL _Pragma("GCC unroll 8")

/* One vector of each stream, of which there are a power of two: in every round vectors half of all
 * apart take turns. As many streams as lanes make a square, which takes half as many instructions
 * to transpose where vectors have halves. */
#define DEFINE_INTERLEAVE(suffix, real, vec, L)                                                    \
    INLINE void take_turns_##suffix(vec a, vec b, vec *dst) {                                      \
        dst[0] = __builtin_shufflevector(a, b, LANES_OF_##suffix(FIRST_HALF));                     \
        dst[1] = __builtin_shufflevector(a, b, LANES_OF_##suffix(SECOND_HALF));                    \
    }                                                                                              \
    INLINE ptrdiff_t interleave_vectors_##suffix(const int streams, const char *const *src,        \
                                                 ptrdiff_t n, real *dst) {                         \
        ptrdiff_t j = 0;                                                                           \
        for (; streams * (j + L) <= n; j += L) {                                                   \
            vec v[8], w[8];                                                                        \
            UNROLL for (int s = 0; s < streams; s++) v[s] = ((const vec *)src[s])[j / L];          \
            if (streams == L) square_##suffix(v);                                                  \
            else UNROLL for (int round = streams; round > 1; round /= 2) {                         \
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
            if (streams == L) square_##suffix(v);                                                  \
            else UNROLL for (int round = streams; round > 1; round /= 2) {                         \
                UNROLL for (int s = 0; s < streams / 2; s++) {                                     \
                    vec a = v[2 * s], b = v[2 * s + 1];                                            \
                    w[s] = __builtin_shufflevector(a, b, LANES_OF_##suffix(EVENS));                \
                    w[s + streams / 2] = __builtin_shufflevector(a, b, LANES_OF_##suffix(ODDS));   \
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
DEFINE_INTERLEAVE(f32, float, vec_f32, LANES_F32)
DEFINE_INTERLEAVE(f64, double, vec_f64, LANES_F64)

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
