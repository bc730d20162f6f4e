/* The width pass of rows side by side, whose sums have the order of add_columns. What positions of one pattern
 * have in common (see resampling_width.h) is set up once, for all blocks alike of a row and for all rows; where
 * the taps of a block, or of its two parts, lie in a window of a few vectors, they are picked from these, else
 * each from vectors of its own. */
#ifndef GRADOPS_RESAMPLING_WINDOWS_H
#define GRADOPS_RESAMPLING_WINDOWS_H

#include "resampling.h"

/* Rows of diff_dst, reduced, `units` times so many as lie side by side, units src_step floats apart; and the
 * sums of their n positions each, dst_step floats apart. A block is the place of its first element and that
 * of its pattern; taps are `step` elements apart. */
typedef struct {
    const float *src;
    float *dst;
    ptrdiff_t units, src_step, dst_step, n, step;
    const ptrdiff_t *blocks;
    const int32_t *patterns;
    Asking *meanwhile; /* what is asked for with each block, or NULL */
} WidthRows;

#if defined(__AVX2__) && defined(__FMA__)
enum { WINDOW_VECTORS = 3, WINDOW_STEPS = WINDOW_VECTORS * LANES_F32, MOST_UNTIL_AGAIN = 16 };

/* Blocks of one pattern: their elements lie src_step after one another and their positions dst_step, for `count`
 * of them; and this `units` times, unit_src and unit_dst further on. So many lanes are stored of each. */
typedef struct {
    const float *src;
    float *dst;
    const int32_t *pattern;
    ptrdiff_t count, src_step, dst_step, units, unit_src, unit_dst;
    int lanes;
} WidthRun;

#if defined(__AVX512F__)
/* The elements of a window at `places`, which lie in `vectors`. */
INLINE vec_f32 pick_of_window(const int vectors, const vec_f32 *window, width_words places) {
    if (vectors == 1) return (vec_f32)_mm512_permutexvar_ps(places, (__m512)window[0]);
    __m512 x = _mm512_permutex2var_ps((__m512)window[0], places, (__m512)window[1]);
    if (vectors == 2) return (vec_f32)x;
    __mmask16 last = _mm512_cmpgt_epi32_mask(places, _mm512_set1_epi32(2 * LANES_F32 - 1));
    return (vec_f32)_mm512_mask_permutexvar_ps(x, last, places, (__m512)window[2]);
}
#else
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

/* What the positions of a part do at one of their steps. */
typedef struct {
    width_words places;
    vec_f32 weight;
    width_mask used;
} WindowStep;

/* The steps of a pattern, those of its parts by turns. */
INLINE void take_steps(const int parts, int steps, const int32_t *pattern, ptrdiff_t step, WindowStep *taken) {
    const int32_t *words = pattern + PATTERN_HEAD;
    const float *weight = (const float *)(words + 2 * parts * LANES_F32);
#pragma GCC unroll 2
    for (int p = 0; p < parts; p++, words += 2 * LANES_F32) {
        width_words places = load_words(words), counts = load_words(words + LANES_F32);
#pragma GCC unroll 4
        for (int k = 0; k < steps; k++) {
            const vec_f32 *weights = (const vec_f32 *)(weight + (k * parts + p) * LANES_F32);
            taken[k * parts + p] = (WindowStep){places, *weights, lanes_beyond(counts, k)};
            places = (width_words)((indices_f32)places + (int)(parts * step));
        }
    }
}

/* A run whose windows have so many vectors; steps stay in registers where they are `fixed`, not 0, and nothing
 * is masked where they are `full`: all lanes have them all. */
