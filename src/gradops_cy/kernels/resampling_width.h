/* The width pass with lanes along the row: each vector of results picks its columns by permutation.
 *
 * A row is a list of blocks, WIDTH_LANES positions each. Position i of a block sums, over its taps
 * k < count[i], weight[k][i] * src[place[i] + k * step]: all lanes go to their next tap together, so
 * that one vector of places serves every tap. Where positions lie further apart than a permutation of
 * two vectors reaches, a block is taken in two or four parts, each of which stands in its vector as
 * often, for as many taps that follow each other: all lanes are filled by one permutation. Sums are
 * those of add_columns, in as many chains. Where a scale is a small ratio, nearly all blocks of a row
 * are alike, and share one pattern of places and weights; see resampling_windows.h. */
#ifndef GRADOPS_RESAMPLING_WIDTH_H
#define GRADOPS_RESAMPLING_WIDTH_H

#include "rows.h"

#if defined(__AVX512F__)
enum { WIDTH_LANES = 16, WIDTH_REACH = 128 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { WIDTH_LANES = 8, WIDTH_REACH = 32 };
#else
enum { WIDTH_LANES = 0, WIDTH_REACH = 0 }; /* no permutation with variable places */
#endif

/* A pattern in 32-bit words: steps that every lane has, and the most of a lane; the elements that
 * places reach over; parts and chains; from word BASES on where the places of each part begin; the elements
 * that all taps of a part reach over; from PATTERN_HEAD on the places of each part and the steps of its
 * lanes, then the weights of each step of each part. A step is as many taps as there are parts. */
enum { LEAST, MOST, REACH, PARTS, CHAINS, BASES, WINDOW = BASES + 4, PATTERN_HEAD = 16 };

#if defined(__AVX512F__)
typedef __m512i width_words;
INLINE width_words load_words(const int32_t *p) { return _mm512_loadu_si512(p); }

/* The elements at the places of as many vectors. */
INLINE vec_f32 pick(const int vectors, const float *from, width_words places) {
    if (vectors == 1) return (vec_f32)_mm512_permutexvar_ps(places, _mm512_loadu_ps(from));
    __m512 x = _mm512_permutex2var_ps(_mm512_loadu_ps(from), places, _mm512_loadu_ps(from + 16));
#pragma GCC unroll 4
    for (int p = 1; p < vectors / 2; p++, from += 32) {
        __mmask16 here = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32(places, 5), _mm512_set1_epi32(p));
        __m512 more = _mm512_permutex2var_ps(_mm512_loadu_ps(from + 32), places,
                                             _mm512_loadu_ps(from + 48));
        x = _mm512_mask_mov_ps(x, here, more);
    }
    return (vec_f32)x;
}

INLINE vec_f32 add_step(vec_f32 x, const float *weight, vec_f32 sum) {
    return (vec_f32)_mm512_fmadd_ps((__m512)x, _mm512_loadu_ps(weight), (__m512)sum);
}
/* The lanes that have more than k steps, and what to add in some lanes. */
typedef uint32_t width_mask;
INLINE width_mask lanes_beyond(width_words steps, int k) {
    return _mm512_cmpgt_epi32_mask(steps, _mm512_set1_epi32(k));
}
INLINE vec_f32 add_used(vec_f32 x, vec_f32 weight, vec_f32 sum, width_mask used) {
    return (vec_f32)_mm512_mask3_fmadd_ps((__m512)x, (__m512)weight, (__m512)sum, (__mmask16)used);
}

/* Vectors of [chain][position of a part], their chains added up: [part][position]. */
INLINE vec_f32 fold_parts(const int parts, const vec_f32 *part) {
    if (parts == 1) return part[0];
    __m512 sum[2];
    for (int p = 0; p < parts / 2; p++) {
        __m512 a = (__m512)part[2 * p], b = (__m512)part[2 * p + 1];
        sum[p] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    }
    if (parts == 2) return (vec_f32)sum[0];
    return (vec_f32)_mm512_add_ps(_mm512_shuffle_f32x4(sum[0], sum[1], 0x88),
                                  _mm512_shuffle_f32x4(sum[0], sum[1], 0xdd));
}
#elif defined(__AVX2__) && defined(__FMA__)
typedef __m256i width_words;
INLINE width_words load_words(const int32_t *p) { return _mm256_loadu_si256((const void *)p); }

INLINE vec_f32 pick(const int vectors, const float *from, width_words places) {
    __m256 x = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), places);
#pragma GCC unroll 4
    for (int v = 1; v < vectors; v++) {
        __m256i here = _mm256_cmpeq_epi32(_mm256_srli_epi32(places, 3), _mm256_set1_epi32(v));
        __m256 more = _mm256_permutevar8x32_ps(_mm256_loadu_ps(from + 8 * v), places);
        x = _mm256_blendv_ps(x, more, _mm256_castsi256_ps(here));
    }
    return (vec_f32)x;
}

