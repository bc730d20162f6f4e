# Depthwise convolution, channels first: rows of diff_dst as they are, to sums of rows in registers.

cdef extern from "depthwise_rolling.h" nogil:
    cpdef enum:
        ROLLING_WORDS
    ctypedef struct Rolling:
        int paired
        Py_ssize_t classes
        Py_ssize_t taps[2]
        Py_ssize_t lag[2]
        Py_ssize_t counts[2]
        Py_ssize_t residue[2]
        Py_ssize_t turns
        Py_ssize_t first
        Py_ssize_t height
        Py_ssize_t width
        Py_ssize_t column[2]
        Py_ssize_t apart
        int swapped
        Py_ssize_t count
        unsigned int *mask
    void set_lanes(Rolling *rolling) noexcept
    void run_rolling(int dtype, const Rolling *rolling, const char *src, Py_ssize_t pitch,
                     Py_ssize_t layers, Py_ssize_t layer_pitch, const char *weights, char *dst,
                     Py_ssize_t dst_pitch) noexcept


# The taps of an axis of rows or of columns, in up to two residue classes.
cdef struct Taps:
    Py_ssize_t first[2]     # kernel coordinates
    Py_ssize_t count[2]
    Py_ssize_t low[2]       # what the first tap reads for the first result, from the corner on
    Py_ssize_t most         # the class with more of them


# The planes of diff_dst that a plane of results reads, of a residue class of the first axis.
cdef struct Layers:
    Py_ssize_t taps
    Py_ssize_t first        # what the first of them reads for the class's first plane
    Py_ssize_t step         # planes from tap to tap
    Py_ssize_t weights      # where those of the first one are, of a channel's,
    Py_ssize_t each         # and from one to the next


cdef Taps rolled_taps(const Work *work, const Channels *c, const Py_ssize_t *residue,
                      int number) noexcept nogil:
    cdef Py_ssize_t classes = work.b.row_classes
    cdef Py_ssize_t i, first, last
    cdef Taps taps
    for i in range(classes):
        first = work.tap[3 * residue[3] + number]
        last = work.tap[3 * (residue[4] - 1) + number]
        taps.first[i], taps.count[i] = first, last - first + 1
        taps.low[i] = work.axis[number].offset[first] - c.lowest[number] - c.low[number]
        residue += 5 * (classes if number == 1 else 1)
    taps.most = classes > 1 and taps.count[1] > taps.count[0]
    return taps


cdef void set_rolling(const Work *work, const Channels *c, const Taps *rows, const Taps *columns,
                      Rolling *r) noexcept nogil:
    """Describe what is read of a plane for which results."""
    cdef Py_ssize_t i, h
    memset(r, 0, sizeof(Rolling))
    r.paired, r.classes = work.b.column_pairs, work.b.row_classes
    r.height, r.width, r.count = c.high[1] - c.low[1], c.high[2] - c.low[2], c.count[2]
    r.turns = tap_step(&work.axis[1], rows.first[0], rows.count[0])
    r.apart = tap_step(&work.axis[2], columns.first[0], columns.count[0])
    r.swapped = <int> columns.most
    r.first = rows.low[0] if r.classes == 1 else min(rows.low[0], rows.low[1])
    for i in range(r.classes):
        h = i ^ rows.most
        r.taps[i], r.residue[i] = rows.count[h], h
        r.lag[i] = rows.low[h] - r.first + rows.count[h] - 1
        r.counts[i] = (c.count[1] - h + r.classes - 1) // r.classes
        r.column[i] = columns.low[i ^ columns.most]


