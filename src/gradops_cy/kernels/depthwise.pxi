# Depthwise convolution with channels last: straight from diff_dst to diff_src, a row at a time.

cdef extern from "depthwise.h" nogil:
    ctypedef struct Span:
        Py_ssize_t rows
        const char **row
        const char **weight
        Py_ssize_t weight_pitch
        Py_ssize_t taps
        const Py_ssize_t *offset
        Py_ssize_t step
        Py_ssize_t dst_step
        int accumulate
    void run_span(int dtype, const Span *span, Py_ssize_t first, Py_ssize_t positions,
                  Py_ssize_t channels, char *dst) noexcept


cdef void run_spans(const Work *work, const Task *task, Span *span, const Py_ssize_t *reach,
                    Py_ssize_t taps, Py_ssize_t count, const char **weight, const Py_ssize_t *offset,
                    char *dst) noexcept nogil:
    """Compute one row: `reach` is the source coordinate that each tap reads at position 0.

    A position near an end reads fewer taps, by itself or with others that read the same.
    """
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t channels = task.group_end - task.group
    cdef Py_ssize_t j = 0
    cdef Py_ssize_t low, high, end, r, begin
    begin = 0
    while j < count:
        # Taps are in growing order of what they read: low to high - 1 lie inside.
        low, high = 0, taps
        while low < taps and reach[low] + j * width.in_step < 0:
            low += 1
        while high > low and reach[high - 1] + j * width.in_step >= width.source:
            high -= 1
        # The same taps up to where the next one enters or the last one leaves.
        end = count
        if low > 0:
            end = min(end, (-reach[low - 1] + width.in_step - 1) // width.in_step)
        if high > low:
            end = min(end, (width.source - 1 - reach[high - 1]) // width.in_step + 1)
        for r in range(span.rows):
            weight[r] += (low - begin) * span.weight_pitch * work.size
        begin = low
        span.taps = high - low
        span.offset = offset + low
        run_span(work.b.dtype, span, j, end - j, channels, dst)
        j = end


cdef void compute_depthwise(const Work *work, const Task *task, const Py_ssize_t *residue,
                            const Py_ssize_t *count, char *pointers) noexcept nogil:
    """Compute a residue class of a range of channels (each a group of its own)."""
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef Tensor x = work.diff_dst
    cdef Tensor y = work.diff_src
    cdef const Py_ssize_t *tap = work.tap + 3 * residue[3]
    cdef Py_ssize_t all_taps = residue[4] - residue[3]
    cdef Py_ssize_t *offset = <Py_ssize_t *> pointers
    cdef Py_ssize_t *reach = offset + all_taps
    cdef const char **row = <const char **> (reach + all_taps)
    cdef const char **weight = row + all_taps
    cdef Py_ssize_t taps = 0
    cdef Py_ssize_t t, jd, jh, yd, yh
    cdef const char *source = x.data + task.image * x.stride[0] + task.group * x.stride[1]
    cdef char *dst = y.data + task.image * y.stride[0] + task.group * y.stride[1]
    cdef Span span
    # A class's taps are a grid: those of the first row of taps come first.
    while taps < all_taps and tap[3 * taps] == tap[0] and tap[3 * taps + 1] == tap[1]:
        reach[taps] = width.offset[tap[3 * taps + 2]] + task.start[2] * width.in_step
        offset[taps] = reach[taps] * x.stride[4]
        taps += 1
    span.row, span.weight = row, weight
    span.weight_pitch = work.b.group_panel
    span.step = width.in_step * x.stride[4]
    span.dst_step = width.out_step * y.stride[4]
    span.accumulate = work.accumulate
    dst += residue[2] * y.stride[4] + task.start[2] * span.dst_step
    for jd in range(count[0]):
        for jh in range(count[1]):
            span.rows = 0
            t = 0
            while t < all_taps:
                yd = source_of(depth, task.start[0], tap[3 * t], jd)
                yh = source_of(height, task.start[1], tap[3 * t + 1], jh)
                if yd >= 0 and yh >= 0:
                    row[span.rows] = source + yd * x.stride[2] + yh * x.stride[3]
                    weight[span.rows] = work.weights + work.size * (
                        (residue[3] + t) * work.b.group_panel + task.group)
                    span.rows += 1
                t += taps
            run_spans(work, task, &span, reach, taps, count[2], weight, offset, dst
                      + ((task.start[0] + jd) * depth.out_step + residue[0]) * y.stride[2]
                      + ((task.start[1] + jh) * height.out_step + residue[1]) * y.stride[3])
