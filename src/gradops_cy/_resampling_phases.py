"""The weights of the kernel of phases: rows whose width grows or shrinks by 2, 4 or 8.

Where it grows, position x of the result reads the columns from ``scale·x - before`` on, `taps` of
them, with the same weights everywhere but at the ends of a row, where columns are missing and
coordinates are clamped. A vector of positions reads as many vectors of columns, dealt out by their
place in a position: the phases. Where it shrinks, position x reads column ``x // spread`` or
nothing, with a weight that follows from its place in the column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._resampling_axis import AxisTable

_SCALES = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """Columns of a position, or positions of a column, and the taps of a position.

    The weights are those of a row's first, middle and last vector, tap by tap; or of positions,
    and words of ones where they read a column.
    """

    scale: int
    spread: int
    taps: int
    weights: Array


def _weights(axis: AxisTable, place: Array, most: int) -> Array:
    """Return the weights of each index, those of a run from `place` on and zeros besides."""
    tap = np.arange(most)
    used = (tap >= place[:, None]) & (tap < (place + axis.count)[:, None])
    weights = np.zeros(used.shape, axis.weights.dtype)
    weights[used] = axis.weights
    return weights


def rows_alike(axis: AxisTable, apart: int, period: int = 1) -> Array:
    """Return for each index how many have the same weights, it and those `period` on in turn.

    What they read begins `apart` after one another; 0 where the axis does not grow.
    """
    weights = _weights(axis, np.zeros(len(axis.start), np.intp), axis.longest)
    alike = np.empty(len(axis.start), np.intp)
    for first in range(min(period, len(alike))):
        rows = slice(first, None, period)
        start, count, same = axis.start[rows], axis.count[rows], weights[rows]
        parts = (np.diff(start) != apart) | (np.diff(count) != 0)
        parts |= np.any(same[1:] != same[:-1], axis=1)
        ends = np.append(np.flatnonzero(parts), len(start) - 1)
        index = np.arange(len(start))
        alike[rows] = ends[np.searchsorted(ends, index)] + 1 - index
    return alike


def phase_table(axis: AxisTable, dst: int, *, lanes: int, parts: bool) -> PhaseTable | None:
    """Return the table of an axis, or None for one that is not such.

    Without `parts` rows must fill their vectors.
    """
    src = len(axis.start)
    scale = dst // src
    if min(src, dst) % lanes and not parts:
        return None
    if src % dst == 0 and src // dst in _SCALES:
        return _spread(axis, src // dst, lanes)
    if dst != src * scale or scale not in _SCALES or src <= lanes:
        return None
    first = scale * np.arange(src)
    # Nearest, linear and cubic with centres that correspond, and linear from corner to corner.
    half = scale // 2
    shapes = (0, scale), (half, 2 * scale), (3 * half, 4 * scale), (scale - 1, 2 * scale - 1)
    for before, taps in shapes:
        begin, end = np.maximum(first - before, 0), np.minimum(first - before + taps, dst)
        if np.array_equal(axis.start, begin) and np.array_equal(axis.count, end - begin):
            return _table(axis, begin - (first - before), scale, taps, lanes)
    return None


def _table(axis: AxisTable, missing: Array, scale: int, taps: int, lanes: int) -> PhaseTable | None:
    """Return the table, or None where weights differ but in a row's first and last vector."""
    src = len(axis.start)
    weights = _weights(axis, missing, taps)
    last = (src - 1) // lanes * lanes
    if np.any(weights[lanes:last] != weights[lanes]):
        return None
    sets = np.zeros((3, lanes, taps), weights.dtype)
    sets[0], sets[1], sets[2, : src - last] = weights[:lanes], weights[lanes], weights[last:]
    return PhaseTable(scale, 1, taps, np.ascontiguousarray(sets.swapaxes(1, 2)).ravel())


def _spread(axis: AxisTable, spread: int, lanes: int) -> PhaseTable | None:
    """Return the table of a width that shrinks, or None where columns differ in their weights."""
    src = len(axis.start)
    column = np.arange(src) // spread
    read = axis.count == 1
    apart = axis.longest > 1 or np.any(axis.start[read] != column[read])
    if apart or spread > lanes:
        return None
    weights = _weights(axis, np.zeros(src, np.intp), 1)
    shares, given = weights.reshape(-1, spread), read.reshape(-1, spread)
    if np.any(shares != shares[0]) or np.any(given != given[0]):
        return None
    words = np.where(given[0], np.int32(-1), np.int32(0)).view(np.float32)
    return PhaseTable(1, spread, 1, np.tile((shares[0], words), lanes // spread).ravel())
