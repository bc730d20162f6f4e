# DOT and PAIRS: tiles over units of positions, and what is done while they multiply.

cdef enum:
    # Steps along k up to which results are stored between them. Longer sums have few of them: float32
    # lost 4 %, and rows of bfloat16 that lie a channel apart 3 to 9 %.
    SHORT_FLOATS = 40
    SHORT_PAIRS = 4


cdef inline Py_ssize_t depth_of(const Work *work, Py_ssize_t chunk) noexcept nogil:
    """Return how many products a tap has for a channel, in whole tiles."""
    return window_depth(work, chunk) * work.b.merge // work.b.abreast


cdef void begin_meanwhile(const Work *work, Meanwhile *m) noexcept nogil:
    m.dtype, m.parts, m.accumulate = work.b.dtype, work.b.parts, work.accumulate
    m.checks, m.fine = work.b.checks, 1
    m.sums_pitch = work.b.result_pitch
    m.between, m.rows, m.lines = 0, 0, 0
    m.ahead = m.ahead_end = NULL


cdef void keep_results(const Work *work, const Py_ssize_t *count, Py_ssize_t first,
                       Py_ssize_t positions, Py_ssize_t channels, char *c, char *dst,
                       const Py_ssize_t *step, Meanwhile *m) noexcept nogil:
    """Let a tile's results wait for being stored.

    They are those of `positions` from `first` on in a unit, whose first one goes to `dst`.
    """
    cdef Py_ssize_t end = first + positions
    cdef Py_ssize_t row_pitch = work.axis[2].window if work.b.flatten else end
    cdef Py_ssize_t rows = count[1] if work.b.flatten else 1
    cdef Py_ssize_t unit = result_unit(work)
    cdef Py_ssize_t at = first
    cdef Py_ssize_t row, column, stop, span
    cdef char *place
    cdef char *sums
    while at < end:
        row, column = at // row_pitch, at % row_pitch
        if row >= rows:
            return
        stop = min(end, (row + 1) * row_pitch)
        span = min(stop - at, count[2] - column)
        place = dst + row * step[1] + column * step[2]
        sums = c + (at - first) * unit
        at = stop
        if span > 0 and channels_first(work):
            let_wait(m, sums, place, work.diff_src.stride[1], channels, span)
        elif span > 0:
            let_wait(m, sums, place, step[2], span, channels)


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
    source = source_place(work, task, group, first, step)
    for t in range(residue[3], residue[4]):
        tap = work.tap + 3 * t
        offset[t - residue[3]] = 0
        for axis in range(3):
            offset[t - residue[3]] += (
                work.axis[axis].offset[tap[axis]] * work.diff_dst.stride[2 + axis])
    return source


cdef void look_ahead(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                     Py_ssize_t chunk, const Py_ssize_t *residue, Py_ssize_t begin, Py_ssize_t end,
                     Py_ssize_t panel, const Scratch *s, Meanwhile *m) noexcept nogil:
    """Ask for the panels that come after those of `begin` to `end` - 1, if they do not stay in cache.

    After the last ones the first.
    """
    cdef Py_ssize_t next = end if end < task.block_end else task.block_begin
    cdef Py_ssize_t width = work.block[4 * next + 2] * DOT_COLUMNS
    m.ahead = m.ahead_end = NULL
    if work.b.kernel == DOT and work.packing == NULL and work.blocks * panel > L2_PANELS:
        m.ahead = panel_of(work, group, work.block + 4 * next, first, width, s)
        m.ahead += residue[3] * depth_of(work, chunk) * width * work.window_size
        m.ahead_end = m.ahead + (end - begin) * panel


