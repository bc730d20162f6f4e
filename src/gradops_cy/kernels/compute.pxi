# From a window, or diff_dst itself, to the sums of one residue class.


cdef char *result_place(const Work *work, const Task *task, Py_ssize_t group,
                        const Py_ssize_t *residue, Py_ssize_t *step) noexcept nogil:
    """Return where channel 0 of a group goes at a class's first position, and the steps from there."""
    cdef Tensor y = work.diff_src
    cdef Py_ssize_t axis
    cdef char *place = y.data + task.image * y.stride[0] + group * work.b.input_channels * y.stride[1]
    for axis in range(3):
        step[axis] = y.stride[2 + axis] * work.axis[axis].out_step
        place += task.start[axis] * step[axis] + residue[axis] * y.stride[2 + axis]
    return place


cdef inline const char *panel_of(const Work *work, Py_ssize_t group, const Py_ssize_t *block,
                                 Py_ssize_t first, Py_ssize_t width,
                                 const Scratch *s) noexcept nogil:
    """Return the panel [tap][k][width] of a channel block for the chunk that begins at `first`."""
    if work.packing != NULL:
        return s.panel
    return work.weights + work.window_size * (
        group * work.b.group_panel + block[3] + first * work.taps * work.b.merge * width)


# COLUMNS, AMX and PAIRS work on units: runs of positions that read consecutive window entries. With
# `flatten` the rows of a plane are one unit: the few sums at the row ends, which mix two rows, cost
# less than short rows would, and are never stored.


cdef inline bint has_units(const Work *work) noexcept nogil:
    return work.b.kernel == COLUMNS or work.b.kernel == AMX or work.b.kernel == PAIRS


