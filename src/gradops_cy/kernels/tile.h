/* The register tiles of the convolution engine: MR x NV vectors of results that stay in registers
 * over the whole sum. MR and NV are compile-time constants of each instance.
 *
 *   rows      c[m][v] = sum over t, k of a[t][m][k] * b[t][k][v]       vector over channels, of which the
 *                                                                     last one may be half of one
 *   columns   c[m][v] = sum over k    of a[k][m] * b[offset[k] + v]     vector over space
 *
 * A sum may go on from what c holds, so that a long one may be cut anywhere without a change of one
 * bit. */
#ifndef GRADOPS_TILE_H
#define GRADOPS_TILE_H

#include "half_vectors.h"
#include "stream.h"
#include "vector_io.h"

#define MR_MAX 12
#define NV_MAX 7
/* Steps along k in one round of the loop. With one and 32 registers, the compiler moves accumulators from
 * register to register between rounds (2 to 9 % of the time), and its own unrolling spills them; with 16
 * registers it spills one of 6 x 2 where a round has more than one (8 % of the time). */
#if VECTOR_REGISTERS == 32
#define K_STEPS 4
#else
#define K_STEPS 1
#endif

/* Accumulators, one row of b and one broadcast must fit the register file. */
#if VECTOR_REGISTERS == 32
#define ROWS_INSTANCES(X) X(1, 12) X(2, 12) X(3, 8) X(4, 6)
#define TILE_INSTANCES(X) ROWS_INSTANCES(X) X(6, 4) X(7, 3)
#define ROWS_NV 4
#else
#define ROWS_INSTANCES(X) X(1, 8) X(2, 6)
#define TILE_INSTANCES(X) ROWS_INSTANCES(X) X(3, 3) X(4, 2)
#define ROWS_NV 2
#endif
/* Those whose last vector may be half of one: not of one alone, where pointers to rows take longest. */
#if HAVE_HALVES
#define HALF_INSTANCES(X) X(2, 12) X(3, 8) X(4, 6)
#else
#define HALF_INSTANCES(X)
#endif

/* The most rows a tile of nv vectors may have; 0 where no such tile exists. */
static int tile_rows(int nv) {
#define CASE(NV, MR) if (nv == NV) return MR;
    TILE_INSTANCES(CASE)
#undef CASE
    return 0;
}

#define BODY "tile_body.h"
#include "for_reals.h"

/* The calls below take untyped pointers: f64 says which type they point to. */

/* `half`, the second half of the last one of several vectors holds no channel. */
INLINE void run_rows(int f64, int mr, int nv, int half, ptrdiff_t taps, ptrdiff_t kc, const void *a,
                     ptrdiff_t a_pitch, ptrdiff_t a_shift, ptrdiff_t ahead, int apart,
                     const void *b, void *c, ptrdiff_t c_shift, int last, int how) {
    if (f64)
        rows_tiles_f64[half][nv][mr](taps, kc, a, a_pitch, a_shift, ahead, apart, b, c, c_shift,
                                    last, how);
    else
        rows_tiles_f32[half][nv][mr](taps, kc, a, a_pitch, a_shift, ahead, apart, b, c, c_shift,
                                    last, how);
}

/* What comes `ahead` is asked for, unless that is 0, by one of `parts` that meet the same positions. */
INLINE void run_columns(int f64, int mr, int nv, ptrdiff_t kc, const void *a, const void *b,
                        const ptrdiff_t *offset, ptrdiff_t ahead, ptrdiff_t part, ptrdiff_t parts,
                        void *c, ptrdiff_t ldc, int accumulate) {
    const ptrdiff_t asked = ahead ? kc * part / parts : 0;
    const ptrdiff_t asks = ahead ? kc * (part + 1) / parts - asked : 0;
    if (f64) columns_tiles_f64[nv][mr](kc, a, b, offset, ahead, asked, asks, c, ldc, accumulate);
    else columns_tiles_f32[nv][mr](kc, a, b, offset, ahead, asked, asks, c, ldc, accumulate);
}

#endif
