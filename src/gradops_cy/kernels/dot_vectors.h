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

/* Sums rounded to bfloat16: `channels` of them for each row. Sums of this instruction are not
 * subnormal, so that the one that rounds has none to flush. */
INLINE void dot_round_512(const int mr, const int nv, char *const *c, ptrdiff_t c_shift,
                          ptrdiff_t channels, int how, __m512 (*acc)[2]) {
    /* Whole lines past the caches; groups may begin within one. */
    const int streams = nv == 2 && how == STREAM && (uintptr_t)(c[0] + c_shift) % 64 == 0;
    const __mmask32 mask = (__mmask32)(channels < 32 ? (1u << channels) - 1 : ~0u);
    UNROLL for (int m = 0; m < mr; m++) {
        __m512 low = acc[m][0], high = nv == 2 ? acc[m][1] : _mm512_setzero_ps();
        __m512i sums = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        char *place = c[m] + c_shift;
        /* A store without a mask takes two thirds of the time. */
        if (channels != 32)
            _mm512_mask_storeu_epi16(place, mask, sums);
        else if (streams)
            STREAM_VECTOR(place, sums);
        else
            _mm512_storeu_si512(place, sums);
    }
}
INLINE void dot_round_256(const int mr, const int nv, char *const *c, ptrdiff_t c_shift,
                          ptrdiff_t channels, int how, __m256 (*acc)[1]) {
    (void)nv, (void)how;
    UNROLL for (int m = 0; m < mr; m++)
        _mm_mask_storeu_epi16(c[m] + c_shift, (__mmask8)((1u << channels) - 1),
                              (__m128i)_mm256_cvtneps_pbh(acc[m][0]));
}

#define BITS 512
#define VECTORS 2
#include "dot_rows_body.h"
/* Up to eight channels: processors that multiply vectors of 64 bytes in halves, one after the other,
 * multiply two of these meanwhile. */
#define BITS 256
#define VECTORS 1
#include "dot_rows_body.h"

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
                    dot_step_512(mr, nv, row, i + 4 * j, pairs, acc);
        }
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++) _mm512_storeu_ps(c + m * c_pitch + 64 * v, acc[m][v]);
}

typedef void (*dot_rows_fn)(ptrdiff_t taps, ptrdiff_t kc, const char *const *a, ptrdiff_t a_shift,
                            const ptrdiff_t *offset, const ptrdiff_t *index, const char *panel,
                            char *const *c, ptrdiff_t c_shift, ptrdiff_t channels, int rounded,
                            int how, const char *const *ahead, ptrdiff_t touched);
typedef void (*dot_columns_fn)(ptrdiff_t taps, ptrdiff_t kc, const char *a, ptrdiff_t width,
                               const char *b, ptrdiff_t b_pitch, const ptrdiff_t *offset, char *c,
                               ptrdiff_t c_pitch, int accumulate);

#define HEIGHTS(X, nv, bits) X(1, nv, bits) X(2, nv, bits) X(3, nv, bits) X(4, nv, bits)           \
    X(5, nv, bits) X(6, nv, bits) X(7, nv, bits) X(8, nv, bits) X(9, nv, bits) X(10, nv, bits)     \
    X(11, nv, bits) X(12, nv, bits)
#define INSTANCE(mr, nv, bits)                                                                     \
    static void dot_rows_##mr##x##nv##_##bits(                                                     \
        ptrdiff_t taps, ptrdiff_t kc, const char *const *a, ptrdiff_t a_shift,                     \
        const ptrdiff_t *offset, const ptrdiff_t *index, const char *panel, char *const *c,        \
        ptrdiff_t c_shift, ptrdiff_t channels, int rounded, int how, const char *const *ahead,     \
        ptrdiff_t touched) {                                                                       \
        dot_rows_##bits(mr, nv, taps, kc, a, a_shift, offset, index, panel, c, c_shift, channels,  \
                        rounded, how, ahead, touched);                                             \
    }
HEIGHTS(INSTANCE, 1, 256)
HEIGHTS(INSTANCE, 1, 512)
HEIGHTS(INSTANCE, 2, 512)
#undef INSTANCE
#define INSTANCE(mr, nv, bits)                                                                     \
    static void dot_columns_##mr##x##nv(ptrdiff_t taps, ptrdiff_t kc, const char *a,               \
                                        ptrdiff_t width, const char *b, ptrdiff_t b_pitch,         \
                                        const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch,       \
                                        int accumulate) {                                          \
        dot_columns(mr, nv, taps, kc, a, width, b, b_pitch, offset, c, c_pitch, accumulate);       \
    }
HEIGHTS(INSTANCE, 1, 512)
HEIGHTS(INSTANCE, 2, 512)
#undef INSTANCE
#define ENTRY(mr, nv, bits) [mr] = dot_rows_##mr##x##nv##_##bits,
static const dot_rows_fn dot_narrow_tiles[DOT_MR + 1] = {HEIGHTS(ENTRY, 1, 256)};
#undef ENTRY
#define ENTRY(mr, nv, bits) [nv][mr] = dot_rows_##mr##x##nv##_##bits,
static const dot_rows_fn dot_rows_tiles[3][DOT_MR + 1] = {HEIGHTS(ENTRY, 1, 512)
                                                              HEIGHTS(ENTRY, 2, 512)};
#undef ENTRY
#define ENTRY(mr, nv, bits) [nv][mr] = dot_columns_##mr##x##nv,
static const dot_columns_fn dot_columns_tiles[3][DOT_MR + 1] = {HEIGHTS(ENTRY, 1, 512)
                                                                    HEIGHTS(ENTRY, 2, 512)};
#undef ENTRY
#undef HEIGHTS
#undef UNROLL

/* `rows` positions, a tile at a time, each of which asks for the next one's lines: as many positions
 * as `following` are pointed to after these, if any are to be asked for. So are results, those that lie
 * `touched` bytes on. */
static void run_vectors(ptrdiff_t rows, int nv, ptrdiff_t taps, ptrdiff_t kc, const char *const *a,
                        ptrdiff_t a_shift, const ptrdiff_t *offset, const ptrdiff_t *index,
                        const char *panel, char *const *c, ptrdiff_t c_shift, ptrdiff_t channels,
                        int rounded, int how, ptrdiff_t following, ptrdiff_t touched) {
    const dot_rows_fn *tile = nv == 1 && channels <= 8 ? dot_narrow_tiles : dot_rows_tiles[nv];
    for (ptrdiff_t tiles = (rows + DOT_MR - 1) / DOT_MR; tiles > 0; tiles--) {
        ptrdiff_t mr = (rows + tiles - 1) / tiles;
        const int ask = following && rows + following >= 2 * mr;
        tile[mr](taps, kc, a, a_shift, offset, index, panel, c, c_shift, channels, rounded, how,
                 ask ? a + mr : NULL, touched);
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
