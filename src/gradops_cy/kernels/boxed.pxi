# The kernels whose lanes are channels of many groups: straight from diff_dst to diff_src where both
# have their channels last, else from a box of diff_dst in scratch to a box of results.

cdef void source_box(const Axis *axis, Py_ssize_t start, Py_ssize_t *low,
                     Py_ssize_t *high) noexcept nogil:
    """Return the range of source coordinates that a block reads."""
    cdef Py_ssize_t t
    cdef Py_ssize_t first = start * axis.in_step
    low[0], high[0] = axis.source, 0
    for t in range(axis.taps):
        low[0] = min(low[0], axis.offset[t] + first)
        high[0] = max(high[0], axis.offset[t] + first + (axis.block - 1) * axis.in_step + 1)
    low[0] = max(0, low[0])
    high[0] = max(low[0], min(axis.source, high[0]))


cdef void result_box(const Axis *axis, Py_ssize_t start, Py_ssize_t *low,
                     Py_ssize_t *high) noexcept nogil:
    """Return the range of diff_src that a block computes, all residue classes of it."""
    low[0] = start * axis.out_step
    high[0] = min(axis.result, low[0] + axis.block * axis.out_step)


cdef int compute_lanes(const Work *work, const Task *task, int dtype, const Tensor *x,
                       const Tensor *y, Py_ssize_t readable, const Scratch *s) noexcept nogil:
    """Compute a task; return whether something is not as assumed.

    `x` and `y` are the tensors at its image and first channels, of which `readable` lie next to each
    other in `x`.
    """
    cdef Py_ssize_t c = task.class_begin
    if work.b.kernel == GROUPED:
        return compute_grouped(work, task, dtype, x, y, readable, s)
    while c < task.class_end:
        compute_depthwise(work, task, work.residue + 5 * c, dtype, x, y, s)
        c += work.b.row_classes
    return 0


cdef void join_rows(const Tensor *tensor, const Py_ssize_t *whole,
                    Py_ssize_t *extent) noexcept nogil:
    """Make one of a box's rows that follow each other in the tensor, whose extents are `whole`.

    Channels first, a row of each channel in turn is too short for prefetchers to follow.
    """
    cdef Py_ssize_t rows = 1
    if extent[2] == whole[2] and tensor.stride[3] == whole[2] * tensor.stride[4]:
        rows, extent[1] = extent[1], 1
        if rows == whole[1] and tensor.stride[2] == rows * tensor.stride[3]:
            rows, extent[0] = rows * extent[0], 1
    extent[2] *= rows


cdef inline Py_ssize_t staged_positions(const Work *work) noexcept nogil:
    """Return how many positions of a box are transposed at a time."""
    return work.b.staging_bytes // ((TRANSPOSE_ROWS + 1) * work.size)


