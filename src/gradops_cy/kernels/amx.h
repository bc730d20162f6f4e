/* Products of bfloat16 pairs by AMX tiles; dot.h includes this in the amx tier alone. */
#ifndef GRADOPS_AMX_H
#define GRADOPS_AMX_H

#include "between.h"

/* Tiles 0 to 3 are accumulators, 16x16 floats, 4 and 5 hold `depth` bf16 of positions, 6 and 7 of
 * weights; 5 and 7 hold `tail` if that is not 0. Those of positions, 0 to 5, have `rows` rows; what
 * is in the tiles is lost. */
static void amx_begin(int rows, int depth, int tail) {
    struct { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; }
        __attribute__((packed)) config = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        const int here = tail && t % 2 ? tail : depth;
        config.row_bytes[t] = t == 4 || t == 5 ? 2 * here : 64;
        config.rows[t] = t < 6 ? rows : here / 2;
    }
    /* Some compilers' intrinsic says that it reads one pointer of it, and stores may be left out. */
    __asm__ volatile("" ::"m"(config));
    _tile_loadconfig(&config);
}

static void amx_end(void) { _tile_release(); }

/* Loads of weights that do not fit the first-level cache leave the positions, which many weights meet,
 * in it. */
#define AMX_LOAD_WEIGHTS(tile, p, pitch) \
    do { if (stream) _tile_stream_loadd(tile, p, pitch); else _tile_loadd(tile, p, pitch); } while (0)

/* Accumulator c += a * b. Some compilers' intrinsic lacks its operands as dependencies, so the
 * instruction is spelled out with a memory barrier. */
#define AMX_DPBF16(c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

/* The accumulators of mr x nv tiles, tile row by tile row, from c and back. */
INLINE void amx_load(const int mr, const int nv, const char *c, ptrdiff_t c_pitch, int accumulate) {
    const char *c1 = c + 16 * c_pitch;
    if (accumulate) {
        _tile_loadd(0, c, c_pitch);
        if (nv == 2) _tile_loadd(1, c + 64, c_pitch);
        if (mr == 2) _tile_loadd(2, c1, c_pitch);
        if (mr == 2 && nv == 2) _tile_loadd(3, c1 + 64, c_pitch);
    } else {
        _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
    }
}
INLINE void amx_store(const int mr, const int nv, char *c, ptrdiff_t c_pitch) {
    char *c1 = c + 16 * c_pitch;
    _tile_stored(0, c, c_pitch);
    if (nv == 2) _tile_stored(1, c + 64, c_pitch);
    if (mr == 2) _tile_stored(2, c1, c_pitch);
    if (mr == 2 && nv == 2) _tile_stored(3, c1 + 64, c_pitch);
}

/* The product of a part of a, in tiles 4 and 5, and one of b, in 6 and 7; what the product before it
 * has loaded is not loaded again. A(tile, half, part) and B(tile, half, part) load a tile of either. */
#define AMX_PRODUCT(A, B, pa, pb, load_a, load_b)                                                  \
    do {                                                                                           \
        if (load_a) A(4, 0, pa);                                                                   \
        if (load_b) B(6, 0, pb);                                                                   \
        AMX_DPBF16(0, 4, 6);                                                                       \
        if (nv == 2) { if (load_b) B(7, 1, pb); AMX_DPBF16(1, 4, 7); }                             \
        if (mr == 2) { if (load_a) A(5, 1, pa); AMX_DPBF16(2, 5, 6); }                             \
        if (mr == 2 && nv == 2) AMX_DPBF16(3, 5, 7);                                               \
    } while (0)
/* One step along k: PRODUCT(part of positions, of weights, load positions, weights), in the same order
 * for both kernels. Of three parts the products of less than 2**-24 are left out. */
