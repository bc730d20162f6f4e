/* The adds of SCATTER: runs of columns from a matrix of products to the sums where they belong. */
#ifndef GRADOPS_SCATTER_H
#define GRADOPS_SCATTER_H

#include "simd.h"

/* The first n lanes of a vector, which may be all. */
#define DEFINE_FIRST_LANES(suffix, ints, whole, lanes)                                             \
    INLINE ints first_lanes_##suffix(ptrdiff_t n) {                                                \
        static const whole kept[2 * lanes] = {[0 ... lanes - 1] = -1};                             \
        return *(const ints *)(kept + lanes - n);                                                  \
    }

DEFINE_FIRST_LANES(f32, indices_f32, int32_t, LANES_F32)
DEFINE_FIRST_LANES(f64, indices_f64, int64_t, LANES_F64)

/* dst[t][j * step + i] += src[t][j * pitch + i] for i < n, j < count, t < rows. Whole vectors are
 * added, the last one with zeros past the run: sums begin at +0 and never become -0, so that these
 * change no bit.
 *
 * Runs of a row overlap, and a load that overlaps a vector just stored waits for it: positions are
 * taken `phases` apart, and all rows in turn. Which come first depends only on their own number,
 * `first` and on. */
#define DEFINE_ADD_RUNS(suffix, real, vec, ints, lanes)                                            \
    INLINE void add_runs_of_##suffix(const int vectors, ptrdiff_t rows, const real *const *src,    \
                                     ptrdiff_t pitch, real *const *dst, ptrdiff_t step,            \
                                     ptrdiff_t n, ptrdiff_t first, ptrdiff_t count,                \
                                     ptrdiff_t phases) {                                           \
        const int last = vectors - 1;                                                              \
        const ints keep = first_lanes_##suffix(n - last * lanes);                                  \
        for (ptrdiff_t phase = 0; phase < phases; phase++) {                                       \
            ptrdiff_t begin = (phase + phases - first % phases) % phases;                          \
            for (ptrdiff_t t = 0; t < rows; t++) {                                                 \
                const real *s = src[t] + begin * pitch;                                            \
                real *d = dst[t] + begin * step;                                                   \
                for (ptrdiff_t j = begin; j < count; j += phases) {                                \
                    for (int v = 0; v < last; v++)                                                 \
                        *(vec *)(d + v * lanes) += *(const vec *)(s + v * lanes);                  \
                    *(vec *)(d + last * lanes) += (vec)(*(const ints *)(s + last * lanes) & keep); \
                    s += phases * pitch;                                                           \
                    d += phases * step;                                                            \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* Its callers have no registers left for the loops: 1.03 to 1.1 times as fast. */             \
    static __attribute__((noinline)) void add_runs_##suffix(                                       \
        ptrdiff_t rows, const real *const *src, ptrdiff_t pitch, real *const *dst, ptrdiff_t step, \
        ptrdiff_t n, ptrdiff_t first, ptrdiff_t count, ptrdiff_t phases) {                         \
        const int vectors = (int)((n + lanes - 1) / lanes);                                        \
        if (vectors == 1)                                                                          \
            add_runs_of_##suffix(1, rows, src, pitch, dst, step, n, first, count, phases);         \
        else if (vectors == 2)                                                                     \
            add_runs_of_##suffix(2, rows, src, pitch, dst, step, n, first, count, phases);         \
        else if (vectors == 3)                                                                     \
            add_runs_of_##suffix(3, rows, src, pitch, dst, step, n, first, count, phases);         \
        else add_runs_of_##suffix(vectors, rows, src, pitch, dst, step, n, first, count, phases);  \
    }

DEFINE_ADD_RUNS(f32, float, vec_f32, indices_f32, LANES_F32)
DEFINE_ADD_RUNS(f64, double, vec_f64, indices_f64, LANES_F64)

/* dst[i] += src[i] for i < n, in whole vectors as above. */
#define DEFINE_ADD_ROW(suffix, real, vec, ints, lanes)                                             \
    INLINE void add_row_##suffix(const real *src, real *dst, ptrdiff_t n) {                        \
        ptrdiff_t i = 0;                                                                           \
        for (; i + lanes <= n; i += lanes) *(vec *)(dst + i) += *(const vec *)(src + i);           \
        if (i == n) return;                                                                        \
        const ints keep = first_lanes_##suffix(n - i);                                             \
        *(vec *)(dst + i) += (vec)(*(const ints *)(src + i) & keep);                               \
    }

DEFINE_ADD_ROW(f32, float, vec_f32, indices_f32, LANES_F32)
DEFINE_ADD_ROW(f64, double, vec_f64, indices_f64, LANES_F64)

static void add_row(int f64, const void *src, void *dst, ptrdiff_t n) {
    if (f64) add_row_f64(src, dst, n);
    else add_row_f32(src, dst, n);
}

static void add_runs(int f64, ptrdiff_t rows, const void *src, ptrdiff_t pitch, void *dst,
                     ptrdiff_t step, ptrdiff_t n, ptrdiff_t first, ptrdiff_t count,
                     ptrdiff_t phases) {
    if (f64) add_runs_f64(rows, src, pitch, dst, step, n, first, count, phases);
    else add_runs_f32(rows, src, pitch, dst, step, n, first, count, phases);
}

#endif
