/* Convolution of groups with few channels: the lanes of a vector are channels of diff_src, of
 * several groups.
 *
 * Products of lanes need diff_dst spread: for each k, every lane's own group's k-th channel. A row
 * of diff_dst is spread once, by permutations of whole vectors, into a few rows that stay in the
 * first-level cache for every tap, position and residue class that reads them.
 *
 * Two bfloat16 channels of a group, where their products can be added at once, are one element of four
 * bytes: all of this with half the k's.
 *
 * Where a quarter of 64 bytes is of one group, the rows hold four k's a vector, and the tile spreads each
 * within the quarters: a quarter of the stores, and of the cache. Where a vector is of one group, the rows
 * hold that group's channels as they are, and the tile broadcasts them. */
#ifndef GRADOPS_GROUPED_H
#define GRADOPS_GROUPED_H

#include "depthwise.h"

/* How the lanes of one vector are spread from a position of diff_dst: for each row, from `vectors`
 * vectors from channel start[row] on, lane l takes element index[row][l]. */
typedef struct {
    ptrdiff_t depth;            /* k's: channels of diff_dst in a group */
    ptrdiff_t columns;          /* k's that a row holds */
    ptrdiff_t rows;             /* depth / columns */
    ptrdiff_t vectors;
    ptrdiff_t channels;         /* of diff_dst that may be read */
    ptrdiff_t *start;           /* [rows] */
    char *index;                /* [rows][lanes], integers of the computing type's size */
    int common;                 /* all rows start at the same channel */
    ptrdiff_t pitch;            /* bytes from row to row of what is spread */
} Spread;

/* Lanes among which a vector's instructions permute without an index in a register. */
enum { QUAD = 4 };

/* Accumulators, the weights of three taps and what they multiply fill the register file. */
#define GROUP_MR (VECTOR_REGISTERS == 32 ? 28 : 12)
#define LOW_HEIGHTS(X, K)                                                                          \
    X(1, K) X(2, K) X(3, K) X(4, K) X(5, K) X(6, K) X(7, K) X(8, K) X(9, K) X(10, K) X(11, K)      \
    X(12, K)
#if VECTOR_REGISTERS == 32
#define GROUP_HEIGHTS(X, K)                                                                        \
    LOW_HEIGHTS(X, K) X(13, K) X(14, K) X(15, K) X(16, K) X(17, K) X(18, K) X(19, K) X(20, K)      \
    X(21, K) X(22, K) X(23, K) X(24, K) X(25, K) X(26, K) X(27, K) X(28, K)
#else
#define GROUP_HEIGHTS(X, K) LOW_HEIGHTS(X, K)
#endif

/* Of groups with half as many channels as lanes: processors that multiply a vector of 64 bytes in halves,
 * one after the other, multiply two vectors of 32 meanwhile. */
#define HAVE_HALF_VECTORS (VECTOR_BYTES == 64)
#if HAVE_HALF_VECTORS
typedef float vec_half_f32 __attribute__((vector_size(VECTOR_BYTES / 2), aligned(4), may_alias));
typedef double vec_half_f64 __attribute__((vector_size(VECTOR_BYTES / 2), aligned(8), may_alias));
#endif

typedef void (*group_fn)(const Span *, ptrdiff_t, char *, ptrdiff_t);

/* What the tile multiplies: spread vectors, spread pairs of bfloat16, either of them spread by itself, single
 * channels or pairs of them. */
enum { SPREAD, PAIRED, QUADS, QUADS_PAIRED, BROADCAST, BROADCAST_PAIRED };

/* Positions that are loaded before any is stored. */
#define SPREAD_AT_ONCE (VECTOR_REGISTERS / 4)

#define REAL float
#define INT int32_t
#define LANES LANES_F32
#define SUM(x) x##_f32
#define HALF(x) x##_half_f32
#define HAVE_PAIRS (BF16_RATE > 0)
#define HAVE_QUADS (VECTOR_BYTES > 16)
#include "grouped_tiles.h"
#define NAME(x) x##_f32
#define SIZE 4
#define COMPUTING
#include "grouped_body.h"
#define NAME(x) x##_f16
#define SIZE 2
#include "grouped_body.h"
#define NAME(x) x##_bf16
#define SIZE 2
#include "grouped_body.h"
#undef REAL
#undef INT
#undef LANES
#undef SUM
#undef HALF
#undef HAVE_PAIRS
#undef HAVE_QUADS

#define REAL double
#define INT int64_t
#define LANES LANES_F64
#define SUM(x) x##_f64
#define HALF(x) x##_half_f64
#define HAVE_PAIRS 0
#define HAVE_QUADS (VECTOR_BYTES > 32)
#include "grouped_tiles.h"
#define NAME(x) x##_f64
#define SIZE 8
#define COMPUTING
#include "grouped_body.h"
#undef REAL
#undef INT
#undef LANES
#undef SUM
#undef HALF
#undef HAVE_PAIRS
#undef HAVE_QUADS

static void plan_spread(int f64, Spread *s, ptrdiff_t inputs, ptrdiff_t first, ptrdiff_t lanes) {
    if (f64) plan_spread_f64(s, inputs, first, lanes);
    else plan_spread_f32(s, inputs, first, lanes);
}

static void spread(int dtype, const Spread *s, const char *src, ptrdiff_t step, ptrdiff_t entries,
                   char *dst) {
    BY_DTYPE(dtype, spread, s, src, step, entries, dst);
}

static void run_group_span(int dtype, const Span *span, ptrdiff_t first, ptrdiff_t positions,
                           ptrdiff_t lanes, char *dst) {
    BY_DTYPE(dtype, group_span, span, first, positions, lanes, dst);
}

#endif
