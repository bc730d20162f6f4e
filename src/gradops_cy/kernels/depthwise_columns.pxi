# Depthwise convolution with strides of few channels in dense rows: columns of diff_dst are summed
# beside each other, as if they were channels, and their sums are added up last. Of positions whose
# taps all lie inside it is the columns of a stride, of others all that a position reads.

cdef bint joins_columns(const Work *work, const Task *task, const Tensor *x, int dtype) noexcept nogil:
    """Return whether the channels of neighbouring columns are neighbours."""
    cdef Py_ssize_t channels = task.group_end - task.group
    return work.b.stride_columns > 1 and x.stride[4] == channels * element_size(dtype)


cdef void join_weights(const Work *work, const Task *task, Py_ssize_t first, Py_ssize_t taps,
                       char *dst) noexcept nogil:
    """Copy weights [tap][channel] without gaps."""
    cdef Py_ssize_t bytes = (task.group_end - task.group) * work.size
    cdef Py_ssize_t t
    cdef const char *src = work.weights + work.size * (first * work.b.group_panel + task.group)
    for t in range(taps):
        memcpy(dst + t * bytes, src + t * work.b.group_panel * work.size, bytes)


cdef void run_joined(const Work *work, Span *span, int dtype, Py_ssize_t channels,
                     const Py_ssize_t *reach, Py_ssize_t taps, Py_ssize_t count, char *sums,
                     char *dst) noexcept nogil:
    """Compute one row; tap t reads column `reach[t]` at position 0."""
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t j = 0
    cdef Py_ssize_t positions, low, high, columns
    cdef Slide slide
    slide.offset = span.offset[0]
    span.slide, span.slides, span.sums = &slide, 1, sums
    while j < count:
        clip_run(reach[0] + j * width.in_step, 1, taps, width.source, &low, &high)
        positions, columns = 1, taps
        if high - low == taps:
            columns = work.b.stride_columns
            low, high = 0, columns
            positions = (width.source - 1 - reach[taps - 1]) // width.in_step + 1 - j
            positions = min(positions, min(count - j, work.b.strip))
        slide.taps = taps // columns
        slide.low, slide.high = j, j + positions + slide.taps - 1
        span.weight_pitch = columns * channels
        span.sums_first = j
        span.sums_pitch = whole_vectors(work, columns * channels)
        run_sliding_span(dtype, span, j, positions, low * channels, high * channels, dst)
        add_up_columns(dtype, span, positions, low, high, channels, dst)
        j += positions
