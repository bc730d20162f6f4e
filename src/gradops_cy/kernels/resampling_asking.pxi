# From memory: while rows of the result are summed, what later ones are the first to read is asked
# for in the order of memory. Prefetchers do not follow rows of a few kilobytes side by side.

cdef Py_ssize_t first_new(const Axis *axis, Py_ssize_t x, Py_ssize_t x0) noexcept nogil:
    # The first index of those that touch x that does not touch x - 1, if that comes after x0.
    if x <= x0:
        return 0
    return max(<Py_ssize_t> 0, axis.start[x - 1] + run_of(axis, x - 1) - axis.start[x])


cdef Asking no_asking(const Job *job) noexcept nogil:
    cdef Asking asking
    asking.runs = asking.bytes = asking.each = asking.due = asking.current = asking.place = 0
    asking.near = job.asks_near
    return asking


cdef void share_runs(Asking *asking, Py_ssize_t times) noexcept nogil:
    # All runs are asked for in so many times.
    if asking.bytes > 0 and times > 0:
        asking.each = blocks_of(asking.runs * asking.bytes, times)


cdef bint asks_rows(const Job *job, Py_ssize_t lanes, Py_ssize_t columns) noexcept nogil:
    # Whether channels, which lie innermost, are read as whole rows that follow each other in memory.
    cdef Py_ssize_t pixel = lanes * job.load_size
    return (job.rows_ahead > 0 and columns == job.grads_extents[2]
            and job.grads.strides[4] == pixel and job.grads.strides[3] == columns * pixel)


cdef Asking ask_for_rows(const Job *job, Py_ssize_t n, Py_ssize_t c, Py_ssize_t d, Py_ssize_t h,
                         Py_ssize_t h0, Py_ssize_t h1, Py_ssize_t blocks) noexcept nogil:
    # What is asked for while row h of h0 <= h < h1 is summed in so many blocks. Beyond a plane that
    # is alone lies the next image; of several, the next one in turn is another depth's.
    cdef Py_ssize_t step = job.grads.strides[3], on = 0, first = h0, skip, p, p0
    cdef const char *base
    cdef Asking asking = no_asking(job)
    if job.depth.extent == 1:
        first = 0
        on = job.rows_ahead * step * max(<Py_ssize_t> 1, job.grads_extents[1] // job.height.extent)
    elif h + 1 < h1:
        h += 1
    elif d + 1 < job.depth.extent:
        d, h = d + 1, h0
    else:
        return asking
    skip, p0 = first_new(&job.height, h, first), first_new(&job.depth, d, 0)
    base = place(&job.grads, n, c, job.depth.start[d], job.height.start[h] + skip) + on
    asking.bytes = (run_of(&job.height, h) - skip) * step
    for p in range(p0, min(run_of(&job.depth, d), p0 + ASKED_RUNS)):
        asking.run[asking.runs] = base + p * job.grads.strides[2]
        asking.runs += 1
    share_runs(&asking, blocks)
    return asking
