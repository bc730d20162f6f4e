/* Both passes at once, in registers, where all columns that a block of resampling_width.h reads, or a part
 * of it, lie in a window of a few vectors: the window is reduced over depth and height, and the taps of all
 * positions are picked from it. Sums have the order of the two passes. */
#ifndef GRADOPS_RESAMPLING_WINDOWS_H
#define GRADOPS_RESAMPLING_WINDOWS_H

#include "resampling_fused.h"

/* The most vectors of a window: one whose block is whole, and those of one in two parts. */
#if defined(__AVX2__) && defined(__FMA__)
enum { WINDOW_VECTORS = 3, WINDOW_VECTORS_OF_PARTS = 2, WINDOW_REACH = WINDOW_VECTORS * LANES_F32 };
#else
enum { WINDOW_VECTORS = 0, WINDOW_VECTORS_OF_PARTS = 0, WINDOW_REACH = 0 };
#endif

#if defined(__AVX512F__)
/* The elements of a window at `places`, which lie in `vectors`. */
INLINE vec_f32 pick_of_window(const int vectors, const vec_f32 *window, width_words places) {
    if (vectors == 1) return (vec_f32)_mm512_permutexvar_ps(places, (__m512)window[0]);
    __m512 x = _mm512_permutex2var_ps((__m512)window[0], places, (__m512)window[1]);
    if (vectors == 2) return (vec_f32)x;
    __mmask16 last = _mm512_cmpgt_epi32_mask(places, _mm512_set1_epi32(2 * LANES_F32 - 1));
    return (vec_f32)_mm512_mask_permutexvar_ps(x, last, places, (__m512)window[2]);
}
#elif defined(__AVX2__) && defined(__FMA__)
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
INLINE width_words add_to_places(width_words places, int step) {
    return (width_words)((indices_f32)places + step);
}

/* Where columns are that stand in their order, once the even ones are before the odd ones. */
INLINE width_words dealt_places(width_words places) {
    const indices_f32 place = (indices_f32)places;
    return (width_words)(place >> 1 | (place & 1) * LANES_F32);
}

/* The columns of a window from `first` on, reduced; rows begin `row` bytes into those of the job. With
 * `apart` those of a second one as far on, both within the row. */
INLINE void reduce_windows(const int dtype, const int vectors, const int deals, const int count,
                           const FusedRows *job, ptrdiff_t first, ptrdiff_t apart, ptrdiff_t row,
                           vec_f32 (*window)[WINDOW_VECTORS]) {
    const ptrdiff_t size = element_size(dtype), step = LANES_F32 * size, left = job->extent - first;
    row += first * size;
#pragma GCC unroll 2
    for (int i = 0; i < count; i++)
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) window[i][v] = (vec_f32){0};
    if (count == 1 && left < vectors * LANES_F32) {
#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++) {
            const ptrdiff_t within = left - v * LANES_F32;
            for (ptrdiff_t r = 0; within > 0 && r < job->rows; r++)
                window[0][v] += splat_f32(job->weight[r])
                                * load_first(dtype, job->row[r] + row + v * step, within);
        }
        if (deals) deal_pair_f32(dtype, window[0]);
        return;
    }
    for (ptrdiff_t r = 0; r < job->rows; r++) {
        const vec_f32 w = splat_f32(job->weight[r]);
        const char *p = job->row[r] + row;
#pragma GCC unroll 2
        for (int i = 0; i < count; i++, p += apart * size) {
            if (deals) {
                vec_f32 pair[2];
                load_pair_f32(dtype, p, pair);
                window[i][0] += w * pair[0];
                window[i][1] += w * pair[1];
            } else {
#pragma GCC unroll 3
                for (int v = 0; v < vectors; v++)
                    window[i][v] += w * load_first(dtype, p + v * step, LANES_F32);
            }
        }
    }
}

/* What the positions of a part do at one of their steps. */
typedef struct {
    width_words places;
    vec_f32 weight;
    width_mask used;
} WindowStep;

