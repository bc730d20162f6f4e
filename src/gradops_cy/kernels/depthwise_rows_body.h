/* The tiles of depthwise_rows.h for one computing type. */

#define UNROLL _Pragma("GCC unroll 16")

/* `width` rows of taps, which read one row after the other: each row is loaded once for all of them. */
#define SLIDE(width)                                                                               \
    do {                                                                                           \
        for (ptrdiff_t t = 0; t < s->taps; t++) {                                                  \
            const REAL *x_row = source + s->offset[t];                                             \
            VEC w[width];                                                                          \
            UNROLL for (int i = 0; i < width; i++) w[i] = NAME(splat)(weight[i * next + t]);       \
            UNROLL for (int e = 0; e < mr + width - 1; e++, x_row += s->pitch)                     \
                UNROLL for (int v = 0; v < nv; v++) {                                              \
                    VEC x = *(const VEC *)(x_row + v * LANES);                                     \
                    HOLD_VECTOR(x);                                                                \
                    UNROLL for (int i = 0; i < width; i++)                                         \
                        if (e >= i && e - i < mr) acc[e - i][v] += w[i] * x;                       \
                }                                                                                  \
        }                                                                                          \
        left -= width;                                                                             \
        source += width * s->pitch;                                                                \
        weight += width * next;                                                                    \
    } while (0)

/* mr rows of nv vectors, the last one of which has `last` lanes. */
INLINE void NAME(stencil_tile)(const int mr, const int nv, const Stencil *s, const REAL *window,
                               ptrdiff_t last, char *dst, ptrdiff_t dst_pitch) {
    VEC acc[STENCIL_MR][STENCIL_NV];
    const ptrdiff_t next = s->apart * s->taps;
    UNROLL for (int m = 0; m < mr; m++) UNROLL for (int v = 0; v < nv; v++) acc[m][v] = (VEC){0};
    for (ptrdiff_t layer = 0; layer < s->layers; layer++)
        for (ptrdiff_t row = 0; row < MIN(s->apart, s->rows); row++) {
            const REAL *source = window + layer * s->layer_pitch + row * s->row_pitch;
            const REAL *weight = (const REAL *)s->weights + (layer * s->rows + row) * s->taps;
            for (ptrdiff_t left = (s->rows - row + s->apart - 1) / s->apart; left > 0;) {
                if (left >= 7 && VECTOR_REGISTERS == 32) SLIDE(7);
                else if (left >= 5 && VECTOR_REGISTERS == 32) SLIDE(5);
                else if (left >= 3) SLIDE(3);
                else if (left == 2) SLIDE(2);
                else SLIDE(1);
            }
        }
    UNROLL for (int m = 0; m < mr; m++, dst += dst_pitch)
        UNROLL for (int v = 0; v < nv; v++) {
            REAL *p = (REAL *)dst + v * LANES;
            if (v < nv - 1 || last == LANES) *(VEC *)p = acc[m][v];
            else NAME(store_first)(p, acc[m][v], (int)last);
        }
}

#define INSTANCE(NV)                                                                               \
    static void NAME(stencil_##NV)(const Stencil *s, const REAL *window, ptrdiff_t rows,           \
                                   ptrdiff_t last, char *dst, ptrdiff_t dst_pitch) {               \
        if (rows == STENCIL_MR) {                                                                  \
            NAME(stencil_tile)(STENCIL_MR, NV, s, window, last, dst, dst_pitch);                   \
            return;                                                                                \
        }                                                                                          \
        for (; rows > 0; rows--, window += s->pitch, dst += dst_pitch)                             \
            NAME(stencil_tile)(1, NV, s, window, last, dst, dst_pitch);                            \
    }
STENCIL_WIDTHS(INSTANCE)
#undef INSTANCE

#define ENTRY(NV) NAME(stencil_##NV),
static void (*const NAME(stencils)[])(const Stencil *, const REAL *, ptrdiff_t, ptrdiff_t, char *,
                                      ptrdiff_t) = {NULL, STENCIL_WIDTHS(ENTRY)};
#undef ENTRY

static void NAME(stencil)(const Stencil *s, const REAL *window, ptrdiff_t rows, ptrdiff_t count,
                          char *dst, ptrdiff_t dst_pitch) {
    const ptrdiff_t vectors = (count + LANES - 1) / LANES;
    const ptrdiff_t tiles = (vectors + STENCIL_NV - 1) / STENCIL_NV;
    for (ptrdiff_t row = 0; row < rows; row += STENCIL_MR)
        for (ptrdiff_t i = 0; i < tiles; i++) {
            const ptrdiff_t v = vectors * i / tiles, end = vectors * (i + 1) / tiles;
            NAME(stencils)[end - v](s, window + row * s->pitch + v * LANES,
                                    MIN(rows - row, STENCIL_MR),
                                    MIN(count - (end - 1) * LANES, LANES),
                                    dst + row * dst_pitch + v * LANES * (ptrdiff_t)sizeof(REAL),
                                    dst_pitch);
        }
}

#undef SLIDE
#undef UNROLL
