/* Products of bfloat16 pairs, by what the tier has for them. */
#ifndef GRADOPS_DOT_H
#define GRADOPS_DOT_H

#include "simd.h"

#if HAVE_AMX
#include "amx.h"
#elif BF16_RATE
#include "dot_vectors.h"
#else
#include "meanwhile.h"

/* Never called: the plan of the other tiers does not choose these kernels. */
static void run_dot(int parts, ptrdiff_t rows, int nv, int stream, ptrdiff_t taps, ptrdiff_t kc,
                    const char *a, ptrdiff_t a_pitch, const ptrdiff_t *offset, const char *b,
                    char *c, ptrdiff_t c_pitch, int accumulate, Meanwhile *m) {
    (void)parts, (void)rows, (void)nv, (void)stream, (void)taps, (void)kc, (void)a, (void)a_pitch;
    (void)offset, (void)m, (void)b, (void)c, (void)c_pitch, (void)accumulate;
}
static void run_pairs(int parts, ptrdiff_t channels, ptrdiff_t width, int nv, int stream,
                      ptrdiff_t taps, ptrdiff_t kc, const char *a, const char *b, ptrdiff_t b_pitch,
                      const ptrdiff_t *offset, char *c, ptrdiff_t c_pitch, int accumulate,
                      Meanwhile *m) {
    (void)parts, (void)channels, (void)width, (void)nv, (void)stream, (void)taps, (void)kc, (void)a, (void)b, (void)b_pitch;
    (void)offset, (void)c, (void)c_pitch, (void)accumulate, (void)m;
}

static void dot_begin(int rows, int depth) { (void)rows, (void)depth; }
static void dot_end(void) {}

#endif

#endif
