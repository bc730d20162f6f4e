# DOT without AMX: tiles of any positions of a plane, each a row of vectors of channels.

cdef enum:
    MOST_POSITIONS = 48     # that meet a panel before the next one
    TILE_POSITIONS = 12


cdef void point_positions(Py_ssize_t width, Py_ssize_t first, Py_ssize_t end, const char *source,
                          Py_ssize_t step, Py_ssize_t row_step, char *place, Py_ssize_t out_step,
                          Py_ssize_t out_row_step, const char **a, char **c) noexcept nogil:
    """Point to where positions of some rows are read and where their results go."""
    cdef Py_ssize_t row = first // width
    cdef Py_ssize_t column = first % width
    cdef Py_ssize_t p, stop
    cdef const char *source_row
    cdef char *place_row
    while first < end:
        source_row = source + row * row_step + column * step
        place_row = place + row * out_row_step + column * out_step
        stop = min(end - first, width - column)
        for p in range(stop):  # in vectors
            a[p] = source_row + p * step
            c[p] = place_row + p * out_step
        a, c = a + stop, c + stop
        first += stop
        row, column = row + 1, 0


cdef Py_ssize_t cut_wide(const Work *work, const Task *task, const Py_ssize_t *residue,
                         Py_ssize_t width, Py_ssize_t *end) noexcept nogil:
    """Cut a row where taps begin or end to lie inside; return the number of pieces, 1 if none do.

    Merged taps are one for all of a row.
    """
    if work.b.merge > 1 or width < 2 * TILE_POSITIONS:
        return 1
    return cut_row(work, task, residue, width, TILE_POSITIONS // 2, end)


cdef Py_ssize_t piece_end(const Py_ssize_t *end, Py_ssize_t begin, Py_ssize_t most) noexcept nogil:
    """Return where a piece that begins at `begin` ends: even ones of up to `most` positions."""
    cdef Py_ssize_t left
    while end[0] <= begin:
        end += 1
    left = end[0] - begin
    return begin + left // ((left + most - 1) // most)


cdef Py_ssize_t meet(const Work *work, const Task *task, const Py_ssize_t *residue,
                     const Py_ssize_t *count, Py_ssize_t jd, Py_ssize_t row, Py_ssize_t rows,
                     Py_ssize_t begin, Py_ssize_t end, bint wide, const Py_ssize_t *offset,
                     Py_ssize_t *taken, Py_ssize_t *index) noexcept nogil:
    """Tell the taps that do not read outside for all of some positions; return how many.

    `wide`, these are of one row.
    """
    cdef Py_ssize_t found = 0
    cdef Py_ssize_t t, low, high, first, last
    trim_taps(work, task, residue, jd, row, rows, &low, &high)
    for t in range(low, high):
        if wide:
            inside_of(work, task, work.tap[3 * (residue[3] + t) + 2], count[2], &first, &last)
            if (begin % count[2] >= last or (end - 1) % count[2] < first
                    or rows_outside(work, task, residue[3] + t, jd, row, rows)):
                continue
        taken[found], index[found] = offset[t], t
        found += 1
    return found


cdef int finite_results(const Work *work, const Task *task, Py_ssize_t group,
                        const Py_ssize_t *residue, const Py_ssize_t *count) noexcept nogil:
    """Return whether all results of a class are finite that are blocks of pixels, in place."""
    cdef Py_ssize_t step[3]
    cdef const char *place = result_place(work, task, group, residue, step)
    cdef Py_ssize_t jd, jh
    cdef int fine = 1
    for jd in range(count[0]):
        for jh in range(count[1]):
            fine &= all_finite_bf16(<const unsigned short *> (place + jd * step[0] + jh * step[1]),
                                    count[2] * work.b.input_channels)
    return fine


cdef void compute_vectors(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                          Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                          const Py_ssize_t *residue, const Py_ssize_t *count, char *sums,
                          const Scratch *s, int more) noexcept nogil:
    """Compute some channel blocks of a residue class; sums, unless direct, are [position][channel]."""
    cdef Py_ssize_t kc = depth_of(work, chunk)
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef char *place = result_place(work, task, group, residue, out_step)
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef bint rounded = work.b.direct or work.b.rounded
    cdef int how = more or (STREAM if work.streams else BEGIN)
    cdef Py_ssize_t taps = residue[4] - residue[3]
    cdef Py_ssize_t *taken = offset + taps
    cdef Py_ssize_t *index = taken + taps
    # Where taps are far apart, pieces of single rows do without many of them.
    cdef Py_ssize_t cuts[MOST_PIECES]
    cdef bint wide = cut_wide(work, task, residue, count[2], cuts) > 1
    # A plane at a time, or a row of all planes.
    cdef Py_ssize_t outer = rows_abreast(work, task, residue, count) and (
        count[0] * count[2] >= 2 * TILE_POSITIONS)
    cdef Py_ssize_t inner = 1 - outer
    cdef Py_ssize_t lines = count[inner] if wide else 1
    cdef Py_ssize_t length = count[inner] * count[2] // lines
    cdef Py_ssize_t i, j, jd, begin, end, following, row, rows, channel
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *a[MOST_POSITIONS + TILE_POSITIONS]
    cdef char *c[MOST_POSITIONS + TILE_POSITIONS]
    cdef bint asks = asks_ahead(work, kc)
    if not work.b.direct:
        unit = work.result_size
        out_step[2] = work.b.result_pitch * unit
        out_step[1] = out_step[2] * count[2]
        out_step[0] = out_step[1] * count[1]
        place = sums - work.block[4 * task.block_begin] * unit
    if not wide:
        cuts[0] = length
    for j in range(count[outer]):
        end = 0
        while end < length * lines:
            begin = end
            end += piece_end(cuts, begin % length, MOST_POSITIONS) - begin % length
            following = min(TILE_POSITIONS, length * lines - end) if asks else 0
            point_positions(count[2], begin, end + following, source + j * step[outer], step[2],
                            step[inner], place + j * out_step[outer], out_step[2],
                            out_step[inner], a, c)
            jd, row = j, begin // count[2]
            rows = (end - 1) // count[2] + 1 - row
            if outer == 1:
                jd, row, rows = 0, j, 1
            taps = meet(work, task, residue, count, jd, row, rows, begin, end, wide, offset, taken,
                        index)
            for i in range(block_begin, block_end):
                block = work.block + 4 * i
                channel = block[0]
                weights = panel_of(work, group, block, first, block[2] * DOT_COLUMNS, s)
                weights += work.window_size * residue[3] * kc * block[2] * DOT_COLUMNS
                # Abreast, a group's channels are where its results are.
                run_vectors(end - begin, block[2], taps, kc, a,
                            channel * work.window_size if work.b.abreast > 1 else 0, taken, index,
                            weights, c, channel * unit, block[1], rounded, how,
                            following if i == block_begin else 0)
