/* The tiles of tile.h for one type; included once for float and once for double. */

#define UNROLL _Pragma("GCC unroll 16")

typedef void (*NAME(rows_fn))(ptrdiff_t taps, ptrdiff_t kc, const REAL *const *a, ptrdiff_t a_pitch,
                              ptrdiff_t a_shift, ptrdiff_t ahead, int apart, const REAL *b,
                              REAL *const *c, ptrdiff_t c_shift, int last, int how);
typedef void (*NAME(columns_fn))(ptrdiff_t kc, const REAL *a, const REAL *b, const ptrdiff_t *offset,
                                 ptrdiff_t ahead, ptrdiff_t asked, ptrdiff_t asks, REAL *c,
                                 ptrdiff_t ldc, int accumulate);

/* acc[m][v] += row[m][k] * b[v]; `half`, the last one is in halves[m]. */
INLINE void NAME(rows_step)(const int mr, const int nv, const int half, const REAL *const *row,
                            ptrdiff_t k, const REAL *b, VEC (*acc)[NV_MAX], NAME(half) *halves) {
    VEC bv[NV_MAX];
    UNROLL for (int v = 0; v < nv - half; v++) bv[v] = *(const VEC *)(b + v * LANES);
    UNROLL for (int m = 0; m < mr; m++) {
        VEC am = row[m][k] - (VEC){0};
        if (half) KEEP(am);
        UNROLL for (int v = 0; v < nv - half; v++) acc[m][v] += am * bv[v];
        if (half)
            NAME(add_product)(halves + m, NAME(low)(am),
                              *(const NAME(half) *)(b + (nv - 1) * LANES));
    }
}

/* a: taps x a_pitch row pointers, of which the first mr of each tap are used, a_shift elements on, and
 * asked for are those `ahead` pointers on, unless it is 0: `apart`, by each tap, else by the first and
 * the last one, between which the others read. b: packed panel; c: mr row pointers, written c_shift
 * elements on, and of their last vector `last` elements. */
INLINE void NAME(rows_tile)(const int mr, const int nv, const int half, ptrdiff_t taps,
                            ptrdiff_t kc, const REAL *const *a, ptrdiff_t a_pitch, ptrdiff_t a_shift,
                            ptrdiff_t ahead, int apart, const REAL *b, REAL *const *c,
                            ptrdiff_t c_shift, int last, int how) {
    VEC acc[MR_MAX][NV_MAX];
    NAME(half) halves[MR_MAX];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = how != GO_ON ? (VEC){0}
                                     : NAME(read)((const char *)(c[m] + c_shift + v * LANES),
                                                  v == nv - 1 ? last : LANES);
    if (half) UNROLL for (int m = 0; m < mr; m++) halves[m] = NAME(low)(acc[m][nv - 1]);
    for (ptrdiff_t t = 0; t < taps; t++, a += a_pitch) {
        const REAL *row[MR_MAX];
        UNROLL for (int m = 0; m < mr; m++) row[m] = a[m] + a_shift;
        /* A line of each row at a time: what is asked for at once, loads wait for. */
        const int asks = ahead && (apart || t == 0 || t == taps - 1);
        for (ptrdiff_t k = 0; k < kc;) {
            const ptrdiff_t end = asks ? MIN(kc, k + 64 / (ptrdiff_t)sizeof(REAL)) : kc;
            if (asks)
                UNROLL for (int m = 0; m < mr; m++)
                    __builtin_prefetch(a[m + ahead] + a_shift + k, 0, 2);
            for (; k + K_STEPS <= end; k += K_STEPS, b += K_STEPS * nv * LANES)
                UNROLL for (int i = 0; i < K_STEPS; i++)
                    NAME(rows_step)(mr, nv, half, row, k + i, b + i * nv * LANES, acc, halves);
            for (; k < end; k++, b += nv * LANES)
                NAME(rows_step)(mr, nv, half, row, k, b, acc, halves);
        }
    }
    if (half) UNROLL for (int m = 0; m < mr; m++) acc[m][nv - 1] = NAME(wide)(halves[m]);
    if (how == STREAM) {
        UNROLL for (int m = 0; m < mr; m++)
            UNROLL for (int v = 0; v < nv; v++) STREAM_VECTOR(c[m] + c_shift + v * LANES, acc[m][v]);
        return;
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            NAME(write)((char *)(c[m] + c_shift + v * LANES), acc[m][v], v == nv - 1 ? last : LANES);
}

/* a: packed panel [kc][mr]; b + offset[k]: nv vectors of consecutive positions; asked for are those
 * `ahead` elements on, of `asks` steps from `asked` on; c: mr rows ldc apart. */
INLINE void NAME(columns_tile)(const int mr, const int nv, ptrdiff_t kc, const REAL *a, const REAL *b,
                               const ptrdiff_t *offset, ptrdiff_t ahead, ptrdiff_t asked,
                               ptrdiff_t asks, REAL *c, ptrdiff_t ldc, int accumulate) {
    VEC acc[MR_MAX][NV_MAX];
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++)
            acc[m][v] = accumulate ? *(const VEC *)(c + m * ldc + v * LANES) : (VEC){0};
    for (ptrdiff_t k = 0; k < kc; k++, a += mr) {
        const REAL *position = b + offset[k];
        VEC bv[NV_MAX];
        UNROLL for (int v = 0; v < nv; v++) bv[v] = *(const VEC *)(position + v * LANES);
        if ((size_t)(k - asked) < (size_t)asks)
            UNROLL for (int v = 0; v < nv; v++)
                __builtin_prefetch(position + ahead + v * LANES, 0, 2);
        UNROLL for (int m = 0; m < mr; m++) {
            VEC am = a[m] - (VEC){0};
            UNROLL for (int v = 0; v < nv; v++) acc[m][v] += am * bv[v];
        }
    }
    UNROLL for (int m = 0; m < mr; m++)
        UNROLL for (int v = 0; v < nv; v++) *(VEC *)(c + m * ldc + v * LANES) = acc[m][v];
}

