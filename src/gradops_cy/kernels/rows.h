/* Rows of tensor elements to and from the type that computes. */
#ifndef GRADOPS_ROWS_H
#define GRADOPS_ROWS_H

#include "every.h"
#include "stream.h"
#include "vector_io.h"

/* Rows are short as often as long: a loop of vectors beats a call of memcpy up to some hundred
 * bytes, and is never much slower. */
#define DEFINE_ROWS(suffix, real, vec, lanes, size, from, to)                                      \
    INLINE void load_row_##suffix(const char *src, ptrdiff_t stride, ptrdiff_t n, real *dst) {     \
        ptrdiff_t j = 0;                                                                           \
        if (stride == size) {                                                                      \
            for (; j + lanes <= n; j += lanes)                                                     \
                *(vec *)(dst + j) = read_##suffix(src + j * size, lanes);                          \
            if (j < n && n >= lanes && !HAVE_MASKS)                                                \
                *(vec *)(dst + n - lanes) = read_##suffix(src + (n - lanes) * size, lanes);        \
            else if (j < n)                                                                        \
                store_first_##to(dst + j, read_##suffix(src + j * size, (int)(n - j)), n - j);     \
            return;                                                                                \
        }                                                                                          \
        if (stride % size == 0) j = LOAD_EVERY(suffix, stride / size, src, n, dst);                \
        for (; j < n; j++) dst[j] = from(src + j * stride);                                        \
    }                                                                                              \
    INLINE void store_row_##suffix(const real *src, ptrdiff_t src_stride, char *dst,               \
                                   ptrdiff_t dst_stride, ptrdiff_t n, int accumulate) {            \
        ptrdiff_t j = 0;                                                                           \
        if (src_stride == 1 && dst_stride == size) {                                               \
            if (!accumulate) j = store_whole_##suffix(src, dst, n);                                \
            for (; j + lanes <= n; j += lanes) {                                                   \
                vec v = *(const vec *)(src + j);                                                   \
                if (accumulate) v += read_##suffix(dst + j * size, lanes);                         \
                write_##suffix(dst + j * size, v, lanes);                                          \
            }                                                                                      \
            if (j < n && n >= lanes && !HAVE_MASKS && !accumulate) {                               \
                write_##suffix(dst + (n - lanes) * size, *(const vec *)(src + n - lanes), lanes);  \
            } else if (j < n) {                                                                    \
                vec v = load_first_##to(src + j, n - j);                                           \
                if (accumulate) v += read_##suffix(dst + j * size, (int)(n - j));                  \
                write_##suffix(dst + j * size, v, (int)(n - j));                                   \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (; j < n; j++) {                                                                       \
            char *d = dst + j * dst_stride;                                                        \
            real x = src[j * src_stride];                                                          \
            put_##suffix(d, accumulate ? from(d) + x : x);                                         \
        }                                                                                          \
    }

/* What is stored by two vectors of elements at a time; returns how many were. Of vectors of 64 bytes only what
 * is rounded faster so: two of them cross lines that each by itself does not. */
#define DEFINE_STORE_WHOLE(suffix, pays)                                                           \
    INLINE ptrdiff_t store_whole_##suffix(const float *src, char *dst, ptrdiff_t n) {              \
        ptrdiff_t j = 0;                                                                           \
        for (; (pays) && j + 2 * LANES_F32 <= n; j += 2 * LANES_F32)                               \
            write_pair_##suffix(dst + 2 * j, *(const vec_f32 *)(src + j),                          \
                                  *(const vec_f32 *)(src + j + LANES_F32));                        \
        return j;                                                                                  \
    }
DEFINE_STORE_WHOLE(f16, PAIRS_OF_HALVES)
DEFINE_STORE_WHOLE(bf16, PAIRS_OF_HALVES || BF16_RATE > 0)
#define store_whole_f32(src, dst, n) 0
#define store_whole_f64(src, dst, n) 0

/* Rows of 16 or 32 bytes as they are: masked vectors would cross lines. Returns whether they were. */
INLINE int copy_parts(const char *src, ptrdiff_t src_pitch, ptrdiff_t rows, ptrdiff_t bytes, char *dst,
                      ptrdiff_t dst_pitch) {
    if (bytes == 16)
        for (ptrdiff_t i = 0; i < rows; i++) memcpy(dst + i * dst_pitch, src + i * src_pitch, 16);
    else if (bytes == 32)
        for (ptrdiff_t i = 0; i < rows; i++) memcpy(dst + i * dst_pitch, src + i * src_pitch, 32);
    else return 0;
    return 1;
}

