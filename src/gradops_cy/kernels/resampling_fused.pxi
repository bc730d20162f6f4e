# The kernels of phases and of windows: both passes are one, in registers. Phases have 2, 4 or 8 columns
# of diff_dst for each position along the width of the result, or as many positions for each column;
# windows are blocks of the kernel of widths whose columns lie close together.

cdef extern from "resampling_fused.h" nogil:
    enum:
        FUSED_ROWS
    ctypedef struct FusedRows:
        const char *const *row
        const char *const *asked
        const float *weight
        const float *taps
        Py_ssize_t rows, asked_rows, origin, extent, advance
        Py_ssize_t count, row_step, dst_step, joined
        int near, streams

cdef extern from "resampling_phases.h" nogil:
    cpdef enum:
        PHASE_LANES  # positions of a vector
        PHASE_PARTS  # whether rows may end within one
        PHASE_F16    # whether float16 gains
    void sum_phases(int dtype, int scale, int taps, const FusedRows *job, Py_ssize_t x0,
                    Py_ssize_t x1, char *dst) noexcept
    void spread_phases(int dtype, int spread, const FusedRows *job, Py_ssize_t columns,
                       char *dst) noexcept

cdef extern from "resampling_windows.h" nogil:
    cpdef enum:
        WINDOW_VECTORS           # of a window at most; 0 where the tier has none
        WINDOW_VECTORS_OF_PARTS  # where a block has two
    void sum_windows(int dtype, int vectors, int parts, const FusedRows *job,
                     const Py_ssize_t *blocks, const int *patterns, Py_ssize_t step, Py_ssize_t n,
                     char *dst) noexcept

cdef enum:
    ASKED_ROWS = 16


# Positions of a row of the result, and the columns of diff_dst that they read.
cdef struct Span:
    Py_ssize_t x0, x1, y0, y1
    const Py_ssize_t *blocks  # those of windows


cdef Span span_of(const Job *job, Py_ssize_t chunk) noexcept nogil:
    cdef Span span
    cdef const Py_ssize_t *words
    if job.kernel == WINDOWS:
        words = job.chunks + chunk * CHUNK_WORDS
        span.x0, span.x1 = words[CHUNK_FIRST], words[CHUNK_LAST]
        span.y0, span.y1 = words[CHUNK_START], words[CHUNK_END]
        span.blocks = job.blocks + 2 * words[CHUNK_BLOCK]
        return span
    span.x0 = chunk * job.task_columns
    span.x1 = min(span.x0 + job.task_columns, job.width.extent)
    span.y0, span.y1 = span.x0 // job.spread, span.x1 // job.spread
    if job.spread == 1:
        # A vector of positions more on each side.
        span.y0 = max(<Py_ssize_t> 0, span.x0 - ROW_LANES) * job.scale
        span.y1 = min(span.x1 + ROW_LANES, job.width.extent) * job.scale
    return span


cdef void ask_rows(const Job *job, const Row *row, const Cursor *at, const Span *span,
                   Py_ssize_t ahead, const char **asked, FusedRows *fused) noexcept nogil:
    # The rows of diff_dst that `row` is the first to read, so many bytes further on. The second-level
    # cache gets those that follow each other in their order: side by side they came half as fast.
    cdef Py_ssize_t d, h, count = 0, pixel = job.grads.strides[4]
    for d in range(first_new(&job.depth, at.d, 0), row.depth_count):
        for h in range(first_new(&job.height, at.h, 0), row.height_count):
            if count < ASKED_ROWS:
                asked[count] = (row.grads + d * job.grads.strides[2] + h * job.grads.strides[3]
                                + span.y0 * pixel + ahead)
                count += 1
    fused.asked_rows, fused.joined = count, 1
    if count > 1 and not fused.near and are_joined(asked, count, (span.y1 - span.y0) * pixel):
        fused.asked_rows, fused.joined = 1, count


