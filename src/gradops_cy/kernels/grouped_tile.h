/* The register tile of grouped.h for one type of vectors: positions by one vector of lanes. */

#define VEC TILE(vec)
#define UNROLL _Pragma("GCC unroll 32")

/* `width` taps that lie next to each other: what an entry holds is loaded once for all of them. */
#define STEP(width, from, k, column)                                                               \
    {                                                                                              \
        VEC w[width];                                                                              \
        UNROLL for (int t = 0; t < width; t++)                                                     \
            w[t] = *(const VEC *)(weight + t * span->weight_pitch + (k) * span->panel);            \
        UNROLL for (int e = 0; e < mr + width - 1; e++) {                                          \
            VEC x = TILE(of_entry)(kind, column, (from) + e * (ptrdiff_t)sizeof(VEC));             \
            HOLD_VECTOR(x);                                                                        \
            UNROLL for (int t = 0; t < width; t++)                                                 \
                if (e >= t && e - t < mr) {                                                        \
                    if (pairs) acc[e - t] = TILE(add_pairs)(acc[e - t], w[t], x);                  \
                    else acc[e - t] += w[t] * x;                                                   \
                }                                                                                  \
        }                                                                                          \
    }
/* Without this the compiler would keep a quad's entries, on the stack, from one step to the next. */
#define QUAD_STEP(width, column)                                                                   \
    HOLD(source);                                                                                  \
    HOLD(weight);                                                                                  \
    STEP(width, source, k + column, column)
#define SLIDE(width)                                                                               \
    for (ptrdiff_t k = 0; quads && k < span->depth; k += QUAD, source += span->source_pitch) {     \
        QUAD_STEP(width, 0)                                                                        \
        QUAD_STEP(width, 1)                                                                        \
        QUAD_STEP(width, 2)                                                                        \
        QUAD_STEP(width, 3)                                                                        \
    }                                                                                              \
    for (ptrdiff_t k = 0; !quads && k < span->depth; k++) {                                        \
        STEP(width, source + k % columns * sizeof(REAL), k, 0)                                     \
        if ((k + 1) % columns == 0) source += span->source_pitch;                                  \
    }

/* An entry of its own for each k, or the k of its `column`. */
INLINE VEC TILE(of_entry)(const int kind, const int column, const char *entry) {
    if (kind >= BROADCAST) return *(const REAL *)entry - (VEC){0};
#if WHOLE
    if (kind >= QUADS) {
        SUM(indices) index;
        UNROLL for (int l = 0; l < LANES; l++) index[l] = l / QUAD * QUAD + column;
        return SUM(permute)(*(const VEC *)entry, index);
    }
#endif
    (void)column;
    return *(const VEC *)entry;
}

/* Multiply-adds are no branch of this: written as a function of the sum, they were compiled with every
 * second sum on the stack. */
INLINE VEC TILE(add_pairs)(VEC sum, VEC w, VEC x) {
#if HAVE_PAIRS && WHOLE
    return (VEC)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
#elif HAVE_PAIRS
    return (VEC)_mm256_dpbf16_ps((__m256)sum, (__m256bh)w, (__m256bh)x);
#else
    (void)w, (void)x;
    return sum;
#endif
}

/* The sums of mr positions from `first` on, of one vector of lanes. */
INLINE void TILE(group_tile)(const int mr, const int kind, const Span *span, ptrdiff_t first,
                             char *dst, ptrdiff_t dst_step) {
    VEC acc[GROUP_MR];
    const int pairs = kind == PAIRED || kind == QUADS_PAIRED || kind == BROADCAST_PAIRED;
    const int quads = kind == QUADS || kind == QUADS_PAIRED;
    /* k's of an entry */
    const ptrdiff_t columns = kind >= BROADCAST ? sizeof(VEC) / sizeof(REAL) : 1;
    UNROLL for (int m = 0; m < mr; m++) acc[m] = (VEC){0};
    for (ptrdiff_t r = 0; r < span->rows; r++) {
        const char *row = span->row[r] + first * (ptrdiff_t)sizeof(VEC);
        const REAL *weight = (const REAL *)span->weight[r];
        ptrdiff_t t = 0;
        while (t < span->taps) {
            const char *source = row + span->offset[t];
            ptrdiff_t width = span->sliding ? span->taps - t : 1;
            if (width >= 3) {
                SLIDE(3)
                width = 3;
            } else if (width == 2) {
                SLIDE(2)
            } else {
                SLIDE(1)
            }
            weight += width * span->weight_pitch;
            t += width;
        }
    }
    UNROLL for (int m = 0; m < mr; m++, dst += dst_step) *(VEC *)dst = acc[m];
}

/* One instance for every height: rows are cut evenly, and a short last tile would wait for itself. */
#define INSTANCE(MR, KIND)                                                                         \
    static void TILE(tile_##KIND##_##MR)(const Span *span, ptrdiff_t first, char *dst,             \
                                         ptrdiff_t dst_step) {                                     \
        TILE(group_tile)(MR, KIND, span, first, dst, dst_step);                                    \
    }
#define ENTRY(MR, KIND) TILE(tile_##KIND##_##MR),
#define TILES(KIND)                                                                                \
    GROUP_HEIGHTS(INSTANCE, KIND)                                                                  \
    static const group_fn TILE(tiles_##KIND)[] = {NULL, GROUP_HEIGHTS(ENTRY, KIND)};

TILES(BROADCAST)
#if WHOLE
TILES(SPREAD)
#endif
#if WHOLE && HAVE_QUADS
TILES(QUADS)
#endif
#if HAVE_PAIRS && WHOLE
TILES(PAIRED)
TILES(QUADS_PAIRED)
#elif HAVE_PAIRS
TILES(BROADCAST_PAIRED)
#endif
#undef INSTANCE
#undef ENTRY
#undef TILES
#undef SLIDE
#undef QUAD_STEP
#undef STEP
#undef UNROLL
#undef VEC
