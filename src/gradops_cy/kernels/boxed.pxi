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


cdef int compute_lanes(const Work *work, const Task *task, int dtype, const Tensor *x,
                       const Tensor *y, Py_ssize_t readable, const Scratch *s) noexcept nogil:
    """Compute a task; return whether something is not as assumed.

    `x` and `y` are the tensors at its image and first channels, of which `readable` lie next to each
    other in `x`.
    """
    cdef Py_ssize_t c
    if work.b.kernel == GROUPED:
        return compute_grouped(work, task, dtype, x, y, readable, s)
    for c in range(task.class_begin, task.class_end):
        compute_depthwise(work, task, work.residue + 5 * c, dtype, x, y, s.pointers)
    return 0


cdef int run_boxed(const Work *work, const Task *task, Tensor x, Tensor y,
                   char *scratch) noexcept nogil:
    """Compute through a window [d][h][w][channel] and results of the same form."""
    cdef Scratch s = carve(&work.b, scratch)
    cdef Py_ssize_t low[3]
    cdef Py_ssize_t high[3]
    cdef Py_ssize_t extent[3]
    cdef Py_ssize_t axis, d, h, c
    cdef Py_ssize_t groups = task.group_end - task.group
    cdef Py_ssize_t pitch = work.b.task_groups * work.b.output_channels
    cdef Tensor window
    cdef Tensor box
    cdef Results results
    cdef int unfit
    window.data, box.data = s.window + ring_bytes(work), s.result
    window.stride[1] = box.stride[1] = work.size
    window.stride[4], box.stride[4] = pitch * work.size, work.b.result_pitch * work.size
    for axis in range(3):
        source_box(&work.axis[axis], task.start[axis], &low[axis], &high[axis])
        extent[axis] = min(work.axis[axis].block * work.axis[axis].out_step,
                           work.axis[axis].result - task.start[axis] * work.axis[axis].out_step)
    for axis in range(1, -1, -1):
        window.stride[2 + axis] = window.stride[3 + axis] * (high[axis + 1] - low[axis + 1])
        box.stride[2 + axis] = box.stride[3 + axis] * extent[axis + 1]
    for d in range(low[0], high[0]):
        for h in range(low[1], high[1]):
            pack_run(work, x.data + d * x.stride[2] + h * x.stride[3] + low[2] * x.stride[4],
                     x.stride[4], window.data + (d - low[0]) * window.stride[2]
                     + (h - low[1]) * window.stride[3], 1, pitch, high[2] - low[2],
                     groups * work.b.output_channels, s.staging)
    # Both are addressed by the coordinates of the whole tensors.
    for axis in range(3):
        window.data -= low[axis] * window.stride[2 + axis]
        c = task.start[axis] * work.axis[axis].out_step
        box.data -= c * box.stride[2 + axis]
        y.data += c * y.stride[2 + axis]
    unfit = compute_lanes(work, task, F64 if work.f64 else F32, &window, &box, pitch, &s)
    results.channels = groups * work.b.input_channels
    results.channel_pitch, results.position_pitch = 1, work.b.result_pitch
    results.step[2] = y.stride[4]
    for d in range(extent[0]):
        for h in range(extent[1]):
            store_line(work, &results, s.result + d * box.stride[2] + h * box.stride[3],
                       y.data + d * y.stride[2] + h * y.stride[3], extent[2], s.staging)
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
    if work.b.windowed:
        return run_boxed(work, task, x, y, scratch)
    s = carve(&work.b, scratch)
    return compute_lanes(work, task, work.b.dtype, &x, &y,
                         work.b.groups * work.b.output_channels - first, &s)
