/* Rows of 16-bit elements two by two. */
#ifndef GRADOPS_PAIRS_H
#define GRADOPS_PAIRS_H

#include "transpose.h"

/* dst[i] = (even[i], odd[i]). */
static void zip_pairs(const uint16_t *even, const uint16_t *odd, uint32_t *dst, ptrdiff_t n) {
    ptrdiff_t i = 0;
#if VECTOR_BYTES == 64
    for (; i < n; i += 16) {
        ptrdiff_t count = MIN(n - i, 16);
        __mmask16 mask = (__mmask16)(0xffffu >> (16 - count));
        store_first_f32((float *)(dst + i), load_pairs(even + i, odd + i, mask), count);
    }
#endif
    for (; i < n; i++) dst[i] = even[i] | (uint32_t)odd[i] << 16;
}

#if VECTOR_BYTES == 64
/* The first n of every second element, as the low halves of words; what lies behind the last is not read. */
INLINE __m512i load_alternate(const uint16_t *p, ptrdiff_t n) {
    return _mm512_maskz_loadu_epi16(~0u >> (33 - 2 * n), p);
}
/* The low halves of two words side by side. */
INLINE __m512i zip_words(__m512i even, __m512i odd) {
    return _mm512_mask_blend_epi16(0xaaaaaaaau, even, _mm512_slli_epi32(odd, 16));
}
#endif

/* The same of every second element. */
static void zip_alternate(const uint16_t *even, const uint16_t *odd, uint32_t *dst, ptrdiff_t n) {
    ptrdiff_t i = 0;
#if VECTOR_BYTES == 64
    for (; i < n; i += 16) {
        ptrdiff_t count = MIN(n - i, 16);
        store_bytes((char *)(dst + i), zip_words(load_alternate(even + 2 * i, count),
                                                 load_alternate(odd + 2 * i, count)), 4 * count);
    }
#endif
    for (; i < n; i++) dst[i] = even[2 * i] | (uint32_t)odd[2 * i] << 16;
}

#if VECTOR_BYTES == 64
/* A square of transpose_alternate: rows two by two. */
INLINE void square_alternate(const uint16_t *src, ptrdiff_t src_pitch, uint16_t *dst,
                             ptrdiff_t dst_pitch, ptrdiff_t rows, ptrdiff_t cols) {
    vec_f32 v[16];
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) {
        __m512i even = _mm512_setzero_si512(), odd = even;
        if (2 * i < rows) even = load_alternate(src, cols);
        if (2 * i + 1 < rows) odd = load_alternate(src + src_pitch, cols);
        v[i] = (vec_f32)zip_words(even, odd);
        src += 2 * src_pitch;
        HOLD(src);
    }
    square_f32(v);
    _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) {
        if (i >= cols) break;
        store_bytes((char *)dst, v[i], 2 * rows);
        dst += dst_pitch;
        HOLD(dst);
    }
}
#endif

/* dst[c][r] = src[r][2 * c], pitches in elements. */
static void transpose_alternate(const uint16_t *src, ptrdiff_t src_pitch, uint16_t *dst,
                                ptrdiff_t dst_pitch, ptrdiff_t rows, ptrdiff_t cols) {
#if VECTOR_BYTES == 64
    for (ptrdiff_t r = 0; r < rows; r += 32)
        for (ptrdiff_t c = 0; c < cols; c += 16) {
            const uint16_t *from = src + r * src_pitch + 2 * c;
            uint16_t *to = dst + c * dst_pitch + r;
            if (rows - r >= 32 && cols - c >= 16)
                square_alternate(from, src_pitch, to, dst_pitch, 32, 16);
            else
                square_alternate(from, src_pitch, to, dst_pitch, MIN(rows - r, 32),
                                 MIN(cols - c, 16));
        }
#else
    for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t c = 0; c < cols; c++) dst[c * dst_pitch + r] = src[r * src_pitch + 2 * c];
#endif
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
