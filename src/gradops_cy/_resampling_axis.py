"""The tables of one axis: which destination indices touch a source index, with which weights.

Source index x is touched by the destination indices ``start[x] <= y < start[x] + count[x]``, a run
because coordinates are monotone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradops_cy._arrays import Array

# Destination indices whose coordinates are computed at once: bounds both the temporaries and
# the integers, which stay exact up to extents of 2**40.
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class AxisTable:
    """Which destination indices touch each source index of an axis, with which weights."""

    start: Array
    count: Array
    weights: Array


def _chunks(extent: int) -> itertools.starmap[range]:
    bounds = itertools.chain(range(0, extent, _CHUNK), (extent,))
    return itertools.starmap(range, itertools.pairwise(bounds))


def _exact_coordinates(
    mode: str, coordinates: str, src: int, dst: int, indices: range
) -> tuple[Array, Array, Array]:
    """Return floor, fraction and 1 - fraction of ``(slope·y + shift)/divisor``.

    That is the integer form of a mode. Both shares are rounded once: the smaller of two weights
    would lose its digits as a difference.
    """
    centred = coordinates in ("half_pixel", "pytorch_half_pixel")
    if dst == 1 and coordinates in ("align_corners", "pytorch_half_pixel"):
        slope, shift, divisor = 0, 0, 1
    elif coordinates == "align_corners":
        slope, shift, divisor = 2 * (src - 1), 0, 2 * (dst - 1)
    else:
        slope, shift, divisor = 2 * src, src - dst if centred else 0, 2 * dst
    if mode == "nearest" and coordinates != "asymmetric" and slope:
        shift += divisor // 2
    low, rest = divmod(slope * indices.start + shift, divisor)
    numerator = rest + slope * np.arange(len(indices), dtype=np.int64)
    whole = numerator // divisor
    numerator -= whole * divisor
    return low + whole, numerator / divisor, (divisor - numerator) / divisor


def _float_coordinates(
    mode: str, coordinates: str, src: int, dst: int, scale: float, indices: range
) -> tuple[Array, Array, Array]:
    """Return floor, fraction and 1 - fraction of the coordinates for a scale that is given."""
    index = np.arange(indices.start, indices.stop, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        if coordinates == "asymmetric":
            coordinate = index / scale
        elif coordinates == "pytorch_half_pixel" and dst == 1:
            coordinate = np.zeros(len(index))
        else:
            coordinate = (index + 0.5) / scale - 0.5
    if mode == "nearest" and coordinates != "asymmetric":
        coordinate = coordinate + 0.5
    coordinate = np.clip(coordinate, -1.0, float(src))
    low = np.floor(coordinate)
    fraction = coordinate - low
    return low.astype(np.int64), fraction, 1.0 - fraction


def axis_table(
    mode: str, coordinates: str, src: int, dst: int, scale: float, dtype: np.dtype[Any]
) -> AxisTable:
    """Build the gather table of one axis; `scale` 0 means the ratio of the extents."""
    low = np.empty(dst, np.int64)
    fraction, complement = np.zeros(dst), np.ones(dst)
    for indices in _chunks(dst):
        part = slice(indices.start, indices.stop)
        if scale and coordinates != "align_corners":
            floor, above, below = _float_coordinates(mode, coordinates, src, dst, scale, indices)
        else:
            floor, above, below = _exact_coordinates(mode, coordinates, src, dst, indices)
        low[part] = np.clip(floor, 0, src - 1)
        if mode == "linear":
            outside = (floor < 0) | (floor >= src - 1)
            fraction[part] = np.where(outside, 0.0, above)
            complement[part] = np.where(outside, 1.0, below)
    high = low + (fraction > 0)
    # Coordinates do not decrease: those at or below x are a prefix, and so are those below x.
    stop = np.cumsum(np.bincount(low, minlength=src))
    start = np.cumsum(np.bincount(high, minlength=src))
    start[1:], start[0] = start[:-1], 0
    count = stop - start
    weights = np.empty(int(count.sum()), dtype)
    # The weight of (x, y) is at first[x] - start[x] + y.
    shift = np.cumsum(count) - stop
    for indices in _chunks(dst):
        part = slice(indices.start, indices.stop)
        index = np.arange(indices.start, indices.stop)
        # Where the two are one place, the last to write is right.
        weights[shift[high[part]] + index] = fraction[part]
        weights[shift[low[part]] + index] = complement[part]
    return AxisTable(start, count, weights)
