/* The sliding tiles of depthwise.h where vectors multiply pairs of bfloat16: what two rows of taps read
 * is zipped, and half of the products are left. The last of an odd number of rows is zipped with zeros, and
 * so are its weights, as floats that have been bfloat16. A tile has a vector of bfloat16 of channels;
 * zipped, its sums are in two, the channels of each in the order in which registers zip them. */
#ifndef GRADOPS_DEPTHWISE_PAIRS_H
#define GRADOPS_DEPTHWISE_PAIRS_H

#define PAIR_CHANNELS 32            /* of a tile, and of a run of weights: */
enum { SINGLE = 0, PAIR = PAIR_CHANNELS, PAIR_PANEL = 2 * PAIR_CHANNELS };

#if !VECTOR_PAIRS
/* No plan asks for it. */
static void pair_weights(const float *src, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t taps,
                         ptrdiff_t channels, float *dst) {
    (void)src, (void)pitch, (void)rows, (void)taps, (void)channels, (void)dst;
}
#else
#define UNROLL _Pragma("GCC unroll 16")

/* The floats of 32 channels, of which n are there, in the order of zipped vectors. */
INLINE void load_zipped(const float *src, ptrdiff_t n, __m512i out[2]) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(4));
    const uint32_t lanes = n < PAIR_CHANNELS ? (1u << n) - 1 : ~0u;
    const __m512i a = _mm512_maskz_loadu_epi32((__mmask16)lanes, src);
    const __m512i b = _mm512_maskz_loadu_epi32((__mmask16)(lanes >> 16), src + LANES_F32);
    out[0] = _mm512_permutex2var_epi32(a, low, b);
    out[1] = _mm512_permutex2var_epi32(a, high, b);
}

/* Weights [rows][taps][channels], `pitch` apart, become [rows][taps][channels / 32][2][32]: as floats,
 * and in pairs with those of the next row. */
static void pair_weights(const float *src, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t taps,
                         ptrdiff_t channels, float *dst) {
    for (ptrdiff_t t = 0; t < rows * taps; t++, src += pitch)
        for (ptrdiff_t c = 0; c < channels; c += PAIR_CHANNELS, dst += PAIR_PANEL) {
            __m512i upper[2], lower[2];
            load_zipped(src + c, channels - c, upper);
            for (int v = 0; v < 2; v++)
                _mm512_storeu_si512(dst + SINGLE + v * LANES_F32, upper[v]);
            if (t + taps >= rows * taps) continue;
            load_zipped(src + taps * pitch + c, channels - c, lower);
            for (int v = 0; v < 2; v++)
                _mm512_storeu_si512(dst + PAIR + v * LANES_F32,
                                    _mm512_mask_blend_epi16(0xaaaaaaaa,
                                                            _mm512_srli_epi32(upper[v], 16), lower[v]));
        }
}

/* Store the sums of `n` channels. */
INLINE void write_zipped(char *p, vec_f32 low, vec_f32 high, int n, int accumulate) {
    const __m512i quads = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    if (n == PAIR_CHANNELS && !accumulate
        && !(_mm512_fpclass_ps_mask((__m512)low, BF16_DIFFERS)
             | _mm512_fpclass_ps_mask((__m512)high, BF16_DIFFERS))) {
        const __m512bh halves = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
        _mm512_storeu_si512((void *)p, _mm512_permutexvar_epi64(quads, (__m512i)halves));
        return;
    }
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    const __m512i a = (__m512i)low, b = (__m512i)high;
    vec_f32 sums[2] = {(vec_f32)_mm512_permutex2var_epi32(a, first, b),
                       (vec_f32)_mm512_permutex2var_epi32(a, second, b)};
    for (int v = 0; v < 2 && n > 0; v++, n -= LANES_F32, p += 2 * LANES_F32) {
        if (accumulate) sums[v] += read_bf16(p, MIN(n, LANES_F32));
        write_bf16(p, sums[v], MIN(n, LANES_F32));
    }
}

