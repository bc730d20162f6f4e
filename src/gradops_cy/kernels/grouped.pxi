# Groups with few channels, lanes over the channels of many groups (see grouped.h).

cdef extern from "grouped.h" nogil:
    ctypedef struct Spread:
        Py_ssize_t depth
        Py_ssize_t columns
        Py_ssize_t rows
        Py_ssize_t vectors
        Py_ssize_t channels
        Py_ssize_t *start
        char *index
        Py_ssize_t pitch
    void plan_spread(int f64, Spread *s, Py_ssize_t inputs, Py_ssize_t first,
                     Py_ssize_t lanes) noexcept
    void spread(int dtype, const Spread *s, const char *src, Py_ssize_t step, Py_ssize_t entries,
                char *dst) noexcept
    void run_group_span(int dtype, const Span *span, Py_ssize_t first, Py_ssize_t positions,
                        Py_ssize_t lanes, char *dst) noexcept


# A residue class within a task.
cdef struct LaneClass:
    const Py_ssize_t *tap       # its first
    Py_ssize_t all_taps
    Py_ssize_t taps             # of the last axis
    Py_ssize_t count[3]         # positions
    Py_ssize_t source           # bytes of diff_src to the first position
    const Py_ssize_t *reach     # the source coordinate that each tap of the last axis reads there
    const Py_ssize_t *offset    # ... and the bytes to it in a spread row
    Py_ssize_t first_tap
    int sliding


# A task's tables and the spread rows of one vector of lanes.
cdef struct Ring:
    LaneClass *classes
    char *rows                  # [slot][k / entry_channels][entry][lane]
    Py_ssize_t slots
    Py_ssize_t row_bytes
    Py_ssize_t *held            # [slot]: the source row that it holds, or -1
    Py_ssize_t *offset          # [tap of the last axis]
    Py_ssize_t *reach
    Py_ssize_t *run             # [runs][3]: first entry and source coordinate inside, length
    const char **row
    const char **weight


cdef inline Py_ssize_t ring_slots(const Axis *axis, Py_ssize_t ring) noexcept nogil:
    return ring if ring else axis.taps


cdef inline Py_ssize_t slot_of(Py_ssize_t ring, Py_ssize_t apart, Py_ssize_t y,
                               Py_ssize_t tap) noexcept nogil:
    """Return where a source coordinate's row is kept: no two that a position reads share it."""
    if ring == 1:
        return 0
    if apart > 1:   # a division takes as long as a short row
        y //= apart
    return y % ring if ring else tap


cdef inline Py_ssize_t visited_after(Py_ssize_t j, Py_ssize_t step, Py_ssize_t block) noexcept nogil:
    """Return the position that follows j: those that read rows of the same residue first."""
    return j + step if j + step < block else j % step + 1


cdef inline Py_ssize_t row_entry(const Work *work) noexcept nogil:
    """Return the bytes of an entry of a spread row."""
    return work.b.broadcast * work.size if work.b.broadcast else VECTOR_BYTES


cdef inline Py_ssize_t rows_of_entries(const Work *work) noexcept nogil:
    """Return how many rows of entries hold a group's channels of diff_dst."""
    return (work.b.output_channels + work.b.entry_channels - 1) // work.b.entry_channels


cdef inline Py_ssize_t row_bytes(const Work *work) noexcept nogil:
    """Return the size of a spread row."""
    return rows_of_entries(work) * work.axis[2].window * row_entry(work)


cdef inline Py_ssize_t panel_pitch(const Work *work) noexcept nogil:
    """Return the elements from k to k of the weights."""
    return work.lanes if work.b.broadcast else work.b.group_panel


cdef inline Py_ssize_t ring_bytes(const Work *work) noexcept nogil:
    """Return the size of the spread rows, which come first in the window; 0 for DEPTHWISE."""
    if work.b.kernel != GROUPED:
        return 0
    return (ring_slots(&work.axis[0], work.b.ring_d) * ring_slots(&work.axis[1], work.b.ring_h)
            * row_bytes(work))


