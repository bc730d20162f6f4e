# The kernel of rows whose width pass has its lanes along the row: NCX, and NXC of few channels.
#
# A batch is some rows of the result, one after the other; whole planes, where these are small. Depth
# and height are reduced into a buffer, for rows that are alike at once. Then positions are summed from
# it by permutation, those of one pattern of all rows at once, some rows side by side where they are
# short; and converted, unless they are stored where they belong.

cdef extern from "resampling.h" nogil:
    cpdef enum:
        WIDTH_LANES  # positions of a block; 0 where the tier cannot permute
        WIDTH_REACH  # the elements that the places of a block may lie in

cdef extern from "resampling_reduce.h" nogil:
    enum:
        REDUCED_ROWS, REDUCED_AT_ONCE
    void reduce_rows(int dtype, bint whole, const char *const *row, const float *weight,
                     Py_ssize_t rows, Py_ssize_t n, Py_ssize_t count, Py_ssize_t row_step,
                     Asking *meanwhile, float *dst, Py_ssize_t dst_step) noexcept

cdef extern from "resampling_reduce_shared.h" nogil:
    ctypedef struct SharedRows:
        const char *src
        Py_ssize_t step, depth_step, plane_step
        Py_ssize_t depths, planes, h0, h1, n
        const float *depth_weight
        const float *weight
        const Py_ssize_t *start
        const Py_ssize_t *first
        float *dst
        Py_ssize_t dst_step, dst_plane
        float *carry
        bint carried, carries
        bint by_rows
        Asking *meanwhile
    void reduce_shared(int dtype, bint whole, const SharedRows *rows) noexcept

cdef extern from "resampling_windows.h" nogil:
    ctypedef struct WidthRows:
        const float *src
        float *dst
        Py_ssize_t units, src_step, dst_step, n, step
        const Py_ssize_t *blocks
        const int *patterns
        Asking *meanwhile
    void sum_width(const WidthRows *rows) noexcept

cdef enum:
    # Bytes of diff_dst for each row of the result, from memory, from which on rows that share some
    # of them are reduced one after the other.
    READ_BY_ROWS = 1 << 14

cpdef enum:
    # A chunk of a row: its blocks, its positions, and the columns of diff_dst that it reads.
    CHUNK_BLOCK, CHUNK_FIRST, CHUNK_LAST, CHUNK_START, CHUNK_END, CHUNK_WORDS


# Results that follow each other in memory, gathered to be streamed in whole lines, and as often again
# to rows `step` bytes further on, which are the same.
cdef struct Stage:
    char *buffer
    char *dst
    Py_ssize_t bytes, capacity, twins, step


cdef Stage begin_stage(char *buffer, Py_ssize_t bytes) noexcept nogil:
    cdef Stage stage
    stage.buffer, stage.dst, stage.bytes = buffer, NULL, 0
    stage.capacity = bytes - 64
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


# What the columns of a chunk are to the rows of a task.
cdef struct Width:
    Py_ssize_t x0, x1, y0, y1
    Py_ssize_t n, columns     # elements of a row of the result, and of diff_dst
    Py_ssize_t plane          # rows of one
    Py_ssize_t most           # rows of a batch
    Py_ssize_t grads_plane    # bytes from one plane of diff_dst to the next
    bint reduces              # rows alike are reduced at once
    bint shares               # ... where each of diff_dst is loaded once, for two rows
    bint joined               # the result's rows follow each other in memory
    const Py_ssize_t *blocks


cdef bint rows_follow(const Job *job, Py_ssize_t bytes) noexcept nogil:
    # Whether rows of so many bytes of the result, those of all planes and images, follow each other.
    cdef Py_ssize_t[4] extents
    cdef int axis
    extents[0], extents[1] = job.batch, channels_in_rows(job)
    extents[2], extents[3] = job.depth.extent, job.height.extent
    for axis in range(3, -1, -1):
        if extents[axis] > 1 and job.result.strides[axis] != bytes:
            return False
        bytes *= extents[axis]
    return True


