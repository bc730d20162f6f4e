# Channels last, and all weights are 1 (nearest): both passes at once, without buffers.

cdef enum:
    STAGED_BYTES = 1 << 12  # of a result that is stored past the caches at a time


cdef void run_boxes(const Job *job, Stage *stage, Py_ssize_t n, Py_ssize_t c0, Py_ssize_t lanes,
                    Py_ssize_t d, Py_ssize_t h, Py_ssize_t x0, Py_ssize_t x1) noexcept nogil:
    # Columns x0 <= x < x1 of one row of the result.
    cdef const char *rows[ROWS_OF_A_PLANE]
    cdef double[ROWS_OF_A_PLANE] weights
    cdef Py_ssize_t step = job.result.strides[4], pixel = lanes * job.store_size, end
    cdef Row row = result_row(job, n, c0, d, h)
    cdef Py_ssize_t count = all_products(job, &row, row.grads, rows, weights)
    cdef char *dst = row.result + x0 * step
    cdef bint lines = (<Py_ssize_t> dst | step | pixel) % 64 == 0
    if lines or not job.streams:
        add_boxes(job.store_dtype, job.chains, job.streams, rows, count, job.width.start,
                  job.width.first, job.grads.strides[4], lanes, x0, x1, dst, step)
        return
    while x0 < x1:
        end = min(x1, x0 + max(<Py_ssize_t> 1, STAGED_BYTES // pixel))
        dst = staged(stage, row.result + x0 * step, (end - x0) * pixel)
        add_boxes(job.store_dtype, job.chains, False, rows, count, job.width.start, job.width.first,
                  job.grads.strides[4], lanes, x0, end, dst, pixel)
        x0 = end
