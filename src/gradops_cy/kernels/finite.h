/* Whether there is neither NaN nor Inf. */
#ifndef GRADOPS_FINITE_H
#define GRADOPS_FINITE_H

#include "half.h"

/* As integers, magnitudes have the order of their numbers; a vector at a time, the largest is found. */
#define DEFINE_ALL_BELOW(suffix, type)                                                             \
    typedef type bits_##suffix __attribute__((may_alias));                                         \
    INLINE int all_below_##suffix(type infinity, const void *x, ptrdiff_t n) {                     \
        const bits_##suffix *bits = x;                                                             \
        type most = 0;                                                                             \
        for (ptrdiff_t i = 0; i < n; i++) {                                                        \
            type magnitude = bits[i] & ((type)~(type)0 >> 1);                                      \
            most = magnitude > most ? magnitude : most;                                            \
        }                                                                                          \
        return most < infinity;                                                                    \
    }
DEFINE_ALL_BELOW(16, uint16_t)
DEFINE_ALL_BELOW(32, uint32_t)
DEFINE_ALL_BELOW(64, uint64_t)

static int all_finite(int f64, const void *x, ptrdiff_t n) {
    return f64 ? all_below_64(0x7ffull << 52, x, n) : all_below_32(0x7f800000, x, n);
}

static int all_finite_bf16(const uint16_t *x, ptrdiff_t n) { return all_below_16(0x7f80, x, n); }

/* Of tensor elements. */
static int all_finite_of(int dtype, const void *x, ptrdiff_t n) {
    if (dtype == F16) return all_below_16(0x7c00, x, n);
    return dtype == BF16 ? all_finite_bf16(x, n) : all_finite(dtype == F64, x, n);
}

/* Of rows of floats, whole vectors: beyond n they hold what is finite if the row is. */
static int rows_finite(const float *x, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t n) {
    int fine = 1;
    n = (n + LANES_F32 - 1) / LANES_F32 * LANES_F32;
    if (pitch == n) { /* one row after the other */
        n *= rows;
        rows = 1;
    }
    for (ptrdiff_t r = 0; r < rows; r++) fine &= all_below_32(0x7f800000, x + r * pitch, n);
    return fine;
}

#endif
