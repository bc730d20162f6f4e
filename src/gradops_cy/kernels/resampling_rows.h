/* Row bodies of the resampling kernels for one type that computes. resampling.h includes this
 * twice and defines REAL, VEC, LANES, SPLAT, NAME(x), LOAD_FIRST(dtype, p, n): the first n of LANES
 * contiguous elements at p, converted, and LOAD_PAIR(dtype, p, pair): two vectors of them, in an order
 * that ORDER_PAIR(dtype, pair) puts right and DEAL_PAIR undoes, STORE_PAIR(dtype, pair, p) of two in
 * order, and STORE_FIRST(dtype, x, p, n). Buffers may be read and written up to SLACK bytes past their end. */

/* Sums to and from a buffer, in which they are in order. */
INLINE void NAME(take_pairs)(int dtype, int pairs, const REAL *src, VEC *sum) {
    for (int v = 0; v < 2 * pairs; v++) sum[v] = ((const VEC *)src)[v];
    for (int v = 0; v < pairs; v++) DEAL_PAIR(dtype, sum + 2 * v);
}
INLINE void NAME(put_pairs)(int dtype, int pairs, VEC *sum, REAL *dst) {
    for (int v = 0; v < pairs; v++) ORDER_PAIR(dtype, sum + 2 * v);
    for (int v = 0; v < 2 * pairs; v++) ((VEC *)dst)[v] = sum[v];
}

/* A pair in order past the caches, to where a line begins. */
INLINE void NAME(stream_pair)(int dtype, const VEC *pair, char *p) {
    VEC line[2];
    STORE_PAIR(dtype, pair, (char *)line);
    STREAM_VECTOR(p, line[0]);
    if (2 * LANES * element_size(dtype) > VECTOR_BYTES) STREAM_VECTOR(p + VECTOR_BYTES, line[1]);
}

/* dst[j] = sum_r weight[r] * row_r[j] for `pairs` pairs of vectors, or on from what dst holds. */
INLINE void NAME(add_rows_block)(int dtype, int pairs, const char *const *row, const REAL *weight,
                                 ptrdiff_t rows, ptrdiff_t offset, REAL *dst, int add) {
    ptrdiff_t step = 2 * LANES * element_size(dtype);
    VEC sum[4] = {{0}}, part[2];
    if (add) NAME(take_pairs)(dtype, pairs, dst, sum);
#pragma GCC unroll 4
    for (ptrdiff_t r = 0; r < rows; r++) {
        VEC w = SPLAT(weight[r]);
        for (int v = 0; v < pairs; v++) {
            LOAD_PAIR(dtype, row[r] + offset + v * step, part);
            sum[2 * v] += w * part[0];
            sum[2 * v + 1] += w * part[1];
        }
    }
    NAME(put_pairs)(dtype, pairs, sum, dst);
}

/* The same for the first n of a vector's elements. */
INLINE void NAME(add_rows_vector)(int dtype, const char *const *row, const REAL *weight,
                                  ptrdiff_t rows, ptrdiff_t offset, REAL *dst, ptrdiff_t n,
                                  int add) {
    VEC sum = {0}, *d = (VEC *)dst;
    if (add) sum = *d;
    for (ptrdiff_t r = 0; r < rows; r++)
        sum += SPLAT(weight[r]) * LOAD_FIRST(dtype, row[r] + offset, n);
    *d = sum;
}

