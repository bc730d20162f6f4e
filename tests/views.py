"""The same values in other places of memory."""

import numpy as np


def in_order(array, order):
    """Return the array with its axes in memory in the given order."""
    return np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))


def spaced(array):
    """Return every second element of a larger array, on every axis; the others are NaN."""
    larger = np.full([2 * n for n in array.shape], np.nan, array.dtype)
    view = larger[(slice(None, None, 2),) * array.ndim]
    view[...] = array
    return view


def inside(array):
    """Return the inside of a larger array, of NaN else."""
    larger = np.full([n + 3 for n in array.shape], np.nan, array.dtype)
    view = larger[(slice(1, -2),) * array.ndim]
    view[...] = array
    return view


def reversed_axes(array):
    """Return a view with negative strides on every axis."""
    flip = (slice(None, None, -1),) * array.ndim
    return np.ascontiguousarray(array[flip])[flip]


def unaligned(array):
    """Return a copy that begins at an odd address."""
    storage = np.empty(array.nbytes + 1, np.uint8)
    view = storage[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    """Return a view that refuses to be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


# Views that may also be results.
WRITEABLE = {
    "contiguous": np.ascontiguousarray,
    "fortran order": np.asfortranarray,
    "last axis second": lambda a: in_order(a, (0, a.ndim - 1, *range(1, a.ndim - 1))),
    "second axis last": lambda a: in_order(a, (0, *range(2, a.ndim), 1)),
    "spaced": spaced,
    "inside": inside,
    "reversed": reversed_axes,
}

VIEWS = {
    **WRITEABLE,
    "read-only": read_only,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder("S")),
    "unaligned": unaligned,
    "subclass": lambda a: a.view(type("Sub", (np.ndarray,), {})),
}
