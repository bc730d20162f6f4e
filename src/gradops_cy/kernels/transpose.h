/* Transposition of small matrices, one register-sized square at a time.
 *
 * A square of L vectors of L lanes takes log2(L) rounds; in the round of distance h the lanes whose
 * number has bit h change places with those of the vector h further on that have it not. */
#ifndef GRADOPS_TRANSPOSE_H
#define GRADOPS_TRANSPOSE_H

#include "deal.h"

/* Lane numbers of __builtin_shufflevector(a, b): of the vector without bit h, and of the one with. */
#define LOW(l, h, L) (((l) & (h)) ? (L) + (l) - (h) : (l))
#define HIGH(l, h, L) (((l) & (h)) ? (L) + (l) : (l) + (h))
#define LANES_2(f, h, L) f(0, h, L), f(1, h, L)
#define LANES_4(f, h, L) LANES_2(f, h, L), f(2, h, L), f(3, h, L)
#define LANES_8(f, h, L) LANES_4(f, h, L), f(4, h, L), f(5, h, L), f(6, h, L), f(7, h, L)
#define LANES_16(f, h, L)                                                                        \
    LANES_8(f, h, L), f(8, h, L), f(9, h, L), f(10, h, L), f(11, h, L), f(12, h, L),             \
        f(13, h, L), f(14, h, L), f(15, h, L)

#define ROUND(vec, L, h)                                                                \
    _Pragma("GCC unroll 16") for (int i = 0; i < L; i++) {                              \
        if (i & h) continue;                                                            \
        vec a = v[i], b = v[i + h];                                                     \
        v[i] = __builtin_shufflevector(a, b, LANES_##L(LOW, h, L));                     \
        v[i + h] = __builtin_shufflevector(a, b, LANES_##L(HIGH, h, L));                \
    }
#define ROUNDS_2(vec, L) ROUND(vec, L, 1)
#define ROUNDS_4(vec, L) ROUND(vec, L, 2) ROUNDS_2(vec, L)
#define ROUNDS_8(vec, L) ROUND(vec, L, 4) ROUNDS_4(vec, L)
#define ROUNDS_16(vec, L) ROUND(vec, L, 8) ROUNDS_8(vec, L)

/* All lanes of a vector. */
#if VECTOR_BYTES == 64
#define LANES_OF_f32(f) LANES_16(f, 0, 16)
#define LANES_OF_f64(f) LANES_8(f, 0, 8)
#elif VECTOR_BYTES == 32
#define LANES_OF_f32(f) LANES_8(f, 0, 8)
#define LANES_OF_f64(f) LANES_4(f, 0, 4)
#else
#define LANES_OF_f32(f) LANES_4(f, 0, 4)
#define LANES_OF_f64(f) LANES_2(f, 0, 2)
#endif
/* Those of two vectors that have an even number, and the others. */
#define EVENS(i, h, L) (2 * (i))
#define ODDS(i, h, L) (2 * (i) + 1)

#define DEFINE_SQUARE(suffix, vec, L) \
    INLINE void square_##suffix(vec *v) { ROUNDS_##L(vec, L) }

#if VECTOR_BYTES == 64
DEFINE_SQUARE(f32, vec_f32, 16)
DEFINE_SQUARE(f64, vec_f64, 8)
#elif VECTOR_BYTES == 32
DEFINE_SQUARE(f32, vec_f32, 8)
DEFINE_SQUARE(f64, vec_f64, 4)
#else
DEFINE_SQUARE(f32, vec_f32, 4)
DEFINE_SQUARE(f64, vec_f64, 2)
#endif

/* The first n lanes of a vector, the others zero; and back. n may be a whole vector. Stores through masks
 * of AVX2 take a dozen cycles on some processors. */
#if VECTOR_BYTES == 64
INLINE vec_f32 load_first_f32(const float *p, ptrdiff_t n) {
    return (vec_f32)_mm512_maskz_loadu_ps((__mmask16)(0xffffu >> (16 - n)), p);
}
INLINE void store_first_f32(float *p, vec_f32 v, ptrdiff_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)(0xffffu >> (16 - n)), (__m512)v);
}
INLINE vec_f64 load_first_f64(const double *p, ptrdiff_t n) {
    return (vec_f64)_mm512_maskz_loadu_pd((__mmask8)(0xffu >> (8 - n)), p);
}
INLINE void store_first_f64(double *p, vec_f64 v, ptrdiff_t n) {
    _mm512_mask_storeu_pd(p, (__mmask8)(0xffu >> (8 - n)), (__m512d)v);
}
#elif VECTOR_BYTES == 32
INLINE vec_f32 load_first_f32(const float *p, ptrdiff_t n) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    if (n == LANES_F32) return *(const vec_f32 *)p;
    return (vec_f32)_mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), lanes));
}
INLINE void store_first_f32(float *p, vec_f32 v, ptrdiff_t n) {
    __m128 part = _mm256_castps256_ps128((__m256)v);
    if (n == LANES_F32) {
        *(vec_f32 *)p = v;
        return;
    }
    if (n & 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps((__m256)v, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
    }
    if (n & 1) _mm_store_ss(p, part);
}
INLINE vec_f64 load_first_f64(const double *p, ptrdiff_t n) {
    const __m256i lanes = _mm256_setr_epi64x(0, 1, 2, 3);
    if (n == LANES_F64) return *(const vec_f64 *)p;
    return (vec_f64)_mm256_maskload_pd(p, _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), lanes));
}
INLINE void store_first_f64(double *p, vec_f64 v, ptrdiff_t n) {
    __m128d part = _mm256_castpd256_pd128((__m256d)v);
    if (n == LANES_F64) {
        *(vec_f64 *)p = v;
        return;
    }
    if (n & 2) {
        _mm_storeu_pd(p, part);
        part = _mm256_extractf128_pd((__m256d)v, 1);
        p += 2;
    }
    if (n & 1) _mm_store_sd(p, part);
}
#else
#define DEFINE_FIRST(suffix, type, vec, L)                                                         \
    INLINE vec load_first_##suffix(const type *p, ptrdiff_t n) {                                   \
        vec v = {0};                                                                               \
        if (n == L) v = *(const vec *)p;                                                           \
        else for (int i = 0; i < n; i++) v[i] = p[i];                                              \
        return v;                                                                                  \
    }                                                                                              \
    INLINE void store_first_##suffix(type *p, vec v, ptrdiff_t n) {                                \
        if (n == L) *(vec *)p = v;                                                                 \
        else for (int i = 0; i < n; i++) p[i] = v[i];                                              \
    }
