/* Products of bfloat16 pairs, by what the tier has for them: AMX tiles, vectors or neither. What it has
 * not is never called: plans know. */
#ifndef GRADOPS_DOT_H
#define GRADOPS_DOT_H

#include "meanwhile.h"

#if HAVE_AMX
#include "amx.h"
#else
static void run_amx(int parts, ptrdiff_t rows, int nv, int stream, int inside, int tail,
                    ptrdiff_t taps, ptrdiff_t kc, const char *a, ptrdiff_t a_pitch,
                    const ptrdiff_t *offset, const char *b, char *c, ptrdiff_t c_pitch, int accumulate,
                    Meanwhile *m) {
    (void)parts, (void)rows, (void)nv, (void)stream, (void)inside, (void)tail, (void)taps, (void)kc;
    (void)a, (void)a_pitch, (void)offset, (void)b, (void)c, (void)c_pitch, (void)accumulate, (void)m;
}
static void amx_begin(int rows, int depth, int tail) { (void)rows, (void)depth, (void)tail; }
static void amx_end(void) {}
#endif

#if VECTOR_PAIRS
#include "dot_vectors.h"
#include "dot_zipped.h"
#else
static void run_vectors(ptrdiff_t rows, int nv, ptrdiff_t taps, ptrdiff_t kc, const char *const *a,
                        ptrdiff_t a_shift, const ptrdiff_t *offset, const ptrdiff_t *index,
                        const char *panel, char *const *c, ptrdiff_t c_shift, ptrdiff_t channels,
                        int rounded, int how, ptrdiff_t following, ptrdiff_t touched) {
    (void)rows, (void)nv, (void)taps, (void)kc, (void)a, (void)a_shift, (void)offset, (void)index;
    (void)panel, (void)c, (void)c_shift, (void)channels, (void)rounded, (void)how;
    (void)following, (void)touched;
}
static void run_zipped(ptrdiff_t channels, ptrdiff_t kc, const char *a, ptrdiff_t width,
                       const char *b, ptrdiff_t b_pitch, ptrdiff_t ahead, char *c, ptrdiff_t c_pitch,
                       int accumulate) {
    (void)channels, (void)kc, (void)a, (void)width, (void)b, (void)b_pitch, (void)ahead, (void)c;
    (void)c_pitch, (void)accumulate;
}
#endif

#if !BF16_RATE
static void run_pairs(int parts, ptrdiff_t channels, ptrdiff_t width, int nv, int stream,
                      ptrdiff_t taps, ptrdiff_t kc, const char *a, const char *b, ptrdiff_t b_pitch,
                      const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch, int accumulate,
                      Meanwhile *m) {
    (void)parts, (void)channels, (void)width, (void)nv, (void)stream, (void)taps, (void)kc, (void)a;
    (void)b, (void)b_pitch, (void)offset, (void)c, (void)c_pitch, (void)accumulate, (void)m;
}
#endif

#endif