/* `rows` rows of `bytes`; pitches in bytes. */
static void copy_rows(const char *src, ptrdiff_t src_pitch, char *dst, ptrdiff_t dst_pitch,
                      ptrdiff_t rows, ptrdiff_t bytes) {
#if VECTOR_BYTES == 64
    if (0 < bytes && bytes <= 64) {
        const __mmask64 mask = ~0ull >> (64 - bytes);
        for (ptrdiff_t i = 0; i < rows; i++)
            _mm512_mask_storeu_epi8(dst + i * dst_pitch, mask,
                                    _mm512_maskz_loadu_epi8(mask, src + i * src_pitch));
        return;
    }
#endif
    for (ptrdiff_t i = 0; i < rows; i++)
        memcpy(dst + i * dst_pitch, src + i * src_pitch, (size_t)bytes);
}

#define DEFINE_LOAD_ROWS(suffix, real, size)                                                       \
    static void load_rows_##suffix(const char *src, ptrdiff_t src_pitch, ptrdiff_t rows,           \
                                   ptrdiff_t n, real *dst, ptrdiff_t dst_pitch) {                  \
        if (size == sizeof(real) && copy_parts(src, src_pitch, rows, n * size, (char *)dst,        \
                                               dst_pitch * size))                                  \
            return;                                                                                \
        for (ptrdiff_t i = 0; i < rows; i++)                                                       \
            load_row_##suffix(src + i * src_pitch, size, n, dst + i * dst_pitch);                  \
    }
#define DEFINE_STORE_ROWS(suffix, real, vec, lanes, size)                                          \
    static void store_rows_##suffix(const real *src, ptrdiff_t src_pitch, char *dst,               \
                                    ptrdiff_t dst_pitch, ptrdiff_t rows, ptrdiff_t n,              \
                                    int accumulate) {                                              \
        if (src_pitch == n && dst_pitch == n * size) { /* one row after the other */               \
            n *= rows;                                                                             \
            rows = 1;                                                                              \
        }                                                                                          \
        if (n == 2 * lanes && !accumulate) { /* rows of AMX tiles */                               \
            for (ptrdiff_t i = 0; i < rows; i++, src += src_pitch, dst += dst_pitch)               \
                write_pair_##suffix(dst, *(const vec *)src, *(const vec *)(src + lanes));          \
            return;                                                                                \
        }                                                                                          \
        for (ptrdiff_t i = 0; i < rows; i++)                                                       \
            store_row_##suffix(src + i * src_pitch, 1, dst + i * dst_pitch, size, n, accumulate);  \
    }

INLINE float get_f32(const char *p) { return *(const float *)p; }
INLINE void put_f32(char *p, float x) { *(float *)p = x; }
INLINE double get_f64(const char *p) { return *(const double *)p; }
INLINE void put_f64(char *p, double x) { *(double *)p = x; }
INLINE float get_f16(const char *p) { return float_from_f16(*(const uint16_t *)p); }
INLINE void put_f16(char *p, float x) { *(uint16_t *)p = f16_from_float(x); }
INLINE float get_bf16(const char *p) { return float_from_bf16(*(const uint16_t *)p); }
INLINE void put_bf16(char *p, float x) { *(uint16_t *)p = bf16_from_float(x); }

DEFINE_ROWS(f32, float, vec_f32, LANES_F32, 4, get_f32, f32)
DEFINE_ROWS(f16, float, vec_f32, LANES_F32, 2, get_f16, f32)
DEFINE_ROWS(bf16, float, vec_f32, LANES_F32, 2, get_bf16, f32)
DEFINE_ROWS(f64, double, vec_f64, LANES_F64, 8, get_f64, f64)

DEFINE_LOAD_ROWS(f32, float, 4)
DEFINE_LOAD_ROWS(f16, float, 2)
DEFINE_LOAD_ROWS(bf16, float, 2)
DEFINE_LOAD_ROWS(f64, double, 8)

DEFINE_STORE_ROWS(f32, float, vec_f32, LANES_F32, 4)
DEFINE_STORE_ROWS(f16, float, vec_f32, LANES_F32, 2)
DEFINE_STORE_ROWS(bf16, float, vec_f32, LANES_F32, 2)
DEFINE_STORE_ROWS(f64, double, vec_f64, LANES_F64, 8)