INLINE void sum_windows(const int vectors, const int parts, const int fixed, const int full,
                        const WidthRows *rows, const WidthRun *run) {
    const int32_t *pattern = run->pattern;
    const int steps = fixed ? fixed : pattern[MOST], lanes = run->lanes;
    const ptrdiff_t apart = parts == 2 ? pattern[BASES + 1] - pattern[BASES] : 0;
    const ptrdiff_t count = run->count, src_step = run->src_step, dst_step = run->dst_step;
    Asking *meanwhile = rows->meanwhile;
    WindowStep taken[2 * WINDOW_STEPS];
    take_steps(parts, steps, pattern, rows->step, taken);
    for (ptrdiff_t u = 0; u < run->units; u++) {
        const float *src = run->src + u * run->unit_src + pattern[BASES];
        float *dst = run->dst + u * run->unit_dst;
        for (ptrdiff_t i = 0; i < count; i++, src += src_step, dst += dst_step) {
            vec_f32 window[2][WINDOW_VECTORS], sum[2];
            if (meanwhile) ask_near(meanwhile, 1);
#pragma GCC unroll 2
            for (int p = 0; p < parts; p++) {
                sum[p] = (vec_f32){0};
#pragma GCC unroll 3
                for (int v = 0; v < vectors; v++) {
                    window[p][v] = *(const vec_f32 *)(src + p * apart + v * LANES_F32);
                    HOLD_VECTOR(window[p][v]);
                }
            }
#pragma GCC unroll 4
            for (int k = 0; k < steps; k++)
#pragma GCC unroll 2
                for (int p = 0; p < parts; p++) {
                    const WindowStep *s = taken + k * parts + p;
                    const vec_f32 x = pick_of_window(vectors, window[p], s->places);
                    if (full) sum[p] += x * s->weight;
                    else sum[p] = add_used(x, s->weight, sum[p], s->used);
                }
            write_f32((char *)dst, fold_parts(parts, sum), lanes);
        }
    }
}

INLINE void sum_windows_of(const int vectors, const int parts, const WidthRows *rows, const WidthRun *run) {
    const int steps = run->pattern[MOST];
#define SUM(full)                                                                                  \
    do {                                                                                           \
        if (steps == 4) sum_windows(vectors, parts, 4, full, rows, run);                           \
        else if (steps == 3) sum_windows(vectors, parts, 3, full, rows, run);                      \
        else if (steps == 2) sum_windows(vectors, parts, 2, full, rows, run);                      \
        else if (steps == 1 && parts == 1) sum_windows(vectors, parts, 1, full, rows, run);        \
        else sum_windows(vectors, parts, 0, full, rows, run);                                      \
    } while (0)
    if (run->pattern[LEAST] == steps) SUM(1);
    else SUM(0);
#undef SUM
}

/* A run whose taps lie further apart, as where channels lie between them: a pair of vectors for each. */
INLINE void sum_taps(const int fixed, const int full, const WidthRows *rows, const WidthRun *run) {
    const int steps = fixed ? fixed : run->pattern[MOST], lanes = run->lanes;
    const ptrdiff_t step = rows->step;
    const ptrdiff_t count = run->count, src_step = run->src_step, dst_step = run->dst_step;
    Asking *meanwhile = rows->meanwhile;
    WindowStep taken[COLUMNS_IN_SEQUENCE];
    take_steps(1, steps, run->pattern, 0, taken);
    for (ptrdiff_t u = 0; u < run->units; u++) {
        const float *src = run->src + u * run->unit_src;
        float *dst = run->dst + u * run->unit_dst;
        for (ptrdiff_t i = 0; i < count; i++, src += src_step, dst += dst_step) {
            vec_f32 sum = {0};
            if (meanwhile) ask_near(meanwhile, 1);
#pragma GCC unroll 8
            for (int k = 0; k < steps; k++) {
                const vec_f32 x = pick(2, src + k * step, taken[0].places);
                if (full) sum += x * taken[k].weight;
                else sum = add_used(x, taken[k].weight, sum, taken[k].used);
            }
            write_f32((char *)dst, sum, lanes);
        }
    }
}

static void sum_taps_of(const WidthRows *rows, const WidthRun *run) {
    const int steps = run->pattern[MOST];
#define SUM(full)                                                                                  \
    do {                                                                                           \
        if (steps == 8) sum_taps(8, full, rows, run);                                              \
        else if (steps == 4) sum_taps(4, full, rows, run);                                         \
        else if (steps == 3) sum_taps(3, full, rows, run);                                         \
        else if (steps == 2) sum_taps(2, full, rows, run);                                         \
        else sum_taps(0, full, rows, run);                                                         \
    } while (0)
    if (run->pattern[LEAST] == steps) SUM(1);
    else SUM(0);
#undef SUM
}

/* A run of any pattern, which is looked at for each block. */
static void sum_blocks(const WidthRows *rows, const WidthRun *run) {
    for (ptrdiff_t u = 0; u < run->units; u++) {
        const float *src = run->src + u * run->unit_src;
        float *dst = run->dst + u * run->unit_dst;
        for (ptrdiff_t i = 0; i < run->count; i++, src += run->src_step, dst += run->dst_step) {
            if (rows->meanwhile) ask_near(rows->meanwhile, 1);
            write_f32((char *)dst, sum_block(src, rows->step, run->pattern), run->lanes);
        }
    }
}

