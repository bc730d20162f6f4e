/* Products of bfloat16 pairs by AVX512-BF16, which adds two of them to each lane of a vector: register
 * tiles of up to DOT_MR positions by one to four halves of vectors of channels, or of channels by one or
 * two vectors of positions. dot.h includes this in the tier that has no AMX. */
#ifndef GRADOPS_DOT_VECTORS_H
#define GRADOPS_DOT_VECTORS_H

#include "half_vectors.h"
#include "meanwhile.h"
#include "stream.h"

/* Accumulators, one row of vectors and one broadcast must fit the register file. */
#define DOT_MR 12
/* Pairs along k in one round of the loop. */
#define DOT_STEPS 4
#define UNROLL _Pragma("GCC unroll 16")

/* Tiles of positions are some halves of vectors wide: of an odd number the last one is a vector of 32
 * bytes, which processors that multiply vectors of 64 in halves, one after the other, take half the time
 * for. */
typedef struct {
    __m512 whole[2];
    __m256 half;
} DotSums;

/* acc[m] += row[m][k, k + 1] * b */
INLINE void dot_step(const int mr, const int halves, const char *const *row, ptrdiff_t k,
                     const char *b, DotSums *acc) {
    __m512bh whole[2];
    __m256bh half;
    UNROLL for (int v = 0; v < halves / 2; v++) memcpy(whole + v, b + 64 * v, 64);
    if (halves % 2) memcpy(&half, b + 32 * (halves - 1), 32);
    UNROLL for (int m = 0; m < mr; m++) {
        int32_t pair;
        memcpy(&pair, row[m] + k, sizeof pair);
        if (halves == 1) {
            acc[m].half = _mm256_dpbf16_ps(acc[m].half, (__m256bh)_mm256_set1_epi32(pair), half);
            continue;
        }
        __m512i everywhere = _mm512_set1_epi32(pair);
        if (halves % 2) KEEP(everywhere);
        UNROLL for (int v = 0; v < halves / 2; v++)
            acc[m].whole[v] = _mm512_dpbf16_ps(acc[m].whole[v], (__m512bh)everywhere, whole[v]);
        if (halves % 2)
            acc[m].half =
                _mm256_dpbf16_ps(acc[m].half, (__m256bh)_mm512_castsi512_si256(everywhere), half);
    }
}

/* Sums of up to 32 channels begin, or go on from where they lie, and are put there. */
INLINE void dot_begin(const int halves, int go_on, const char *c, DotSums *sums) {
    UNROLL for (int v = 0; v < halves / 2; v++)
        sums->whole[v] = go_on ? _mm512_loadu_ps(c + 64 * v) : _mm512_setzero_ps();
    if (halves % 2)
        sums->half = go_on ? _mm256_loadu_ps((const float *)(c + 32 * (halves - 1)))
                           : _mm256_setzero_ps();
}
INLINE void dot_store(const int halves, char *c, const DotSums *sums) {
    UNROLL for (int v = 0; v < halves / 2; v++) _mm512_storeu_ps(c + 64 * v, sums->whole[v]);
    if (halves % 2) _mm256_storeu_ps((float *)(c + 32 * (halves - 1)), sums->half);
}

/* Sums rounded to bfloat16, so many `channels` of them. Sums of this instruction are not subnormal, so
 * that the one that rounds has none to flush. */
INLINE void dot_round(const int halves, char *c, ptrdiff_t channels, int streams,
                      const DotSums *sums) {
    if (halves == 1) {
        __m128i rounded = (__m128i)_mm256_cvtneps_pbh(sums->half);
        _mm_mask_storeu_epi16(c, (__mmask8)((1u << channels) - 1), rounded);
        return;
    }
    __m512 high = halves == 2   ? _mm512_setzero_ps()
                  : halves == 3 ? _mm512_castps256_ps512(sums->half)
                                : sums->whole[1];
    __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, sums->whole[0]);
    /* A store without a mask takes two thirds of the time; groups may begin within a line. */
    if (channels != 32)
        _mm512_mask_storeu_epi16(c, (__mmask32)((1u << channels) - 1), rounded);
    else if (streams && (uintptr_t)c % 64 == 0)
        STREAM_VECTOR(c, rounded);
    else
        _mm512_storeu_si512(c, rounded);
}

