/* Half of a vector, which takes half the time where halves of 64 bytes are multiplied one after the other: the
 * last one of a tile whose second half would hold no channel. */
#ifndef GRADOPS_HALF_VECTORS_H
#define GRADOPS_HALF_VECTORS_H

#include "simd.h"

#define HAVE_HALVES (VECTOR_BYTES == 64)

typedef float half_f32 __attribute__((vector_size(VECTOR_BYTES / 2), aligned(4), may_alias));
typedef double half_f64 __attribute__((vector_size(VECTOR_BYTES / 2), aligned(8), may_alias));

#if HAVE_HALVES
INLINE half_f32 low_f32(vec_f32 v) { return (half_f32)_mm512_castps512_ps256((__m512)v); }
INLINE half_f64 low_f64(vec_f64 v) { return (half_f64)_mm512_castpd512_pd256((__m512d)v); }
INLINE vec_f32 wide_f32(half_f32 v) { return (vec_f32)_mm512_zextps256_ps512((__m256)v); }
INLINE vec_f64 wide_f64(half_f64 v) { return (vec_f64)_mm512_zextpd256_pd512((__m256d)v); }

/* gcc would broadcast to vectors of each length by themselves, and from general registers; and sum to the
 * register of a factor, from which the sum is then moved back. */
#define KEEP(v) __asm__("" : "+v"(v))
INLINE void add_product_f32(half_f32 *sum, half_f32 x, half_f32 y) {
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(y));
}
INLINE void add_product_f64(half_f64 *sum, half_f64 x, half_f64 y) {
    __asm__("vfmadd231pd %2, %1, %0" : "+v"(*sum) : "v"(x), "v"(y));
}
#else
/* Never called: tiles are of whole vectors. */
INLINE half_f32 low_f32(vec_f32 v) { return (void)v, (half_f32){0}; }
INLINE half_f64 low_f64(vec_f64 v) { return (void)v, (half_f64){0}; }
INLINE vec_f32 wide_f32(half_f32 v) { return (void)v, (vec_f32){0}; }
INLINE vec_f64 wide_f64(half_f64 v) { return (void)v, (vec_f64){0}; }
INLINE void add_product_f32(half_f32 *sum, half_f32 x, half_f32 y) { *sum += x * y; }
INLINE void add_product_f64(half_f64 *sum, half_f64 x, half_f64 y) { *sum += x * y; }
#define KEEP(v) (void)(v)
#endif

#endif
