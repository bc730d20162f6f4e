/* The width pass with lanes along the row: each vector of results picks its columns by permutation.
 *
 * A row is a list of blocks, WIDTH_LANES positions each. Position i of a block sums, over its taps
 * k < count[i], weight[k][i] * src[place[i] + k * step]: all lanes go to their next tap together, so
 * that one vector of places serves every tap. Where a scale is a small ratio, nearly all blocks of a
 * row are alike, and share one pattern of places and weights that stays in the innermost cache. */
#ifndef GRADOPS_RESAMPLING_WIDTH_H
#define GRADOPS_RESAMPLING_WIDTH_H

#include "resampling_phases.h"

#if defined(__AVX512F__)
enum { WIDTH_LANES = 16, WIDTH_REACH = 128 };
#elif defined(__AVX2__) && defined(__FMA__)
enum { WIDTH_LANES = 8, WIDTH_REACH = 32 };
#else
enum { WIDTH_LANES = 0, WIDTH_REACH = 0 }; /* no permutation with variable places */
#endif

/* A pattern in 32-bit words: taps that every lane has, the most taps of a lane, the elements that the
 * places reach over, the phases if it has; from word PATTERN_HEAD on the places, the counts, then the
 * weights of each tap. */
enum { LEAST, MOST, REACH, IN_PHASES, PATTERN_HEAD = 16 };

#if defined(__AVX512F__)
/* sum + weight * the elements at the places of `from`, in the lanes of `used`. */
INLINE __m512 add_places(int pairs, const float *from, __m512i places, const __mmask16 *in_pair,
                         __mmask16 used, __m512 weight, __m512 sum) {
    if (pairs == 0) {
        __m512 x = _mm512_permutexvar_ps(places, _mm512_loadu_ps(from));
        return _mm512_mask3_fmadd_ps(x, weight, sum, used);
    }
#pragma GCC unroll 4
    for (int p = 0; p < pairs; p++) {
        __m512 x = _mm512_permutex2var_ps(_mm512_loadu_ps(from + 32 * p), places,
                                          _mm512_loadu_ps(from + 32 * p + 16));
        sum = _mm512_mask3_fmadd_ps(x, weight, sum, pairs == 1 ? used : in_pair[p] & used);
    }
    return sum;
}

INLINE vec_f32 sum_block_of(int pairs, const float *src, ptrdiff_t step, const int32_t *pattern) {
    __m512i places = _mm512_loadu_si512(pattern + PATTERN_HEAD);
    __m512i counts = _mm512_loadu_si512(pattern + PATTERN_HEAD + 16);
    const float *weight = (const float *)(pattern + PATTERN_HEAD + 32);
    __mmask16 in_pair[4];
    for (int p = 0; p < pairs; p++)
        in_pair[p] = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32(places, 5), _mm512_set1_epi32(p));
    __m512 sum = _mm512_setzero_ps();
    int k = 0;
    for (; k < pattern[LEAST]; k++, src += step, weight += 16)
        sum = add_places(pairs, src, places, in_pair, 0xffff, _mm512_loadu_ps(weight), sum);
    for (; k < pattern[MOST]; k++, src += step, weight += 16) {
        __mmask16 used = _mm512_cmpgt_epi32_mask(counts, _mm512_set1_epi32(k));
        sum = add_places(pairs, src, places, in_pair, used, _mm512_loadu_ps(weight), sum);
    }
    return (vec_f32)sum;
}

