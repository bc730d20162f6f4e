# DOT without AMX: tiles of any positions of a region, each a row of vectors of channels.

cdef enum:
    MOST_POSITIONS = 48     # that meet a panel before the next one
    TILE_POSITIONS = 12


cdef void point_positions(const Region *region, Py_ssize_t begin, Py_ssize_t end,
                          const char *source, const Py_ssize_t *step, char *place,
                          const Py_ssize_t *out_step, const char **a, char **c) noexcept nogil:
    """Point to where positions `begin` to `end` - 1 of a region are read and their results go."""
    cdef Py_ssize_t rows = region.count[1]
    cdef Py_ssize_t columns = region.count[2]
    cdef Py_ssize_t line = begin // columns
    cdef Py_ssize_t j = begin % columns
    cdef Py_ssize_t jd, jh, p, stop
    cdef const char *from_
    cdef char *to
    while begin < end:
        jd, jh = region.first[0] + line // rows, region.first[1] + line % rows
        j += region.first[2]
        from_ = source + jd * step[0] + jh * step[1] + j * step[2]
        to = place + jd * out_step[0] + jh * out_step[1] + j * out_step[2]
        stop = min(end - begin, region.first[2] + columns - j)
        for p in range(stop):  # in vectors
            a[p] = from_ + p * step[2]
            c[p] = to + p * out_step[2]
        a, c = a + stop, c + stop
        begin += stop
        line, j = line + 1, 0


cdef Py_ssize_t taps_of(const Work *work, const Task *task, const Py_ssize_t *residue,
                        const Py_ssize_t *count, const Region *region, const Py_ssize_t *offset,
                        Py_ssize_t *taken, Py_ssize_t *index) noexcept nogil:
    """Tell the taps that do not read outside for all of a region; return how many."""
    cdef Py_ssize_t found = 0
    cdef Py_ssize_t t
    for t in range(residue[4] - residue[3]):
        if not lies_outside(work, task, residue[3] + t, count, region):
            taken[found], index[found] = offset[t], t
            found += 1
    return found


cdef int finite_results(const Work *work, const Task *task, Py_ssize_t group,
                        const Py_ssize_t *residue, const Py_ssize_t *count) noexcept nogil:
    """Return whether all results of a class are finite that are in place."""
    cdef Py_ssize_t step[3]
    cdef const char *place = result_place(work, task, group, residue, step)
    cdef Py_ssize_t channels = work.b.input_channels
    cdef Py_ssize_t together = count[2] if step[2] == 2 * channels else 1
    cdef Py_ssize_t jd, jh, j
    cdef const char *row
    cdef int fine = 1
    for jd in range(count[0]):
        for jh in range(count[1]):
            row = place + jd * step[0] + jh * step[1]
            j = 0
            while j < count[2]:
                fine &= all_finite_bf16(<const unsigned short *> (row + j * step[2]),
                                        together * channels)
                j += together
    return fine


cdef inline const char *tap_panel(const Work *work, Py_ssize_t group, const Py_ssize_t *block,
                                  Py_ssize_t first, Py_ssize_t kc, Py_ssize_t tap,
                                  const Scratch *s) noexcept nogil:
    """Return a tap's part of the panel of a channel block."""
    cdef Py_ssize_t width = block[2] * DOT_COLUMNS
    return panel_of(work, group, block, first, width, s) + work.window_size * tap * kc * width


cdef inline Py_ssize_t blocks_together(const Work *work, Py_ssize_t blocks) noexcept nogil:
    """Return how many channel blocks sums of few products take together."""
    return blocks if work.packing == NULL and work.b.nv == 2 else 1


cdef inline bint sums_few_pairs(const Work *work, Py_ssize_t kc,
                                Py_ssize_t together) noexcept nogil:
    """Return whether sums of a tap need no tile. Abreast, blocks would read other channels each."""
    cdef Py_ssize_t more = min(2, together - 1) * MORE_PAIRED
    return work.b.direct and kc <= FEW_PAIRED + more and work.b.abreast == 1


