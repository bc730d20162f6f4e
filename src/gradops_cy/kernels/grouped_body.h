/* The kernels of grouped.h for one storage type; with COMPUTING, what depends on the type that sums
 * alone. Tiles are in grouped_tile.h. */

#define VEC SUM(vec)
#define IVEC SUM(indices)
#define UNROLL _Pragma("GCC unroll 32")

#ifdef COMPUTING
/* Lanes first to first + lanes - 1, of which lane c reads channels of its group c / inputs. */
static void NAME(plan_spread)(Spread *s, ptrdiff_t inputs, ptrdiff_t first, ptrdiff_t lanes) {
    ptrdiff_t low = first / inputs * s->depth;
    ptrdiff_t high = (first + lanes - 1) / inputs * s->depth;
    s->vectors = (high + s->columns - 1 - low) / LANES + 1;
    INT channel[LANES];
    s->common = high + s->depth - low <= s->vectors * LANES;
    for (ptrdiff_t l = 0; l < LANES; l++)
        channel[l] = l < lanes ? (INT)((first + l) / inputs * s->depth - low) : 0;
    for (ptrdiff_t row = 0, k = 0; row < s->rows; row++, k += s->columns) {
        /* No further than the last channel, where whole vectors allow it. */
        ptrdiff_t start = s->channels - s->vectors * LANES;
        if (start < 0) start = 0;
        ptrdiff_t wanted = s->common ? low : low + k;
        if (start > wanted) start = wanted;
        s->start[row] = start;
        for (ptrdiff_t l = 0; l < LANES; l++)
            ((INT *)s->index)[row * LANES + l] = channel[l] + (INT)(low + k + l % s->columns - start);
    }
}
#endif

/* Entries `at` and on. A load whose address is that of a store on its way, but for the page, waits for it: so
 * many loads come before the stores. */
INLINE void NAME(spread_at_once)(const int count, const IVEC *index, const char *src, ptrdiff_t step,
                                 char *const *to, ptrdiff_t at) {
    VEC x[SPREAD_AT_ONCE];
    UNROLL for (int i = 0; i < SPREAD_AT_ONCE; i++, src += step) {
        x[i] = NAME(read)(src, LANES);
        HOLD_VECTOR(x[i]);
    }
    UNROLL for (int k = 0; k < count; k++)
        UNROLL for (int i = 0; i < SPREAD_AT_ONCE; i++)
            ((VEC *)to[k])[at + i] = SUM(permute)(x[i], index[k]);
}

/* dst[row][entry] = the lanes' channels of that row at `entries` positions `step` bytes apart, for `count`
 * rows from `first` on: one vector is read and permuted for each, or one for all. */
INLINE void NAME(spread_few)(const int count, const int common, const Spread *s, ptrdiff_t first,
                             const char *src, ptrdiff_t step, ptrdiff_t entries, char *dst) {
    IVEC index[4];
    const char *from[4];
    char *to[4];
    UNROLL for (int k = 0; k < count; k++) {
        index[k] = *(const IVEC *)(s->index + (first + k) * VECTOR_BYTES);
        from[k] = src + s->start[first + k] * SIZE;
        to[k] = dst + k * s->pitch;
    }
    ptrdiff_t e = 0;
    for (; common && e + SPREAD_AT_ONCE <= entries; e += SPREAD_AT_ONCE) {
        NAME(spread_at_once)(count, index, from[0], step, to, e);
        from[0] += SPREAD_AT_ONCE * step;
    }
    if (common && e > 0 && e < entries) {   /* some of them once more */
        ptrdiff_t again = e + SPREAD_AT_ONCE - entries;
        NAME(spread_at_once)(count, index, from[0] - again * step, step, to, e - again);
        e = entries;
    }
    for (; e < entries; e++) {
        VEC x = NAME(read)(from[0], LANES);
        UNROLL for (int k = 0; k < count; k++) {
            if (!common && k > 0) x = NAME(read)(from[k], LANES);
            ((VEC *)to[k])[e] = SUM(permute)(x, index[k]);
            from[k] += step;
        }
    }
}

