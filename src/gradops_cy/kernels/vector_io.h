/* One vector of tensor elements to and from the type that computes; the vector form of half.h.
 *
 * With n < LANES only the first n elements are touched: loads fill up with zeros. */
#ifndef GRADOPS_VECTOR_IO_H
#define GRADOPS_VECTOR_IO_H

#include "half.h"
#include "transpose.h"

INLINE vec_f32 read_f32(const char *p, int n) {
    return n == LANES_F32 ? *(const vec_f32 *)p : load_first_f32((const float *)p, n);
}
INLINE void write_f32(char *p, vec_f32 v, int n) {
    if (n == LANES_F32) *(vec_f32 *)p = v;
    else store_first_f32((float *)p, v, n);
}
INLINE vec_f64 read_f64(const char *p, int n) {
    return n == LANES_F64 ? *(const vec_f64 *)p : load_first_f64((const double *)p, n);
}
INLINE void write_f64(char *p, vec_f64 v, int n) {
    if (n == LANES_F64) *(vec_f64 *)p = v;
    else store_first_f64((double *)p, v, n);
}

#if VECTOR_BYTES == 64

INLINE __m256i load_halves(const char *p, int n) {
    if (n == 16) return _mm256_loadu_si256((const void *)p);
    return _mm256_maskz_loadu_epi16((__mmask16)(0xffffu >> (16 - n)), p);
}
INLINE void store_halves(char *p, __m256i v, int n) {
    if (n == 16) _mm256_storeu_si256((void *)p, v);
    else _mm256_mask_storeu_epi16(p, (__mmask16)(0xffffu >> (16 - n)), v);
}
INLINE vec_f32 read_f16(const char *p, int n) { return (vec_f32)_mm512_cvtph_ps(load_halves(p, n)); }
INLINE void write_f16(char *p, vec_f32 v, int n) {
    store_halves(p, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT), n);
}
INLINE vec_f32 read_bf16(const char *p, int n) {
    return (vec_f32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(p, n)), 16);
}
/* Where the instruction rounds otherwise: NaN, and subnormals, which it flushes. */
#define BF16_DIFFERS (0x01 | 0x20 | 0x80)

/* Of the low halves of words. */
INLINE vec_f32 widen_f16(indices_f32 words) {
    return (vec_f32)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)words));
}
/* Rounded, one in each word. */
INLINE indices_f32 f16_words(vec_f32 v) {
    return (indices_f32)_mm512_cvtepu16_epi32(_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}
/* bf16_from_float, lane by lane; and the high halves of its words where no lane is NaN. */
INLINE __m512i bf16_sums(vec_f32 v) {
    __m512i u = (__m512i)v, odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
}
INLINE indices_f32 bf16_words(vec_f32 v) {
    __m512i high = _mm512_srli_epi32((__m512i)v, 16), sum = bf16_sums(v);
    __m512i nan = _mm512_or_si512(_mm512_and_si512(high, _mm512_set1_epi32(0x8000)),
                                  _mm512_set1_epi32(0x7fc0));
    __mmask16 unordered = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    return (indices_f32)_mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), unordered, nan);
}
INLINE void write_bf16(char *p, vec_f32 v, int n) {
#if defined(__AVX512BF16__)
    if (!_mm512_fpclass_ps_mask((__m512)v, BF16_DIFFERS)) {
        store_halves(p, (__m256i)_mm512_cvtneps_pbh((__m512)v), n);
        return;
    }
#endif
    store_halves(p, _mm512_cvtepi32_epi16((__m512i)bf16_words(v)), n);
}

#elif VECTOR_BYTES == 32

/* Up to three. */
INLINE uint64_t load_few_halves(const char *p, int n) {
    uint64_t few = 0;
    uint16_t last;
    if (n & 2) memcpy(&few, p, 4);
    if (n & 1) {
        memcpy(&last, p + 2 * (n - 1), 2);
        few |= (uint64_t)last << (16 * (n - 1));
    }
    return few;
}
INLINE __m128i load_halves(const char *p, int n) {
    if (n == 8) return _mm_loadu_si128((const void *)p);
    if (n < 4) return _mm_cvtsi64_si128((long long)load_few_halves(p, n));
    return _mm_insert_epi64(_mm_loadl_epi64((const void *)p),
                            (long long)load_few_halves(p + 8, n - 4), 1);
}
INLINE void store_halves(char *p, __m128i v, int n) {
    uint64_t few = (uint64_t)_mm_cvtsi128_si64(v);
    if (n == 8) {
        _mm_storeu_si128((void *)p, v);
        return;
    }
    if (n & 4) {
        memcpy(p, &few, 8);
        few = (uint64_t)_mm_extract_epi64(v, 1);
        p += 8;
    }
    if (n & 2) {
        memcpy(p, &few, 4);
        few >>= 32;
        p += 4;
    }
    if (n & 1) memcpy(p, &few, 2);
}
INLINE vec_f32 read_f16(const char *p, int n) { return (vec_f32)_mm256_cvtph_ps(load_halves(p, n)); }
INLINE void write_f16(char *p, vec_f32 v, int n) {
    store_halves(p, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT), n);
}
INLINE vec_f32 read_bf16(const char *p, int n) {
    return (vec_f32)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(p, n)), 16);
}
/* The low halves of words, without what is above. */
INLINE __m128i pack_words(indices_f32 words) {
    __m256i twice = _mm256_packus_epi32((__m256i)words, (__m256i)words);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(twice, 0x88));
}
/* Of the low halves of words. */
INLINE vec_f32 widen_f16(indices_f32 words) {
    return (vec_f32)_mm256_cvtph_ps(pack_words(words & 0xffff));
}
/* Rounded, one in each word. */
INLINE indices_f32 f16_words(vec_f32 v) {
    return (indices_f32)_mm256_cvtepu16_epi32(_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}
/* bf16_from_float, lane by lane; and the high halves of its words where no lane is NaN. */
INLINE __m256i bf16_sums(vec_f32 v) {
    __m256i u = (__m256i)v, odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}
INLINE indices_f32 bf16_words(vec_f32 v) {
    __m256i high = _mm256_srli_epi32((__m256i)v, 16), sum = bf16_sums(v);
    __m256i nan = _mm256_or_si256(_mm256_and_si256(high, _mm256_set1_epi32(0x8000)),
                                  _mm256_set1_epi32(0x7fc0));
    __m256i unordered = (__m256i)_mm256_cmp_ps((__m256)v, (__m256)v, _CMP_UNORD_Q);
    return (indices_f32)_mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), nan, unordered);
}
INLINE void write_bf16(char *p, vec_f32 v, int n) { store_halves(p, pack_words(bf16_words(v)), n); }

