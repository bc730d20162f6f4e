/* Sums that stand [position][channel], to rows of positions of each channel: rounded first, so that
 * 16-bit elements are transposed two by two, and classes of a stride in turns. */
#ifndef GRADOPS_TURNED_H
#define GRADOPS_TURNED_H

#include "vector_io.h"

enum { MOST_STREAMS = 64 }; /* residue classes that share rows, or a plane */

/* Positions in their order, which classes have by turns: a run of them, then `skip` bytes until the
 * next one. */
typedef struct {
    const char *at[MOST_STREAMS]; /* the next position of each class, */
    ptrdiff_t pitch;              /* and the bytes to the one after it */
    ptrdiff_t streams, run, skip;
    ptrdiff_t turn, left;         /* whose turn it is, and for how many positions */
} Turns;

/* `fixed`: how many classes there are, of runs of one position, where that is a constant; or 0. */
INLINE const char *next_position(const int fixed, Turns *t, int number) {
    ptrdiff_t s = fixed ? number % fixed : t->turn;
    const char *at = t->at[s];
    t->at[s] = at + t->pitch;
    if (!fixed && --t->left == 0) {
        t->at[s] += t->skip;
        t->left = t->run;
        t->turn = s + 1 < t->streams ? s + 1 : 0;
    }
    return at;
}

/* Two vectors, rounded: lane by lane a pair. */
INLINE vec_f32 pair_words(indices_f32 low, indices_f32 high) { return (vec_f32)(low | high << 16); }
INLINE vec_f32 round_pair_f16(vec_f32 low, vec_f32 high) {
    return pair_words(f16_words(low), f16_words(high));
}
INLINE vec_f32 round_pair_bf16(vec_f32 low, vec_f32 high) {
#if VECTOR_BYTES == 64 && defined(__AVX512BF16__)
    if (!(_mm512_fpclass_ps_mask((__m512)low, BF16_DIFFERS)
          | _mm512_fpclass_ps_mask((__m512)high, BF16_DIFFERS))) {
        const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9,
                                               24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1,
                                               16, 0);
        return (vec_f32)_mm512_permutexvar_epi16(
            turns, (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low));
    }
#endif
    return pair_words(bf16_words(low), bf16_words(high));
}
/* Of elements that are rounded. */
INLINE vec_f32 read_raw16(const char *p, ptrdiff_t n) { return load_first_u16((const uint16_t *)p, n); }
INLINE vec_f32 round_pair_raw16(vec_f32 low, vec_f32 high) {
    return pair_words((indices_f32)low, (indices_f32)high);
}

/* What a vector has of each of n channels: a position, or the two from `number` on, of `count`. */
#define DEFINE_ONE_EACH(suffix, vec)                                                               \
    INLINE vec next_##suffix(const int fixed, Turns *t, int number, ptrdiff_t count, int n) {      \
        (void)count;                                                                               \
        return read_##suffix(next_position(fixed, t, number), n);                                  \
    }
#define DEFINE_TWO_EACH(suffix, read)                                                              \
    INLINE vec_f32 next_##suffix(const int fixed, Turns *t, int number, ptrdiff_t count, int n) {  \
        vec_f32 low = read(next_position(fixed, t, number), n), high = {0};                        \
        if (number + 1 < count) high = read(next_position(fixed, t, number + 1), n);               \
        return round_pair_##suffix(low, high);                                                     \
    }
DEFINE_ONE_EACH(f32, vec_f32)
DEFINE_ONE_EACH(f64, vec_f64)
DEFINE_TWO_EACH(f16, read_f32)
DEFINE_TWO_EACH(bf16, read_f32)
DEFINE_TWO_EACH(raw16, read_raw16)

/* `each` positions of L channels are a vector, L of these a square. Sums have `sum` bytes, elements
 * `size`. */