/* The same for one row that several vectors hold, or a part of one. */
static void NAME(spread_wide)(const Spread *s, ptrdiff_t k, const char *src, ptrdiff_t step,
                              ptrdiff_t entries, char *dst) {
    const IVEC index = *(const IVEC *)(s->index + k * VECTOR_BYTES);
    const ptrdiff_t left = s->channels - s->start[k];
    src += s->start[k] * SIZE;
    for (ptrdiff_t e = 0; e < entries; e++, src += step) {
        IVEC r = {0};
        for (ptrdiff_t v = 0; v < s->vectors; v++) {
            ptrdiff_t n = left - v * LANES;
            VEC x = NAME(read)(src + v * LANES * SIZE, n < LANES ? (int)n : LANES);
            r |= ((index & -LANES) == (INT)(v * LANES)) & (IVEC)SUM(permute)(x, index);
        }
        ((VEC *)dst)[e] = (VEC)r;
    }
}

INLINE void NAME(spread)(const Spread *s, const char *src, ptrdiff_t step, ptrdiff_t entries,
                         char *dst) {
    ptrdiff_t k = 0;
    if (s->vectors > 1 || s->channels < LANES)
        for (; k < s->rows; k++)
            NAME(spread_wide)(s, k, src, step, entries, dst + k * s->pitch);
    for (; k + 4 <= s->rows; k += 4) {
        if (s->common) NAME(spread_few)(4, 1, s, k, src, step, entries, dst + k * s->pitch);
        else NAME(spread_few)(4, 0, s, k, src, step, entries, dst + k * s->pitch);
    }
    if (k + 2 <= s->rows) {
        if (s->common) NAME(spread_few)(2, 1, s, k, src, step, entries, dst + k * s->pitch);
        else NAME(spread_few)(2, 0, s, k, src, step, entries, dst + k * s->pitch);
        k += 2;
    }
    if (k < s->rows) NAME(spread_few)(1, 1, s, k, src, step, entries, dst + k * s->pitch);
}

/* Sums are written where they belong if that takes no more than a store. */
static void NAME(group_span)(const Span *span, ptrdiff_t first, ptrdiff_t positions, ptrdiff_t lanes,
                             char *dst) {
    _Alignas(VECTOR_BYTES) VEC sums[GROUP_MR];  /* to be loaded as they were stored */
    const group_fn *tile = SUM(tiles_SPREAD);
    ptrdiff_t tiles = (positions + GROUP_MR - 1) / GROUP_MR, j = 0;
#if HAVE_QUADS
    if (span->quads) tile = SUM(tiles_QUADS);
#endif
    if (span->broadcast) tile = SUM(tiles_BROADCAST);
#if HAVE_HALF_VECTORS
    if (span->broadcast == LANES / 2) tile = SUM(tiles_BROADCAST_half);
#endif
#if HAVE_PAIRS
    if (span->paired) {
        tile = span->quads ? SUM(tiles_QUADS_PAIRED) : SUM(tiles_PAIRED);
        if (span->broadcast) tile = SUM(tiles_BROADCAST_PAIRED_half);
    }
#endif
    const ptrdiff_t whole = span->broadcast ? span->broadcast : LANES;
    const int in_place = SIZE == sizeof(REAL) && lanes == whole && !span->accumulate;
    dst += first * span->dst_step;
    for (ptrdiff_t i = 1; i <= tiles; i++) {
        ptrdiff_t end = positions * i / tiles;
        if (in_place) {
            tile[end - j](span, first + j, dst, span->dst_step);
            dst += (end - j) * span->dst_step;
        } else {
            tile[end - j](span, first + j, (char *)sums, sizeof(VEC));
            for (ptrdiff_t m = 0; m < end - j; m++, dst += span->dst_step) {
                if (span->accumulate) sums[m] += NAME(read)(dst, (int)lanes);
                NAME(write)(dst, sums[m], (int)lanes);
            }
        }
        j = end;
    }
}

#undef UNROLL
#undef VEC
#undef IVEC
#undef COMPUTING
#undef NAME
#undef SIZE