#else

INLINE vec_f32 read_f16(const char *p, int n) {
    const uint16_t *s = (const uint16_t *)p;
    vec_f32 v = {0};
    for (int i = 0; i < n; i++) v[i] = float_from_f16(s[i]);
    return v;
}
INLINE void write_f16(char *p, vec_f32 v, int n) {
    uint16_t *d = (uint16_t *)p;
    for (int i = 0; i < n; i++) d[i] = f16_from_float(v[i]);
}
INLINE vec_f32 read_bf16(const char *p, int n) {
    const uint16_t *s = (const uint16_t *)p;
    vec_f32 v = {0};
    for (int i = 0; i < n; i++) v[i] = float_from_bf16(s[i]);
    return v;
}
INLINE vec_f32 widen_f16(indices_f32 words) {
    vec_f32 v;
    for (int i = 0; i < LANES_F32; i++) v[i] = float_from_f16((uint16_t)words[i]);
    return v;
}
INLINE indices_f32 f16_words(vec_f32 v) {
    indices_f32 words;
    for (int i = 0; i < LANES_F32; i++) words[i] = f16_from_float(v[i]);
    return words;
}
INLINE indices_f32 bf16_words(vec_f32 v) {
    indices_f32 words;
    for (int i = 0; i < LANES_F32; i++) words[i] = bf16_from_float(v[i]);
    return words;
}
INLINE void write_bf16(char *p, vec_f32 v, int n) {
    uint16_t *d = (uint16_t *)p;
    indices_f32 words = bf16_words(v);
    for (int i = 0; i < n; i++) d[i] = (uint16_t)words[i];
}

#endif

/* Two vectors, of halves in one store: two that are loaded as one wait until both are in cache. Those of 32 bytes
 * are rounded faster so, and cross no more lines than one by itself. */
#define PAIRS_OF_HALVES (VECTOR_BYTES == 32)
INLINE void write_pair_f32(char *p, vec_f32 v0, vec_f32 v1) {
    write_f32(p, v0, LANES_F32);
    write_f32(p + VECTOR_BYTES, v1, LANES_F32);
}
INLINE void write_pair_f64(char *p, vec_f64 v0, vec_f64 v1) {
    write_f64(p, v0, LANES_F64);
    write_f64(p + VECTOR_BYTES, v1, LANES_F64);
}
INLINE void write_pair_f16(char *p, vec_f32 v0, vec_f32 v1) {
#if VECTOR_BYTES == 64
    const __m256i low = _mm512_cvtps_ph((__m512)v0, _MM_FROUND_TO_NEAREST_INT);
    const __m256i high = _mm512_cvtps_ph((__m512)v1, _MM_FROUND_TO_NEAREST_INT);
    _mm512_storeu_si512((void *)p, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
#elif VECTOR_BYTES == 32
    const __m128i low = _mm256_cvtps_ph((__m256)v0, _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph((__m256)v1, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((void *)p, _mm256_set_m128i(high, low));
#else
    write_f16(p, v0, LANES_F32);
    write_f16(p + 2 * LANES_F32, v1, LANES_F32);
#endif
}
/* One test and one store. */
INLINE void write_pair_bf16(char *p, vec_f32 v0, vec_f32 v1) {
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    if (!(_mm512_fpclass_ps_mask((__m512)v0, BF16_DIFFERS)
          | _mm512_fpclass_ps_mask((__m512)v1, BF16_DIFFERS))) {
        _mm512_storeu_si512((void *)p, (__m512i)_mm512_cvtne2ps_pbh((__m512)v1, (__m512)v0));
        return;
    }
#elif VECTOR_BYTES == 64
    if (!_mm512_cmp_ps_mask((__m512)v0, (__m512)v1, _CMP_UNORD_Q)) {
        const __m512i high = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33,
                                              31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
        _mm512_storeu_si512((void *)p, _mm512_permutex2var_epi16(bf16_sums(v0), high, bf16_sums(v1)));
        return;
    }
#elif VECTOR_BYTES == 32
    if (!_mm256_movemask_ps(_mm256_cmp_ps((__m256)v0, (__m256)v1, _CMP_UNORD_Q))) {
        const __m256i low = _mm256_srli_epi32(bf16_sums(v0), 16);
        const __m256i both = _mm256_packus_epi32(low, _mm256_srli_epi32(bf16_sums(v1), 16));
        _mm256_storeu_si256((void *)p, _mm256_permute4x64_epi64(both, 0xd8));
        return;
    }
#endif
    write_bf16(p, v0, LANES_F32);
    write_bf16(p + 2 * LANES_F32, v1, LANES_F32);
}

#endif
