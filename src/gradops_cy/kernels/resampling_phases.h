/* Both passes at once where the width grows or shrinks by 2, 4 or 8, in registers. Where it grows, the
 * columns of LANES positions are reduced over depth and height and dealt out, a vector for each phase, the
 * columns that lie as far within their position; what neighbours read are such vectors too, moved by a
 * lane or two. Where it shrinks, no position reads more than a column, and these are spread. Sums have the order
 * of the two passes. */
#ifndef GRADOPS_RESAMPLING_PHASES_H
#define GRADOPS_RESAMPLING_PHASES_H

#include "resampling.h"

enum {
    PHASE_LANES = LANES_F32,
    PHASE_PARTS = HAVE_MASKS, /* whether rows may end within a vector: else it goes element by element */
    PHASE_ROWS = 64,          /* rows that are reduced at once */
};

/* Whether vectors convert float16: else other kernels are faster. */
#if defined(__F16C__)
enum { PHASE_F16 = 1 };
#else
enum { PHASE_F16 = 0 };
#endif

/* `count` rows of the result, from dst on: each takes the same `rows` of diff_dst, which lie row_step bytes
 * further on for the next one, and so does what is `asked` for meanwhile. They count positions of the result,
 * have `extent` and begin at `origin`; their taps' weights are those of [first, middle and last vector of a
 * row][tap][lane], and zero where a tap lies outside. */
typedef struct {
    const char *const *row, *const *asked;
    const float *weight, *taps;
    ptrdiff_t rows, asked_rows, origin, extent;
    ptrdiff_t count, row_step, dst_step;
    ptrdiff_t shift;  /* row r + shift of a row of the result is row r of the next one; 0 where none is */
    char *dst;
    ptrdiff_t joined; /* rows that each one asked for stands for, which follow it in memory */
    int in_order;     /* rows come from memory, and all of them are asked for */
    int near;         /* NEAR, where what is asked for goes to the first-level cache, or 0 */
    int streams;      /* results of whole lines go past the caches: of float32, or spread far */
} PhaseRows;

/* Asks for the share of a block of `together` rows of the result, which read `bytes` of each row, `offset`
 * bytes into those that lie `row` bytes further on. */
INLINE void ask_for_block(const PhaseRows *job, const int together, ptrdiff_t row, ptrdiff_t offset,
                          ptrdiff_t bytes) {
    const ptrdiff_t joined = together * job->joined;
    if (job->joined > 1) {
        for (ptrdiff_t r = 0; r < job->asked_rows; r++)
            prefetch_ahead(job->asked[r] + row + joined * offset, 0, joined * bytes);
        return;
    }
#pragma GCC unroll 2
    for (int t = 0; t < together; t++, row += job->row_step)
        for (ptrdiff_t r = 0; r < job->asked_rows; r++)
            prefetch_ahead(job->asked[r] + row + offset, job->near, bytes);
}

#define ONE_BEFORE(i, h, L) ((i) + (L) - 1)
#define TWO_BEFORE(i, h, L) ((i) + (L) - 2)
#define ONE_AFTER(i, h, L) ((i) + 1)
#define TWO_AFTER(i, h, L) ((i) + 2)

/* Vectors of columns in the order of memory, or of bfloat16 as load_pair_f32 has them, dealt out. */
INLINE void deal_phases(const int dtype, const int scale, vec_f32 *sum) {
    vec_f32 dealt[8];
#pragma GCC unroll 4
    for (int round = scale; round > 1; round /= 2) {
        if (dtype == BF16 && round == scale) {
#pragma GCC unroll 4
            for (int v = 0; v < scale / 2; v++)
                dealt[v] = sum[2 * v], dealt[v + scale / 2] = sum[2 * v + 1];
        } else {
#pragma GCC unroll 4
            for (int v = 0; v < scale / 2; v++) {
                const vec_f32 a = sum[2 * v], b = sum[2 * v + 1];
                dealt[v] = __builtin_shufflevector(a, b, LANES_OF_f32(EVENS));
                dealt[v + scale / 2] = __builtin_shufflevector(a, b, LANES_OF_f32(ODDS));
            }
        }
#pragma GCC unroll 8
        for (int v = 0; v < scale; v++) sum[v] = dealt[v];
    }
}

