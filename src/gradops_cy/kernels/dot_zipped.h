/* Products of bfloat16 pairs by AVX512-BF16 for rows of positions that are read where they lie: those of
 * two channels are zipped in registers. Tiles of up to ZIPPED_MR columns by 32 positions. */
#ifndef GRADOPS_DOT_ZIPPED_H
#define GRADOPS_DOT_ZIPPED_H

#include "simd.h"

/* Accumulators, a pair of rows and a broadcast must fit the register file. */
#define ZIPPED_MR 12
#define UNROLL _Pragma("GCC unroll 16")

/* mr columns x 32 positions: c = sum over k of a[column][k] * b[k][position]; a: panel
 * [kc/32][width][32]; b: rows b_pitch bytes apart, of which those `ahead` bytes on are asked for, unless
 * it is 0. */
INLINE void dot_zipped(const int mr, ptrdiff_t kc, const char *a, ptrdiff_t width, const char *b,
                       ptrdiff_t b_pitch, ptrdiff_t ahead, char *c, ptrdiff_t c_pitch,
                       int accumulate) {
    __m512 acc[ZIPPED_MR][2];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < 2; v++) acc[m][v] = _mm512_setzero_ps();
    for (ptrdiff_t k = 0; k < kc; k += 32, a += 64 * width) {
        const ptrdiff_t end = 2 * (kc - k < 32 ? kc - k : 32);
        for (ptrdiff_t i = 0; i < end; i += 4, b += 2 * b_pitch) {
            const __m512i even = _mm512_loadu_si512(b), odd = _mm512_loadu_si512(b + b_pitch);
            const __m512bh low = (__m512bh)_mm512_unpacklo_epi16(even, odd);
            const __m512bh high = (__m512bh)_mm512_unpackhi_epi16(even, odd);
            if (ahead) {
                __builtin_prefetch(b + ahead);
                __builtin_prefetch(b + b_pitch + ahead);
            }
            UNROLL for (int m = 0; m < mr; m++) {
                int32_t pair;
                memcpy(&pair, a + 64 * m + i, sizeof pair);
                const __m512bh am = (__m512bh)_mm512_set1_epi32(pair);
                acc[m][0] = _mm512_dpbf16_ps(acc[m][0], am, low);
                acc[m][1] = _mm512_dpbf16_ps(acc[m][1], am, high);
            }
        }
    }
    /* Zipping took four positions of each eight to either vector. */
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    UNROLL for (int m = 0; m < mr; m++) {
        const __m512d low = (__m512d)acc[m][0], high = (__m512d)acc[m][1];
        __m512 sums[2] = {(__m512)_mm512_permutex2var_pd(low, first, high),
                          (__m512)_mm512_permutex2var_pd(low, second, high)};
        UNROLL for (int v = 0; v < 2; v++) {
            char *place = c + m * c_pitch + 64 * v;
            if (accumulate) sums[v] += _mm512_loadu_ps(place);
            _mm512_storeu_ps(place, sums[v]);
        }
    }
}

typedef void (*zipped_fn)(ptrdiff_t kc, const char *a, ptrdiff_t width, const char *b,
                          ptrdiff_t b_pitch, ptrdiff_t ahead, char *c, ptrdiff_t c_pitch,
                          int accumulate);

#define HEIGHTS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#define INSTANCE(mr)                                                                               \
    static void dot_zipped_##mr(ptrdiff_t kc, const char *a, ptrdiff_t width, const char *b,       \
                                ptrdiff_t b_pitch, ptrdiff_t ahead, char *c, ptrdiff_t c_pitch,    \
                                int accumulate) {                                                  \
        dot_zipped(mr, kc, a, width, b, b_pitch, ahead, c, c_pitch, accumulate);                   \
    }
HEIGHTS(INSTANCE)
#undef INSTANCE
#define ENTRY(mr) [mr] = dot_zipped_##mr,
static const zipped_fn dot_zipped_tiles[ZIPPED_MR + 1] = {HEIGHTS(ENTRY)};
#undef ENTRY
#undef HEIGHTS
#undef UNROLL

/* The first tile asks for what comes next. */
static void run_zipped(ptrdiff_t channels, ptrdiff_t kc, const char *a, ptrdiff_t width,
                       const char *b, ptrdiff_t b_pitch, ptrdiff_t ahead, char *c, ptrdiff_t c_pitch,
                       int accumulate) {
    for (ptrdiff_t tiles = (channels + ZIPPED_MR - 1) / ZIPPED_MR; tiles > 0; tiles--) {
        ptrdiff_t mr = (channels + tiles - 1) / tiles;
        dot_zipped_tiles[mr](kc, a, width, b, b_pitch, ahead, c, c_pitch, accumulate);
        a += 64 * mr;
        c += mr * c_pitch;
        channels -= mr;
        ahead = 0;
    }
}

#endif
