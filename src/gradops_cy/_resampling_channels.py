"""How the kernel of channels sums rows and columns: one after the other, at once, or in boxes."""

from __future__ import annotations

import math

import numpy as np

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._resampling_axis import AxisTable
from gradops_cy._resampling_problem import ResampleProblem

_kernels = _isa.kernels("resampling")

# From so many bytes of both tensors on, which caches hardly hold, it does both passes at once. It
# reads a row again for each row of the result that it touches, and a part of all channels after
# another: more rows than this, and more bytes of the columns between two columns of the result,
# cost more than that gains.
_SLIDING_BYTES = 1 << 24
_SLIDING_ROWS = 6
_SLIDING_COLUMN_BYTES = 1 << 12
# On Zen 4 so it does with fewer bytes too, of no more rows than this and more channels than a
# vector has (as have halves below); and from memory of more rows, if few positions are summed for
# each of the result and the columns between two have fewer bytes.
_SLIDING_ROWS_IN_CACHE = 4
_SLIDING_ROWS_ZEN4, _SLIDING_POSITIONS_ZEN4, _SLIDING_BYTES_ZEN4 = 9, 27, 1 << 9
# Positions of a box, and their bytes, from which on tensors that no cache holds are better summed
# in two passes: a box takes some channels of each position in turn.
_BOX_POSITIONS, _BOX_BYTES = 16, 1 << 15
_F32 = _arrays.DTYPE_CODES[np.dtype(np.float32)]
_F64 = _arrays.DTYPE_CODES[np.dtype(np.float64)]


def slides(problem: ResampleProblem, axes: list[AxisTable], in_chains: int) -> bool:
    """Return whether tensors larger than the caches are better summed in one pass than in two.

    A column of diff_dst may touch no more than two columns of the result.
    """
    itemsize = _arrays.DTYPES[problem.load_dtype].itemsize
    elements = problem.batch * problem.channels * (math.prod(problem.src) + math.prod(problem.dst))
    depth, height, width = (axis.longest for axis in axes)
    # Between two columns of the result.
    column_bytes = problem.dst[2] * problem.channels * itemsize / problem.src[2]
    near = column_bytes <= _SLIDING_COLUMN_BYTES
    fills = problem.channels > _kernels.ROW_LANES
    if elements * itemsize >= _SLIDING_BYTES:
        many = _processor.ZEN4 and (fills or itemsize == 4)
        many = many and depth * height * width <= _SLIDING_POSITIONS_ZEN4
        many = many and column_bytes <= _SLIDING_BYTES_ZEN4
        most_rows = _SLIDING_ROWS_ZEN4 if many else _SLIDING_ROWS
        few = depth * height <= most_rows and in_chains <= 2
    else:
        few = _processor.ZEN4 and fills
        few = few and depth * height <= _SLIDING_ROWS_IN_CACHE and in_chains == 1
    few = few and width <= _kernels.COLUMNS_IN_SEQUENCE
    # To convert halves twice takes narrow vectors longer than memory, and where the width shrinks,
    # halves take longer to store than to read. Boxes (nearest) are as fast there.
    pays = problem.store_dtype == _F32 and problem.mode != "nearest"
    if _kernels.WIDTH_LANES >= _kernels.ROW_LANES:
        pays = pays or problem.dst[2] > problem.src[2]
    computes = problem.load_dtype == problem.store_dtype != _F64
    return few and near and axes[2].touches_two and pays and computes


def in_boxes(problem: ResampleProblem, axes: list[AxisTable]) -> bool:
    """Return whether elements of the result are plain sums of few rows and columns of diff_dst."""
    depth, height, width = (axis.longest for axis in axes)
    few = depth * height <= _kernels.ROWS_OF_A_PLANE and width <= _kernels.COLUMNS_IN_SEQUENCE
    plain = all(bool(np.all(axis.weights == 1)) for axis in axes)
    position = problem.channels * _arrays.DTYPES[problem.load_dtype].itemsize
    positions = depth * height * width
    apart = positions >= _BOX_POSITIONS and positions * position >= _BOX_BYTES
    if apart and _processor.beyond_cache(problem.bytes_read):
        return False
    return few and plain and problem.load_dtype == problem.store_dtype
