# The kernel of phases: both passes are one, in registers. Rows have 2, 4 or 8 columns of diff_dst for
# each position of the result, or as many positions for each column.

cdef extern from "resampling_phases.h" nogil:
    cpdef enum:
        PHASE_LANES  # positions of a vector
        PHASE_PARTS  # whether rows may end within one
        PHASE_F16    # whether float16 gains
    enum:
        PHASE_ROWS
    ctypedef struct PhaseRows:
        const char *const *row
        const char *const *asked
        const float *weight
        const float *taps
        Py_ssize_t rows, asked_rows, origin, extent
        Py_ssize_t count, row_step, dst_step, shift
        char *dst
        Py_ssize_t joined
        int in_order, near, streams
    void sum_phases(int dtype, int scale, int taps, const PhaseRows *job, Py_ssize_t x0,
                    Py_ssize_t x1) noexcept
    void spread_phases(int dtype, int spread, const PhaseRows *job, Py_ssize_t columns) noexcept


# Positions of a row of the result, and the columns of diff_dst that they read.
cdef struct Span:
    Py_ssize_t x0, x1, y0, y1


cdef Span span_of(const Job *job, Py_ssize_t chunk) noexcept nogil:
    cdef Span span
    span.x0 = chunk * job.task_columns
    span.x1 = min(span.x0 + job.task_columns, job.width.extent)
    span.y0, span.y1 = span.x0 // job.spread, span.x1 // job.spread
    if job.spread == 1:
        # A vector of positions more on each side.
        span.y0 = max(<Py_ssize_t> 0, span.x0 - ROW_LANES) * job.scale
        span.y1 = min(span.x1 + ROW_LANES, job.width.extent) * job.scale
    return span


cdef void ask_rows(const Job *job, const Row *row, const Cursor *at, const Span *span,
                   Py_ssize_t ahead, const char **asked, PhaseRows *phases) noexcept nogil:
    # The rows of diff_dst that `row` is the first to read, further on. From memory those that follow
    # each other come in their order: side by side they came half as fast.
    cdef Py_ssize_t d, h, step = job.grads.strides[3], pixel = job.grads.strides[4], count = 0
    cdef Py_ssize_t first = first_new(&job.height, at.h, 0), rows = row.height_count - first
    cdef bint joins = job.in_order and (span.y1 - span.y0) * pixel == step
    for d in range(first_new(&job.depth, at.d, 0), row.depth_count):
        for h in range(min(<Py_ssize_t> 1, rows) if joins else rows):
            if count < ASKED_RUNS:
                asked[count] = (row.grads + d * job.grads.strides[2] + (first + h) * step
                                + span.y0 * pixel + ahead)
                count += 1
    phases.asked, phases.asked_rows, phases.joined = asked, count, rows if joins else 1


