# From a window (or diff_dst itself) to the sums of one residue class, tile by tile.

cdef enum:
    MOST_PIECES = 16        # of a row


cdef inline Py_ssize_t source_of(const Axis *axis, Py_ssize_t start, Py_ssize_t tap,
                                 Py_ssize_t j) noexcept nogil:
    """Return the source coordinate that a tap reads for position `start` + j, or -1 outside."""
    cdef Py_ssize_t y = axis.offset[tap] + (start + j) * axis.in_step
    return y if 0 <= y < axis.source else -1


cdef inline void inside_of(const Work *work, const Task *task, Py_ssize_t tap, Py_ssize_t count,
                           Py_ssize_t *low, Py_ssize_t *high) noexcept nogil:
    """Tell which positions `low` to `high` - 1 of a row find a tap of the last axis inside."""
    cdef const Axis *axis = &work.axis[2]
    cdef Py_ssize_t y = axis.offset[tap] + task.start[2] * axis.in_step
    low[0] = min(count, (-y + axis.in_step - 1) // axis.in_step if y < 0 else 0)
    high[0] = (axis.source - y + axis.in_step - 1) // axis.in_step if y < axis.source else 0
    high[0] = max(low[0], min(count, high[0]))


cdef void point_rows(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                     Py_ssize_t chunk, const Py_ssize_t *residue, const Py_ssize_t *count,
                     const Scratch *s, const char **row) noexcept nogil:
    """Fill row[tap][position] with what each tap reads; zeros outside, NULL with exact_halo.

    A run of merged taps may lie half outside: those read the zeros of the window.
    """
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef Tensor x = work.diff_dst
    cdef Py_ssize_t t, jd, jh, j, yd, yh, yw, low, high, pitch
    cdef Py_ssize_t step = width.in_step * x.stride[4]
    cdef const Py_ssize_t *tap
    cdef const Py_ssize_t *entry
    cdef const char *outside = NULL if work.b.exact_halo else s.zeros
    cdef const char *base = x.data + task.image * x.stride[0]
    cdef const char *source
    base += (group * work.b.output_channels + first) * x.stride[1]
    pitch = window_pitch(work, chunk) * work.size
    for t in range(residue[3], residue[4]):
        tap = work.tap + 3 * t
        yw = width.offset[tap[2]] + task.start[2] * width.in_step
        inside_of(work, task, tap[2], count[2], &low, &high)
        for jd in range(count[0]):
            yd = source_of(depth, task.start[0], tap[0], jd)
            for jh in range(count[1]):
                yh = source_of(height, task.start[1], tap[1], jh)
                if work.b.windowed:
                    entry = width.index + tap[2] * width.block
                    source = s.window + pitch * width.window * (
                        depth.index[tap[0] * depth.block + jd] * height.window
                        + height.index[tap[1] * height.block + jh])
                    for j in range(count[2]):
                        row[j] = source + entry[j] * pitch
                    if work.b.merge == 1:
                        for j in range(count[2]):
                            if yd < 0 or yh < 0 or j < low or j >= high:
                                row[j] = outside
                elif yd < 0 or yh < 0:
                    for j in range(count[2]):
                        row[j] = outside
                else:
                    source = base + yd * x.stride[2] + yh * x.stride[3]
                    source += yw * x.stride[4]
                    for j in range(low):
                        row[j] = outside
                    for j in range(low, high):
                        row[j] = source + j * step
                    for j in range(high, count[2]):
                        row[j] = outside
                row += count[2]


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


cdef void point_results(const Work *work, const Task *task, Py_ssize_t group,
                        const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                        char **result) noexcept nogil:
    """Fill result[position] with where the block's first channel goes: scratch or diff_src."""
    cdef Py_ssize_t jd, jh, j
    cdef Py_ssize_t step[3]
    cdef char *base = result_place(work, task, group, residue, step)
    base += work.block[4 * task.block_begin] * work.diff_src.stride[1]
    for jd in range(count[0]):
        for jh in range(count[1]):
            for j in range(count[2]):
                if work.b.direct:
                    result[j] = base + jd * step[0] + jh * step[1] + j * step[2]
                else:
                    result[j] = c + j * work.b.result_pitch * work.size
            result += count[2]
            c += count[2] * work.b.result_pitch * work.size


cdef void run_position(const Work *work, int nv, Py_ssize_t taps, Py_ssize_t kc, const char **row,
                       Py_ssize_t row_pitch, const char *weights, char **result,
                       Py_ssize_t shift, int more) noexcept nogil:
    """Compute one position tap by tap, leaving out the taps that read outside diff_dst.

    A zero there times an infinite weight would be NaN; this is the path for such weights.
    """
    cdef Py_ssize_t t
    if not more:
        run_rows(work.f64, 1, nv, 0, kc, row, row_pitch, weights, result, shift, 0)
    for t in range(taps):
        if row[t * row_pitch] != NULL:
            run_rows(work.f64, 1, nv, 1, kc, row + t * row_pitch, row_pitch,
                     weights + t * kc * nv * work.lanes * work.size, result, shift, 1)


cdef inline const char *panel_of(const Work *work, Py_ssize_t group, const Py_ssize_t *block,
                                 Py_ssize_t first, Py_ssize_t width,
                                 const Scratch *s) noexcept nogil:
    """Return the panel [tap][k][width] of a channel block for the chunk that begins at `first`."""
    if work.packing != NULL:
        return s.panel
    return work.weights + work.window_size * (
        group * work.b.group_panel + block[3] + first * work.taps * work.b.merge * width)


cdef void run_inside(const Work *work, int rows, int nv, Py_ssize_t taps, Py_ssize_t kc,
                     const char **row, Py_ssize_t row_pitch, const char *weights, char **result,
                     Py_ssize_t shift, int more, const char *outside) noexcept nogil:
    """Compute a tile without the taps that lie outside for all of its positions.

    They would add nothing: zeros times finite weights.
    """
    cdef Py_ssize_t tap = kc * nv * work.lanes * work.size
    cdef Py_ssize_t t = 0
    cdef Py_ssize_t begin = 0
    cdef int m
    while t < taps:
        m = 0
        while m < rows and row[t * row_pitch + m] == outside:
            m += 1
        if m == rows:
            if t > begin:
                run_rows(work.f64, rows, nv, t - begin, kc, row + begin * row_pitch, row_pitch,
                         weights + begin * tap, result, shift, more)
                more = 1
            begin = t + 1
        t += 1
    if taps > begin or not more:
        run_rows(work.f64, rows, nv, taps - begin, kc, row + begin * row_pitch, row_pitch,
                 weights + begin * tap, result, shift, more)


cdef Py_ssize_t cut_row(const Work *work, const Task *task, const Py_ssize_t *residue,
                        Py_ssize_t count, Py_ssize_t least, Py_ssize_t *end) noexcept nogil:
    """Cut a row where taps begin or end to lie inside, and return the number of pieces.

    A tile goes without the taps that lie outside for all of it. Pieces are not shorter than
    `least`; `end` has space for MOST_PIECES.
    """
    cdef Py_ssize_t pieces = 0
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t t, low, high, next
    while pieces < MOST_PIECES - 1:
        next = count
        for t in range(residue[3], residue[4]):
            inside_of(work, task, work.tap[3 * t + 2], count, &low, &high)
            if low >= begin + least:
                next = min(next, low)
            if high >= begin + least:
                next = min(next, high)
        if next + least > count:
            break
        end[pieces] = begin = next
        pieces += 1
    end[pieces] = count
    return pieces + 1


cdef void compute_rows(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                       Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                       const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                       const Scratch *s, int more) noexcept nogil:
    """Compute a residue class with the ROWS tile."""
    cdef Py_ssize_t total = count[0] * count[1] * count[2]
    cdef Py_ssize_t taps = residue[4] - residue[3]
    cdef Py_ssize_t kc = chunk * work.b.merge
    cdef char **result = <char **> s.pointers
    cdef const char **row = <const char **> s.pointers + total
    cdef Py_ssize_t end[MOST_PIECES]
    cdef Py_ssize_t i, tile, tiles, position, next, begin, length, piece, pieces, limit
    cdef Py_ssize_t shift, ldb, lines
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *ahead
    cdef int nv
    point_results(work, task, group, residue, count, c, result)
    point_rows(work, task, group, first, chunk, residue, count, s, row)
    for i in range(block_begin, block_end):
        block = work.block + 4 * i
        nv = block[2]
        ldb = nv * work.lanes
        shift = block[0] - work.block[4 * task.block_begin]
        weights = panel_of(work, group, block, first, ldb, s) + work.size * residue[3] * kc * ldb
        limit = 1 if work.b.exact_halo else tile_rows(nv)
        # Not of positions that read merged taps, which may lie half inside.
        pieces = 1
        if work.b.merge == 1 and not work.b.exact_halo:
            pieces = cut_row(work, task, residue, count[2], limit, end)
        # The next panel comes from memory while this one is used.
        lines = 0
        if i + 1 < block_end and work.packing == NULL:
            block += 4
            ahead = panel_of(work, group, block, first, block[2] * work.lanes, s)
            ahead += work.size * residue[3] * kc * block[2] * work.lanes
            lines = work.size * taps * kc * block[2] * work.lanes // 64
        if pieces == 1:
            end[0] = total
        position = piece = 0
        while position < total:
            begin = position
            length = end[piece] - (end[piece - 1] if piece else 0)
            piece = (piece + 1) % pieces
            tiles = (length + limit - 1) // limit
            for tile in range(tiles):
                next = begin + length * (tile + 1) // tiles
                fetch_ahead(ahead, 64, lines * position // total, lines * next // total, 64)
                if work.b.exact_halo:
                    run_position(work, nv, taps, kc, row + position, total, weights,
                                 result + position, shift, more)
                else:
                    run_inside(work, next - position, nv, taps, kc, row + position, total, weights,
                               result + position, shift, more, s.zeros)
                position = next


# COLUMNS and AMX work on units: runs of positions that read consecutive window entries. With
# `flatten` the rows of a plane are one unit: the few sums at the row ends, which mix two rows, cost
# less than short rows would, and are never stored.


cdef inline Py_ssize_t unit_length(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return the positions of a unit, padded to whole vectors or tiles."""
    cdef Py_ssize_t tile = AMX_ROWS if work.b.kernel == AMX else work.lanes
    cdef Py_ssize_t length = count[2]
    if work.b.flatten:
        length += (count[1] - 1) * work.axis[2].window
    return (length + tile - 1) // tile * tile


cdef inline Py_ssize_t unit_rows(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return the units of a plane."""
    return 1 if work.b.flatten else count[1]


cdef Py_ssize_t class_extent(const Work *work, const Py_ssize_t *count) noexcept nogil:
    """Return how many positions of scratch a residue class takes."""
    if work.b.kernel == COLUMNS or work.b.kernel == AMX:
        return unit_length(work, count) * count[0] * unit_rows(work, count)
    return count[0] * count[1] * count[2]


cdef void class_pitch(const Work *work, const Py_ssize_t *count, Py_ssize_t *pitch) noexcept nogil:
    """Tell how many positions of scratch lie from one d, h and w to the next."""
    cdef Py_ssize_t unit
    pitch[2] = 1
    pitch[1] = count[2]
    pitch[0] = count[1] * count[2]
    if work.b.kernel == COLUMNS or work.b.kernel == AMX:
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


# A tile's results on their way to diff_src, channels last.
cdef struct Pending:
    Py_ssize_t first        # position of the unit, and how many
    Py_ssize_t positions
    Py_ssize_t channels
    const char *c
    char *dst               # where the unit's first position goes


cdef void store_pending(const Work *work, const Py_ssize_t *count, const Pending *p,
                        const Py_ssize_t *step) noexcept nogil:
    """Round a tile's results into diff_src."""
    cdef Py_ssize_t end = p.first + p.positions
    cdef Py_ssize_t row_pitch = work.axis[2].window if work.b.flatten else end
    cdef Py_ssize_t rows = count[1] if work.b.flatten else 1
    cdef Py_ssize_t pitch = work.b.result_pitch
    cdef Py_ssize_t at = p.first
    cdef Py_ssize_t row, column, span
    while at < end:
        row, column = at // row_pitch, at % row_pitch
        if row >= rows:
            return
        span = min(end, (row + 1) * row_pitch) - at
        if column < count[2]:
            store_rows(work.b.dtype, p.c + (at - p.first) * pitch * work.size, pitch,
                       p.dst + row * step[1] + column * step[2], step[2],
                       min(span, count[2] - column), p.channels, work.accumulate)
        at += span


cdef const char *point_tiles(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                             Py_ssize_t chunk, const Py_ssize_t *residue, const Scratch *s,
                             Py_ssize_t *offset, Py_ssize_t *step) noexcept nogil:
    """Return where a class's first position is read, the bytes to each tap, and to d, h and w."""
    cdef Py_ssize_t t, axis
    cdef Py_ssize_t pitch = window_pitch(work, chunk) * work.window_size
    cdef const Py_ssize_t *tap
    cdef const char *source = s.window
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
                      const Scratch *s, int more) noexcept nogil:
    """Compute a residue class with AMX tiles, as many channel blocks at a time as stay in cache."""
    cdef Py_ssize_t taps = residue[4] - residue[3]
    cdef Py_ssize_t panel = taps * window_pitch(work, chunk) * 2 * AMX_COLUMNS * work.window_size
    cdef Py_ssize_t blocks = max(1, AMX_PANELS // max(1, panel))
    cdef Py_ssize_t i
    for i in range(0, (block_end - block_begin + blocks - 1) // blocks):
        compute_tiles(work, task, group, first, chunk, block_begin + i * blocks,
                      min(block_end, block_begin + (i + 1) * blocks), residue, count, c, s, more)


cdef void compute_tiles(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                        Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                        const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                        const Scratch *s, int more) noexcept nogil:
    """Compute some channel blocks of a residue class; c is [position][channel].

    Direct, a tile's results go on to diff_src when the next tile is on its way: what AMX has just
    stored cannot be loaded at once. Without a window the last tile of a unit begins early enough
    to end with it.
    """
    cdef Py_ssize_t taps = residue[4] - residue[3]
    cdef Py_ssize_t kc = window_pitch(work, chunk)
    cdef Py_ssize_t c_pitch = work.b.result_pitch * work.size
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t unit = unit_length(work, count)
    cdef Py_ssize_t end = unit if work.b.windowed else count[2]
    cdef Py_ssize_t limit = 2 * AMX_ROWS if work.b.windowed or end >= 2 * AMX_ROWS else AMX_ROWS
    cdef Py_ssize_t rows = unit_rows(work, count)
    cdef Py_ssize_t jd, jh, j, at, i, height
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef const char *unit_source
    cdef char *target
    cdef char *base = result_place(work, task, group, residue, out_step)
    cdef Pending pending
    cdef int buffer = 0
    pending.first = pending.positions = 0
    for jd in range(count[0]):
        for jh in range(rows):
            unit_source = source + jd * step[0] + jh * step[1]
            j = 0
            while j < end:
                height = 2 if end - j > AMX_ROWS and limit > AMX_ROWS else 1
                at = j
                if not work.b.windowed:
                    height = limit // AMX_ROWS
                    at = min(j, end - limit)
                for i in range(block_begin, block_end):
                    block = work.block + 4 * i
                    weights = panel_of(work, group, block, first, block[2] * AMX_COLUMNS, s)
                    weights += work.window_size * residue[3] * kc * block[2] * AMX_COLUMNS
                    if work.b.direct:
                        target = s.result + buffer * 2 * AMX_ROWS * c_pitch
                        buffer = 1 - buffer
                    else:
                        target = c + ((jd * rows + jh) * unit + at) * c_pitch
                        target += (block[0] - work.block[4 * task.block_begin]) * work.size
                    run_amx(height, block[2], taps, kc, unit_source + at * step[2], step[2], offset,
                            weights, target, c_pitch, more)
                    if work.b.direct:
                        store_pending(work, count, &pending, out_step)
                        pending.first, pending.positions = j, min(limit, end - j)
                        pending.channels, pending.c = block[1], target + (j - at) * c_pitch
                        pending.dst = base + block[0] * work.diff_src.stride[1]
                        pending.dst += jd * out_step[0] + jh * out_step[1]
                j += limit
    if work.b.direct:
        store_pending(work, count, &pending, out_step)
