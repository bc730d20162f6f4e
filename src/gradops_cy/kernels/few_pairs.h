/* Sums of few products of bfloat16 pairs, of a single tap: all channels of a position before the next ones',
 * in the order of memory. Tiles write 64 bytes of each of twelve positions in turn, and what they do beside
 * so few products takes as long again. */
#ifndef GRADOPS_FEW_PAIRS_H
#define GRADOPS_FEW_PAIRS_H

#include "dot.h"

/* Blocks of 32 channels, of which panels [pair][channel][2] are block_bytes apart, and one more of
 * `channels`, nv vectors wide. What follows an odd number of products, the last of which is `single`, is
 * not read. `checks`: sums have to be finite. */
typedef struct {
    const char *panel, *last_panel;
    ptrdiff_t blocks, block_bytes, channels;
    int pairs, nv, single, streams, checks;
} FewPairs;

#if VECTOR_PAIRS
/* Products of a sum at the most, and how many more the second block and the third allow. */
enum { FEW_PAIRED = 16, MORE_PAIRED = 4 };
#define MOST_PAIRS ((FEW_PAIRED + 2 * MORE_PAIRED) / 2)
#define UNROLL _Pragma("GCC unroll 12")

INLINE void splat_pairs(const int pairs, int single, const char *a, __m512bh *x) {
    UNROLL for (int k = 0; k < pairs; k++) {
        uint32_t pair = 0;
        if (k + 1 == pairs && single) memcpy(&pair, a + 4 * k, 2);
        else memcpy(&pair, a + 4 * k, 4);
        x[k] = (__m512bh)_mm512_set1_epi32((int)pair);
    }
}

/* Round a block's sums, which `unfit` tells of if they are checked. */
INLINE void few_round(const int nv, const FewPairs *few, char *c, ptrdiff_t channels,
                      const DotSums *sums, __mmask16 *unfit) {
    enum { NAN_OR_INF = 0x99 };
    if (few->checks)
        UNROLL for (int v = 0; v < nv; v++)
            *unfit |= _mm512_fpclass_ps_mask(sums->whole[v], NAN_OR_INF);
    dot_round(2 * nv, c, channels, few->streams, sums);
}

/* The only block: its weights stay in registers. Return whether sums are as checked. */
INLINE int few_pairs_alone(const int pairs, const int nv, const FewPairs *few, const char *a,
                           ptrdiff_t a_step, char *c, ptrdiff_t c_step, ptrdiff_t rows) {
    __m512bh known[FEW_PAIRED / 2][2];
    __mmask16 unfit = 0;
    UNROLL for (int k = 0; k < pairs; k++)
        memcpy(known[k], few->last_panel + 64 * nv * k, 64 * nv);
    /* Two positions of half a line each are stored as one: halves of lines take twice as long. */
    if (nv == 1 && few->channels == 16 && c_step == 32)
        for (; rows > 1; rows -= 2, a += 2 * a_step, c += 2 * c_step) {
            __m512bh x[2][MOST_PAIRS];
            DotSums sums;
            dot_begin(4, 0, NULL, &sums);
            UNROLL for (int i = 0; i < 2; i++) splat_pairs(pairs, few->single, a + i * a_step, x[i]);
            UNROLL for (int k = 0; k < pairs; k++) UNROLL for (int i = 0; i < 2; i++)
                sums.whole[i] = _mm512_dpbf16_ps(sums.whole[i], x[i][k], known[k][0]);
            few_round(2, few, c, 32, &sums, &unfit);
        }
    for (; rows > 0; rows--, a += a_step, c += c_step) {
        __m512bh x[MOST_PAIRS];
        DotSums sums;
        splat_pairs(pairs, few->single, a, x);
        dot_begin(2 * nv, 0, NULL, &sums);
        UNROLL for (int k = 0; k < pairs; k++) UNROLL for (int v = 0; v < nv; v++)
            sums.whole[v] = _mm512_dpbf16_ps(sums.whole[v], x[k], known[k][v]);
        few_round(nv, few, c, few->channels, &sums, &unfit);
    }
    return !unfit;
}