/* One instance for every height up to the tile's limit, and the table that finds it. */
#define HEIGHTS_2(X, ...) X(1, __VA_ARGS__) X(2, __VA_ARGS__)
#define HEIGHTS_3(X, ...) HEIGHTS_2(X, __VA_ARGS__) X(3, __VA_ARGS__)
#define HEIGHTS_4(X, ...) HEIGHTS_3(X, __VA_ARGS__) X(4, __VA_ARGS__)
#define HEIGHTS_6(X, ...) HEIGHTS_4(X, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__)
#define HEIGHTS_8(X, ...) HEIGHTS_6(X, __VA_ARGS__) X(7, __VA_ARGS__) X(8, __VA_ARGS__)
#define HEIGHTS_12(X, ...)                                                                          \
    HEIGHTS_8(X, __VA_ARGS__) X(9, __VA_ARGS__) X(10, __VA_ARGS__) X(11, __VA_ARGS__) X(12, __VA_ARGS__)

#define INSTANCE(MR, NV, HALF)                                                                      \
    static void NAME(rows_##MR##x##NV##_##HALF)(                                                    \
        ptrdiff_t taps, ptrdiff_t kc, const REAL *const *a, ptrdiff_t a_pitch, ptrdiff_t a_shift,   \
        ptrdiff_t ahead, int apart, const REAL *b, REAL *const *c, ptrdiff_t c_shift, int last,     \
        int how) {                                                                                  \
        NAME(rows_tile)(MR, NV, HALF, taps, kc, a, a_pitch, a_shift, ahead, apart, b, c, c_shift,   \
                        last, how);                                                                 \
    }
#define ENTRY(MR, NV, HALF) [NV][MR] = NAME(rows_##MR##x##NV##_##HALF),
#define DEFINE(NV, MR) HEIGHTS_##MR(INSTANCE, NV, 0)
#define DEFINE_HALF(NV, MR) HEIGHTS_##MR(INSTANCE, NV, 1)
#define ENTER(NV, MR) HEIGHTS_##MR(ENTRY, NV, 0)
#define ENTER_HALF(NV, MR) HEIGHTS_##MR(ENTRY, NV, 1)
ROWS_INSTANCES(DEFINE)
HALF_INSTANCES(DEFINE_HALF)
static const NAME(rows_fn) NAME(rows_tiles)[2][ROWS_NV + 1][MR_MAX + 1] = {{ROWS_INSTANCES(ENTER)},
                                                                        {HALF_INSTANCES(ENTER_HALF)}};
#undef ENTER_HALF
#undef ENTER
#undef DEFINE_HALF
#undef DEFINE
#undef ENTRY
#undef INSTANCE

#define INSTANCE(MR, NV)                                                                            \
    static void NAME(columns_##MR##x##NV)(ptrdiff_t kc, const REAL *a, const REAL *b,               \
                                          const ptrdiff_t *offset, ptrdiff_t ahead,                 \
                                          ptrdiff_t asked, ptrdiff_t asks, REAL *c, ptrdiff_t ldc,  \
                                          int acc) {                                                \
        NAME(columns_tile)(MR, NV, kc, a, b, offset, ahead, asked, asks, c, ldc, acc);              \
    }
#define DEFINE(NV, MR) HEIGHTS_##MR(INSTANCE, NV)
TILE_INSTANCES(DEFINE)
#undef DEFINE
#define ENTRY(MR, NV) [NV][MR] = NAME(columns_##MR##x##NV),
#define DEFINE(NV, MR) HEIGHTS_##MR(ENTRY, NV)
static const NAME(columns_fn) NAME(columns_tiles)[NV_MAX + 1][MR_MAX + 1] = {TILE_INSTANCES(DEFINE)};
#undef ENTRY
#undef DEFINE
#undef INSTANCE
#undef HEIGHTS_12
#undef HEIGHTS_8
#undef HEIGHTS_6
#undef HEIGHTS_4
#undef HEIGHTS_3
#undef HEIGHTS_2
#undef UNROLL
