/* Depthwise convolution with channels first, straight from diff_dst: rows of it are read one after the other,
 * and each is multiplied with all rows of taps at once. The rows of results that it goes to are sums in
 * registers, of which the oldest is whole then, is stored, and makes room for the next one:
 *
 *     row of diff_dst     0     1     2     3     4          three rows of taps
 *     sums of row 0       w0    w1    w2 ->
 *     sums of row 1             w0    w1    w2 ->
 *     sums of row 2                   w0    w1    w2 ->
 *
 * Masks leave out what lies beside the row. With a stride of two each row goes to both residue classes of rows,
 * and each of its vectors to both of columns, which are stored in turn. Where vectors multiply pairs of
 * bfloat16, these are neighbours as they lie in memory: even results are summed in one vector, odd ones, which
 * begin an element later, in another. The last one of an odd number of taps has zero for a neighbour. */
#ifndef GRADOPS_DEPTHWISE_ROLLING_H
#define GRADOPS_DEPTHWISE_ROLLING_H

#include "rows.h"

/* Vectors of each residue class of a row in a tile. */
#define ROLLED_NV 4

/* What the channels of a task have in common. Of two residue classes, of rows and of columns, the first is the
 * one with more taps. */
typedef struct {
    int paired;                     /* products of two neighbours of bfloat16, in two vectors of sums */
    ptrdiff_t classes;              /* one or two */
    ptrdiff_t taps[2];              /* of a class, the same for rows and for columns; */
    ptrdiff_t lag[2];               /* rows that are read before a class's first result is whole, */
    ptrdiff_t counts[2];            /* its rows of results, */
    ptrdiff_t residue[2];           /* and the first one of them */
    ptrdiff_t turns;                /* rows so far apart are read in turn: taps do not meet others */
    ptrdiff_t first;                /* the first row that is read, from diff_dst's first one on; */
    ptrdiff_t height, width;        /* of which there are so many, of so many columns */
    ptrdiff_t column[2];            /* the column that a class's first tap reads for its first result, */
    ptrdiff_t apart;                /* and from tap to tap */
    int swapped;                    /* the first class of columns has the odd ones */
    ptrdiff_t count;                /* results of a row, in so many vectors of each class: */
    ptrdiff_t vectors;
    uint16_t order[2][32];          /* the lanes of both classes that results are, in their order */
    uint32_t *mask;                 /* [vectors][products of a row][1, or 2 paired]: lanes that lie inside */
} Rolling;

enum { ROLLING_WORDS = sizeof(Rolling) / sizeof(ptrdiff_t) + 1 };

#if VECTOR_BYTES != 64
/* No plan asks for it. */
static void set_lanes(Rolling *r) { (void)r; }
static void run_rolling(int dtype, const Rolling *r, const char *src, ptrdiff_t pitch, ptrdiff_t layers,
                        ptrdiff_t layer_pitch, const char *weights, char *dst, ptrdiff_t dst_pitch) {
    (void)dtype, (void)r, (void)src, (void)pitch, (void)layers, (void)layer_pitch;
    (void)weights, (void)dst, (void)dst_pitch;
}
#else

#define UNROLL _Pragma("GCC unroll 16")

INLINE ptrdiff_t rolled_lanes(const int paired) { return paired ? 32 : 16; }
INLINE ptrdiff_t rolled_positions(const Rolling *r) { return (r->count + r->classes - 1) / r->classes; }

/* Where a vector begins: the last one ends with the row, and the others lie evenly before it, so that of three
 * none but the first and the last reach beyond the row. */
INLINE ptrdiff_t rolled_position(const Rolling *r, const int paired, ptrdiff_t v) {
    const ptrdiff_t last = rolled_positions(r) - rolled_lanes(paired);
    return v == 0 || last <= 0 ? 0 : v * last / (r->vectors - 1);
}

/* Of n lanes from column `begin` on those inside of a row. */
INLINE uint32_t lanes_inside(ptrdiff_t begin, ptrdiff_t n, ptrdiff_t width) {
    const ptrdiff_t low = begin < 0 ? -begin : 0, high = MIN(n, width - begin);
    if (low >= high) return 0;
    return (uint32_t)(((1ull << high) - 1) & ~((1ull << low) - 1));
}

