/* Where all weights are 1 (nearest), both passes at once for one type that computes; included like
 * resampling_rows.h. What is read is added up in registers: memory never waits for a pass in cache, nor
 * that for memory, which took twice as long. Sums have the order of the passes: rows, then columns, in
 * `chains`. */

/* `pairs` pairs of vectors of a pixel, whose first element lies `offset` bytes into the rows; with
 * `streams`, whole lines go past the caches. */
INLINE void NAME(add_box)(int dtype, const int chains, int pairs, const int streams,
                          const char *const *row, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t offset,
                          ptrdiff_t step, char *dst) {
    const ptrdiff_t pair_bytes = 2 * LANES * element_size(dtype);
    VEC total[4][4] = {{{0}}};
    for (ptrdiff_t k = 0; k < columns; k += chains)
#pragma GCC unroll 4
        for (int i = 0; i < chains; i++, offset += step) {
            VEC column[4] = {{0}}, part[2];
            if (k + i >= columns) break;
            for (ptrdiff_t r = 0; r < rows; r++)
                for (int v = 0; v < pairs; v++) {
                    LOAD_PAIR(dtype, row[r] + offset + v * pair_bytes, part);
                    column[2 * v] += part[0];
                    column[2 * v + 1] += part[1];
                }
            for (int v = 0; v < 2 * pairs; v++) total[i][v] += column[v];
        }
    for (int v = 0; v < 2 * pairs; v++)
        total[0][v] =
            NAME(join_chains)(chains, total[0][v], total[1][v], total[2][v], total[3][v]);
    for (int v = 0; v < pairs; v++, dst += pair_bytes) {
        ORDER_PAIR(dtype, total[0] + 2 * v);
        if (streams) NAME(stream_pair)(dtype, total[0] + 2 * v, dst);
        else STORE_PAIR(dtype, total[0] + 2 * v, dst);
    }
}

/* The same for the first n of a vector's elements. */
INLINE void NAME(add_box_vector)(int dtype, const int chains, const char *const *row,
                                 ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t offset,
                                 ptrdiff_t step, ptrdiff_t n, char *dst) {
    VEC total[4] = {{0}};
    for (ptrdiff_t k = 0; k < columns; k += chains)
#pragma GCC unroll 4
        for (int i = 0; i < chains; i++, offset += step) {
            VEC column = {0};
            if (k + i >= columns) break;
            for (ptrdiff_t r = 0; r < rows; r++) column += LOAD_FIRST(dtype, row[r] + offset, n);
            total[i] += column;
        }
    STORE_FIRST(dtype, NAME(join_chains)(chains, total[0], total[1], total[2], total[3]), dst, n);
}

INLINE void NAME(add_boxes_for)(int dtype, const int chains, const int streams,
                                const char *const *row, ptrdiff_t rows, const ptrdiff_t *start,
                                const ptrdiff_t *first, ptrdiff_t step, ptrdiff_t lanes,
                                ptrdiff_t x0, ptrdiff_t x1, char *dst, ptrdiff_t dst_step) {
    const ptrdiff_t size = element_size(dtype);
    for (ptrdiff_t x = x0; x < x1; x++, dst += dst_step) {
        const ptrdiff_t offset = start[x] * step, columns = first[x + 1] - first[x];
        ptrdiff_t c = 0;
        for (; c + 4 * LANES <= lanes; c += 4 * LANES)
            NAME(add_box)(dtype, chains, 2, streams, row, rows, columns, offset + c * size, step,
                          dst + c * size);
        if (c + 2 * LANES <= lanes) {
            NAME(add_box)(dtype, chains, 1, streams, row, rows, columns, offset + c * size, step,
                          dst + c * size);
            c += 2 * LANES;
        }
#define VECTOR(n)                                                                                  \
    NAME(add_box_vector)(dtype, chains, row, rows, columns, offset + c * size, step, n, dst + c * size)
        for (; c + LANES <= lanes; c += LANES) VECTOR(LANES);
        if (c < lanes && lanes > LANES) {
            /* The last ones as a whole vector, some of them again. */
            c = lanes - LANES;
            VECTOR(LANES);
        } else if (c < lanes) {
            VECTOR(lanes);
        }
#undef VECTOR
    }
}
