# The machine probes of one tier: peak arithmetic and copy bandwidth, on any number of threads.

from cython.parallel cimport prange

cdef extern from "probe.h" nogil:
    double probe_fma_f32(Py_ssize_t rounds, float *sink) noexcept
    double probe_fma_f64(Py_ssize_t rounds, double *sink) noexcept
    double probe_dot_products "probe_dot"(Py_ssize_t rounds) noexcept
    void probe_copy_bytes "probe_copy"(const char *src, char *dst, Py_ssize_t n) noexcept


cdef double fma_f32(Py_ssize_t rounds) noexcept nogil:
    cdef float sink = 1
    return probe_fma_f32(rounds, &sink)


cdef double fma_f64(Py_ssize_t rounds) noexcept nogil:
    cdef double sink = 1
    return probe_fma_f64(rounds, &sink)


def probe_fma(Py_ssize_t rounds, int num_threads, bint double_precision):
    """Run `rounds` of independent multiply-adds on each thread; return the operations done."""
    cdef int i
    cdef double operations = 0
    for i in prange(num_threads, nogil=True, schedule="static", chunksize=1, num_threads=num_threads):
        operations += fma_f64(rounds) if double_precision else fma_f32(rounds)
    return operations


def probe_dot(Py_ssize_t rounds, int num_threads):
    """Run `rounds` of products of bf16 pairs on each thread; return the operations, 0 without such."""
    cdef int i
    cdef double operations = 0
    for i in prange(num_threads, nogil=True, schedule="static", chunksize=1, num_threads=num_threads):
        operations += probe_dot_products(rounds)
    return operations


def probe_copy(const unsigned char[::1] src, unsigned char[::1] dst, int num_threads):
    """Copy `src` to `dst` past the caches, an equal share by each thread."""
    cdef int i
    cdef Py_ssize_t share = src.shape[0] // num_threads // 64 * 64
    for i in prange(num_threads, nogil=True, schedule="static", chunksize=1, num_threads=num_threads):
        probe_copy_bytes(<const char *> &src[0] + i * share, <char *> &dst[0] + i * share, share)
    return share * num_threads
