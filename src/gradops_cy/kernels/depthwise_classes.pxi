# Depthwise convolution with a stride along rows: the residue classes of a row are computed together.
# A class by itself loads again what the others have loaded, and writes pieces of lines.

cdef Py_ssize_t join_classes(const Work *work, const Task *task, const Py_ssize_t *residue,
                             Py_ssize_t rows, Py_ssize_t count, Slide *slide, Py_ssize_t *before,
                             char *weights) noexcept nogil:
    """Copy the weights of a row's classes in the order in which their taps read.

    Returns the column that the first tap reads for its first position, which is `before` positions
    before the `count` of the task; `slide` tells which of its entries lie inside.
    """
    cdef const Axis *width = &work.axis[2]
    cdef Py_ssize_t step = width.out_step
    cdef Py_ssize_t bytes = (task.group_end - task.group) * work.size
    cdef Py_ssize_t pitch = work.b.group_panel * work.size
    cdef Py_ssize_t t, r, c, taps, reach, lowest, column
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t first = 0
    cdef const Py_ssize_t *a_class
    cdef const Py_ssize_t *tap
    cdef const char *src
    # Tap t of a class reads column j + offset for the position step j + residue.
    for c in range(step):
        a_class = residue + 5 * c
        lowest = step * width.offset[work.tap[3 * a_class[3] + 2]] - a_class[2]
        if c == 0 or lowest < low:
            low, first = lowest, a_class[2]
    for c in range(step):
        a_class = residue + 5 * c
        tap = work.tap + 3 * a_class[3]
        taps = (a_class[4] - a_class[3]) // rows
        src = work.weights + a_class[3] * pitch + task.group * work.size
        for r in range(rows):
            for t in range(taps):
                reach = step * width.offset[tap[3 * t + 2]] - a_class[2] - low
                memcpy(weights + (r * width.taps + reach) * bytes, src, bytes)
                src += pitch
    before[0] = (step - first) % step
    column = task.start[2] + (low - before[0]) // step
    slide.taps = width.taps
    clip_run(column, 1, (before[0] + count + slide.taps) // step, width.source, &slide.low,
             &slide.high)
    return column
