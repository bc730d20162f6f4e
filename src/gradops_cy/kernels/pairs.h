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

/* The same with zeros for `odd`. */
static void zip_single(const uint16_t *restrict even, uint32_t *restrict dst, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) dst[i] = even[i];
}

#endif
