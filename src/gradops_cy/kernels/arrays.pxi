# Arrays at the door: where they begin, and their strides in bytes.

from cpython.buffer cimport (Py_buffer, PyBUF_STRIDED, PyBUF_STRIDES, PyBuffer_Release,
                             PyObject_GetBuffer)


cdef char *read_array(object array, bint writable, int axes, Py_ssize_t *shape,
                      Py_ssize_t *stride) except NULL:
    """Return where an array begins; fill in its extents and its strides in bytes.

    Asked for without a format, NumPy hands out any dtype, and faster than a typed memoryview.
    """
    cdef Py_buffer view
    cdef int axis
    PyObject_GetBuffer(array, &view, PyBUF_STRIDED if writable else PyBUF_STRIDES)
    try:
        if view.ndim != axes:
            raise ValueError(f"expected {axes} axes, got {view.ndim}")
        for axis in range(axes):
            shape[axis], stride[axis] = view.shape[axis], view.strides[axis]
        return <char *> view.buf
    finally:
        PyBuffer_Release(&view)


cdef char *read_tensor(object array, bint writable, bint channels_last, const Work *work,
                       Py_ssize_t *stride, Py_ssize_t *width) except NULL:
    """Return where a tensor begins; fill in its strides over n, c, d, h and w, and its width.

    Images without a depth of their own are planes.
    """
    cdef Py_buffer view
    cdef int last
    cdef bint images
    PyObject_GetBuffer(array, &view, PyBUF_STRIDED if writable else PyBUF_STRIDES)
    try:
        if not 3 <= view.ndim <= 5:
            raise ValueError(f"expected 3 to 5 axes, got {view.ndim}")
        read_strides(&view, channels_last, stride)
        if view.ndim < 5:
            stride[0], stride[2] = 0, stride[0]
        last = view.ndim - (2 if channels_last else 1)
        width[0] = view.shape[last]
        # NumPy hands out some stride or other for an axis of one: a channel by itself is as far from
        # the next one as in an array, and the rows that are joined to one position lie as far apart
        # as those of the axis before.
        if channels_last and view.shape[view.ndim - 1] == 1:
            stride[1] = view.itemsize
        if work.b.joins > 0 and view.shape[last] == 1:
            images = view.ndim == 3 or view.shape[last - 1] == 1
            stride[4] = stride[2 if work.b.joins > 1 and images else 3]
        if work.b.joins > 0:
            stride[3] = work.axis[2].result * stride[4]
        if work.b.joins > 1:
            stride[2] = work.axis[1].result * stride[3]
        return <char *> view.buf
    finally:
        PyBuffer_Release(&view)


cdef void fit_rows(Work *work, Py_ssize_t result, Py_ssize_t source) noexcept nogil:
    """Compute rows that may be shorter than the plan's, in even blocks."""
    cdef Axis *axis = &work.axis[2]
    cdef Py_ssize_t count
    axis.result = (result + work.b.fold_w - 1) // work.b.fold_w
    axis.source = axis.result if work.b.unfold else source
    count = (axis.result + axis.out_step - 1) // axis.out_step
    axis.blocks = (count + axis.pitch - 1) // axis.pitch
    axis.block = (count + axis.blocks - 1) // axis.blocks
    work.source[2].result, work.source[2].source = axis.result, source
    work.b.width = result


cdef char *read_bytes(object array, bint writable) except NULL:
    """Return where contiguous bytes begin."""
    cdef Py_ssize_t shape, stride
    return read_array(array, writable, 1, &shape, &stride)


cdef Axis read_axis(const Py_ssize_t[::1] table) noexcept nogil:
    cdef Axis axis
    cdef const Py_ssize_t *p = &table[0]
    axis.result, axis.source, axis.out_step, axis.in_step = p[0], p[1], p[2], p[3]
    axis.block, axis.blocks, axis.window, axis.taps, axis.runs = p[4], p[5], p[6], p[7], p[8]
    axis.run = p + 9
    axis.entry = axis.run + 4 * axis.runs
    axis.offset = axis.entry + axis.window
    axis.index, axis.pitch = axis.offset + axis.taps, axis.block
    return axis
