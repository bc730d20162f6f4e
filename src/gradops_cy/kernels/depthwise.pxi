# Depthwise convolution, lanes over channels: straight from diff_dst to diff_src where both have
# their channels last, else from a window of a box of diff_dst to a box of results in scratch.

cdef extern from "depthwise.h" nogil:
    ctypedef struct Slide:
        Py_ssize_t taps
        Py_ssize_t offset
        Py_ssize_t low
        Py_ssize_t high
    ctypedef struct Span:
        Py_ssize_t rows
        const char **row
        const char **weight
        Py_ssize_t weight_pitch
        Py_ssize_t taps
        const Py_ssize_t *offset
        Py_ssize_t step
        Py_ssize_t dst_step
        const char *ahead
        Py_ssize_t ahead_step
        int sliding
        Py_ssize_t slides
        const Slide *slide
        int classes
        Py_ssize_t before
        int accumulate
        int streams
        void *sums
        Py_ssize_t sums_first
        Py_ssize_t sums_pitch
        Py_ssize_t row_panel
        int flat
        int broadcast
        int quads
        int paired
        Py_ssize_t depth
        Py_ssize_t source_pitch
        Py_ssize_t panel
    enum:
        PAIR_CHANNELS
        PAIR_PANEL
    void pair_weights(const float *src, Py_ssize_t pitch, Py_ssize_t rows, Py_ssize_t taps,
                      Py_ssize_t channels, float *dst) noexcept
    void run_sliding_span(int dtype, const Span *span, Py_ssize_t first, Py_ssize_t positions,
                          Py_ssize_t begin, Py_ssize_t end, char *dst) noexcept
    void add_up_columns(int dtype, const Span *span, Py_ssize_t positions, Py_ssize_t begin,
                        Py_ssize_t end, Py_ssize_t channels, char *dst) noexcept
    void run_flat_span(int dtype, const Span *span, Py_ssize_t first, Py_ssize_t positions,
                       Py_ssize_t channels, char *dst) noexcept
    void run_span(int dtype, const Span *span, Py_ssize_t first, Py_ssize_t positions,
                  Py_ssize_t channels, char *dst) noexcept

include "depthwise_columns.pxi"
include "depthwise_classes.pxi"


cdef Py_ssize_t slides_of(const Py_ssize_t *reach, Py_ssize_t taps, Py_ssize_t step) noexcept nogil:
    """Return how many taps on a position reads what the next one reads; 0 if no tap does."""
    cdef Py_ssize_t slides = 1
    cdef Py_ssize_t t
    while slides < taps and reach[slides] - reach[0] < step:
        slides += 1
    for t in range(slides, taps):
        if reach[t] - reach[t - slides] != step:
            return 0
    return slides if slides < taps or taps == 1 else 0


cdef void run_spans(const Work *work, Span *span, int dtype, Py_ssize_t channels,
                    const Py_ssize_t *reach, Py_ssize_t taps, Py_ssize_t count, const char **weight,
                    const Py_ssize_t *offset, char *dst) noexcept nogil:
    """Compute one row: `reach` is the source coordinate that each tap reads at position 0.

    A position near an end reads fewer taps, by itself or with others that read the same.
    """
    cdef const Axis *width = &work.axis[2]
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
        if span.flat and end - j > 1:
            run_flat_span(dtype, span, j, end - j, channels, dst)
        elif work.b.kernel == DEPTHWISE:
            run_span(dtype, span, j, end - j, channels, dst)
        else:
            run_group_span(dtype, span, j, end - j, channels, dst)
        j = end


cdef void repeat_weights(const Work *work, const Task *task, Py_ssize_t first, Py_ssize_t taps,
                         char *dst) noexcept nogil:
    """Repeat each tap's weights of all channels until they fill two vectors."""
    cdef Py_ssize_t channels = task.group_end - task.group
    cdef Py_ssize_t t, i
    cdef const char *src = work.weights + work.size * (first * work.b.group_panel + task.group)
    for t in range(taps):
        for i in range(2 * work.lanes):
            memcpy(dst, src + i % channels * work.size, work.size)
            dst += work.size
        src += work.b.group_panel * work.size


