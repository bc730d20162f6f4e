# Depthwise convolution, lanes over the positions of a row: channels first, each channel by itself.

cdef extern from "depthwise_rows.h" nogil:
    ctypedef struct Stencil:
        Py_ssize_t pitch
        Py_ssize_t layers
        Py_ssize_t layer_pitch
        Py_ssize_t rows
        Py_ssize_t row_pitch
        Py_ssize_t apart
        Py_ssize_t taps
        const Py_ssize_t *offset
        const void *weights
    void run_stencil(int f64, const Stencil *stencil, const void *window, Py_ssize_t rows,
                     Py_ssize_t count, char *dst, Py_ssize_t dst_pitch) noexcept


cdef inline Py_ssize_t tap_step(const Axis *axis) noexcept nogil:
    """Return how far apart neighbouring taps read."""
    return axis.offset[1] - axis.offset[0] if axis.taps > 1 else 1


cdef inline Py_ssize_t reach_of(const Axis *axis, Py_ssize_t count) noexcept nogil:
    """Return the source coordinates from the first to the last that `count` positions read."""
    return (count - 1) * axis.in_step + 1 + (axis.taps - 1) * tap_step(axis)


# What all channels of a task have in common.
cdef struct Channels:
    Py_ssize_t count[3]     # positions
    Py_ssize_t low[3]       # which of the coordinates that they read lie inside of diff_dst
    Py_ssize_t high[3]
    Py_ssize_t corner[3]    # the first of those, in diff_dst
    Py_ssize_t height       # rows of the window that the second axis makes
    Py_ssize_t left         # elements of a row of the window before `low`: whole lines are stored
    Py_ssize_t bytes        # of a row of results
    char *dealt             # with a stride, a row before it is dealt out
    Stencil stencil


cdef void begin_channels(const Work *work, const Task *task, const Scratch *s,
                         Channels *c) noexcept nogil:
    """Clear the window: what lies outside of diff_dst stays zero."""
    cdef Stencil *stencil = &c.stencil
    cdef Py_ssize_t pitch = work.b.window_pitch
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef const Axis *axis
    cdef Py_ssize_t number, first, step, entries
    class_positions(work, task, work.residue, c.count)
    for number in range(3):
        axis = &work.axis[number]
        first = task.start[number] * axis.in_step + axis.offset[0]
        clip_run(first, 1, reach_of(axis, c.count[number]), axis.source, &c.low[number],
                 &c.high[number])
        c.corner[number] = first + c.low[number]
    axis = &work.axis[2]
    c.height = reach_of(&work.axis[1], c.count[1])
    c.left = whole_vectors(work, c.low[2]) if axis.in_step == 1 else c.low[2]
    c.bytes = c.count[2] * element_size(work.b.dtype)
    for number in range(axis.taps):
        first = axis.offset[number] - axis.offset[0]
        offset[number] = first % axis.in_step * (pitch // axis.in_step) + first // axis.in_step
    stencil.taps, stencil.offset, stencil.weights = axis.taps, offset, offset + axis.taps
    axis = &work.axis[1]
    step = tap_step(axis)
    stencil.rows, stencil.row_pitch, stencil.pitch = axis.taps, pitch * step, pitch * axis.in_step
    stencil.apart = axis.in_step // step if axis.in_step % step == 0 else axis.taps
    stencil.layers = work.axis[0].taps
    stencil.layer_pitch = pitch * c.height * tap_step(&work.axis[0])
    entries = reach_of(&work.axis[0], c.count[0]) * c.height * pitch
    c.dealt = s.window + entries * work.size
    memset(s.window, 0, (entries + (pitch if work.axis[2].in_step > 1 else 0)) * work.size)


cdef void load_channel(const Work *work, const Channels *c, Py_ssize_t group, const Tensor *x,
                       const Scratch *s) noexcept nogil:
    """Load a channel's weights, and what is read of it, from `x` on, into the window."""
    cdef Py_ssize_t pitch = work.b.window_pitch
    cdef Py_ssize_t step = work.axis[2].in_step
    cdef Py_ssize_t size = work.size
    cdef Py_ssize_t layer, h
    cdef const char *src
    cdef char *row
    load_row(F64 if work.f64 else F32, work.weights + group * size, work.b.group_panel * size,
             work.residue[4] - work.residue[3], <void *> c.stencil.weights)
    for layer in range(c.high[0] - c.low[0]):
        src = x.data + layer * x.stride[2]
        row = s.window + ((c.low[0] + layer) * c.height + c.low[1]) * pitch * size
        if step == 1:
            load_rows(work.b.dtype, src, x.stride[3], c.high[1] - c.low[1], c.high[2] - c.low[2],
                      row + c.left * size, pitch)
            continue
        for h in range(c.high[1] - c.low[1]):
            load_row(work.b.dtype, src + h * x.stride[3], x.stride[4], c.high[2] - c.low[2],
                     c.dealt + c.left * size)
            deal_out(<int> size, step, c.dealt, pitch, row + h * pitch * size, pitch // step)


cdef void compute_channel(const Work *work, const Channels *c, const Tensor *x, const Tensor *y,
                          const Scratch *s) noexcept nogil:
    """Compute from the window, a few rows at a time; `x` and `y` are where the channel begins."""
    cdef Py_ssize_t pitch = work.b.window_pitch
    cdef Py_ssize_t begin = c.left - c.low[2]
    cdef Py_ssize_t d, h, rows, later
    cdef const char *window
    cdef const char *next
    cdef char *dst
    cdef char *target
    cdef char *place
    cdef bint stages = work.b.stages and y.stride[3] == c.bytes
    cdef Py_ssize_t step = work.axis[1].in_step
    cdef Py_ssize_t source_bytes = (c.high[2] - c.low[2]) * element_size(work.b.dtype)
    for d in range(c.count[0]):
        next = x.data + d * work.axis[0].in_step * x.stride[2] + x.stride[1]
        place = target = y.data + d * y.stride[2]
        if stages:
            target = lines_for(s, place)
        h = 0
        while h < c.count[1]:
            rows = min(work.b.strip, c.count[1] - h)
            later = min(work.b.strip, c.count[1] - h - rows)
            window = s.window + (d * work.axis[0].in_step * c.height * pitch
                                 + h * step * pitch + begin) * work.size
            dst = target + h * y.stride[3]
            # What the next channel reads and what the next rows write arrives meanwhile.
            fetch_ahead(next, x.stride[3], h * step, (h + rows) * step, source_bytes)
            if not stages:
                fetch_to_write(dst, y.stride[3], rows, rows + later, c.bytes)
            if work.b.direct:
                run_stencil(work.f64, &c.stencil, window, rows, c.count[2], dst, y.stride[3])
            else:
                run_stencil(work.f64, &c.stencil, window, rows, c.count[2], s.result,
                            pitch * work.size)
                store_rows(work.b.dtype, s.result, pitch, dst, y.stride[3], rows, c.count[2],
                           work.accumulate)
            h += rows
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
        y.data += task.start[axis] * y.stride[2 + axis]
    for group in range(task.group, task.group_end):
        load_channel(work, &c, group, &x, &s)
        compute_channel(work, &c, &x, &y, &s)
        x.data += x.stride[1]
        y.data += y.stride[1]
    return 0
