/* The register tiles of grouped.h for one type that sums: of whole vectors, and of half ones. */

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
