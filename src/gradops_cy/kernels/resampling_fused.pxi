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
        Py_ssize_t count, row_step, dst_step, shift
        char *dst
        Py_ssize_t joined
        Asking *meanwhile
        int in_order, near, streams

cdef extern from "resampling_phases.h" nogil:
    cpdef enum:
        PHASE_LANES  # positions of a vector
        PHASE_PARTS  # whether rows may end within one
        PHASE_F16    # whether float16 gains
    void sum_phases(int dtype, int scale, int taps, const FusedRows *job, Py_ssize_t x0,
                    Py_ssize_t x1) noexcept
    void spread_phases(int dtype, int spread, const FusedRows *job, Py_ssize_t columns) noexcept

cdef extern from "resampling_windows.h" nogil:
    cpdef enum:
        WINDOW_VECTORS           # of a window at most; 0 where the tier has none
        WINDOW_VECTORS_OF_PARTS  # where a block has two
    enum:
        WINDOW_REACH  # elements of the longest window
    void sum_windows(int dtype, int vectors, int parts, const FusedRows *job, Py_ssize_t jobs,
                     bint together, const Py_ssize_t *blocks, const int *patterns, Py_ssize_t step,
                     Py_ssize_t n) noexcept

cdef enum:
    GROUP_JOBS = 16
    GROUP_BYTES = 1 << 15  # of rows of diff_dst that a group of windows is the first to read
    RUN_BLOCKS = 4         # blocks alike, of a row, that have no need of other rows


# Rows of the result that are summed together, `most` at once, so that windows take what their blocks
# have in common once; and what is asked for meanwhile.
cdef struct Group:
    FusedRows[GROUP_JOBS] jobs
    Py_ssize_t count, held, most  # jobs, and their rows
    Py_ssize_t ahead  # bytes
    bint asks_at_once  # for all of a group, in the order of memory
    Asking asking
    const char *asked[ASKED_RUNS]
    const char *rows[GROUP_JOBS][FUSED_ROWS]
    float weights[GROUP_JOBS][FUSED_ROWS]


# Positions of a row of the result, and the columns of diff_dst that they read.
cdef struct Span:
    Py_ssize_t x0, x1, y0, y1
    const Py_ssize_t *blocks  # those of windows


cdef Py_ssize_t rows_apart(const Job *job) noexcept nogil:
    # Rows of diff_dst between those of neighbouring rows of the result; none where these are more.
    return job.grads_extents[1] // job.height.extent


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


cdef void ask_rows(const Job *job, const Row *row, const Cursor *at, const Span *span, Group *group,
                   FusedRows *fused) noexcept nogil:
    # The rows of diff_dst that `row` is the first to read, further on. From memory those that follow
    # each other come in their order: side by side they came half as fast.
    cdef Py_ssize_t d, h, step = job.grads.strides[3], pixel = job.grads.strides[4], count = 0
    cdef Py_ssize_t first = first_new(&job.height, at.h, 0), rows = row.height_count - first
    cdef bint joins = job.in_order and (span.y1 - span.y0) * pixel == step
    for d in range(first_new(&job.depth, at.d, 0), row.depth_count):
        for h in range(min(<Py_ssize_t> 1, rows) if joins else rows):
            if count < ASKED_RUNS:
                group.asked[count] = (row.grads + d * job.grads.strides[2] + (first + h) * step
                                      + span.y0 * pixel + group.ahead)
                count += 1
    fused.asked, fused.asked_rows, fused.joined = group.asked, count, rows if joins else 1


cdef void ask_for_group(const Job *job, const Row *row, const Cursor *at, const Span *span,
                        Py_ssize_t count, Group *group) noexcept nogil:
    # The same of several rows of the result, plane by plane; or row by row, where these are cut.
    cdef Asking *asking = &group.asking
    cdef Py_ssize_t step = job.grads.strides[3], bytes = (span.y1 - span.y0) * job.grads.strides[4]
    cdef Py_ssize_t first = first_new(&job.height, at.h, 0), planes = first_new(&job.depth, at.d, 0)
    cdef Py_ssize_t rows = row.height_count - first + (count - 1) * rows_apart(job), d, h
    cdef const char *base = (row.grads + span.y0 * job.grads.strides[4] + first * step + group.ahead)
    if bytes == step:
        if asking.runs == 0:
            for d in range(planes, min(row.depth_count, planes + ASKED_RUNS)):
                asking.run[asking.runs] = base + d * job.grads.strides[2]
                asking.runs += 1
        asking.bytes += rows * step
        return
    asking.bytes = bytes
    for d in range(planes, row.depth_count):
        for h in range(rows):
            if asking.runs < ASKED_RUNS:
                asking.run[asking.runs] = base + d * job.grads.strides[2] + h * step
                asking.runs += 1


