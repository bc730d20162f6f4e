# The passes over a block: a few columns of one row of the result for all channels of a channel block,
# or of sixteen rows of the result (the kernel of rows).
#
# Loading it reduces depth and height: each column is the weighted sum of the rows that touch the
# result row. Then the columns of each result column are summed, lanes side by side, and the block is
# stored. Sixteen rows are transposed in cache after loading, so that they are lanes, and back before
# storing.


cdef inline Py_ssize_t all_products(const Job *job, const Row *row, const char *base,
                                    const char **rows, void *weights) noexcept nogil:
    # All rows of diff_dst that touch `row`, from `base` on, and their weights; returns how many.
    cdef Py_ssize_t count = row.depth_count * row.height_count
    row_products(job.f64, base, job.grads.strides[3], row.height_weights, job.grads.strides[2],
                 row.depth_weights, row.depth_count, 0, count, rows, weights)
    return count


cdef void add_products(const Job *job, const Row *row, const char *base, Py_ssize_t stride,
                       Py_ssize_t n, Py_ssize_t r, Py_ssize_t r1, bint add,
                       char *dst) noexcept nogil:
    # dst[0..n) = the weighted sum of the row products r..r1 of `row`, or on from what dst holds.
    # Products count depth fastest: rows of one height follow each other.
    cdef const char *rows[ROWS_AT_ONCE]
    cdef double weights[ROWS_AT_ONCE]
    cdef Py_ssize_t at_once = ROWS_AT_ONCE, count
    if row.height_count > ROWS_OF_A_PLANE:
        at_once = ROWS_OF_A_PLANE
    while r < r1:
        count = min(at_once, r1 - r)
        row_products(job.f64, base, job.grads.strides[3], row.height_weights,
                     job.grads.strides[2], row.depth_weights, row.depth_count, r, count, rows,
                     weights)
        add_rows(job.load_dtype, rows, stride, weights, count, job.ahead, n, dst, add)
        add = True
        r += count


cdef inline void sum_rows(const Job *job, const Row *row, const char *base, Py_ssize_t stride,
                          Py_ssize_t n, Py_ssize_t r0, Py_ssize_t r1, char *dst,
                          char *spare) noexcept nogil:
    # dst[0..n) = the weighted sum of the row products r0..r1 of `row`, from `base` on.
    if r1 - r0 <= MAX_PRODUCTS:
        add_products(job, row, base, stride, n, r0, r1, False, dst)
    else:
        sum_halves(job, row, base, stride, n, r0, r1, dst, spare)


cdef void sum_halves(const Job *job, const Row *row, const char *base, Py_ssize_t stride,
                     Py_ssize_t n, Py_ssize_t r0, Py_ssize_t r1, char *dst,
                     char *spare) noexcept nogil:
    cdef Py_ssize_t middle = r0 + (r1 - r0 + 1) // 2
    sum_rows(job, row, base, stride, n, r0, middle, dst, spare)
    sum_rows(job, row, base, stride, n, middle, r1, spare,
             spare + buffer_bytes(job.lanes * job.columns, job.size))
    add_to(job.f64, spare, n, dst)


cdef void load_positions(const Job *job, const Workspace *space, const Row *row, Py_ssize_t pixel,
                         Py_ssize_t y0, Py_ssize_t y1, char *dst) noexcept nogil:
    # dst[y - y0][c] = `row` reduced over depth and height, y0 <= y < y1 and c < pixel.
    cdef Py_ssize_t products = row.depth_count * row.height_count
    cdef Py_ssize_t step = job.grads.strides[4], stride = job.grads.strides[1], run = pixel, y
    cdef const char *base = row.grads + y0 * step
    if products == 0:
        memset(dst, 0, (y1 - y0) * pixel * job.size)
        return
    if pixel == 1:
        stride = step
    if stride * pixel == step:
        sum_rows(job, row, base, stride, (y1 - y0) * pixel, 0, products, dst, space.row_sums)
        return
    for y in range(y0, y1):
        sum_rows(job, row, base, stride, pixel, 0, products, dst, space.row_sums)
        base += step
        dst += pixel * job.size


