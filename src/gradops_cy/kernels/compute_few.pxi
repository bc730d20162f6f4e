# ROWS of a few positions without a kernel, whose task would pack weights that it meets only once:
# they are multiplied where they lie.

cdef extern from "few.h" nogil:
    enum:
        FEW_MR
    void run_few(int f64, int mr, Py_ssize_t channels, Py_ssize_t kc, const void *a, const char *b,
                 Py_ssize_t k_pitch, Py_ssize_t i_pitch, void *c, int how) noexcept


cdef inline bint multiplies_as_they_lie(const Work *work, const Weights *w) noexcept nogil:
    """Return whether weights are one tap of what is summed, and dense on one of their axes."""
    cdef bint alone = work.b.kernel == ROWS and work.taps == 1 and w.taps == 1 and work.classes == 1
    return alone and w.size == w.unit and (w.order == BY_INPUT or w.order == BY_OUTPUT)


cdef bint compute_few(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                      Py_ssize_t chunk, const Scratch *s) noexcept nogil:
    """Add a chunk's products to the sums of all channels of a task; or return that it is not for this.

    Padding is not: only packing finds out which weights are not finite.
    """
    cdef const Weights *w = work.packing
    cdef const Py_ssize_t *begin = work.block + 4 * task.block_begin
    cdef const Py_ssize_t *end = work.block + 4 * (task.block_end - 1)
    cdef const Py_ssize_t *residue = work.residue
    cdef const char *weights
    cdef const char *known[FEW_MR]
    cdef const char *row[FEW_MR]
    cdef char *result[FEW_MR]
    cdef Py_ssize_t count[3]
    cdef Py_ssize_t p, positions
    cdef bint inputs = w.order == BY_INPUT
    cdef Region region
    if not multiplies_as_they_lie(work, w):
        return False
    positions = class_positions(work, task, residue, count)
    if positions == 0 or positions > FEW_MR:
        return False
    first_region(work, task, residue, count, &region)
    point_results(work, task, group, residue, count, &region, s.result, result)
    point_rows(work, task, group, first, chunk, residue, count, &region, positions, s, known,
               row)
    for p in range(positions):
        if row[p] == s.zeros:
            return False
    weights = tap_data(w, group, 0) + first * w.stride[1] + begin[0] * w.stride[2]
    run_few(work.f64, <int> positions, end[0] + end[1] - begin[0], chunk, row, weights,
            w.stride[1] // w.unit if inputs else 1, 1 if inputs else w.stride[2] // w.unit, result,
            first > 0)
    return True