INLINE void NAME(add_rows_in)(int dtype, const char *const *row, const REAL *weight, ptrdiff_t rows,
                              ptrdiff_t ahead, ptrdiff_t n, REAL *dst, int add) {
    ptrdiff_t size = element_size(dtype), j = 0;
    const int joined = ahead && are_joined(row, rows, n * size);
    /* The second vector begins where a line does. */
    if (dtype == F32 && rows >= 4 && !add && n >= 8 * LANES) {
        NAME(add_rows_vector)(dtype, row, weight, rows, 0, dst, LANES, 0);
        j = elements_to_line(row[0], size);
    }
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        if (ahead) prefetch_rows(row, rows, joined, j * size, ahead, 4 * LANES * size);
        NAME(add_rows_block)(dtype, 2, row, weight, rows, j * size, dst + j, add);
    }
    if (j + 2 * LANES <= n) {
        NAME(add_rows_block)(dtype, 1, row, weight, rows, j * size, dst + j, add);
        j += 2 * LANES;
    }
    for (; j < n; j += LANES)
        NAME(add_rows_vector)(dtype, row, weight, rows, j * size, dst + j, n - j, add);
}

/* Row counts that whole scales have are constants: their weights and pointers stay in registers. So is
 * whether rows are asked for: a test in the loop cost 6 % where it waits for memory. */
INLINE void NAME(add_rows_of)(int dtype, const char *const *row, const REAL *weight,
                              ptrdiff_t rows, ptrdiff_t ahead, ptrdiff_t n, REAL *dst, int add) {
#define ADD(rows, add)                                                                             \
    do {                                                                                           \
        if (ahead) NAME(add_rows_in)(dtype, row, weight, rows, ahead, n, dst, add);                \
        else NAME(add_rows_in)(dtype, row, weight, rows, 0, n, dst, add);                          \
    } while (0)
    if (add) ADD(rows, 1);
    else if (rows == 1) ADD(1, 0);
    else if (rows == 2) ADD(2, 0);
    else if (rows == 4) ADD(4, 0);
    else ADD(rows, 0);
#undef ADD
}

/* The same for two results that share the rows, each of which is read once. What is `ahead` is asked for a
 * block `at_once`, or with each vector, unless something else is asked for `meanwhile`. Pointers and
 * weights are copied: what is stored could change them, and they would be loaded again for every block. */
INLINE void NAME(add_shared_in)(int dtype, const char *const *row, const REAL *const *weight,
                                ptrdiff_t rows, ptrdiff_t ahead, const int at_once, int joined,
                                Asking *meanwhile, ptrdiff_t n, REAL *const *dst, int add,
                                int add_next) {
    ptrdiff_t size = element_size(dtype), step = 2 * LANES * size, j = 0;
    const char *src[ROWS_OF_A_PLANE];
    VEC w[ROWS_OF_A_PLANE], w_next[ROWS_OF_A_PLANE];
    REAL *first = dst[0], *second = dst[1];
    for (ptrdiff_t r = 0; r < rows; r++) {
        src[r] = row[r];
        w[r] = SPLAT(weight[0][r]);
        w_next[r] = SPLAT(weight[1][r]);
    }
    for (; j + 4 * LANES <= n; j += 4 * LANES) {
        VEC sum[4], next[4], part[2];
        for (int v = 0; v < 4; v++) sum[v] = next[v] = (VEC){0};
        if (add) NAME(take_pairs)(dtype, 2, first + j, sum);
        if (add_next) NAME(take_pairs)(dtype, 2, second + j, next);
        if (at_once && meanwhile) ask_on(meanwhile, 1);
        else if (at_once && ahead) prefetch_rows(src, rows, joined, j * size, ahead, 2 * step);
#pragma GCC unroll 8
        for (ptrdiff_t r = 0; r < rows; r++)
            for (int v = 0; v < 2; v++) {
                LOAD_PAIR(dtype, src[r] + j * size + v * step, part);
                if (!at_once && ahead) prefetch_ahead(src[r] + j * size + v * step, ahead, step);
                for (int i = 0; i < 2; i++) {
                    HOLD_VECTOR(part[i]);
                    sum[2 * v + i] += w[r] * part[i];
                    next[2 * v + i] += w_next[r] * part[i];
                }
            }
        NAME(put_pairs)(dtype, 2, sum, first + j);
        NAME(put_pairs)(dtype, 2, next, second + j);
    }
    for (; j < n; j += LANES) {
        VEC sum = {0}, next = {0};
        if (add) sum = *(VEC *)(first + j);
        if (add_next) next = *(VEC *)(second + j);
        for (ptrdiff_t r = 0; r < rows; r++) {
            VEC part = LOAD_FIRST(dtype, src[r] + j * size, n - j);
            sum += w[r] * part;
            next += w_next[r] * part;
        }
        *(VEC *)(first + j) = sum;
        *(VEC *)(second + j) = next;
    }
}