cdef void store_positions(const Job *job, const Row *row, Py_ssize_t pixel, Py_ssize_t x0,
                          Py_ssize_t x1, const char *src) noexcept nogil:
    # The result's row at x0 <= x < x1 and c < pixel = src[x - x0][c].
    cdef Py_ssize_t step = job.result.strides[4], stride = job.result.strides[1], x
    cdef char *dst = row.result + x0 * step
    if pixel == 1:
        stride = step
    if stride * pixel == step:
        store_row(job.store_dtype, src, 1, dst, stride, (x1 - x0) * pixel, job.accumulate)
        return
    for x in range(x0, x1):
        store_row(job.store_dtype, src, 1, dst, stride, pixel, job.accumulate)
        src += pixel * job.size
        dst += step


cdef void load_columns(const Job *job, const Workspace *space, const Row *rows, int count,
                       Py_ssize_t lanes, Py_ssize_t y0, Py_ssize_t y1) noexcept nogil:
    # space.loaded[y - y0][lane] = the rows reduced over depth and height, y0 <= y < y1.
    cdef Py_ssize_t pixel = job.pixel, pitch = job.columns * pixel, n = (y1 - y0) * pixel
    cdef char *dst = space.rows
    cdef int i
    if job.kernel == CHANNELS:
        load_positions(job, space, rows, lanes, y0, y1, space.loaded)
        return
    for i in range(ROW_LANES):
        if i < count:
            load_positions(job, space, &rows[i], pixel, y0, y1, dst)
        else:
            memset(dst, 0, n * job.size)
        dst += pitch * job.size
    transpose(job.size, space.rows, pitch, space.loaded, ROW_LANES, NULL, ROW_LANES, n)


cdef void sum_run(const Job *job, const Workspace *space, const Row *rows, int count,
                  Py_ssize_t lanes, Py_ssize_t y0, Py_ssize_t y1, Py_ssize_t weight, char *dst,
                  char *spare) noexcept nogil:
    # dst[lane] = the sum over the columns y0 <= y < y1, whose weights begin at place `weight`.
    cdef Py_ssize_t first[2]
    cdef Py_ssize_t middle
    if y1 - y0 > MAX_RUN:
        middle = y0 + (y1 - y0 + 1) // 2
        sum_run(job, space, rows, count, lanes, y0, middle, weight, dst, spare)
        sum_run(job, space, rows, count, lanes, middle, y1, weight + middle - y0, spare,
                spare + buffer_bytes(job.lanes, job.size))
        add_to(job.f64, spare, lanes, dst)
        return
    load_columns(job, space, rows, count, lanes, y0, y1)
    first[0] = weight
    first[1] = weight + y1 - y0
    add_columns(job.real, False, space.loaded, lanes, &y0, first, job.weights, job.chains, y0, 0, 1,
                dst, lanes * job.size)


cdef Py_ssize_t block_end(const Job *job, Py_ssize_t x0, Py_ssize_t x1) noexcept nogil:
    # The end of the largest block from x0 on that fits the buffers; x0 where its run is too long.
    cdef Py_ssize_t limit = job.width.start[x0] + job.columns, x = x0, run
    x1 = min(x1, x0 + job.columns)
    while x < x1:
        run = run_of(&job.width, x)
        if run > MAX_RUN or job.width.start[x] + run > limit:
            break
        x += 1
    return x


cdef void store_columns(const Job *job, const Workspace *space, const Row *rows, int count,
                        Py_ssize_t lanes, Py_ssize_t x0, Py_ssize_t x1) noexcept nogil:
    # The result's columns x0 <= x < x1 = space.summed[x - x0][lane].
    cdef Py_ssize_t pixel = job.pixel, pitch = job.columns * pixel, n = (x1 - x0) * pixel
    cdef Py_ssize_t places[ROW_LANES]
    cdef char *src = space.rows
    cdef int i
    if job.kernel == CHANNELS:
        store_positions(job, rows, lanes, x0, x1, space.summed)
        return
    if job.stores_directly:
        for i in range(count):
            places[i] = (rows[i].result - rows.result) // job.size
        transpose(job.size, space.summed, ROW_LANES, rows.result + x0 * job.result.strides[4], 0,
                  places, n, count)
        return
    transpose(job.size, space.summed, ROW_LANES, src, pitch, NULL, n, ROW_LANES)
    for i in range(count):
        store_positions(job, &rows[i], pixel, x0, x1, src)
        src += pitch * job.size


