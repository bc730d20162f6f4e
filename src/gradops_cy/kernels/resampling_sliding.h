/* Channels last, where a column of diff_dst touches no more than two columns of the result, which are
 * neighbours (linear): both passes at once. Each column is reduced over depth and height in registers and
 * added to the sums of both, and the sums of the second one are carried on. What is read is asked of
 * memory evenly: passes that took turns with it waited for each other, and took up to 1.8 times as long.
 *
 *     columns of diff_dst       y0  y1  y2  y3  y4  y5
 *     touch column x            ──────────────
 *     touch column x + 1                ──────────────
 *     reduced with x                    ──────           y0 and y1 were with x - 1
 *
 * Sums have the order of the passes: rows, then columns, in `chains`. */
#ifndef GRADOPS_RESAMPLING_SLIDING_H
#define GRADOPS_RESAMPLING_SLIDING_H

/* A row of the result: the rows of diff_dst that touch it, of which those from `asked` on are asked for
 * `ahead` bytes before they are loaded, unless something else is asked for `meanwhile`; the tables of
 * the width, and its extent; bytes between columns. Channels of more than one block take turns after
 * `piece` columns of the result. With `streams`, these are whole lines and go past the caches. */
typedef struct {
    const char *const *row;
    const float *row_weight;
    ptrdiff_t rows, asked, ahead;
    Asking *meanwhile;
    const ptrdiff_t *start, *first;
    const float *weight;
    ptrdiff_t extent, lanes, piece, step, dst_step;
    int streams;
} SlidingRow;

/* The end of the columns of diff_dst that touch column x of the result. */
INLINE ptrdiff_t end_of_run(const ptrdiff_t *start, const ptrdiff_t *first, ptrdiff_t x) {
    return start[x] + first[x + 1] - first[x];
}

/* Vectors of a column, of which the first n elements count, all of them where these are `whole`. */
INLINE void take_vectors(const int dtype, const int vectors, const int whole, const char *p, ptrdiff_t n,
                         vec_f32 *part) {
    const ptrdiff_t bytes = LANES_F32 * element_size(dtype);
    if (whole)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v += 2) load_pair_f32(dtype, p + v * bytes, part + v);
    else
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            part[v] = load_first(dtype, p + v * bytes, v + 1 < vectors ? LANES_F32 : n - v * LANES_F32);
}

INLINE void put_vectors(const int dtype, const int vectors, const int whole, int streams, vec_f32 *sum,
                        char *p, ptrdiff_t n) {
    const ptrdiff_t bytes = LANES_F32 * element_size(dtype);
    if (whole)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v += 2) {
            order_pair_f32(dtype, sum + v);
            if (streams) stream_pair_f32(dtype, sum + v, p + v * bytes);
            else store_pair_f32(dtype, sum + v, p + v * bytes);
        }
    else
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            if (dtype == F32 && streams) STREAM_VECTOR(p + v * bytes, sum[v]);
            else store_first(dtype, sum[v], p + v * bytes, v + 1 < vectors ? LANES_F32 : n - v * LANES_F32);
        }
}

/* A column, reduced over depth and height: `offset` bytes into the rows. */
INLINE void reduce_column(const int dtype, const int vectors, const int whole, const SlidingRow job,
                          const char *const *row, ptrdiff_t rows, const vec_f32 *row_weight,
                          ptrdiff_t offset, ptrdiff_t n, vec_f32 *sum) {
    const ptrdiff_t bytes = vectors * LANES_F32 * element_size(dtype);
    vec_f32 part[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[v] = (vec_f32){0};
#pragma GCC unroll 4
    for (ptrdiff_t r = 0; r < rows; r++) {
        take_vectors(dtype, vectors, whole, row[r] + offset, n, part);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) sum[v] += row_weight[r] * part[v];
    }
    if (job.meanwhile) {
        ask_on(job.meanwhile, 1);
        return;
    }
    for (ptrdiff_t r = job.asked; r < rows; r++) prefetch_ahead(row[r] + offset, job.ahead, bytes);
}

INLINE void add_column(const int vectors, float weight, const vec_f32 *part, vec_f32 *sum) {
    const vec_f32 w = splat_f32(weight);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) sum[v] += w * part[v];
}

/* The chain to which column `k` is added comes first. What they add up to does not depend on their order. */
INLINE void turn_chains(const int chains, const int vectors, ptrdiff_t k, vec_f32 sum[2][4]) {
    if (chains == 2 && k % 2)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const vec_f32 first = sum[0][v];
            sum[0][v] = sum[1][v], sum[1][v] = first;
        }
}

/* `vectors` of the columns x0 <= x < x1, `offset` bytes from where a column begins. Columns of diff_dst
 * from y on are yet to be reduced; `carried` holds the chains of x0 so far, then those of x1. */
