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
from gradops_cy._resampling_problem import ResampleProblem

# Destination indices whose coordinates are computed at once: bounds both the temporaries and
# the integers, which stay exact up to extents of 2**40.
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class AxisTable:
    """Which destination indices touch each source index of an axis, with which weights."""

    start: Array
    count: Array
    weights: Array

    @property
    def longest(self) -> int:
        """The most destination indices that a source index is summed from."""
        return int(self.count.max())

    @property
    def touches_two(self) -> bool:
        """Whether a destination index touches up to two source indices."""
        return bool(np.all((self.start + self.count)[:-2] <= self.start[2:]))

    @property
    def shares(self) -> bool:
        """Whether they do, and some of them two."""
        some = np.any((self.start + self.count)[:-1] > self.start[1:])
        return self.touches_two and bool(some)


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


def _read_two(
    problem: ResampleProblem, src: int, dst: int, scale: float
) -> tuple[Array, Array, Array]:
    """Return what nearest and linear read: the lower index and the weights of both."""
    low = np.empty(dst, np.int64)
    fraction, complement = np.zeros(dst), np.ones(dst)
    for indices in _chunks(dst):
        part = slice(indices.start, indices.stop)
        floor, above, below = _coordinates(problem, src, dst, scale, indices)
        low[part] = np.clip(floor, 0, src - 1)
        if problem.mode == "linear":
            outside = (floor < 0) | (floor >= src - 1)
            fraction[part] = np.where(outside, 0.0, above)
            complement[part] = np.where(outside, 1.0, below)
    return low, fraction, complement


def _read_cubic(problem: ResampleProblem, src: int, dst: int, scale: float) -> tuple[Array, Array]:
    """Return the first of the four indices, which may lie outside, and their weights."""
    floor, above, below = _coordinates(problem, src, dst, scale, range(dst))
    a = problem.cubic_coeff_a
    pairs = ((above, below), (below, above))
    (far, farther), (near, nearer) = (
        [kernel(*pair, a) for pair in pairs] for kernel in (_far, _near)
    )
    return floor - 1, np.stack((far, near, nearer, farther), axis=1)


def _read_filtered(
    problem: ResampleProblem, src: int, dst: int, scale: float
) -> tuple[Array, Array]:
    """Return the first index and the weights of a filter as wide as the scale.

    As Pillow and PyTorch have it: where the scale shrinks, the filter is widened; it reads the
    elements whose centres lie within, and its weights are made to sum to one.
    """
    if problem.coordinates == "align_corners":
        step = (src - 1) / (dst - 1) if dst > 1 else 0.0
    else:
        step = 1 / scale if scale else src / dst
    widening = max(step, 1.0)
    support = (2 if problem.mode == "cubic" else 1) * widening
    center = step * (np.arange(dst) + 0.5)
    with np.errstate(over="ignore"):
        first = np.clip(np.trunc(center - support + 0.5), 0, src).astype(np.int64)
        stop = np.clip(np.trunc(center + support + 0.5), 0, src).astype(np.int64)
    # Given scales may lead past the end, where nothing is left to read.
    first = np.minimum(first, src - 1)
    stop = np.maximum(stop, first + 1)
    index = first[:, None] + np.arange(int((stop - first).max()))
    distance = np.abs(index - center[:, None] + 0.5) / widening
    weights = np.maximum(1 - distance, 0.0)
    if problem.mode == "cubic":
        a = problem.cubic_coeff_a
        far = np.where(distance < 2, _far(distance - 1, 2 - distance, a), 0.0)
        weights = np.where(distance <= 1, _near(distance, 1 - distance, a), far)
    weights = np.where(index < stop[:, None], weights, 0.0)
    total = weights.sum(axis=1, keepdims=True)
    return first, np.divide(weights, total, out=weights, where=total != 0)


def _near(distance: Array, rest: Array, a: float) -> Array:
    """Return the cubic convolution kernel for a distance below 1, of which `rest` is left."""
    weight: Array = rest * (1 + distance - (a + 2) * distance**2)
    return weight


def _far(beyond: Array, rest: Array, a: float) -> Array:
    """Return the kernel for a distance ``beyond`` 1, of which `rest` is left to 2."""
    weight: Array = a * beyond * rest**2
    return weight


def _coordinates(
    problem: ResampleProblem, src: int, dst: int, scale: float, indices: range
) -> tuple[Array, Array, Array]:
    """Return floor, fraction and 1 - fraction of the coordinates of `indices`."""
    mode, coordinates = problem.mode, problem.coordinates
    if scale and coordinates != "align_corners":
        return _float_coordinates(mode, coordinates, src, dst, scale, indices)
    return _exact_coordinates(mode, coordinates, src, dst, indices)


def axis_table(
    problem: ResampleProblem, src: int, dst: int, scale: float, dtype: np.dtype[Any]
) -> AxisTable:
    """Build the gather table of one axis; `scale` 0 means the ratio of the extents."""
    # An axis that keeps its extent and whose coordinates are its indices needs no filter.
    same = src == dst and scale in (0.0, 1.0)
    if same or (problem.mode != "cubic" and not problem.antialias):
        low, fraction, complement = _read_two(problem, src, dst, scale)
        high = low + (fraction > 0)
        start, count, shift = _runs(src, low, high)
        weights = np.empty(int(count.sum()), dtype)
        for indices in _chunks(dst):
            part = slice(indices.start, indices.stop)
            index = np.arange(indices.start, indices.stop)
            # Where the two are one place, the last to write is right.
            weights[shift[high[part]] + index] = fraction[part]
            weights[shift[low[part]] + index] = complement[part]
        return AxisTable(start, count, weights)
    read = _read_filtered if problem.antialias else _read_cubic
    first, taps = read(problem, src, dst, scale)
    # Outside indices stand for the border's, to which several weights may go.
    index = np.clip(first[:, None] + np.arange(taps.shape[1]), 0, src - 1)
    start, count, shift = _runs(src, index[:, 0], index[:, -1])
    place = shift[index] + np.arange(dst)[:, None]
    total = np.bincount(place.ravel(), taps.ravel(), int(count.sum()))
    return AxisTable(start, count, total.astype(dtype))


def _runs(src: int, low: Array, high: Array) -> tuple[Array, Array, Array]:
    """Return start and count per source index, and what takes an index y to its weight's place.

    `low` and `high` are the first and last source index that each destination index reads; they
    do not decrease: those at or below x are a prefix, and so are those below x.
    """
    stop = np.cumsum(np.bincount(low, minlength=src))
    start = np.cumsum(np.bincount(high, minlength=src))
    start[1:], start[0] = start[:-1], 0
    count = stop - start
    # The weight of (x, y) is at the sum of the counts before x, plus y - start[x].
    return start, count, np.cumsum(count) - stop
