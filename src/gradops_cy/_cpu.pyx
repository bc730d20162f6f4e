"""What this processor can run and what compiled this build; itself baseline code."""

cdef extern from "cpu.h" nogil:
    int amd_family()
    long long largest_cache()
    int x86_level()
    int openmp_max_threads()
    const char *COMPILER_NAME
    long OPENMP_DATE


def processor_level():
    """Return the x86-64 level, 0 (none) to 4; 5 with AVX512-BF16, 6 with AMX as well."""
    return x86_level()


def processor_family_amd():
    """Return the family of an AMD processor (Zen 3 and 4: 25, Zen 5: 26); 0 for others."""
    return amd_family()


def largest_cache_bytes():
    """Return the size of the largest cache, which several cores may share; 0 if it is not known."""
    return largest_cache()


def compiler():
    """Return the name and version of the C compiler that built the package."""
    return COMPILER_NAME.decode()


def openmp_version():
    """Return the date of the OpenMP specification compiled against (yyyymm), 0 for none."""
    return OPENMP_DATE


def openmp_threads():
    """Return how many threads the OpenMP runtime would use by itself."""
    return openmp_max_threads()
