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


cdef inline Py_ssize_t entries_of_step(const Work *work) noexcept nogil:
    """Return how many entries of a window lie between those of neighbouring positions.

    Where they are not sorted, as many as there are taps, which lie side by side, or strides.
    """
    cdef const Axis *width = &work.axis[2]
    return width.index[1] - width.index[0] if work.b.in_order and width.block > 1 else 1


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
        step[2] = entries_of_step(work) * pitch
        step[1] = work.axis[2].window * pitch
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
            m.fine &= compute_vectors(work, task, group, first, chunk, block_begin, end, residue,
                                      count, c, s, more)
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


# How tiles cover a plane of positions: along its units, and down the columns beside them.
cdef struct Cover:
    Py_ssize_t units
    Py_ssize_t end          # of a unit, without those columns
    Py_ssize_t grain        # positions that tiles have a multiple of
    Py_ssize_t grains       # of a unit
    Py_ssize_t pieces       # tiles of a unit
    Py_ssize_t columns
    Py_ssize_t downs        # tiles of a column
    bint downwards          # a unit's tile is followed by the one below it


# One of these tiles.
cdef struct Spot:
    Py_ssize_t row
    Py_ssize_t first        # position in the unit
    Py_ssize_t height       # positions, not all of which there may be
    Py_ssize_t below        # of a column; or 0


