/* What this core can do at most: the yardsticks that shares of peak are measured against. */
#ifndef GRADOPS_PROBE_H
#define GRADOPS_PROBE_H

#include "dot.h"

/* Independent multiply-adds on registers only; returns the floating-point operations done. */
#define DEFINE_PROBE_FMA(suffix, real, vec, LANES)                                              \
    static double probe_fma_##suffix(ptrdiff_t rounds, real *sink) {                            \
        enum { CHAINS = VECTOR_REGISTERS == 32 ? 24 : 12 };                                     \
        vec acc[CHAINS], factor = splat_##suffix((real)0.999), term = splat_##suffix((real)1e-3); \
        _Pragma("GCC unroll 24") for (int c = 0; c < CHAINS; c++)                               \
            acc[c] = splat_##suffix((real)(sink[0] + c));                                       \
        for (ptrdiff_t i = 0; i < rounds; i++) {                                                \
            _Pragma("GCC unroll 24") for (int c = 0; c < CHAINS; c++)                           \
                acc[c] = acc[c] * factor + term;                                                \
        }                                                                                       \
        vec sum = acc[0];                                                                       \
        for (int c = 1; c < CHAINS; c++) sum += acc[c];                                         \
        sink[0] = sum[0];                                                                       \
        __asm__ volatile("" : : "m"(sum)); /* else a compiler may drop the loop */              \
        return 2.0 * CHAINS * (LANES) * (double)rounds;                                         \
    }

DEFINE_PROBE_FMA(f32, float, vec_f32, LANES_F32)
DEFINE_PROBE_FMA(f64, double, vec_f64, LANES_F64)

/* Products of bfloat16 pairs on registers only: four accumulator tiles of 16x16 against two by two
 * operand tiles, or independent vectors. */
static double probe_dot(ptrdiff_t rounds) {
#if HAVE_AMX
    amx_begin(16, 32, 0);
    _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    _tile_zero(4); _tile_zero(5); _tile_zero(6); _tile_zero(7);
    for (ptrdiff_t i = 0; i < rounds; i++) {
        AMX_DPBF16(0, 4, 6); AMX_DPBF16(1, 4, 7); AMX_DPBF16(2, 5, 6); AMX_DPBF16(3, 5, 7);
    }
    amx_end();
    return 4.0 * 2 * 16 * 16 * 32 * (double)rounds;
#elif BF16_RATE
    enum { CHAINS = 24 };
    __m512 acc[CHAINS];
    __m512bh factor = (__m512bh)_mm512_set1_epi32(0x3f003f00);
    HOLD_VECTOR(factor);
    _Pragma("GCC unroll 24") for (int c = 0; c < CHAINS; c++) acc[c] = _mm512_set1_ps((float)c);
    for (ptrdiff_t i = 0; i < rounds; i++) {
        _Pragma("GCC unroll 24") for (int c = 0; c < CHAINS; c++)
            acc[c] = _mm512_dpbf16_ps(acc[c], factor, factor);
    }
    for (int c = 1; c < CHAINS; c++) acc[0] += acc[c];
    __asm__ volatile("" : : "m"(acc[0])); /* else a compiler may drop the loop */
    return 2.0 * CHAINS * 32 * (double)rounds;
#else
    (void)rounds;
    return 0;
#endif
}

/* Copy past the caches; bytes a multiple of 64, both pointers aligned to 64. */
static void probe_copy(const char *src, char *dst, ptrdiff_t bytes) {
#if defined(__AVX512F__)
    for (ptrdiff_t i = 0; i < bytes; i += 64)
        _mm512_stream_si512((__m512i *)(dst + i), _mm512_load_si512((const __m512i *)(src + i)));
    _mm_sfence();
#elif defined(__SSE2__)
    for (ptrdiff_t i = 0; i < bytes; i += 16)
        _mm_stream_si128((__m128i *)(dst + i), _mm_load_si128((const __m128i *)(src + i)));
    _mm_sfence();
#else
    memcpy(dst, src, (size_t)bytes);
#endif
}

#endif
