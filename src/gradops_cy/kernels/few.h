/* Products of a few positions with weights of one tap where they lie: packing these would take longer
 * than to meet them once.
 *
 * c[m][i] = sum over k of a[m][k] * b[k][i] in the order of the tiles of tile.h, and so the same bits. */
#ifndef GRADOPS_FEW_H
#define GRADOPS_FEW_H

#include "tile.h"

#define FEW_MR 4
/* Accumulators where rows of b are contiguous. */
#define FEW_SUMS (VECTOR_REGISTERS / 2)
/* Rows that are asked for before their turn: prefetchers do not follow pieces of them. */
#define FEW_AHEAD 4

#define BODY "few_body.h"
#include "for_reals.h"

/* a, c: a pointer for each of mr <= FEW_MR positions; of b, element [k][i] is k * k_pitch + i * i_pitch
 * elements on, where one of the pitches is 1. */
static void run_few(int f64, int mr, ptrdiff_t channels, ptrdiff_t kc, const void *a, const char *b,
                    ptrdiff_t k_pitch, ptrdiff_t i_pitch, void *c, int how) {
    if (f64) few_rows_f64(mr, channels, kc, a, (const double *)b, k_pitch, i_pitch, c, how);
    else few_rows_f32(mr, channels, kc, a, (const float *)b, k_pitch, i_pitch, c, how);
}

#endif