cdef Cover cover_plane(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return how tiles cover what a residue class has of a plane.

    The taps of a tile read most of the lines again that those of the tile above it have read, if rows
    are long, and find them in the first-level cache: up to 1.05 times as fast in bfloat16. With more
    parts, which read each line several times, and where rows of channels are stored it does not pay.
    """
    cdef Cover cover
    cdef Py_ssize_t limit = work.b.tile_positions
    cover.units = unit_rows(work, count)
    cover.grain = work.b.step
    cover.end = unit_length(work, count) if work.b.windowed else count[2]
    limit = min(limit, cover.end if work.b.windowed else cover.end // cover.grain * cover.grain)
    cover.columns = columns_beside(work, count, limit // DOT_ROWS)
    cover.downs = (cover.units + DOT_ROWS - 1) // DOT_ROWS
    if cover.columns:
        cover.end = count[2] - cover.columns
    cover.grains = (cover.end + cover.grain - 1) // cover.grain
    cover.pieces = 0
    if limit > 0:
        cover.pieces = (cover.grains * cover.grain + limit - 1) // limit
    cover.downwards = work.b.windowed and work.b.parts == 1 and not channels_first(work)
    return cover


cdef inline Py_ssize_t tiles_of(const Cover *cover) noexcept nogil:
    return cover.units * cover.pieces + cover.columns * cover.downs


cdef Spot spot_of(const Cover *cover, Py_ssize_t number) noexcept nogil:
    """Return where a tile lies.

    Those of a unit have even heights: a low tile waits for its own sums.
    """
    cdef Spot spot
    cdef Py_ssize_t along = cover.units * cover.pieces
    cdef Py_ssize_t piece
    if number >= along:
        number -= along
        spot.row = number // cover.columns * DOT_ROWS
        spot.first = cover.end + number % cover.columns
        spot.below = min(DOT_ROWS, cover.units - spot.row)
        spot.height = cover.grain
        return spot
    if cover.downwards:
        piece, spot.row = number // cover.units, number % cover.units
    else:
        spot.row, piece = number // cover.pieces, number % cover.pieces
    spot.first = piece * (cover.grains // cover.pieces) + min(piece, cover.grains % cover.pieces)
    spot.first *= cover.grain
    spot.height = (cover.grains // cover.pieces + (piece < cover.grains % cover.pieces)) * cover.grain
    spot.below = 0
    return spot


cdef void compute_tiles(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                        Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                        const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                        const Scratch *s, int more, int stream, Meanwhile *m) noexcept nogil:
    """Compute some channel blocks of a residue class; c is [position][channel], or the reverse.

    Direct, the results of 32 channels go on to diff_src while the next ones are computed. Without a
    window the last tile of a unit begins early enough to end with it.
    """
    cdef Py_ssize_t kc = depth_of(work, chunk)
    cdef int depth = <int> work.b.depth
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef bint first_channels = channels_first(work)
    cdef Py_ssize_t c_step = result_unit(work)      # from position to position
    cdef Py_ssize_t c_channel = c_pitch if first_channels else work.size
    cdef Py_ssize_t unit = unit_length(work, count)
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef char *base = result_place(work, task, group, residue, out_step)
    cdef Cover cover = cover_plane(work, count)
    cdef Spot spot
    cdef Py_ssize_t jd, number, at, i, low, high, pitch, sums_pitch, positions
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *spot_source
    cdef const char *tile_source
    cdef char *target
    cdef char *place
    cdef Py_ssize_t side = 2 // work.b.nv           # channel blocks that are stored together
    cdef Py_ssize_t beside = 0
    cdef Py_ssize_t channels
    cdef int buffer = 0
    cdef bint asks = work.b.asks and m.ahead == NULL
    cdef Py_ssize_t steps = max(1, (residue[4] - residue[3]) * (kc // depth))
    cdef Py_ssize_t turns = max(1, count[0] * tiles_of(&cover) * (block_end - block_begin) * steps)
    # Vectors take no turns with results.
    m.between = HAVE_AMX and work.b.direct and not work.accumulate
    if work.b.parts == 3:
        m.between = m.between and steps <= SHORT_FLOATS
    elif work.b.parts == 1 and first_channels:
        m.between = m.between and steps <= SHORT_PAIRS
    m.lines = ((m.ahead_end - m.ahead) // 64 + turns - 1) // turns
    for jd in range(count[0]):
        for number in range(tiles_of(&cover)):
            spot = spot_of(&cover, number)
            at, pitch, sums_pitch = spot.first, step[2], c_pitch
            if not work.b.windowed:
                at = min(at, cover.end - spot.height)
            positions = min(spot.height, cover.end - at)
            if spot.below:
                positions, pitch = spot.below, step[1]
                if not work.b.direct:
                    sums_pitch *= unit
                amx_begin(<int> spot.below, depth, work.b.tail)
            spot_source = source + jd * step[0] + spot.row * step[1] + at * step[2]
            trim_taps(work, task, residue, jd, spot.row, max(1, spot.below), &low, &high)
            if asks:
                m.ahead = spot_source + spot.height * step[2]
                m.ahead_end = m.ahead + spot.height * step[2]
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
                    target = c + ((jd * cover.units + spot.row) * unit + at) * c_step
                    target += (block[0] - work.block[4 * task.block_begin]) * c_channel
                if first_channels:
                    run_pairs(work.b.parts, block[1], block[2] * DOT_COLUMNS,
                              spot.height // cover.grain, stream, high - low, kc, weights, spot_source,
                              work.b.pair_pitch, offset + low, target, c_pitch, more, m)
                else:
                    # Abreast, a group's channels are where its results are.
                    tile_source = spot_source
                    if work.b.abreast > 1:
                        tile_source += block[0] * work.window_size
                    run_amx(work.b.parts, positions, block[2], stream, work.b.taps_inside,
                            work.b.tail, high - low, kc, tile_source, pitch, offset + low, weights,
                            target, sums_pitch, more, m)
                if work.b.direct and (beside + 1 == side or i + 1 == block_end):
                    store_waiting(m)
                    target -= beside * DOT_COLUMNS * work.size
                    block -= 4 * beside
                    channels = block[1] + (work.block[4 * i + 1] if beside else 0)
                    place = base + block[0] * work.diff_src.stride[1]
                    place += jd * out_step[0] + spot.row * out_step[1]
                    if spot.below:
                        let_wait(m, target, place + spot.first * out_step[2], out_step[1], spot.below,
                                 channels)
                    else:
                        keep_results(work, count, spot.first,
                                     min(spot.height, cover.end - spot.first), channels,
                                     target + (spot.first - at) * c_step, place, out_step, m)
                    # Between products all have been stored when the next ones come: half as much of
                    # the first-level cache.
                    buffer = 0 if m.between else 1 - buffer
        if cover.columns:
            amx_begin(DOT_ROWS, depth, work.b.tail)
    store_waiting(m)
