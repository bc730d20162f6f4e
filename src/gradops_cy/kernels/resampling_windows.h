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
enum { WINDOW_VECTORS = 3, WINDOW_STEPS = WINDOW_VECTORS * LANES_F32 };

/* Blocks from `block` on, `count` in each unit, whose elements begin `apart` after one another; and the lanes
 * that are stored of each. */
typedef struct {
    const ptrdiff_t *block;
    ptrdiff_t place, count, apart, units;
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

/* A run whose windows have so many vectors; steps stay in registers where they are `fixed`, not 0. */
INLINE void sum_windows(const int vectors, const int parts, const int fixed, const WidthRows *rows,
                        const WidthRun *run) {
    const int32_t *pattern = rows->patterns + run->block[1];
    const int steps = fixed ? fixed : pattern[MOST], lanes = run->lanes;
    const ptrdiff_t base = run->block[0] + pattern[BASES], count = run->count, run_apart = run->apart;
    const ptrdiff_t apart = parts == 2 ? pattern[BASES + 1] - pattern[BASES] : 0;
    Asking *meanwhile = rows->meanwhile;
    const ptrdiff_t src_step = rows->src_step, dst_step = rows->dst_step;
    WindowStep taken[2 * WINDOW_STEPS];
    take_steps(parts, steps, pattern, rows->step, taken);
    const float *unit = rows->src + base;
    float *unit_dst = rows->dst + run->place;
    for (ptrdiff_t u = run->units; u > 0; u--, unit += src_step, unit_dst += dst_step) {
        const float *src = unit;
        float *dst = unit_dst;
        for (ptrdiff_t i = 0; i < count; i++, src += run_apart, dst += LANES_F32) {
            vec_f32 window[2][WINDOW_VECTORS], sum[2];
            if (meanwhile) ask_on(meanwhile, 1);
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
                    sum[p] = add_used(pick_of_window(vectors, window[p], s->places), s->weight, sum[p],
                                      s->used);
                }
            write_f32((char *)dst, fold_parts(parts, sum), lanes);
        }
    }
}

INLINE void sum_windows_of(const int vectors, const int parts, const WidthRows *rows, const WidthRun *run) {
    const int steps = rows->patterns[run->block[1] + MOST];
    if (steps == 4) sum_windows(vectors, parts, 4, rows, run);
    else if (steps == 3) sum_windows(vectors, parts, 3, rows, run);
    else if (steps == 2) sum_windows(vectors, parts, 2, rows, run);
    else if (steps == 1 && parts == 1) sum_windows(vectors, parts, 1, rows, run);
    else sum_windows(vectors, parts, 0, rows, run);
}

/* A run whose taps lie further apart, as where channels lie between them: a pair of vectors for each. */
INLINE void sum_taps(const int fixed, const WidthRows *rows, const WidthRun *run) {
    const int32_t *pattern = rows->patterns + run->block[1];
    const int steps = fixed ? fixed : pattern[MOST], lanes = run->lanes;
    const ptrdiff_t step = rows->step, count = run->count, apart = run->apart;
    const ptrdiff_t src_step = rows->src_step, dst_step = rows->dst_step;
    Asking *meanwhile = rows->meanwhile;
    WindowStep taken[COLUMNS_IN_SEQUENCE];
    take_steps(1, steps, pattern, 0, taken);
    const float *unit = rows->src + run->block[0];
    float *unit_dst = rows->dst + run->place;
    for (ptrdiff_t u = run->units; u > 0; u--, unit += src_step, unit_dst += dst_step) {
        const float *src = unit;
        float *dst = unit_dst;
        for (ptrdiff_t i = 0; i < count; i++, src += apart, dst += LANES_F32) {
            vec_f32 sum = {0};
            if (meanwhile) ask_on(meanwhile, 1);
#pragma GCC unroll 4
            for (int k = 0; k < steps; k++)
                sum = add_used(pick(2, src + k * step, taken[0].places), taken[k].weight, sum, taken[k].used);
            write_f32((char *)dst, sum, lanes);
        }
    }
}