cdef void compute_dot(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                      Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                      const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                      const Scratch *s, int more, int *fine) noexcept nogil:
    """Compute a residue class with DOT tiles, as many channel blocks at a time as stay in cache."""
    cdef Py_ssize_t panel = (residue[4] - residue[3]) * depth_of(work, chunk) * work.window_size
    cdef Py_ssize_t blocks, end
    cdef Meanwhile m
    begin_meanwhile(work, &m)
    panel *= work.b.nv * DOT_COLUMNS
    blocks = max(1, DOT_PANELS // max(1, panel))
    while block_begin < block_end:
        end = min(block_end, block_begin + blocks)
        if work.b.kernel == DOT and not HAVE_AMX:
            compute_vectors(work, task, group, first, chunk, block_begin, end, residue, count, c, s,
                            more)
        else:
            look_ahead(work, task, group, first, chunk, residue, block_begin, end, panel, s, &m)
            compute_tiles(work, task, group, first, chunk, block_begin, end, residue, count, c, s,
                          more, end - block_begin > 1 and (end - block_begin) * panel > L1_PANELS,
                          &m)
        block_begin = end
    fine[0] &= m.fine


cdef bint rows_outside(const Work *work, const Task *task, Py_ssize_t t, Py_ssize_t jd,
                       Py_ssize_t jh, Py_ssize_t rows) noexcept nogil:
    """Return whether a tap reads outside for all of some rows of positions."""
    cdef const Py_ssize_t *tap = work.tap + 3 * t
    cdef Py_ssize_t row
    if source_of(&work.axis[0], task.start[0], tap[0], jd) < 0:
        return True
    for row in range(jh, jh + rows):
        if source_of(&work.axis[1], task.start[1], tap[1], row) >= 0:
            return False
    return True


cdef void trim_taps(const Work *work, const Task *task, const Py_ssize_t *residue, Py_ssize_t jd,
                    Py_ssize_t jh, Py_ssize_t rows, Py_ssize_t *low,
                    Py_ssize_t *high) noexcept nogil:
    """Leave out the first and the last taps of a class that read zeros for `rows` rows from jh on."""
    low[0], high[0] = 0, residue[4] - residue[3]
    if work.b.flatten:
        return
    while low[0] < high[0] and rows_outside(work, task, residue[3] + low[0], jd, jh, rows):
        low[0] += 1
    while low[0] < high[0] and rows_outside(work, task, residue[3] + high[0] - 1, jd, jh, rows):
        high[0] -= 1


cdef Py_ssize_t columns_beside(const Work *work, const Py_ssize_t *count,
                               Py_ssize_t limit) noexcept nogil:
    """Return how many columns of positions are left beside whole tiles, if tiles down these columns
    are fewer than one more for each row.
    """
    cdef Py_ssize_t columns = count[2] % DOT_ROWS
    if work.b.step != DOT_ROWS or work.b.flatten or not work.b.windowed or channels_first(work):
        return 0
    if count[2] // DOT_ROWS % limit:
        return 0
    return columns if columns * ((count[1] + DOT_ROWS - 1) // DOT_ROWS) < count[1] else 0


cdef void compute_tiles(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                        Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                        const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                        const Scratch *s, int more, int stream, Meanwhile *m) noexcept nogil:
    """Compute some channel blocks of a residue class; c is [position][channel], or the reverse.

    Direct, the results of 32 channels go on to diff_src while the next ones are computed. Without a
    window the last tile of a unit begins early enough to end with it. Columns that are left beside
    whole tiles come last, in tiles of positions one below the other.
    """
    cdef Py_ssize_t kc = depth_of(work, chunk)
    cdef int depth = <int> work.b.depth
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef bint first_channels = channels_first(work)
    cdef Py_ssize_t c_step = result_unit(work)      # from position to position
    cdef Py_ssize_t c_channel = c_pitch if first_channels else work.size
    cdef Py_ssize_t unit = unit_length(work, count)
    cdef Py_ssize_t end = unit if work.b.windowed else count[2]
    cdef Py_ssize_t grain = work.b.step
    cdef Py_ssize_t limit = min(work.b.tile_positions,
                                unit if work.b.windowed else end // grain * grain)
    cdef Py_ssize_t rows = unit_rows(work, count)
    cdef Py_ssize_t columns = columns_beside(work, count, limit // DOT_ROWS)
    cdef Py_ssize_t downs = (rows + DOT_ROWS - 1) // DOT_ROWS
    cdef Py_ssize_t strip, jd, jh, j, at, i, height, low, high, below, stop, pitch, sums_pitch
    cdef Py_ssize_t positions
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef const char *unit_source
    cdef const char *tile_source
    cdef char *target
    cdef char *place
    cdef char *base = result_place(work, task, group, residue, out_step)
    cdef Py_ssize_t side = 2 // work.b.nv           # channel blocks that are stored together
    cdef Py_ssize_t beside = 0
    cdef Py_ssize_t channels
    cdef int buffer = 0
    cdef Py_ssize_t tiles, pieces
    cdef bint asks = work.b.asks and m.ahead == NULL
    cdef Py_ssize_t steps = max(1, (residue[4] - residue[3]) * (kc // depth))
    # Without a window stores would delay loads from memory.
    m.between = work.b.direct and work.b.windowed and not work.accumulate
    if work.b.parts == 3:
        m.between = m.between and steps <= SHORT_FLOATS
    elif work.b.parts == 1 and first_channels:
        m.between = m.between and steps <= SHORT_PAIRS
    if columns:
        end = count[2] - columns
    tiles = rows * ((end + limit - 1) // limit) + columns * downs
    tiles *= count[0] * (block_end - block_begin)
    m.lines = ((m.ahead_end - m.ahead) // 64 + tiles * steps - 1) // max(1, tiles * steps)
    for jd in range(count[0]):
        for strip in range(rows + columns * downs):
            jh, below, j, stop, pitch, sums_pitch = strip, 1, 0, end, step[2], c_pitch
            if strip >= rows:
                jh = (strip - rows) // columns * DOT_ROWS
                below = min(DOT_ROWS, rows - jh)
                j = end + (strip - rows) % columns
                stop, pitch = j + 1, step[1]
                if not work.b.direct:
                    sums_pitch *= unit
                amx_begin(<int> below, depth, 0)
            unit_source = source + jd * step[0] + jh * step[1]
            trim_taps(work, task, residue, jd, jh, below, &low, &high)
            while j < stop:
                # Even ones: a low tile waits for its own sums.
                height = (stop - j + grain - 1) // grain
                pieces = (height * grain + limit - 1) // limit
                height = (height + pieces - 1) // pieces
                at = j if work.b.windowed else min(j, end - height * grain)
                if asks:
                    m.ahead = unit_source + (at + height * grain) * step[2]
                    m.ahead_end = m.ahead + height * grain * step[2]
                    m.lines = (m.ahead_end - m.ahead) // (64 * steps * (block_end - block_begin)) + 1
                for i in range(block_begin, block_end):
                    block = work.block + 4 * i
                    weights = panel_of(work, group, block, first, block[2] * DOT_COLUMNS, s)
                    weights += work.window_size * (residue[3] + low) * kc * block[2] * DOT_COLUMNS
                    if work.b.direct:
                        beside = (i - block_begin) % side
                        target = s.result + buffer * work.b.tile_positions * c_pitch
                        target += beside * DOT_COLUMNS * work.size
                    else:
                        target = c + ((jd * rows + jh) * unit + at) * c_step
                        target += (block[0] - work.block[4 * task.block_begin]) * c_channel
                    if first_channels:
                        run_pairs(work.b.parts, block[1], block[2] * DOT_COLUMNS, height, stream,
                                  high - low, kc, weights, unit_source + at * step[2],
                                  work.b.pair_pitch, offset + low, target, c_pitch, more, m)
                    else:
                        # Abreast, a group's channels are where its results are.
                        tile_source = unit_source + at * step[2]
                        if work.b.abreast > 1:
                            tile_source += block[0] * work.window_size
                        positions = below if strip >= rows else min(height * grain, stop - at)
                        run_amx(work.b.parts, positions, block[2], stream, work.b.taps_inside,
                                work.b.tail, high - low, kc, tile_source, pitch, offset + low,
                                weights, target, sums_pitch, more, m)
                    if work.b.direct and (beside + 1 == side or i + 1 == block_end):
                        store_waiting(m)
                        target -= beside * DOT_COLUMNS * work.size
                        block -= 4 * beside
                        channels = block[1] + (work.block[4 * i + 1] if beside else 0)
                        place = base + block[0] * work.diff_src.stride[1]
                        place += jd * out_step[0] + jh * out_step[1]
                        if strip < rows:
                            keep_results(work, count, j, min(height * grain, end - j), channels,
                                         target + (j - at) * c_step, place, out_step, m)
                        else:
                            let_wait(m, target, place + j * out_step[2], out_step[1], below, channels)
                        buffer = 1 - buffer
                j += height * grain
        if columns:
            amx_begin(DOT_ROWS, depth, 0)
    store_waiting(m)
