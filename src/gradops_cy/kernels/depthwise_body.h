/* The span of depthwise.h for one storage type. */

#define UNROLL _Pragma("GCC unroll 16")
/* Keeps a pointer in its register: GCC otherwise invents one address for each load of the tile. */
#define HOLD(pointer) __asm__("" : "+r"(pointer))

/* mr positions from `first` on x nv vectors of channels; the last vector has `last` lanes. */
INLINE void NAME(span_tile)(const int mr, const int nv, const int last, const Span *span,
                            ptrdiff_t first, ptrdiff_t channel, char *dst) {
    VEC acc[SPAN_MR][4];
    UNROLL for (int m = 0; m < mr; m++) UNROLL for (int v = 0; v < nv; v++) acc[m][v] = (VEC){0};
    for (ptrdiff_t r = 0; r < span->rows; r++) {
        const char *row = span->row[r] + first * span->step + channel * SIZE;
        const REAL *weight = (const REAL *)span->weight[r] + channel;
        for (ptrdiff_t t = 0; t < span->taps; t++, weight += span->weight_pitch) {
            const char *source = row + span->offset[t];
            VEC w[4];
            UNROLL for (int v = 0; v < nv; v++) w[v] = *(const VEC *)(weight + v * LANES);
            UNROLL for (int m = 0; m < mr; m++, source += span->step) {
                HOLD(source);
                UNROLL for (int v = 0; v < nv; v++)
                    acc[m][v] += w[v] * NAME(read)(source + v * LANES * SIZE,
                                                   v == nv - 1 ? last : LANES);
            }
        }
    }
    dst += first * span->dst_step + channel * SIZE;
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++) {
            char *p = dst + m * span->dst_step + v * LANES * SIZE;
            const int lanes = v == nv - 1 ? last : LANES;
            if (span->accumulate) acc[m][v] += NAME(read)(p, lanes);
            NAME(write)(p, acc[m][v], lanes);
        }
}

/* `positions` from `first` on of one vector column, most of them four at a time. */
#define COLUMN(nv, last)                                                                           \
    do {                                                                                           \
        ptrdiff_t j = first, end = first + positions;                                              \
        for (; j + 4 <= end; j += 4) NAME(span_tile)(4, nv, last, span, j, channel, dst);          \
        if (j + 2 <= end) NAME(span_tile)(2, nv, last, span, j, channel, dst), j += 2;             \
        if (j < end) NAME(span_tile)(1, nv, last, span, j, channel, dst);                          \
    } while (0)

static void NAME(span)(const Span *span, ptrdiff_t first, ptrdiff_t positions, ptrdiff_t channels,
                       char *dst) {
    ptrdiff_t channel = 0;
    for (; channel + SPAN_NV * LANES <= channels; channel += SPAN_NV * LANES) COLUMN(SPAN_NV, LANES);
    if (SPAN_NV > 2 && channel + 2 * LANES <= channels) {
        COLUMN(2, LANES);
        channel += 2 * LANES;
    }
    for (; channel + LANES <= channels; channel += LANES) COLUMN(1, LANES);
    if (channel < channels) {
        const int last = (int)(channels - channel);
        COLUMN(1, last);
    }
}

#undef COLUMN
#undef HOLD
#undef UNROLL
