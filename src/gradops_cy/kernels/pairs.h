/* Two rows of 16-bit elements side by side: dst[i] = (even[i], odd[i]). */
#ifndef GRADOPS_PAIRS_H
#define GRADOPS_PAIRS_H

#include "simd.h"

static void zip_pairs(const uint16_t *even, const uint16_t *odd, uint32_t *dst, ptrdiff_t n) {
    ptrdiff_t i = 0;
#if VECTOR_BYTES == 64
    for (; i < n; i += 16) {
        __mmask16 mask = (__mmask16)(n - i < 16 ? 0xffffu >> (16 - (n - i)) : 0xffffu);
        __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even + i));
        __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd + i));
        _mm512_mask_storeu_epi32(dst + i, mask, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
    }
#endif
    for (; i < n; i++) dst[i] = even[i] | (uint32_t)odd[i] << 16;
}

/* Runs two by two: dst[p * run + t] = (src[2 * p * run + t], src[(2 * p + 1) * run + t]). */
static void zip_runs(const uint16_t *src, ptrdiff_t run, uint32_t *dst, ptrdiff_t pairs) {
#if VECTOR_BYTES == 64
    if (16 % run == 0) {  /* A vector begins with a pair of runs. */
        uint16_t from[32];
        for (int i = 0; i < 16; i++) {
            from[2 * i] = (uint16_t)(i + i / run * run);
            from[2 * i + 1] = (uint16_t)(from[2 * i] + run);
        }
        const __m512i places = _mm512_loadu_si512(from);
        for (ptrdiff_t i = 0, n = pairs * run; i < n; i += 16) {
            __mmask16 mask = (__mmask16)(n - i < 16 ? 0xffffu >> (16 - (n - i)) : 0xffffu);
            __m512i both = _mm512_maskz_loadu_epi32(mask, src + 2 * i);
            _mm512_mask_storeu_epi32(dst + i, mask, _mm512_permutexvar_epi16(places, both));
        }
        return;
    }
#endif
    for (ptrdiff_t p = 0; p < pairs; p++)
        zip_pairs(src + 2 * p * run, src + (2 * p + 1) * run, dst + p * run, run);
}

/* The same with zeros for `odd`. */
static void zip_single(const uint16_t *restrict even, uint32_t *restrict dst, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) dst[i] = even[i];
}

#endif
