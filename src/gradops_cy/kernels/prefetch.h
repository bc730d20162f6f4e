/* Memory that is wanted soon, asked for where the processor would not foresee it. */
#ifndef GRADOPS_PREFETCH_H
#define GRADOPS_PREFETCH_H

#include <stddef.h>

/* `bytes` into the second-level cache. Processors drop what is asked for faster than memory answers. */
static inline void fetch(const char *p, ptrdiff_t bytes) {
    for (ptrdiff_t b = 0; b < bytes; b += 64) __builtin_prefetch(p + b, 0, 2);
}

/* Segments begin to end - 1, `stride` bytes apart, each of `bytes`. */
static void fetch_ahead(const char *p, ptrdiff_t stride, ptrdiff_t begin, ptrdiff_t end,
                        ptrdiff_t bytes) {
    for (ptrdiff_t i = begin; i < end; i++) fetch(p + i * stride, bytes);
}

/* The same for segments that are to be written. */
static void fetch_to_write(char *p, ptrdiff_t stride, ptrdiff_t begin, ptrdiff_t end,
                           ptrdiff_t bytes) {
    for (ptrdiff_t i = begin; i < end; i++)
        for (ptrdiff_t b = 0; b < bytes; b += 64) __builtin_prefetch(p + i * stride + b, 1);
}

/* Runs of `bytes` that are asked for while other memory is summed, one after the other: `each` bytes at a
 * time, from a place in the current run on, by whole lines that are due. */
enum { ASKED_RUNS = 16 };
typedef struct {
    const char *run[ASKED_RUNS];
    ptrdiff_t runs, bytes, each, due, current, place;
    int near;
} Asking;

static inline void ask_lines(const int near, Asking *asking, ptrdiff_t times) {
    asking->due += times * asking->each;
    for (; asking->due >= 64 && asking->current < asking->runs; asking->due -= 64) {
        const char *line = asking->run[asking->current] + asking->place;
        if (near) __builtin_prefetch(line, 0, 3);
        else __builtin_prefetch(line, 0, 2);
        asking->place += 64;
        if (asking->place >= asking->bytes) asking->place = 0, asking->current++;
    }
}

/* Into the second-level cache. A test for each line, whether it shall be the first, took the kernel of channels
 * 1.7 times as long. */
static inline void ask_on(Asking *asking, ptrdiff_t times) { ask_lines(0, asking, times); }

/* Into the first-level cache, if `near`. */
static inline void ask_near(Asking *asking, ptrdiff_t times) {
    if (asking->near) ask_lines(1, asking, times);
    else ask_lines(0, asking, times);
}

/* Loads lines one after the other, as prefetchers follow best, before they are read side by side. */
static void touch(const char *p, ptrdiff_t bytes) {
    for (ptrdiff_t j = 0; j < bytes; j += 64) (void)*(const volatile char *)(p + j);
}

#endif