cdef void sum_fused(const Job *job, int dtype, const FusedRows *fused, const Span *span,
                    char *dst) noexcept nogil:
    cdef Py_ssize_t positions = span.x1 - span.x0
    if job.kernel == WINDOWS:
        sum_windows(dtype, job.window_vectors, job.chains, fused, span.blocks, job.patterns,
                    job.pixel, positions * job.pixel, dst)
    elif job.spread > 1:
        spread_phases(dtype, job.spread, fused, positions // job.spread, dst)
    else:
        sum_phases(dtype, job.scale, job.taps, fused, span.x0, span.x1, dst)


cdef void fuse_rows(const Job *job, const Workspace *space, const Span *span, const Cursor *at,
                    Py_ssize_t ahead, FusedRows *fused) noexcept nogil:
    # As many rows of the result as `fused` counts, from the cursor on.
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef const char *rows[FUSED_ROWS]
    cdef const char *asked[ASKED_ROWS]
    cdef double[FUSED_ROWS] weights
    cdef float one = 1
    cdef Py_ssize_t i, count = fused.count, step = job.result.strides[4], positions = span.x1 - span.x0
    cdef Py_ssize_t origin = span.y0 * job.grads.strides[4]
    cdef char *dst = row.result + span.x0 * step
    fused.row, fused.asked, fused.rows = rows, asked, row.depth_count * row.height_count
    fused.origin, fused.near = span.y0 // job.scale, job.ahead & NEAR
    if job.direct and fused.rows <= FUSED_ROWS:
        fused.streams = job.streams and (<Py_ssize_t> dst | fused.dst_step) % 64 == 0
        if fused.rows == 0 and not fused.streams:
            if fused.dst_step == positions * step:
                positions, count = positions * count, 1
            for i in range(count):
                memset(dst + i * fused.dst_step, 0, positions * step)
            return
        all_products(job, &row, row.grads + origin, rows, weights)
        fused.weight = <const float *> weights
        fused.asked_rows = 0
        if ahead:
            ask_rows(job, &row, at, span, ahead, asked, fused)
        fused.extent = job.width.extent
        if job.kernel == WINDOWS:
            fused.extent = (job.grads_extents[2] - span.y0) * job.pixel
        sum_fused(job, job.load_dtype, fused, span, dst)
        return
    rows[0], fused.weight, fused.rows = space.loaded, &one, 1
    fused.count, fused.asked_rows, fused.streams, fused.extent = 1, 0, False, job.width.extent
    if job.kernel == WINDOWS:
        fused.extent = (span.y1 - span.y0) * job.pixel
    for i in range(count):
        load_positions(job, space, &row, job.pixel, span.y0, span.y1, space.loaded)
        sum_fused(job, F32, fused, span, space.summed)
        store_positions(job, &row, job.pixel, span.x0, span.x1, space.summed)
        row.grads += fused.row_step
        row.result += fused.dst_step


cdef void run_fused(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t chunks = job.chunk_count
    cdef Span span
    cdef Py_ssize_t r = task // chunks * job.task_rows
    cdef Py_ssize_t r1 = min(r + job.task_rows, count_rows(job))
    cdef Cursor at = cursor_at(job, r)
    cdef FusedRows fused
    # Rows of diff_dst between those of neighbouring rows of the result; none where these are more.
    cdef Py_ssize_t apart = job.grads_extents[1] // job.height.extent, count, ahead = 0
    span = span_of(job, task % chunks)
    if job.ahead and not job.shares:
        ahead = job.ahead // 2 * max(<Py_ssize_t> 1, apart) * job.grads.strides[3]
    fused.taps, fused.advance = job.phases, job.advance
    fused.row_step, fused.dst_step = apart * job.grads.strides[3], job.result.strides[3]
    while r < r1:
        count = fused.count = min(job.alike[at.h], r1 - r)
        fuse_rows(job, &space, &span, &at, ahead, &fused)
        r += count
        at.h += count - 1
        step_on(job, &at)


cdef void run_shared(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Phases in two passes: rows of diff_dst are read once for the two of the result that they touch.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t chunks = job.chunk_count, carried = 0
    cdef Span span = span_of(job, task % chunks)
    cdef Py_ssize_t r = task // chunks * job.task_rows
    cdef Py_ssize_t left = min(job.task_rows, count_rows(job) - r)
    cdef Cursor at = cursor_at(job, r)
    cdef Row row, following = result_row(job, at.n, at.c, at.d, at.h)
    cdef Py_ssize_t[CHUNK_WORDS] chunk
    cdef const char *loaded
    cdef float one = 1
    cdef FusedRows fused
    memset(&fused, 0, sizeof(FusedRows))
    fused.row, fused.weight, fused.rows, fused.count = &loaded, &one, 1, 1
    fused.taps, fused.origin, fused.extent = job.phases, span.y0 // job.scale, job.width.extent
    chunk[CHUNK_START], chunk[CHUNK_END] = span.y0, span.y1
    while left > 0:
        carried = load_group(job, &space, &row, &following, &at, 1, left, chunk, True, carried)
        left -= 1
        loaded = space.loaded
        sum_fused(job, F32, &fused, &span, space.summed)
        store_positions(job, &row, 1, span.x0, span.x1, space.summed)
        if carried:
            space.loaded, space.carried = space.carried, space.loaded


cdef void run_fused_planes(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Small planes: the same row of all of a task, row by row. Tasks run along the channels first.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t blocks = blocks_of(job.channels, job.planes_at_once)
    cdef Span span = span_of(job, 0)
    cdef Cursor at
    cdef FusedRows fused
    cdef Py_ssize_t planes, d, h, ahead = 0
    at.n, at.c = task // blocks, task % blocks * job.planes_at_once
    planes = min(job.planes_at_once, job.channels - at.c)
    if job.ahead:
        ahead = planes * job.grads.strides[1]
    fused.taps, fused.advance = job.phases, job.advance
    fused.row_step, fused.dst_step = job.grads.strides[1], job.result.strides[1]
    for d in range(job.depth.extent):
        for h in range(job.height.extent):
            at.d, at.h, fused.count = d, h, planes
            fuse_rows(job, &space, &span, &at, ahead, &fused)
