/* The span of depthwise.h for one storage type. */

#define UNROLL _Pragma("GCC unroll 16")

/* `width` taps that lie next to each other: what is read once is multiplied with all of them. */
#define SLIDE(width)                                                                               \
    do {                                                                                           \
        VEC w[width][SPAN_NV];                                                                     \
        UNROLL for (int t = 0; t < width; t++, weight += pitch)                                    \
            UNROLL for (int v = 0; v < nv; v++) w[t][v] = *(const VEC *)(weight + v * LANES);      \
        UNROLL for (int e = 0; e < (mr + width - 2) / classes + 1; e++, source += span->step) {    \
            if (slides && (size_t)(tap / classes + e - low) >= inside) continue;                   \
            HOLD(source);                                                                          \
            UNROLL for (int v = 0; v < nv; v++) {                                                  \
                VEC x = NAME(read)(source + v * LANES * SIZE, v == nv - 1 ? last : LANES);         \
                if (width > 1) HOLD_VECTOR(x);                                                     \
                UNROLL for (int t = 0; t < width; t++) {                                           \
                    const int m = classes * e - t;                                                 \
                    if (m >= 0 && m < mr) acc[m][v] += w[t][v] * x;                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        tap += width;                                                                              \
    } while (0)

/* mr positions from `first` on x nv vectors of channels; the last vector has `last` lanes. `slides`: 0 if
 * no taps slide, 1 if all of a row do, or 2. `classes`: of residues, whose positions take turns. */
INLINE void NAME(span_tile)(const int slides, const int classes, const int mr, const int nv,
                            const int last, const Span *span, ptrdiff_t first, ptrdiff_t channel,
                            char *dst) {
    VEC acc[SPAN_MR][SPAN_NV];
    const ptrdiff_t sets = slides > 1 ? span->slides : 1, pitch = sets * span->weight_pitch;
    UNROLL for (int m = 0; m < mr; m++) UNROLL for (int v = 0; v < nv; v++) acc[m][v] = (VEC){0};
    for (ptrdiff_t r = 0; r < span->rows; r++) {
        const char *row = span->row[r] + first / classes * span->step + channel * SIZE;
        const REAL *weights = (const REAL *)span->weight[r] + channel;
        for (ptrdiff_t i = 0; i < sets; i++, weights += span->weight_pitch) {
            const Slide *s = slides ? span->slide + i : NULL;
            const REAL *weight = weights;
            const ptrdiff_t low = slides ? s->low - first / classes : 0;
            const size_t inside = slides ? (size_t)(s->high - s->low) : 0;
            const ptrdiff_t taps = slides ? s->taps : span->taps;
            ptrdiff_t tap = 0;
            while (tap < taps) {
                const char *source = row + (slides ? s->offset + tap / classes * span->step
                                                   : span->offset[tap]);
                ptrdiff_t left = slides ? taps - tap : 1;
                if (mr > 4 && FITS(7)) SLIDE(7);
                else if (mr > 4 && FITS(5)) SLIDE(5);
                else if (FITS(3)) SLIDE(3);
                else if (left >= 2) SLIDE(2);
                else SLIDE(1);
            }
        }
    }
    if (span->sums) {
        REAL *sums = (REAL *)span->sums + (first - span->sums_first) * span->sums_pitch + channel;
        UNROLL for (int m = 0; m < mr; m++, sums += span->sums_pitch)
            UNROLL for (int v = 0; v < nv; v++) *(VEC *)(sums + v * LANES) = acc[m][v];
        return;
    }
    /* What is stored might be these, for all that the compiler knows. */
    const ptrdiff_t dst_step = span->dst_step, before = classes > 1 ? span->before - first : 0;
    const int accumulate = span->accumulate, streams = span->streams;
    dst += first * dst_step + channel * SIZE;
    UNROLL for (int m = 0; m < mr; m++, dst += dst_step) {
        if (m < before) continue;
        UNROLL for (int v = 0; v < nv; v++) {
            char *p = dst + v * LANES * SIZE;
            const int lanes = v == nv - 1 ? last : LANES;
            if (accumulate) acc[m][v] += NAME(read)(p, lanes);
            if (SIZE == sizeof(REAL) && lanes == LANES && streams) STREAM_VECTOR(p, acc[m][v]);
            else NAME(write)(p, acc[m][v], lanes);
        }
    }
}

/* mr positions of the channels begin to end - 1, nv vectors at a time. */
#define CHANNELS(slides, classes, mr, nv)                                                          \
    do {                                                                                           \
        ptrdiff_t c = begin;                                                                       \
        for (; c + nv * LANES <= end; c += nv * LANES)                                             \
            NAME(span_tile)(slides, classes, mr, nv, LANES, span, first, c, dst);                  \
        if (nv > 2 && c + 2 * LANES <= end) {                                                      \
            NAME(span_tile)(slides, classes, mr, 2, LANES, span, first, c, dst);                   \
            c += 2 * LANES;                                                                        \
        }                                                                                          \
        if (c + LANES <= end) {                                                                    \
            NAME(span_tile)(slides, classes, mr, 1, LANES, span, first, c, dst);                   \
            c += LANES;                                                                            \
        }                                                                                          \
        if (c < end) NAME(span_tile)(slides, classes, mr, 1, (int)(end - c), span, first, c, dst); \
    } while (0)

#define INSTANCE(MR)                                                                               \
    static void NAME(slide_##MR)(const Span *span, ptrdiff_t first, ptrdiff_t begin,               \
                                 ptrdiff_t end, char *dst) {                                       \
        if (span->classes > 1) CHANNELS(1, 2, MR, 2);                                              \
        else if (span->slides > 1) CHANNELS(2, 1, MR, 2);                                          \
        else CHANNELS(1, 1, MR, 2);                                                                \
    }
SPAN_HEIGHTS(INSTANCE)
#undef INSTANCE

#define ENTRY(MR) NAME(slide_##MR),
static const SlidingTile NAME(slides)[] = {NULL, SPAN_HEIGHTS(ENTRY)};
#undef ENTRY

/* Adds up the sums of the columns `begin` to `end` - 1 of each position. */
static void NAME(sum_columns)(const Span *span, ptrdiff_t positions, ptrdiff_t begin, ptrdiff_t end,
                              ptrdiff_t channels, char *dst) {
    const REAL *sums = (const REAL *)span->sums;
    dst += span->sums_first * span->dst_step;
    for (ptrdiff_t j = 0; j < positions; j++, sums += span->sums_pitch, dst += span->dst_step)
        for (ptrdiff_t c = 0; c < channels; c += LANES) {
            const int lanes = (int)MIN(channels - c, LANES);
            char *p = dst + c * SIZE;
            VEC sum = {0};
            for (ptrdiff_t i = begin; i < end; i++) sum += *(const VEC *)(sums + i * channels + c);
            if (span->accumulate) sum += NAME(read)(p, lanes);
            NAME(write)(p, sum, lanes);
        }
}

/* Strips of channels keep their weights in cache. */
static void NAME(span)(const Span *span, ptrdiff_t first, ptrdiff_t positions, ptrdiff_t channels,
                       char *dst) {
    const ptrdiff_t last = first + positions;
    for (ptrdiff_t begin = 0, j = first; begin < channels; begin += SPAN_NV * LANES, first = j) {
        ptrdiff_t end = MIN(begin + SPAN_NV * LANES, channels);
        for (; first + 4 <= last; first += 4) CHANNELS(0, 1, 4, SPAN_NV);
        if (first + 2 <= last) {
            CHANNELS(0, 1, 2, SPAN_NV);
            first += 2;
        }
        if (first < last) CHANNELS(0, 1, 1, SPAN_NV);
    }
}

#undef CHANNELS
#undef SLIDE
/* mr vectors of a row of few channels, positions and channels as one, from element `flat` of the row on;
 * the last vector has `last` lanes. Weights are repeated: lane l of any vector takes those of its
 * channel from where the vector's first one stands. */
INLINE void NAME(flat_tile)(const int mr, const int last, const Span *span, ptrdiff_t flat,
                            ptrdiff_t channels, char *dst) {
    VEC acc[SPAN_MR];
    ptrdiff_t channel[SPAN_MR];
    UNROLL for (int m = 0; m < mr; m++) acc[m] = (VEC){0}, channel[m] = (flat + m * LANES) % channels;
    for (ptrdiff_t r = 0; r < span->rows; r++) {
        const REAL *weight = (const REAL *)span->weight[r];
        for (ptrdiff_t t = 0; t < span->taps; t++, weight += span->weight_pitch) {
            const char *source = span->row[r] + span->offset[t] + flat * SIZE;
            UNROLL for (int m = 0; m < mr; m++)
                acc[m] += *(const VEC *)(weight + channel[m])
                          * NAME(read)(source + m * LANES * SIZE, m == mr - 1 ? last : LANES);
        }
    }
    dst += flat * SIZE;
    UNROLL for (int m = 0; m < mr; m++, dst += LANES * SIZE) {
        const int lanes = m == mr - 1 ? last : LANES;
        if (span->accumulate) acc[m] += NAME(read)(dst, lanes);
        NAME(write)(dst, acc[m], lanes);
    }
}

/* Positions that read the same taps; both rows are dense. */
static void NAME(flat_span)(const Span *span, ptrdiff_t first, ptrdiff_t positions,
                            ptrdiff_t channels, char *dst) {
    ptrdiff_t flat = first * channels;
    const ptrdiff_t end = flat + positions * channels;
    for (; flat + SPAN_MR * LANES <= end; flat += SPAN_MR * LANES)
        NAME(flat_tile)(SPAN_MR, LANES, span, flat, channels, dst);
    for (; flat < end; flat += LANES)
        NAME(flat_tile)(1, (int)MIN(end - flat, LANES), span, flat, channels, dst);
}

#undef UNROLL
