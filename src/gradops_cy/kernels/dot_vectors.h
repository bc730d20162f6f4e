/* Products of bfloat16 pairs by AVX512-BF16, which adds two of them to each lane of a vector: register
 * tiles of up to DOT_MR positions by two vectors of channels, or channels by positions. dot.h includes
 * this in the tier that has no AMX. */
#ifndef GRADOPS_DOT_VECTORS_H
#define GRADOPS_DOT_VECTORS_H

#include "meanwhile.h"
#include "stream.h"

/* Accumulators, one row of vectors and one broadcast must fit the register file. */
#define DOT_MR 12
/* Pairs along k in one round of the loop. */
#define DOT_STEPS 4
#define UNROLL _Pragma("GCC unroll 16")

INLINE __m512bh spread_pair(const char *pair) {
    int32_t both;
    memcpy(&both, pair, sizeof both);
    return (__m512bh)_mm512_set1_epi32(both);
}

/* acc[m][v] += row[m][k, k + 1] * b[v] */
INLINE void dot_step(const int mr, const int nv, const char *const *row, ptrdiff_t k, const char *b,
                     __m512 (*acc)[2]) {
    __m512bh bv[2];
    UNROLL for (int v = 0; v < nv; v++) bv[v] = (__m512bh)_mm512_loadu_si512(b + 64 * v);
    UNROLL for (int m = 0; m < mr; m++) {
        __m512bh am = spread_pair(row[m] + k);
        UNROLL for (int v = 0; v < nv; v++) acc[m][v] = _mm512_dpbf16_ps(acc[m][v], am, bv[v]);
    }
}

/* Sums rounded to bfloat16: `channels` of them for each row. Sums of this instruction are not
 * subnormal, so that the one that rounds has none to flush. */
