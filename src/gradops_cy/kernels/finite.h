/* Whether x[0..n) holds neither NaN nor Inf: x-x is 0 for finite x and NaN for the others. */
#ifndef GRADOPS_FINITE_H
#define GRADOPS_FINITE_H

#include "half.h"

static int all_finite(int f64, const void *x, ptrdiff_t n) {
    int bad = 0;
    if (f64) {
        const double *d = x;
        for (ptrdiff_t i = 0; i < n; i++) bad |= !(d[i] - d[i] == 0);
    } else {
        const float *f = x;
        for (ptrdiff_t i = 0; i < n; i++) bad |= !(f[i] - f[i] == 0);
    }
    return !bad;
}

/* Of rows of floats, whole vectors: beyond n they hold what is finite if the row is. */
static int rows_finite(const float *x, ptrdiff_t pitch, ptrdiff_t rows, ptrdiff_t n) {
    vec_f32 zero = {0};
    int bad = 0;
    for (ptrdiff_t r = 0; r < rows; r++)
        for (ptrdiff_t i = 0; i < n; i += LANES_F32) {
            vec_f32 v = *(const vec_f32 *)(x + r * pitch + i);
            zero += v - v;
        }
    for (int l = 0; l < LANES_F32; l++) bad |= !(zero[l] == 0);
    return !bad;
}

/* Of 16-bit elements with such bits of exponent. */
INLINE int all_below(uint16_t exponent, const uint16_t *x, ptrdiff_t n) {
    int bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) bad |= (x[i] & exponent) == exponent;
    return !bad;
}

static int all_finite_bf16(const uint16_t *x, ptrdiff_t n) { return all_below(0x7f80, x, n); }

static int all_finite_of(int dtype, const void *x, ptrdiff_t n) {
    if (dtype == F16) return all_below(0x7c00, x, n);
    return dtype == BF16 ? all_finite_bf16(x, n) : all_finite(dtype == F64, x, n);
}

#endif