cdef void sum_of_phases(const Job *job, int dtype, const PhaseRows *phases,
                        const Span *span) noexcept nogil:
    if job.spread > 1:
        spread_phases(dtype, job.spread, phases, (span.x1 - span.x0) // job.spread)
    else:
        sum_phases(dtype, job.scale, job.taps, phases, span.x0, span.x1)


cdef void sum_buffered(const Job *job, const Workspace *space, const Span *span, Row row,
                       const PhaseRows *alike) noexcept nogil:
    # Rows of the result that need buffers, one after the other.
    cdef const char *loaded = space.loaded
    cdef float one = 1
    cdef PhaseRows phases = alike[0]
    cdef Py_ssize_t i
    phases.row, phases.weight, phases.rows, phases.dst = &loaded, &one, 1, space.summed
    phases.count, phases.streams = 1, False
    for i in range(alike.count):
        load_positions(job, space, &row, 1, span.y0, span.y1, space.loaded)
        sum_of_phases(job, F32, &phases, span)
        store_positions(job, &row, 1, span.x0, span.x1, space.summed)
        row.grads += alike.row_step
        row.result += alike.dst_step


cdef void sum_alike(const Job *job, const Workspace *space, const Span *span, const Cursor *at,
                    const PhaseRows *alike, Py_ssize_t ahead) noexcept nogil:
    # As many rows of the result as are `alike`, from the cursor on. What lies `ahead` is asked for.
    cdef const char *rows[PHASE_ROWS]
    cdef const char *asked[ASKED_RUNS]
    cdef float[PHASE_ROWS] weights
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef Py_ssize_t bytes = (span.x1 - span.x0) * job.result.strides[4], count = alike.count, i
    cdef char *dst = row.result + span.x0 * job.result.strides[4]
    cdef bint streams = job.streams and (<Py_ssize_t> dst | alike.dst_step) % 64 == 0
    cdef PhaseRows phases = alike[0]
    phases.rows = row.depth_count * row.height_count
    if not job.direct or phases.rows > PHASE_ROWS:
        sum_buffered(job, space, span, row, alike)
        return
    if phases.rows == 0 and not streams:
        if alike.dst_step == bytes:
            bytes, count = bytes * count, 1
        for i in range(count):
            memset(dst + i * alike.dst_step, 0, bytes)
        return
    all_products(job, &row, row.grads + span.y0 * job.grads.strides[4], rows, weights)
    phases.row, phases.weight, phases.dst, phases.streams = rows, weights, dst, streams
    phases.shift = alike.shift * row.depth_count
    if ahead:
        ask_rows(job, &row, at, span, ahead, asked, &phases)
    sum_of_phases(job, job.load_dtype, &phases, span)


cdef PhaseRows rows_alike(const Job *job, const Span *span, Py_ssize_t row_step,
                          Py_ssize_t dst_step) noexcept nogil:
    # What rows of the result have in common.
    cdef PhaseRows alike
    memset(&alike, 0, sizeof(PhaseRows))
    alike.row_step, alike.dst_step = row_step, dst_step
    alike.taps, alike.origin, alike.extent = job.phases, span.y0 // job.scale, job.width.extent
    alike.in_order, alike.near = job.in_order, job.ahead & NEAR
    return alike


cdef void run_phases(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t chunks = job.chunk_count, ahead = 0
    cdef Span span = span_of(job, task % chunks)
    cdef Py_ssize_t r = task // chunks * job.task_rows
    cdef Py_ssize_t r1 = min(r + job.task_rows, count_rows(job))
    cdef Cursor at = cursor_at(job, r)
    cdef PhaseRows alike = rows_alike(job, &span, job.apart * job.grads.strides[3],
                                      job.result.strides[3])
    alike.shift = job.apart  # of one plane
    if job.ahead and not job.shares:
        ahead = max(<Py_ssize_t> 1, job.ahead // 2 * job.grads_extents[1] // job.height.extent)
        ahead *= job.grads.strides[3]
    while r < r1:
        alike.count = min(job.alike[at.h], r1 - r)
        sum_alike(job, &space, &span, &at, &alike, ahead)
        r += alike.count
        step_by(job, &at, alike.count)


cdef void run_shared(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Phases in two passes: rows of diff_dst are read once for the two of the result that they touch.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t chunks = job.chunk_count, carried = 0
    cdef Span span = span_of(job, task % chunks)
    cdef Py_ssize_t r = task // chunks * job.task_rows
    cdef Py_ssize_t left = min(job.task_rows, count_rows(job) - r)
    cdef Cursor at = cursor_at(job, r)
    cdef Row row, following = result_row(job, at.n, at.c, at.d, at.h)
    cdef const char *loaded
    cdef float one = 1
    cdef PhaseRows phases = rows_alike(job, &span, 0, 0)
    phases.row, phases.weight, phases.rows, phases.count = &loaded, &one, 1, 1
    phases.dst = space.summed
    while left > 0:
        left -= 1
        carried = load_next(job, &at, &row, &following, left, carried, span.y0, span.y1 - span.y0,
                            space.loaded, space.carried)
        loaded = space.loaded
        sum_of_phases(job, F32, &phases, &span)
        store_positions(job, &row, 1, span.x0, span.x1, space.summed)
        if carried:
            space.loaded, space.carried = space.carried, space.loaded


cdef void run_phase_planes(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Small planes: the same row of all of a task, row by row. Tasks run along the channels first.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t blocks = blocks_of(job.channels, job.planes_at_once), d, h, ahead
    cdef Span span = span_of(job, 0)
    cdef PhaseRows alike = rows_alike(job, &span, job.grads.strides[1], job.result.strides[1])
    cdef Cursor at
    at.n, at.c = task // blocks, task % blocks * job.planes_at_once
    alike.count = min(job.planes_at_once, job.channels - at.c)
    ahead = alike.count * job.grads.strides[1] if job.ahead else 0
    for d in range(job.depth.extent):
        for h in range(job.height.extent):
            at.d, at.h = d, h
            sum_alike(job, &space, &span, &at, &alike, ahead)
