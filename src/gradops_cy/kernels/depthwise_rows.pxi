# Depthwise convolution, lanes over the positions of a row: channels first, each channel by itself.

cdef extern from "depthwise_strided.h" nogil:
    cpdef enum:
        STENCIL_WORDS
    ctypedef struct Stencil:
        Py_ssize_t first
        Py_ssize_t turns
        Py_ssize_t pitch
        Py_ssize_t layers
        Py_ssize_t layer_pitch
        Py_ssize_t row_pitch
        Py_ssize_t apart
        Py_ssize_t slides
        Py_ssize_t longer
        Py_ssize_t entries
        const Py_ssize_t *offset
        int classes
        int paired
        Py_ssize_t begin[2]
        Py_ssize_t end[2]
        const void *weights[2]
        const char *next
        Py_ssize_t next_step
        Py_ssize_t stride
        Py_ssize_t columns
        Py_ssize_t tap_rows
        void *sums
    void pair_neighbours(const unsigned short *src, Py_ssize_t n, unsigned int *dst) noexcept
    void place_weights(int f64, int paired, const char *src, Py_ssize_t stride, Py_ssize_t taps,
                       const Py_ssize_t *place, void *dst) noexcept
    void repeat_over_strides(int f64, const char *src, Py_ssize_t src_step, Py_ssize_t taps,
                             Py_ssize_t stride, void *dst) noexcept
    void set_tiles(int dtype, Stencil *stencil, Py_ssize_t rows, Py_ssize_t count) noexcept
    void run_stencil(int dtype, const Stencil *stencil, const void *window, Py_ssize_t rows,
                     char *dst, Py_ssize_t dst_pitch) noexcept
    void run_strided(int dtype, const Stencil *stencil, const void *window, Py_ssize_t rows,
                     char *dst, Py_ssize_t dst_pitch) noexcept


# What all channels of a task have in common.
cdef struct Channels:
    Py_ssize_t count[3]     # results
    Py_ssize_t lowest[3]    # the smallest offset of a tap
    Py_ssize_t low[3]       # which of the coordinates that they read lie inside of diff_dst
    Py_ssize_t high[3]
    Py_ssize_t corner[3]    # the first of those, in diff_dst
    Py_ssize_t height       # rows of the window that the second axis makes
    Py_ssize_t left         # elements of a row of the window before `low`: whole lines are stored
    Py_ssize_t bytes        # of a row of results
    char *dealt             # with a stride, a row before it is dealt out, or sums that are
    Py_ssize_t *place       # [taps]: where they stand in:
    char *weights           # those of a channel
    Stencil *stencil        # [residue classes of a plane's rows], those of planes one after the other


cdef Py_ssize_t clip_axis(const Work *work, const Task *task, int number,
                          Channels *c) noexcept nogil:
    """Set what concerns one axis; return how many source coordinates its positions reach."""
    cdef const Axis *axis = &work.axis[number]
    cdef Py_ssize_t start = task.start[number]
    cdef Py_ssize_t low = axis.offset[0] if axis.taps else 0
    cdef Py_ssize_t high = low
    cdef Py_ssize_t t, reach
    for t in range(axis.taps):
        low, high = min(low, axis.offset[t]), max(high, axis.offset[t])
    reach = (positions(axis, start, 0) - 1) * axis.in_step + 1 + high - low
    c.lowest[number] = low
    c.count[number] = min(axis.block * axis.out_step, axis.result - start * axis.out_step)
    low += start * axis.in_step
    clip_run(low, 1, reach, axis.source, &c.low[number], &c.high[number])
    c.corner[number] = low + c.low[number]
    return reach


cdef inline Py_ssize_t tap_step(const Axis *axis, Py_ssize_t first,
                                Py_ssize_t taps) noexcept nogil:
    """Return how far apart the taps of a class read, of which there are `taps`."""
    return axis.offset[first + 1] - axis.offset[first] if taps > 1 else 1