/* mr positions x halves*8 channels: c = sum over taps and k of
 * a[position][offset[t] + k] * panel[index[t]][k].
 * a, c: a pointer for each position, a_shift and c_shift bytes on; c is float or, `rounded`, bfloat16
 * of `channels`; panel [tap][kc/2][vectors*16][2]; offsets in bytes. `ahead`, unless NULL,
 * points to positions that are asked for; so are results, `touched` bytes on. */
INLINE void dot_rows(const int mr, const int halves, ptrdiff_t taps, ptrdiff_t kc, const char *const *a,
                     ptrdiff_t a_shift, const ptrdiff_t *offset, const ptrdiff_t *index,
                     const char *panel, char *const *c, ptrdiff_t c_shift, ptrdiff_t channels,
                     int rounded, int how, const char *const *ahead, ptrdiff_t touched) {
    const ptrdiff_t row_bytes = 64 * ((halves + 1) / 2);
    DotSums acc[DOT_MR];
    UNROLL for (int m = 0; m < mr; m++) dot_begin(halves, how == GO_ON, c[m] + c_shift, acc + m);
    /* Stores of few channels to each position are waited for, where prefetchers do not follow them. */
    if (rounded && how != STREAM)
        UNROLL for (int m = 0; m < mr; m++) {
            __builtin_prefetch(c[m] + (c_shift + touched), 1);
            __builtin_prefetch(c[m] + (c_shift + touched + 2 * channels - 1), 1);
        }
    for (ptrdiff_t t = 0; t < taps; t++) {
        const char *row[DOT_MR], *b = panel + index[t] * (kc / 2) * row_bytes;
        ptrdiff_t shift = a_shift + offset[t];
        /* Pointers would else be copied to the stack before the first tap, and be read from there; and the
         * shift to a vector register, which each pointer waits for until products before it are done. */
        __asm__ volatile("" : "+m"(shift)::"memory");
        UNROLL for (int m = 0; m < mr; m++) row[m] = a[m] + shift;
        /* A line of each position at a time: what is asked for at once, loads wait for. */
        for (ptrdiff_t k = 0; k < kc;) {
            const ptrdiff_t end = ahead ? MIN(kc, k + 32) : kc;
            if (ahead)
                UNROLL for (int m = 0; m < mr; m++)
                    __builtin_prefetch(ahead[m] + (a_shift + offset[t] + 2 * k), 0, 2);
            for (; k + 2 * DOT_STEPS <= end; k += 2 * DOT_STEPS, b += DOT_STEPS * row_bytes)
                UNROLL for (int i = 0; i < DOT_STEPS; i++)
                    dot_step(mr, halves, row, 2 * k + 4 * i, b + i * row_bytes, acc);
            for (; k < end; k += 2, b += row_bytes) dot_step(mr, halves, row, 2 * k, b, acc);
        }
    }
    /* Whole lines past the caches; groups may begin within one. */
    UNROLL for (int m = 0; m < mr; m++) {
        if (rounded)
            dot_round(halves, c[m] + c_shift, channels, how == STREAM, acc + m);
        else
            dot_store(halves, c[m] + c_shift, acc + m);
    }
}

/* mr channels x nv*16 positions: c = sum over taps and k of a[t][channel][k] * b[offset[t]][k]
 * [position]. a: panel [tap][kc/32][width][32]; b: rows of pairs of k, b_pitch bytes apart. */
