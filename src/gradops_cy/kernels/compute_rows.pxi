# ROWS: from a window, or diff_dst itself, to the sums of one residue class, tile by tile. Channels
# are lanes.

cdef enum:
    TOUCHED_TILES = 2       # how many tiles ahead lines are asked for that are written to


cdef void point_tap(const Work *work, const Task *task, const char *base, Py_ssize_t pitch,
                    const Py_ssize_t *tap, const Region *region, Py_ssize_t depths,
                    Py_ssize_t heights, Py_ssize_t columns, const Scratch *s,
                    const char **row) noexcept nogil:
    """Fill row[position] with what a tap reads, wherever that lies, for the first of a region."""
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef const Py_ssize_t *stride = work.diff_dst.stride
    cdef const Py_ssize_t *entry = width.index + tap[2] * width.pitch + region.first[2]
    cdef Py_ssize_t step = width.in_step * stride[4]
    cdef Py_ssize_t jd, jh, j
    cdef const char *source
    base += (width.offset[tap[2]] + (task.start[2] + region.first[2]) * width.in_step) * stride[4]
    for jd in range(region.first[0], region.first[0] + depths):
        for jh in range(region.first[1], region.first[1] + heights):
            if work.b.windowed:
                source = s.window + pitch * width.window * (
                    depth.index[tap[0] * depth.pitch + jd] * height.window
                    + height.index[tap[1] * height.pitch + jh])
                for j in range(columns):
                    row[j] = source + entry[j] * pitch
            else:
                source = base + stride[2] * (
                    depth.offset[tap[0]] + (task.start[0] + jd) * depth.in_step)
                source += stride[3] * (
                    height.offset[tap[1]] + (task.start[1] + jh) * height.in_step)
                for j in range(columns):
                    row[j] = source + j * step
            row += columns


cdef void point_outside(const Region *region, const Py_ssize_t *low, const Py_ssize_t *high,
                        const char *outside, const char **row) noexcept nogil:
    """Let the positions of a region point outside that are not `low` to `high` - 1 on some axis."""
    cdef Py_ssize_t columns = region.count[2]
    cdef Py_ssize_t jd, jh, j, begin, end
    for jd in range(region.count[0]):
        for jh in range(region.count[1]):
            begin, end = low[2], high[2]
            if not (low[0] <= jd < high[0] and low[1] <= jh < high[1]):
                begin, end = columns, columns
            for j in range(begin):
                row[j] = outside
            for j in range(end, columns):
                row[j] = outside
            row += columns


cdef void point_rows(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                     Py_ssize_t chunk, const Py_ssize_t *residue, const Py_ssize_t *count,
                     const Region *region, Py_ssize_t positions, const Scratch *s,
                     const char **known, const char **row) noexcept nogil:
    """Fill row[tap][position] for a region; zeros outside, NULL with exact_halo.

    A run of merged taps may lie half outside: those read the zeros of the window. Where all taps
    step alike, what each reads is as far from what the first one reads, which is `known`: finding
    it for few positions at a time took half the time of sums over many taps.
    """
    cdef Py_ssize_t pitch = window_pitch(work, chunk) * work.size
    cdef Py_ssize_t total = region.count[0] * region.count[1] * region.count[2]
    # But in windows that are sorted by coordinates, of which some are left out.
    cdef bint alike = not work.b.windowed or (
        work.axis[0].in_step == work.axis[1].in_step == work.axis[2].in_step == 1)
    cdef Py_ssize_t t, axis, m, shift
    cdef Py_ssize_t low[3]
    cdef Py_ssize_t high[3]
    cdef bint some, whole
    cdef const Py_ssize_t *tap
    cdef const char *outside = NULL if work.b.exact_halo else s.zeros
    cdef const char *base = work.diff_dst.data + task.image * work.diff_dst.stride[0]
    base += (group * work.b.output_channels + first) * work.diff_dst.stride[1]
    alike = alike and residue[3] + 1 < residue[4]
    if alike:
        point_tap(work, task, base, pitch, work.tap + 3 * residue[3], region, region.count[0],
                  region.count[1], region.count[2], s, known)
    for t in range(residue[3], residue[4]):
        tap = work.tap + 3 * t
        some, whole = True, True
        for axis in range(3):
            if axis == 2 and work.b.merge > 1:
                low[axis], high[axis] = 0, region.count[axis]
            elif t == residue[3] or tap[axis] != tap[axis - 3]:
                inside_of(work, task, axis, tap[axis], count[axis], &low[axis], &high[axis])
                low[axis] = max(0, low[axis] - region.first[axis])
                high[axis] = min(region.count[axis], high[axis] - region.first[axis])
            some = some and low[axis] < high[axis]
            whole = whole and high[axis] - low[axis] == region.count[axis]
        if not some:
            for m in range(total):
                row[m] = outside
        elif alike:
            point_tap(work, task, base, pitch, tap, region, 1, 1, 1, s, row)
            shift = row[0] - known[0]
            for m in range(total):
                row[m] = known[m] + shift
        else:
            point_tap(work, task, base, pitch, tap, region, region.count[0], region.count[1],
                      region.count[2], s, row)
        if some and not whole:
            point_outside(region, low, high, outside, row)
        row += positions


