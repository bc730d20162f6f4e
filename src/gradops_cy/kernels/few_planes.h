/* Rows of sums of few products, channels first: a few channels' positions after the others', in the order of
 * memory. Tiles write a few vectors of each of eight channels in turn, pages apart, which memory takes three
 * times as long for. */
#ifndef GRADOPS_FEW_PLANES_H
#define GRADOPS_FEW_PLANES_H

#include "rounded_rows.h"
#include "rows.h"

/* Channels that a vector of diff_dst is loaded for, whose weights stay in registers; and their positions that
 * wait in the first-level cache for being rounded, or for going past the caches. */
enum { FEW_PLANES = VECTOR_REGISTERS / 8, PIECE_OF_PLANE = 512 };
#define UNROLL _Pragma("GCC unroll 4")

/* sums[c][j] = sum over k of w[k * w_step + c] * x[k][j], for j < n; rows of sums are pitch floats apart. */
INLINE void sum_few(const int kc, const int channels, const float *w, ptrdiff_t w_step,
                    const float *const *x, ptrdiff_t n, float *sums, ptrdiff_t pitch) {
    vec_f32 factor[FEW_PRODUCTS][FEW_PLANES];
    UNROLL for (int k = 0; k < kc; k++)
        UNROLL for (int c = 0; c < channels; c++) factor[k][c] = splat_f32(w[k * w_step + c]);
    for (ptrdiff_t j = 0; j < n; j += LANES_F32) {
        const ptrdiff_t left = n - j;
        vec_f32 at[FEW_PRODUCTS];
        UNROLL for (int k = 0; k < kc; k++)
            at[k] = left >= LANES_F32 ? *(const vec_f32 *)(x[k] + j) : load_first_f32(x[k] + j, left);
        UNROLL for (int c = 0; c < channels; c++) {
            vec_f32 sum = {0};
            UNROLL for (int k = 0; k < kc; k++) sum += factor[k][c] * at[k];
            if (left >= LANES_F32) *(vec_f32 *)(sums + c * pitch + j) = sum;
            else store_first_f32(sums + c * pitch + j, sum, left);
        }
    }
}
#define OF(kc)                                                                                     \
    do {                                                                                           \
        if (channels == FEW_PLANES) sum_few(kc, FEW_PLANES, w, w_step, x, n, sums, pitch);         \
        else                                                                                       \
            for (int c = 0; c < channels; c++)                                                     \
                sum_few(kc, 1, w + c, w_step, x, n, sums + c * pitch, pitch);                      \
    } while (0)
static void sum_few_of(ptrdiff_t kc, int channels, const float *w, ptrdiff_t w_step,
                       const float *const *x, ptrdiff_t n, float *sums, ptrdiff_t pitch) {
    if (kc == 1) OF(1);
    else if (kc == 2) OF(2);
    else if (kc == 3) OF(3);
    else OF(4);
}
#undef OF
#undef UNROLL

/* Rows of n elements of dtype, dst_pitch bytes apart, of up to FEW_PLANES channels; past the caches in pieces
 * that end with the first one's lines. */
static void few_planes(int dtype, int streams, ptrdiff_t kc, int channels, const float *w,
                       ptrdiff_t w_step, const float *const *x, ptrdiff_t n, char *dst,
                       ptrdiff_t dst_pitch) {
    _Alignas(64) float sums[FEW_PLANES * PIECE_OF_PLANE];
    _Alignas(64) char rounded[2 * PIECE_OF_PLANE];
    const ptrdiff_t size = dtype == F32 ? 4 : 2;
    const float *at[FEW_PRODUCTS];
    if (dtype == F32 && !streams) {
        sum_few_of(kc, channels, w, w_step, x, n, (float *)dst, dst_pitch / 4);
        return;
    }
    for (ptrdiff_t k = 0; k < kc; k++) at[k] = x[k];
    while (n > 0) {
        const ptrdiff_t piece = MIN(n, PIECE_OF_PLANE - ((intptr_t)dst & 63) / size);
        sum_few_of(kc, channels, w, w_step, at, piece, sums, PIECE_OF_PLANE);
        for (int c = 0; c < channels; c++) {
            const float *row = sums + c * PIECE_OF_PLANE;
            char *to = dst + c * dst_pitch;
            if (dtype != F32) store_row(dtype, row, 1, streams ? rounded : to, size, piece, 0);
            if (streams) stream(dtype == F32 ? (const char *)row : rounded, to, size * piece);
        }
        for (ptrdiff_t k = 0; k < kc; k++) at[k] += piece;
        dst += size * piece;
        n -= piece;
    }
}

#endif
