/* Stores past the caches. An ordinary store reads its line first, which for a result that no cache holds
 * is as much traffic again. */
#ifndef GRADOPS_STREAM_H
#define GRADOPS_STREAM_H

#include "simd.h"

/* How a tile treats what it writes: sums begin at zero; or go on from what is there; or begin, and are
 * written past the caches. */
enum { BEGIN, GO_ON, STREAM };

/* A vector to where it is aligned; whole lines of them, one vector after the other. */
#if VECTOR_BYTES == 64
#define STREAM_VECTOR(p, v) _mm512_stream_si512((void *)(p), (__m512i)(v))
#elif VECTOR_BYTES == 32
#define STREAM_VECTOR(p, v) _mm256_stream_si256((void *)(p), (__m256i)(v))
#elif defined(__SSE2__)
#define STREAM_VECTOR(p, v) _mm_stream_si128((void *)(p), (__m128i)(v))
#else
#define STREAM_VECTOR(p, v) memcpy(p, &(v), VECTOR_BYTES)
#endif

/* dst[0..bytes) = src, past the caches. */
static void stream(const char *src, char *dst, ptrdiff_t bytes) {
    ptrdiff_t j = -(intptr_t)dst & 63, line = 64;
    if (j > bytes) j = bytes;
    memcpy(dst, src, (size_t)j);
#if defined(__AVX512F__)
    for (; j + line <= bytes; j += line)
        _mm512_stream_si512((void *)(dst + j), _mm512_loadu_si512(src + j));
#elif defined(__SSE2__)
    for (; j + line <= bytes; j += line)
        for (ptrdiff_t k = j; k < j + line; k += 16)
            _mm_stream_si128((void *)(dst + k), _mm_loadu_si128((const void *)(src + k)));
#endif
    memcpy(dst + j, src + j, (size_t)(bytes - j));
}

/* Lets other threads see what was streamed. */
static void end_streams(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