/* The counts of whole scales are constants here too, and whether there is something to go on from. For
 * bfloat16 a test with each vector takes as long as its conversion. */
INLINE void NAME(add_shared_of)(int dtype, const char *const *row, const REAL *const *weight,
                                ptrdiff_t rows, ptrdiff_t ahead, Asking *meanwhile, ptrdiff_t n,
                                REAL *const *dst, const int *add) {
#define ADD(rows, add, add_next)                                                                   \
    do {                                                                                           \
        if (dtype == BF16 || joined || meanwhile) ADD_ASKING(1, rows, add, add_next);              \
        else ADD_ASKING(0, rows, add, add_next);                                                   \
    } while (0)
#define ADD_ASKING(at_once, rows, add, add_next)                                                   \
    NAME(add_shared_in)(dtype, row, weight, rows, ahead, at_once, joined, meanwhile, n, dst, add,  \
                        add_next)
    const int joined = ahead && are_joined(row, rows, n * element_size(dtype));
    int goes_on = add[0] && !add[1];
    if (rows == 1 && !add[0] && !add[1]) ADD(1, 0, 0);
    else if (goes_on && rows == 2) ADD(2, 1, 0);
    else if (goes_on && rows == 4) ADD(4, 1, 0);
    else if (goes_on && rows == 8) ADD(8, 1, 0);
    else if (add[1] && rows == 8) ADD(8, 1, 1);
    else ADD(rows, add[0], add[1]);
#undef ADD_ASKING
#undef ADD
}

/* sum[c] = weight[k] * src[k][c], summed over every k < n that is a multiple of `chains`. */
INLINE void NAME(sum_columns)(int vectors, const REAL *src, ptrdiff_t lanes, const REAL *weight,
                              ptrdiff_t n, ptrdiff_t chains, VEC *sum) {
    for (int v = 0; v < vectors; v++) sum[v] = (VEC){0};
    for (ptrdiff_t k = 0; k < n; k += chains, src += chains * lanes) {
        VEC w = SPLAT(weight[k]);
        for (int v = 0; v < vectors; v++) sum[v] += w * ((const VEC *)src)[v];
    }
}

/* What the sums of one, two or four chains add up to. */
INLINE VEC NAME(join_chains)(int chains, VEC first, VEC second, VEC third, VEC fourth) {
    if (chains == 4) return (first + third) + (second + fourth);
    if (chains == 2) return first + second;
    return first;
}

INLINE void NAME(add_columns_block)(int dtype, int accumulate, int vectors, const REAL *src,
                                    ptrdiff_t lanes, const REAL *weight, ptrdiff_t n, int chains,
                                    char *dst, ptrdiff_t rest) {
    VEC part[4][4], total[4], sum[4];
#pragma GCC unroll 4
    for (int i = 0; i < chains; i++)
        NAME(sum_columns)(vectors, src + i * lanes, lanes, weight + i, MIN(n, COLUMNS_IN_SEQUENCE) - i,
                          chains, part[i]);
    for (int v = 0; v < vectors; v++)
        total[v] = NAME(join_chains)(chains, part[0][v], part[1][v], part[2][v], part[3][v]);
    for (ptrdiff_t k = COLUMNS_IN_SEQUENCE; k < n; k += COLUMNS_IN_SEQUENCE) {
        NAME(sum_columns)(vectors, src + k * lanes, lanes, weight + k,
                          MIN(n - k, COLUMNS_IN_SEQUENCE), 1, sum);
        for (int v = 0; v < vectors; v++) total[v] += sum[v];
    }
    if (vectors % 2 == 0 && !accumulate) {
        for (int v = 0; v < vectors; v += 2)
            STORE_PAIR(dtype, total + v, dst + v * LANES * element_size(dtype));
        return;
    }
    for (int v = 0; v < vectors; v++) {
        char *d = dst + v * LANES * element_size(dtype);
        if (accumulate) total[v] += LOAD_FIRST(dtype, d, rest);
        STORE_FIRST(dtype, total[v], d, rest);
    }
}