DEFINE_FIRST(f32, float, vec_f32, LANES_F32)
DEFINE_FIRST(f64, double, vec_f64, LANES_F64)
#endif
/* 16-bit elements travel in the lanes of floats, as integers. */
INLINE vec_f32 load_first_u16(const uint16_t *p, ptrdiff_t n) {
#if VECTOR_BYTES == 64
    return (vec_f32)_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16((__mmask16)(0xffffu >> (16 - n)), p));
#else
    uint32_t wide[LANES_F32] = {0};
    for (int i = 0; i < n; i++) wide[i] = p[i];
    return *(const vec_f32 *)wide;
#endif
}
INLINE void store_first_u16(uint16_t *p, vec_f32 v, ptrdiff_t n) {
#if VECTOR_BYTES == 64
    _mm256_mask_storeu_epi16(p, (__mmask16)(0xffffu >> (16 - n)), _mm512_cvtepi32_epi16((__m512i)v));
#else
    uint32_t wide[LANES_F32];
    memcpy(wide, &v, sizeof wide);
    for (int i = 0; i < n; i++) p[i] = (uint16_t)wide[i];
#endif
}

/* The first bytes of a vector, or all of them. */
#if VECTOR_BYTES == 64
#define store_bytes(p, v, bytes) store_bytes_of(p, (__m512i)(v), bytes)
INLINE void store_bytes_of(char *p, __m512i v, ptrdiff_t bytes) {
    _mm512_mask_storeu_epi8(p, ~0ull >> (64 - bytes), v);
}
#else
#define store_bytes(p, v, bytes) store_bytes_of(p, (vec_f32)(v), bytes)
INLINE void store_bytes_of(char *p, vec_f32 v, ptrdiff_t bytes) {
    if (bytes == VECTOR_BYTES) *(vec_f32 *)p = v;
    else memcpy(p, &v, (size_t)bytes);
}
#endif