cdef Ring open_ring(const Work *work, const Task *task, const Tensor *y, const Scratch *s,
                    char *pointers) noexcept nogil:
    """Lay out a task's tables and fill in what does not change from row to row."""
    cdef const Axis *width = &work.axis[2]
    cdef const Py_ssize_t *residue
    cdef Py_ssize_t t, c, r, low, high, first, step, axis
    cdef LaneClass *p
    cdef Ring ring
    ring.rows = s.window
    ring.row_bytes = row_bytes(work)
    ring.slots = ring_slots(&work.axis[0], work.b.ring_d) * ring_slots(&work.axis[1], work.b.ring_h)
    ring.classes = <LaneClass *> pointers
    ring.held = <Py_ssize_t *> (ring.classes + work.classes)
    ring.offset = ring.held + ring.slots
    ring.reach = ring.offset + width.taps
    ring.run = ring.reach + width.taps
    ring.row = <const char **> (ring.run + 3 * width.runs)
    ring.weight = ring.row + work.axis[0].taps * work.axis[1].taps
    for t in range(width.taps):
        ring.offset[t] = width.index[t] * row_entry(work)
        ring.reach[t] = width.offset[t] + task.start[2] * width.in_step
    for r in range(width.runs):
        first, step = width.run[4 * r + 1] + task.start[2] * width.in_step, width.run[4 * r + 3]
        clip_run(first, step, width.run[4 * r + 2], width.source, &low, &high)
        ring.run[3 * r] = width.run[4 * r] + low
        ring.run[3 * r + 1] = first + low * step
        ring.run[3 * r + 2] = high - low
    # What lies outside stays zero; with exact_halo nobody reads it.
    if not work.b.exact_halo:
        memset(ring.rows, 0, ring.slots * ring.row_bytes)
    for c in range(task.class_begin, task.class_end):
        p = ring.classes + c
        residue = work.residue + 5 * c
        p.tap, p.all_taps = work.tap + 3 * residue[3], residue[4] - residue[3]
        p.first_tap = residue[3]
        p.source = 0
        for axis in range(3):
            p.count[axis] = positions(&work.axis[axis], task.start[axis], residue[axis])
            p.source += y.stride[2 + axis] * (
                task.start[axis] * work.axis[axis].out_step + residue[axis])
        # A class's taps are a grid: those of a row of taps come one after another.
        p.taps = 0
        while (p.taps < p.all_taps and p.tap[3 * p.taps] == p.tap[0]
               and p.tap[3 * p.taps + 1] == p.tap[1]):
            p.taps += 1
        t = p.tap[2] if p.taps else 0
        p.reach, p.offset = ring.reach + t, ring.offset + t
        p.sliding = slides_of(p.reach, p.taps, width.in_step) == 1
    return ring


cdef void spread_entries(const Work *work, const Spread *s, int dtype, const char *src,
                         Py_ssize_t channel_stride, Py_ssize_t step, Py_ssize_t entries,
                         char *dst) noexcept nogil:
    """Spread entries that lie `step` bytes apart, or keep their channels to be broadcast."""
    cdef Py_ssize_t k = 0
    if not work.b.broadcast:
        spread(dtype, s, src, step, entries, dst)
        return
    while k < s.depth:
        load_rows(dtype, src + (s.start[0] + k) * channel_stride, step, entries,
                  min(work.b.broadcast, s.depth - k), dst, work.b.broadcast)
        dst += s.pitch
        k += work.b.broadcast


cdef char *spread_slot(const Work *work, const Spread *s, int dtype, const Tensor *x, Py_ssize_t yd,
                       Py_ssize_t yh, const Py_ssize_t *tap, Ring *ring) noexcept nogil:
    """Return the spread row of a source row, which is spread first unless the ring holds it."""
    cdef const Axis *height = &work.axis[1]
    cdef Py_ssize_t slot = slot_of(work.b.ring_d, work.b.taps_apart_d, yd, tap[0])
    cdef const char *src
    cdef char *row
    cdef Py_ssize_t r, step
    slot = slot * ring_slots(height, work.b.ring_h) + slot_of(work.b.ring_h, work.b.taps_apart_h, yh,
                                                              tap[1])
    row = ring.rows + slot * ring.row_bytes
    if ring.held[slot] != yd * height.source + yh:
        ring.held[slot] = yd * height.source + yh
        src = x.data + yd * x.stride[2] + yh * x.stride[3]
        for r in range(work.axis[2].runs):
            step = work.axis[2].run[4 * r + 3]
            if ring.run[3 * r + 2] > 0:
                spread_entries(work, s, dtype, src + ring.run[3 * r + 1] * x.stride[4], x.stride[1],
                               step * x.stride[4], ring.run[3 * r + 2],
                               row + ring.run[3 * r] * row_entry(work))
    return row