INLINE void load_row_raw16(const char *src, ptrdiff_t stride, ptrdiff_t n, uint16_t *dst) {
    ptrdiff_t j = 0;
    if (stride == 2) {
        for (; j + 2 * LANES_F32 <= n; j += 2 * LANES_F32)
            *(vec_f32 *)(dst + j) = *(const vec_f32 *)(src + 2 * j);
        if (j < n) memcpy(dst + j, src + 2 * j, 2 * (size_t)(n - j));
        return;
    }
    if (stride % 2 == 0) j = LOAD_EVERY(raw16, stride / 2, src, n, dst);
    for (; j < n; j++) dst[j] = *(const uint16_t *)(src + j * stride);
}

/* Rows whose last vectors are filled up with zeros, as far as there is room. */
static void load_rows_raw16(const char *src, ptrdiff_t src_pitch, ptrdiff_t rows, ptrdiff_t n,
                            uint16_t *dst, ptrdiff_t dst_pitch) {
    if (n == dst_pitch && copy_parts(src, src_pitch, rows, 2 * n, (char *)dst, 2 * dst_pitch)) return;
#if VECTOR_BYTES == 64
    const ptrdiff_t whole = n & ~(ptrdiff_t)31, room = dst_pitch - whole;
    const __mmask32 given = ~(~0u << (n - whole)), kept = room >= 32 ? ~0u : ~(~0u << room);
#endif
    for (ptrdiff_t i = 0; i < rows; i++, src += src_pitch, dst += dst_pitch) {
#if VECTOR_BYTES == 64
        for (ptrdiff_t j = 0; j < whole; j += 32)
            _mm512_storeu_si512(dst + j, _mm512_loadu_si512(src + 2 * j));
        if (given)
            _mm512_mask_storeu_epi16(dst + whole, kept,
                                     _mm512_maskz_loadu_epi16(given, src + 2 * whole));
#else
        memcpy(dst, src, 2 * (size_t)n);
        memset(dst + n, 0, 2 * (size_t)(dst_pitch - n));
#endif
    }
}

/* dst[j] = src[j] for j < n, converted; src_stride in bytes. */
static void load_row(int dtype, const char *src, ptrdiff_t src_stride, ptrdiff_t n, void *dst) {
    if (dtype == RAW16) load_row_raw16(src, src_stride, n, dst);
    else BY_DTYPE(dtype, load_row, src, src_stride, n, dst);
}

/* load_row for `rows` contiguous rows; src_pitch in bytes, dst_pitch in elements. */
static void load_rows(int dtype, const char *src, ptrdiff_t src_pitch, ptrdiff_t rows, ptrdiff_t n,
                      void *dst, ptrdiff_t dst_pitch) {
    if (dtype == RAW16) load_rows_raw16(src, src_pitch, rows, n, dst, dst_pitch);
    else BY_DTYPE(dtype, load_rows, src, src_pitch, rows, n, dst, dst_pitch);
}

/* dst[j] = src[j], or dst[j] + src[j] with accumulate, for j < n, rounded once;
 * src_stride in elements, dst_stride in bytes. */
static void store_row(int dtype, const void *src, ptrdiff_t src_stride, char *dst,
                      ptrdiff_t dst_stride, ptrdiff_t n, int accumulate) {
    if (dtype == RAW16)
        for (ptrdiff_t j = 0; j < n; j++)
            memcpy(dst + j * dst_stride, (const uint16_t *)src + j * src_stride, 2);
    else BY_DTYPE(dtype, store_row, src, src_stride, dst, dst_stride, n, accumulate);
}

/* store_row for `rows` contiguous rows; src_pitch in elements, dst_pitch in bytes. */
static void store_rows(int dtype, const void *src, ptrdiff_t src_pitch, char *dst,
                       ptrdiff_t dst_pitch, ptrdiff_t rows, ptrdiff_t n, int accumulate) {
    if (dtype == RAW16)
        for (ptrdiff_t i = 0; i < rows; i++)
            memcpy(dst + i * dst_pitch, (const uint16_t *)src + i * src_pitch, 2 * (size_t)n);
    else BY_DTYPE(dtype, store_rows, src, src_pitch, dst, dst_pitch, rows, n, accumulate);
}

#endif