/* One square: rows and width at most L; constant where this is called. `streams`: whole vectors go past
 * the caches. Rows `below` elements on are asked for, unless it is 0: no prefetcher follows as many side by
 * side, and those of a whole strip at once are more than it takes on. */
#define DEFINE_STRIP(suffix, square, type, vec, L)                                                 \
    INLINE void piece_##suffix(const int streams, const type *src, ptrdiff_t src_pitch,            \
                               ptrdiff_t below, type *dst, ptrdiff_t dst_pitch,                    \
                               const ptrdiff_t *place, ptrdiff_t rows, ptrdiff_t width) {          \
        vec v[L];                                                                                  \
        _Pragma("GCC unroll 16") for (int r = 0; r < L; r++) {                                     \
            v[r] = r < rows ? load_first_##suffix(src, width) : (vec){0};                          \
            __builtin_prefetch(src + below, 0, 2);                                                 \
            src += src_pitch;                                                                      \
            HOLD(src);                                                                             \
        }                                                                                          \
        square_##square(v);                                                                        \
        _Pragma("GCC unroll 16") for (int i = 0; i < L; i++) {                                     \
            if (i >= width) break;                                                                 \
            type *to = place ? dst + place[i] : dst;                                               \
            if (streams) STREAM_VECTOR(to, v[i]);                                                  \
            else store_first_##suffix(to, v[i], rows);                                             \
            dst += place ? 0 : dst_pitch;                                                          \
            HOLD(dst);                                                                             \
        }                                                                                          \
    }                                                                                              \
    INLINE void pieces_##suffix(const int streams, const type *src, ptrdiff_t src_pitch,           \
                                ptrdiff_t below, type *dst, ptrdiff_t dst_pitch,                   \
                                const ptrdiff_t *place, ptrdiff_t rows, ptrdiff_t cols) {          \
        ptrdiff_t c = 0;                                                                           \
        if (rows == L && !place)                                                                   \
            for (; c + L <= cols; c += L)                                                          \
                piece_##suffix(streams, src + c, src_pitch, below, dst + c * dst_pitch, dst_pitch, \
                               NULL, L, L);                                                        \
        for (; c < cols; c += L) {                                                                 \
            ptrdiff_t width = cols - c < L ? cols - c : L;                                         \
            if (place && width == 1 && c)                                                          \
                for (ptrdiff_t r = 0; r < rows; r++) dst[place[c] + r] = src[r * src_pitch + c];   \
            else if (place)                                                                        \
                piece_##suffix(streams, src + c, src_pitch, below, dst, 0, place + c, rows,        \
                               width);                                                             \
            else                                                                                   \
                piece_##suffix(streams, src + c, src_pitch, below, dst + c * dst_pitch, dst_pitch, \
                               NULL, rows, width);                                                 \
        }                                                                                          \
    }                                                                                              \
    /* dst[place[c] + r] = src[r][c] for r < rows <= L, c < cols; without place, place[c] is       \
     * c * dst_pitch. Pitches and places in elements. */                                           \
    static void strip_##suffix(int streams, const type *src, ptrdiff_t src_pitch, ptrdiff_t below, \
                               type *dst, ptrdiff_t dst_pitch, const ptrdiff_t *place,             \
                               ptrdiff_t rows, ptrdiff_t cols) {                                   \
        if (streams && rows == L && sizeof(type) * L == VECTOR_BYTES)                              \
            pieces_##suffix(1, src, src_pitch, below, dst, dst_pitch, place, L, cols);             \
        else pieces_##suffix(0, src, src_pitch, below, dst, dst_pitch, place, rows, cols);         \
    }
DEFINE_STRIP(f32, f32, float, vec_f32, LANES_F32)
DEFINE_STRIP(f64, f64, double, vec_f64, LANES_F64)
DEFINE_STRIP(u16, f32, uint16_t, vec_f32, LANES_F32)

#if VECTOR_BYTES == 64
/* Two rows of 16-bit elements as one of their pairs, so that a square moves twice as many. */
INLINE vec_f32 load_pairs(const uint16_t *even, const uint16_t *odd, __mmask16 mask) {
    __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, even));
    __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, odd));
    return (vec_f32)_mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}
/* Row c of dst, at place[c] or c * dst_pitch bytes, is the pairs (even[r][c], odd[r][c]), r < rows
 * <= 16, c < cols; rows of even and odd are `step` elements apart, and asked for `below` elements on. */