cdef void compute_vector(const Work *work, const Task *task, int dtype, const Tensor *x,
                         const Tensor *y, Py_ssize_t first, Py_ssize_t lanes, const char *weights,
                         const Spread *s, Ring *ring) noexcept nogil:
    """Compute all residue classes of `lanes` channels, the task's `first` and on."""
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef Py_ssize_t step_d = depth.out_step * y.stride[2]
    cdef Py_ssize_t step_h = height.out_step * y.stride[3]
    cdef Py_ssize_t jd = 0, jh = 0, c, t, yd, yh, slot, following
    cdef int from_dtype = F32 if work.b.paired else dtype   # a pair moves as if it were a float
    cdef const LaneClass *p
    cdef char *dst
    cdef Span span
    span.row, span.weight = ring.row, ring.weight
    span.depth, span.panel, span.source_pitch = s.depth, panel_pitch(work), s.pitch
    span.weight_pitch = s.depth * span.panel
    span.broadcast, span.paired = work.b.broadcast, work.b.paired
    span.quads = not work.b.broadcast and work.b.entry_channels > 1
    span.dst_step = work.axis[2].out_step * y.stride[4]
    span.accumulate = work.accumulate and work.b.direct
    span.flat = 0
    for slot in range(ring.slots):
        ring.held[slot] = -1
    # Classes come last: they read the same rows.
    for _ in range(depth.block):
        for _ in range(height.block):
            following = visited_after(jh, work.b.visits_h, height.block)
            for c in range(task.class_begin, task.class_end):
                p = ring.classes + c
                if jd >= p.count[0] or jh >= p.count[1]:
                    continue
                span.rows = t = 0
                while t < p.all_taps:
                    yd = source_of(depth, task.start[0], p.tap[3 * t], jd)
                    yh = source_of(height, task.start[1], p.tap[3 * t + 1], jh)
                    if yd >= 0 and yh >= 0:
                        ring.row[span.rows] = spread_slot(work, s, from_dtype, x, yd, yh,
                                                          p.tap + 3 * t, ring)
                        ring.weight[span.rows] = weights + work.size * (
                            (p.first_tap + t) * span.weight_pitch)
                        span.rows += 1
                    t += p.taps
                dst = y.data + p.source + jd * step_d + jh * step_h + first * y.stride[1]
                if work.b.asks and following < p.count[1]:
                    fetch_to_write(dst + (following - jh) * step_h, span.dst_step, 0, p.count[2],
                                   lanes * work.size)
                span.sliding = p.sliding
                if work.b.exact_halo:
                    run_spans(work, &span, dtype, lanes, p.reach, p.taps, p.count[2], ring.weight,
                              p.offset, dst)
                else:
                    span.taps, span.offset = p.taps, p.offset
                    run_group_span(dtype, &span, 0, p.count[2], lanes, dst)
            jh = following
        jd, jh = visited_after(jd, work.b.visits_d, depth.block), 0


cdef void touch_rows(const Tensor *tensor, const Py_ssize_t *low, const Py_ssize_t *high,
                     Py_ssize_t pixel) noexcept nogil:
    """Touch the rows of a box, whose positions have `pixel` bytes."""
    cdef Py_ssize_t d, h
    cdef const char *place
    for d in range(low[0], high[0]):
        for h in range(low[1], high[1]):
            place = tensor.data + d * tensor.stride[2] + h * tensor.stride[3]
            touch(place + low[2] * tensor.stride[4],
                  (high[2] - low[2] - 1) * tensor.stride[4] + pixel)


cdef void touch_block(const Work *work, const Task *task, const Tensor *x,
                      const Tensor *y) noexcept nogil:
    """Touch what a task reads and writes.

    A vector of lanes takes a line of each position, which no prefetcher follows.
    """
    cdef Py_ssize_t element = (task.group_end - task.group) * element_size(work.b.dtype)
    cdef Py_ssize_t low[3]
    cdef Py_ssize_t high[3]
    cdef Py_ssize_t axis
    for axis in range(3):
        source_box(&work.axis[axis], task.start[axis], &low[axis], &high[axis])
    if high[2] > low[2]:
        touch_rows(x, low, high, element * work.b.output_channels * (1 + work.b.paired))
    for axis in range(3):
        result_box(&work.axis[axis], task.start[axis], &low[axis], &high[axis])
    touch_rows(y, low, high, element * work.b.input_channels)


cdef int compute_grouped(const Work *work, const Task *task, int dtype, const Tensor *x,
                         const Tensor *y, Py_ssize_t readable, const Scratch *scratch) noexcept nogil:
    """Compute a task, a vector of lanes at a time (see compute_lanes)."""
    cdef Py_ssize_t total = (task.group_end - task.group) * work.b.input_channels
    cdef Py_ssize_t whole = work.b.broadcast if work.b.broadcast else work.lanes
    cdef Py_ssize_t first, v, lanes
    cdef const char *weights
    cdef int fine = 1
    cdef Spread s
    cdef Ring ring
    if work.b.touches:
        touch_block(work, task, x, y)
    s.depth, s.channels = work.b.output_channels, readable
    s.columns, s.rows = work.b.entry_channels, rows_of_entries(work)
    s.pitch = work.axis[2].window * row_entry(work)
    s.index = scratch.pointers
    s.start = <Py_ssize_t *> (s.index + s.rows * VECTOR_BYTES)
    ring = open_ring(work, task, y, scratch, <char *> (s.start + s.rows))
    for v in range((total + whole - 1) // whole):
        first = v * whole
        lanes = min(whole, total - first)
        if work.b.broadcast:    # vector v is of group v
            s.start[0] = v * s.depth
            if work.packing != NULL:
                fine &= pack_chunk(work.packing, task.group + v, work.packing.block, 0, s.depth,
                                   scratch.panel, scratch.packing)
            weights = panel_of(work, task.group + v, work.block, 0, work.lanes, scratch)
        else:
            plan_spread(work.f64, &s, work.b.input_channels, first, lanes)
            weights = work.weights + work.size * (task.group * work.b.input_channels + first)
        compute_vector(work, task, dtype, x, y, first, lanes, weights, &s, &ring)
    return 1 - fine