#define DEFINE_TURNED(suffix, vec, L, square, each, sum, size)                                     \
    INLINE void turn_square_##suffix(const int fixed, Turns *t, int channels, ptrdiff_t count,     \
                                     char *dst, ptrdiff_t dst_pitch) {                             \
        vec v[L];                                                                                  \
        _Pragma("GCC unroll 16") for (int r = 0; r < L; r++) {                                     \
            v[r] = (vec){0};                                                                       \
            if (each * r < count) v[r] = next_##suffix(fixed, t, each * r, count, channels);       \
        }                                                                                          \
        square(v);                                                                                 \
        _Pragma("GCC unroll 16") for (int i = 0; i < L; i++) {                                     \
            if (i >= channels) break;                                                              \
            store_bytes(dst, v[i], count * size);                                                  \
            dst += dst_pitch;                                                                      \
            HOLD(dst);                                                                             \
        }                                                                                          \
    }                                                                                              \
    INLINE void turn_rows_##suffix(const int fixed, Turns *t, const char *const *src, ptrdiff_t n, \
                                   ptrdiff_t channels, char *dst, ptrdiff_t dst_pitch) {           \
        for (ptrdiff_t c = 0; c < channels; c += L, dst += L * dst_pitch) {                        \
            int height = (int)MIN(channels - c, L);                                                \
            ptrdiff_t j = 0;                                                                       \
            t->turn = 0;                                                                           \
            t->left = t->run;                                                                      \
            for (ptrdiff_t s = 0; s < t->streams; s++) t->at[s] = src[s] + c * sum;                \
            for (; height == L && j + L * each <= n; j += L * each)                                \
                turn_square_##suffix(fixed, t, L, L * each, dst + j * size, dst_pitch);            \
            for (; j < n; j += L * each)                                                           \
                turn_square_##suffix(fixed, t, height, MIN(n - j, L * each), dst + j * size,       \
                                     dst_pitch);                                                   \
        }                                                                                          \
    }                                                                                              \
    static void store_turned_##suffix(ptrdiff_t streams, ptrdiff_t run, ptrdiff_t skip,            \
                                      const char *const *src, ptrdiff_t pitch, ptrdiff_t n,        \
                                      ptrdiff_t channels, char *dst, ptrdiff_t dst_pitch) {        \
        Turns t = {.pitch = pitch * sum, .streams = streams, .run = run, .skip = skip * pitch * sum};\
        if (run == 1) { /* gaps between all positions are a larger pitch */                        \
            t.pitch += t.skip;                                                                     \
            t.skip = 0;                                                                            \
        }                                                                                          \
        if (streams == 1 && t.skip == 0) turn_rows_##suffix(1, &t, src, n, channels, dst, dst_pitch);\
        else if (streams == 2 && run == 1)                                                         \
            turn_rows_##suffix(2, &t, src, n, channels, dst, dst_pitch);                           \
        else turn_rows_##suffix(0, &t, src, n, channels, dst, dst_pitch);                          \
    }
DEFINE_TURNED(f32, vec_f32, LANES_F32, square_f32, 1, 4, 4)
DEFINE_TURNED(f64, vec_f64, LANES_F64, square_f64, 1, 8, 8)
DEFINE_TURNED(f16, vec_f32, LANES_F32, square_f32, 2, 4, 2)
DEFINE_TURNED(bf16, vec_f32, LANES_F32, square_f32, 2, 4, 2)
DEFINE_TURNED(raw16, vec_f32, LANES_F32, square_f32, 2, 2, 2)

/* To rows of n positions for each channel, rounded once. Class s has its first position at src[s], the
 * others of a run `pitch` elements apart, and `skip` positions between runs. `dst_pitch` in bytes. */
static void store_turned(int dtype, ptrdiff_t streams, ptrdiff_t run, ptrdiff_t skip,
                         const char *const *src, ptrdiff_t pitch, ptrdiff_t n, ptrdiff_t channels,
                         char *dst, ptrdiff_t dst_pitch) {
    if (dtype == RAW16)
        store_turned_raw16(streams, run, skip, src, pitch, n, channels, dst, dst_pitch);
    else
        BY_DTYPE(dtype, store_turned, streams, run, skip, src, pitch, n, channels, dst, dst_pitch);
}

#endif