cdef void place_taps(const Py_ssize_t *residue, const Stencil *stencil, Py_ssize_t rows,
                     Py_ssize_t taps, Py_ssize_t *place) noexcept nogil:
    """Tell where the weights of a class's taps stand: in the order in which tiles meet them."""
    cdef Py_ssize_t at = residue[3]
    cdef Py_ssize_t layer, first, slides, t, i, row, half
    for layer in range(stencil.layers):
        for first in range(stencil.apart):
            slides = stencil.slides + (first < stencil.longer)
            for t in range(taps):
                for i in range(slides):
                    row = (layer * rows + first + i * stencil.apart) * taps + residue[3]
                    if stencil.paired:
                        half = t % 2 or t + 1 == taps  # a last one is a float's upper half
                        place[row + t] = 2 * (at + t // 2 * slides + i) + half
                    else:
                        place[row + t] = at + t * slides + i
            at += taps * slides


cdef void set_stencil(const Work *work, const Channels *c, const Py_ssize_t *residue,
                      const Py_ssize_t *offset, Stencil *stencil) noexcept nogil:
    """Describe the taps of a residue class, and of those beside it in its rows."""
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t pitch = work.b.window_pitch
    cdef const Py_ssize_t *first
    cdef const Py_ssize_t *last
    cdef Py_ssize_t step, rows, taps, between
    cdef int number
    memset(stencil, 0, sizeof(Stencil))
    stencil.classes, stencil.offset = work.b.row_classes, offset
    stencil.paired = work.b.column_pairs
    set_tiles(work.b.dtype, stencil, (c.count[1] - 1) // height.out_step + 1, c.count[2])
    stencil.turns, stencil.pitch = 1, pitch * height.in_step
    for number in range(stencil.classes):
        stencil.weights[number] = c.weights + residue[3] * work.size
        if residue[4] > residue[3]:
            # A class's taps are a grid.
            first, last = work.tap + 3 * residue[3], work.tap + 3 * (residue[4] - 1)
            rows, taps = last[1] - first[1] + 1, last[2] - first[2] + 1
            stencil.layers = last[0] - first[0] + 1
            stencil.first = ((depth.offset[first[0]] - c.lowest[0]) * c.height
                             + height.offset[first[1]] - c.lowest[1]) * pitch
            stencil.layer_pitch = pitch * c.height * tap_step(depth, first[0], stencil.layers)
            step = tap_step(height, first[1], rows)
            stencil.row_pitch = pitch * step
            stencil.turns = step // height.in_step if step % height.in_step == 0 else 1
            between = height.in_step * stencil.turns
            stencil.pitch = pitch * between
            stencil.apart = between // step if between % step == 0 else rows
            stencil.apart = min(stencil.apart, rows)
            stencil.slides, stencil.longer = rows // stencil.apart, rows % stencil.apart
            if stencil.classes > 1:
                stencil.begin[number] = width.offset[first[2]] - c.lowest[2]
            stencil.end[number] = stencil.begin[number] + taps
            stencil.entries = max(stencil.entries, stencil.end[number])
            stencil.stride, stencil.columns, stencil.tap_rows = width.in_step, taps, rows
            stencil.sums = c.dealt
            place_taps(residue, stencil, rows, taps, c.place)
        residue += 5


cdef void begin_channels(const Work *work, const Task *task, const Scratch *s,
                         Channels *c) noexcept nogil:
    """Clear the window: what lies outside of diff_dst stays zero."""
    cdef Py_ssize_t pitch = work.b.window_pitch
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t layers = clip_axis(work, task, 0, c)
    cdef Py_ssize_t first, entries, number
    c.height = clip_axis(work, task, 1, c)
    clip_axis(work, task, 2, c)
    c.left = whole_vectors(work, c.low[2]) if width.in_step == 1 else c.low[2]
    c.bytes = c.count[2] * element_size(work.b.dtype)
    for number in range(width.taps):
        # What classes beside each other read follows each other.
        first = number if work.b.row_classes > 1 else width.offset[number] - c.lowest[2]
        offset[number] = first % width.in_step * (pitch // width.in_step) + first // width.in_step
    c.stencil = <Stencil *> (offset + width.taps)
    c.place = <Py_ssize_t *> (c.stencil + work.classes // work.b.row_classes)
    c.weights = <char *> (c.place + work.taps)
    entries = layers * c.height * pitch
    c.dealt = s.window + entries * work.size
    for number in range(work.classes // work.b.row_classes):
        set_stencil(work, c, work.residue + 5 * number * work.b.row_classes, offset,
                    c.stencil + number)
    memset(c.weights, 0, work.taps * work.size)  # also the lower half of a tap without a neighbour
    memset(s.window, 0, (entries + (pitch if width.in_step > 1 else 0)) * work.size)


cdef void pair_rows(const Work *work, const Channels *c, const char *src, Py_ssize_t src_pitch,
                    char *row) noexcept nogil:
    """Load rows of bfloat16, each element with its right neighbour."""
    cdef Py_ssize_t count = c.high[2] - c.low[2]
    cdef const unsigned short *element
    cdef unsigned int *entry
    cdef Py_ssize_t h
    for h in range(c.high[1] - c.low[1] if count else 0):
        element = <const unsigned short *> (src + h * src_pitch)
        entry = <unsigned int *> row + h * work.b.window_pitch + c.left
        pair_neighbours(element, count, entry)
        if c.left:
            entry[-1] = <unsigned int> element[0] << 16


cdef void load_channel(const Work *work, const Channels *c, Py_ssize_t group, const Tensor *x,
                       const Scratch *s) noexcept nogil:
    """Load a channel's weights, and what is read of it, from `x` on, into the window."""
    cdef Py_ssize_t pitch = work.b.window_pitch
    cdef Py_ssize_t step = work.axis[2].in_step
    cdef Py_ssize_t size = work.size
    cdef Py_ssize_t layer, h
    cdef const char *src
    cdef char *row
    if work.b.strided:
        repeat_over_strides(work.f64, work.weights + group * size, work.b.group_panel * size,
                            work.taps, step, c.weights)
    else:
        place_weights(work.f64, work.b.column_pairs, work.weights + group * size,
                      work.b.group_panel * size, work.taps, c.place, c.weights)
    for layer in range(c.high[0] - c.low[0]):
        src = x.data + layer * x.stride[2]
        row = s.window + ((c.low[0] + layer) * c.height + c.low[1]) * pitch * size
        if work.b.column_pairs:
            pair_rows(work, c, src, x.stride[3], row)
        elif step == 1 or work.b.strided:
            load_rows(work.b.dtype, src, x.stride[3], c.high[1] - c.low[1], c.high[2] - c.low[2],
                      row + c.left * size, pitch)
        else:
            for h in range(c.high[1] - c.low[1]):
                load_row(work.b.dtype, src + h * x.stride[3], x.stride[4], c.high[2] - c.low[2],
                         c.dealt + c.left * size)
                deal_out(<int> size, step, c.dealt, pitch, row + h * pitch * size, pitch // step)


cdef void compute_class_rows(const Work *work, const Channels *c, const Stencil *stencil,
                             const char *window, Py_ssize_t rows, char *dst, Py_ssize_t dst_pitch,
                             const Scratch *s) noexcept nogil:
    """Compute rows of a residue class, `dst_pitch` apart; `window` is what they read, by rows."""
    cdef Py_ssize_t pitch = work.b.window_pitch * work.b.row_classes
    cdef Py_ssize_t target_pitch = dst_pitch
    cdef int dtype = work.b.dtype
    cdef char *target = dst
    window += (c.left - c.low[2]) * work.size
    if not work.b.direct:
        dtype, target, target_pitch = F64 if work.f64 else F32, s.result, pitch * work.size
    if work.b.strided:
        run_strided(dtype, stencil, window, rows, target, target_pitch)
    else:
        run_stencil(dtype, stencil, window, rows, target, target_pitch)
    if not work.b.direct:
        store_rows(work.b.dtype, s.result, pitch, dst, dst_pitch, rows, c.count[2],
                   work.accumulate)


cdef void compute_channel(const Work *work, const Channels *c, const Tensor *x,
                          const Tensor *y, const Scratch *s) noexcept nogil:
    """Compute from the window, a few rows at a time; `x` and `y` are where the channel begins."""
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef Py_ssize_t classes = min(height.out_step, height.result)
    cdef Py_ssize_t pitch = work.b.window_pitch * work.size
    cdef Py_ssize_t source_bytes = (c.high[2] - c.low[2]) * element_size(work.b.dtype)
    cdef Py_ssize_t most = work.b.strip if work.b.touches or not work.b.direct else c.count[1]
    cdef Py_ssize_t strip = most * height.out_step
    cdef Py_ssize_t read = most * height.in_step
    cdef Py_ssize_t d, h, row, j, number, rows, each = 0
    cdef Stencil *stencil
    cdef const char *window
    cdef const char *next
    cdef char *target
    cdef char *place
    cdef bint stages = work.b.stages and y.stride[3] == c.bytes
    if work.b.touches and x.stride[3] == source_bytes:  # nothing between rows is asked for
        each = source_bytes * height.in_step // height.out_step
    for d in range(c.count[0]):
        j = d // depth.out_step * depth.in_step
        next = x.data + j * x.stride[2] + x.stride[1]
        window = s.window + j * c.height * pitch
        stencil = c.stencil + d % depth.out_step * classes
        place = target = y.data + d * y.stride[2]
        if stages:
            target = lines_for(s, place)
        h = row = 0
        while h < c.count[1]:
            # What the next channel reads and what the next rows write arrives meanwhile.
            if work.b.touches and not stages:
                fetch_to_write(target, y.stride[3], h + strip, min(h + 2 * strip, c.count[1]),
                               c.bytes)
            for number in range(min(classes, c.count[1] - h)):
                rows = most
                if h + strip > c.count[1]:
                    rows = (c.count[1] - h - number + height.out_step - 1) // height.out_step
                stencil[number].next = next + row * source_bytes + number * rows * each
                stencil[number].next_step = each
                compute_class_rows(work, c, stencil + number, window + row * pitch, rows,
                                   target + (h + number) * y.stride[3],
                                   height.out_step * y.stride[3], s)
            h += strip
            row += read
        if stages:
            stream(target, place, c.count[1] * c.bytes)


cdef int run_channels(const Work *work, const Task *task, Tensor x, Tensor y,
                      char *scratch) noexcept nogil:
    """Compute the channels of a task; `x` and `y` are the tensors at the first of them."""
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t group, axis
    cdef Channels c
    begin_channels(work, task, &s, &c)
    for axis in range(3):
        x.data += c.corner[axis] * x.stride[2 + axis]
        y.data += task.start[axis] * work.axis[axis].out_step * y.stride[2 + axis]
    for group in range(task.group, task.group_end):
        load_channel(work, &c, group, &x, &s)
        compute_channel(work, &c, &x, &y, &s)
        x.data += x.stride[1]
        y.data += y.stride[1]
    return 0
