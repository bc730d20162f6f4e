/* The register tiles of grouped.h for one type that sums: of whole vectors, and of half ones. */

INLINE SUM(vec) SUM(permute)(SUM(vec) v, SUM(indices) index) {
#if defined(__clang__)
    SUM(vec) r;
    for (int l = 0; l < LANES; l++) r[l] = v[index[l] & (LANES - 1)];
    return r;
#else
    return __builtin_shuffle(v, index);
#endif
}

#if HAVE_HALF_VECTORS
#define TILE HALF
#define WHOLE 0
#include "grouped_tile.h"
#undef TILE
#undef WHOLE
#endif
#define TILE SUM
#define WHOLE 1
#include "grouped_tile.h"
#undef TILE
#undef WHOLE
