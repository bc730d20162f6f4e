/* dst[c][r] = src[r][c] for r < rows, c < cols; pitches in elements of `size` (2, 4 or 8) bytes. */
#ifndef GRADOPS_TRANSPOSE_H
#define GRADOPS_TRANSPOSE_H

#include "simd.h"

#define DEFINE_TRANSPOSE(suffix, type)                                                            \
    static void transpose_##suffix(const type *restrict src, ptrdiff_t src_pitch,                 \
                                   type *restrict dst, ptrdiff_t dst_pitch, ptrdiff_t rows,       \
                                   ptrdiff_t cols) {                                              \
        for (ptrdiff_t c = 0; c < cols; c++)                                                      \
            for (ptrdiff_t r = 0; r < rows; r++) dst[c * dst_pitch + r] = src[r * src_pitch + c]; \
    }

DEFINE_TRANSPOSE(2, uint16_t)
DEFINE_TRANSPOSE(4, uint32_t)
DEFINE_TRANSPOSE(8, uint64_t)

INLINE void transpose(int size, const void *src, ptrdiff_t src_pitch, void *dst, ptrdiff_t dst_pitch,
                      ptrdiff_t rows, ptrdiff_t cols) {
    if (size == 8) transpose_8(src, src_pitch, dst, dst_pitch, rows, cols);
    else if (size == 2) transpose_2(src, src_pitch, dst, dst_pitch, rows, cols);
    else transpose_4(src, src_pitch, dst, dst_pitch, rows, cols);
}

#endif
