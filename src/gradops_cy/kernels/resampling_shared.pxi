# Rows of diff_dst that two rows of the result share. Large tensors are bound by memory, small ones by
# conversions, so each row is read once for the two rows of the result that it touches (linear
# interpolation): with the sum of the first one that of the second is begun, and carried to it in cache.
#
#     rows of diff_dst       y0  y1  y2  y3  y4  y5  y6  y7
#     touch row x            ──────────────
#     touch row x + 1                ──────────────
#     read with row x                ──────                  into two sums
#     read with row x + 1                    ──────          into two sums, the first goes on

cdef bint shares_rows(const Job *job, Py_ssize_t lanes) noexcept nogil:
    # Whether rows of `lanes` channels are read so: where they are contiguous, and sums not halved.
    return (job.longest_product <= MAX_PRODUCTS
            and job.grads.strides[4] == lanes * job.load_size
            and (lanes == 1 or job.grads.strides[1] == job.load_size))


cdef Py_ssize_t shared_rows(const Job *job, Py_ssize_t h, Py_ssize_t following,
                            Py_ssize_t carried) noexcept nogil:
    # How many rows of a plane of diff_dst, the last that touch row h of the result and the first
    # that touch a following one, may be read for both: not those that were carried here already.
    cdef Py_ssize_t count = run_of(&job.height, h), shared
    if following == job.height.extent:
        return 0
    shared = job.height.start[h] + count - job.height.start[following]
    return shared if 0 < shared <= min(count - carried, run_of(&job.height, following)) else 0


cdef void load_shared(const Job *job, const Row *row, const Row *following, Py_ssize_t carried,
                      Py_ssize_t shared, Py_ssize_t y0, Py_ssize_t n, char *loaded,
                      char *carry, Asking *meanwhile) noexcept nogil:
    # The first n elements from column y0 on: loaded = `row` reduced, on from what it holds of the
    # `carried` first rows of diff_dst; carry = the `shared` last ones reduced for the next row.
    cdef const char *rows[ROWS_OF_A_PLANE]
    cdef double[2][ROWS_OF_A_PLANE] weights
    cdef const void *both[2]
    cdef char *dst[2]
    cdef int add[2]
    cdef const char *base = row.grads + y0 * job.grads.strides[4]
    cdef const char *next_base = following.grads + y0 * job.grads.strides[4]
    cdef Py_ssize_t own = (row.height_count - shared) * row.depth_count, r = 0, count
    cdef Py_ssize_t end = shared * row.depth_count
    if row.depth_count * row.height_count == 0:
        memset(loaded, 0, n * job.size)
        return
    both[0], both[1] = &weights[0][0], &weights[1][0]
    dst[0], dst[1] = loaded, carry
    add_products(job, row, base, job.load_size, n, carried * row.depth_count, own, carried > 0,
                 loaded)
    while r < end:
        count = min(<Py_ssize_t> ROWS_OF_A_PLANE, end - r)
        row_products(job.f64, base, job.grads.strides[3], row.height_weights,
                     job.grads.strides[2], row.depth_weights, row.depth_count, own + r, count,
                     rows, weights[0])
        row_products(job.f64, next_base, job.grads.strides[3], following.height_weights,
                     job.grads.strides[2], row.depth_weights, row.depth_count, r, count, rows,
                     weights[1])
        add[0], add[1] = own + r > 0, r > 0
        add_shared_rows(job.load_dtype, rows, both, count, job.ahead, meanwhile, n, dst,
                        add)
        r += count


cdef Py_ssize_t load_next(const Job *job, Cursor *at, Row *row, Row *following, Py_ssize_t left,
                          Py_ssize_t carried, Py_ssize_t y0, Py_ssize_t n, char *loaded,
                          char *carry) noexcept nogil:
    # Load the row of the cursor, which is `following` and becomes `row`, and move on to the next one if
    # any is left. Returns how many rows of diff_dst are carried to that.
    cdef Py_ssize_t shared = 0
    row[0] = following[0]
    if left > 0:
        shared = shared_rows(job, at.h, at.h + 1, carried)
        step_on(job, at)
        following[0] = result_row(job, at.n, at.c, at.d, at.h)
    load_shared(job, row, following, carried, shared, y0, n, loaded, carry, NULL)
    return shared