INLINE void dot_round(const int mr, const int nv, char *const *c, ptrdiff_t c_shift,
                      ptrdiff_t channels, __m512 (*acc)[2]) {
    __mmask32 mask = (__mmask32)(channels < 32 ? (1u << channels) - 1 : ~0u);
    UNROLL for (int m = 0; m < mr; m++) {
        __m512 low = acc[m][0], high = nv == 2 ? acc[m][1] : _mm512_setzero_ps();
        _mm512_mask_storeu_epi16(c[m] + c_shift, mask, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

/* The same past the caches, whole lines. */
INLINE void dot_stream(const int mr, char *const *c, ptrdiff_t c_shift, __m512 (*acc)[2]) {
    UNROLL for (int m = 0; m < mr; m++)
        STREAM_VECTOR(c[m] + c_shift, _mm512_cvtne2ps_pbh(acc[m][1], acc[m][0]));
}

/* mr positions x nv*16 channels: c = sum over taps and k of
 * a[position][offset[t] + k] * panel[index[t]][k].
 * a, c: a pointer for each position, a_shift and c_shift bytes on; c is bfloat16 for `channels`, or
 * where there are none float; panel [tap][kc/2][nv*16][2]; offsets in bytes. `ahead`, unless NULL,
 * points to positions that are asked for. */
INLINE void dot_rows(const int mr, const int nv, ptrdiff_t taps, ptrdiff_t kc, const char *const *a,
                     ptrdiff_t a_shift, const ptrdiff_t *offset, const ptrdiff_t *index,
                     const char *panel, char *const *c, ptrdiff_t c_shift, ptrdiff_t channels,
                     int how, const char *const *ahead) {
    __m512 acc[DOT_MR][2];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = how == GO_ON ? _mm512_loadu_ps(c[m] + c_shift + 64 * v) : _mm512_setzero_ps();
    for (ptrdiff_t t = 0; t < taps; t++) {
        const char *row[DOT_MR], *b = panel + index[t] * kc * nv * 32;
        UNROLL for (int m = 0; m < mr; m++) row[m] = a[m] + (a_shift + offset[t]);
        if (ahead)
            for (ptrdiff_t i = 0; i < 2 * kc; i += 64)
                UNROLL for (int m = 0; m < mr; m++)
                    __builtin_prefetch(ahead[m] + (a_shift + offset[t] + i), 0, 3);
        ptrdiff_t k = 0;
        for (; k + 2 * DOT_STEPS <= kc; k += 2 * DOT_STEPS, b += 64 * DOT_STEPS * nv)
            UNROLL for (int i = 0; i < DOT_STEPS; i++)
                dot_step(mr, nv, row, 2 * k + 4 * i, b + 64 * i * nv, acc);
        for (; k < kc; k += 2, b += 64 * nv) dot_step(mr, nv, row, 2 * k, b, acc);
    }
    /* Groups may begin within a line. */
    if (nv == 2 && how == STREAM && channels == 32 && (uintptr_t)(c[0] + c_shift) % 64 == 0) {
        dot_stream(mr, c, c_shift, acc);
        return;
    }
    if (channels) {
        dot_round(mr, nv, c, c_shift, channels, acc);
        return;
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++) _mm512_storeu_ps(c[m] + c_shift + 64 * v, acc[m][v]);
}

/* mr channels x nv*16 positions: c = sum over taps and k of a[t][channel][k] * b[offset[t]][k]
 * [position]. a: panel [tap][kc/32][width][32]; b: rows of pairs of k, b_pitch bytes apart. */
INLINE void dot_columns(const int mr, const int nv, ptrdiff_t taps, ptrdiff_t kc, const char *a,
                        ptrdiff_t width, const char *b, ptrdiff_t b_pitch, const ptrdiff_t *offset,
                        char *c, ptrdiff_t c_pitch, int accumulate) {
    __m512 acc[DOT_MR][2];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = accumulate ? _mm512_loadu_ps(c + m * c_pitch + 64 * v) : _mm512_setzero_ps();
    for (ptrdiff_t t = 0; t < taps; t++) {
        const char *pairs = b + offset[t];
        for (ptrdiff_t k = 0; k < kc; k += 32, a += 64 * width) {
            const char *row[DOT_MR];
            UNROLL for (int m = 0; m < mr; m++) row[m] = a + 64 * m;
            for (ptrdiff_t i = 0; i < 64; i += 4 * DOT_STEPS)
                UNROLL for (int j = 0; j < DOT_STEPS; j++, pairs += b_pitch)
                    dot_step(mr, nv, row, i + 4 * j, pairs, acc);
        }
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++) _mm512_storeu_ps(c + m * c_pitch + 64 * v, acc[m][v]);
}

typedef void (*dot_rows_fn)(ptrdiff_t taps, ptrdiff_t kc, const char *const *a, ptrdiff_t a_shift,
                            const ptrdiff_t *offset, const ptrdiff_t *index, const char *panel,
                            char *const *c, ptrdiff_t c_shift, ptrdiff_t channels, int how,
                            const char *const *ahead);
typedef void (*dot_columns_fn)(ptrdiff_t taps, ptrdiff_t kc, const char *a, ptrdiff_t width,
                               const char *b, ptrdiff_t b_pitch, const ptrdiff_t *offset, char *c,
                               ptrdiff_t c_pitch, int accumulate);

#define HEIGHTS(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv) X(7, nv) X(8, nv)     \
    X(9, nv) X(10, nv) X(11, nv) X(12, nv)
#define INSTANCE(mr, nv)                                                                           \
    static void dot_rows_##mr##x##nv(ptrdiff_t taps, ptrdiff_t kc, const char *const *a,           \
                                     ptrdiff_t a_shift, const ptrdiff_t *offset,                   \
                                     const ptrdiff_t *index, const char *panel, char *const *c,    \
                                     ptrdiff_t c_shift, ptrdiff_t channels, int how,               \
                                     const char *const *ahead) {                                   \
        dot_rows(mr, nv, taps, kc, a, a_shift, offset, index, panel, c, c_shift, channels, how,    \
                 ahead);                                                                           \
    }                                                                                              \
    static void dot_columns_##mr##x##nv(ptrdiff_t taps, ptrdiff_t kc, const char *a,               \
                                        ptrdiff_t width, const char *b, ptrdiff_t b_pitch,         \
                                        const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch,       \
                                        int accumulate) {                                          \
        dot_columns(mr, nv, taps, kc, a, width, b, b_pitch, offset, c, c_pitch, accumulate);       \
    }
HEIGHTS(INSTANCE, 1)
HEIGHTS(INSTANCE, 2)
#undef INSTANCE
#define ENTRY(mr, nv) [nv][mr] = dot_rows_##mr##x##nv,
static const dot_rows_fn dot_rows_tiles[3][DOT_MR + 1] = {HEIGHTS(ENTRY, 1) HEIGHTS(ENTRY, 2)};
#undef ENTRY
#define ENTRY(mr, nv) [nv][mr] = dot_columns_##mr##x##nv,
static const dot_columns_fn dot_columns_tiles[3][DOT_MR + 1] = {HEIGHTS(ENTRY, 1) HEIGHTS(ENTRY, 2)};
#undef ENTRY
#undef HEIGHTS
#undef UNROLL

/* `rows` positions, a tile at a time, each of which asks for the next one's lines: as many positions
 * as `following` are pointed to after these, if any are to be asked for. */
static void run_vectors(ptrdiff_t rows, int nv, ptrdiff_t taps, ptrdiff_t kc, const char *const *a,
                        ptrdiff_t a_shift, const ptrdiff_t *offset, const ptrdiff_t *index,
                        const char *panel, char *const *c, ptrdiff_t c_shift, ptrdiff_t channels,
                        int how, ptrdiff_t following) {
    for (ptrdiff_t tiles = (rows + DOT_MR - 1) / DOT_MR; tiles > 0; tiles--) {
        ptrdiff_t mr = (rows + tiles - 1) / tiles;
        const int ask = following && rows + following >= 2 * mr;
        dot_rows_tiles[nv][mr](taps, kc, a, a_shift, offset, index, panel, c, c_shift, channels,
                               how, ask ? a + mr : NULL);
        a += mr;
        c += mr;
        rows -= mr;
    }
}

static void run_pairs(int parts, ptrdiff_t channels, ptrdiff_t width, int nv, int stream,
                      ptrdiff_t taps, ptrdiff_t kc, const char *a, const char *b, ptrdiff_t b_pitch,
                      const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch, int accumulate,
                      Meanwhile *m) {
    (void)parts, (void)stream, (void)m;
    for (ptrdiff_t tiles = (channels + DOT_MR - 1) / DOT_MR; tiles > 0; tiles--) {
        ptrdiff_t mr = (channels + tiles - 1) / tiles;
        dot_columns_tiles[nv][mr](taps, kc, a, width, b, b_pitch, offset, c, c_pitch, accumulate);
        a += 64 * mr;
        c += mr * c_pitch;
        channels -= mr;
    }
}

#endif
