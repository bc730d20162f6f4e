# The kernel of phases: rows along whose width diff_dst has 2, 4 or 8 columns for each position of the
# result, or the result as many positions for each column. Both passes are one, in registers.

cdef extern from "resampling_phases.h" nogil:
    enum:
        PHASE_ROWS
    cpdef enum:
        PHASE_LANES  # positions of a vector
        PHASE_PARTS  # whether rows may end within one
        PHASE_F16    # whether float16 gains
    ctypedef struct PhaseRows:
        const char *const *row
        const char *const *asked
        const float *weight
        const float *taps
        Py_ssize_t rows, asked_rows, origin, extent
        Py_ssize_t count, row_step, dst_step
        int streams
    void sum_phases(int dtype, int scale, int taps, const PhaseRows *job, Py_ssize_t x0,
                    Py_ssize_t x1, char *dst) noexcept
    void spread_phases(int dtype, int spread, const PhaseRows *job, Py_ssize_t columns,
                       char *dst) noexcept

cdef enum:
    ASKED_ROWS = 16
    ROWS_AHEAD = 2  # of the result, whose rows of diff_dst are asked for


cdef Py_ssize_t first_new(const Axis *axis, Py_ssize_t x) noexcept nogil:
    # The first index of those that touch x that does not touch x - 1.
    if x == 0:
        return 0
    return max(<Py_ssize_t> 0, axis.start[x - 1] + axis.first[x] - axis.first[x - 1]
               - axis.start[x])


cdef Py_ssize_t ask_rows(const Job *job, const Row *row, const Cursor *at, Py_ssize_t y0,
                         Py_ssize_t apart, const char **asked) noexcept nogil:
    # The rows of diff_dst, from column y0 on, that the second row of the result after `row` is the
    # first to read: as far beyond those that `row` is the first to read as these two lie apart.
    cdef const char *base = (row.grads + y0 * job.load_size
                             + ROWS_AHEAD * apart * job.grads.strides[3])
    cdef Py_ssize_t d, h, count = 0
    for d in range(first_new(&job.depth, at.d), row.depth_count):
        for h in range(first_new(&job.height, at.h), row.height_count):
            if count < ASKED_ROWS:
                asked[count] = base + d * job.grads.strides[2] + h * job.grads.strides[3]
                count += 1
    return count


cdef void run_phases(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t chunks = blocks_of(job.width.extent, job.task_columns)
    cdef Py_ssize_t x0 = task % chunks * job.task_columns
    cdef Py_ssize_t x1 = min(x0 + job.task_columns, job.width.extent)
    cdef Py_ssize_t r = task // chunks * job.task_rows
    cdef Py_ssize_t r1 = min(r + job.task_rows, count_rows(job))
    # The columns that a chunk reads: where positions have several, a vector of positions more on
    # each side.
    cdef Py_ssize_t origin = max(<Py_ssize_t> 0, x0 - ROW_LANES)
    cdef Py_ssize_t y0 = origin * job.scale
    cdef Py_ssize_t y1 = min(x1 + ROW_LANES, job.width.extent) * job.scale
    cdef Cursor at = cursor_at(job, r)
    cdef Row row
    cdef const char *rows[PHASE_ROWS]
    cdef const char *asked[ASKED_ROWS]
    cdef double[PHASE_ROWS] weights
    cdef float one = 1
    cdef PhaseRows phases
    cdef bint direct = (job.stores_directly and job.load_dtype == job.store_dtype
                        and not job.accumulate and job.grads.strides[4] == job.load_size)
    # Rows of diff_dst between those of neighbouring rows of the result; none where these are more.
    cdef Py_ssize_t apart = job.grads_extents[1] // job.height.extent
    cdef char *dst
    if job.spread > 1:
        y0, y1 = x0 // job.spread, x1 // job.spread
    phases.row, phases.asked, phases.taps = rows, asked, job.phases
    phases.origin, phases.extent = origin, job.width.extent
    phases.row_step, phases.dst_step = apart * job.grads.strides[3], job.result.strides[3]
    while r < r1:
        row = result_row(job, at.n, at.c, at.d, at.h)
        dst = row.result + x0 * job.store_size
        phases.rows, phases.asked_rows = row.depth_count * row.height_count, 0
        if direct and phases.rows <= PHASE_ROWS:
            phases.count = min(job.alike[at.h], r1 - r)
            phases.streams = job.streams and (<Py_ssize_t> dst | phases.dst_step) % 64 == 0
            row_products(False, row.grads + y0 * job.load_size, job.grads.strides[3],
                         row.height_weights, job.grads.strides[2], row.depth_weights,
                         row.depth_count, 0, phases.rows, rows, weights)
            phases.weight = <const float *> weights
            if job.ahead:
                phases.asked_rows = ask_rows(job, &row, &at, y0, max(<Py_ssize_t> 1, apart),
                                             asked)
            if phases.rows == 0 and not phases.streams:
                phases.count = 1
                memset(dst, 0, (x1 - x0) * job.store_size)
            else:
                sum_any(job, job.load_dtype, &phases, x0, x1, dst)
        else:
            load_positions(job, &space, &row, 1, y0, y1, space.loaded)
            phases.rows, phases.weight, rows[0] = 1, &one, space.loaded
            phases.count, phases.streams = 1, False
            sum_any(job, F32, &phases, x0, x1, space.summed)
            store_positions(job, &row, 1, x0, x1, space.summed)
        r += phases.count
        at.h += phases.count - 1
        step_on(job, &at)


cdef void sum_any(const Job *job, int dtype, const PhaseRows *phases, Py_ssize_t x0,
                  Py_ssize_t x1, char *dst) noexcept nogil:
    if job.spread > 1:
        spread_phases(dtype, job.spread, phases, (x1 - x0) // job.spread, dst)
    else:
        sum_phases(dtype, job.scale, job.taps, phases, x0, x1, dst)
