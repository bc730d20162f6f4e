# From a window, or diff_dst itself, to the sums of one residue class.

cdef enum:
    SHORT_ROW = 64          # channels


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


cdef const char *source_place(const Work *work, const Task *task, Py_ssize_t group,
                              Py_ssize_t first, Py_ssize_t *step) noexcept nogil:
    """Return where a block's first position reads channel `first`, but for taps, and the steps on."""
    cdef Tensor x = work.diff_dst
    cdef Py_ssize_t axis
    cdef const char *place = x.data + task.image * x.stride[0]
    place += (group * work.b.output_channels + first) * x.stride[1]
    for axis in range(3):
        step[axis] = work.axis[axis].in_step * x.stride[2 + axis]
        place += task.start[axis] * step[axis]
    return place


cdef inline const char *panel_of(const Work *work, Py_ssize_t group, const Py_ssize_t *block,
                                 Py_ssize_t first, Py_ssize_t width,
                                 const Scratch *s) noexcept nogil:
    """Return the panel [tap][k][width] of a channel block for the chunk that begins at `first`."""
    if work.packing != NULL:
        return s.panel
    return work.weights + work.panel_size * (
        group * work.b.group_panel + block[3] + first * work.taps * work.b.merge * width)


# COLUMNS, DOT and PAIRS work on units: runs of positions that read consecutive window entries. With
# `flatten` the rows of a plane are one unit: the few sums at the row ends, which mix two rows, cost
# less than short rows would, and are never stored.


cdef inline bint has_units(const Work *work) noexcept nogil:
    return work.b.kernel == COLUMNS or work.b.kernel == DOT or work.b.kernel == PAIRS