/* One of the blocks, for one or two positions: a vector of weights takes as long to load as to multiply. */
INLINE void few_pairs_of_block(const int positions, const int pairs, const int nv,
                               const FewPairs *few, const __m512bh (*x)[MOST_PAIRS],
                               const char *panel, char *c, ptrdiff_t c_step, ptrdiff_t channels,
                               __mmask16 *unfit) {
    DotSums sums[2];
    UNROLL for (int i = 0; i < positions; i++) dot_begin(2 * nv, 0, NULL, sums + i);
    UNROLL for (int k = 0; k < pairs; k++) UNROLL for (int v = 0; v < nv; v++) {
        __m512bh w;
        memcpy(&w, panel + 64 * (nv * k + v), sizeof w);
        UNROLL for (int i = 0; i < positions; i++)
            sums[i].whole[v] = _mm512_dpbf16_ps(sums[i].whole[v], x[i][k], w);
    }
    UNROLL for (int i = 0; i < positions; i++)
        few_round(nv, few, c + i * c_step, channels, sums + i, unfit);
}
INLINE void few_pairs_of_blocks(const int positions, const int pairs, const int nv,
                                const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                                ptrdiff_t c_step, __mmask16 *unfit) {
    __m512bh x[2][MOST_PAIRS];
    const char *panel = few->panel;
    UNROLL for (int i = 0; i < positions; i++, a += a_step) splat_pairs(pairs, few->single, a, x[i]);
    for (ptrdiff_t n = few->blocks; n > 0; n--, panel += few->block_bytes, c += 64)
        few_pairs_of_block(positions, pairs, 2, few, x, panel, c, c_step, 32, unfit);
    few_pairs_of_block(positions, pairs, nv, few, x, few->last_panel, c, c_step, few->channels,
                       unfit);
}

typedef int (*few_pairs_fn)(const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                            ptrdiff_t c_step, ptrdiff_t rows);
#define UP_TO_8(X, nv) X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv) X(7, nv) X(8, nv)
#define UP_TO_12(X, nv) UP_TO_8(X, nv) X(9, nv) X(10, nv) X(11, nv) X(12, nv)
#define INSTANCE(pairs, nv)                                                                        \
    static int few_pairs_alone_##pairs##x##nv(const FewPairs *few, const char *a,                  \
                                              ptrdiff_t a_step, char *c, ptrdiff_t c_step,         \
                                              ptrdiff_t rows) {                                    \
        return few_pairs_alone(pairs, nv, few, a, a_step, c, c_step, rows);                        \
    }
UP_TO_8(INSTANCE, 1)
UP_TO_8(INSTANCE, 2)
#undef INSTANCE
/* Of vectors of 32 channels that are neither checked nor streamed, what is not asked of each is a tenth of the
 * time. */
INLINE int all_few_pairs_of_blocks(const int pairs, const int nv, const int plain, const FewPairs *few,
                                   const char *a, ptrdiff_t a_step, char *c, ptrdiff_t c_step,
                                   ptrdiff_t rows) {
    FewPairs known = *few;
    __mmask16 unfit = 0;
    if (plain) known.checks = known.streams = 0, known.channels = 32;
    for (; rows > 1; rows -= 2, a += 2 * a_step, c += 2 * c_step)
        few_pairs_of_blocks(2, pairs, nv, &known, a, a_step, c, c_step, &unfit);
    if (rows) few_pairs_of_blocks(1, pairs, nv, &known, a, a_step, c, c_step, &unfit);
    return !unfit;
}
#define INSTANCE(pairs, nv)                                                                        \
    static int few_pairs_of_blocks_##pairs##x##nv(const FewPairs *few, const char *a,              \
                                                  ptrdiff_t a_step, char *c, ptrdiff_t c_step,     \
                                                  ptrdiff_t rows) {                                \
        if (nv == 2 && few->channels == 32 && !few->checks && !few->streams)                       \
            return all_few_pairs_of_blocks(pairs, nv, 1, few, a, a_step, c, c_step, rows);         \
        return all_few_pairs_of_blocks(pairs, nv, 0, few, a, a_step, c, c_step, rows);             \
    }
UP_TO_12(INSTANCE, 1)
UP_TO_12(INSTANCE, 2)
#undef INSTANCE
#define ENTRY(pairs, nv) [0][nv][pairs] = few_pairs_alone_##pairs##x##nv,
#define ENTRY_OF_BLOCKS(pairs, nv) [1][nv][pairs] = few_pairs_of_blocks_##pairs##x##nv,
static const few_pairs_fn few_pairs[2][3][MOST_PAIRS + 1] = {
    UP_TO_8(ENTRY, 1) UP_TO_8(ENTRY, 2) UP_TO_12(ENTRY_OF_BLOCKS, 1) UP_TO_12(ENTRY_OF_BLOCKS, 2)};
#undef ENTRY
#undef ENTRY_OF_BLOCKS
#undef UP_TO_8
#undef UP_TO_12
#undef MOST_PAIRS
#undef UNROLL

/* `rows` positions, a_step and c_step bytes apart; return whether sums are as checked. A pointer for each
 * took half as long again. */
static int run_few_pairs(const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                         ptrdiff_t c_step, ptrdiff_t rows) {
    return few_pairs[few->blocks > 0][few->nv][few->pairs](few, a, a_step, c, c_step, rows);
}
#else
enum { FEW_PAIRED = 0, MORE_PAIRED = 0 };
static int run_few_pairs(const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                         ptrdiff_t c_step, ptrdiff_t rows) {
    (void)few, (void)a, (void)a_step, (void)c, (void)c_step, (void)rows;
    return 1;
}
#endif

#endif
