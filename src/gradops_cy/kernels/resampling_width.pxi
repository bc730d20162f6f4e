# The kernel of rows whose width pass has its lanes along the row: NCX, and NXC of few channels.
#
# A group is a few rows of the result side by side, as many as fill vectors. Depth and height are
# reduced into a buffer, row by row; then blocks of positions are summed from it by permutation and
# stored, converted, without another buffer where the rows of the result follow each other.

cdef extern from "resampling.h" nogil:
    cpdef enum:
        WIDTH_LANES  # positions of a block; 0 where the tier cannot permute
        WIDTH_REACH  # the elements that the places of a block may lie in
    void sum_blocks(int dtype, int accumulate, const float *src, const Py_ssize_t *block,
                    const int *patterns, Py_ssize_t step, char *dst, Py_ssize_t n) noexcept

cpdef enum:
    # A chunk of a row: its blocks, its positions, and the columns of diff_dst that it reads.
    CHUNK_BLOCK, CHUNK_FIRST, CHUNK_LAST, CHUNK_START, CHUNK_END, CHUNK_WORDS


# Results that follow each other in memory, gathered to be streamed in whole lines.
cdef struct Stage:
    char *buffer
    char *dst
    Py_ssize_t bytes, capacity


cdef void flush(Stage *stage, Py_ssize_t bytes) noexcept nogil:
    # Stream the first bytes of what is staged.
    if bytes == 0:
        return
    stream(stage.buffer, stage.dst, bytes)
    stage.dst += bytes
    stage.bytes -= bytes
    memmove(stage.buffer, stage.buffer + bytes, stage.bytes)


cdef Py_ssize_t whole_lines(const Stage *stage) noexcept nogil:
    # The bytes up to the last end of a line.
    return max(<Py_ssize_t> 0, stage.bytes - (<Py_ssize_t> stage.dst + stage.bytes & 63))


cdef char *staged(Stage *stage, char *dst, Py_ssize_t bytes) noexcept nogil:
    # Where to put the next bytes of the result, which belong to `dst`.
    if dst != stage.dst + stage.bytes:
        flush(stage, stage.bytes)
        stage.dst = dst
    elif stage.bytes + bytes > stage.capacity:
        flush(stage, whole_lines(stage))
    stage.bytes += bytes
    return stage.buffer + stage.bytes - bytes


cdef void run_width_group(const Job *job, const Workspace *space, const Row *rows, int count,
                          const Py_ssize_t *chunk, Stage *stage) noexcept nogil:
    # `count` rows of the result, the columns of one chunk.
    cdef Py_ssize_t pixel = job.pixel, x0 = chunk[CHUNK_FIRST], x1 = chunk[CHUNK_LAST]
    cdef Py_ssize_t y0 = chunk[CHUNK_START], y1 = chunk[CHUNK_END], n = (x1 - x0) * pixel
    cdef const Py_ssize_t *block = job.blocks + 2 * chunk[CHUNK_BLOCK]
    cdef char *src = space.loaded
    cdef char *dst
    cdef bint direct = job.stores_directly, empty = not job.accumulate
    cdef int i
    for i in range(count):
        empty = empty and rows[i].depth_count * rows[i].height_count == 0
        load_positions(job, space, &rows[i], pixel, y0, y1, src)
        src += (y1 - y0) * pixel * job.size
        direct = direct and rows[i].result == rows.result + i * n * job.store_size
    dst = rows.result + x0 * pixel * job.store_size
    if direct and job.streams:
        dst = staged(stage, dst, count * n * job.store_size)
    if direct and empty:
        memset(dst, 0, count * n * job.store_size)
        return
    if direct:
        sum_blocks(job.store_dtype, job.accumulate, <float *> space.loaded, block, job.patterns,
                   pixel, dst, count * n)
        return
    flush(stage, stage.bytes)  # its place is needed
    sum_blocks(F32, False, <float *> space.loaded, block, job.patterns, pixel, space.summed,
               count * n)
    for i in range(count):
        store_positions(job, &rows[i], pixel, x0, x1, space.summed + i * n * job.size)


cdef Py_ssize_t first_touched(const Axis *axis, Py_ssize_t x, Py_ssize_t *start) noexcept nogil:
    # How many indices of diff_dst touch x but nothing before it, from `start` on.
    start[0] = axis.start[x]
    if x > 0:
        start[0] = max(start[0], axis.start[x - 1] + axis.first[x] - axis.first[x - 1])
    return max(<Py_ssize_t> 0, axis.start[x] + axis.first[x + 1] - axis.first[x] - start[0])


cdef Fresh next_fresh(const Job *job, Cursor *at) noexcept nogil:
    # Of the row at the cursor; none past the last row.
    cdef Fresh fresh
    cdef Py_ssize_t d, h
    fresh.grads, fresh.planes, fresh.rows = NULL, 0, 0
    if at.n < job.batch:
        fresh.planes = first_touched(&job.depth, at.d, &d)
        fresh.rows = first_touched(&job.height, at.h, &h)
        fresh.grads = place(&job.grads, at.n, at.c, d, h)
        step_on(job, at)
    return fresh


cdef Py_ssize_t fresh_rows(const Job *job, const Fresh *fresh, Py_ssize_t offset,
                           const char **rows) noexcept nogil:
    # The places to fetch, `offset` bytes along each row, as many as add_rows takes.
    cdef Py_ssize_t count = min(fresh.planes * fresh.rows, <Py_ssize_t> ROWS_AT_ONCE), r
    for r in range(count):
        rows[r] = (fresh.grads + r // fresh.rows * job.grads.strides[2]
                   + r % fresh.rows * job.grads.strides[3] + offset)
    return count


cdef void run_width(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Row rows[ROW_LANES]
    cdef Fresh later[ROW_LANES]
    cdef const Py_ssize_t *chunk = job.chunks + task % job.chunk_count * CHUNK_WORDS
    cdef Py_ssize_t r = task // job.chunk_count * job.task_rows
    cdef Py_ssize_t end = min(r + job.task_rows, count_rows(job))
    cdef Cursor at = cursor_at(job, r), ahead = cursor_at(job, r + job.ahead)
    cdef Stage stage
    cdef int count, i
    # Two blocks of the workspace that follow each other.
    stage.buffer, stage.dst, stage.bytes = space.summed, NULL, 0
    stage.capacity = 2 * (space.rows - space.summed) - 64
    while r < end:
        count = <int> min(job.group, end - r)
        for i in range(count):
            rows[i] = next_row(job, 0, &at)
            if job.ahead:
                later[i] = next_fresh(job, &ahead)
                rows[i].later = &later[i]
        run_width_group(job, &space, rows, count, chunk, &stage)
        r += count
    flush(&stage, stage.bytes)