static void sum_taps_of(const WidthRows *rows, const WidthRun *run) {
    const int steps = rows->patterns[run->block[1] + MOST];
    if (steps == 4) sum_taps(4, rows, run);
    else if (steps == 3) sum_taps(3, rows, run);
    else if (steps == 2) sum_taps(2, rows, run);
    else sum_taps(0, rows, run);
}

/* Other blocks, whose patterns may differ. */
static void sum_blocks(const WidthRows *rows, const WidthRun *run) {
    for (ptrdiff_t u = 0; u < run->units; u++) {
        const float *src = rows->src + u * rows->src_step;
        float *dst = rows->dst + u * rows->dst_step + run->place;
        for (const ptrdiff_t *block = run->block; block < run->block + 2 * run->count; block += 2) {
            if (rows->meanwhile) ask_on(rows->meanwhile, 1);
            write_f32((char *)dst, sum_block(src + block[0], rows->step, rows->patterns + block[1]), run->lanes);
            dst += LANES_F32;
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

/* Whether it pays to set up a block's pattern: its steps, if they are many, only for others alike. */
INLINE int sets_up(const WidthRows *rows, const ptrdiff_t *block, ptrdiff_t left) {
    const int32_t *pattern = rows->patterns + block[1];
    if (in_window(pattern) && pattern[MOST] <= 4) return 1;
    return (in_window(pattern) || in_pairs(pattern)) && (rows->units > 2 || (left > 1 && block[3] == block[1]));
}

static void sum_run(const WidthRows *rows, const WidthRun *run) {
    const int32_t *pattern = rows->patterns + run->block[1];
    const int vectors = (pattern[WINDOW] + LANES_F32 - 1) / LANES_F32, parts = pattern[PARTS];
    if (!in_window(pattern)) sum_taps_of(rows, run);
    else if (parts == 2 && vectors == 3) sum_windows_of(3, 2, rows, run);
    else if (parts == 2) sum_windows_of(2, 2, rows, run);
    else if (vectors == 3) sum_windows_of(3, 1, rows, run);
    else if (vectors == 2) sum_windows_of(2, 1, rows, run);
    else sum_windows_of(1, 1, rows, run);
}

/* All positions of all units. */
static void sum_width(const WidthRows *rows) {
    const ptrdiff_t whole = rows->n / LANES_F32, n = rows->n;
    const ptrdiff_t *block = rows->blocks;
    WidthRun run = {.lanes = LANES_F32, .units = rows->units};
    for (ptrdiff_t b = 0; b < whole; b += run.count) {
        run.block = block + 2 * b, run.place = b * LANES_F32, run.count = 1, run.apart = 0;
        if (!sets_up(rows, run.block, whole - b)) {
            while (b + run.count < whole && !sets_up(rows, run.block + 2 * run.count, whole - b - run.count))
                run.count++;
            sum_blocks(rows, &run);
            continue;
        }
        if (b + 1 < whole) run.apart = run.block[2] - run.block[0];
        while (b + run.count < whole && run.block[2 * run.count + 1] == run.block[1]
               && run.block[2 * run.count] == run.block[0] + run.count * run.apart)
            run.count++;
        sum_run(rows, &run);
    }
    if (whole * LANES_F32 == n) return;
    run = (WidthRun){block + 2 * whole, whole * LANES_F32, 1, 0, rows->units, LANES_F32};
    WidthRows last = *rows;
    void (*sum)(const WidthRows *, const WidthRun *) = sets_up(rows, run.block, 1) ? sum_run : sum_blocks;
    if (whole == 0 && rows->dst_step == n) {
        /* The next unit overwrites the lanes beyond one. */
        const ptrdiff_t beyond = (LANES_F32 - 1) / n;
        run.units = rows->units > beyond ? rows->units - beyond : 0;
        sum(rows, &run);
        last.src += run.units * rows->src_step, last.dst += run.units * n;
        run.units = rows->units - run.units;
    }
    run.lanes = (int)(n - whole * LANES_F32);
    sum(&last, &run);
}
#else
static void sum_width(const WidthRows *rows) { (void)rows; }
#endif

#endif
