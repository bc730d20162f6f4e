/* float32 and float16 as sums of bfloat16 parts, which AMX multiplies: three parts hold the 24 bits of
 * a float32, two the 11 of a float16, exactly.
 *
 * AMX flushes subnormal factors and sums. Scaled by 2**24 the parts of the smallest float are still
 * normal, and of a result only what is less than 2**-174 is flushed. In exchange sums overflow from
 * 2**80 on: a result that is not finite is to be computed otherwise. */
#ifndef GRADOPS_SPLIT_H
#define GRADOPS_SPLIT_H

#include "vector_io.h"

enum { SPLIT_K = 32 };

#if HAVE_AMX

#define SPLIT_SCALE 0x1p24f
#define UNSPLIT_SCALE 0x1p-48f

/* A part of both vectors is taken off them: 16 pairs of bfloat16, rounded to nearest. */
INLINE __m512i split_off(__m512 *low, __m512 *high) {
    const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i a = _mm512_and_si512(_mm512_add_epi32((__m512i)*low, half), upper);
    __m512i b = _mm512_and_si512(_mm512_add_epi32((__m512i)*high, half), upper);
    *low -= (__m512)a;
    *high -= (__m512)b;
    return _mm512_or_si512(_mm512_srli_epi32(a, 16), b);
}

/* Pairs (low, high) split into `parts`, `pitch` bytes apart. The last one is what the others leave:
 * a bfloat16 as it is, and a NaN as what it was. */
INLINE void split_pair(const int parts, __m512 low, __m512 high, char *dst, ptrdiff_t pitch,
                       __mmask16 mask) {
    low *= SPLIT_SCALE;
    high *= SPLIT_SCALE;
    for (int p = 0; p < parts - 1; p++)
        _mm512_mask_storeu_epi32(dst + p * pitch, mask, split_off(&low, &high));
    __m512i rest = _mm512_or_si512(_mm512_srli_epi32((__m512i)low, 16), (__m512i)high);
    _mm512_mask_storeu_epi32(dst + (parts - 1) * pitch, mask, rest);
}

/* A row of n contiguous elements, in steps of 32: [part][pair], where pair i holds the elements i and
 * 16 + i of the step; zeros past the end. */
#define DEFINE_SPLIT_ROW(suffix, size, parts)                                                      \
    static void split_row_##suffix(const char *src, ptrdiff_t n, char *dst) {                      \
        for (; n >= SPLIT_K; n -= SPLIT_K, src += SPLIT_K * size, dst += 64 * parts)               \
            split_pair(parts, (__m512)read_##suffix(src, 16),                                      \
                       (__m512)read_##suffix(src + 16 * size, 16), dst, 64, 0xffff);                       \
        if (n > 0)                                                                                 \
            split_pair(parts, (__m512)read_##suffix(src, n < 16 ? (int)n : 16),                    \
                       n > 16 ? (__m512)read_##suffix(src + 16 * size, (int)n - 16)                \
                              : _mm512_setzero_ps(), dst, 64, 0xffff);                                     \
    }
DEFINE_SPLIT_ROW(f32, 4, 3)
DEFINE_SPLIT_ROW(f16, 2, 2)

/* Two rows of n elements: dst[part][i] = (low[i], high[i]), parts `pitch` bytes apart; high may be
 * NULL for zeros. */
#define DEFINE_ZIP_SPLIT(suffix, size, parts)                                                      \
    static void zip_split_##suffix(const char *low, const char *high, ptrdiff_t n, char *dst,      \
                                   ptrdiff_t pitch) {                                              \
        for (ptrdiff_t i = 0; i < n; i += 16) {                                                    \
            int count = n - i < 16 ? (int)(n - i) : 16;                                            \
            __m512 a = (__m512)read_##suffix(low + i * size, count), b = _mm512_setzero_ps();      \
            if (high) b = (__m512)read_##suffix(high + i * size, count);                           \
            split_pair(parts, a, b, dst + 4 * i, pitch, (__mmask16)(0xffffu >> (16 - count)));     \
        }                                                                                          \
    }
DEFINE_ZIP_SPLIT(f32, 4, 3)
DEFINE_ZIP_SPLIT(f16, 2, 2)

static void zip_split(int dtype, const char *low, const char *high, ptrdiff_t n, char *dst,
                      ptrdiff_t pitch) {
    if (dtype == F16) zip_split_f16(low, high, n, dst, pitch);
    else zip_split_f32(low, high, n, dst, pitch);
}

/* A row of 32 floats: dst[part] holds the pairs of elements i and 16 + i. */
static void split_step(int dtype, const float *row, char *dst, ptrdiff_t pitch) {
    __m512 low = _mm512_loadu_ps(row), high = _mm512_loadu_ps(row + 16);
    if (dtype == F16) split_pair(2, low, high, dst, pitch, 0xffff);
    else split_pair(3, low, high, dst, pitch, 0xffff);
}

static void split_row(int dtype, const char *src, ptrdiff_t n, char *dst) {
    if (dtype == F16) split_row_f16(src, n, dst);
    else split_row_f32(src, n, dst);
}

/* A step of 32 rows of `width` floats: dst[part][i][column] holds the rows i and 16 + i. */
static void split_rows(int dtype, const float *rows, ptrdiff_t width, char *dst) {
    ptrdiff_t half = SPLIT_K / 2 * width;
    for (ptrdiff_t i = 0; i < half; i += 16) {
        __m512 low = _mm512_loadu_ps(rows + i), high = _mm512_loadu_ps(rows + half + i);
        if (dtype == F16) split_pair(2, low, high, dst + 4 * i, 4 * half, 0xffff);
        else split_pair(3, low, high, dst + 4 * i, 4 * half, 0xffff);
    }
}

/* Rows of n sums of products of scaled parts as they should be; returns whether all are finite. */
static int unsplit(float *x, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t n) {
    vec_f32 zero = {0};
    for (ptrdiff_t r = 0; r < rows; r++, x += pitch)
        for (ptrdiff_t i = 0; i < n; i += 16) {
            ptrdiff_t count = MIN(n - i, 16);
            vec_f32 v = load_first_f32(x + i, count);
            zero += v - v;
            store_first_f32(x + i, v * UNSPLIT_SCALE, count);
        }
    return !_mm512_cmp_ps_mask((__m512)zero, _mm512_setzero_ps(), _CMP_NEQ_UQ);
}

#else

/* Never called: the plan of the other tiers splits nothing. */
static void split_row(int dtype, const char *src, ptrdiff_t n, char *dst) {
    (void)dtype, (void)src, (void)n, (void)dst;
}
static void split_rows(int dtype, const float *rows, ptrdiff_t width, char *dst) {
    (void)dtype, (void)rows, (void)width, (void)dst;
}
static void zip_split(int dtype, const char *low, const char *high, ptrdiff_t n, char *dst,
                      ptrdiff_t pitch) {
    (void)dtype, (void)low, (void)high, (void)n, (void)dst, (void)pitch;
}
static void split_step(int dtype, const float *row, char *dst, ptrdiff_t pitch) {
    (void)dtype, (void)row, (void)dst, (void)pitch;
}
static int unsplit(float *x, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t n) {
    (void)x, (void)pitch, (void)rows, (void)n;
    return 0;
}

#endif

#endif