INLINE vec_f32 sum_block(const float *src, ptrdiff_t step, const int32_t *pattern) {
    int reach = pattern[REACH];
    if (reach <= 16) return sum_block_of(0, src, step, pattern);
    if (reach <= 32) return sum_block_of(1, src, step, pattern);
    if (reach <= 64) return sum_block_of(2, src, step, pattern);
    return sum_block_of(4, src, step, pattern);
}
#elif defined(__AVX2__) && defined(__FMA__)
INLINE vec_f32 sum_block_of(int vectors, const float *src, ptrdiff_t step, const int32_t *pattern) {
    __m256i places = _mm256_loadu_si256((const void *)(pattern + PATTERN_HEAD));
    __m256i counts = _mm256_loadu_si256((const void *)(pattern + PATTERN_HEAD + 8));
    const float *weight = (const float *)(pattern + PATTERN_HEAD + 16);
    __m256 sum = _mm256_setzero_ps(), in_vector[4];
    for (int v = 1; v < vectors; v++)
        in_vector[v] = _mm256_castsi256_ps(
            _mm256_cmpeq_epi32(_mm256_srli_epi32(places, 3), _mm256_set1_epi32(v)));
    for (int k = 0; k < pattern[MOST]; k++, src += step, weight += 8) {
        __m256 x = _mm256_permutevar8x32_ps(_mm256_loadu_ps(src), places);
#pragma GCC unroll 4
        for (int v = 1; v < vectors; v++)
            x = _mm256_blendv_ps(
                x, _mm256_permutevar8x32_ps(_mm256_loadu_ps(src + 8 * v), places), in_vector[v]);
        x = _mm256_fmadd_ps(x, _mm256_loadu_ps(weight), sum);
        if (k < pattern[LEAST]) sum = x;
        else sum = _mm256_blendv_ps(sum, x, _mm256_castsi256_ps(
                       _mm256_cmpgt_epi32(counts, _mm256_set1_epi32(k))));
    }
    return (vec_f32)sum;
}

INLINE vec_f32 sum_block(const float *src, ptrdiff_t step, const int32_t *pattern) {
    int reach = pattern[REACH];
    if (reach <= 8) return sum_block_of(1, src, step, pattern);
    if (reach <= 16) return sum_block_of(2, src, step, pattern);
    return sum_block_of(4, src, step, pattern);
}
#else
INLINE vec_f32 sum_block(const float *src, ptrdiff_t step, const int32_t *pattern) {
    (void)src, (void)step, (void)pattern;
    return (vec_f32){0};
}
#endif

#if defined(__AVX512F__)
/* A pattern in registers, whose lanes have at most four taps within a pair of vectors. */
typedef struct {
    __m512i places, next; /* of a tap, and of the tap after it in the same pair */
    __m512 weight[4];
    __mmask16 used[4];
} Alike;

INLINE Alike alike_of(int taps, const int32_t *pattern, ptrdiff_t step) {
    Alike a;
    __m512i counts = _mm512_loadu_si512(pattern + PATTERN_HEAD + 16);
    a.places = _mm512_loadu_si512(pattern + PATTERN_HEAD);
    a.next = _mm512_add_epi32(a.places, _mm512_set1_epi32((int)step));
#pragma GCC unroll 4
    for (int k = 0; k < taps; k++) {
        a.weight[k] = _mm512_loadu_ps(pattern + PATTERN_HEAD + 32 + 16 * k);
        a.used[k] = _mm512_cmpgt_epi32_mask(counts, _mm512_set1_epi32(k));
    }
    return a;
}

/* Two taps share a pair of vectors where the places of the second still lie in it. */
INLINE vec_f32 sum_alike_block(int taps, int shared, const Alike *a, const float *from,
                               ptrdiff_t step) {
    __m512 sum = _mm512_setzero_ps(), low = sum, high = sum;
#pragma GCC unroll 4
    for (int k = 0; k < taps; k++) {
        int second = shared && k % 2;
        if (!second) {
            low = _mm512_loadu_ps(from + k * step);
            high = _mm512_loadu_ps(from + k * step + 16);
        }
        __m512 x = _mm512_permutex2var_ps(low, second ? a->next : a->places, high);
        sum = _mm512_mask3_fmadd_ps(x, a->weight[k], sum, a->used[k]);
    }
    return (vec_f32)sum;
}

/* What sum_blocks does with the blocks up to `last` that share their pattern, two at a time where they
 * are stored together. `taps` is a constant. Returns how many blocks that are. */
INLINE ptrdiff_t sum_alike(int taps, int shared, int dtype, int accumulate, const float *src,
                           const ptrdiff_t *block, const ptrdiff_t *last, const int32_t *pattern,
                           ptrdiff_t step, char *dst) {
    const ptrdiff_t *first = block;
    const ptrdiff_t bytes = LANES_F32 * element_size(dtype);
    Alike a = alike_of(taps, pattern, step);
    do {
        vec_f32 sum[2] = {sum_alike_block(taps, shared, &a, src + block[0], step)};
        if (!accumulate && block + 2 < last && block[3] == first[1]) {
            sum[1] = sum_alike_block(taps, shared, &a, src + block[2], step);
            store_pair_f32(dtype, sum, dst);
            dst += bytes;
            block += 2;
        } else {
            store_block(dtype, accumulate, sum[0], dst, LANES_F32);
        }
        dst += bytes;
        block += 2;
    } while (block < last && block[1] == first[1]);
    return (block - first) / 2;
}

