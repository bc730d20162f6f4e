"""Arrays at the door: which are accepted, and how they reach the kernels.

Kernels see every tensor as an address and strides: one signature for all dtypes (Cython has no
buffers of halves) and for any strides.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

from gradops_cy._attributes import found

Array = np.ndarray[Any, np.dtype[Any]]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# The codes of half.h.
DTYPE_CODES: dict[np.dtype[Any], int] = {
    np.dtype(np.float32): 0,
    np.dtype(np.float16): 1,
    BFLOAT16: 2,
    np.dtype(np.float64): 3,
}
DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
DTYPE_NAMES = {0: "f32", 1: "f16", 2: "bf16", 3: "f64"}

# Results of so many bytes and more begin on a cache line.
_ALIGNED_BYTES = 1 << 14
_BYTE = np.dtype(np.uint8)

DATA_FORMATS = ("NXC", "NCX", "NWC", "NHWC", "NDHWC", "NCW", "NCHW", "NCDHW")


class Extents(NamedTuple):
    """A data tensor's shape, taken apart."""

    batch: int
    channels: int
    spatial: tuple[int, ...]


def is_array(value: object) -> TypeGuard[Array]:
    """Tell whether `value` is a NumPy array without a mask."""
    return type(value) is np.ndarray or (
        isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
    )


def check_array(op: str, name: str, value: object) -> Array:
    """Return `value` if it is a NumPy array of a supported dtype, in any byte order."""
    if type(value) is np.ndarray and value.dtype in DTYPE_CODES:
        return value
    if not is_array(value):
        raise TypeError(f"{op}: {name} must be a NumPy array, got {type(value).__name__}")
    if value.dtype.newbyteorder("=") not in DTYPE_CODES:
        raise TypeError(
            f"{op}: {name} must have dtype float32, float16, bfloat16 or float64, got {value.dtype}"
        )
    return value


def check_rank(op: str, name: str, rank: int) -> None:
    """Raise unless `rank` is 3, 4 or 5."""
    if rank not in (3, 4, 5):
        raise ValueError(f"{op}: {name} must have 3, 4 or 5 axes, got {rank}")


def same_dtype(op: str, name: str, found_dtype: np.dtype[Any], required: np.dtype[Any]) -> None:
    """Raise unless two dtypes agree up to byte order."""
    if found_dtype != required and found_dtype.newbyteorder("=") != required.newbyteorder("="):
        raise TypeError(f"{op}: {name} must have dtype {required}, got {found_dtype}")