/* The columns of LANES positions, `offset` bytes into the rows, dealt out: of a row of the result, or of two
 * `together`, for which what both read is loaded once. */
INLINE void reduce_phases(const int dtype, const int scale, const int together, const PhaseRows *job,
                          const char *const *row, const vec_f32 *splat, const ptrdiff_t rows,
                          const ptrdiff_t shift, ptrdiff_t offset, vec_f32 (*phase)[8]) {
    vec_f32 sum[2][8] = {{{0}}}, part[2];
#define WEIGHT(r) (splat ? splat[r] : splat_f32(job->weight[r]))
#define ADD_ROW(p, first, second)                                                                  \
    do {                                                                                           \
        const vec_f32 w = first ? WEIGHT(r) : (vec_f32){0}, u = second ? WEIGHT(r - shift) : w;    \
        _Pragma("GCC unroll 4") for (int v = 0; v < scale; v += 2) {                               \
            load_pair_f32(dtype, (p) + v * LANES_F32 * element_size(dtype), part);                 \
            _Pragma("GCC unroll 2") for (int i = 0; i < 2; i++) {                                  \
                if (first) sum[0][v + i] += w * part[i];                                           \
                if (second) sum[1][v + i] += u * part[i];                                          \
            }                                                                                      \
        }                                                                                          \
    } while (0)
    ptrdiff_t r = 0;
#pragma GCC unroll 8
    for (; r < (together == 2 ? shift : rows); r++) ADD_ROW(row[r] + offset, 1, 0);
    if (together == 2) {
#pragma GCC unroll 4
        for (; r < rows; r++) ADD_ROW(row[r] + offset, 1, 1);
#pragma GCC unroll 4
        for (; r < rows + shift; r++) ADD_ROW(row[r - shift] + job->row_step + offset, 0, 1);
    }
#undef ADD_ROW
#undef WEIGHT
#pragma GCC unroll 2
    for (int t = 0; t < together; t++) {
        deal_phases(dtype, scale, sum[t]);
#pragma GCC unroll 8
        for (int v = 0; v < scale; v++) phase[t][v] = sum[t][v];
    }
}

/* The same of the first `left` columns, if any; the others are zeros. */
INLINE void reduce_last_phases(const int dtype, const int scale, const PhaseRows *job, ptrdiff_t offset,
                               ptrdiff_t left, vec_f32 *phase) {
    const ptrdiff_t step = LANES_F32 * element_size(dtype);
    vec_f32 sum[8] = {{0}};
#pragma GCC unroll 8
    for (int v = 0; v < scale; v++)
        for (ptrdiff_t r = 0; left > v * LANES_F32 && r < job->rows; r++)
            sum[v] += splat_f32(job->weight[r])
                      * load_first(dtype, job->row[r] + offset + v * step, left - v * LANES_F32);
#pragma GCC unroll 4
    for (int v = 0; v < scale; v += 2) deal_pair_f32(dtype, sum + v);
    deal_phases(dtype, scale, sum);
#pragma GCC unroll 8
    for (int v = 0; v < scale; v++) phase[v] = sum[v];
}

/* Taps from `before` columns before a position's first one on. */
INLINE vec_f32 sum_phase_taps(const int scale, const int before, const int taps, const int chains,
                              const float *weight, const vec_f32 *last, const vec_f32 *here,
                              const vec_f32 *next) {
    vec_f32 sum[4] = {{0}};
#pragma GCC unroll 16
    for (int k = 0; k < taps; k++) {
        const int tap = k - before, p = (tap + 2 * scale) % scale;
        vec_f32 x = here[p];
        if (tap < -scale) x = __builtin_shufflevector(last[p], x, LANES_OF_f32(TWO_BEFORE));
        else if (tap < 0) x = __builtin_shufflevector(last[p], x, LANES_OF_f32(ONE_BEFORE));
        else if (tap >= 2 * scale) x = __builtin_shufflevector(x, next[p], LANES_OF_f32(TWO_AFTER));
        else if (tap >= scale) x = __builtin_shufflevector(x, next[p], LANES_OF_f32(ONE_AFTER));
        sum[k % chains] += *(const vec_f32 *)(weight + k * LANES_F32) * x;
    }
    return join_chains_f32(chains, sum[0], sum[1], sum[2], sum[3]);
}