cdef void sum_fused(const Job *job, int dtype, const FusedRows *fused, Py_ssize_t count,
                    bint together, const Span *span) noexcept nogil:
    cdef Py_ssize_t positions = span.x1 - span.x0, i
    if job.kernel == WINDOWS:
        sum_windows(dtype, job.window_vectors, job.chains, fused, count, together, span.blocks,
                    job.patterns, job.pixel, positions * job.pixel)
        return
    for i in range(count):
        if job.spread > 1:
            spread_phases(dtype, job.spread, fused + i, positions // job.spread)
        else:
            sum_phases(dtype, job.scale, job.taps, fused + i, span.x0, span.x1)


cdef Py_ssize_t rows_of_group(const Job *job, const Span *span) noexcept nogil:
    # The rows of the result that windows sum at once: as many as the first-level cache holds, but
    # one where most blocks of a row have their neighbour's pattern.
    cdef Py_ssize_t blocks = blocks_of((span.x1 - span.x0) * job.pixel, WIDTH_LANES), runs = 1, b
    cdef Py_ssize_t bytes = max(<Py_ssize_t> 1, (span.y1 - span.y0) * job.pixel * job.load_size)
    for b in range(1, blocks):
        runs += span.blocks[2 * b + 1] != span.blocks[2 * b - 1]
    if blocks > RUN_BLOCKS * runs:
        return 1
    return max(<Py_ssize_t> 1, GROUP_BYTES // (bytes * max(<Py_ssize_t> 1, rows_apart(job))))


cdef void sum_group(const Job *job, const Span *span, Group *group) noexcept nogil:
    if group.asks_at_once:
        share_runs(&group.asking, group.held * blocks_of((span.x1 - span.x0) * job.pixel, WIDTH_LANES))
    if group.count > 0:
        sum_fused(job, job.load_dtype, group.jobs, group.count, group.most > 1, span)
    group.count = group.held = 0
    if group.asks_at_once:
        group.asking = no_asking()


cdef void sum_buffered(const Job *job, const Workspace *space, const Span *span, Row row,
                       const FusedRows *alike) noexcept nogil:
    # Rows of the result that need buffers, one after the other.
    cdef const char *loaded = space.loaded
    cdef float one = 1
    cdef FusedRows fused = alike[0]
    cdef Py_ssize_t i
    fused.row, fused.weight, fused.rows, fused.dst = &loaded, &one, 1, space.summed
    fused.count, fused.streams = 1, False
    fused.extent = job.width.extent
    if job.kernel == WINDOWS:
        fused.extent = (span.y1 - span.y0) * job.pixel + WINDOW_REACH  # not past the slack
    for i in range(alike.count):
        load_positions(job, space, &row, job.pixel, span.y0, span.y1, space.loaded)
        sum_fused(job, F32, &fused, 1, False, span)
        store_positions(job, &row, job.pixel, span.x0, span.x1, space.summed)
        row.grads += alike.row_step
        row.result += alike.dst_step


cdef char *place_rows(const Job *job, const Span *span, char *dst, Py_ssize_t bytes, Stage *stage,
                      Group *group) noexcept nogil:
    # Where to put rows that are not whole lines. What the stage has to give away is summed first.
    if bytes > stage.capacity:
        return dst
    if dst != stage.dst + stage.bytes or stage.bytes + bytes > stage.capacity:
        sum_group(job, span, group)
    return staged(stage, dst, bytes)


cdef Py_ssize_t readable_of(const Job *job, const Span *span, const FusedRows *fused) noexcept nogil:
    # The elements that windows may load: beyond a row too, but not beyond diff_dst. What is no part
    # of a row meets no weight; to leave it out takes longer.
    cdef Py_ssize_t extent = (job.grads_extents[2] - span.y0) * job.pixel
    cdef const char *end
    if fused.rows == 0 or min(job.grads.strides[2], min(job.grads.strides[3], fused.row_step)) < 0:
        return extent
    end = fused.row[fused.rows - 1] + (fused.count - 1) * fused.row_step
    end += (extent + WINDOW_REACH) * job.load_size
    return extent + WINDOW_REACH if end <= job.grads_end else extent


cdef void add_rows_to(Group *group, const Job *job, const Workspace *space, const Span *span,
                      const Cursor *at, const FusedRows *alike, Stage *stage) noexcept nogil:
    # As many rows of the result as are `alike`, from the cursor on; past the caches by a stage, if
    # there is one. Those that need buffers are summed at once.
    cdef Row row = result_row(job, at.n, at.c, at.d, at.h)
    cdef Py_ssize_t bytes = (span.x1 - span.x0) * job.result.strides[4], count = alike.count, i
    cdef Py_ssize_t products = row.depth_count * row.height_count
    cdef char *dst = row.result + span.x0 * job.result.strides[4]
    cdef bint streams = job.streams and (<Py_ssize_t> dst | alike.dst_step) % 64 == 0
    cdef bint contiguous = alike.dst_step == bytes
    cdef FusedRows *fused
    if not job.direct or products > FUSED_ROWS:
        if stage != NULL:
            sum_group(job, span, group)
            flush(stage, stage.bytes)  # its place is needed
        sum_buffered(job, space, span, row, alike)
        return
    if job.streams and not streams and contiguous and stage != NULL:
        dst = place_rows(job, span, dst, count * bytes, stage, group)
    if products == 0 and not streams:
        if contiguous:
            bytes, count = bytes * count, 1
        for i in range(count):
            memset(dst + i * alike.dst_step, 0, bytes)
        return
    fused = &group.jobs[group.count]
    fused[0] = alike[0]
    fused.dst, fused.streams, fused.rows = dst, streams, products
    fused.shift = alike.shift * row.depth_count
    fused.row, fused.weight = group.rows[group.count], group.weights[group.count]
    all_products(job, &row, row.grads + span.y0 * job.grads.strides[4], group.rows[group.count],
                 group.weights[group.count])
    fused.extent = job.width.extent
    if job.kernel == WINDOWS:
        fused.extent = readable_of(job, span, fused)
    if group.asks_at_once:
        ask_for_group(job, &row, at, span, count, group)
        fused.meanwhile = &group.asking
    elif group.ahead:
        ask_rows(job, &row, at, span, group, fused)
    group.count += 1
    group.held += count


cdef FusedRows rows_alike(const Job *job, const Span *span, Py_ssize_t row_step,
                          Py_ssize_t dst_step) noexcept nogil:
    # What rows of the result have in common.
    cdef FusedRows alike
    memset(&alike, 0, sizeof(FusedRows))
    alike.row_step, alike.dst_step = row_step, dst_step
    alike.taps, alike.advance = job.phases, job.advance
    alike.origin = span.y0 // job.scale
    alike.in_order, alike.near = job.in_order, job.ahead & NEAR
    return alike


cdef void run_fused(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Tasks run along the chunks of a row first, then row blocks.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t chunks = job.chunk_count
    cdef Span span = span_of(job, task % chunks)
    cdef Py_ssize_t r = task // chunks * job.task_rows
    cdef Py_ssize_t r1 = min(r + job.task_rows, count_rows(job)), most = r1 - r
    cdef Cursor at = cursor_at(job, r)
    cdef Stage stage = begin_stage(&space)
    cdef FusedRows alike = rows_alike(job, &span, rows_apart(job) * job.grads.strides[3],
                                      job.result.strides[3])
    cdef Group group
    cdef bint together
    alike.shift = rows_apart(job)  # of one plane
    group.count = group.held = group.ahead = 0
    group.most = rows_of_group(job, &span) if job.kernel == WINDOWS else 1
    together = group.most > 1
    group.asks_at_once, group.asking = together and job.ahead > 0, no_asking()
    if job.ahead and not job.shares:
        group.ahead = max(job.ahead // 2, group.most) * job.grads_extents[1] // job.height.extent
        group.ahead = max(<Py_ssize_t> 1, group.ahead) * job.grads.strides[3]
    if together:
        most = group.most
        if job.streams:
            most = min(most, max(<Py_ssize_t> 1, stage.capacity // max(<Py_ssize_t> 1, alike.dst_step)))
    while r < r1:
        alike.count = min(job.alike[at.h], min(r1 - r, most))
        if group.held + alike.count > group.most:
            sum_group(job, &span, &group)
        add_rows_to(&group, job, &space, &span, &at, &alike, &stage if together else NULL)
        r += alike.count
        at.h += alike.count - 1
        step_on(job, &at)
        if not together or group.count == GROUP_JOBS:
            sum_group(job, &span, &group)
    sum_group(job, &span, &group)
    flush(&stage, stage.bytes)


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
    fused.dst = space.summed
    chunk[CHUNK_START], chunk[CHUNK_END] = span.y0, span.y1
    while left > 0:
        carried = load_group(job, &space, &row, &following, &at, 1, left, chunk, True, carried)
        left -= 1
        loaded = space.loaded
        sum_fused(job, F32, &fused, 1, False, &span)
        store_positions(job, &row, 1, span.x0, span.x1, space.summed)
        if carried:
            space.loaded, space.carried = space.carried, space.loaded


cdef void run_fused_planes(const Job *job, Py_ssize_t task, char *memory) noexcept nogil:
    # Small planes: the same row of all of a task, row by row. Tasks run along the channels first.
    cdef Workspace space = carve(job, memory)
    cdef Py_ssize_t blocks = blocks_of(job.channels, job.planes_at_once), d, h
    cdef Span span = span_of(job, 0)
    cdef FusedRows alike = rows_alike(job, &span, job.grads.strides[1], job.result.strides[1])
    cdef Cursor at
    cdef Group group
    at.n, at.c = task // blocks, task % blocks * job.planes_at_once
    alike.count = min(job.planes_at_once, job.channels - at.c)
    group.count, group.held, group.most, group.asks_at_once = 0, 0, alike.count, False
    group.ahead = alike.count * job.grads.strides[1] if job.ahead else 0
    for d in range(job.depth.extent):
        for h in range(job.height.extent):
            at.d, at.h = d, h
            add_rows_to(&group, job, &space, &span, &at, &alike, NULL)
            sum_group(job, &span, &group)