#define AMX_STEP(PRODUCT)                                                                          \
    do {                                                                                           \
        PRODUCT(0, parts - 1, 1, 1);                                                               \
        if (parts == 2) {                                                                          \
            PRODUCT(1, 1, 1, 0);                                                                   \
            PRODUCT(1, 0, 0, 1);                                                                   \
            PRODUCT(0, 0, 1, 0);                                                                   \
        } else if (parts == 3) {                                                                   \
            PRODUCT(0, 1, 0, 1);                                                                   \
            PRODUCT(1, 1, 1, 0);                                                                   \
            PRODUCT(1, 0, 0, 1);                                                                   \
            PRODUCT(2, 0, 1, 0);                                                                   \
            PRODUCT(0, 0, 1, 0);                                                                   \
        }                                                                                          \
    } while (0)

/* Those of the taps from `begin` on, whose positions lie at their offsets from `first` and, from step to
 * step, `apart`; panels of the weights follow each other. */
#define AMX_STEPS(PRODUCT, begin, end, first, apart, panel, stores)                                \
    for (ptrdiff_t t = begin; t < end; t++) {                                                      \
        const char *row = first + offset[t];                                                       \
        for (ptrdiff_t k = 0; k < kc; k += 32, row += apart, panel += tile * parts) {              \
            AMX_STEP(PRODUCT);                                                                     \
            if (stores) between = store_share(parts, between, 0, between.share, m);                \
            ask_ahead(m, lines);                                                                   \
        }                                                                                          \
    }

/* mr*16 positions x nv*16 channels: c = sum over taps and k of a[position][offset[t] + k] * b[t][k].
 * a: rows a_pitch bytes apart, [kc/32][part][32], offsets in bytes; kc: a multiple of 32, or what
 * tiles are deep;
 * b: panel [tap][kc/32][part][16][nv*16][2]; c: float rows c_pitch bytes apart. */
INLINE void amx_tile(const int parts, const int mr, const int nv, const int stream, ptrdiff_t taps,
                     ptrdiff_t kc, const char *a, ptrdiff_t a_pitch, const ptrdiff_t *offset,
                     const char *b, char *c, ptrdiff_t c_pitch, int accumulate,
                     Meanwhile *m) {
    const ptrdiff_t lines = m->lines, tile = MIN(kc, 32) * nv * 32;
    ptrdiff_t busy;
    Between between = share_out(m, taps, (kc + 31) / 32, &busy);
#define A(t, half, part) _tile_loadd(t, row + 64 * (part) + (half) * 16 * a_pitch, a_pitch)
#define B(t, half, part) AMX_LOAD_WEIGHTS(t, b + tile * (part) + 64 * (half), nv * 64)
#define PRODUCT(pp, pw, load_p, load_w) AMX_PRODUCT(A, B, pp, pw, load_p, load_w)
    amx_load(mr, nv, c, c_pitch, accumulate);
    AMX_STEPS(PRODUCT, 0, busy, a, 64 * parts, b, 1)
    AMX_STEPS(PRODUCT, busy, taps, a, 64 * parts, b, 0)
    amx_store(mr, nv, c, c_pitch);
#undef A
#undef B
#undef PRODUCT
}

/* The same of mr*16 positions x 16 channels, of a panel of nv*16, one part: a tile of weights meets up
 * to six of positions, so that less comes from the second-level cache. `inside`, all taps of a step
 * along k follow each other, which read the same lines of positions. The last step of each tap has
 * `tail` products, if that is not 0. */
