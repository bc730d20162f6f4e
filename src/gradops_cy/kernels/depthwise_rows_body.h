/* The tiles of depthwise_rows.h for one computing type. */

#define UNROLL _Pragma("GCC unroll 16")

#if COLUMN_PAIRS
/* What entry t gives a class, for `width` rows of taps: two of each row, or a last one alone. */
#define MULTIPLY(width, c, single)                                                                 \
    do {                                                                                           \
        const REAL *entry = source + s->offset[t];                                                 \
        const REAL *pairs = weight[c] + (t - begin[c]) / 2 * slides + done;                        \
        __m512i w[width];                                                                          \
        UNROLL for (int i = 0; i < width; i++) {                                                   \
            int32_t pair;                                                                          \
            memcpy(&pair, pairs + i, sizeof pair);                                                 \
            w[i] = _mm512_set1_epi32(pair);                                                        \
        }                                                                                          \
        UNROLL for (int e = 0; e < mr + width - 1; e++, entry += s->pitch)                         \
            UNROLL for (int v = 0; v < nv; v++) {                                                  \
                __m512i x = _mm512_loadu_si512(entry + v * LANES);                                 \
                if (single) x = _mm512_slli_epi32(x, 16);                                          \
                HOLD_VECTOR(x);                                                                    \
                UNROLL for (int i = 0; i < width; i++)                                             \
                    if (e >= i && e - i < mr) {                                                    \
                        VEC *sum = &acc[c][e - i][v];                                              \
                        *sum = (VEC)_mm512_dpbf16_ps((__m512)*sum, (__m512bh)w[i], (__m512bh)x);   \
                    }                                                                              \
            }                                                                                      \
    } while (0)

#define CLASS(width, c)                                                                            \
    do {                                                                                           \
        ptrdiff_t t = begin[c];                                                                    \
        for (; t + 1 < s->end[c]; t += 2) MULTIPLY(width, c, 0);                                   \
        if (t < s->end[c]) MULTIPLY(width, c, 1);                                                  \
    } while (0)

#define CLASSES(width)                                                                             \
    do {                                                                                           \
        CLASS(width, 0);                                                                           \
        if (classes == 2) CLASS(width, 1);                                                         \
    } while (0)
#else
/* What entry t gives the classes `from` to `to` - 1, for `width` rows of taps. */
#define MULTIPLY(width, from, to)                                                                  \
    do {                                                                                           \
        const REAL *entry = source + s->offset[t];                                                 \
        VEC w[2][width];                                                                           \
        UNROLL for (int c = from; c < to; c++)                                                     \
            UNROLL for (int i = 0; i < width; i++)                                                 \
                w[c][i] = NAME(splat)(weight[c][(t - begin[c]) * slides + done + i]);              \
        UNROLL for (int e = 0; e < mr + width - 1; e++, entry += s->pitch)                         \
            UNROLL for (int v = 0; v < nv; v++) {                                                  \
                VEC x = *(const VEC *)(entry + v * LANES);                                         \
                HOLD_VECTOR(x);                                                                    \
                UNROLL for (int i = 0; i < width; i++)                                             \
                    UNROLL for (int c = from; c < to; c++)                                         \
                        if (e >= i && e - i < mr) acc[c][e - i][v] += w[c][i] * x;                 \
            }                                                                                      \
    } while (0)

#define CLASSES(width)                                                                             \
    do {                                                                                           \
        for (ptrdiff_t t = 0; t < s->entries; t++) {                                               \
            if (classes == 1 || t < s->begin[1] || t >= s->end[1]) MULTIPLY(width, 0, 1);          \
            else if (t < s->begin[0] || t >= s->end[0]) MULTIPLY(width, classes - 1, classes);     \
            else MULTIPLY(width, 0, classes);                                                      \
        }                                                                                          \
    } while (0)
#endif

/* `width` rows of taps, which read one row after the other: each row is loaded once for all of them. */
#define SLIDE(width)                                                                               \
    do {                                                                                           \
        CLASSES(width);                                                                            \
        done += width;                                                                             \
        source += width * s->pitch;                                                                \
    } while (0)

INLINE void NAME(write_tile)(const int dtype, const int mr, const int vectors, VEC (*sums)[STENCIL_MOST_NV],
                             ptrdiff_t count, char *dst, ptrdiff_t dst_pitch) {
    UNROLL for (int v = 0; v < vectors; v++, dst += LANES * element_size(dtype)) {
        const ptrdiff_t left = count - v * LANES;
        if (PAIRS_OF_HALVES && dtype == BF16 && v + 1 < vectors && left >= 2 * LANES) {
            UNROLL for (int m = 0; m < mr; m++)
                NAME(write_two)(dst + m * dst_pitch, sums[m][v], sums[m][v + 1]);
            v++;
            dst += LANES * element_size(dtype);
        } else if (left >= LANES) {
            UNROLL for (int m = 0; m < mr; m++)
                NAME(write_sums)(dtype, dst + m * dst_pitch, sums[m][v], LANES);
        } else if (left > 0) {
            UNROLL for (int m = 0; m < mr; m++)
                NAME(write_sums)(dtype, dst + m * dst_pitch, sums[m][v], (int)left);
        }
    }
}

