/* Sixteen rows of a few elements each, one row after the other, as columns. A square would be mostly
 * empty: here the elements fill vectors, and a column is picked from two of them at a time. */
#ifndef GRADOPS_DEAL_H
#define GRADOPS_DEAL_H

#include "stream.h"

#if VECTOR_BYTES == 64

enum { MOST_COLUMNS = 9 };

/* Where element n is: of floats in their order, or of pairs as unpacklo and unpackhi make them. */
INLINE int vector_of(const int pairs, const int n) { return pairs ? n / 32 * 2 + n % 8 / 4 : n / 16; }
INLINE int lane_of(const int pairs, const int n) {
    return pairs ? n % 32 / 8 * 4 + n % 4 : n % 16;
}

#define LANE(i) (lane_of(pairs, (i) * cols + c) | vector_of(pairs, (i) * cols + c) % 2 << 4)
#define KEPT(i) (vector_of(pairs, (i) * cols + c) / 2 == two ? 1 << (i) : 0)
#define ALL_16(f)                                                                                  \
    f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), \
        f(15)
INLINE int any_of(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l,
                  int m, int n, int o, int p) {
    return a | b | c | d | e | f | g | h | i | j | k | l | m | n | o | p;
}

/* Column c goes to place[c] * unit bytes. `streams`: past the caches. */
INLINE void deal_columns(const int cols, const int pairs, const __m512i *v, char *dst,
                         const ptrdiff_t unit, const ptrdiff_t *place, const int streams) {
    _Pragma("GCC unroll 16") for (int c = 0; c < cols; c++) {
        __m512i column = _mm512_setzero_si512();
        _Pragma("GCC unroll 16") for (int two = 0; two < (cols + 1) / 2; two++) {
            const int kept = any_of(ALL_16(KEPT));
            if (kept)
                column = _mm512_mask_mov_epi32(
                    column, (__mmask16)kept,
                    _mm512_permutex2var_epi32(v[2 * two], (__m512i)(indices_f32){ALL_16(LANE)},
                                              v[2 * two + 1]));
        }
        char *to = dst + place[c] * unit;
        if (streams) STREAM_VECTOR(to, column);
        else _mm512_storeu_si512(to, column);
    }
}

INLINE void deal_floats(const int cols, const float *rows, float *dst, const ptrdiff_t *place,
                        int streams) {
    __m512i v[MOST_COLUMNS + 1];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols; i++) v[i] = _mm512_loadu_si512(rows + 16 * i);
    v[cols] = _mm512_setzero_si512();
    if (streams) deal_columns(cols, 0, v, (char *)dst, sizeof(float), place, 1);
    else deal_columns(cols, 0, v, (char *)dst, sizeof(float), place, 0);
}

/* Two times sixteen rows of 16-bit elements: those of both are a pair. */
INLINE void deal_pairs_of(const int cols, const uint16_t *even, const uint16_t *odd, char *dst,
                          const ptrdiff_t *place, int streams) {
    __m512i v[MOST_COLUMNS + 1];
    _Pragma("GCC unroll 16") for (int i = 0; i < cols; i += 2) {
        const __mmask32 mask = i + 1 < cols ? ~0u : 0xffffu;
        __m512i a = _mm512_maskz_loadu_epi16(mask, even + 16 * i);
        __m512i b = _mm512_maskz_loadu_epi16(mask, odd + 16 * i);
        v[i] = _mm512_unpacklo_epi16(a, b);
        v[i + 1] = _mm512_unpackhi_epi16(a, b);
    }
    if (streams) deal_columns(cols, 1, v, dst, 1, place, 1);
    else deal_columns(cols, 1, v, dst, 1, place, 0);
}

/* Call a function for a constant number of columns; false if there is none for so many. */
#define BY_COLUMNS(cols, function, ...)                                                            \
    switch (cols) {                                                                                \
    case 2: function(2, __VA_ARGS__); return 1;                                                    \
    case 3: function(3, __VA_ARGS__); return 1;                                                    \
    case 4: function(4, __VA_ARGS__); return 1;                                                    \
    case 5: function(5, __VA_ARGS__); return 1;                                                    \
    case 6: function(6, __VA_ARGS__); return 1;                                                    \
    case 7: function(7, __VA_ARGS__); return 1;                                                    \
    case 8: function(8, __VA_ARGS__); return 1;                                                    \
    case 9: function(9, __VA_ARGS__); return 1;                                                    \
    }                                                                                              \
    return 0;

static int deal_rows(int streams, const float *rows, ptrdiff_t cols, float *dst,
                     const ptrdiff_t *place) {
    BY_COLUMNS(cols, deal_floats, rows, dst, place, streams)
}
static int deal_pairs(int streams, const uint16_t *even, const uint16_t *odd, ptrdiff_t cols,
                      char *dst, const ptrdiff_t *place) {
    BY_COLUMNS(cols, deal_pairs_of, even, odd, dst, place, streams)
}

#else

static int deal_rows(int streams, const float *rows, ptrdiff_t cols, float *dst,
                     const ptrdiff_t *place) {
    (void)streams, (void)rows, (void)cols, (void)dst, (void)place;
    return 0;
}

#endif

#endif