INLINE void tall_tile(const int mr, const int stream, int inside, int tail, ptrdiff_t taps,
                      ptrdiff_t kc, const char *a, ptrdiff_t a_pitch, const ptrdiff_t *offset,
                      const char *b, int nv, char *c, ptrdiff_t c_pitch, int accumulate,
                      Meanwhile *m) {
    const ptrdiff_t lines = m->lines, steps = (kc + 31) / 32;
    const ptrdiff_t rounds = inside ? steps : taps, turns = inside ? taps : steps;
    ptrdiff_t busy;
    Between between = share_out(m, rounds, turns, &busy);
#define EACH(operation, ...)                                                                       \
    do {                                                                                           \
        operation(0, 4, __VA_ARGS__);                                                              \
        if (mr > 1) operation(1, 5, __VA_ARGS__);                                                  \
        if (mr > 2) operation(2, 4, __VA_ARGS__);                                                  \
        if (mr > 3) operation(3, 5, __VA_ARGS__);                                                  \
        if (mr > 4) operation(4, 4, __VA_ARGS__);                                                  \
        if (mr > 5) operation(5, 5, __VA_ARGS__);                                                  \
    } while (0)
#define LOAD(i, t, ...) _tile_loadd(i, c + 16 * i * c_pitch, c_pitch)
#define ZERO(i, t, ...) _tile_zero(i)
#define STORE(i, t, ...) _tile_stored(i, c + 16 * i * c_pitch, c_pitch)
#define PRODUCT(i, t, w, stores)                                                                   \
    do {                                                                                           \
        _tile_loadd(t, row + 16 * i * a_pitch, a_pitch);                                           \
        AMX_DPBF16(i, t, w);                                                                       \
        if (stores) between = store_share(1, between, i, i + 1, m);                                \
    } while (0)
/* Positions take turns in two tiles, unless these hold sums, or a tail. */
#define TURNS(i, t, stores) PRODUCT(i, t, 6, stores)
#define ONE_BY_ONE(i, t, stores) PRODUCT(i, 7, 6, stores)
#define BESIDE_TAIL(i, t, stores) PRODUCT(i, 4, 6, stores)
#define TAIL(i, t, stores) PRODUCT(i, 5, 7, stores)
#define EACH_STEP(begin, end, stores)                                                              \
    for (ptrdiff_t outer = begin; outer < end; outer++)                                            \
        for (ptrdiff_t inner = 0; inner < turns; inner++) {                                        \
            const ptrdiff_t t = inside ? inner : outer, k = inside ? outer : inner;                \
            const char *row = a + offset[t] + 64 * k;                                              \
            const char *panel = b + (t * kc + 32 * k) * nv * 32;                                   \
            if (mr <= 4 && tail && k + 1 == steps) {                                               \
                AMX_LOAD_WEIGHTS(7, panel, nv * 64);                                               \
                EACH(TAIL, stores);                                                                \
            } else {                                                                               \
                AMX_LOAD_WEIGHTS(6, panel, nv * 64);                                               \
                if (mr > 4) EACH(ONE_BY_ONE, stores);                                              \
                else if (tail) EACH(BESIDE_TAIL, stores);                                          \
                else EACH(TURNS, stores);                                                          \
            }                                                                                      \
            if (stores) between = store_share(1, between, mr, between.share, m);                   \
            ask_ahead(m, lines);                                                                   \
        }
    if (accumulate) EACH(LOAD);
    else EACH(ZERO);
    EACH_STEP(0, busy, 1)
    EACH_STEP(busy, rounds, 0)
    EACH(STORE);
#undef EACH
#undef LOAD
#undef ZERO
#undef STORE
#undef PRODUCT
#undef TURNS
#undef ONE_BY_ONE
#undef BESIDE_TAIL
#undef TAIL
#undef EACH_STEP
}

/* mr*16 channels x nv*16 positions: c = sum over taps and k of a[t][channel][k] * b[offset[t]][k]
 * [position]. a: panel [tap][kc/32][part][mr*16][32]; b: rows of pairs of k, [kc/32][part][16],
 * b_pitch bytes apart. */