/* Steps of a part at most: those of a position that reads a whole window. */
enum { WINDOW_STEPS = WINDOW_REACH };

/* The steps of a pattern, those of its parts by turns. */
INLINE void take_steps(const int deals, const int parts, int steps, const int32_t *pattern, ptrdiff_t step,
                       WindowStep *taken) {
    const int32_t *words = pattern + PATTERN_HEAD;
    const float *weight = (const float *)(words + 2 * parts * LANES_F32);
#pragma GCC unroll 2
    for (int p = 0; p < parts; p++, words += 2 * LANES_F32) {
        width_words places = load_words(words), counts = load_words(words + LANES_F32);
#pragma GCC unroll 4
        for (int k = 0; k < steps; k++) {
            const vec_f32 *weights = (const vec_f32 *)(weight + (k * parts + p) * LANES_F32);
            taken[k * parts + p] = (WindowStep){deals ? dealt_places(places) : places, *weights,
                                                lanes_beyond(counts, k)};
            places = add_to_places(places, (int)(parts * step));
        }
    }
}

/* The blocks of a row from `block` on that have the same pattern, of `n` positions in all: two at a time, or
 * the two parts of one, for what they have in common. Their windows begin `base` behind the blocks, and the
 * second part `apart` behind the first. Returns how many positions that were, in whole blocks. */
INLINE ptrdiff_t sum_window_row(const int dtype, const int vectors, const int parts, const int steps,
                                const FusedRows *job, const ptrdiff_t *block, const WindowStep *taken,
                                ptrdiff_t base, ptrdiff_t apart, ptrdiff_t row, ptrdiff_t n, char *dst) {
    const int deals = dtype == BF16 && vectors == 2;
    const ptrdiff_t size = element_size(dtype), same = block[1], whole = vectors * LANES_F32;
    ptrdiff_t j = 0;
    vec_f32 sum[2], window[2][WINDOW_VECTORS];
#define REDUCE(count, from, windows)                                                               \
    reduce_windows(dtype, vectors, deals, count, job, from, apart, row, windows)
    do {
        const ptrdiff_t first = block[0] + base;
        int count = parts;
        if (parts == 1 && n - j > LANES_F32 && block[3] == same) {
            apart = block[2] - block[0];
            count = job->extent - first - apart >= whole ? 2 : 1;
        }
        if (job->meanwhile) ask_on(job->meanwhile, count / parts);
        else ask_for_block(job, 1, row, block[0] * size, count / parts * job->advance);
        sum[0] = sum[1] = (vec_f32){0};
        if (count == 2 && (parts == 1 || job->extent - first - apart >= whole)) {
            REDUCE(2, first, window);
#pragma GCC unroll 4
            for (int k = 0; k < steps; k++)
#pragma GCC unroll 2
                for (int i = 0; i < 2; i++) {
                    const WindowStep *s = taken + k * parts + i % parts;
                    sum[i] = add_used(pick_of_window(vectors, window[i], s->places), s->weight, sum[i],
                                      s->used);
                }
        } else {
#pragma GCC unroll 2
            for (int p = 0; p < parts; p++) {
                REDUCE(1, first + p * apart, window);
#pragma GCC unroll 4
                for (int k = 0; k < steps; k++) {
                    const WindowStep *s = taken + k * parts + p;
                    sum[p] = add_used(pick_of_window(vectors, window[0], s->places), s->weight, sum[p],
                                      s->used);
                }
            }
        }
        if (parts == 1 && count == 2 && n - j < 2 * LANES_F32) {
            store_first(dtype, sum[0], dst, LANES_F32);
            store_first(dtype, sum[1], dst + LANES_F32 * size, n - j - LANES_F32);
        } else if (parts == 1 && count == 2) {
            if (dtype == F32 && job->streams) stream_pair_f32(dtype, sum, dst);
            else store_pair_f32(dtype, sum, dst);
        } else {
            sum[0] = fold_parts(parts, sum);
            if (dtype == F32 && job->streams && n - j >= LANES_F32) STREAM_VECTOR(dst, sum[0]);
            else store_first(dtype, sum[0], dst, n - j);
        }
        j += count / parts * LANES_F32;
        dst += count / parts * LANES_F32 * size;
        block += 2 * (count / parts);
    } while (j < n && block[1] == same);
#undef REDUCE
    return j;
}

