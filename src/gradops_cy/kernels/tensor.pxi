# Tensors of one to three spatial axes as they are given: the axes that both families count on.

from cpython.buffer cimport Py_buffer
from libc.string cimport memset


cdef void read_strides(const Py_buffer *view, bint channels_last, Py_ssize_t *stride) noexcept nogil:
    """Fill in the strides over n, c, d, h and w; those of axes that are not there are zero."""
    cdef int axes = view.ndim - 2, first = 1 if channels_last else 2, axis
    memset(stride, 0, 5 * sizeof(Py_ssize_t))
    stride[0] = view.strides[0]
    stride[1] = view.strides[view.ndim - 1 if channels_last else 1]
    for axis in range(axes):
        stride[5 - axes + axis] = view.strides[first + axis]