/* A row of the result, or two `together`, from the job's row i on. `fixed` rows and weights are held in
 * registers; or none. */
INLINE void sum_phase_rows(const int dtype, const int scale, const int before, const int taps,
                           const int chains, const int fixed, const int together, const PhaseRows *job,
                           const char *const *row, const vec_f32 *splat, ptrdiff_t i, ptrdiff_t x0,
                           ptrdiff_t x1) {
    const ptrdiff_t size = element_size(dtype), bytes = scale * LANES_F32 * size;
    const ptrdiff_t extent = job->extent, rows = fixed ? fixed : job->rows, set = taps * LANES_F32;
    const ptrdiff_t shift = fixed ? fixed / 2 : job->shift, row_begin = i * job->row_step;
    const float *weight = x0 ? job->taps + set : job->taps;
    vec_f32 last[2][8] = {{{0}}}, here[2][8], next[2][8];
    ptrdiff_t x = x0, offset = (x - job->origin) * scale * size + row_begin;
    char *dst = job->dst + i * job->dst_step;
#define REDUCE(offset, phase)                                                                      \
    reduce_phases(dtype, scale, together, job, row, splat, rows, shift, offset, phase)
#define REDUCE_LAST(left, phase)                                                                   \
    _Pragma("GCC unroll 2") for (int t = 0; t < together; t++)                                     \
        reduce_last_phases(dtype, scale, job, offset + t * job->row_step, left, phase[t])
#define SUM() sum_phase_taps(scale, before, taps, chains, weight, last[t], here[t], next[t])
#define STEP()                                                                                     \
    _Pragma("GCC unroll 2") for (int t = 0; t < together; t++)                                     \
        _Pragma("GCC unroll 8") for (int v = 0; v < scale; v++)                                    \
            last[t][v] = here[t][v], here[t][v] = next[t][v]
    if (before && x) REDUCE(offset - bytes, last);
    if (x + LANES_F32 <= extent) REDUCE(offset, here);
    else REDUCE_LAST((extent - x) * scale, here);
    for (; x < x1 && x + 2 * LANES_F32 <= extent; x += LANES_F32, dst += LANES_F32 * size) {
        ask_for_block(job, together, row_begin, offset - row_begin, bytes);
        offset += bytes;
        REDUCE(offset, next);
#pragma GCC unroll 2
        for (int t = 0; t < together; t++) {
            char *at = dst + t * job->dst_step;
            if (dtype == F32 && job->streams) STREAM_VECTOR(at, SUM());
            else store_first(dtype, SUM(), at, LANES_F32);
        }
        weight = job->taps + set;
        STEP();
    }
    for (; x < x1; x += LANES_F32, dst += LANES_F32 * size) {
        if (job->in_order) ask_for_block(job, together, row_begin, offset - row_begin, bytes);
        offset += bytes;
        if (x + LANES_F32 >= extent) weight = job->taps + 2 * set;
        REDUCE_LAST((extent - x - LANES_F32) * scale, next);
#pragma GCC unroll 2
        for (int t = 0; t < together; t++) store_first(dtype, SUM(), dst + t * job->dst_step, x1 - x);
        STEP();
    }
#undef STEP
#undef SUM
#undef REDUCE_LAST
#undef REDUCE
}

/* All rows of a job. Two that read some row both are summed together, where registers hold that many sums:
 * 1.05 to 1.15 times as fast, but float32 from memory 0.8 to 0.95. Of cubic 16 or 32 rows two gain more than
 * the sums in memory cost: 1.05 to 1.4 times. */