/* The same in the rows i0 <= i < i1 of each job, as many as it has. What they have in common stays in
 * registers where steps are `fixed`, not 0. */
INLINE ptrdiff_t sum_window_rows(const int dtype, const int vectors, const int parts, const int fixed,
                                 const FusedRows *job, ptrdiff_t jobs, ptrdiff_t i0, ptrdiff_t i1,
                                 const ptrdiff_t *block, const int32_t *pattern, ptrdiff_t step,
                                 ptrdiff_t from, ptrdiff_t n) {
    const int deals = dtype == BF16 && vectors == 2, steps = fixed ? fixed : pattern[MOST];
    const ptrdiff_t base = pattern[BASES], apart = parts == 2 ? pattern[BASES + 1] - base : 0;
    WindowStep taken[2 * WINDOW_STEPS];
    ptrdiff_t done = 0;
    take_steps(deals, parts, steps, pattern, step, taken);
    for (; jobs > 0; jobs--, job++)
        for (ptrdiff_t i = i0; i < MIN(i1, job->count); i++)
            done = sum_window_row(dtype, vectors, parts, steps, job, block, taken, base, apart,
                                  i * job->row_step, n - from,
                                  job->dst + i * job->dst_step + from * element_size(dtype));
    return done;
}

INLINE void sum_windows_for(const int dtype, const int vectors, const int parts, const FusedRows *job,
                            ptrdiff_t jobs, ptrdiff_t i0, ptrdiff_t i1, const ptrdiff_t *block,
                            const int32_t *patterns, ptrdiff_t step, ptrdiff_t n) {
#define SUM(steps)                                                                                 \
    sum_window_rows(dtype, vectors, parts, steps, job, jobs, i0, i1, block, pattern, step, j, n)
    for (ptrdiff_t j = 0, done; j < n; j += done, block += 2 * (done / LANES_F32)) {
        const int32_t *pattern = patterns + block[1];
        if (pattern[MOST] == 2) done = SUM(2);
        else if (pattern[MOST] == 3) done = SUM(3);
        else if (parts == 1 && pattern[MOST] == 4) done = SUM(4);
        else done = SUM(0);
    }
#undef SUM
}

/* dst[j] = the sum of position j, j < n, and as much of the next rows, of every job; see sum_blocks. Rows are
 * summed `together`, block by block, or those of one job one after the other. */
static void sum_windows(int dtype, int vectors, int parts, const FusedRows *job, ptrdiff_t jobs,
                        int together, const ptrdiff_t *blocks, const int32_t *patterns, ptrdiff_t step,
                        ptrdiff_t n) {
#define SUM(dtype, vectors, parts)                                                                 \
    do {                                                                                           \
        if (together)                                                                              \
            sum_windows_for(dtype, vectors, parts, job, jobs, 0, PTRDIFF_MAX, blocks, patterns,    \
                            step, n);                                                              \
        else                                                                                       \
            for (ptrdiff_t i = 0; i < job->count; i++)                                             \
                sum_windows_for(dtype, vectors, parts, job, 1, i, i + 1, blocks, patterns, step,   \
                                n);                                                                \
    } while (0)
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
static void sum_windows(int dtype, int vectors, int parts, const FusedRows *job, ptrdiff_t jobs,
                        int together, const ptrdiff_t *blocks, const int32_t *patterns, ptrdiff_t step,
                        ptrdiff_t n) {
    (void)dtype, (void)vectors, (void)parts, (void)job, (void)jobs, (void)together, (void)blocks;
    (void)patterns, (void)step, (void)n;
}
#endif

#endif
