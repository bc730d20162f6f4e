/* The span of depthwise.h for one storage type. */

#define UNROLL _Pragma("GCC unroll 16")
/* Keeps a pointer in its register: GCC otherwise invents one address for each load of the tile. */
#define HOLD(pointer) __asm__("" : "+r"(pointer))

/* `width` taps that lie next to each other: what is read once is multiplied with all of them. */
#define SLIDE(width)                                                                               \
    do {                                                                                           \
        VEC w[width][SPAN_NV];                                                                     \
        UNROLL for (int t = 0; t < width; t++, weight += span->weight_pitch)                       \
            UNROLL for (int v = 0; v < nv; v++) w[t][v] = *(const VEC *)(weight + v * LANES);      \
        UNROLL for (int e = 0; e < mr + width - 1; e++, source += span->step) {                    \
            HOLD(source);                                                                          \
            UNROLL for (int v = 0; v < nv; v++) {                                                  \
                VEC x = NAME(read)(source + v * LANES * SIZE, v == nv - 1 ? last : LANES);         \
                if (width > 1) HOLD_VECTOR(x);                                                     \
                UNROLL for (int t = 0; t < width; t++)                                             \
                    if (e >= t && e - t < mr) acc[e - t][v] += w[t][v] * x;                        \
            }                                                                                      \
        }                                                                                          \
        tap += width;                                                                              \
    } while (0)

/* mr positions from `first` on x nv vectors of channels; the last vector has `last` lanes. */
INLINE void NAME(span_tile)(const int slides, const int mr, const int nv, const int last,
                            const Span *span, ptrdiff_t first, ptrdiff_t channel, char *dst) {
    VEC acc[SPAN_MR][SPAN_NV];
    UNROLL for (int m = 0; m < mr; m++) UNROLL for (int v = 0; v < nv; v++) acc[m][v] = (VEC){0};
    for (ptrdiff_t r = 0; r < span->rows; r++) {
        const char *row = span->row[r] + first * span->step + channel * SIZE;
        const REAL *weight = (const REAL *)span->weight[r] + channel;
        ptrdiff_t tap = 0;
        while (tap < span->taps) {
            const char *source = row + span->offset[tap];
            ptrdiff_t width = slides && mr > 1 ? span->taps - tap : 1;
            if (mr >= 8 && width >= 7) SLIDE(7);
            else if (mr >= 8 && width >= 5) SLIDE(5);
            else if (width >= 3) SLIDE(3);
            else if (width == 2) SLIDE(2);
            else SLIDE(1);
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

/* mr positions from `first` on of the channels of a strip, nv vectors at a time. */
#define POSITIONS(mr, nv)                                                                          \
    do {                                                                                           \
        ptrdiff_t c = begin;                                                                       \
        for (; c + nv * LANES <= end; c += nv * LANES)                                             \
            NAME(span_tile)(slides, mr, nv, LANES, span, first, c, dst);                           \
        if (nv > 2 && c + 2 * LANES <= end) {                                                      \
            NAME(span_tile)(slides, mr, 2, LANES, span, first, c, dst);                            \
            c += 2 * LANES;                                                                        \
        }                                                                                          \
        if (c + LANES <= end) {                                                                    \
            NAME(span_tile)(slides, mr, 1, LANES, span, first, c, dst);                            \
            c += LANES;                                                                            \
        }                                                                                          \
        if (c < end) NAME(span_tile)(slides, mr, 1, (int)(end - c), span, first, c, dst);          \
        first += mr;                                                                               \
        positions -= mr;                                                                           \
    } while (0)

INLINE void NAME(span_strip)(const int slides, const Span *span, ptrdiff_t first, ptrdiff_t positions,
                             ptrdiff_t begin, ptrdiff_t end, char *dst) {
    if (slides && VECTOR_REGISTERS == 32) while (positions >= 8) POSITIONS(8, 2);
    while (positions >= 4) POSITIONS(4, SPAN_NV);
    if (positions >= 2) POSITIONS(2, SPAN_NV);
    if (positions) POSITIONS(1, SPAN_NV);
}

/* Tall tiles load and convert an element once for all taps of a row, and go through all channels of
 * their positions in the order of memory. Where that saves little, strips of channels keep their
 * weights in cache. */
static void NAME(span)(const Span *span, ptrdiff_t first, ptrdiff_t positions, ptrdiff_t channels,
                       char *dst) {
    const ptrdiff_t strip = SPAN_NV * LANES;
    if (span->sliding && (span->taps >= 3 || SIZE < sizeof(REAL)))
        NAME(span_strip)(1, span, first, positions, 0, channels, dst);
    else
        for (ptrdiff_t c = 0; c < channels; c += strip)
            NAME(span_strip)(0, span, first, positions, c, MIN(c + strip, channels), dst);
}

#undef POSITIONS
#undef SLIDE
#undef HOLD
#undef UNROLL
