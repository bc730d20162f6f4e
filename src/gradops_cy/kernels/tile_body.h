/* The tiles of tile.h for one type; included once for float and once for double. */

#define UNROLL _Pragma("GCC unroll 16")

typedef void (*NAME(rows_fn))(ptrdiff_t taps, ptrdiff_t kc, const REAL *const *a, ptrdiff_t a_pitch,
                              ptrdiff_t a_shift, ptrdiff_t ahead, const REAL *b, REAL *const *c,
                              ptrdiff_t c_shift, int last, int how);
typedef void (*NAME(columns_fn))(ptrdiff_t kc, const REAL *a, const REAL *b, const ptrdiff_t *offset,
                                 ptrdiff_t ahead, REAL *c, ptrdiff_t ldc, int accumulate);

/* acc[m][v] += row[m][k] * b[v] */
INLINE void NAME(rows_step)(const int mr, const int nv, const REAL *const *row, ptrdiff_t k,
                            const REAL *b, VEC (*acc)[NV_MAX]) {
    VEC bv[NV_MAX];
    UNROLL for (int v = 0; v < nv; v++) bv[v] = *(const VEC *)(b + v * LANES);
    UNROLL for (int m = 0; m < mr; m++) {
        VEC am = row[m][k] - (VEC){0};
        UNROLL for (int v = 0; v < nv; v++) acc[m][v] += am * bv[v];
    }
}

/* a: taps x a_pitch row pointers, of which the first mr of each tap are used, a_shift elements on, and
 * asked for are those `ahead` pointers on, unless it is 0; b: packed panel; c: mr row pointers, written
 * c_shift elements on, and of their last vector `last` elements. */
INLINE void NAME(rows_tile)(const int mr, const int nv, ptrdiff_t taps, ptrdiff_t kc,
                            const REAL *const *a, ptrdiff_t a_pitch, ptrdiff_t a_shift,
                            ptrdiff_t ahead, const REAL *b, REAL *const *c, ptrdiff_t c_shift,
                            int last, int how) {
    VEC acc[MR_MAX][NV_MAX];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = how != GO_ON ? (VEC){0}
                                     : NAME(read)((const char *)(c[m] + c_shift + v * LANES),
                                                  v == nv - 1 ? last : LANES);
    for (ptrdiff_t t = 0; t < taps; t++, a += a_pitch) {
        const REAL *row[MR_MAX];
        UNROLL for (int m = 0; m < mr; m++) row[m] = a[m] + a_shift;
        if (ahead)
            for (ptrdiff_t i = 0; i < kc; i += 64 / sizeof(REAL))
                UNROLL for (int m = 0; m < mr; m++)
                    __builtin_prefetch(a[m + ahead] + a_shift + i, 0, 3);
        ptrdiff_t k = 0;
        for (; k + K_STEPS <= kc; k += K_STEPS, b += K_STEPS * nv * LANES)
            UNROLL for (int i = 0; i < K_STEPS; i++)
                NAME(rows_step)(mr, nv, row, k + i, b + i * nv * LANES, acc);
        for (; k < kc; k++, b += nv * LANES) NAME(rows_step)(mr, nv, row, k, b, acc);
    }
    if (how == STREAM) {
        UNROLL for (int m = 0; m < mr; m++)
            UNROLL for (int v = 0; v < nv; v++) STREAM_VECTOR(c[m] + c_shift + v * LANES, acc[m][v]);
        return;
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            NAME(write)((char *)(c[m] + c_shift + v * LANES), acc[m][v], v == nv - 1 ? last : LANES);
}

/* a: packed panel [kc][mr]; b + offset[k]: nv vectors of consecutive positions, and asked for are those
 * `ahead` elements on, unless it is 0; c: mr rows ldc apart. */
INLINE void NAME(columns_tile)(const int mr, const int nv, ptrdiff_t kc, const REAL *a, const REAL *b,
                               const ptrdiff_t *offset, ptrdiff_t ahead, REAL *c, ptrdiff_t ldc,
                               int accumulate) {
    VEC acc[MR_MAX][NV_MAX];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = accumulate ? *(const VEC *)(c + m * ldc + v * LANES) : (VEC){0};
    for (ptrdiff_t k = 0; k < kc; k++, a += mr) {
        const REAL *position = b + offset[k];
        VEC bv[NV_MAX];
        UNROLL for (int v = 0; v < nv; v++) bv[v] = *(const VEC *)(position + v * LANES);
        if (ahead)
            UNROLL for (int v = 0; v < nv; v++) __builtin_prefetch(position + ahead + v * LANES);
        UNROLL for (int m = 0; m < mr; m++) {
            VEC am = a[m] - (VEC){0};
            UNROLL for (int v = 0; v < nv; v++) acc[m][v] += am * bv[v];
        }
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++) *(VEC *)(c + m * ldc + v * LANES) = acc[m][v];
}

/* One instance for every height up to the tile's limit, and the table that finds it. */
#define INSTANCE(MR, NV)                                                                            \
    static void NAME(rows_##MR##x##NV)(ptrdiff_t taps, ptrdiff_t kc, const REAL *const *a,          \
                                       ptrdiff_t a_pitch, ptrdiff_t a_shift, ptrdiff_t ahead,       \
                                       const REAL *b, REAL *const *c, ptrdiff_t c_shift, int last,  \
                                       int how) {                                                   \
        NAME(rows_tile)(MR, NV, taps, kc, a, a_pitch, a_shift, ahead, b, c, c_shift, last, how);    \
    }                                                                                               \
    static void NAME(columns_##MR##x##NV)(ptrdiff_t kc, const REAL *a, const REAL *b,               \
                                          const ptrdiff_t *offset, ptrdiff_t ahead, REAL *c,        \
                                          ptrdiff_t ldc, int acc) {                                 \
        NAME(columns_tile)(MR, NV, kc, a, b, offset, ahead, c, ldc, acc);                           \
    }
#define HEIGHTS_2(X, NV) X(1, NV) X(2, NV)
#define HEIGHTS_3(X, NV) HEIGHTS_2(X, NV) X(3, NV)
#define HEIGHTS_4(X, NV) HEIGHTS_3(X, NV) X(4, NV)
#define HEIGHTS_6(X, NV) HEIGHTS_4(X, NV) X(5, NV) X(6, NV)
#define HEIGHTS_8(X, NV) HEIGHTS_6(X, NV) X(7, NV) X(8, NV)
#define HEIGHTS_12(X, NV) HEIGHTS_8(X, NV) X(9, NV) X(10, NV) X(11, NV) X(12, NV)

#define DEFINE(NV, MR) HEIGHTS_##MR(INSTANCE, NV)
TILE_INSTANCES(DEFINE)
#undef DEFINE
#undef INSTANCE

#define ENTRY(MR, NV) [NV][MR] = NAME(rows_##MR##x##NV),
#define DEFINE(NV, MR) HEIGHTS_##MR(ENTRY, NV)
static const NAME(rows_fn) NAME(rows_tiles)[NV_MAX + 1][MR_MAX + 1] = {TILE_INSTANCES(DEFINE)};
#undef ENTRY
#define ENTRY(MR, NV) [NV][MR] = NAME(columns_##MR##x##NV),
static const NAME(columns_fn) NAME(columns_tiles)[NV_MAX + 1][MR_MAX + 1] = {TILE_INSTANCES(DEFINE)};
#undef ENTRY
#undef DEFINE
#undef UNROLL
