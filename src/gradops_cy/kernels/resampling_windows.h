/* Both passes at once, in registers, where all columns that a block of resampling_width.h reads, or a part
 * of it, lie in a window of a few vectors: the window is reduced over depth and height, and the taps of all
 * positions are picked from it. Sums have the order of the two passes. */
#ifndef GRADOPS_RESAMPLING_WINDOWS_H
#define GRADOPS_RESAMPLING_WINDOWS_H

#include "resampling_fused.h"

/* The most vectors of a window: one whose block is whole, and those of one in two parts. */
#if defined(__AVX2__) && defined(__FMA__)
enum { WINDOW_VECTORS = 3, WINDOW_VECTORS_OF_PARTS = 2 };
#else
enum { WINDOW_VECTORS = 0, WINDOW_VECTORS_OF_PARTS = 0 };
#endif

#if defined(__AVX512F__)
INLINE width_words add_to_places(width_words places, int step) {
    return _mm512_add_epi32(places, _mm512_set1_epi32(step));
}

/* The elements of a window at `places`, which lie in `vectors`. */
INLINE vec_f32 pick_of_window(const int vectors, const vec_f32 *window, width_words places) {
    if (vectors == 1) return (vec_f32)_mm512_permutexvar_ps(places, (__m512)window[0]);
    __m512 x = _mm512_permutex2var_ps((__m512)window[0], places, (__m512)window[1]);
    if (vectors == 2) return (vec_f32)x;
    __mmask16 last = _mm512_cmpgt_epi32_mask(places, _mm512_set1_epi32(2 * LANES_F32 - 1));
    return (vec_f32)_mm512_mask_permutexvar_ps(x, last, places, (__m512)window[2]);
}
#elif defined(__AVX2__) && defined(__FMA__)
INLINE width_words add_to_places(width_words places, int step) {
    return _mm256_add_epi32(places, _mm256_set1_epi32(step));
}

INLINE vec_f32 pick_of_window(const int vectors, const vec_f32 *window, width_words places) {
    __m256 x = _mm256_permutevar8x32_ps((__m256)window[0], places);
#pragma GCC unroll 2
    for (int v = 1; v < vectors; v++) {
        __m256i here = _mm256_cmpgt_epi32(places, _mm256_set1_epi32(v * LANES_F32 - 1));
        __m256 more = _mm256_permutevar8x32_ps((__m256)window[v], places);
        x = _mm256_blendv_ps(x, more, _mm256_castsi256_ps(here));
    }
    return (vec_f32)x;
}
#endif

#if defined(__AVX2__) && defined(__FMA__)
/* The columns of a window from `first` on, reduced; `offset` bytes into the rows. */
INLINE void reduce_window(const int dtype, const int vectors, const FusedRows *job, ptrdiff_t first,
                          ptrdiff_t offset, vec_f32 *window) {
    const ptrdiff_t step = LANES_F32 * element_size(dtype), left = job->extent - first;
    if (left < vectors * LANES_F32) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            const ptrdiff_t within = left - v * LANES_F32;
            window[v] = (vec_f32){0};
            for (ptrdiff_t r = 0; within > 0 && r < job->rows; r++)
                window[v] += splat_f32(job->weight[r])
                             * load_first(dtype, job->row[r] + offset + v * step, within);
        }
        return;
    }
#pragma GCC unroll 3
    for (int v = 0; v < vectors; v++) window[v] = (vec_f32){0};
    for (ptrdiff_t r = 0; r < job->rows; r++) {
        const char *p = job->row[r] + offset;
        const vec_f32 w = splat_f32(job->weight[r]);
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            window[v] += w * load_first(dtype, p + v * step, LANES_F32);
    }
}

INLINE vec_f32 sum_window_block(const int dtype, const int vectors, const int parts,
                                const FusedRows *job, ptrdiff_t start, const int32_t *pattern,
                                ptrdiff_t step, ptrdiff_t row) {
    const int32_t *words = pattern + PATTERN_HEAD;
    const float *weight = (const float *)(words + 2 * parts * LANES_F32);
    vec_f32 sum[2], window[3];
#pragma GCC unroll 2
    for (int p = 0; p < parts; p++, words += 2 * LANES_F32) {
        const ptrdiff_t first = start + pattern[BASES + p];
        width_words places = load_words(words), steps = load_words(words + LANES_F32);
        reduce_window(dtype, vectors, job, first, row + first * element_size(dtype), window);
        sum[p] = (vec_f32){0};
        for (int k = 0; k < pattern[MOST]; k++) {
            sum[p] = add_step_of(pick_of_window(vectors, window, places),
                                 weight + (k * parts + p) * LANES_F32, sum[p], steps, k);
            places = add_to_places(places, (int)(parts * step));
        }
    }
    return fold_parts(parts, sum);
}

INLINE void sum_windows_for(const int dtype, const int vectors, const int parts,
                            const FusedRows *job, const ptrdiff_t *block, const int32_t *patterns,
                            ptrdiff_t step, ptrdiff_t n, char *result) {
    const ptrdiff_t size = element_size(dtype), bytes = LANES_F32 * size;
    for (ptrdiff_t i = 0; i < job->count; i++) {
        const ptrdiff_t row = i * job->row_step;
        char *dst = result + i * job->dst_step;
        for (ptrdiff_t j = 0; j < n; j += LANES_F32, dst += bytes) {
            const ptrdiff_t *at = block + j / LANES_F32 * 2, left = n - j;
            for (ptrdiff_t r = 0; r < job->asked_rows; r++)
                prefetch_ahead(job->asked[r] + row + at[0] * size, job->near, job->advance);
            const vec_f32 sum = sum_window_block(dtype, vectors, parts, job, at[0],
                                                 patterns + at[1], step, row);
            if (dtype == F32 && job->streams && left >= LANES_F32) STREAM_VECTOR(dst, sum);
            else store_first(dtype, sum, dst, left);
        }
    }
}

/* dst[j] = the sum of position j, j < n, and as much of the next rows; see sum_blocks. */
static void sum_windows(int dtype, int vectors, int parts, const FusedRows *job,
                        const ptrdiff_t *blocks, const int32_t *patterns, ptrdiff_t step, ptrdiff_t n,
                        char *dst) {
#define SUM(dtype, vectors, parts)                                                                 \
    sum_windows_for(dtype, vectors, parts, job, blocks, patterns, step, n, dst)
#define BY_SIZE(dtype)                                                                             \
    do {                                                                                           \
        if (parts == 2) SUM(dtype, 2, 2);                                                          \
        else if (vectors == 1) SUM(dtype, 1, 1);                                                   \
        else if (vectors == 2) SUM(dtype, 2, 1);                                                   \
        else SUM(dtype, 3, 1);                                                                     \
    } while (0)
    if (dtype == F32) BY_SIZE(F32);
    else if (dtype == F16) BY_SIZE(F16);
    else BY_SIZE(BF16);
#undef BY_SIZE
#undef SUM
}
#else
static void sum_windows(int dtype, int vectors, int parts, const FusedRows *job,
                        const ptrdiff_t *blocks, const int32_t *patterns, ptrdiff_t step, ptrdiff_t n,
                        char *dst) {
    (void)dtype, (void)vectors, (void)parts, (void)job, (void)blocks, (void)patterns, (void)step;
    (void)n, (void)dst;
}
#endif

#endif