/* `width` taps that lie next to each other, of one row or of two. */
#define SLIDE(width, two)                                                                          \
    do {                                                                                           \
        __m512i w[width][2];                                                                       \
        UNROLL for (int t = 0; t < width; t++, weight += span->weight_pitch)                       \
            UNROLL for (int v = 0; v < 2; v++) w[t][v] = _mm512_loadu_si512(weight + v * LANES_F32); \
        UNROLL for (int e = 0; e < (mr + width - 2) / classes + 1; e++, source += span->step) {    \
            if ((size_t)(tap / classes + e - low) >= inside) continue;                             \
            HOLD(source);                                                                          \
            const __m512i x = _mm512_maskz_loadu_epi16(lanes, source);                             \
            __m512i y = two ? _mm512_maskz_loadu_epi16(lanes, source + below) : x;                 \
            HOLD_VECTOR(y);  /* else each of its uses loads it */                                  \
            const __m512i left = two ? x : _mm512_setzero_si512();                                 \
            __m512i zipped[2] = {_mm512_unpacklo_epi16(left, y), _mm512_unpackhi_epi16(left, y)};  \
            UNROLL for (int v = 0; v < 2; v++)                                                     \
                UNROLL for (int t = 0; t < width; t++) {                                           \
                    const int m = classes * e - t;                                                 \
                    if (m < 0 || m >= mr) continue;                                                \
                    acc[m][v] = (vec_f32)_mm512_dpbf16_ps((__m512)acc[m][v], (__m512bh)w[t][v],    \
                                                          (__m512bh)zipped[v]);                    \
                }                                                                                  \
        }                                                                                          \
        tap += width;                                                                              \
    } while (0)

#define ROW(two)                                                                                   \
    do {                                                                                           \
        const float *weight = panel + (two ? PAIR : SINGLE);                                       \
        for (ptrdiff_t tap = 0; tap < s->taps;) {                                                  \
            const char *source = row + tap / classes * span->step;                                 \
            const ptrdiff_t left = s->taps - tap;                                                  \
            if (mr > 4 && FITS(7)) SLIDE(7, two);                                                  \
            else if (mr > 4 && FITS(5)) SLIDE(5, two);                                             \
            else if (FITS(3)) SLIDE(3, two);                                                       \
            else if (left >= 2) SLIDE(2, two);                                                     \
            else SLIDE(1, two);                                                                    \
        }                                                                                          \
    } while (0)

/* mr positions from `first` on, n channels from `channel` on. */
INLINE void pair_tile(const int classes, const int mr, const int n, const Span *span, ptrdiff_t first,
                      ptrdiff_t channel, char *dst) {
    vec_f32 acc[SPAN_MR][2];
    const Slide *s = span->slide;
    const __mmask32 lanes = n < PAIR_CHANNELS ? (1u << n) - 1 : ~0u;
    const ptrdiff_t low = s->low - first / classes, offset = s->offset + first / classes * span->step;
    const size_t inside = (size_t)(s->high - s->low);
    UNROLL for (int m = 0; m < mr; m++) acc[m][0] = acc[m][1] = (vec_f32){0};
    for (ptrdiff_t r = 0, taken; r < span->rows; r += taken) {
        const char *row = span->row[r] + offset + channel * 2;
        const float *panel = (const float *)span->weight[r] + 2 * channel;
        const int two = r + 1 < span->rows && span->weight[r + 1] == span->weight[r] + span->row_panel;
        const ptrdiff_t below = two ? span->row[r + 1] - span->row[r] : 0;
        taken = 1 + two;
        if (two) ROW(1);
        else ROW(0);
    }
    const ptrdiff_t dst_step = span->dst_step, before = classes > 1 ? span->before - first : 0;
    const int accumulate = span->accumulate;
    dst += first * dst_step + channel * 2;
    UNROLL for (int m = 0; m < mr; m++, dst += dst_step)
        if (m >= before) write_zipped(dst, acc[m][0], acc[m][1], n, accumulate);
}

#define CHANNELS(classes, mr)                                                                      \
    do {                                                                                           \
        ptrdiff_t c = begin;                                                                       \
        for (; c + PAIR_CHANNELS <= end; c += PAIR_CHANNELS)                                       \
            pair_tile(classes, mr, PAIR_CHANNELS, span, first, c, dst);                            \
        if (c < end) pair_tile(classes, mr, (int)(end - c), span, first, c, dst);                  \
    } while (0)

#define INSTANCE(MR)                                                                               \
    static void pairs_##MR(const Span *span, ptrdiff_t first, ptrdiff_t begin, ptrdiff_t end,      \
                           char *dst) {                                                            \
        if (span->classes > 1) CHANNELS(2, MR);                                                    \
        else CHANNELS(1, MR);                                                                      \
    }
SPAN_HEIGHTS(INSTANCE)
#undef INSTANCE

#define ENTRY(MR) pairs_##MR,
static const SlidingTile slides_pairs[] = {NULL, SPAN_HEIGHTS(ENTRY)};
#undef ENTRY

#undef CHANNELS
#undef ROW
#undef SLIDE
#undef UNROLL
#endif
#endif
