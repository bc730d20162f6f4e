# Channels last, and a column of diff_dst touches no more than two of the result, neighbours: both
# passes at once, without buffers but for what is carried from one column to the next.

cdef enum:
    SLIDING_BYTES = 1 << 11  # of a row that are read for a block of channels, and then the next one


cdef void run_sliding(const Job *job, const Workspace *space, Stage *stage, Py_ssize_t n,
                      Py_ssize_t c0, Py_ssize_t lanes, Py_ssize_t d, Py_ssize_t h0, Py_ssize_t h1,
                      Py_ssize_t x0, Py_ssize_t x1) noexcept nogil:
    # Columns x0 <= x < x1 of some rows of the result.
    cdef const char *rows[ROWS_AT_ONCE]
    cdef double[ROWS_AT_ONCE] weights
    cdef Py_ssize_t pixel = lanes * job.store_size, most = max(<Py_ssize_t> 1, STAGED_BYTES // pixel)
    cdef Py_ssize_t step = job.result.strides[4], h, x, end
    cdef bint staging
    cdef SlidingRow sliding
    cdef Py_ssize_t columns = columns_end(job, x1 - 1) - job.width.start[x0]
    cdef Asking asking
    cdef char *dst
    cdef Row row
    sliding.row, sliding.row_weight = rows, <float *> weights
    sliding.start, sliding.first = job.width.start, job.width.first
    sliding.weight, sliding.ahead = <const float *> job.weights, job.ahead
    sliding.lanes, sliding.step = lanes, job.grads.strides[4]
    sliding.extent = job.width.extent
    sliding.meanwhile = &asking if asks_rows(job, lanes, columns) else NULL
    sliding.piece = max(<Py_ssize_t> 1, SLIDING_BYTES * job.width.extent
                        // (job.grads_extents[2] * lanes * job.load_size))
    for h in range(h0, h1):
        row = result_row(job, n, c0, d, h)
        sliding.streams = job.streams and (<Py_ssize_t> row.result | pixel) % 64 == 0
        staging = job.streams and not sliding.streams
        sliding.dst_step = pixel if staging else step
        sliding.rows = sliding.asked = all_products(job, &row, row.grads, rows, weights)
        if job.ahead:
            sliding.asked = first_new(&job.height, h, h0) * row.depth_count
        if sliding.meanwhile != NULL:
            asking = ask_for_rows(job, n, c0, d, h, h0, h1, columns * blocks_of(lanes, ASKING_LANES))
        x = x0
        while x < x1:
            end = min(x1, x + most)
            dst = row.result + x * step
            if staging:
                dst = staged(stage, dst, (end - x) * pixel)
            slide_row(job.store_dtype, job.chains, &sliding, x == x0, x, end, space.loaded, dst)
            x = end