def check_known(
    op: str, name: str, value: object, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    """Raise unless `value` is an array of the shape and, up to byte order, the dtype of a plan."""
    if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:
        return
    array = check_array(op, name, value)
    if array.dtype != dtype:
        same_dtype(op, name, array.dtype, dtype)
    if array.shape != shape:
        raise ValueError(f"{op}: {name} must have shape {shape}, got {array.shape}")


def data_format(op: str, value: object, rank: int) -> str:
    """Return ``NXC`` or ``NCX`` for a data_format, which may spell X out to fit `rank`."""
    if not isinstance(value, str):
        raise TypeError(f"{op}: data_format must be NXC or NCX, got {found(value)}")
    spatial = "DHW"[5 - rank :]
    upper = value.upper()
    if upper in ("NXC", f"N{spatial}C"):
        return "NXC"
    if upper in ("NCX", f"NC{spatial}"):
        return "NCX"
    raise ValueError(
        f"{op}: data_format must be NXC or NCX (or N{spatial}C, NC{spatial} for {rank} axes), "
        f"got {value!r}"
    )


def extents(shape: tuple[int, ...], fmt: str) -> Extents:
    """Take a shape in format ``NXC`` or ``NCX`` apart."""
    if fmt == "NXC":
        return Extents(shape[0], shape[-1], tuple(shape[1:-1]))
    return Extents(shape[0], shape[1], tuple(shape[2:]))


def shape_of(parts: Extents, fmt: str) -> tuple[int, ...]:
    """Put a shape together in format ``NXC`` or ``NCX``."""
    if fmt == "NXC":
        return (parts.batch, *parts.spatial, parts.channels)
    return (parts.batch, parts.channels, *parts.spatial)


def native(array: Array) -> Array:
    """Return `array`, or a copy where its byte order or alignment cannot be read directly."""
    if array.dtype.isnative and array.flags.aligned:
        return array
    return array.astype(array.dtype.newbyteorder("="), order="K", copy=True, subok=False)


def unread(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an array in C order without memory for its elements: for whoever reads strides."""
    strides = [dtype.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return as_strided(np.empty(1, dtype), shape, strides)


def follow(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether axes are one in memory: each begins anew where the next one ends."""
    axes = [axis for axis in zip(shape, strides, strict=True) if axis[0] > 1]
    return all(outer == inner * extent for (_, outer), (extent, inner) in pairwise(axes))


def overlaps_itself(array: Array) -> bool:
    """Tell whether two indices may share memory: exact for every slicing and transposition."""
    reach = array.itemsize
    for stride, extent in sorted(
        (abs(stride), extent)
        for stride, extent in zip(array.strides, array.shape, strict=True)
        if extent > 1
    ):
        if stride < reach:
            return True
        reach = stride * (extent - 1) + reach
    return False


def _share_memory(a: Array, b: Array) -> bool:
    """Tell whether arrays share memory, which arrays that meet in address space may not do."""
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def aligned_bytes(count: int) -> Array:
    """Return `count` bytes of uninitialised memory on a cache-line boundary."""
    return _aligned((count,), _BYTE, count)


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> Array:
    """Return an uninitialised array of `size` bytes on a cache-line boundary."""
    storage = np.empty(size + 64, _BYTE)
    # Several times faster than ndarray.ctypes, and on the way of every call.
    address = ctypes.addressof(ctypes.c_char.from_buffer(storage.data))
    return np.ndarray(shape, dtype, storage, -address % 64)


def new_result(op: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return an uninitialised array; a large one begins on a cache line, which NumPy's do not."""
    size = math.prod(shape) * dtype.itemsize
    try:
        if size < _ALIGNED_BYTES:
            return np.empty(shape, dtype)
        return _aligned(shape, dtype, size)
    except ValueError:  # more bytes than an index can count
        raise ValueError(
            f"{op}: the result must fit into the address space, got shape {shape}"
        ) from None


def _check_writable(op: str, out: Array) -> None:
    """Raise unless every element of `out` can be written where it is alone."""
    flags = out.flags
    if not flags.writeable:
        raise ValueError(f"{op}: out must be writeable, got a read-only array")
    if not flags.aligned:
        raise ValueError(f"{op}: out must be aligned, got an unaligned array")
    if not flags.c_contiguous and out.size and overlaps_itself(out):
        raise ValueError(
            f"{op}: out must have one place per element, got strides {out.strides} "
            f"for shape {out.shape}"
        )


def result_array(
    op: str,
    out: object,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    accumulate: bool,
    inputs: dict[str, Array],
) -> Array:
    """Return `out` after checking it, or a new array where it is None."""
    if out is None:
        if accumulate:
            raise ValueError(f"{op}: accumulate=True must come with out=, got out=None")
        return new_result(op, shape, dtype)
    if not is_array(out):
        raise TypeError(f"{op}: out must be a NumPy array or None, got {type(out).__name__}")
    if out.dtype != dtype:
        raise TypeError(f"{op}: out must have dtype {dtype}, got {out.dtype}")
    if out.shape != shape:
        raise ValueError(f"{op}: out must have shape {shape}, got {out.shape}")
    if not out.flags.carray:
        _check_writable(op, out)
    for name, array in inputs.items():
        if np.may_share_memory(out, array) and _share_memory(out, array):
            raise ValueError(f"{op}: out must not overlap {name}, got arrays that share memory")
    return out