INLINE ptrdiff_t sum_run_of_blocks(int dtype, int accumulate, const float *src,
                                   const ptrdiff_t *block, const ptrdiff_t *last,
                                   const int32_t *patterns, ptrdiff_t step, char *dst) {
    const int32_t *pattern = patterns + block[1];
    int taps = pattern[MOST], shared = pattern[REACH] + step <= 32;
#define ALIKE(n, s) sum_alike(n, s, dtype, accumulate, src, block, last, pattern, step, dst)
    if (pattern[REACH] <= 32) {
        if (taps == 4 && shared) return ALIKE(4, 1);
        if (taps == 3 && shared) return ALIKE(3, 1);
        if (taps == 2) return shared ? ALIKE(2, 1) : ALIKE(2, 0);
        if (taps == 1) return ALIKE(1, 0);
    }
#undef ALIKE
    store_block(dtype, accumulate, sum_block(src + block[0], step, pattern), dst, LANES_F32);
    return 1;
}
#else
INLINE ptrdiff_t sum_run_of_blocks(int dtype, int accumulate, const float *src,
                                   const ptrdiff_t *block, const ptrdiff_t *last,
                                   const int32_t *patterns, ptrdiff_t step, char *dst) {
    (void)last;
    store_block(dtype, accumulate, sum_block(src + block[0], step, patterns + block[1]), dst,
                LANES_F32);
    return 1;
}
#endif

/* The blocks from `block` on that share a pattern with phases and follow each other. */
INLINE ptrdiff_t sum_blocks_in_phases(int dtype, int accumulate, const float *src,
                                      const ptrdiff_t *block, const ptrdiff_t *last,
                                      const int32_t *pattern, char *dst) {
    const float *weight = (const float *)(pattern + PATTERN_HEAD + 2 * LANES_F32);
    ptrdiff_t phases = pattern[IN_PHASES], taps = pattern[MOST], blocks = 1;
    while (blocks < PHASE_BLOCKS && block + 2 * blocks < last && block[2 * blocks + 1] == block[1]
           && block[2 * blocks] == block[0] + blocks * phases * LANES_F32)
        blocks++;
#define SUM(phases) \
    sum_phases(phases, dtype, accumulate, src + block[0], weight, LANES_F32, taps, blocks, dst)
    if (phases == 4) SUM(4);
    else SUM(8);
#undef SUM
    return blocks;
}

INLINE void sum_blocks_to(int dtype, int accumulate, const float *src, const ptrdiff_t *block,
                          const int32_t *patterns, ptrdiff_t step, char *dst, ptrdiff_t n) {
    const ptrdiff_t *last = block + n / LANES_F32 * 2;
    while (block < last) {
        const int32_t *pattern = patterns + block[1];
        ptrdiff_t blocks =
            pattern[IN_PHASES]
                ? sum_blocks_in_phases(dtype, accumulate, src, block, last, pattern, dst)
                : sum_run_of_blocks(dtype, accumulate, src, block, last, patterns, step, dst);
        block += 2 * blocks;
        dst += blocks * LANES_F32 * element_size(dtype);
    }
    if (n % LANES_F32) {
        vec_f32 sum = sum_block(src + block[0], step, patterns + block[1]);
        store_block(dtype, accumulate, sum, dst, n % LANES_F32);
    }
}

/* dst[j] = the sum of position j, or added to dst, for j < n; dst is contiguous. A block is the place
 * of its first element in `src` and that of its pattern. */
static void sum_blocks(int dtype, int accumulate, const float *src, const ptrdiff_t *block,
                       const int32_t *patterns, ptrdiff_t step, char *dst, ptrdiff_t n) {
    if (accumulate) sum_blocks_to(dtype, 1, src, block, patterns, step, dst, n);
    else if (dtype == F32) sum_blocks_to(F32, 0, src, block, patterns, step, dst, n);
    else if (dtype == F16) sum_blocks_to(F16, 0, src, block, patterns, step, dst, n);
    else sum_blocks_to(BF16, 0, src, block, patterns, step, dst, n);
}

#endif
