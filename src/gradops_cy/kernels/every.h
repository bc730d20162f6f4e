/* Every second, fourth or eighth element of a row, as the residues of a stride are. */
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
        return step == 4 ? every_4_##suffix(p, left) : every_8_##suffix(p, left);                  \
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
#define EVERY_BF16(step, p, left) ((vec_f32)((indices_f32)every_f32((step) / 2, p, left) << 16))
#define EVERY_F16(step, p, left) widen_f16((indices_f32)every_f32((step) / 2, p, left))
#define EVERY_RAW16(step, p, left) every_f32((step) / 2, p, left)
DEFINE_LOAD_EVERY(f32, float, LANES_F32, 4, every_f32, store_first_f32)
DEFINE_LOAD_EVERY(f64, double, LANES_F64, 8, every_f64, store_first_f64)
DEFINE_LOAD_EVERY(bf16, float, LANES_F32, 2, EVERY_BF16, store_first_f32)
DEFINE_LOAD_EVERY(f16, float, LANES_F32, 2, EVERY_F16, store_first_f32)
DEFINE_LOAD_EVERY(raw16, uint16_t, LANES_F32, 2, EVERY_RAW16, store_first_u16)

#endif