INLINE void slide(const int dtype, const int chains, const int vectors, const int whole,
                  const SlidingRow job, const char *const *row, ptrdiff_t rows,
                  const vec_f32 *row_weight, ptrdiff_t x0, ptrdiff_t x1, ptrdiff_t y, ptrdiff_t offset,
                  ptrdiff_t n, vec_f32 *carried, char *dst) {
    vec_f32 sum[2][4], next[2][4], part[4];
#define REDUCE_COLUMN(y)                                                                           \
    reduce_column(dtype, vectors, whole, job, row, rows, row_weight, (y) * job.step + offset, n, part)
#pragma GCC unroll 2
    for (int i = 0; i < chains; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) next[i][v] = carried[i * vectors + v];
    for (ptrdiff_t x = x0; x < x1; x++, dst += job.dst_step) {
        const ptrdiff_t start = job.start[x], end = end_of_run(job.start, job.first, x);
        const ptrdiff_t shared = x + 1 < job.extent ? job.start[x + 1] : end;
        const float *weight = job.weight + job.first[x] - start;
        const float *next_weight = job.weight + job.first[x + 1] - shared;
        if (y < start) y = start;
#pragma GCC unroll 2
        for (int i = 0; i < chains; i++)
#pragma GCC unroll 4
            for (int v = 0; v < vectors; v++) sum[i][v] = next[i][v], next[i][v] = (vec_f32){0};
        const ptrdiff_t alone = MIN(shared, end), before = y - start;
        turn_chains(chains, vectors, before, sum);
        while (y < alone)
#pragma GCC unroll 2
            for (int i = 0; i < chains && y < alone; i++, y++) {
                REDUCE_COLUMN(y);
                add_column(vectors, weight[y], part, sum[i]);
            }
        turn_chains(chains, vectors, y - start - before, sum);
        while (y < end)
#pragma GCC unroll 2
            for (int i = 0; i < chains && y < end; i++, y++) {
                REDUCE_COLUMN(y);
                add_column(vectors, weight[y], part, sum[i]);
                add_column(vectors, next_weight[y], part, next[i]);
            }
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            if (chains == 2) sum[0][v] += sum[1][v];
        put_vectors(dtype, vectors, whole, job.streams, sum[0], dst, n);
    }
#undef REDUCE_COLUMN
#pragma GCC unroll 2
    for (int i = 0; i < chains; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) carried[i * vectors + v] = next[i][v];
}

INLINE void slide_row_for(const int dtype, const int chains, const SlidingRow job, ptrdiff_t rows,
                          ptrdiff_t x0, ptrdiff_t x1, ptrdiff_t y, vec_f32 *carried, char *dst) {
    const ptrdiff_t size = element_size(dtype);
    const char *row[ROWS_AT_ONCE];
    vec_f32 row_weight[ROWS_AT_ONCE];
    ptrdiff_t c, rest;
    for (ptrdiff_t r = 0; r < rows; r++) {
        row[r] = job.row[r];
        row_weight[r] = splat_f32(job.row_weight[r]);
    }
#define SLIDE(vectors, whole)                                                                      \
    slide(dtype, chains, vectors, whole, job, row, rows, row_weight, x, end, y, c * size, rest,       \
          carried + c / LANES_F32 * chains, dst + c * size)
    for (ptrdiff_t x = x0, end; x < x1; x = end) {
        end = job.lanes > 4 * LANES_F32 ? MIN(x + job.piece, x1) : x1;
        for (c = 0; (rest = job.lanes - c) >= 4 * LANES_F32; c += 4 * LANES_F32) SLIDE(4, 1);
        if (rest == 2 * LANES_F32) SLIDE(2, 1);
        else if (rest > 3 * LANES_F32) SLIDE(4, 0);
        else if (rest > 2 * LANES_F32) SLIDE(3, 0);
        else if (rest > LANES_F32) SLIDE(2, 0);
        else if (rest > 0) SLIDE(1, 0);
        y = end_of_run(job.start, job.first, end - 1);
        dst += (end - x) * job.dst_step;
    }
#undef SLIDE
}

/* dst[x][c] for x0 <= x < x1 and c < lanes. Where these are not the `first` columns of some, `carried`,
 * of chains x lanes in whole vectors, holds what the ones before left. */
static void slide_row(int dtype, int chains, const SlidingRow *job, int first, ptrdiff_t x0,
                      ptrdiff_t x1, void *carried, char *dst) {
    const ptrdiff_t vectors = (job->lanes + LANES_F32 - 1) / LANES_F32;
    const ptrdiff_t y = first ? 0 : end_of_run(job->start, job->first, x0 - 1);
    if (first) memset(carried, 0, (size_t)(chains * vectors * VECTOR_BYTES));
#define SLIDE(dtype, chains, rows) slide_row_for(dtype, chains, *job, rows, x0, x1, y, carried, dst)
#define BY_ROWS(dtype)                                                                             \
    do {                                                                                           \
        if (chains == 2) SLIDE(dtype, 2, job->rows);                                               \
        else if (job->rows == 4) SLIDE(dtype, 1, 4);                                               \
        else SLIDE(dtype, 1, job->rows);                                                           \
    } while (0)
    if (dtype == F32) BY_ROWS(F32);
    else if (dtype == F16) BY_ROWS(F16);
    else BY_ROWS(BF16);
#undef BY_ROWS
#undef SLIDE
}

#endif
