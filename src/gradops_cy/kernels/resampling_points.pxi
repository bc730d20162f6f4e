# The kernel of points: see resampling_points.h. Rows of the result are written some at a time.

cdef extern from "resampling_points.h" nogil:
    cpdef enum:
        POINT_LANES "LANES_F32"  # elements of a block
        POINT_ROWS
    ctypedef struct PointPlane:
        const char *src
        Py_ssize_t depths, src_pitch, src_step, extent
        const float *depth_weight
        const Py_ssize_t *start
        const Py_ssize_t *first
        const Py_ssize_t *alike
        const float *height_weight
        Py_ssize_t dst_step, ahead
    void put_points(int dtype, bint streams, const PointPlane *plane, Py_ssize_t h0, Py_ssize_t h1,
                    const int *table, Py_ssize_t pixel, Py_ssize_t n, char *dst) noexcept
    void clear_points(bint streams, char *dst, Py_ssize_t bytes) noexcept

cpdef enum:
    PART_BYTES = 1 << 14  # of the result that are written at a time


cdef bint streams_points(const Job *job, const char *dst, Py_ssize_t row_bytes) noexcept nogil:
    # Whether rows of the result are whole lines, and positions or pairs of blocks too.
    cdef Py_ssize_t unit = job.pixel if job.pixel >= POINT_LANES else 2 * POINT_LANES
    unit *= job.store_size
    return (<Py_ssize_t> dst | job.result.strides[3] | unit) % 64 == 0 and row_bytes % unit == 0


cdef void put_part(const Job *job, Stage *stage, const Cursor *at, const Py_ssize_t *chunk,
                   Py_ssize_t rows) noexcept nogil:
    # So many rows of a plane of the result from the cursor on.
    cdef const Axis *height = &job.height
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef Py_ssize_t x0 = chunk[CHUNK_FIRST], n = chunk[CHUNK_LAST] - x0
    cdef Py_ssize_t row_bytes = n * job.pixel * job.store_size, h1 = at.h + rows
    cdef char *dst = row.result + x0 * job.result.strides[4]
    cdef bint streams = False
    cdef PointPlane plane
    if row.depth_count == 0:
        clear_points(job.streams, dst, rows * row_bytes)
        return
    if job.streams:
        streams = streams_points(job, dst, row_bytes)
        if not streams:
            dst = staged(stage, dst, rows * row_bytes)
    plane.src = (place(&job.grads, at.n, at.c, job.depth.start[at.d], 0)
                 + chunk[CHUNK_START] * job.grads.strides[4])
    plane.src_step, plane.dst_step = job.grads.strides[3], job.result.strides[3]
    plane.extent = (job.grads_extents[2] - chunk[CHUNK_START]) * job.pixel
    plane.ahead = job.ahead
    plane.depths, plane.src_pitch = row.depth_count, job.grads.strides[2]
    plane.depth_weight = <const float *> row.depth_weights
    plane.start, plane.first, plane.alike = height.start, height.first, job.alike
    plane.height_weight = <const float *> job.weights
    put_points(job.load_dtype, streams, &plane, at.h, h1, job.patterns + chunk[CHUNK_BLOCK],
               job.pixel, n, dst)


cdef void buffer_row(const Job *job, const Workspace *space, const Cursor *at,
                     const Py_ssize_t *chunk) noexcept nogil:
    # A row of tensors that are not read or written as they are.
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef Py_ssize_t x0 = chunk[CHUNK_FIRST], x1 = chunk[CHUNK_LAST]
    cdef Py_ssize_t[3] one = [0, 0, 1]
    cdef float weight = 1
    cdef PointPlane plane
    load_positions(job, space, &row, job.pixel, chunk[CHUNK_START], chunk[CHUNK_END], space.loaded)
    plane.src, plane.src_pitch, plane.src_step, plane.dst_step = space.loaded, 0, 0, 0
    plane.depths, plane.depth_weight = 1, &weight
    plane.ahead = 0
    plane.extent = (chunk[CHUNK_END] - chunk[CHUNK_START]) * job.pixel
    plane.start, plane.first, plane.alike, plane.height_weight = one, one + 1, NULL, &weight
    put_points(F32, False, &plane, 0, 1, job.patterns + chunk[CHUNK_BLOCK], job.pixel, x1 - x0,
               space.summed)
    store_positions(job, &row, job.pixel, x0, x1, space.summed)


cdef void run_points(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef const Py_ssize_t *chunk = job.chunks + task % job.chunk_count * CHUNK_WORDS
    cdef Py_ssize_t bytes = (chunk[CHUNK_LAST] - chunk[CHUNK_FIRST]) * job.pixel * job.store_size
    cdef Py_ssize_t r = task // job.chunk_count * job.task_rows, rows = 1, most = 1
    cdef Py_ssize_t r1 = min(r + job.task_rows, count_rows(job))
    cdef Cursor at = cursor_at(job, r)
    cdef Stage stage = begin_stage(space.summed, space.rows - space.summed)
    if job.direct and bytes == job.result.strides[3]:
        most = max(<Py_ssize_t> 1, PART_BYTES // bytes)
    while r < r1:
        if job.direct:
            rows = min(most, min(job.height.extent - at.h, r1 - r))
            put_part(job, &stage, &at, chunk, rows)
        else:
            buffer_row(job, &space, &at, chunk)
        r += rows
        at.h += rows - 1
        step_on(job, &at)
    flush(&stage, stage.bytes)
