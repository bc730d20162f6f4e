/* The vector type of the tier that includes this header: GCC/Clang vector extensions, so that one
 * source serves every instruction set. Everything is static: a function shared between tiers
 * could reach a processor that lacks its instructions. */
#ifndef GRADOPS_SIMD_H
#define GRADOPS_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* GCC's name and older Clangs'. */
#if defined(__AMX_BF16__) || defined(__AMXBF16__)
#define HAVE_AMX 1
#else
#define HAVE_AMX 0
#endif

/* How many bfloat16 are multiplied in the time of a float32; 0 where only float32 are. */
#if HAVE_AMX
#define BF16_RATE 16
#elif defined(__AVX512BF16__)
#define BF16_RATE 2
#else
#define BF16_RATE 0
#endif
/* Vectors multiply pairs of bfloat16, faster than float32. */
#define VECTOR_PAIRS (BF16_RATE == 2)

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define VECTOR_REGISTERS 32
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define VECTOR_REGISTERS 16
#elif defined(__aarch64__)
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 32
#else
#define VECTOR_BYTES 16
#define VECTOR_REGISTERS 16
#endif

/* Whether masks load and store parts of vectors; else a whole vector that ends with the part is faster,
 * where there is one. */
#define HAVE_MASKS (VECTOR_BYTES == 64)

/* Unaligned, aliasing vectors: a load or a store through a pointer to one is a plain loadu/storeu. */
typedef float vec_f32 __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef double vec_f64 __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
typedef int32_t indices_f32 __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int64_t indices_f64 __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));

#define LANES_F32 (VECTOR_BYTES / 4)
#define LANES_F64 (VECTOR_BYTES / 8)

/* Keeps a pointer in its register: GCC otherwise invents one address for each load or row of a tile, and
 * keeps them on the stack. */
#define HOLD(pointer) __asm__("" : "+r"(pointer))
/* Keeps a vector in its register: GCC otherwise loads it again for each product. */
#if defined(__AVX512F__)
#define HOLD_VECTOR(x) __asm__("" : "+v"(x))
#elif defined(__x86_64__)
#define HOLD_VECTOR(x) __asm__("" : "+x"(x))
#else
#define HOLD_VECTOR(x)
#endif

INLINE vec_f32 splat_f32(float a) { return a - (vec_f32){0}; }
INLINE vec_f64 splat_f64(double a) { return a - (vec_f64){0}; }

#endif
