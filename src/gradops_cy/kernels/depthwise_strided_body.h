/* The rows of depthwise_strided.h for one computing type. */

#define UNROLL _Pragma("GCC unroll 8")

/* nv vectors of columns: their sums with strides q and, of `both`, q + 1 of the taps. */
INLINE void NAME(strided_tile)(const int nv, const int both, const Stencil *s, const REAL *window,
                               ptrdiff_t q, REAL *sums, ptrdiff_t pitch) {
    VEC acc[2][STRIDED_NV];
    UNROLL for (int v = 0; v < nv; v++) acc[0][v] = acc[1][v] = (VEC){0};
    const REAL *weight = (const REAL *)s->weights[0] + q * LANES;
    const ptrdiff_t step = s->columns / s->stride * LANES;
    for (ptrdiff_t layer = 0; layer < s->layers; layer++) {
        const REAL *row = window + layer * s->layer_pitch;
        for (ptrdiff_t r = 0; r < s->tap_rows; r++, row += s->row_pitch, weight += step) {
            const VEC w0 = *(const VEC *)weight, w1 = both ? *(const VEC *)(weight + LANES) : (VEC){0};
            UNROLL for (int v = 0; v < nv; v++) {
                VEC x = *(const VEC *)(row + v * LANES);
                HOLD_VECTOR(x);
                acc[0][v] += w0 * x;
                if (both) acc[1][v] += w1 * x;
            }
        }
    }
    UNROLL for (int v = 0; v < nv; v++) {
        *(VEC *)(sums + v * LANES) = acc[0][v];
        if (both) *(VEC *)(sums + pitch + v * LANES) = acc[1][v];
    }
}

/* The same of all columns that positions read. */
static void NAME(sum_strided)(const Stencil *s, const REAL *window, ptrdiff_t vectors, ptrdiff_t q,
                              REAL *sums, ptrdiff_t pitch) {
    const int both = (q + 1) * s->stride < s->columns;
    const ptrdiff_t tiles = (vectors + STRIDED_NV - 1) / STRIDED_NV;
    for (ptrdiff_t i = 1, v = 0, end; i <= tiles; i++, v = end) {
        end = vectors * i / tiles;
        const REAL *from = window + v * LANES;
        REAL *to = sums + v * LANES;
        switch (end - v) {
#define TILE(NV)                                                                                   \
    case NV:                                                                                       \
        if (both) NAME(strided_tile)(NV, 1, s, from, q, to, pitch);                                \
        else NAME(strided_tile)(NV, 0, s, from, q, to, pitch);                                     \
        break;
            STRIDED_WIDTHS(TILE)
#undef TILE
        }
    }
}

/* Elements of a row of sums, of which there are four: whole vectors for whole vectors of positions, and taps
 * beyond the last (`strided_sums` of _convolution_depthwise.py). */
static ptrdiff_t NAME(strided_row)(ptrdiff_t positions, ptrdiff_t stride, ptrdiff_t taps) {
    return ((positions + LANES - 1) / LANES + 1) * LANES * stride + (taps + LANES - 1) / LANES * LANES;
}

static void NAME(strided_rows)(int dtype, const Stencil *s, const REAL *window, ptrdiff_t rows, char *dst,
                               ptrdiff_t dst_pitch) {
    const ptrdiff_t stride = s->stride, count = s->count, pitch = NAME(strided_row)(count, stride, s->columns);
    const ptrdiff_t last = (count + LANES - 1) / LANES * LANES * stride;
    const ptrdiff_t vectors = ((count - 1) * stride + s->columns + LANES - 1) / LANES;
    REAL *sums = s->sums, *all = sums + 2 * pitch, *dealt = all + pitch;
    window += s->first;
    for (ptrdiff_t row = 0; row < rows; row++, window += s->pitch / s->turns, dst += dst_pitch) {
        fetch(s->next + row * s->next_step, s->next_step);
        for (ptrdiff_t q = 0; q * stride < s->columns; q += 2) {
            const REAL *a = sums + q * stride, *b = sums + pitch + (q + 1) * stride;
            const int both = (q + 1) * stride < s->columns;
            NAME(sum_strided)(s, window, vectors, q, sums, pitch);
            for (ptrdiff_t j = 0; j < last; j += LANES) {
                VEC sum = *(const VEC *)(a + j);
                if (both) sum += *(const VEC *)(b + j);
                if (q) sum += *(const VEC *)(all + j);
                *(VEC *)(all + j) = sum;
            }
        }
        NAME(deal)(stride, all, last, dealt, last / stride);
        for (ptrdiff_t j = 0; j < count; j += LANES) {
            const int lanes = (int)MIN(count - j, LANES);
            VEC sum = *(const VEC *)(dealt + j);
            for (ptrdiff_t i = 1; i < stride; i++) sum += *(const VEC *)(dealt + i * (last / stride) + j);
            NAME(write_sums)(dtype, dst + j * element_size(dtype), sum, lanes);
        }
    }
}

static void NAME(repeat_over_strides)(const char *src, ptrdiff_t src_step, ptrdiff_t taps, ptrdiff_t stride,
                                 REAL *dst) {
    for (ptrdiff_t t = 0; t < taps; t += stride, src += stride * src_step)
        for (ptrdiff_t i = 0; i < LANES; i++, dst++) *dst = *(const REAL *)(src + i % stride * src_step);
}

#undef UNROLL
