/* The width pass where each position begins four or eight elements after the one before it and all have
 * the same weights: diff_dst is so many times as wide, away from the ends of a row.
 *
 * The elements are dealt out into as many phases, so that a tap of consecutive positions is a vector as
 * it lies in memory. Permutations pick a tap of eight from four pairs of vectors. Two phases gained
 * nothing over the one pair that they need. */
#ifndef GRADOPS_RESAMPLING_PHASES_H
#define GRADOPS_RESAMPLING_PHASES_H

#include "interleave.h"
#include "rows.h"

enum {
    MOST_PHASES = 8,
    PHASE_BLOCKS = 16, /* vectors of positions whose phases are kept at a time */
    PHASE_PITCH = (PHASE_BLOCKS + 1) * LANES_F32,
};

/* The sums of some vectors of positions, whose phases begin at `phase`. */
INLINE void sum_phase_vectors(int vectors, int dtype, int accumulate, int phases, const float *phase,
                              const float *weight, ptrdiff_t taps, char *dst) {
    vec_f32 sum[4];
    ptrdiff_t bytes = LANES_F32 * element_size(dtype);
    for (int v = 0; v < vectors; v++) sum[v] = (vec_f32){0};
#pragma GCC unroll 16
    for (ptrdiff_t k = 0; k < taps; k++) {
        const float *src = phase + k % phases * PHASE_PITCH + k / phases;
        for (int v = 0; v < vectors; v++)
            sum[v] += splat_f32(weight[k]) * *(const vec_f32 *)(src + v * LANES_F32);
    }
    if (vectors == 4 && !accumulate) {
        store_pair_f32(dtype, sum, dst);
        store_pair_f32(dtype, sum + 2, dst + 2 * bytes);
        return;
    }
    for (int v = 0; v < vectors; v++)
        store_block(dtype, accumulate, sum[v], dst + v * bytes, LANES_F32);
}

/* `blocks` vectors of positions, weights of a tap `pitch` apart. Reads a vector of each phase beyond. */
INLINE void sum_phases(int phases, int dtype, int accumulate, const float *src, const float *weight,
                       ptrdiff_t pitch, ptrdiff_t taps, ptrdiff_t blocks, char *dst) {
    float phase[MOST_PHASES * PHASE_PITCH] __attribute__((aligned(VECTOR_BYTES)));
    float w[COLUMNS_IN_SEQUENCE];
    ptrdiff_t b = 0, bytes = LANES_F32 * element_size(dtype), dealt = blocks + (taps > phases);
    for (ptrdiff_t k = 0; k < taps; k++) w[k] = weight[k * pitch];
    deal_vectors_f32(phases, src, dealt * phases * LANES_F32, phase, PHASE_PITCH);
#define SUM(vectors, taps)                                                                         \
    for (; b + vectors <= blocks; b += vectors)                                                    \
    sum_phase_vectors(vectors, dtype, accumulate, phases, phase + b * LANES_F32, w, taps, dst + b * bytes)
    if (taps == phases) SUM(4, phases);
    else if (taps == 2 * phases) SUM(4, 2 * phases);
    else SUM(4, taps);
    SUM(1, taps);
#undef SUM
}

#endif