INLINE void sum_phases_for(const int dtype, const int scale, const int before, const int taps,
                           const int chains, const int fixed, const PhaseRows *job, ptrdiff_t x0,
                           ptrdiff_t x1) {
    const int two = VECTOR_REGISTERS == 32 && taps > (scale > 2 ? 2 : 1) * scale && fixed % 4 == 0;
    const char *held_row[4], *const *row = fixed ? held_row : job->row;
    vec_f32 held_weight[4];
    const vec_f32 *splat = fixed ? held_weight : NULL;
    ptrdiff_t i = 0;
#pragma GCC unroll 4
    for (int r = 0; r < fixed; r++)
        held_row[r] = job->row[r], held_weight[r] = splat_f32(job->weight[r]);
#define SUM(together)                                                                              \
    sum_phase_rows(dtype, scale, before, taps, chains, fixed, together, job, row, splat, i, x0, x1)
    const int shared = fixed ? job->shift == fixed / 2 : job->shift && job->shift < job->rows;
    if (two && shared && (dtype != F32 || !job->in_order))
        for (; i + 2 <= job->count; i += 2) SUM(2);
    for (; i < job->count; i++) SUM(1);
#undef SUM
}

/* dst[x - x0] = the sum of position x, x0 <= x < x1, from rows of `scale` columns for each, and as much of
 * the next rows. x0 is a multiple of LANES. */
static void sum_phases(int dtype, int scale, int taps, const PhaseRows *job, ptrdiff_t x0, ptrdiff_t x1) {
#define SUM(dtype, scale, before, taps, rows)                                                      \
    sum_phases_for(dtype, scale, before, taps, WIDTH_LANES && scale > 2 ? scale / 2 : 1, rows, job, x0, x1)
#define BY_TAPS(dtype, scale, rows)                                                                \
    do {                                                                                           \
        if (taps == scale) SUM(dtype, scale, 0, scale, rows);                                      \
        else if (taps == 2 * scale) SUM(dtype, scale, scale / 2, 2 * scale, rows);                 \
        else if (taps == 4 * scale) SUM(dtype, scale, scale / 2 * 3, 4 * scale, rows);             \
        else SUM(dtype, scale, scale - 1, 2 * scale - 1, rows);                                    \
    } while (0)
#define BY_SCALE(dtype)                                                                            \
    do {                                                                                           \
        if (scale == 8) BY_TAPS(dtype, 8, 0);                                                      \
        else if (scale == 4 && job->rows == 4) BY_TAPS(dtype, 4, 4);                               \
        else if (scale == 4) BY_TAPS(dtype, 4, 0);                                                 \
        else if (job->rows == 4) BY_TAPS(dtype, 2, 4);                                             \
        else if (job->rows == 2) BY_TAPS(dtype, 2, 2);                                             \
        else if (job->rows == 1) BY_TAPS(dtype, 2, 1);                                             \
        else BY_TAPS(dtype, 2, 0);                                                                 \
    } while (0)
    if (dtype == F32) BY_SCALE(F32);
    else if (dtype == F16 && PHASE_F16) BY_SCALE(F16);
    else BY_SCALE(BF16);
#undef BY_SCALE
#undef BY_TAPS
#undef SUM
}

/* Two vectors of the result, whole ones, in as many rows. */
INLINE void store_spread(const int dtype, int streams, const vec_f32 *pair, ptrdiff_t rows, char *dst,
                         ptrdiff_t dst_step) {
    _Alignas(64) char converted[2 * VECTOR_BYTES];
    if (dtype != F32) store_pair_f32(dtype, pair, converted);
    for (ptrdiff_t i = 0; i < rows; i++, dst += dst_step) {
        if (dtype == F32 && streams) stream_pair_f32(dtype, pair, dst);
        else if (dtype == F32) store_pair_f32(dtype, pair, dst);
        else if (streams) STREAM_VECTOR(dst, *(const vec_f32 *)converted);
        else *(vec_f32 *)dst = *(const vec_f32 *)converted;
    }
}