INLINE vec_f32 add_step(vec_f32 x, const float *weight, vec_f32 sum) {
    return (vec_f32)_mm256_fmadd_ps((__m256)x, _mm256_loadu_ps(weight), (__m256)sum);
}
typedef __m256i width_mask;
INLINE width_mask lanes_beyond(width_words steps, int k) {
    return _mm256_cmpgt_epi32(steps, _mm256_set1_epi32(k));
}
INLINE vec_f32 add_used(vec_f32 x, vec_f32 weight, vec_f32 sum, width_mask used) {
    __m256 added = _mm256_fmadd_ps((__m256)x, (__m256)weight, (__m256)sum);
    return (vec_f32)_mm256_blendv_ps((__m256)sum, added, _mm256_castsi256_ps(used));
}

INLINE __m256 add_halves(vec_f32 a, vec_f32 b) {
    return _mm256_add_ps(_mm256_permute2f128_ps((__m256)a, (__m256)b, 0x20),
                         _mm256_permute2f128_ps((__m256)a, (__m256)b, 0x31));
}
INLINE vec_f32 fold_parts(const int parts, const vec_f32 *part) {
    if (parts == 1) return part[0];
    if (parts == 2) return (vec_f32)add_halves(part[0], part[1]);
    __m256d even = _mm256_castps_pd(add_halves(part[0], part[2]));
    __m256d odd = _mm256_castps_pd(add_halves(part[1], part[3]));
    return (vec_f32)_mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(even, odd)),
                                  _mm256_castpd_ps(_mm256_unpackhi_pd(even, odd)));
}
#endif

#if defined(__AVX2__) && defined(__FMA__)
INLINE vec_f32 add_step_of(vec_f32 x, const float *weight, vec_f32 sum, width_words steps, int k) {
    return add_used(x, *(const vec_f32 *)weight, sum, lanes_beyond(steps, k));
}

/* A block in `parts`, whose places lie in so many vectors. */
INLINE vec_f32 sum_parts(const int parts, const int vectors, const float *src, ptrdiff_t step,
                         const int32_t *pattern) {
    const int32_t *words = pattern + PATTERN_HEAD;
    const float *weight = (const float *)(words + 2 * parts * WIDTH_LANES), *from[4];
    width_words places[4];
    vec_f32 sum[4];
    for (int p = 0; p < parts; p++) {
        from[p] = src + pattern[BASES + p];
        places[p] = load_words(words + 2 * p * WIDTH_LANES);
        sum[p] = (vec_f32){0};
    }
    int k = 0;
    for (; k < pattern[LEAST]; k++)
        for (int p = 0; p < parts; p++, weight += WIDTH_LANES) {
            sum[p] = add_step(pick(vectors, from[p], places[p]), weight, sum[p]);
            from[p] += parts * step;
        }
    for (; k < pattern[MOST]; k++)
        for (int p = 0; p < parts; p++, weight += WIDTH_LANES) {
            sum[p] = add_step_of(pick(vectors, from[p], places[p]), weight, sum[p],
                                 load_words(words + (2 * p + 1) * WIDTH_LANES), k);
            from[p] += parts * step;
        }
    return fold_parts(parts, sum);
}

/* A block that does not fit in parts, as where several channels lie between its taps. */
INLINE vec_f32 sum_whole(const int chains, const int vectors, const float *src, ptrdiff_t step,
                         const int32_t *pattern) {
    const int32_t *words = pattern + PATTERN_HEAD;
    const float *weight = (const float *)(words + 2 * WIDTH_LANES);
    const width_words places = load_words(words), steps = load_words(words + WIDTH_LANES);
    vec_f32 sum[4] = {{0}};
    for (int k = 0; k < pattern[MOST]; k += chains)
        for (int i = 0; i < chains && k + i < pattern[MOST]; i++, src += step, weight += WIDTH_LANES)
            sum[i] = add_step_of(pick(vectors, src, places), weight, sum[i], steps, k + i);
    return join_chains_f32(chains, sum[0], sum[1], sum[2], sum[3]);
}

INLINE vec_f32 sum_block(const float *src, ptrdiff_t step, const int32_t *pattern) {
    const int reach = pattern[REACH], chains = pattern[CHAINS], most = WIDTH_REACH / WIDTH_LANES;
    if (chains == 1) {
        if (reach <= WIDTH_LANES) return sum_parts(1, 1, src, step, pattern);
        if (reach <= 2 * WIDTH_LANES) return sum_parts(1, 2, src, step, pattern);
        if (reach <= 4 * WIDTH_LANES) return sum_parts(1, 4, src, step, pattern);
        return sum_parts(1, most, src, step, pattern);
    }
    if (pattern[PARTS] == 2) return sum_parts(2, 2, src, step, pattern);
    if (pattern[PARTS] == 4) return sum_parts(4, 2, src, step, pattern);
    if (chains == 4) return sum_whole(4, most, src, step, pattern);
    if (reach <= 4 * WIDTH_LANES) return sum_whole(2, 4, src, step, pattern);
    return sum_whole(2, most, src, step, pattern);
}
#else
INLINE vec_f32 sum_block(const float *src, ptrdiff_t step, const int32_t *pattern) {
    (void)src, (void)step, (void)pattern;
    return (vec_f32){0};
}
#endif

#endif
