# The window of PAIRS: rows of diff_dst two by two, which is how DOT reads the right-hand factor.
#
#   [segment][channel / 2][entry][2]    channels padded with zeros to whole tiles (parts: see split.pxi)
#
# A segment is what a unit of positions reads of one row (`flatten`: of one plane): its pairs of rows
# lie close together, and the tile rows of one product in few pages.

# The entries of a run that lie inside diff_dst.
cdef struct Stretch:
    Py_ssize_t begin        # of the run
    Py_ssize_t low
    Py_ssize_t high
    Py_ssize_t end
    Py_ssize_t at           # bytes from the row's first element to entry `low`
    Py_ssize_t step


cdef inline Py_ssize_t segment_place(const Work *work, Py_ssize_t chunk, Py_ssize_t d,
                                     Py_ssize_t h) noexcept nogil:
    """Return the byte of the window where row (d, h) of the first pair begins."""
    cdef Py_ssize_t segment = work.b.parts * window_pitch(work, chunk) // 2 * work.b.pair_pitch
    if work.b.flatten:
        return d * segment + h * work.axis[2].window * 4
    return (d * work.axis[1].window + h) * segment


cdef Py_ssize_t point_stretches(const Work *work, Py_ssize_t start, Stretch *stretch) noexcept nogil:
    """Describe the runs of every row; return how many."""
    cdef const Axis *axis = &work.axis[2]
    cdef Py_ssize_t r, begin, first, length, step, low, high
    for r in range(axis.runs):
        begin, first = axis.run[4 * r], axis.run[4 * r + 1] + start
        length, step = axis.run[4 * r + 2], axis.run[4 * r + 3]
        clip_run(first, step, length, axis.source, &low, &high)
        stretch[r].begin, stretch[r].end = begin, begin + length
        stretch[r].low, stretch[r].high = begin + low, begin + high
        stretch[r].at = (first + low * step) * work.diff_dst.stride[4]
        stretch[r].step = step * work.diff_dst.stride[4]
    return axis.runs


cdef inline void zip_stretch(const Work *work, const Stretch *stretch, const char *even,
                             const char *odd, char *dst, char *staging) noexcept nogil:
    """Pack one run of a pair; `odd` NULL: there is none."""
    cdef Py_ssize_t unit = element_size(work.b.dtype)
    cdef Py_ssize_t pitch = DOT_K // 2 * work.b.pair_pitch
    cdef Py_ssize_t count = stretch.high - stretch.low
    cdef Py_ssize_t part
    if count < stretch.end - stretch.begin:
        for part in range(work.b.parts):
            memset(dst + part * pitch + 4 * stretch.begin, 0, 4 * (stretch.low - stretch.begin))
            memset(dst + part * pitch + 4 * stretch.high, 0, 4 * (stretch.end - stretch.high))
    if count == 0:
        return
    dst += 4 * stretch.low
    even += stretch.at
    if odd != NULL:
        odd += stretch.at
    if stretch.step == 2 * unit and unit == 2 and work.b.parts == 1 and odd != NULL:
        zip_alternate(<const unsigned short *> even, <const unsigned short *> odd,
                      <unsigned int *> dst, count)
        return
    if stretch.step != unit:
        load_row(RAW16 if unit == 2 else F32, even, stretch.step, count, staging)
        even = staging
        if odd != NULL:
            load_row(RAW16 if unit == 2 else F32, odd, stretch.step, count, staging + unit * count)
            odd = staging + unit * count
    if work.b.parts > 1:
        zip_split(work.b.dtype, even, odd, count, dst, pitch)
    elif odd == NULL:
        zip_single(<const unsigned short *> even, <unsigned int *> dst, count)
    else:
        zip_pairs(<const unsigned short *> even, <const unsigned short *> odd, <unsigned int *> dst,
                  count)


cdef inline Py_ssize_t pair_of(const Work *work, Py_ssize_t pair, Py_ssize_t *odd) noexcept nogil:
    """Return the first channel of a pair, and tell the other: neighbours, or 16 apart where split."""
    cdef Py_ssize_t half = DOT_K // 2
    if work.b.parts == 1:
        odd[0] = 2 * pair + 1
        return 2 * pair
    odd[0] = pair // half * DOT_K + pair % half + half
    return odd[0] - half


cdef void pack_pair_window(const Work *work, const Task *task, Py_ssize_t group, Py_ssize_t first,
                           Py_ssize_t chunk, const Scratch *s) noexcept nogil:
    """Pack `chunk` channels from `first` on."""
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef Py_ssize_t entries = work.axis[2].window
    cdef Py_ssize_t half = DOT_K // 2
    cdef Tensor x = work.diff_dst
    cdef Stretch *stretch = <Stretch *> s.pointers
    cdef Py_ssize_t stretches = point_stretches(work, task.start[2] * work.axis[2].in_step, stretch)
    cdef Py_ssize_t pair, part, channel, other, d, h, r, yd, yh
    cdef char *base = x.data + task.image * x.stride[0]
    cdef char *even
    cdef char *odd
    cdef char *dst
    base += (group * work.b.output_channels + first) * x.stride[1]
    for pair in range(window_pitch(work, chunk) // 2):
        channel = pair_of(work, pair, &other)
        for d in range(depth.window):
            yd = task.start[0] * depth.in_step + depth.entry[d]
            for h in range(height.window):
                yh = task.start[1] * height.in_step + height.entry[h]
                dst = s.window + segment_place(work, chunk, d, h)
                dst += (pair // half * work.b.parts * half + pair % half) * work.b.pair_pitch
                if channel < chunk and 0 <= yd < depth.source and 0 <= yh < height.source:
                    even = base + channel * x.stride[1] + yd * x.stride[2] + yh * x.stride[3]
                    odd = even + (other - channel) * x.stride[1] if other < chunk else NULL
                    for r in range(stretches):
                        zip_stretch(work, stretch + r, even, odd, dst, s.staging)
                    continue
                for part in range(work.b.parts):
                    memset(dst + part * half * work.b.pair_pitch, 0, entries * 4)


cdef void point_pairs(const Work *work, Py_ssize_t chunk, const Py_ssize_t *residue,
                      Py_ssize_t *offset, Py_ssize_t *step) noexcept nogil:
    """Tell the bytes from a class's first position to each tap, and to d, h and w."""
    cdef Py_ssize_t t
    cdef const Py_ssize_t *tap
    for t in range(residue[3], residue[4]):
        tap = work.tap + 3 * t
        offset[t - residue[3]] = 4 * work.axis[2].index[tap[2]] + segment_place(
            work, chunk, work.axis[0].index[tap[0]], work.axis[1].index[tap[1]])
    step[0] = segment_place(work, chunk, 1, 0)
    step[1] = segment_place(work, chunk, 0, 1)
    step[2] = 4