cdef inline Py_ssize_t unit_length(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return the positions of a unit, padded to whole vectors or tiles."""
    cdef Py_ssize_t tile = AMX_ROWS if work.b.parts else work.lanes
    cdef Py_ssize_t length = count[2]
    if work.b.flatten:
        length += (count[1] - 1) * work.axis[2].window
    return (length + tile - 1) // tile * tile


cdef inline Py_ssize_t unit_rows(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return the units of a plane."""
    return 1 if work.b.flatten else count[1]


cdef Py_ssize_t class_extent(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return how many positions of scratch a residue class takes."""
    if has_units(work):
        return unit_length(work, count) * count[0] * unit_rows(work, count)
    return count[0] * count[1] * count[2]


cdef void class_pitch(const Work *work, const Py_ssize_t *count, Py_ssize_t *pitch) noexcept nogil:
    """Tell how many positions of scratch lie from one d, h and w to the next."""
    cdef Py_ssize_t unit
    pitch[2] = 1
    pitch[1] = count[2]
    pitch[0] = count[1] * count[2]
    if has_units(work):
        unit = unit_length(work, count)
        pitch[1] = work.axis[2].window if work.b.flatten else unit
        pitch[0] = unit * unit_rows(work, count)


cdef inline Py_ssize_t first_entry(const Work *work, const Py_ssize_t *tap) noexcept nogil:
    """Return the window entry that a tap reads at the block's first position."""
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    return ((work.axis[0].index[tap[0]] * height.window + height.index[tap[1]]) * width.window
            + width.index[tap[2]])


cdef void copy_rows(const char *src, Py_ssize_t src_pitch, char *dst, Py_ssize_t dst_pitch,
                    Py_ssize_t rows, Py_ssize_t bytes) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(rows):
        memcpy(dst + i * dst_pitch, src + i * src_pitch, bytes)


cdef void columns_unit(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                       const Py_ssize_t *residue, Py_ssize_t kc, Py_ssize_t chunk,
                       Py_ssize_t block_begin, Py_ssize_t block_end, const char *source,
                       Py_ssize_t length, char *c, Py_ssize_t c_pitch, const Scratch *s,
                       int more) noexcept nogil:
    """Compute `length` consecutive positions; c is [channel][position], rows c_pitch bytes apart.

    Direct, the last vector of a row may hold more than the row has: its tile goes through scratch.
    """
    cdef const Py_ssize_t *offset = <const Py_ssize_t *> s.pointers
    cdef Py_ssize_t size = work.size
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t width, i
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef char *target
    cdef int nv
    while begin < length:
        nv = min(work.b.nv, (length - begin + work.lanes - 1) // work.lanes)
        while tile_rows(nv) == 0:   # not every number of vectors makes a tile
            nv -= 1
        width = nv * work.lanes
        for i in range(block_begin, block_end):
            block = work.block + 4 * i
            weights = panel_of(work, group, block, first, block[1], s)
            weights += size * residue[3] * chunk * block[1]
            target = c + (block[0] - work.block[4 * task.block_begin]) * c_pitch + begin * size
            if work.b.direct and begin + width > length:
                run_columns(work.f64, block[1], nv, kc, weights, source + begin * size, offset,
                            s.result, width, 0)
                copy_rows(s.result, width * size, target, c_pitch, block[1],
                          (length - begin) * size)
            else:
                run_columns(work.f64, block[1], nv, kc, weights, source + begin * size, offset,
                            target, c_pitch // size, more)
        begin += width


cdef void compute_columns(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                          Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                          const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                          const Scratch *s, int more) noexcept nogil:
    """Compute a residue class with the COLUMNS tile."""
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t plane = work.axis[0].window * height.window * width.window
    cdef Py_ssize_t kc = (residue[4] - residue[3]) * chunk
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t unit = unit_length(work, count)
    cdef Py_ssize_t rows = unit_rows(work, count)
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t out_step[3]
    cdef Py_ssize_t t, k, jd, jh, place
    cdef const char *source
    cdef char *target
    for t in range(residue[3], residue[4]):
        place = first_entry(work, work.tap + 3 * t)
        for k in range(chunk):
            offset[k] = place + k * plane
        offset += chunk
    if work.b.direct:
        c = result_place(work, task, group, residue, out_step)
        c_pitch = work.diff_src.stride[1]
        c += work.block[4 * task.block_begin] * c_pitch
    for jd in range(count[0]):
        for jh in range(rows):
            source = s.window + (jd * height.window + jh) * width.window * work.size
            if work.b.direct:
                target = c + jd * out_step[0] + jh * out_step[1]
                columns_unit(work, task, group, first, residue, kc, chunk, block_begin, block_end,
                             source, count[2], target, c_pitch, s, more)
            else:
                target = c + (jd * rows + jh) * unit * work.size
                columns_unit(work, task, group, first, residue, kc, chunk, block_begin, block_end,
                             source, unit, target, c_pitch, s, more)


# A tile's results on their way to diff_src.
cdef struct Pending:
    Py_ssize_t first        # position of the unit, and how many
    Py_ssize_t positions
    Py_ssize_t channels
    char *c
    char *dst               # where the unit's first position goes


cdef void store_pending(const Work *work, const Py_ssize_t *count, const Pending *p,
                        const Py_ssize_t *step, int *fine) noexcept nogil:
    """Round a tile's results into diff_src."""
    cdef Py_ssize_t end = p.first + p.positions
    cdef Py_ssize_t row_pitch = work.axis[2].window if work.b.flatten else end
    cdef Py_ssize_t rows = count[1] if work.b.flatten else 1
    cdef Py_ssize_t pitch = work.b.result_pitch
    cdef Py_ssize_t at = p.first
    cdef Py_ssize_t row, column, stop, span, i
    cdef char *c
    while at < end:
        row, column = at // row_pitch, at % row_pitch
        if row >= rows:
            return
        stop = min(end, (row + 1) * row_pitch)
        span = min(stop - at, count[2] - column)
        c = p.c + (at - p.first) * result_unit(work)
        at = stop
        if span > 0 and channels_first(work):
            if work.b.parts > 1:
                for i in range(p.channels):
                    fine[0] &= unsplit(<float *> c + i * pitch, span)
            store_rows(work.b.dtype, c, pitch, p.dst + row * step[1] + column * step[2],
                       work.diff_src.stride[1], p.channels, span, work.accumulate)
        elif span > 0:
            if work.b.parts > 1:
                for i in range(span):
                    fine[0] &= unsplit(<float *> c + i * pitch, p.channels)
            store_rows(work.b.dtype, c, pitch, p.dst + row * step[1] + column * step[2], step[2],
                       span, p.channels, work.accumulate)


cdef const char *point_tiles(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                             Py_ssize_t chunk, const Py_ssize_t *residue, const Scratch *s,
                             Py_ssize_t *offset, Py_ssize_t *step) noexcept nogil:
    """Return where a class's first position is read, the bytes to each tap, and to d, h and w."""
    cdef Py_ssize_t t, axis
    cdef Py_ssize_t pitch = window_pitch(work, chunk) * work.window_size
    cdef const Py_ssize_t *tap
    cdef const char *source = s.window
    if work.b.kernel == PAIRS:
        point_pairs(work, chunk, residue, offset, step)
        return source
    if work.b.windowed:
        for t in range(residue[3], residue[4]):
            offset[t - residue[3]] = first_entry(work, work.tap + 3 * t) * pitch
        step[2] = pitch
        step[1] = step[2] * work.axis[2].window
        step[0] = step[1] * work.axis[1].window
        return source
    source = work.diff_dst.data + task.image * work.diff_dst.stride[0]
    source += (group * work.b.output_channels + first) * work.diff_dst.stride[1]
    for axis in range(3):
        step[axis] = work.axis[axis].in_step * work.diff_dst.stride[2 + axis]
        source += task.start[axis] * step[axis]
    for t in range(residue[3], residue[4]):
        tap = work.tap + 3 * t
        offset[t - residue[3]] = 0
        for axis in range(3):
            offset[t - residue[3]] += (
                work.axis[axis].offset[tap[axis]] * work.diff_dst.stride[2 + axis])
    return source


cdef void compute_amx(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                      Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                      const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                      const Scratch *s, int more, int *fine) noexcept nogil:
    """Compute a residue class with AMX tiles, as many channel blocks at a time as stay in cache."""
    cdef Py_ssize_t taps = residue[4] - residue[3]
    cdef Py_ssize_t panel = taps * window_pitch(work, chunk) * work.window_size
    cdef Py_ssize_t blocks, end, next
    cdef const char *ahead
    panel *= work.b.nv * AMX_COLUMNS
    blocks = max(1, AMX_PANELS // max(1, panel))
    while block_begin < block_end:
        end = min(block_end, block_begin + blocks)
        # The next panels come from memory while these are used; after the last, the first ones.
        ahead = NULL
        if work.packing == NULL and work.blocks * panel > L2_PANELS:
            next = end if end < block_end else task.block_begin
            ahead = panel_of(work, group, work.block + 4 * next, first,
                             work.block[4 * next + 2] * AMX_COLUMNS, s)
            ahead += panel // work.b.nv // max(1, taps) * residue[3] * work.block[4 * next + 2]
        compute_tiles(work, task, group, first, chunk, block_begin, end, residue, count, c, s, more,
                      end - block_begin > 1 and (end - block_begin) * panel > L1_PANELS, ahead, fine)
        block_begin = end


cdef inline bint row_outside(const Work *work, const Task *task, const Py_ssize_t *tap,
                             Py_ssize_t jd, Py_ssize_t jh) noexcept nogil:
    return (source_of(&work.axis[0], task.start[0], tap[0], jd) < 0
            or source_of(&work.axis[1], task.start[1], tap[1], jh) < 0)


cdef void trim_taps(const Work *work, const Task *task, const Py_ssize_t *residue, Py_ssize_t jd,
                    Py_ssize_t jh, Py_ssize_t *low, Py_ssize_t *high) noexcept nogil:
    """Leave out the first and the last taps of a class that read rows outside: zeros."""
    low[0], high[0] = 0, residue[4] - residue[3]
    if work.b.flatten:
        return
    while low[0] < high[0] and row_outside(work, task, work.tap + 3 * (residue[3] + low[0]), jd, jh):
        low[0] += 1
    while low[0] < high[0] and row_outside(work, task, work.tap + 3 * (residue[3] + high[0] - 1),
                                           jd, jh):
        high[0] -= 1


cdef void compute_tiles(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                        Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                        const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                        const Scratch *s, int more, int stream, const char *ahead,
                        int *fine) noexcept nogil:
    """Compute some channel blocks of a residue class; c is [position][channel], or the reverse.

    Direct, the results of 32 channels go on to diff_src when the next ones are on their way: what AMX
    has just stored cannot be loaded at once. Without a window the last tile of a unit begins early
    enough to end with it.
    """
    cdef Py_ssize_t kc = window_pitch(work, chunk)
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef bint first_channels = channels_first(work)
    cdef Py_ssize_t c_step = result_unit(work)      # from position to position
    cdef Py_ssize_t c_channel = c_pitch if first_channels else work.size
    cdef Py_ssize_t unit = unit_length(work, count)
    cdef Py_ssize_t end = unit if work.b.windowed else count[2]
    cdef Py_ssize_t limit = min(AMX_ROWS * 4 // work.b.nv,
                                unit if work.b.windowed else end // AMX_ROWS * AMX_ROWS)
    cdef Py_ssize_t rows = unit_rows(work, count)
    cdef Py_ssize_t jd, jh, j, at, i, height, low, high
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef const char *unit_source
    cdef char *target
    cdef char *base = result_place(work, task, group, residue, out_step)
    cdef Pending pending
    cdef Py_ssize_t side = 2 // work.b.nv           # channel blocks that are stored together
    cdef Py_ssize_t beside = 0
    cdef int buffer = 0
    # Every tile asks for its share of what is ahead, as much as it uses itself.
    cdef Py_ssize_t tiles = count[0] * rows * ((end + limit - 1) // limit)
    cdef Py_ssize_t lines = AMX_K * work.window_size * work.b.nv * AMX_COLUMNS // 64 // tiles + 1
    cdef Py_ssize_t fetched = 0
    if ahead == NULL:
        lines = 0
    pending.first = pending.positions = 0
    for jd in range(count[0]):
        for jh in range(rows):
            unit_source = source + jd * step[0] + jh * step[1]
            trim_taps(work, task, residue, jd, jh, &low, &high)
            j = 0
            while j < end:
                height = (min(limit, end - j) + AMX_ROWS - 1) // AMX_ROWS
                at = j if work.b.windowed else min(j, end - height * AMX_ROWS)
                for i in range(block_begin, block_end):
                    block = work.block + 4 * i
                    weights = panel_of(work, group, block, first, block[2] * AMX_COLUMNS, s)
                    weights += work.window_size * (residue[3] + low) * kc * block[2] * AMX_COLUMNS
                    if work.b.direct:
                        beside = (i - block_begin) % side
                        target = s.result + buffer * (4 // work.b.nv * AMX_ROWS) * c_pitch
                        target += beside * AMX_COLUMNS * work.size
                    else:
                        target = c + ((jd * rows + jh) * unit + at) * c_step
                        target += (block[0] - work.block[4 * task.block_begin]) * c_channel
                    if first_channels:
                        run_pairs(work.b.parts, block[2], height, stream, high - low, kc, weights,
                                  unit_source + at * step[2], work.b.pair_pitch, offset + low,
                                  target, c_pitch, more)
                    else:
                        run_amx(work.b.parts, height, block[2], stream, high - low, kc,
                                unit_source + at * step[2], step[2], offset + low, weights, target,
                                c_pitch, more, ahead + fetched, lines)
                        fetched += lines * (high - low) * kc // AMX_K * 64
                    if work.b.direct and (beside + 1 == side or i + 1 == block_end):
                        store_pending(work, count, &pending, out_step, fine)
                        target -= beside * AMX_COLUMNS * work.size
                        pending.first, pending.positions = j, min(limit, end - j)
                        pending.channels, pending.c = block[1], target + (j - at) * c_step
                        block -= 4 * beside
                        pending.channels += beside * block[1]
                        pending.dst = base + block[0] * work.diff_src.stride[1]
                        pending.dst += jd * out_step[0] + jh * out_step[1]
                        buffer = 1 - buffer
                j += limit
    if work.b.direct:
        store_pending(work, count, &pending, out_step, fine)
