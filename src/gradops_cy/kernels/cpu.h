/* What the processor and the operating system allow: the highest instruction-set tier.
 * Compiled for the baseline only. */
#ifndef GRADOPS_CPU_H
#define GRADOPS_CPU_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

static uint64_t enabled_state(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

/* Ask the kernel for the AMX tile state; granted once for the whole process. */
static int amx_permitted(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return 0;
#endif
}

/* The family of an AMD processor (Zen 3 and 4: 25, Zen 5: 26); 0 for others. */
static int amd_family(void) {
    uint32_t a, b, c, d, name[3];
    if (!__get_cpuid(0, &a, &name[0], &name[2], &name[1])) return 0;
    if (memcmp(name, "AuthenticAMD", sizeof name) != 0) return 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    return (int)((a >> 8 & 0xf) + (a >> 20 & 0xff));
}

/* Bytes of the largest cache, which several cores may share; 0 where the processor does not say. */
static long long largest_cache(void) {
    const uint32_t leaf = amd_family() ? 0x8000001du : 4;
    uint32_t a, b, c, d;
    long long largest = 0;
    for (uint32_t i = 0; i < 8 && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31); i++) {
        const long long ways = (b >> 22) + 1, parts = (b >> 12 & 0x3ff) + 1, line = (b & 0xfff) + 1;
        const long long bytes = ways * parts * line * ((long long)c + 1);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

/* 0: below x86-64-v2; 2, 3, 4: the psABI levels; 5: level 4 with AVX512-BF16, 6: and with AMX-BF16. */
static int x86_level(void) {
    uint32_t a, b, c, d, b7 = 0, c7, d7 = 0, a71 = 0, e1c = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
    const uint32_t v2 = (1u << 0) | (1u << 9) | (1u << 13) | (1u << 19) | (1u << 20) | (1u << 23);
    if ((c & v2) != v2) return 0;
    const uint32_t v3 = (1u << 12) | (1u << 22) | (1u << 27) | (1u << 28) | (1u << 29);
    if ((c & v3) != v3) return 2; /* FMA, MOVBE, OSXSAVE, AVX, F16C */
    uint64_t state = enabled_state();
    if ((state & 0x6) != 0x6) return 2;
    uint32_t max7 = 0;
    if (__get_cpuid_count(7, 0, &a, &b7, &c7, &d7)) max7 = a;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) e1c = c;
    const uint32_t bmi_avx2 = (1u << 3) | (1u << 5) | (1u << 8);
    if ((b7 & bmi_avx2) != bmi_avx2 || !(e1c & (1u << 5))) return 2; /* BMI1, AVX2, BMI2, LZCNT */
    const uint32_t avx512 = (1u << 16) | (1u << 17) | (1u << 28) | (1u << 30) | (1u << 31);
    if ((b7 & avx512) != avx512 || (state & 0xe6) != 0xe6) return 3; /* F, DQ, CD, BW, VL */
    if (max7 >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) a71 = a;
    const uint32_t amx = (1u << 22) | (1u << 24); /* AMX-BF16, AMX-TILE */
    if (!(a71 & (1u << 5))) return 4; /* AVX512-BF16 */
    if ((d7 & amx) != amx || (state & 0x60000) != 0x60000) return 5;
    return amx_permitted() ? 6 : 5;
}

#else

static int amd_family(void) { return 0; }
static long long largest_cache(void) { return 0; }
static int x86_level(void) { return 0; }

#endif

#if defined(__clang__)
#define COMPILER_NAME "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER_NAME "gcc " __VERSION__
#else
#define COMPILER_NAME "unknown"
#endif

#if defined(_OPENMP)
#include <omp.h>
#define OPENMP_DATE _OPENMP
static int openmp_max_threads(void) { return omp_get_max_threads(); }
#else
#define OPENMP_DATE 0
static int openmp_max_threads(void) { return 1; }
#endif

#endif