cdef void point_results(const Work *work, const Task *task, Py_ssize_t group,
                        const Py_ssize_t *residue, const Py_ssize_t *count, const Region *region,
                        char *c, char **result) noexcept nogil:
    """Fill result[position] with where the block's first channel goes: scratch or diff_src."""
    cdef Py_ssize_t jd, jh, j
    cdef Py_ssize_t step[3]
    cdef char *base = result_place(work, task, group, residue, step)
    cdef char *place
    base += work.block[4 * task.block_begin] * work.diff_src.stride[1]
    if not work.b.direct:
        step[2] = work.b.result_pitch * work.size
        step[1] = count[2] * step[2]
        step[0] = count[1] * step[1]
        base = c
    base += region.first[2] * step[2]
    for jd in range(region.first[0], region.first[0] + region.count[0]):
        for jh in range(region.first[1], region.first[1] + region.count[1]):
            place = base + jd * step[0] + jh * step[1]
            for j in range(region.count[2]):
                result[j] = place + j * step[2]
            result += region.count[2]


# What tiles of ROWS add up.
cdef struct Rows:
    Py_ssize_t taps
    Py_ssize_t kc                   # products of a tap
    const char **row                # [tap][position], NULL or zeros outside
    Py_ssize_t positions
    Py_ssize_t row_shift            # in elements, what to read of a row begins
    char **result                   # [position]
    char **sums                     # of a tile that are to be rounded on their way there; or NULL
    Py_ssize_t result_shift
    Py_ssize_t channels             # of a block
    Py_ssize_t nv                   # vectors of them
    bint half                       # ... of which the last one has none in its second half
    int last                        # channels of the last one that are written
    const char *weights             # [tap][k][nv]
    const char *outside
    int more                        # the results go on from what they hold
    int begins                      # how they do else: BEGIN, STREAM
    bint asks                       # for what the next tile reads


cdef inline void run_taps(const Work *work, const Rows *r, Py_ssize_t position, Py_ssize_t positions,
                          Py_ssize_t first, Py_ssize_t last, int how) noexcept nogil:
    """Add up taps `first` to `last` - 1 for some positions, as many as a tile may have."""
    cdef bint asks = r.asks and position + 2 * positions <= r.positions
    run_rows(work.f64, positions, <int> r.nv, r.half, last - first, r.kc,
             r.row + first * r.positions + position, r.positions, r.row_shift,
             positions if asks else 0, work.axis[2].in_step > 1,
             r.weights + first * r.kc * r.nv * work.lanes * work.size,
             r.sums if r.sums else r.result + position, 0 if r.sums else r.result_shift, r.last, how)


cdef void run_position(const Work *work, const Rows *r, Py_ssize_t position) noexcept nogil:
    """Compute one position tap by tap, leaving out the taps that read outside diff_dst.

    A zero there times an infinite weight would be NaN; this is the path for such weights.
    """
    cdef Py_ssize_t t
    if not r.more:
        run_taps(work, r, position, 1, 0, 0, 0)
    for t in range(r.taps):
        if r.row[t * r.positions + position] != NULL:
            run_taps(work, r, position, 1, t, t + 1, 1)


