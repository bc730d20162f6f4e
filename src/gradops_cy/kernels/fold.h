/* Results of blocks of pixels, whose rows stand side by side in scratch. */
#ifndef GRADOPS_FOLD_H
#define GRADOPS_FOLD_H

#include "vector_io.h"

enum { BLOCK_PITCH = 16 }; /* sums from block to block */

#if defined(__AVX512BF16__)
INLINE int any_differs(__m512 a, __m512 b) {
    return _mm512_fpclass_ps_mask(a, BF16_DIFFERS) | _mm512_fpclass_ps_mask(b, BF16_DIFFERS);
}
#endif

/* Of each of `count` blocks `rows` runs of n sums, rounded to bfloat16: those of a row one after the
 * other, up to four blocks in one store, rows `row_step` bytes apart. Returns how many blocks. */
static ptrdiff_t join_runs(const float *sums, ptrdiff_t rows, ptrdiff_t n, ptrdiff_t count, char *dst,
                           ptrdiff_t row_step) {
    ptrdiff_t j = 0;
#if defined(__AVX512BF16__)
    const ptrdiff_t each = n <= 8 ? 4 : 2;
    const __mmask32 mask = ~0u >> (32 - each * n);
    uint16_t from[BLOCK_PITCH][32] = {{0}};
    for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t block = 0; block < each; block++)
            for (ptrdiff_t i = 0; i < n; i++)
                from[r][block * n + i] = (uint16_t)(block * BLOCK_PITCH + r * n + i);
    for (; j + each <= count; j += each) {
        const float *block = sums + j * BLOCK_PITCH;
        const __m512 a = _mm512_loadu_ps(block), b = _mm512_loadu_ps(block + 16);
        __m512 c = a, d = b;
        if (each == 4) c = _mm512_loadu_ps(block + 32), d = _mm512_loadu_ps(block + 48);
        const __m512i low = (__m512i)_mm512_cvtne2ps_pbh(b, a);
        const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(d, c);
        const int differ = any_differs(a, b) | any_differs(c, d);
        for (ptrdiff_t r = 0; r < rows; r++) {
            char *to = dst + r * row_step + 2 * j * n;
            const float *from_row = block + r * n;
            if (!differ)
                _mm512_mask_storeu_epi16(to, mask, _mm512_permutex2var_epi16(
                    low, _mm512_loadu_si512(from[r]), high));
            else
                for (ptrdiff_t i = 0; i < each; i++)
                    write_bf16(to + 2 * i * n, load_first_f32(from_row + i * BLOCK_PITCH, n),
                               (int)n);
        }
    }
#else
    (void)sums, (void)rows, (void)n, (void)count, (void)dst, (void)row_step;
#endif
    return j;
}

#endif
