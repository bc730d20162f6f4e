/* The products of few.h for one type; included once for float and once for double. */

#define UNROLL _Pragma("GCC unroll 16")

/* nv vectors of channels, of the last one `last`; rows of b are contiguous, `pitch` elements apart. */
INLINE void NAME(few_by_input)(const int mr, const int nv, ptrdiff_t kc, const REAL *const *a,
                               const REAL *b, ptrdiff_t pitch, REAL *const *c, ptrdiff_t c_shift,
                               int last, int how) {
    VEC acc[FEW_MR][FEW_SUMS];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = how != GO_ON ? (VEC){0}
                                     : NAME(read)((const char *)(c[m] + c_shift + v * LANES),
                                                  v == nv - 1 ? last : LANES);
    for (ptrdiff_t k = 0; k < kc; k++, b += pitch) {
        VEC am[FEW_MR];
        UNROLL for (int m = 0; m < mr; m++) am[m] = a[m][k] - (VEC){0};
        UNROLL for (int v = 0; v < nv; v++) {
            const VEC bv = NAME(read)((const char *)(b + v * LANES), v == nv - 1 ? last : LANES);
            __builtin_prefetch(b + FEW_AHEAD * pitch + v * LANES);
            UNROLL for (int m = 0; m < mr; m++) acc[m][v] += am[m] * bv;
        }
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            NAME(write)((char *)(c[m] + c_shift + v * LANES), acc[m][v], v == nv - 1 ? last : LANES);
}

/* Up to a vector of channels, whose rows of k are contiguous, `pitch` elements apart: squares of them are
 * transposed in registers. */
INLINE void NAME(few_by_output)(const int mr, ptrdiff_t kc, const REAL *const *a, const REAL *b,
                                ptrdiff_t pitch, REAL *const *c, ptrdiff_t c_shift, int channels,
                                int how) {
    VEC acc[FEW_MR];
    UNROLL for (int m = 0; m < mr; m++)
        acc[m] = how != GO_ON ? (VEC){0} : NAME(read)((const char *)(c[m] + c_shift), channels);
    for (ptrdiff_t k = 0; k < kc; k += LANES) {
        const int width = kc - k < LANES ? (int)(kc - k) : LANES;
        const REAL *row = b + k;
        VEC v[LANES];
        UNROLL for (int i = 0; i < LANES; i++) {
            v[i] = i < channels ? NAME(read)((const char *)row, width) : (VEC){0};
            row += pitch;
            HOLD(row);
        }
        NAME(square)(v);
        UNROLL for (int j = 0; j < LANES; j++) {
            if (j >= width) break;
            UNROLL for (int m = 0; m < mr; m++) acc[m] += a[m][k + j] * v[j];
        }
    }
    UNROLL for (int m = 0; m < mr; m++)
        NAME(write)((char *)(c[m] + c_shift), acc[m], channels);
}

INLINE void NAME(few_rows_of)(const int mr, ptrdiff_t channels, ptrdiff_t kc, const REAL *const *a,
                              const REAL *b, ptrdiff_t k_pitch, ptrdiff_t i_pitch, REAL *const *c,
                              int how) {
    const int nv = FEW_SUMS / (mr > 2 ? FEW_MR : mr);
    ptrdiff_t i = 0;
    if (i_pitch == 1) {
        for (; i + nv * LANES <= channels; i += nv * LANES)
            NAME(few_by_input)(mr, nv, kc, a, b + i, k_pitch, c, i, LANES, how);
        for (; i < channels; i += LANES)
            NAME(few_by_input)(mr, 1, kc, a, b + i, k_pitch, c, i,
                               channels - i < LANES ? (int)(channels - i) : LANES, how);
        return;
    }
    for (; i + LANES <= channels; i += LANES)
        NAME(few_by_output)(mr, kc, a, b + i * i_pitch, i_pitch, c, i, LANES, how);
    if (i < channels)
        NAME(few_by_output)(mr, kc, a, b + i * i_pitch, i_pitch, c, i,
                            (int)(channels - i), how);
}

static void NAME(few_rows)(int mr, ptrdiff_t channels, ptrdiff_t kc, const REAL *const *a,
                           const REAL *b, ptrdiff_t k_pitch, ptrdiff_t i_pitch, REAL *const *c,
                           int how) {
#define CASE(MR)                                                                                    \
    if (mr == MR)                                                                                   \
        NAME(few_rows_of)(MR, channels, kc, a, b, k_pitch, i_pitch, c, how);
    CASE(1) CASE(2) CASE(3) CASE(4)
#undef CASE
}

#undef UNROLL
