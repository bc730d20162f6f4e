/* Sums of few products of bfloat16 pairs, of a single tap: all channels of a position before the next one's,
 * in the order of memory. Tiles write 64 bytes of each of twelve positions in turn, and what they do beside
 * so few products takes as long again. */
#ifndef GRADOPS_FEW_PAIRS_H
#define GRADOPS_FEW_PAIRS_H

#include "dot.h"

/* Blocks of 32 channels, of which panels [pair][channel][2] are block_bytes apart, and one more of
 * `channels`, nv vectors wide. What follows an odd number of `products` is not read. */
typedef struct {
    const char *panel, *last_panel;
    ptrdiff_t blocks, block_bytes, channels;
    int products, nv, streams;
} FewPairs;

#if VECTOR_PAIRS
/* Products of a sum at the most. */
enum { FEW_PAIRED = 16 };
#define UNROLL _Pragma("GCC unroll 8")

/* `rows` positions, a_step and c_step bytes apart: a pointer for each took half as long again. The last
 * block's weights stay in registers: loads of whole vectors take as long as the products. */
INLINE void few_pairs(const int products, const int nv, const FewPairs *few, const char *a,
                      ptrdiff_t a_step, char *c, ptrdiff_t c_step, ptrdiff_t rows) {
    const int pairs = (products + 1) / 2, streams = few->streams;
    const ptrdiff_t channels = few->channels;
    __m512bh last[FEW_PAIRED / 2][2];
    UNROLL for (int k = 0; k < pairs; k++) memcpy(last[k], few->last_panel + 64 * nv * k, 64 * nv);
    for (; rows > 0; rows--, a += a_step, c += c_step) {
        const char *panel = few->panel;
        char *dst = c;
        __m512bh x[FEW_PAIRED / 2];
        DotSums sums;
        UNROLL for (int k = 0; k < pairs; k++) {
            uint32_t pair;
            uint16_t first;
            memcpy(&first, a + 4 * k, sizeof first);
            pair = first;
            if (2 * k + 1 < products) memcpy(&pair, a + 4 * k, sizeof pair);
            x[k] = (__m512bh)_mm512_set1_epi32((int)pair);
        }
        for (ptrdiff_t n = few->blocks; n > 0; n--, panel += few->block_bytes, dst += 64) {
            dot_begin(4, 0, NULL, &sums);
            UNROLL for (int k = 0; k < pairs; k++) UNROLL for (int v = 0; v < 2; v++) {
                __m512bh w;
                memcpy(&w, panel + 128 * k + 64 * v, sizeof w);
                sums.whole[v] = _mm512_dpbf16_ps(sums.whole[v], x[k], w);
            }
            dot_round(4, dst, 32, streams, &sums);
        }
        dot_begin(2 * nv, 0, NULL, &sums);
        UNROLL for (int k = 0; k < pairs; k++) UNROLL for (int v = 0; v < nv; v++)
            sums.whole[v] = _mm512_dpbf16_ps(sums.whole[v], x[k], last[k][v]);
        dot_round(2 * nv, dst, channels, streams, &sums);
    }
}

typedef void (*few_pairs_fn)(const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                             ptrdiff_t c_step, ptrdiff_t rows);
#define COUNTS(X, nv)                                                                              \
    X(1, nv) X(2, nv) X(3, nv) X(4, nv) X(5, nv) X(6, nv) X(7, nv) X(8, nv)                        \
    X(9, nv) X(10, nv) X(11, nv) X(12, nv) X(13, nv) X(14, nv) X(15, nv) X(16, nv)
#define INSTANCE(products, nv)                                                                     \
    static void few_pairs_##products##x##nv(const FewPairs *few, const char *a, ptrdiff_t a_step,  \
                                            char *c, ptrdiff_t c_step, ptrdiff_t rows) {           \
        few_pairs(products, nv, few, a, a_step, c, c_step, rows);                                  \
    }
COUNTS(INSTANCE, 1)
COUNTS(INSTANCE, 2)
#undef INSTANCE
#define ENTRY(products, nv) [nv][products] = few_pairs_##products##x##nv,
static const few_pairs_fn few_pairs_of[3][FEW_PAIRED + 1] = {COUNTS(ENTRY, 1) COUNTS(ENTRY, 2)};
#undef ENTRY
#undef COUNTS
#undef UNROLL

static void run_few_pairs(const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                          ptrdiff_t c_step, ptrdiff_t rows) {
    few_pairs_of[few->nv][few->products](few, a, a_step, c, c_step, rows);
}
#else
enum { FEW_PAIRED = 0 };
static void run_few_pairs(const FewPairs *few, const char *a, ptrdiff_t a_step, char *c,
                          ptrdiff_t c_step, ptrdiff_t rows) {
    (void)few, (void)a, (void)a_step, (void)c, (void)c_step, (void)rows;
}
#endif

#endif