cdef inline Py_ssize_t unit_length(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return the positions of a unit, padded to whole vectors or tiles."""
    cdef Py_ssize_t tile = work.b.step
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


cdef inline bint asks_ahead(const Work *work, Py_ssize_t kc) noexcept nogil:
    """Return whether a tile asks for what the next one reads of diff_dst.

    Where positions share nothing each reads a few short rows, too short for prefetchers to follow.
    """
    cdef bint apart = not work.b.windowed and work.axis[2].in_step > 1 and kc <= SHORT_ROW
    return apart or work.b.asks


cdef inline Py_ssize_t first_entry(const Work *work, const Py_ssize_t *tap) noexcept nogil:
    """Return the window entry that a tap reads at the block's first position."""
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    return ((work.axis[0].index[tap[0]] * height.window + height.index[tap[1]]) * width.window
            + width.index[tap[2]])


cdef void clear_ends(char *rows, Py_ssize_t pitch, Py_ssize_t count, Py_ssize_t used) noexcept nogil:
    """Clear what rows have beyond `used` bytes: of what lies there, products may take long."""
    cdef Py_ssize_t i
    if used < pitch:
        for i in range(count):
            memset(rows + i * pitch + used, 0, pitch - used)


cdef inline int tile_vectors(const Work *work, Py_ssize_t vectors) noexcept nogil:
    """Return how many of some vectors of positions the next tile takes."""
    cdef int nv = <int> min(work.b.nv, vectors)
    while tile_rows(nv) == 0:   # not every number of vectors makes a tile
        nv -= 1
    return nv


cdef enum:
    AHEAD = 4       # tiles of positions


cdef inline bint sums_few_planes(const Work *work, Py_ssize_t kc, int more) noexcept nogil:
    """Return whether sums need no tile, and the rows of a channel are written one after the other."""
    return work.b.direct and 0 < kc <= FEW_PRODUCTS and not (work.f64 or more)


cdef void few_planes_unit(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                          const Py_ssize_t *residue, Py_ssize_t kc, Py_ssize_t chunk,
                          Py_ssize_t block_begin, Py_ssize_t block_end, const char *source,
                          Py_ssize_t length, char *c, Py_ssize_t c_pitch,
                          const Scratch *s) noexcept nogil:
    """Compute what columns_unit does, sums of few products, in place."""
    cdef const Py_ssize_t *offset = <const Py_ssize_t *> s.pointers
    cdef const float *x[FEW_PRODUCTS]
    cdef const float *weights
    cdef const Py_ssize_t *block
    cdef Py_ssize_t i, k, channel
    for k in range(kc):
        x[k] = <const float *> source + offset[k]
    for i in range(block_begin, block_end):
        block = work.block + 4 * i
        weights = <const float *> panel_of(work, group, block, first, block[1], s)
        weights += residue[3] * chunk * block[1]
        channel = block[0] - work.block[4 * task.block_begin]
        k = 0
        while k < block[1]:
            few_planes(work.b.dtype, work.streams, kc, <int> min(FEW_PLANES, block[1] - k),
                       weights + k, block[1], x, length, c + (channel + k) * c_pitch, c_pitch)
            k += FEW_PLANES


cdef void columns_unit(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                       const Py_ssize_t *residue, Py_ssize_t kc, Py_ssize_t chunk,
                       Py_ssize_t block_begin, Py_ssize_t block_end, const char *source,
                       Py_ssize_t length, char *c, Py_ssize_t c_pitch, const Scratch *s,
                       int more) noexcept nogil:
    """Compute `length` consecutive positions; c is [channel][position], rows c_pitch bytes apart.

    Direct, the last vector of a row may hold more than the row has: its tile goes through scratch,
    and without a window what it reads as well.
    """
    cdef const Py_ssize_t *offset = <const Py_ssize_t *> s.pointers
    cdef Py_ssize_t size = work.size
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t vectors, width, left, i, ahead
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef char *target
    cdef int nv
    while begin < length:
        vectors = (length - begin + work.lanes - 1) // work.lanes
        if not work.b.windowed:
            vectors = max(1, (length - begin) // work.lanes)
        nv = tile_vectors(work, vectors)
        width = nv * work.lanes
        ahead = 0
        if not work.b.windowed and begin + width <= length:
            # Rows of channels lie pages apart, where nobody foresees the next vectors.
            ahead = AHEAD * width
        elif not work.b.windowed:
            copy_rows(source + begin * size, work.diff_dst.stride[1], s.window, width * size, kc,
                      (length - begin) * size)
            clear_ends(s.window, width * size, kc, (length - begin) * size)
            source = s.window - begin * size
            offset += kc
        for i in range(block_begin, block_end):
            block = work.block + 4 * i
            weights = panel_of(work, group, block, first, block[1], s)
            weights += size * residue[3] * chunk * block[1]
            target = c + (block[0] - work.block[4 * task.block_begin]) * c_pitch + begin * size
            if work.b.direct and begin + width > length:
                left = (length - begin) * size
                if more:
                    copy_rows(target, c_pitch, s.result, width * size, block[1], left)
                    clear_ends(s.result, width * size, block[1], left)
                run_columns(work.f64, block[1], nv, kc, weights, source + begin * size, offset, 0, 0, 1,
                            s.result, width, more)
                copy_rows(s.result, width * size, target, c_pitch, block[1], left)
            else:
                run_columns(work.f64, block[1], nv, kc, weights, source + begin * size, offset, ahead,
                            i - block_begin, block_end - block_begin, target, c_pitch // size,
                            more)
        begin += width


cdef void compute_columns(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                          Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                          const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                          const Scratch *s, int more) noexcept nogil:
    """Compute a residue class with the COLUMNS tile."""
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t plane = work.b.window_plane
    cdef const char *base = s.window
    cdef Py_ssize_t kc = (residue[4] - residue[3]) * chunk
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t unit = unit_length(work, count)
    cdef Py_ssize_t rows = unit_rows(work, count)
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef Py_ssize_t t, k, jd, jh, place
    cdef Py_ssize_t length = count[2]
    cdef const char *source
    cdef char *target
    cdef bint few
    step[1] = width.window * work.size
    step[0] = height.window * step[1]
    if not work.b.windowed:     # a single tap
        plane = work.diff_dst.stride[1] // work.size
        base = source_place(work, task, group, first, step)
        for k in range(chunk):  # of the copied end of a row
            offset[kc + k] = k * work.lanes
    for t in range(residue[3], residue[4]):
        place = first_entry(work, work.tap + 3 * t)
        for k in range(chunk):
            offset[k] = place + k * plane
        offset += chunk
    if work.b.direct:
        c = result_place(work, task, group, residue, out_step)
        c_pitch = work.diff_src.stride[1]
        c += work.block[4 * task.block_begin] * c_pitch
    few = sums_few_planes(work, kc, more)
    if few and step[1] == count[2] * work.size and out_step[1] == count[2] * out_step[2]:
        # One row goes on where the last one ends, in memory.
        length, rows = rows * count[2], 1
    for jd in range(count[0]):
        for jh in range(rows):
            source = base + jd * step[0] + jh * step[1]
            if work.b.direct:
                target = c + jd * out_step[0] + jh * out_step[1]
            if few:
                few_planes_unit(work, task, group, first, residue, kc, chunk, block_begin,
                                block_end, source, length, target, c_pitch, s)
            elif work.b.direct:
                columns_unit(work, task, group, first, residue, kc, chunk, block_begin, block_end,
                             source, count[2], target, c_pitch, s, more)
            else:
                target = c + (jd * rows + jh) * unit * work.size
                columns_unit(work, task, group, first, residue, kc, chunk, block_begin, block_end,
                             source, unit, target, c_pitch, s, more)
