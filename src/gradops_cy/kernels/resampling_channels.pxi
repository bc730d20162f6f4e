# The kernel of channels, for NXC. A strip of a row is reduced and summed piece by piece, so that memory
# and arithmetic alternate often enough for prefetchers to bridge.

cdef enum:
    PIECE = 1 << 11  # elements of a row that are reduced and summed at a time
    STAGED = 1 << 9  # of the result from which on they are streamed: more push rows out of a cache
    ROWS_OF_TASK = 8     # of the result, and tasks of a thread, where there are enough of them
    TASKS_OF_THREAD = 4


cdef void sum_columns_until(const Job *job, const Workspace *space, const Row *row,
                            Py_ssize_t lanes, Py_ssize_t y0, Py_ssize_t y, Py_ssize_t *x,
                            Py_ssize_t end, Stage *stage) noexcept nogil:
    # The result's columns from x[0] on that read no column of diff_dst from y on; x moves along.
    cdef Py_ssize_t first = x[0], middle, last, most = max(<Py_ssize_t> 1, PIECE // lanes)
    while first < end:  # the first column that does read some, by bisection
        middle = (first + end) // 2
        if columns_end(job, middle) <= y:
            first = middle + 1
        else:
            end = middle
    while x[0] < end:
        last = min(x[0] + most, end)
        sum_block(job, space, row, 1, lanes, y0, x[0], last, stage)
        x[0] = last


cdef Py_ssize_t twin_rows(const Job *job, Py_ssize_t lanes, Py_ssize_t h,
                          Py_ssize_t h1) noexcept nogil:
    # How many rows of the result from h on are one and the same, as where the height shrinks: one is
    # computed and the others are copies.
    if (job.grads_extents[1] >= job.height.extent or job.accumulate or not job.stores_directly
            or job.result.strides[4] != lanes * job.store_size):
        return 1
    return min(job.alike[h], h1 - h)


cdef void repeat_row(const Job *job, char *row, Py_ssize_t bytes, Py_ssize_t twins) noexcept nogil:
    # Copy a row of the result to those after it.
    cdef Py_ssize_t i
    for i in range(1, twins):
        memcpy(row + i * job.result.strides[3], row, bytes)


cdef void run_strip(const Job *job, Workspace *space, Stage *stage, Py_ssize_t n, Py_ssize_t c0,
                    Py_ssize_t lanes, Py_ssize_t d, Py_ssize_t h0, Py_ssize_t h1, Py_ssize_t x0,
                    Py_ssize_t x1) noexcept nogil:
    # Columns x0 <= x < x1 of some rows of the result, which fit the buffers. Each row of diff_dst
    # is read once for the two rows that it touches: the sum of the second one is begun and carried.
    cdef Py_ssize_t y0 = job.width.start[x0], y1 = columns_end(job, x1 - 1)
    # Of more than are stored, twice as many are loaded at a time: longer streams.
    cdef Py_ssize_t most = 2 * PIECE if x1 - x0 <= y1 - y0 else PIECE
    cdef Py_ssize_t piece = max(<Py_ssize_t> 1, most // lanes), carried = 0, shared, h = h0, x, y, end
    cdef Py_ssize_t place, twins, step = job.result.strides[4]
    cdef Row row, following = result_row(job, n, c0, d, h0)
    cdef Asking asking
    cdef Asking *meanwhile = &asking if asks_rows(job, lanes, y1 - y0) else NULL
    while h < h1:
        row, shared, twins = following, 0, twin_rows(job, lanes, h, h1)
        if h + twins < h1:
            shared = shared_rows(job, h, h + twins, carried)
            following = result_row(job, n, c0, d, h + twins)
        if job.streams and stage.twins != twins - 1:
            flush(stage, stage.bytes)
            stage.twins, stage.step = twins - 1, job.result.strides[3]
        if meanwhile != NULL:
            asking = ask_for_rows(job, n, c0, d, h, h0, h1, (y1 - y0) * lanes // ASKING_LANES + 1)
        x, y = x0, y0
        while x < x1:
            end = min(y + piece, y1)
            place = (y - y0) * lanes * job.size
            load_shared(job, &row, &following, carried, shared, y, (end - y) * lanes,
                        space.loaded + place, space.carried + place, meanwhile)
            y = end
            sum_columns_until(job, space, &row, lanes, y0, y, &x, x1, stage)
        if not job.streams:
            repeat_row(job, row.result + x0 * step, (x1 - x0) * step, twins)
        if shared:
            space.loaded, space.carried = space.carried, space.loaded
        carried = shared
        h += twins
    if stage.twins:
        flush(stage, stage.bytes)
        stage.twins = 0


cdef void run_rows(const Job *job, const Workspace *space, Stage *stage, Py_ssize_t n,
                   Py_ssize_t c0, Py_ssize_t lanes, Py_ssize_t d, Py_ssize_t h0, Py_ssize_t h1,
                   Py_ssize_t x0, Py_ssize_t x1) noexcept nogil:
    # The same row by row: for long products and for columns that lie apart.
    cdef Row row
    cdef Py_ssize_t h
    for h in range(h0, h1):
        row = result_row(job, n, c0, d, h)
        resample_rows(job, space, &row, 1, lanes, x0, x1, stage)


cdef Py_ssize_t blocks_of(Py_ssize_t extent, Py_ssize_t block) noexcept nogil:
    return (extent - 1) // block + 1


cdef Py_ssize_t split_channels(Job *job, int threads) noexcept nogil:
    # Cut the rows of the result into images, depths and rows of a task, as large as leave every
    # thread some: what two tasks touch is read by both. Returns the number of tasks.
    cdef Py_ssize_t depth = job.depth.extent, height = job.height.extent
    cdef Py_ssize_t blocks = (blocks_of(job.width.extent, job.task_columns)
                              * blocks_of(job.channels, job.lanes))
    cdef Py_ssize_t parts = 1, images
    if threads > 1:
        parts = min(max(job.batch * depth * height // ROWS_OF_TASK, <Py_ssize_t> threads),
                    <Py_ssize_t> TASKS_OF_THREAD * threads)
        parts = blocks_of(parts, blocks)
    job.task_images = blocks_of(job.batch, parts)
    images = blocks_of(job.batch, job.task_images)
    parts = blocks_of(parts, images)
    job.task_depths = blocks_of(depth, parts)
    parts = blocks_of(parts, blocks_of(depth, job.task_depths))
    job.task_rows = blocks_of(height, parts)
    return (blocks * images * blocks_of(depth, job.task_depths)
            * blocks_of(height, job.task_rows))


cdef void run_channels(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along columns first, then rows, depths, images and channel blocks.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t column_blocks = blocks_of(job.width.extent, job.task_columns)
    cdef Py_ssize_t row_blocks = blocks_of(job.height.extent, job.task_rows)
    cdef Py_ssize_t depth_blocks = blocks_of(job.depth.extent, job.task_depths)
    cdef Py_ssize_t image_blocks = blocks_of(job.batch, job.task_images)
    cdef Py_ssize_t x0 = task % column_blocks * job.task_columns
    cdef Py_ssize_t x1 = min(x0 + job.task_columns, job.width.extent)
    cdef Py_ssize_t h0 = task // column_blocks % row_blocks * job.task_rows
    cdef Py_ssize_t h1 = min(h0 + job.task_rows, job.height.extent)
    cdef Py_ssize_t block = task // column_blocks // row_blocks
    cdef Py_ssize_t d0 = block % depth_blocks * job.task_depths
    cdef Py_ssize_t d1 = min(d0 + job.task_depths, job.depth.extent)
    cdef Py_ssize_t n0 = block // depth_blocks % image_blocks * job.task_images
    cdef Py_ssize_t n1 = min(n0 + job.task_images, job.batch), n
    cdef Py_ssize_t c0 = block // depth_blocks // image_blocks * job.lanes
    cdef Py_ssize_t lanes = min(job.lanes, job.channels - c0), end, d, h, last
    cdef bint shares = shares_rows(job, lanes)
    cdef Stage stage = begin_stage(space.summed, space.rows - space.summed)
    stage.capacity = min(stage.capacity, STAGED * job.size)
    if job.boxes:
        for n in range(n0, n1):
            for d in range(d0, d1):
                for h in range(h0, h1):
                    run_boxes(job, &stage, n, c0, lanes, d, h, x0, x1)
        x0 = x1
    while x0 < x1:
        end = block_end(job, x0, x1)
        for n in range(n0, n1):
            # Some rows of all depths: planes that touch two of these are still in cache.
            for block in range(blocks_of(h1 - h0, job.rows_in_cache)):
                h = h0 + block * job.rows_in_cache
                last = min(h + job.rows_in_cache, h1)
                for d in range(d0, d1):
                    if job.slides:
                        run_sliding(job, &space, &stage, n, c0, lanes, d, h, last, x0, end)
                    elif shares and end > x0:
                        run_strip(job, &space, &stage, n, c0, lanes, d, h, last, x0, end)
                    else:
                        run_rows(job, &space, &stage, n, c0, lanes, d, h, last, x0,
                                 max(end, x0 + 1))
        x0 = max(end, x0 + 1)
    flush(&stage, stage.bytes)