cdef Py_ssize_t place_rolled(const Work *work, const Py_ssize_t *residue, const Rolling *r,
                             const Taps *rows, const Taps *columns, Layers *layers,
                             Py_ssize_t at, Py_ssize_t *place) noexcept nogil:
    """Tell where the weights of a residue class of planes stand; return where the next one's do.

    In the order in which rows meet them: of each layer, and each product of a row, those of all
    rows of taps.
    """
    cdef Py_ssize_t ways = 1 + r.paired
    cdef Py_ssize_t first_ones = (r.taps[0] + r.paired) // ways
    cdef Py_ssize_t products = first_ones + (r.taps[1] + r.paired) // ways
    cdef Py_ssize_t h, w, t, slot, column
    cdef const Py_ssize_t *tap
    layers.weights, layers.each = at, products * (r.taps[0] + r.taps[1])
    layers.taps, layers.first, layers.step = 0, 0, 1
    for h in range(r.classes):
        for w in range(r.classes):
            for t in range(residue[3], residue[4]):
                tap = work.tap + 3 * t
                slot = tap[1] - rows.first[h] + (r.taps[0] if h != rows.most else 0)
                column = tap[2] - columns.first[w]
                place[t] = at + (tap[0] - work.tap[3 * residue[3]]) * layers.each + slot
                place[t] += (column // ways + (first_ones if w != columns.most else 0)) * (
                    r.taps[0] + r.taps[1])
                if r.paired:
                    place[t] = 2 * place[t] + column % 2
            if residue[4] > residue[3]:
                tap = work.tap + 3 * residue[3]
                layers.taps = work.tap[3 * (residue[4] - 1)] - tap[0] + 1
                layers.first = work.axis[0].offset[tap[0]]
                layers.step = tap_step(&work.axis[0], tap[0], layers.taps)
            residue += 5
    return at + layers.taps * layers.each


cdef int run_rolled_channels(const Work *work, const Task *task, Tensor x, Tensor y,
                             char *scratch) noexcept nogil:
    """Compute the channels of a task; `x` and `y` are the tensors at the first of them."""
    cdef Scratch s = carve(&work.b, scratch)
    cdef const Axis *depth = &work.axis[0]
    cdef Py_ssize_t plane_classes = work.b.row_classes * work.b.row_classes
    cdef Rolling *r = <Rolling *> s.pointers
    cdef Layers *layers = <Layers *> (s.pointers + ROLLING_WORDS * sizeof(Py_ssize_t))
    cdef Py_ssize_t *weight = <Py_ssize_t *> (layers + work.classes // plane_classes)
    cdef char *weights = <char *> (weight + work.taps)
    cdef const Py_ssize_t *residue = work.residue
    cdef Py_ssize_t group, axis, number, d, plane, low, high, at = 0
    cdef Layers *layer
    cdef char *place
    cdef char *target
    cdef bint stages
    cdef Channels c
    cdef Taps rows, columns
    for axis in range(3):
        clip_axis(work, task, axis, &c)
        y.data += task.start[axis] * work.axis[axis].out_step * y.stride[2 + axis]
    x.data += c.corner[1] * x.stride[3] + c.corner[2] * x.stride[4]
    while residue[3] == residue[4]:  # planes that no tap reaches
        residue += 5
    rows, columns = rolled_taps(work, &c, residue, 1), rolled_taps(work, &c, residue, 2)
    set_rolling(work, &c, &rows, &columns, r)
    c.bytes = c.count[2] * element_size(work.b.dtype)
    stages = work.b.stages and y.stride[3] == c.bytes
    for number in range(work.classes // plane_classes):
        at = place_rolled(work, work.residue + 5 * number * plane_classes, r, &rows, &columns,
                          layers + number, at, weight)
    r.mask = <unsigned int *> (weights + at * work.size)
    set_lanes(r)
    memset(weights, 0, at * work.size)  # also the second factor of a tap without a neighbour
    for group in range(task.group, task.group_end):
        place_weights(False, r.paired, work.weights + group * work.size,
                      work.b.group_panel * work.size, work.taps, weight, weights)
        for d in range(c.count[0]):
            layer = layers + d % depth.out_step
            plane = layer.first + (task.start[0] + d // depth.out_step) * depth.in_step
            clip_run(plane, layer.step, layer.taps, depth.source, &low, &high)
            place = target = y.data + d * y.stride[2]
            if stages:
                target = lines_for(&s, place)
            run_rolling(work.b.dtype, r, x.data + (plane + low * layer.step) * x.stride[2],
                        x.stride[3], high - low, layer.step * x.stride[2],
                        weights + (layer.weights + low * layer.each) * work.size, target,
                        y.stride[3])
            if stages:
                stream(target, place, c.count[1] * c.bytes)
        x.data += x.stride[1]
        y.data += y.stride[1]
    return 0