cdef void compute_depthwise(const Work *work, const Task *task, const Py_ssize_t *residue,
                            int dtype, const Tensor *x, const Tensor *y,
                            const Scratch *s) noexcept nogil:
    """Compute a residue class of a range of channels (each a group of its own).

    Or it and those beside it in its rows. `x` and `y` are the tensors at the task's image and first
    channel.
    """
    cdef const Axis *depth = &work.axis[0]
    cdef const Axis *height = &work.axis[1]
    cdef const Axis *width = &work.axis[2]
    cdef const Py_ssize_t *tap = work.tap + 3 * residue[3]
    cdef Py_ssize_t all_taps = residue[4] - residue[3]
    cdef Py_ssize_t *offset = <Py_ssize_t *> s.pointers
    cdef Py_ssize_t *reach = offset + all_taps
    cdef const char **row = <const char **> (reach + all_taps)
    cdef const char **weight = row + all_taps
    cdef Slide *slide = <Slide *> (weight + all_taps)
    cdef char *copied = <char *> (slide + all_taps)
    cdef char *paired
    cdef const char *weights
    cdef Py_ssize_t channels = task.group_end - task.group
    cdef Py_ssize_t pitch = work.b.group_panel
    cdef Py_ssize_t taps = 0
    cdef Py_ssize_t count = positions(width, task.start[2], residue[2])
    cdef Py_ssize_t classes = work.b.row_classes
    cdef Py_ssize_t rows = 0
    cdef Py_ssize_t in_row      # taps whose weights are those of a row
    cdef Py_ssize_t t, r, jd, jh, yd, yh
    cdef Py_ssize_t pixel = channels * element_size(dtype)
    cdef bint joined = joins_columns(work, task, x, dtype)
    cdef bint dense = x.stride[4] == pixel and y.stride[4] == pixel
    cdef bint touches, stages
    cdef char *place
    cdef char *dst
    cdef Span span
    # A class's taps are a grid: those of the first row of taps come first.
    while taps < all_taps and tap[3 * taps] == tap[0] and tap[3 * taps + 1] == tap[1]:
        reach[taps] = width.offset[tap[3 * taps + 2]] + task.start[2] * width.in_step
        offset[taps] = reach[taps] * x.stride[4]
        taps += 1
    if taps > 0:
        rows = all_taps // taps
    in_row = taps
    span.flat = (dense and 2 * channels <= work.lanes and width.in_step == 1
                 and width.out_step == 1 and not work.b.row_pairs)
    weights = work.weights + work.size * (residue[3] * work.b.group_panel + task.group)
    span.slide, span.classes, span.before = slide, classes, 0
    if classes > 1:
        count = min(classes * width.block, width.result - classes * task.start[2])
        span.dst_step, span.slides, span.sliding = y.stride[4], 1, True
        if rows > 0:
            slide.offset = x.stride[4] * join_classes(work, task, residue, rows, count, slide,
                                                      &span.before, copied)
            weights, pitch, in_row = copied, channels, width.taps
    else:
        span.dst_step = width.out_step * y.stride[4]
        span.slides = slides_of(reach, taps, width.in_step)
        # Two taps of elements that are not converted gain nothing.
        span.sliding = not span.flat and (
            span.slides > 1
            or (span.slides == 1 and taps >= (1 if element_size(dtype) < work.size else 3)))
        for t in range(span.slides if span.sliding else 0):
            slide[t].taps = (taps - t + span.slides - 1) // span.slides
            slide[t].offset = offset[t]
            clip_run(reach[t], width.in_step, count + slide[t].taps - 1, width.source,
                     &slide[t].low, &slide[t].high)
    # Few channels are read and written in the order of memory anyway.
    touches = work.b.touches and dense and not span.flat and not joined
    stages = touches and work.b.stages and not work.streams
    span.row, span.weight, span.offset = row, weight, offset
    span.sums = span.ahead = NULL
    if span.flat:
        weights, pitch = copied, 2 * work.lanes
        repeat_weights(work, task, residue[3], all_taps, copied)
    if joined:
        weights, pitch = copied, channels
        join_weights(work, task, residue[3], all_taps, copied)
    span.row_panel = 0
    if work.b.row_pairs and span.sliding:
        paired = copied + (in_row * rows * pitch * work.size if weights == copied else 0)
        pair_weights(<const float *> weights, pitch, rows, in_row, channels, <float *> paired)
        pitch = (channels + PAIR_CHANNELS - 1) // PAIR_CHANNELS * PAIR_PANEL
        weights, span.row_panel = paired, in_row * pitch * work.size
    span.weight_pitch = pitch
    span.step = width.in_step * x.stride[4]
    span.ahead_step = span.step // classes
    span.accumulate = work.accumulate and work.b.direct
    span.streams = work.streams
    for jd in range(positions(depth, task.start[0], residue[0])):
        for jh in range(positions(height, task.start[1], residue[1])):
            span.rows = 0
            for r in range(rows):
                t = 3 * r * taps
                yd = source_of(depth, task.start[0], tap[t], jd)
                yh = source_of(height, task.start[1], tap[t + 1], jh)
                if yd >= 0 and yh >= 0:
                    row[span.rows] = x.data + yd * x.stride[2] + yh * x.stride[3]
                    weight[span.rows] = weights + work.size * r * in_row * pitch
                    span.rows += 1
            dst = y.data + ((task.start[0] + jd) * depth.out_step + residue[0]) * y.stride[2]
            dst += ((task.start[1] + jh) * height.out_step + residue[1]) * y.stride[3]
            dst += (task.start[2] * width.out_step + residue[2]) * y.stride[4]
            place = dst
            if stages:
                dst = lines_for(s, place)
            # The rows before are in cache.
            if touches and span.rows > 0 and span.sliding:
                span.ahead = row[span.rows - 1] + x.stride[3]
            elif touches and span.rows > 0:
                touch(row[span.rows - 1], width.source * pixel)
            if touches and not stages and not work.streams:
                touch(dst, count * pixel)
            if joined:
                run_joined(work, &span, dtype, channels, reach, taps, count,
                           copied + all_taps * pitch * work.size, dst)
            elif span.sliding:
                run_sliding_span(dtype, &span, 0, span.before + count, 0, channels,
                                 dst - span.before * span.dst_step)
            else:
                run_spans(work, &span, dtype, channels, reach, taps, count, weight, offset, dst)
            if stages:
                stream(dst, place, count * pixel)