static void set_masks(Rolling *r) {
    const ptrdiff_t lanes = rolled_lanes(r->paired);
    uint32_t *mask = r->mask;
    r->vectors = (rolled_positions(r) + lanes - 1) / lanes;
    for (ptrdiff_t v = 0; v < r->vectors; v++)
        for (ptrdiff_t c = 0; c < r->classes; c++)
            for (ptrdiff_t t = 0; t < r->taps[c]; t += 1 + r->paired)
                for (ptrdiff_t e = 0; e <= r->paired; e++) {
                    const ptrdiff_t begin = rolled_position(r, r->paired, v) + r->column[c] + t * r->apart + e;
                    const int single = r->paired && t + 1 == r->taps[c];
                    *mask++ = lanes_inside(begin, lanes, r->width) & (single ? 0x55555555u : ~0u);
                }
}

/* In pairs, rounded sums of even results are the first half of a class's vector, and those of odd results the
 * second. Else lanes are words. */
static void set_order(Rolling *r) {
    uint32_t words[2][16];
    for (ptrdiff_t i = 0; i < 32 * r->classes; i++) {
        const ptrdiff_t position = i / r->classes, c = (i % r->classes) ^ (r->classes == 2 && r->swapped);
        if (r->paired) r->order[i / 32][i % 32] = (uint16_t)(position / 2 + position % 2 * 16 + c * 32);
        else if (i < 32) words[i / 16][i % 16] = (uint32_t)(position + c * 16);
    }
    if (!r->paired) memcpy(r->order, words, sizeof words);
}

static void set_lanes(Rolling *r) {
    set_masks(r);
    set_order(r);
}

/* RAW16: pairs of bfloat16 as they are. */
INLINE vec_f32 load_rolled(const int dtype, uint32_t mask, const char *p) {
    if (dtype == F32) return (vec_f32)_mm512_maskz_loadu_ps((__mmask16)mask, p);
    if (dtype == RAW16) return (vec_f32)_mm512_maskz_loadu_epi16(mask, p);
    const __m256i halves = _mm256_maskz_loadu_epi16((__mmask16)mask, p);
    if (dtype == F16) return (vec_f32)_mm512_cvtph_ps(halves);
    return (vec_f32)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

INLINE vec_f32 add_product(const int dtype, vec_f32 sum, vec_f32 w, vec_f32 x) {
#if VECTOR_PAIRS
    if (dtype == RAW16) return (vec_f32)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)x);
#endif
    return sum + w * x;
}

/* The sums of a row that are whole: of each class, and vector, one or (in pairs) those of even results and odd. */
typedef vec_f32 RowSums[2][ROLLED_NV][2];

#if VECTOR_PAIRS
/* No sum of pairs is subnormal, and NaN stays NaN: all are rounded by the instruction. */
INLINE void write_rolled_pairs(const int classes, const int whole, RowSums sums, const int v,
                               const __m512i *turns, ptrdiff_t n, char *dst) {
    __m512i halves[2];
    UNROLL for (int c = 0; c < classes; c++)
        halves[c] = (__m512i)_mm512_cvtne2ps_pbh((__m512)sums[c][v][1], (__m512)sums[c][v][0]);
    UNROLL for (int i = 0; i < classes; i++, dst += 64, n -= 32) {
        const __m512i results = classes == 1 ? _mm512_permutexvar_epi16(turns[i], halves[0])
                                             : _mm512_permutex2var_epi16(halves[0], turns[i], halves[1]);
        if (whole) _mm512_storeu_si512((void *)dst, results);
        else if (n > 0) _mm512_mask_storeu_epi16(dst, n < 32 ? ~(~0u << n) : ~0u, results);
    }
}
#endif

/* `turns`: the lanes of both classes that results are, in their order. */
INLINE void write_oldest(const int dtype, const int classes, const int nv, const int whole, RowSums sums,
                         const __m512i *turns, ptrdiff_t count, const ptrdiff_t *at, char *dst) {
    const int size = dtype == F32 ? 4 : 2;
    UNROLL for (int v = 0; v < nv; v++) {
        ptrdiff_t left = count - at[v] / size * classes;
        char *place = dst + at[v] * classes;
#if VECTOR_PAIRS
        if (dtype == RAW16) {
            write_rolled_pairs(classes, whole, sums, v, turns, left, place);
            continue;
        }
#endif
        UNROLL for (int i = 0; i < classes; i++, place += LANES_F32 * size, left -= LANES_F32) {
            vec_f32 results = sums[0][v][0];
            if (classes == 2)
                results = (vec_f32)_mm512_permutex2var_ps((__m512)results, turns[i], (__m512)sums[1][v][0]);
            const int n = whole ? LANES_F32 : (int)MIN(left, LANES_F32);
            if (!whole && left <= 0) continue;
            if (dtype == F32) write_f32(place, results, n);
            else if (dtype == F16) write_f16(place, results, n);
            else write_bf16(place, results, n);
        }
    }
}

