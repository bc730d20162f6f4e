/* AMX tiles: set-up and the bf16 product. Only the amx tier compiles the bodies. */
#ifndef GRADOPS_AMX_H
#define GRADOPS_AMX_H

#include "simd.h"

#if defined(__AMX_BF16__)

/* All eight tiles as 16 rows of 64 bytes: 16x16 float accumulators and 16x32 bf16 operands.
 * Tails are padded in memory, which is cheaper than a second configuration. */
static void amx_begin(void) {
    struct { uint8_t palette, start_row, reserved[14]; uint16_t row_bytes[16]; uint8_t rows[16]; }
        __attribute__((packed)) config = {.palette = 1};
    for (int t = 0; t < 8; t++) { config.row_bytes[t] = 64; config.rows[t] = 16; }
    _tile_loadconfig(&config);
}

static void amx_end(void) { _tile_release(); }

/* Accumulator c += a * b. Some compilers' intrinsic lacks its operands as dependencies, so the
 * instruction is spelled out with a memory barrier. */
#define AMX_DPBF16(c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

#else

static void amx_begin(void) {}
static void amx_end(void) {}

#endif

#endif