INLINE void pair_tile(const int parts, const int mr, const int nv, const int stream, ptrdiff_t taps,
                      ptrdiff_t kc, const char *a, const char *b, ptrdiff_t b_pitch,
                      const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch, int accumulate,
                      Meanwhile *m) {
    const ptrdiff_t lines = m->lines, tile = mr * 1024;
    ptrdiff_t busy;
    Between between = share_out(m, taps, (kc + 31) / 32, &busy);
#define A(t, half, part) AMX_LOAD_WEIGHTS(t, a + tile * (part) + 1024 * (half), 64)
#define B(t, half, part) _tile_loadd(t, row + 16 * b_pitch * (part) + 64 * (half), b_pitch)
#define PRODUCT(pp, pw, load_p, load_w) AMX_PRODUCT(A, B, pw, pp, load_w, load_p)
    amx_load(mr, nv, c, c_pitch, accumulate);
    AMX_STEPS(PRODUCT, 0, busy, b, 16 * b_pitch * parts, a, 1)
    AMX_STEPS(PRODUCT, busy, taps, b, 16 * b_pitch * parts, a, 0)
    amx_store(mr, nv, c, c_pitch);
#undef A
#undef B
#undef PRODUCT
}

#define AMX_BY_SHAPE(name, parts, mr, nv, stream, ...)                                             \
    do {                                                                                           \
        if (mr == 2 && nv == 2 && stream) name(parts, 2, 2, 1, __VA_ARGS__);                       \
        else if (mr == 2 && nv == 2) name(parts, 2, 2, 0, __VA_ARGS__);                            \
        else if (mr == 2) name(parts, 2, 1, 0, __VA_ARGS__);                                       \
        else if (nv == 2) name(parts, 1, 2, 0, __VA_ARGS__);                                       \
        else name(parts, 1, 1, 0, __VA_ARGS__);                                                    \
    } while (0)
#define AMX_BY_PARTS(name, parts, ...)                                                             \
    do {                                                                                           \
        if (parts == 1) AMX_BY_SHAPE(name, 1, __VA_ARGS__);                                        \
        else if (parts == 2) AMX_BY_SHAPE(name, 2, __VA_ARGS__);                                   \
        else AMX_BY_SHAPE(name, 3, __VA_ARGS__);                                                   \
    } while (0)

static void run_amx(int parts, ptrdiff_t rows, int nv, int stream, int inside, int tail,
                    ptrdiff_t taps, ptrdiff_t kc, const char *a, ptrdiff_t a_pitch,
                    const ptrdiff_t *offset, const char *b, char *c, ptrdiff_t c_pitch, int accumulate,
                    Meanwhile *m) {
    const ptrdiff_t mr = (rows + 15) / 16;
#define TALL_TILE(mr, stream)                                                                      \
    tall_tile(mr, stream, inside, tail, taps, kc, a, a_pitch, offset, b + 64 * half, nv,           \
              c + 64 * half, c_pitch, accumulate, m)
    if (parts == 1 && (nv == 1 || mr > 2)) {
        /* Panels of two tiles take whole lines of the weights; each of them passes by by itself. */
        for (int half = 0; half < nv; half++) {
            if (mr == 6) TALL_TILE(6, 1);
            else if (mr == 5) TALL_TILE(5, 1);
            else if (mr == 4 && stream) TALL_TILE(4, 1);
            else if (mr == 4) TALL_TILE(4, 0);
            else if (mr == 3) TALL_TILE(3, 0);
            else if (mr == 2) TALL_TILE(2, 0);
            else TALL_TILE(1, 0);
        }
        return;
    }
    AMX_BY_PARTS(amx_tile, parts, mr, nv, stream, taps, kc, a, a_pitch, offset, b, c, c_pitch,
                 accumulate, m);
}
static void run_pairs(int parts, ptrdiff_t channels, ptrdiff_t width, int nv, int stream,
                      ptrdiff_t taps, ptrdiff_t kc, const char *a, const char *b, ptrdiff_t b_pitch,
                      const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch, int accumulate,
                      Meanwhile *m) {
    const ptrdiff_t mr = width / 16;
    (void)channels;
    AMX_BY_PARTS(pair_tile, parts, mr, nv, stream, taps, kc, a, b, b_pitch, offset, c, c_pitch,
                 accumulate, m);
}

#endif