/* For the next row's sums: those from `newest` to `oldest` grow older. */
INLINE void make_room(const int classes, const int ways, const int nv, const int newest, const int oldest,
                      RowSums *acc) {
    UNROLL for (int c = 0; c < classes; c++)
        UNROLL for (int v = 0; v < nv; v++)
            UNROLL for (int e = 0; e < ways; e++) {
                UNROLL for (int k = oldest; k > newest; k--) acc[k][c][v][e] = acc[k - 1][c][v][e];
                acc[newest][c][v][e] = (vec_f32){0};
            }
}

/* `nv` vectors of each class, from the `first` on, of all rows. The first class has `na` taps, of rows and of
 * columns, and the other one, if there is one, `nb`. */
INLINE void roll(const int dtype, const int classes, const int na, const int nb, const int nv,
                 const Rolling *rolling, ptrdiff_t first, ptrdiff_t turn, const char *src, ptrdiff_t pitch,
                 ptrdiff_t layers, ptrdiff_t layer_pitch, const float *weights, char *dst,
                 ptrdiff_t dst_pitch) {
    enum { SLOTS = 7, EDGES = 2 };
    const Rolling r = *rolling;
    const int paired = dtype == RAW16, ways = 1 + paired, size = dtype == F32 ? 4 : 2, rows = na + nb;
    const int firsts = (na + paired) / ways, products = firsts + (nb + paired) / ways;
    const int whole = r.count % classes == 0 && r.count / classes >= rolled_lanes(paired);
    uint32_t mask[EDGES][SLOTS][2];
    RowSums acc[SLOTS];
    ptrdiff_t at[ROLLED_NV];
    __m512i turns[2];
    UNROLL for (int edge = 0; edge < EDGES; edge++)
        UNROLL for (int t = 0; t < products; t++)
            UNROLL for (int e = 0; e < ways; e++)
                mask[edge][t][e] = r.mask[((first + edge * (nv - 1)) * products + t) * ways + e];
    UNROLL for (int v = 0; v < nv; v++) at[v] = rolled_position(&r, paired, first + v) * size;
    UNROLL for (int k = 0; k < rows; k++)
        UNROLL for (int c = 0; c < classes; c++)
            UNROLL for (int v = 0; v < nv; v++)
                UNROLL for (int e = 0; e < ways; e++) acc[k][c][v][e] = (vec_f32){0};
    UNROLL for (int i = 0; i < classes; i++) turns[i] = _mm512_loadu_si512(r.order[i]);
    const ptrdiff_t apart = classes * r.turns * dst_pitch;
    const ptrdiff_t counts[2] = {(r.counts[0] - turn - 1) / r.turns + 1, r.counts[1]};
    ptrdiff_t steps = r.lag[0] + counts[0];
    if (nb && steps < r.lag[1] + counts[1]) steps = r.lag[1] + counts[1];
    char *to[2] = {dst + (r.residue[0] + turn) * dst_pitch - r.lag[0] * apart,
                   dst + r.residue[1] * dst_pitch - r.lag[1] * apart};
    ptrdiff_t y = r.first + turn;
    for (ptrdiff_t s = 0; s < steps; s++, y += r.turns) {
        const char *row = src + y * pitch;
        const float *w = weights;
        for (ptrdiff_t layer = 0; layer < layers && (size_t)y < (size_t)r.height; layer++, row += layer_pitch) {
            UNROLL for (int t = 0; t < products; t++, w += rows) {
                const int c = t >= firsts, own = c ? t - firsts : t;
                const int single = paired && 2 * own + 1 == (c ? nb : na);
                const char *entry = row + (r.column[c] + own * (paired ? 2 : r.apart)) * size;
                vec_f32 factor[SLOTS];
                UNROLL for (int k = 0; k < rows; k++) factor[k] = splat_f32(w[k]);
                UNROLL for (int v = 0; v < nv; v++)
                    UNROLL for (int e = 0; e < ways; e++) {
                        const uint32_t inside = v == 0 ? mask[0][t][e] : v == nv - 1 ? mask[1][t][e]
                                              : single ? 0x55555555u : ~0u;
                        vec_f32 x = load_rolled(dtype, inside, entry + at[v] + 2 * e);
                        HOLD_VECTOR(x);
                        UNROLL for (int k = 0; k < rows; k++)
                            acc[k][c][v][e] = add_product(dtype, acc[k][c][v][e], factor[k], x);
                    }
            }
        }
        if ((size_t)(s - r.lag[0]) < (size_t)counts[0]) {
            if (whole) write_oldest(dtype, classes, nv, 1, acc[na - 1], turns, r.count, at, to[0]);
            else write_oldest(dtype, classes, nv, 0, acc[na - 1], turns, r.count, at, to[0]);
        }
        make_room(classes, ways, nv, 0, na - 1, acc);
        to[0] += apart;
        if (nb) {
            if ((size_t)(s - r.lag[1]) < (size_t)counts[1]) {
                if (whole) write_oldest(dtype, classes, nv, 1, acc[rows - 1], turns, r.count, at, to[1]);
                else write_oldest(dtype, classes, nv, 0, acc[rows - 1], turns, r.count, at, to[1]);
            }
            make_room(classes, ways, nv, na, rows - 1, acc);
            to[1] += apart;
        }
    }
}