cdef void read_box(const Work *work, const Tensor *x, const Py_ssize_t *low, const Py_ssize_t *high,
                   Py_ssize_t channels, const Tensor *window, char *staging) noexcept nogil:
    """Copy diff_dst from `low` to `high` - 1 to the window, which holds just that."""
    cdef Py_ssize_t most = staged_positions(work)
    cdef Py_ssize_t whole[3]
    cdef Py_ssize_t extent[3]
    cdef Py_ssize_t axis, d, h, run, count
    cdef Py_ssize_t pitch = window.stride[4] // work.window_size
    cdef const char *src
    cdef char *dst = window.data
    for axis in range(3):
        whole[axis], extent[axis] = work.axis[axis].source, high[axis] - low[axis]
    join_rows(x, whole, extent)
    for d in range(extent[0]):
        for h in range(extent[1]):
            src = x.data + (low[0] + d) * x.stride[2] + (low[1] + h) * x.stride[3]
            src += low[2] * x.stride[4]
            for run in range((extent[2] + most - 1) // most):
                count = min(most, extent[2] - run * most)
                pack_run(work, src + run * most * x.stride[4], x.stride[4], dst, 1, pitch, count,
                         channels, staging)
                dst += count * window.stride[4]


cdef void write_box(const Work *work, const Tensor *box, const Py_ssize_t *extents,
                    Py_ssize_t channels, const Tensor *y, char *staging) noexcept nogil:
    """Store a box of results to where `y` begins."""
    cdef Py_ssize_t most = staged_positions(work)
    cdef Py_ssize_t whole[3]
    cdef Py_ssize_t extent[3]
    cdef Py_ssize_t axis, d, h, run, count
    cdef const char *src = box.data
    cdef char *dst
    cdef Results results
    results.channels = channels
    results.channel_pitch, results.position_pitch = 1, work.b.result_pitch
    results.step[2] = y.stride[4]
    results.past = work.b.stages and y.stride[4] == element_size(work.b.dtype)
    for axis in range(3):
        whole[axis], extent[axis] = work.axis[axis].result, extents[axis]
    join_rows(y, whole, extent)
    for d in range(extent[0]):
        for h in range(extent[1]):
            dst = y.data + d * y.stride[2] + h * y.stride[3]
            for run in range((extent[2] + most - 1) // most):
                count = min(most, extent[2] - run * most)
                store_line(work, &results, src, dst + run * most * y.stride[4], count, staging)
                src += count * box.stride[4]


cdef int run_boxed(const Work *work, const Task *task, Tensor x, Tensor y,
                   char *scratch) noexcept nogil:
    """Compute through a window [d][h][w][channel] and results of the same form."""
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t low[3]
    cdef Py_ssize_t high[3]
    cdef Py_ssize_t first[3]
    cdef Py_ssize_t last[3]
    cdef Py_ssize_t extent[3]
    cdef Py_ssize_t axis
    cdef Py_ssize_t groups = task.group_end - task.group
    cdef Py_ssize_t pitch = work.b.task_groups * work.b.output_channels
    cdef int dtype = work.b.dtype if work.b.row_pairs else (F64 if work.f64 else F32)
    cdef Py_ssize_t size = element_size(dtype)
    cdef Tensor window
    cdef Tensor box
    cdef int unfit
    window.data, box.data = s.window + ring_bytes(work), s.result
    window.stride[1] = box.stride[1] = size
    window.stride[4], box.stride[4] = pitch * size, work.b.result_pitch * size
    for axis in range(3):
        source_box(&work.axis[axis], task.start[axis], &low[axis], &high[axis])
        result_box(&work.axis[axis], task.start[axis], &first[axis], &last[axis])
        extent[axis] = last[axis] - first[axis]
    for axis in range(1, -1, -1):
        window.stride[2 + axis] = window.stride[3 + axis] * (high[axis + 1] - low[axis + 1])
        box.stride[2 + axis] = box.stride[3 + axis] * extent[axis + 1]
    read_box(work, &x, low, high, groups * work.b.output_channels * (1 + work.b.paired), &window,
             s.staging)
    # Both are addressed by the coordinates of the whole tensors.
    for axis in range(3):
        window.data -= low[axis] * window.stride[2 + axis]
        box.data -= first[axis] * box.stride[2 + axis]
        y.data += first[axis] * y.stride[2 + axis]
    unfit = compute_lanes(work, task, dtype, &window, &box, pitch, &s)
    box.data = s.result
    write_box(work, &box, extent, groups * work.b.input_channels, &y, s.staging)
    return unfit


cdef int run_lanes(const Work *work, const Task *task, char *scratch) noexcept nogil:
    cdef Tensor x = work.diff_dst
    cdef Tensor y = work.diff_src
    cdef Py_ssize_t first = task.group * work.b.output_channels
    cdef Scratch s
    if work.b.paired:
        x.stride[1] *= 2
    x.data += task.image * x.stride[0] + first * x.stride[1]
    y.data += task.image * y.stride[0] + task.group * work.b.input_channels * y.stride[1]
    if work.b.rolls:
        return run_rolled_channels(work, task, x, y, scratch)
    if work.b.along_rows:
        return run_channels(work, task, x, y, scratch)
    if work.b.windowed:
        return run_boxed(work, task, x, y, scratch)
    s = carve(&work.b, scratch)
    return compute_lanes(work, task, work.b.dtype, &x, &y,
                         work.b.groups * work.b.output_channels - first, &s)