static void strip_pairs(int streams, const uint16_t *even, const uint16_t *odd, ptrdiff_t step,
                        ptrdiff_t below, char *dst, ptrdiff_t dst_pitch, const ptrdiff_t *place,
                        ptrdiff_t rows, ptrdiff_t cols) {
    if (place && rows == 16 && step == cols && deal_pairs(streams, even, odd, cols, dst, place))
        return;
    for (ptrdiff_t c = 0; c < cols; c += 16) {
        ptrdiff_t width = cols - c < 16 ? cols - c : 16;
        __mmask16 mask = (__mmask16)(0xffffu >> (16 - width));
        const uint16_t *a = even + c, *b = odd + c;
        vec_f32 v[16];
        _Pragma("GCC unroll 16") for (int r = 0; r < 16; r++) {
            v[r] = r < rows ? load_pairs(a, b, mask) : (vec_f32){0};
            __builtin_prefetch(a + below, 0, 2);
            __builtin_prefetch(b + below, 0, 2);
            a += step;
            b += step;
            HOLD(a);
            HOLD(b);
        }
        square_f32(v);
        _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) {
            if (i >= width) break;
            char *out = dst + (place ? place[c + i] : (c + i) * dst_pitch);
            if (streams && rows == 16) STREAM_VECTOR(out, v[i]);
            else store_first_f32((float *)out, v[i], rows);
        }
    }
}
#else
/* Only AMX multiplies pairs. */
static void strip_pairs(int streams, const uint16_t *even, const uint16_t *odd, ptrdiff_t step,
                        ptrdiff_t below, char *dst, ptrdiff_t dst_pitch, const ptrdiff_t *place,
                        ptrdiff_t rows, ptrdiff_t cols) {
    (void)streams, (void)even, (void)odd, (void)step, (void)below, (void)dst, (void)dst_pitch;
    (void)place, (void)rows, (void)cols;
}
#endif

/* dst[c][r] = src[r][c] for r < rows, c < cols; pitches in elements of `size` (2, 4 or 8) bytes.
 * With `place`, element offsets take the place of dst's rows. `streams`: what is written belongs to whole
 * lines, and goes past the caches. */
static void transpose_to(int streams, int size, const void *src, ptrdiff_t src_pitch, void *dst,
                         ptrdiff_t dst_pitch, const ptrdiff_t *place, ptrdiff_t rows,
                         ptrdiff_t cols) {
    ptrdiff_t step = size == 8 ? LANES_F64 : LANES_F32;
    ptrdiff_t r = 0;
#if VECTOR_BYTES == 64
    for (; size == 2 && !place && r + 32 <= rows; r += 32) {
        const uint16_t *even = (const uint16_t *)src + r * src_pitch;
        strip_pairs(0, even, even + src_pitch, 2 * src_pitch, r + 32 < rows ? 32 * src_pitch : 0,
                    (char *)dst + 2 * r, 2 * dst_pitch, NULL, 16, cols);
    }
#endif
    for (; r < rows; r += step) {
        ptrdiff_t height = rows - r < step ? rows - r : step;
        ptrdiff_t below = rows - r > step ? step * src_pitch : 0;
        if (size == 8)
            strip_f64(streams, (const double *)src + r * src_pitch, src_pitch, below,
                      (double *)dst + r, dst_pitch, place, height, cols);
        else if (size == 4 && place && height == 16 && src_pitch == cols
                 && deal_rows(streams, (const float *)src + r * cols, cols, (float *)dst + r, place))
            continue;
        else if (size == 4)
            strip_f32(streams, (const float *)src + r * src_pitch, src_pitch, below,
                      (float *)dst + r, dst_pitch, place, height, cols);
        else
            strip_u16(0, (const uint16_t *)src + r * src_pitch, src_pitch, below,
                      (uint16_t *)dst + r, dst_pitch, place, height, cols);
    }
}

static void transpose(int size, const void *src, ptrdiff_t src_pitch, void *dst, ptrdiff_t dst_pitch,
                      const ptrdiff_t *place, ptrdiff_t rows, ptrdiff_t cols) {
    transpose_to(0, size, src, src_pitch, dst, dst_pitch, place, rows, cols);
}

#endif
