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


# Results that follow each other in memory, gathered to be streamed in whole lines, and as often again
# to rows `step` bytes further on, which are the same.
cdef struct Stage:
    char *buffer
    char *dst
    Py_ssize_t bytes, capacity, twins, step


cdef Stage begin_stage(const Workspace *space) noexcept nogil:
    # In the place of the summed columns, which rows that are staged do not need.
    cdef Stage stage
    stage.buffer, stage.dst, stage.bytes = space.summed, NULL, 0
    stage.capacity = space.rows - space.summed - 64
    stage.twins = stage.step = 0
    return stage


cdef void flush(Stage *stage, Py_ssize_t bytes) noexcept nogil:
    # Stream the first bytes of what is staged.
    cdef Py_ssize_t i
    if bytes == 0:
        return
    for i in range(stage.twins + 1):
        stream(stage.buffer, stage.dst + i * stage.step, bytes)
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


cdef void touch_rows(const Job *job, const Row *row, Py_ssize_t y0, Py_ssize_t n,
                     Py_ssize_t carried) noexcept nogil:
    # The first n elements from column y0 on of each row of diff_dst that `row` is yet to read.
    cdef const char *base = row.grads + y0 * job.grads.strides[4]
    cdef Py_ssize_t d, h
    for d in range(row.depth_count):
        for h in range(carried, row.height_count):
            touch(base + d * job.grads.strides[2] + h * job.grads.strides[3], n * job.load_size)


cdef Py_ssize_t load_group(const Job *job, Workspace *space, Row *rows, Row *following,
                           Cursor *at, int count, Py_ssize_t left, const Py_ssize_t *chunk,
                           bint shares, Py_ssize_t carried) noexcept nogil:
    # `count` rows of the result from the cursor on, side by side, reduced over depth and height in
    # the columns of a chunk; `following` is the first of them and then the row after them, if any
    # are `left`. The first one goes on from what is `carried`, as many rows of diff_dst as are
    # returned for the row after them.
    cdef Py_ssize_t y0 = chunk[CHUNK_START], n = (chunk[CHUNK_END] - y0) * job.pixel, shared
    cdef char *loaded = space.loaded
    cdef int i
    for i in range(count):
        rows[i], shared, left = following[0], 0, left - 1
        if shares and left > 0:
            shared = shared_rows(job, at.h, at.h + 1, carried)
        step_on(job, at)
        if left > 0:
            following[0] = result_row(job, at.n, at.c, at.d, at.h)
        if shares:
            if job.touches:
                touch_rows(job, &rows[i], y0, n, carried)
            load_shared(job, &rows[i], following, carried, shared, y0, n, loaded, space.carried,
                        NULL)
        else:
            load_positions(job, space, &rows[i], job.pixel, y0, chunk[CHUNK_END], loaded)
        carried = shared
        loaded += n * job.size
        # A row is summed in whole vectors, which may reach into the one beside it.
        if carried and i + 1 < count:
            memcpy(loaded, space.carried, n * job.size)
    return carried


cdef void sum_side_by_side(const Job *job, const Workspace *space, const Row *rows, int count,
                           const Py_ssize_t *chunk, Stage *stage) noexcept nogil:
    # The width pass of `count` rows of the result side by side, the columns of one chunk.
    cdef Py_ssize_t pixel = job.pixel, x0 = chunk[CHUNK_FIRST], x1 = chunk[CHUNK_LAST]
    cdef Py_ssize_t n = (x1 - x0) * pixel
    cdef const Py_ssize_t *block = job.blocks + 2 * chunk[CHUNK_BLOCK]
    cdef char *dst
    cdef bint direct = job.stores_directly, empty = not job.accumulate
    cdef int i
    for i in range(count):
        empty = empty and rows[i].depth_count * rows[i].height_count == 0
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


cdef void run_width(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Row rows[ROW_LANES]
    cdef const Py_ssize_t *chunk = job.chunks + task % job.chunk_count * CHUNK_WORDS
    cdef Py_ssize_t r = task // job.chunk_count * job.task_rows, carried = 0
    cdef Py_ssize_t left = min(job.task_rows, count_rows(job) - r)
    cdef Cursor at = cursor_at(job, r)
    cdef Row following = result_row(job, at.n, at.c, at.d, at.h)
    cdef bint shares = shares_rows(job, job.pixel)
    cdef Stage stage = begin_stage(&space)
    cdef int count
    while left > 0:
        count = <int> min(job.group, left)
        carried = load_group(job, &space, rows, &following, &at, count, left, chunk, shares,
                             carried)
        sum_side_by_side(job, &space, rows, count, chunk, &stage)
        left -= count
        # The row that was begun is the next group's first.
        if carried and job.group == 1:
            space.loaded, space.carried = space.carried, space.loaded
        elif carried:
            memcpy(space.loaded, space.carried,
                   (chunk[CHUNK_END] - chunk[CHUNK_START]) * job.pixel * job.size)
    flush(&stage, stage.bytes)