/* Taps of both classes, and the vectors of a tile whose sums are in registers. */
#define ROLLED_TILES(X, TYPE)                                                                      \
    X(TYPE, 1, 3, 0) X(TYPE, 1, 5, 0) X(TYPE, 1, 7, 0) X(TYPE, 2, 2, 1) X(TYPE, 2, 3, 2)
#define MOST_ROLLED(type, classes, rows) MIN(ROLLED_NV, 24 / ((rows) * (classes) * ((type) == RAW16 ? 2 : 1)))

#define INSTANCE(TYPE, CLASSES, NA, NB)                                                            \
    static void roll_##TYPE##_##NA##_##NB(const Rolling *r, ptrdiff_t first, ptrdiff_t nv, ptrdiff_t turn, \
                                          const char *src, ptrdiff_t pitch, ptrdiff_t layers,      \
                                          ptrdiff_t layer_pitch, const float *weights, char *dst,  \
                                          ptrdiff_t dst_pitch) {                                   \
        UNROLL for (int n = 1; n <= MOST_ROLLED(TYPE, CLASSES, NA + NB); n++)                      \
            if (n == nv)                                                                           \
                roll(TYPE, CLASSES, NA, NB, n, r, first, turn, src, pitch, layers, layer_pitch,    \
                     weights, dst, dst_pitch);                                                     \
    }
ROLLED_TILES(INSTANCE, F32)
ROLLED_TILES(INSTANCE, F16)
ROLLED_TILES(INSTANCE, BF16)
#if VECTOR_PAIRS
ROLLED_TILES(INSTANCE, RAW16)
#endif
#undef INSTANCE

/* Results of a channel from `layers` planes of diff_dst; pitches in bytes. */
static void run_rolling(int dtype, const Rolling *r, const char *src, ptrdiff_t pitch, ptrdiff_t layers,
                        ptrdiff_t layer_pitch, const char *weights, char *dst, ptrdiff_t dst_pitch) {
    const ptrdiff_t rows = r->taps[0] + r->taps[1];
    const ptrdiff_t most = MOST_ROLLED(r->paired ? RAW16 : F32, r->classes, rows);
    const ptrdiff_t tiles = (r->vectors + most - 1) / most;
    for (ptrdiff_t i = 0, first = 0, end; i < tiles; i++, first = end) {
        end = r->vectors * (i + 1) / tiles;
        for (ptrdiff_t turn = 0; turn == 0 || turn < MIN(r->turns, r->counts[0]); turn++) {
#define TILE(TYPE, CLASSES, NA, NB)                                                                \
    if (r->classes == CLASSES && rows == NA + NB)                                                  \
        roll_##TYPE##_##NA##_##NB(r, first, end - first, turn, src, pitch, layers, layer_pitch,    \
                                  (const float *)weights, dst, dst_pitch);
            if (dtype == F32) {
                ROLLED_TILES(TILE, F32)
            } else if (dtype == F16) {
                ROLLED_TILES(TILE, F16)
#if VECTOR_PAIRS
            } else if (r->paired) {
                ROLLED_TILES(TILE, RAW16)
#endif
            } else {
                ROLLED_TILES(TILE, BF16)
            }
#undef TILE
        }
    }
}

#undef ROLLED_TILES
#undef UNROLL
#endif
#endif