cdef void run_inside(const Work *work, const Rows *r, Py_ssize_t position,
                     Py_ssize_t positions) noexcept nogil:
    """Compute a tile without the taps that lie outside for all of its positions.

    They would add nothing: zeros times finite weights.
    """
    cdef const char **row = r.row + position
    cdef Py_ssize_t begin = 0
    cdef Py_ssize_t t, m
    cdef int more = r.more
    for t in range(r.taps):
        m = 0
        while m < positions and row[t * r.positions + m] == r.outside:
            m += 1
        if m == positions:
            if t > begin:
                run_taps(work, r, position, positions, begin, t, more)
                more = 1
            begin = t + 1
    if r.taps > begin or not more:
        run_taps(work, r, position, positions, begin, r.taps, more or r.begins)


cdef inline bint planes_are_alike(const Work *work, const Task *task,
                                  const Py_ssize_t *count) noexcept nogil:
    """Return whether all planes of transformed patches are read alike, and none of padding."""
    cdef const Axis *depth = &work.axis[0]
    return (work.b.winograd and depth.taps == 1 and source_of(depth, task.start[0], 0, 0) >= 0
            and source_of(depth, task.start[0], 0, count[0] - 1) >= 0)


cdef void point_all(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                    Py_ssize_t chunk, Py_ssize_t block_begin, const Py_ssize_t *residue,
                    const Py_ssize_t *count, char *c, const Scratch *s, Rows *r) noexcept nogil:
    """Point to rows and results, or move on from where they have been pointed to.

    Groups of few channels, and their transformed patches, would else take a fifth of their time.
    """
    cdef bint alone = task.class_end - task.class_begin == 1
    cdef bint again = alone and block_begin != task.block_begin
    cdef Py_ssize_t plane = (residue - work.residue) // 5
    cdef Py_ssize_t position = 0
    cdef Region region
    r.row_shift = r.result_shift = 0
    if alone and not work.b.windowed:
        r.row_shift = (group - task.group) * work.b.output_channels + first
        if work.b.direct:
            r.result_shift = (group - task.group) * work.b.input_channels
        again = again or group != task.group or first > 0
        group, first = task.group, 0
    elif planes_are_alike(work, task, count):
        r.row_shift, r.result_shift = plane * work.b.window_plane, plane * work.b.result_plane
        again = plane > 0 or block_begin != task.block_begin
    r.result = <char **> s.pointers
    r.row = <const char **> s.pointers + 2 * r.positions
    if again:
        return
    first_region(work, task, residue, count, &region)
    while True:
        point_results(work, task, group, residue, count, &region, c, r.result + position)
        point_rows(work, task, group, first, chunk, residue, count, &region, r.positions, s,
                   <const char **> s.pointers + r.positions, r.row + position)
        position += region.count[0] * region.count[1] * region.count[2]
        if not next_region(work, task, residue, count, &region):
            return


cdef void touch_results(const Rows *r, Py_ssize_t begin, Py_ssize_t end,
                        Py_ssize_t size) noexcept nogil:
    """Ask for the lines that the results of some positions are written to."""
    cdef Py_ssize_t position
    for position in range(begin, min(end, r.positions)):
        fetch_to_write(r.result[position] + size * r.result_shift, 0, 0, 1, size * r.channels)


cdef Py_ssize_t gather_few(const Work *work, Py_ssize_t group, Py_ssize_t first, Py_ssize_t begin,
                           Py_ssize_t end, const Py_ssize_t *residue, const Scratch *s, Rows *r,
                           FewWeights *few) noexcept nogil:
    """Gather the weights of as many channel blocks as there is room for; return the one after them.

    Whole positions are written then, one after the other: stores that leave gaps for other blocks
    are not foreseen.
    """
    cdef Py_ssize_t room = FEW_WEIGHTS // (r.kc * work.lanes)
    cdef Py_ssize_t i = begin
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t k, width
    cdef const Py_ssize_t *block = work.block + 4 * begin
    cdef const char *panel
    r.nv = r.channels = 0
    while i < end and (i == begin or r.nv + block[2] <= room):
        r.channels, r.nv = r.channels + block[1], r.nv + block[2]
        i, block = i + 1, block + 4
    end = i
    for i in range(begin, end):
        block = work.block + 4 * i
        width = block[2] * work.lanes
        panel = panel_of(work, group, block, first, width, s)
        panel += work.size * residue[3] * r.kc * width
        for k in range(r.kc):
            memcpy(few.w + k * r.nv * work.lanes + at, panel + k * width * work.size,
                   width * work.size)
        at += width
    return end