cdef void sum_block(const Job *job, const Workspace *space, const Row *rows, int count,
                    Py_ssize_t lanes, Py_ssize_t y0, Py_ssize_t x0, Py_ssize_t x1,
                    Stage *stage) noexcept nogil:
    # The result's columns x0 <= x < x1 from space.loaded, whose first column is y0.
    cdef const Axis *width = &job.width
    cdef Py_ssize_t step = job.result.strides[4], n = (x1 - x0) * lanes * job.store_size
    if job.kernel == CHANNELS and job.streams:
        add_columns(job.store_dtype, False, space.loaded, lanes, width.start, width.first,
                    job.weights, job.chains, y0, x0, x1,
                    staged(stage, rows.result + x0 * step, n), lanes * job.store_size)
    elif job.kernel == CHANNELS and job.stores_directly:
        add_columns(job.store_dtype, job.accumulate, space.loaded, lanes, width.start, width.first,
                    job.weights, job.chains, y0, x0, x1, rows.result + x0 * step, step)
    else:
        add_columns(job.real, False, space.loaded, lanes, width.start, width.first, job.weights,
                    job.chains, y0, x0, x1, space.summed, lanes * job.size)
        store_columns(job, space, rows, count, lanes, x0, x1)


cdef Py_ssize_t columns_end(const Job *job, Py_ssize_t x) noexcept nogil:
    # The end of the columns of diff_dst that column x of the result reads.
    return job.width.start[x] + run_of(&job.width, x)


cdef void resample_rows(const Job *job, const Workspace *space, const Row *rows, int count,
                        Py_ssize_t lanes, Py_ssize_t x0, Py_ssize_t x1,
                        Stage *stage) noexcept nogil:
    # The result's columns x0 <= x < x1 of one row for `lanes` channels, or of `count` rows.
    cdef Py_ssize_t end, y0
    while x0 < x1:
        end = block_end(job, x0, x1)
        y0 = job.width.start[x0]
        if end > x0:
            load_columns(job, space, rows, count, lanes, y0, columns_end(job, end - 1))
            sum_block(job, space, rows, count, lanes, y0, x0, end, stage)
        else:
            if stage != NULL:
                flush(stage, stage.bytes)  # its place is needed
            end = x0 + 1
            sum_run(job, space, rows, count, lanes, y0, columns_end(job, x0),
                    job.width.first[x0], space.summed, space.column_sums)
            store_columns(job, space, rows, count, lanes, x0, end)
        x0 = end


cdef void run_task(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along columns first, then row blocks, then channel blocks.
    cdef Workspace space = carve(job, memory)
    cdef Row rows[ROW_LANES]
    cdef Py_ssize_t all_rows = count_rows(job)
    cdef Py_ssize_t column_blocks = (job.width.extent - 1) // job.task_columns + 1
    cdef Py_ssize_t row_blocks = (all_rows - 1) // job.task_rows + 1
    cdef Py_ssize_t x0 = task % column_blocks * job.task_columns
    cdef Py_ssize_t x1 = min(x0 + job.task_columns, job.width.extent)
    cdef Py_ssize_t r = task // column_blocks % row_blocks * job.task_rows
    cdef Py_ssize_t r1 = min(r + job.task_rows, all_rows)
    cdef Py_ssize_t c0 = task // column_blocks // row_blocks * job.lanes
    cdef Cursor at = cursor_at(job, r)
    cdef int count = 0
    while r < r1:
        rows[count] = next_row(job, c0, &at)
        count += 1
        r += 1
        if count == ROW_LANES or r == r1:
            resample_rows(job, &space, rows, count, job.lanes, x0, x1, NULL)
            count = 0
