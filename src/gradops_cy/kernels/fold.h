/* Results of blocks of pixels, whose rows stand side by side in scratch. */
#ifndef GRADOPS_FOLD_H
#define GRADOPS_FOLD_H

#include "vector_io.h"

enum { BLOCK_PITCH = 16 }; /* sums from block to block */

/* The n sums from `first` on of each of `count` blocks, rounded to bfloat16, one after the other: up to
 * four blocks in one store. Returns how many were stored. */
static ptrdiff_t join_runs(const float *sums, ptrdiff_t first, ptrdiff_t n, ptrdiff_t count, char *dst) {
    ptrdiff_t j = 0;
#if defined(__AVX512BF16__)
    const ptrdiff_t each = n <= 8 ? 4 : 2, all = each * n;
    const __mmask32 mask = ~0u >> (32 - all);
    uint16_t from[32] = {0};
    for (ptrdiff_t i = 0; i < all; i++) from[i] = (uint16_t)(i / n * BLOCK_PITCH + first + i % n);
    const __m512i places = _mm512_loadu_si512(from);
    for (; j + each <= count; j += each) {
        const float *block = sums + j * BLOCK_PITCH;
        const __m512 a = _mm512_loadu_ps(block), b = _mm512_loadu_ps(block + 16);
        __m512 c = a, d = b;
        if (each == 4) c = _mm512_loadu_ps(block + 32), d = _mm512_loadu_ps(block + 48);
        __mmask16 differ = _mm512_fpclass_ps_mask(a, BF16_DIFFERS) | _mm512_fpclass_ps_mask(b, BF16_DIFFERS)
                         | _mm512_fpclass_ps_mask(c, BF16_DIFFERS) | _mm512_fpclass_ps_mask(d, BF16_DIFFERS);
        if (differ) {
            for (ptrdiff_t i = 0; i < each; i++)
                write_bf16(dst + 2 * (j + i) * n,
                           load_first_f32(block + i * BLOCK_PITCH + first, n), (int)n);
            continue;
        }
        _mm512_mask_storeu_epi16(dst + 2 * j * n, mask, _mm512_permutex2var_epi16(
            (__m512i)_mm512_cvtne2ps_pbh(b, a), places, (__m512i)_mm512_cvtne2ps_pbh(d, c)));
    }
#else
    (void)sums, (void)first, (void)n, (void)count, (void)dst;
#endif
    return j;
}

#endif
