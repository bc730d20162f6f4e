/* One element to and from the type that computes: float for f32, f16 and bf16, double for f64.
 *
 * Stores round once, to nearest even; bf16 in software, bit for bit as ml_dtypes does (the
 * hardware instruction flushes subnormals). vector_io.h does the same for a vector, rows.h for a
 * row; nowhere else do dtypes differ. */
#ifndef GRADOPS_HALF_H
#define GRADOPS_HALF_H

#include "simd.h"

/* RAW16 is no tensor's dtype: it moves 16-bit elements as they are, for kernels that compute on
 * halves or have rounded. */
enum { F32 = 0, F16 = 1, BF16 = 2, F64 = 3, RAW16 = 4 };

/* Call the function that `name` is for a tensor's dtype: name_f32, name_f16 and so on. */
#define BY_DTYPE(dtype, name, ...)                                                                 \
    do {                                                                                           \
        if (dtype == F32) name##_f32(__VA_ARGS__);                                                 \
        else if (dtype == F16) name##_f16(__VA_ARGS__);                                            \
        else if (dtype == BF16) name##_bf16(__VA_ARGS__);                                          \
        else name##_f64(__VA_ARGS__);                                                              \
    } while (0)

INLINE int element_size(int dtype) { return dtype == F64 ? 8 : dtype == F32 ? 4 : 2; }

/* Size of the type that computes on `dtype`. */
INLINE int compute_size(int dtype) { return dtype == F64 ? 8 : 4; }

INLINE float float_from_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
INLINE uint32_t bits_from_float(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }

INLINE float float_from_bf16(uint16_t h) { return float_from_bits((uint32_t)h << 16); }

INLINE uint16_t bf16_from_float(float f) {
    uint32_t u = bits_from_float(f);
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
    uint32_t quiet_nan = ((u >> 16) & 0x8000u) | 0x7fc0u;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

#if defined(__F16C__)
INLINE float float_from_f16(uint16_t h) { return _cvtsh_ss(h); }
INLINE uint16_t f16_from_float(float f) { return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
#elif defined(__aarch64__)
INLINE float float_from_f16(uint16_t h) { __fp16 x; memcpy(&x, &h, 2); return (float)x; }
INLINE uint16_t f16_from_float(float f) {
    __fp16 x = (__fp16)f;
    uint16_t h;
    memcpy(&h, &x, 2);
    return h;
}
#else
INLINE float float_from_f16(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
    /* Subnormals and zero: the magnitude is an integer count of 2**-24. */
    float small = (float)magnitude * 0x1p-24f;
    uint32_t normal = (magnitude << 13) + 0x38000000u;
    uint32_t special = (magnitude << 13) | 0x7f800000u | (magnitude > 0x7c00u ? 0x400000u : 0);
    uint32_t u = magnitude < 0x400u ? bits_from_float(small)
               : magnitude >= 0x7c00u ? special : normal;
    return float_from_bits(u | sign);
}
INLINE uint16_t f16_from_float(float f) {
    uint32_t u = bits_from_float(f), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    /* Adding 0.5 puts the last bit of an f16 subnormal at the last bit of the sum: the
     * addition itself rounds to nearest even. */
    uint32_t small = bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t normal = (magnitude + 0xc8000fffu + ((magnitude >> 13) & 1)) >> 13;
    uint32_t special = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : 0x7c00u;
    uint32_t h = magnitude >= 0x47800000u ? special : magnitude < 0x38800000u ? small : normal;
    return (uint16_t)(h | sign);
}
#endif

#endif