cdef void compute_rows(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                       Py_ssize_t chunk, Py_ssize_t block_begin, Py_ssize_t block_end,
                       const Py_ssize_t *residue, const Py_ssize_t *count, char *c,
                       const Scratch *s, int more) noexcept nogil:
    """Compute a residue class with the ROWS tile."""
    cdef Rows r
    cdef Region region
    cdef Py_ssize_t i, tile, tiles, position, next, begin, length, limit
    cdef Py_ssize_t origin, ldb, lines
    cdef const Py_ssize_t *block
    cdef const char *ahead
    cdef char *sums[MR_MAX]
    cdef FewWeights weights
    cdef bint few
    cdef bint touches = work.b.touches and not work.streams
    r.taps, r.kc = residue[4] - residue[3], chunk * work.b.merge
    r.positions = count[0] * count[1] * count[2]
    r.outside, r.more = s.zeros, more
    r.begins = STREAM if work.streams and chunk == work.b.output_channels else BEGIN
    r.sums = NULL
    if work.b.direct and element_size(work.b.dtype) < work.size:
        r.begins, r.sums = BEGIN, sums
    point_all(work, task, group, first, chunk, block_begin, residue, count, c, s, &r)
    origin = r.result_shift - work.block[4 * task.block_begin]
    few = (work.b.direct and r.taps == 1 and r.kc <= FEW_PRODUCTS
           and not (more or work.f64 or work.b.exact_halo))
    i = block_begin
    while few and i < block_end:
        r.result_shift = origin + work.block[4 * i]
        i = gather_few(work, group, first, i, block_end, residue, s, &r, &weights)
        few_products(work.b.dtype, r.kc, r.nv, r.row, r.row_shift, weights.w, r.result,
                     r.result_shift, r.positions, r.channels, work.streams)
    for i in range(i, block_end):
        block = work.block + 4 * i
        r.channels, r.nv, r.last = block[1], block[2], <int> work.lanes
        ldb = r.nv * work.lanes
        r.half = HAVE_HALVES and r.nv > 1 and 2 * r.channels <= (2 * r.nv - 1) * work.lanes
        if r.sums:
            for tile in range(MR_MAX):
                sums[tile] = s.result + tile * ldb * work.size
        elif work.b.direct:
            r.last = <int> (block[1] - (block[2] - 1) * work.lanes)
        r.asks = i == block_begin and asks_ahead(work, chunk)
        r.result_shift = origin + block[0]
        r.weights = panel_of(work, group, block, first, ldb, s)
        r.weights += work.size * residue[3] * r.kc * ldb
        limit = 1 if work.b.exact_halo else tile_rows(r.nv)
        # The next panel comes from memory while this one is used.
        lines = 0
        if i + 1 < block_end and work.packing == NULL:
            block += 4
            ahead = panel_of(work, group, block, first, block[2] * work.lanes, s)
            ahead += work.size * residue[3] * r.kc * block[2] * work.lanes
            lines = work.size * r.taps * r.kc * block[2] * work.lanes // 64
        position = 0
        first_region(work, task, residue, count, &region)
        while True:
            begin = position
            length = region.count[0] * region.count[1] * region.count[2]
            tiles = (length + limit - 1) // limit
            for tile in range(tiles):
                next = begin + length * (tile + 1) // tiles
                fetch_ahead(ahead, 64, lines * position // r.positions,
                            lines * next // r.positions, 64)
                if touches:
                    touch_results(&r, position + TOUCHED_TILES * limit, next + TOUCHED_TILES * limit,
                                  element_size(work.b.dtype))
                if work.b.exact_halo:
                    run_position(work, &r, position)
                else:
                    run_inside(work, &r, position, next - position)
                if r.sums:
                    store_tile(work.b.dtype, <float *> s.result, ldb, r.result + position,
                               r.result_shift, next - position, r.channels, work.streams)
                position = next
            if not next_region(work, task, residue, count, &region):
                break
