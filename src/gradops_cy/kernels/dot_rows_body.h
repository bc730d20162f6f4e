/* Register tiles of positions by up to VECTORS vectors of BITS; dot_vectors.h includes this for each
 * width. */

#define JOIN_NAMES(a, b) a##b
#define JOIN(a, b) JOIN_NAMES(a, b)
#define NAME(name) JOIN(name, BITS)
#define MM(operation) JOIN(NAME(_mm), operation)
#define SUMS NAME(__m)
#define PAIRS JOIN(NAME(__m), bh)

/* acc[m][v] += row[m][k, k + 1] * b[v] */
INLINE void NAME(dot_step_)(const int mr, const int nv, const char *const *row, ptrdiff_t k,
                            const char *b, SUMS (*acc)[VECTORS]) {
    PAIRS bv[VECTORS];
    UNROLL for (int v = 0; v < nv; v++) memcpy(bv + v, b + 64 * v, sizeof(PAIRS));
    UNROLL for (int m = 0; m < mr; m++) {
        int32_t pair;
        memcpy(&pair, row[m] + k, sizeof pair);
        PAIRS am = (PAIRS)MM(_set1_epi32)(pair);
        UNROLL for (int v = 0; v < nv; v++) acc[m][v] = MM(_dpbf16_ps)(acc[m][v], am, bv[v]);
    }
}

/* mr positions x nv vectors of channels: c = sum over taps and k of
 * a[position][offset[t] + k] * panel[index[t]][k].
 * a, c: a pointer for each position, a_shift and c_shift bytes on; c is float or, `rounded`, bfloat16
 * of `channels`; panel [tap][kc/2][nv*16][2]; offsets in bytes. `ahead`, unless NULL,
 * points to positions that are asked for; so are results, `touched` bytes on. */
INLINE void NAME(dot_rows_)(const int mr, const int nv, ptrdiff_t taps, ptrdiff_t kc,
                            const char *const *a, ptrdiff_t a_shift, const ptrdiff_t *offset,
                            const ptrdiff_t *index, const char *panel, char *const *c,
                            ptrdiff_t c_shift, ptrdiff_t channels, int rounded, int how,
                            const char *const *ahead, ptrdiff_t touched) {
    SUMS acc[DOT_MR][VECTORS];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = how == GO_ON ? MM(_loadu_ps)((const float *)(c[m] + c_shift) + 16 * v)
                                     : MM(_setzero_ps)();
    /* Stores of few channels to each position are waited for, where prefetchers do not follow them. */
    if (rounded && how != STREAM)
        UNROLL for (int m = 0; m < mr; m++) {
            __builtin_prefetch(c[m] + (c_shift + touched), 1);
            __builtin_prefetch(c[m] + (c_shift + touched + 2 * channels - 1), 1);
        }
    for (ptrdiff_t t = 0; t < taps; t++) {
        const char *row[DOT_MR], *b = panel + index[t] * kc * nv * 32;
        /* Pointers would else be copied to the stack before the first tap, and be read from there. */
        __asm__ volatile("" ::: "memory");
        UNROLL for (int m = 0; m < mr; m++) row[m] = a[m] + (a_shift + offset[t]);
        if (ahead)
            for (ptrdiff_t i = 0; i < 2 * kc; i += 64)
                UNROLL for (int m = 0; m < mr; m++)
                    __builtin_prefetch(ahead[m] + (a_shift + offset[t] + i), 0, 3);
        ptrdiff_t k = 0;
        for (; k + 2 * DOT_STEPS <= kc; k += 2 * DOT_STEPS, b += 64 * DOT_STEPS * nv)
            UNROLL for (int i = 0; i < DOT_STEPS; i++)
                NAME(dot_step_)(mr, nv, row, 2 * k + 4 * i, b + 64 * i * nv, acc);
        for (; k < kc; k += 2, b += 64 * nv) NAME(dot_step_)(mr, nv, row, 2 * k, b, acc);
    }
    if (rounded) {
        NAME(dot_round_)(mr, nv, c, c_shift, channels, how, acc);
        return;
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            MM(_storeu_ps)((float *)(c[m] + c_shift) + 16 * v, acc[m][v]);
}

#undef JOIN_NAMES
#undef JOIN
#undef NAME
#undef MM
#undef SUMS
#undef PAIRS
#undef BITS
#undef VECTORS