cdef Width width_of(const Job *job, Py_ssize_t chunk) noexcept nogil:
    cdef Width width
    cdef const Py_ssize_t *words = job.chunks + chunk * CHUNK_WORDS
    cdef int axis = 0 if job.pixel > 1 or job.channels == 1 else 1
    cdef Py_ssize_t capacity = job.lanes * job.columns - WIDTH_REACH
    width.x0, width.x1 = words[CHUNK_FIRST], words[CHUNK_LAST]
    width.y0, width.y1 = words[CHUNK_START], words[CHUNK_END]
    width.blocks = job.blocks + 2 * words[CHUNK_BLOCK]
    width.n, width.columns = (width.x1 - width.x0) * job.pixel, (width.y1 - width.y0) * job.pixel
    width.plane = job.depth.extent * job.height.extent
    width.grads_plane = job.grads.strides[axis]
    width.reduces = (shares_rows(job, job.pixel)
                     and (job.shares or job.longest_product <= REDUCED_ROWS))
    width.shares = job.shares and width.reduces
    width.joined = rows_follow(job, width.n * job.store_size)
    width.most = max(<Py_ssize_t> 1, capacity // max(width.n, width.columns))
    if width.most >= 2 * width.plane and width.reduces:
        width.most -= width.most % width.plane
        return width
    # Fewer rows, which take longer each, leave more of the first-level cache to what they read.
    width.most = max(width.most // 2, min(width.most, job.long_rows))
    if width.most > job.group:
        width.most -= width.most % job.group
    return width


cdef Asking ask_for_batch(const Job *job, const Width *width, const Cursor *at, Py_ssize_t rows,
                          Py_ssize_t planes) noexcept nogil:
    # What a later batch of as many rows is the first to read, while this one is reduced and summed.
    cdef Py_ssize_t step = job.grads.strides[3], bytes = width.columns * job.load_size, d, h
    cdef Py_ssize_t height = job.height.extent, last = at.h + rows - 1
    cdef Py_ssize_t deep = job.grads_extents[1] * step
    cdef Py_ssize_t first = first_new(&job.height, at.h, 0), end, fresh, ahead
    cdef Py_ssize_t times = (blocks_of(width.columns, REDUCED_AT_ONCE) * rows
                             + blocks_of(rows * width.n, WIDTH_LANES))
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef const char *base = row.grads + width.y0 * job.grads.strides[4]
    cdef Asking asking = no_asking(job)
    if bytes == 0:
        return asking  # no position of a chunk reads anything
    if planes > 0:
        # Rows that are planes may be cut in chunks.
        asking.bytes = planes * (width.grads_plane if width.plane > 1 else bytes)
        asking.run[0], asking.runs = base + max(planes * width.grads_plane, job.ahead), 1
    elif rows >= height and job.depth.extent > 1 and bytes == step and job.grads.strides[2] == deep:
        # Slices of a volume, which follow each other: always as far on.
        asking.bytes = rows * deep * job.grads_extents[0] // (job.depth.extent * height)
        base -= job.height.start[at.h] * step
        asking.run[0] = base + max(asking.bytes * (width.most + at.h) // rows, job.ahead)
        asking.run[0] += first_new(&job.depth, at.d, 0) * deep
        asking.runs = 1
    else:
        # Rows of a plane, and of those beside it.
        end = last // height * job.grads_extents[1] + job.height.start[last % height]
        fresh = max(<Py_ssize_t> 0, end + run_of(&job.height, last % height) - first
                    - job.height.start[at.h])
        ahead = blocks_of((width.most + 1) * job.grads_extents[1], height)
        base += (first + max(ahead, blocks_of(job.ahead, bytes))) * step
        if bytes == step:
            bytes, fresh = bytes * fresh, min(<Py_ssize_t> 1, fresh)
        asking.bytes = bytes
        for d in range(first_new(&job.depth, at.d, 0), row.depth_count):
            for h in range(fresh):
                if asking.runs < ASKED_RUNS:
                    asking.run[asking.runs] = base + d * job.grads.strides[2] + h * step
                    asking.runs += 1
    share_runs(&asking, times)
    return asking


cdef void reduce_alike(const Job *job, const Width *width, const Row *row, Py_ssize_t count,
                       Py_ssize_t step, Asking *asking, char *dst,
                       Py_ssize_t dst_step) noexcept nogil:
    # `count` rows of the result from `row` on, whose rows of diff_dst have the same weights and lie
    # `step` bytes further on, to dst_step bytes further on.
    cdef const char *rows[REDUCED_ROWS]
    cdef float[REDUCED_ROWS] weights
    cdef const char *base = row.grads + width.y0 * job.grads.strides[4]
    cdef const char *end
    cdef Py_ssize_t products = all_products(job, row, base, rows, weights)
    cdef bint whole = min(job.grads.strides[2], min(job.grads.strides[3], step)) >= 0
    if products > 0:
        end = rows[products - 1] + (count - 1) * step + (width.columns + ROW_LANES) * job.load_size
        whole = whole and end <= job.grads_end
    reduce_rows(job.load_dtype, whole, rows, weights, products, width.columns, count, step,
                asking, <float *> dst, dst_step // job.size)


cdef void reduce_planes(const Job *job, const Workspace *space, const Width *width,
                        const Cursor *at, Py_ssize_t rows, Py_ssize_t planes, bint carried,
                        Asking *asking, char *dst) noexcept nogil:
    # So many rows of a plane from that of the cursor on, which share rows of diff_dst, and the same
    # rows of some planes. What the row before them has begun may be carried.
    cdef Py_ssize_t last = at.h + rows - 1
    cdef SharedRows shared
    cdef const char *end
    cdef bint whole
    shared.src = (place(&job.grads, at.n, at.c, job.depth.start[at.d], 0)
                  + width.y0 * job.grads.strides[4])
    shared.step, shared.depth_step = job.grads.strides[3], job.grads.strides[2]
    shared.plane_step, shared.planes = width.grads_plane, planes
    shared.depths = run_of(&job.depth, at.d)
    shared.depth_weight = <const float *> job.weights + job.depth.first[at.d]
    shared.weight = <const float *> job.weights
    shared.start, shared.first = job.height.start, job.height.first
    shared.h0, shared.h1, shared.n = at.h, at.h + rows, width.columns
    shared.dst, shared.meanwhile = <float *> dst, asking
    shared.dst_step, shared.dst_plane = width.columns, width.plane * width.columns
    shared.by_rows = (asking != NULL and width.columns * job.load_size * job.grads_extents[1]
                      >= READ_BY_ROWS * job.height.extent)
    end = (shared.src + (job.height.start[last] + run_of(&job.height, last) - 1) * shared.step
           + (shared.depths - 1) * shared.depth_step + (planes - 1) * shared.plane_step
           + (width.columns + 2 * ROW_LANES) * job.load_size)
    whole = (min(shared.step, min(shared.depth_step, shared.plane_step)) >= 0
             and end <= job.grads_end)
    # Vectors that are read in pairs are carried as they are read, which others are not.
    shared.carry, shared.carried = <float *> space.carried, carried and whole
    shared.carries = whole and at.h + rows < job.height.extent
    reduce_shared(job.load_dtype, whole, &shared)


cdef void reduce_rows_alike(const Job *job, const Width *width, const Cursor *at, Py_ssize_t rows,
                            Asking *asking, char *dst) noexcept nogil:
    # So many rows of a plane from that of the cursor on, those alike by turns.
    cdef Py_ssize_t pitch = width.columns * job.size, period = job.period, run, first, i
    cdef Row row
    for first in range(min(rows, period)):
        i = first
        while i < rows:
            row = result_row(job, at.n, at.c, at.d, at.h + i)
            run = min(job.alike[at.h + i], (rows - i + period - 1) // period)
            reduce_alike(job, width, &row, run, job.apart * job.grads.strides[3], asking,
                         dst + i * pitch, period * pitch)
            i += run * period


cdef void load_rows(const Job *job, const Workspace *space, const Width *width, Cursor at,
                    Py_ssize_t rows, bint carried, Asking *asking) noexcept nogil:
    # Rows from that of the cursor on. What the last one before them has begun may be carried.
    cdef Py_ssize_t pitch = width.columns * job.size, part, i
    cdef char *loaded = space.loaded
    cdef Row row
    if not width.reduces:
        for i in range(rows):
            row = next_row(job, 0, &at)
            load_positions(job, space, &row, job.pixel, width.y0, width.y1, loaded + i * pitch)
        return
    while rows > 0:
        part = min(rows, job.height.extent - at.h)
        if width.shares:
            reduce_planes(job, space, width, &at, part, 1, carried and at.h > 0, asking, loaded)
        else:
            reduce_rows_alike(job, width, &at, part, asking, loaded)
        loaded += part * pitch
        rows -= part
        step_by(job, &at, part)


cdef void load_planes(const Job *job, const Workspace *space, const Width *width, Cursor at,
                      Py_ssize_t planes, Asking *asking) noexcept nogil:
    # Whole planes from that of the cursor on, the same rows of all of them.
    cdef Py_ssize_t pitch = width.columns * job.size, i
    cdef Row row
    if width.shares:
        for at.d in range(job.depth.extent):
            reduce_planes(job, space, width, &at, job.height.extent, planes, False, asking,
                          space.loaded + at.d * job.height.extent * pitch)
        return
    for i in range(width.plane):
        row = result_row(job, at.n, at.c, i // job.height.extent, i % job.height.extent)
        reduce_alike(job, width, &row, planes, width.grads_plane, asking, space.loaded + i * pitch,
                     width.plane * pitch)


cdef void sum_batch(const Job *job, const Workspace *space, const Width *width, Cursor at,
                    Py_ssize_t rows, Asking *asking, Stage *stage) noexcept nogil:
    # The width pass of the rows that are loaded.
    cdef Py_ssize_t elements = rows * width.n, left = rows % job.group, i
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef char *dst = row.result + width.x0 * job.result.strides[4]
    cdef bint direct = job.stores_directly and (width.joined or rows == 1)
    cdef bint in_place = direct and job.store_dtype == F32 and not job.accumulate
    cdef WidthRows sums
    if direct and job.streams:
        dst = staged(stage, dst, elements * job.store_size)
    sums.src, sums.dst = <const float *> space.loaded, <float *> (dst if in_place else space.summed)
    sums.units, sums.src_step, sums.dst_step = (rows // job.group, job.group * width.columns,
                                                job.group * width.n)
    sums.n, sums.step = job.group * width.n, job.pixel
    sums.blocks, sums.patterns, sums.meanwhile = width.blocks, job.patterns, asking
    if sums.units > 0:
        sum_width(&sums)
    if left > 0:
        sums.src += sums.units * sums.src_step
        sums.dst += sums.units * sums.dst_step
        sums.units, sums.n = 1, left * width.n
        sum_width(&sums)
    if in_place:
        return
    if direct:
        store_row(job.store_dtype, space.summed, 1, dst, job.store_size, elements, job.accumulate)
        return
    for i in range(rows):
        store_positions(job, &row, job.pixel, width.x0, width.x1,
                        space.summed + i * width.n * job.size)
        step_on(job, &at)
        row = result_row(job, at.n, at.c, at.d, at.h)


cdef void run_width(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Width width = width_of(job, task % job.chunk_count)
    cdef Py_ssize_t r = task // job.chunk_count * job.task_rows, rows, planes
    cdef Py_ssize_t left = min(job.task_rows, count_rows(job) - r)
    cdef Cursor at = cursor_at(job, r)
    # Those that are one call, of most rows: of rows that share what they read each plane is one.
    cdef Py_ssize_t alike = (1 if job.shares
                             else job.alike[min(job.period, job.height.extent - 1)])
    cdef Stage stage = begin_stage(space.planes, job.stage_bytes)
    cdef Asking asking
    cdef Asking *meanwhile = NULL
    cdef bint carried = False
    while left > 0:
        rows, planes = min(left, width.most), 0
        if width.reduces and at.d == at.h == 0 and rows >= width.plane:
            planes = rows // width.plane
            if job.pixel == 1 and job.channels > 1:
                planes = min(planes, job.channels - at.c)
            rows = planes * width.plane
        if job.ahead:
            asking, meanwhile = ask_for_batch(job, &width, &at, rows, planes), &asking
        if planes > alike:
            load_planes(job, &space, &width, at, planes, meanwhile)
        else:
            load_rows(job, &space, &width, at, rows, carried, meanwhile)
        sum_batch(job, &space, &width, at, rows, meanwhile, &stage)
        flush(&stage, whole_lines(&stage))
        left -= rows
        carried = True
        step_by(job, &at, rows)
    flush(&stage, stage.bytes)