INLINE void dot_columns(const int mr, const int nv, ptrdiff_t taps, ptrdiff_t kc, const char *a,
                        ptrdiff_t width, const char *b, ptrdiff_t b_pitch, const ptrdiff_t *offset,
                        char *c, ptrdiff_t c_pitch, int accumulate) {
    DotSums acc[DOT_MR];
    UNROLL for (int m = 0; m < mr; m++) dot_begin(2 * nv, accumulate, c + m * c_pitch, acc + m);
    for (ptrdiff_t t = 0; t < taps; t++) {
        const char *pairs = b + offset[t];
        for (ptrdiff_t k = 0; k < kc; k += 32, a += 64 * width) {
            const char *row[DOT_MR];
            UNROLL for (int m = 0; m < mr; m++) row[m] = a + 64 * m;
            for (ptrdiff_t i = 0; i < 64; i += 4 * DOT_STEPS)
                UNROLL for (int j = 0; j < DOT_STEPS; j++, pairs += b_pitch)
                    dot_step(mr, 2 * nv, row, i + 4 * j, pairs, acc);
        }
    }
    UNROLL for (int m = 0; m < mr; m++) dot_store(2 * nv, c + m * c_pitch, acc + m);
}

typedef void (*dot_rows_fn)(ptrdiff_t taps, ptrdiff_t kc, const char *const *a, ptrdiff_t a_shift,
                            const ptrdiff_t *offset, const ptrdiff_t *index, const char *panel,
                            char *const *c, ptrdiff_t c_shift, ptrdiff_t channels, int rounded,
                            int how, const char *const *ahead, ptrdiff_t touched);
typedef void (*dot_columns_fn)(ptrdiff_t taps, ptrdiff_t kc, const char *a, ptrdiff_t width,
                               const char *b, ptrdiff_t b_pitch, const ptrdiff_t *offset, char *c,
                               ptrdiff_t c_pitch, int accumulate);

#define HEIGHTS(X, width) X(1, width) X(2, width) X(3, width) X(4, width) X(5, width) X(6, width)    \
    X(7, width) X(8, width) X(9, width) X(10, width) X(11, width) X(12, width)
#define INSTANCE(mr, halves)                                                                       \
    static void dot_rows_##mr##x##halves(                                                          \
        ptrdiff_t taps, ptrdiff_t kc, const char *const *a, ptrdiff_t a_shift,                     \
        const ptrdiff_t *offset, const ptrdiff_t *index, const char *panel, char *const *c,        \
        ptrdiff_t c_shift, ptrdiff_t channels, int rounded, int how, const char *const *ahead,     \
        ptrdiff_t touched) {                                                                       \
        dot_rows(mr, halves, taps, kc, a, a_shift, offset, index, panel, c, c_shift, channels,     \
                 rounded, how, ahead, touched);                                                    \
    }
HEIGHTS(INSTANCE, 1)
HEIGHTS(INSTANCE, 2)
HEIGHTS(INSTANCE, 3)
HEIGHTS(INSTANCE, 4)
#undef INSTANCE
#define INSTANCE(mr, nv)                                                                           \
    static void dot_columns_##mr##x##nv(ptrdiff_t taps, ptrdiff_t kc, const char *a,               \
                                        ptrdiff_t width, const char *b, ptrdiff_t b_pitch,         \
                                        const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch,       \
                                        int accumulate) {                                          \
        dot_columns(mr, nv, taps, kc, a, width, b, b_pitch, offset, c, c_pitch, accumulate);       \
    }
HEIGHTS(INSTANCE, 1)
HEIGHTS(INSTANCE, 2)
#undef INSTANCE
#define ENTRY(mr, halves) [halves][mr] = dot_rows_##mr##x##halves,
static const dot_rows_fn dot_rows_tiles[5][DOT_MR + 1] = {HEIGHTS(ENTRY, 1) HEIGHTS(ENTRY, 2)
                                                              HEIGHTS(ENTRY, 3) HEIGHTS(ENTRY, 4)};
#undef ENTRY
#define ENTRY(mr, nv) [nv][mr] = dot_columns_##mr##x##nv,
static const dot_columns_fn dot_columns_tiles[3][DOT_MR + 1] = {HEIGHTS(ENTRY, 1) HEIGHTS(ENTRY, 2)};
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
    const dot_rows_fn *tile = dot_rows_tiles[2 * nv - (channels <= 16 * nv - 8)];
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