/* Four positions of one vector each, which have n columns: one after the other they waited for their sums. */
INLINE void NAME(add_columns_of_four)(int dtype, const REAL *src, const ptrdiff_t *start,
                                      const ptrdiff_t *first, const REAL *weight, ptrdiff_t n, int chains,
                                      ptrdiff_t origin, char *dst) {
    VEC part[4][4], total[4];
#pragma GCC unroll 4
    for (int i = 0; i < chains; i++) {
        for (int p = 0; p < 4; p++) part[i][p] = (VEC){0};
        for (ptrdiff_t k = i; k < n; k += chains)
            for (int p = 0; p < 4; p++)
                part[i][p] += SPLAT(weight[first[p] + k])
                              * *(const VEC *)(src + (start[p] - origin + k) * LANES);
    }
    for (int p = 0; p < 4; p++)
        total[p] = NAME(join_chains)(chains, part[0][p], part[1][p], part[2][p], part[3][p]);
    STORE_PAIR(dtype, total, dst);
    STORE_PAIR(dtype, total + 2, dst + 2 * LANES * element_size(dtype));
}

/* dst[x][c] = sum_k weight[first[x] + k] * src[start[x] - origin + k][c] over the run of x, or added
 * to it, for x0 <= x < x1 and c < lanes; dst begins at x0, its columns are `step` bytes apart. */
INLINE void NAME(add_columns_for)(int dtype, int accumulate, const REAL *src, ptrdiff_t lanes,
                                  const ptrdiff_t *start, const ptrdiff_t *first,
                                  const REAL *weight, int chains, ptrdiff_t origin,
                                  ptrdiff_t x0, ptrdiff_t x1, char *dst, ptrdiff_t step) {
    ptrdiff_t size = element_size(dtype);
    const int by_four = !accumulate && lanes == LANES && step == LANES * size;
    for (ptrdiff_t x = x0; x < x1; x++, dst += step) {
        const REAL *s = src + (start[x] - origin) * lanes, *w = weight + first[x];
        ptrdiff_t n = first[x + 1] - first[x], c = 0;
        if (by_four && x + 4 <= x1 && n <= COLUMNS_IN_SEQUENCE && first[x + 2] - first[x + 1] == n
            && first[x + 3] - first[x + 2] == n && first[x + 4] - first[x + 3] == n) {
            NAME(add_columns_of_four)(dtype, src, start + x, first + x, weight, n, chains, origin, dst);
            x += 3, dst += 3 * step;
            continue;
        }
#define ADD(vectors, rest)                                                                         \
    NAME(add_columns_block)(dtype, accumulate, vectors, s + c, lanes, w, n, chains, dst + c * size, rest)
        for (; c + 4 * LANES <= lanes; c += 4 * LANES) ADD(4, LANES);
        if (c + 2 * LANES <= lanes) {
            ADD(2, LANES);
            c += 2 * LANES;
        }
        for (; c + LANES <= lanes; c += LANES) ADD(1, LANES);
        if (c < lanes) ADD(1, lanes - c);
#undef ADD
    }
}

/* dst[j] += src[j] for j < n, in whole vectors. */
static void NAME(add_to)(const REAL *src, ptrdiff_t n, REAL *dst) {
    for (ptrdiff_t j = 0; j < n; j += LANES) *(VEC *)(dst + j) += *(const VEC *)(src + j);
}