/* mr rows of `count` results of one or two classes, nv vectors of each or some lanes less. */
INLINE void NAME(stencil_tile)(const int classes, const int mr, const int nv, int dtype,
                               const Stencil *s, const REAL *window, ptrdiff_t count, char *dst,
                               ptrdiff_t dst_pitch) {
    VEC acc[2][STENCIL_MR][STENCIL_MOST_NV];
    const REAL *weight[2] = {s->weights[0], s->weights[1]};
    const ptrdiff_t begin[2] = {classes == 1 ? 0 : s->begin[0], s->begin[1]};
    UNROLL for (int c = 0; c < classes; c++)
        UNROLL for (int m = 0; m < mr; m++)
            UNROLL for (int v = 0; v < nv; v++) acc[c][m][v] = (VEC){0};
    for (ptrdiff_t layer = 0; layer < s->layers; layer++)
        for (ptrdiff_t row = 0; row < s->apart; row++) {
            const ptrdiff_t slides = s->slides + (row < s->longer);
            const REAL *source = window + layer * s->layer_pitch + row * s->row_pitch;
            for (ptrdiff_t done = 0; done < slides;) {
                const ptrdiff_t left = slides - done;
                if (left >= 7 && classes == 1 && VECTOR_REGISTERS == 32) SLIDE(7);
                else if (left >= 5 && classes == 1 && VECTOR_REGISTERS == 32) SLIDE(5);
                else if (left >= 3) SLIDE(3);
                else if (left == 2) SLIDE(2);
                else SLIDE(1);
            }
            UNROLL for (int c = 0; c < classes; c++) weight[c] += slides * (s->end[c] - s->begin[c]);
        }
    if (classes == 2)
        UNROLL for (int m = 0; m < mr; m++) {
            VEC sums[STENCIL_MOST_NV];
            UNROLL for (int v = 0; v < nv; v++)
                NAME(take_turns)(acc[0][m][v], acc[1][m][v], sums + 2 * v);
            UNROLL for (int v = 0; v < 2 * nv; v++) acc[0][m][v] = sums[v];
        }
    if (sizeof(REAL) == 8)
        NAME(write_tile)(F64, mr, classes * nv, acc[0], count, dst, dst_pitch);
    else if (dtype == F32) NAME(write_tile)(F32, mr, classes * nv, acc[0], count, dst, dst_pitch);
    else if (dtype == F16) NAME(write_tile)(F16, mr, classes * nv, acc[0], count, dst, dst_pitch);
    else NAME(write_tile)(BF16, mr, classes * nv, acc[0], count, dst, dst_pitch);
}

/* All rows of one column of tiles. Where two or three are left, a last tile ends with them: single rows
 * load for each product, and wait for each sum. Of a copy the compiler knows that no tile writes to it. */
#define INSTANCE(CLASSES, NV)                                                                      \
    static void NAME(stencil_##CLASSES##_##NV)(int dtype, const Stencil *stencil,                  \
                                               const REAL *window, ptrdiff_t rows,                 \
                                               ptrdiff_t count, char *dst, ptrdiff_t dst_pitch,    \
                                               const char *next, ptrdiff_t next_step) {            \
        const Stencil s = *stencil;                                                                \
        ptrdiff_t row = 0;                                                                         \
        for (; CLASSES * NV <= STENCIL_NV && row + 1 < rows && rows >= STENCIL_MR; row += STENCIL_MR) { \
            row = MIN(row, rows - STENCIL_MR);                                                     \
            fetch(next + row * next_step, STENCIL_MR * next_step);                                 \
            NAME(stencil_tile)(CLASSES, STENCIL_MR, NV, dtype, &s, window + row * s.pitch, count,  \
                               dst + row * dst_pitch, dst_pitch);                                  \
        }                                                                                          \
        for (; row < rows; row++)                                                                  \
            NAME(stencil_tile)(CLASSES, 1, NV, dtype, &s, window + row * s.pitch, count,           \
                               dst + row * dst_pitch, dst_pitch);                                  \
    }
STENCIL_WIDTHS(INSTANCE)
#undef INSTANCE

#define ENTRY(CLASSES, NV) [CLASSES][NV] = NAME(stencil_##CLASSES##_##NV),
static void (*const NAME(stencils)[][STENCIL_MOST_NV + 1])(int, const Stencil *, const REAL *, ptrdiff_t,
                                                      ptrdiff_t, char *, ptrdiff_t, const char *,
                                                      ptrdiff_t) = {
    STENCIL_WIDTHS(ENTRY)};
#undef ENTRY

static void NAME(stencil)(int dtype, const Stencil *s, const REAL *window, ptrdiff_t rows, char *dst,
                          ptrdiff_t dst_pitch) {
    const ptrdiff_t turns = MIN(s->turns, rows), between = s->pitch / s->turns;
    const ptrdiff_t next_step = s->next_step / ((s->vectors + s->nv - 1) / s->nv);
    const char *next = s->next;
    for (ptrdiff_t v = 0; v < s->vectors; v += s->nv) {
        const ptrdiff_t first = v + s->nv < s->vectors ? v * LANES : s->last;
        for (ptrdiff_t turn = 0; turn < turns; turn++) {
            const ptrdiff_t part = (rows - turn - 1) / s->turns + 1;
            NAME(stencils)[s->classes][MIN(s->nv, s->vectors - v)](
                dtype, s, window + s->first + first + turn * between, part, s->count - first * s->classes,
                dst + first * s->classes * element_size(dtype) + turn * dst_pitch, s->turns * dst_pitch,
                next, next_step);
            next += part * next_step;
        }
    }
}

#undef MULTIPLY
#undef CLASS
#undef CLASSES
#undef SLIDE
#undef UNROLL
