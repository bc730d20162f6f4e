/* Whether x[0..n) holds neither NaN nor Inf: x-x is 0 for finite x and NaN for the others. */
#ifndef GRADOPS_FINITE_H
#define GRADOPS_FINITE_H

#include "simd.h"

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

static int all_finite_bf16(const uint16_t *x, ptrdiff_t n) {
    int bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) bad |= (x[i] & 0x7f80) == 0x7f80;
    return !bad;
}

/* dst[i] = (even[i], odd[i]): two rows of 16-bit elements side by side. */
static void zip_pairs(const uint16_t *restrict even, const uint16_t *restrict odd,
                      uint32_t *restrict dst, ptrdiff_t n) {
    for (ptrdiff_t i = 0; i < n; i++) dst[i] = even[i] | (uint32_t)odd[i] << 16;
}

#endif