/* Whether the taps of a block, or of its two parts, lie in a window; else whether each lies in two vectors. */
INLINE int in_window(const int32_t *pattern) {
    return pattern[PARTS] == pattern[CHAINS] && pattern[PARTS] <= 2
           && pattern[WINDOW] <= WINDOW_VECTORS * LANES_F32;
}
INLINE int in_pairs(const int32_t *pattern) {
    return pattern[CHAINS] == 1 && pattern[REACH] <= 2 * LANES_F32;
}

/* It pays to set up a pattern: its steps, if they are many, only for more than two blocks. */
static void sum_run(const WidthRows *rows, const WidthRun *run) {
    const int32_t *pattern = run->pattern;
    const int vectors = (pattern[WINDOW] + LANES_F32 - 1) / LANES_F32, parts = pattern[PARTS];
    const int windows = in_window(pattern), several = run->count * run->units > 2;
    if (windows ? pattern[MOST] > 4 && !several : !(in_pairs(pattern) && several)) sum_blocks(rows, run);
    else if (!windows) sum_taps_of(rows, run);
    else if (parts == 2 && vectors == 3) sum_windows_of(3, 2, rows, run);
    else if (parts == 2) sum_windows_of(2, 2, rows, run);
    else if (vectors == 3) sum_windows_of(3, 1, rows, run);
    else if (vectors == 2) sum_windows_of(2, 1, rows, run);
    else sum_windows_of(1, 1, rows, run);
}

/* After how many blocks patterns come again, as where several channels share a row or the ratio of extents
 * is a small fraction. The first block may be cut off at the border. */
static ptrdiff_t blocks_until_again(const ptrdiff_t *block, ptrdiff_t count) {
    const ptrdiff_t most = count - 1 < MOST_UNTIL_AGAIN ? count - 1 : MOST_UNTIL_AGAIN;
    for (ptrdiff_t every = 1; every < most; every++)
        if (block[2 * (1 + every) + 1] == block[3]) return every;
    return 1;
}

/* Sum the longest run from block b on, each `every` blocks after the one before; returns how many it has. */
INLINE ptrdiff_t sum_run_from(const WidthRows *rows, ptrdiff_t b, ptrdiff_t every, ptrdiff_t blocks) {
    const ptrdiff_t *block = rows->blocks + 2 * b, *next = block + 2 * every;
    const ptrdiff_t src_step = b + every < blocks ? next[0] - block[0] : 0;
    ptrdiff_t count = 1;
    for (; b + count * every < blocks && next[1] == block[1]; count++, next += 2 * every)
        if (next[0] != block[0] + count * src_step) break;
    WidthRun run = {rows->src + block[0], rows->dst + b * LANES_F32, rows->patterns + block[1], count, src_step,
                    every * LANES_F32, rows->units, rows->src_step, rows->dst_step, LANES_F32};
    if (count == 1)
        run.count = rows->units, run.src_step = rows->src_step, run.dst_step = rows->dst_step, run.units = 1;
    sum_run(rows, &run);
    return count;
}

/* The last block of all units, not all of whose lanes are stored. */
INLINE void sum_last(const WidthRows *rows, ptrdiff_t b) {
    const ptrdiff_t *block = rows->blocks + 2 * b;
    const ptrdiff_t left = rows->n - b * LANES_F32, beyond = (LANES_F32 - 1) / rows->n;
    WidthRun run = {rows->src + block[0], rows->dst + b * LANES_F32, rows->patterns + block[1], rows->units,
                    rows->src_step, rows->dst_step, 1, 0, 0, LANES_F32};
    if (b == 0 && rows->dst_step == rows->n && rows->units > beyond) {
        /* The next unit overwrites the lanes beyond one. */
        run.count = rows->units - beyond;
        sum_run(rows, &run);
        run.src += run.count * run.src_step, run.dst += run.count * run.dst_step;
        run.count = beyond;
    }
    run.lanes = (int)left;
    sum_run(rows, &run);
}

/* All positions of all units. */
static void sum_width(const WidthRows *rows) {
    const ptrdiff_t whole = rows->n / LANES_F32, every = blocks_until_again(rows->blocks, whole);
    for (ptrdiff_t first = 0; first < every; first++)
        for (ptrdiff_t b = first; b < whole;) b += every * sum_run_from(rows, b, every, whole);
    if (whole * LANES_F32 < rows->n) sum_last(rows, whole);
}
#else
static void sum_width(const WidthRows *rows) { (void)rows; }
#endif

#endif