cdef FewPairs few_pairs_of_tap(const Work *work, Py_ssize_t group, Py_ssize_t begin, Py_ssize_t end,
                               Py_ssize_t first, Py_ssize_t chunk, Py_ssize_t tap,
                               const Scratch *s) noexcept nogil:
    """Return what is multiplied with a tap of channel blocks `begin` to `end` - 1."""
    cdef FewPairs few
    cdef const Py_ssize_t *block = work.block + 4 * begin
    cdef const Py_ssize_t *last = work.block + 4 * (end - 1)
    cdef Py_ssize_t kc = depth_of(work, chunk)
    few.panel = tap_panel(work, group, block, first, kc, tap, s)
    few.last_panel = tap_panel(work, group, last, first, kc, tap, s)
    few.blocks, few.channels, few.nv = end - begin - 1, last[1], <int> last[2]
    few.block_bytes = (block[7] - block[3]) * work.panel_size if few.blocks else 0
    few.pairs = <int> (kc // 2)
    few.single = not work.b.windowed and chunk % 2
    few.streams, few.checks = work.streams, work.b.checks
    return few


cdef int compute_few_pairs(const FewPairs *few, const Region *region, const char *source,
                           const Py_ssize_t *step, char *place,
                           const Py_ssize_t *out_step) noexcept nogil:
    """Compute the rows of a region; return whether sums are as checked."""
    cdef Py_ssize_t jd, jh
    cdef int fine = 1
    source += region.first[2] * step[2]
    place += region.first[2] * out_step[2]
    for jd in range(region.first[0], region.first[0] + region.count[0]):
        for jh in range(region.first[1], region.first[1] + region.count[1]):
            fine &= run_few_pairs(few, source + jd * step[0] + jh * step[1], step[2],
                                  place + jd * out_step[0] + jh * out_step[1], out_step[2],
                                  region.count[2])
    return fine


cdef int compute_vectors(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                         Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                         const Py_ssize_t *residue, const Py_ssize_t *count, char *sums,
                         const Scratch *s, int more) noexcept nogil:
    """Compute some channel blocks of a residue class; sums, unless direct, are [position][channel].

    Return whether results in place are as checked.
    """
    cdef Py_ssize_t kc = depth_of(work, chunk)
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t step[3]
    cdef Py_ssize_t out_step[3]
    cdef const char *source = point_tiles(work, task, group, first, chunk, residue, s, offset, step)
    cdef char *place = result_place(work, task, group, residue, out_step)
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef bint rounded = work.b.direct or work.b.rounded
    cdef int how = more or (STREAM if work.streams else BEGIN)
    cdef Py_ssize_t *taken = offset + (residue[4] - residue[3])
    cdef Py_ssize_t *index = taken + (residue[4] - residue[3])
    cdef Py_ssize_t i, begin, end, following, positions, pieces, piece, taps, channel
    cdef const Py_ssize_t *block
    cdef const char *weights
    cdef const char *a[MOST_POSITIONS + TILE_POSITIONS]
    cdef char *c[MOST_POSITIONS + TILE_POSITIONS]
    cdef bint asks = asks_ahead(work, kc)
    cdef Py_ssize_t touched = 0
    cdef Region region
    cdef Py_ssize_t together = blocks_together(work, block_end - block_begin)
    cdef bint few = sums_few_pairs(work, kc, together) and not more
    cdef FewPairs pairs
    cdef int fine = 1
    cdef bint tiles = False
    if not work.b.direct:
        unit = work.result_size
        out_step[2] = work.b.result_pitch * unit
        out_step[1] = out_step[2] * count[2]
        out_step[0] = out_step[1] * count[1]
        place = sums - work.block[4 * task.block_begin] * unit
    elif work.b.touches and not work.streams:
        touched = MOST_POSITIONS * out_step[2]
    first_region(work, task, residue, count, &region)
    while True:
        taps = taps_of(work, task, residue, count, &region, offset, taken, index)
        positions = region.count[0] * region.count[1] * region.count[2]
        if few and taps == 1:
            i = block_begin
            while i < block_end:
                pairs = few_pairs_of_tap(work, group, i, i + together, first, chunk,
                                         residue[3] + index[0], s)
                fine &= compute_few_pairs(&pairs, &region, source + taken[0], step,
                                          place + work.block[4 * i] * unit, out_step)
                i += together
            positions = 0
        tiles |= positions > 0 and taps > 0
        pieces = (positions + MOST_POSITIONS - 1) // MOST_POSITIONS
        end = 0
        for piece in range(pieces):
            begin, end = end, positions * (piece + 1) // pieces
            following = min(TILE_POSITIONS, positions - end) if asks else 0
            point_positions(&region, begin, end + following, source, step, place, out_step, a, c)
            for i in range(block_begin, block_end):
                block = work.block + 4 * i
                channel = block[0]
                weights = tap_panel(work, group, block, first, kc, residue[3], s)
                # Abreast, a group's channels are where its results are.
                run_vectors(end - begin, block[2], taps, kc, a,
                            channel * work.window_size if work.b.abreast > 1 else 0, taken, index,
                            weights, c, channel * unit, block[1], rounded, how,
                            following if i == block_begin else 0, touched)
        if not next_region(work, task, residue, count, &region):
            break
    if tiles and work.b.checks and work.b.direct:
        fine &= finite_results(work, task, group, residue, count)
    return fine
