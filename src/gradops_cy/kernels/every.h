/* Every second element of a row, or third, and so on, as the residues of a stride are. */
#ifndef GRADOPS_EVERY_H
#define GRADOPS_EVERY_H

#include "vector_io.h"

/* A vector of which the first `left` bytes may be read; all of them without masks. */
INLINE vec_f32 load_left(const char *p, ptrdiff_t left) {
#if HAVE_MASKS
    if (left < VECTOR_BYTES)
        return (vec_f32)_mm512_maskz_loadu_epi8(left > 0 ? ~0ull >> (64 - left) : 0, p);
#else
    (void)left;
#endif
    return *(const vec_f32 *)p;
}

#if HAVE_MASKS
/* A mask of the lanes that vector k holds, of which lane i is element i * step: of a vector's lanes, each is
 * so many elements. */
INLINE int lanes_from(const int lanes, const int step, const int elements, const int k) {
    int mask = 0;
#pragma GCC unroll 16
    for (int i = 0; i < lanes; i++) mask |= (i * step / elements / lanes == k) << i;
    return mask;
}

/* Steps that are no power of two: lanes are picked from each vector that holds some. */
#define DEFINE_EVERY_OTHER(suffix, vec, lanes, permute, ...)                                       \
    INLINE vec every_other_##suffix(const int step, const char *p, ptrdiff_t left) {               \
        const __m512i place = (__m512i)((indices_##suffix){__VA_ARGS__} * step);                   \
        vec v = {0};                                                                               \
        _Pragma("GCC unroll 8") for (int k = 0; k < step; k++, left -= VECTOR_BYTES)               \
            v = (vec)permute((__m512i)v, lanes_from(lanes, step, 1, k), place,                     \
                             (__m512i)load_left(p + k * VECTOR_BYTES, left));                      \
        return v;                                                                                  \
    }
DEFINE_EVERY_OTHER(f32, vec_f32, 16, _mm512_mask_permutexvar_epi32, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,
                   12, 13, 14, 15)
DEFINE_EVERY_OTHER(f64, vec_f64, 8, _mm512_mask_permutexvar_epi64, 0, 1, 2, 3, 4, 5, 6, 7)

/* 16-bit elements in the low halves of words, for an odd step. */
INLINE vec_f32 every_odd_half(const int step, const char *p, ptrdiff_t left) {
    const indices_f32 place = (indices_f32){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} * step >> 1;
    __m512i v = _mm512_setzero_si512();
    left = MIN(left, LANES_F32 * 2 * step);
#pragma GCC unroll 4
    for (int k = 0; k < (step + 1) / 2; k++, left -= VECTOR_BYTES)
        v = _mm512_mask_permutexvar_epi32(v, lanes_from(16, step, 2, k), (__m512i)place,
                                          (__m512i)load_left(p + k * VECTOR_BYTES, left));
    return (vec_f32)_mm512_mask_srli_epi32(v, 0xaaaa, v, 16);
}
#else
#define every_other_f32(step, p, left) ((vec_f32){0})
#define every_other_f64(step, p, left) ((vec_f64){0})
#define every_odd_half(step, p, left) ((vec_f32){0})
#endif

#define DEFINE_EVERY(suffix, vec)                                                                  \
    INLINE vec evens_##suffix(vec a, vec b) {                                                      \
        return __builtin_shufflevector(a, b, LANES_OF_##suffix(EVENS));                            \
    }                                                                                              \
    INLINE vec every_1_##suffix(const char *p, ptrdiff_t left) { return (vec)load_left(p, left); } \
    DEFINE_EVERY_SECOND(suffix, vec, 2, 1)                                                         \
    DEFINE_EVERY_SECOND(suffix, vec, 4, 2)                                                         \
    DEFINE_EVERY_SECOND(suffix, vec, 8, 4)                                                         \
    INLINE vec every_##suffix(const int step, const char *p, ptrdiff_t left) {                     \
        if (step == 1) return every_1_##suffix(p, left);                                           \
        if (step == 2) return every_2_##suffix(p, left);                                           \
        if (step == 4) return every_4_##suffix(p, left);                                           \
        return step == 8 ? every_8_##suffix(p, left) : every_other_##suffix(step, p, left);        \
    }
#define DEFINE_EVERY_SECOND(suffix, vec, step, half)                                               \
    INLINE vec every_##step##_##suffix(const char *p, ptrdiff_t left) {                            \
        const ptrdiff_t bytes = half * VECTOR_BYTES;                                               \
        return evens_##suffix(every_##half##_##suffix(p, left),                                    \
                              every_##half##_##suffix(p + bytes, left - bytes));                   \
    }
DEFINE_EVERY(f32, vec_f32)
DEFINE_EVERY(f64, vec_f64)

/* dst[j] = src[j * step]; returns how many were loaded: without masks, as far as whole vectors go. */
#define DEFINE_LOAD_EVERY(suffix, real, lanes, size, vector, store)                                \
    INLINE ptrdiff_t load_every_##suffix(const int step, const char *src, ptrdiff_t n, real *dst) {\
        ptrdiff_t j = 0;                                                                           \
        for (; j + lanes < n; j += lanes)                                                          \
            store(dst + j, vector(step, src + j * step * size, step * VECTOR_BYTES), lanes);       \
        if (!HAVE_MASKS || j >= n) return MIN(j, n);                                               \
        store(dst + j, vector(step, src + j * step * size, ((n - 1 - j) * step + 1) * size), n - j);\
        return n;                                                                                  \
    }
/* Two 16-bit elements are a word. */
INLINE vec_f32 every_half(const int step, const char *p, ptrdiff_t left) {
    return step % 2 ? every_odd_half(step, p, left) : every_f32(step / 2, p, left);
}
#define EVERY_BF16(step, p, left) ((vec_f32)((indices_f32)every_half(step, p, left) << 16))
#define EVERY_F16(step, p, left) widen_f16((indices_f32)every_half(step, p, left))
DEFINE_LOAD_EVERY(f32, float, LANES_F32, 4, every_f32, store_first_f32)
DEFINE_LOAD_EVERY(f64, double, LANES_F64, 8, every_f64, store_first_f64)
DEFINE_LOAD_EVERY(bf16, float, LANES_F32, 2, EVERY_BF16, store_first_f32)
DEFINE_LOAD_EVERY(f16, float, LANES_F32, 2, EVERY_F16, store_first_f32)
DEFINE_LOAD_EVERY(raw16, uint16_t, LANES_F32, 2, every_half, store_first_u16)

/* The same for any step; returns how many were loaded, none if there is no way for it. */
#define LOAD_EVERY(suffix, step, src, n, dst)                                                      \
    ((step) == 2   ? load_every_##suffix(2, src, n, dst)                                           \
     : (step) == 4 ? load_every_##suffix(4, src, n, dst)                                           \
     : (step) == 8 ? load_every_##suffix(8, src, n, dst)                                           \
     : !HAVE_MASKS ? 0                                                                             \
     : (step) == 3 ? load_every_##suffix(3, src, n, dst)                                           \
     : (step) == 5 ? load_every_##suffix(5, src, n, dst)                                           \
     : (step) == 6 ? load_every_##suffix(6, src, n, dst)                                           \
                   : 0)

#endif