/* Each element of a vector as often as `spread`, in as many vectors. */
INLINE void spread_column(const int spread, vec_f32 column, vec_f32 *part) {
    vec_f32 twice[2], fourfold[4];
    take_turns_f32(column, column, spread == 2 ? part : twice);
    if (spread == 2) return;
#pragma GCC unroll 2
    for (int p = 0; p < 2; p++)
        take_turns_f32(twice[p], twice[p], (spread == 4 ? part : fourfold) + 2 * p);
    if (spread == 4) return;
#pragma GCC unroll 4
    for (int p = 0; p < 4; p++) take_turns_f32(fourfold[p], fourfold[p], part + 2 * p);
}

/* `fixed` as above. The taps are the weights of each lane, and words of ones where it has any. Rows that
 * read the same are stored `together`. */
INLINE void spread_phases_for(const int dtype, const int spread, const int fixed, const int together,
                              const PhaseRows *job, ptrdiff_t columns) {
    const ptrdiff_t size = element_size(dtype), rows = fixed ? fixed : job->rows;
    const ptrdiff_t count = together ? job->count : 1;
    const vec_f32 weight = *(const vec_f32 *)job->taps, zero = {0};
    const indices_f32 used = *(const indices_f32 *)(job->taps + LANES_F32);
    for (ptrdiff_t i = 0; i < job->count; i += count) {
        const ptrdiff_t offset = i * job->row_step;
        char *dst = job->dst + i * job->dst_step;
        for (ptrdiff_t y = 0; y < columns; y += LANES_F32) {
            const ptrdiff_t left = columns - y;
            vec_f32 column = {0}, part[8];
            for (ptrdiff_t r = 0; r < rows; r++)
                column += splat_f32(job->weight[r])
                          * load_first(dtype, job->row[r] + offset + y * size, left);
            ask_for_block(job, 1, offset, y * size, LANES_F32 * size);
            spread_column(spread, column, part);
#pragma GCC unroll 8
            for (int p = 0; p < spread; p++)
                part[p] = (vec_f32)((indices_f32)(weight * part[p] + zero) & used);
#pragma GCC unroll 4
            for (int p = 0; p < spread; p += 2, dst += 2 * LANES_F32 * size) {
                const ptrdiff_t rest = left * spread - p * LANES_F32;
                if (rest < 2 * LANES_F32) {
                    for (ptrdiff_t j = 0; j < count; j++) {
                        char *at = dst + j * job->dst_step;
                        if (rest > 0) store_first(dtype, part[p], at, rest);
                        if (rest > LANES_F32)
                            store_first(dtype, part[p + 1], at + LANES_F32 * size, rest - LANES_F32);
                    }
                } else if (together) {
                    store_spread(dtype, job->streams, part + p, count, dst, job->dst_step);
                } else if (job->streams) {
                    stream_pair_f32(dtype, part + p, dst);
                } else {
                    store_pair_f32(dtype, part + p, dst);
                }
            }
        }
    }
}

/* dst[x] = the weight of x times column x / spread, x < columns * spread, and as much of the next rows. */
static void spread_phases(int dtype, int spread, const PhaseRows *job, ptrdiff_t columns) {
#define SPREAD(dtype, spread)                                                                      \
    do {                                                                                           \
        if (job->rows != 1) spread_phases_for(dtype, spread, 0, 0, job, columns);                  \
        else if (job->row_step) spread_phases_for(dtype, spread, 1, 0, job, columns);              \
        else spread_phases_for(dtype, spread, 1, 1, job, columns);                                 \
    } while (0)
#define BY_SPREAD(dtype)                                                                           \
    do {                                                                                           \
        if (spread == 2) SPREAD(dtype, 2);                                                         \
        else if (spread == 4) SPREAD(dtype, 4);                                                    \
        else SPREAD(dtype, 8);                                                                     \
    } while (0)
    if (dtype == F32) BY_SPREAD(F32);
    else if (dtype == F16 && PHASE_F16) BY_SPREAD(F16);
    else BY_SPREAD(BF16);
#undef BY_SPREAD
#undef SPREAD
}

#endif
