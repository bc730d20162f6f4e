/* Weights of groups with few channels, on their way to lanes that run over all groups. */
#ifndef GRADOPS_LANES_H
#define GRADOPS_LANES_H

#include "simd.h"

/* dst[g * n + i] = the element at src + g * group_step + i * step, for i < n, g < groups. */
#define DEFINE_GATHER(bits)                                                                        \
    INLINE void gather_of_##bits(const ptrdiff_t n, const char *src, ptrdiff_t group_step,         \
                                 ptrdiff_t step, ptrdiff_t groups, uint##bits##_t *dst) {          \
        for (ptrdiff_t g = 0; g < groups; g++, src += group_step, dst += n)                        \
            for (ptrdiff_t i = 0; i < n; i++) memcpy(dst + i, src + i * step, sizeof *dst);        \
    }                                                                                              \
    static void gather_##bits(ptrdiff_t n, const char *src, ptrdiff_t group_step, ptrdiff_t step,  \
                              ptrdiff_t groups, void *dst) {                                       \
        if (n == 2) gather_of_##bits(2, src, group_step, step, groups, dst);                       \
        else if (n == 4) gather_of_##bits(4, src, group_step, step, groups, dst);                  \
        else if (n == 8) gather_of_##bits(8, src, group_step, step, groups, dst);                  \
        else gather_of_##bits(n, src, group_step, step, groups, dst);                              \
    }
DEFINE_GATHER(16)
DEFINE_GATHER(32)
DEFINE_GATHER(64)

/* Elements of `size` bytes. */
static void gather_lanes(int size, ptrdiff_t n, const char *src, ptrdiff_t group_step, ptrdiff_t step,
                         ptrdiff_t groups, void *dst) {
    if (size == 2) gather_16(n, src, group_step, step, groups, dst);
    else if (size == 4) gather_32(n, src, group_step, step, groups, dst);
    else gather_64(n, src, group_step, step, groups, dst);
}

#endif
