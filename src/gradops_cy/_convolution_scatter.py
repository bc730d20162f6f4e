"""The SCATTER kernel's geometry: columns of the product, where they are added, and blocks.

The product of diff_dst with all weights has a column for every tap and channel of diff_src,
channels fastest. Taps along the last axis are one run of the sums, or with dilation one each; along
rows, where each column is a row of positions, each tap and channel is added by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem, Triple
from gradops_cy._rounding import up

# Channels of diff_dst from which on its product is worth adding up.
FEWEST_OUTPUTS = 16
# Products in the time of adding one column up.
ADDING = 22
# Positions multiplied at a time: whole tiles of every height.
STRIP, DOT_STRIP = 48, 64
# Elements of their product, which should stay in the first-level cache.
PRODUCT = 8192
# Along rows: elements that pass through the second-level cache with the rows of diff_dst that some
# channels have, so many positions of them where they are converted; and of products of pairs.
ROWS_PRODUCT, CONVERTED, PAIRS_PRODUCT = 1 << 15, 512, 1 << 16
# Channels of diff_src up to which as many copies of so many weights are faster than one.
FEW_INPUTS, MANY_WEIGHTS = 6, 1 << 12
# The most columns, those of pairs, and the most residues of a stride, dealt out one by one.
ROWS_COLUMNS, PAIRS_COLUMNS, ROWS_STRIDE = 64, 160, 16
# Channels that are multiplied before the next positions: as many rows as prefetchers follow, or
# pairs of rows.
ROWS_CHUNK, PAIRS_CHUNK = 32, 64


def columns(problem: ConvProblem) -> int:
    """Return the columns of the product."""
    return prod(problem.kernel) * problem.input_channels


def strip(pitch: int, dot: bool) -> int:
    """Return how many positions are multiplied at a time, for a product of `pitch` columns.

    The order of an element's sum depends on it: it has to be the same in every plan of a problem.
    """
    unit = DOT_STRIP if dot else STRIP
    return unit * min(max(1, PRODUCT // (unit * pitch)), 8)


def along_rows(problem: ConvProblem, pairs: bool) -> bool:
    """Return whether rows of diff_dst are multiplied where they lie, as measured.

    Many columns are added faster side by side, and fill the vectors of a tile.
    """
    most = PAIRS_COLUMNS if pairs else ROWS_COLUMNS
    return columns(problem) <= most and problem.strides[2] <= ROWS_STRIDE


def row_chunk(pairs: bool) -> int:
    """Return how many channels are multiplied before the next positions, along rows."""
    return PAIRS_CHUNK if pairs else ROWS_CHUNK


def row_strip(problem: ConvProblem, lanes: int, pairs: bool, converted: bool) -> int:
    """Return how many positions are multiplied at a time, along rows; whole vectors of each row."""
    most = PAIRS_PRODUCT if pairs else ROWS_PRODUCT
    most = max(1, most // columns(problem) // lanes) * lanes
    if converted:
        most = min(most, CONVERTED)
    return min(most, problem.diff_dst[1] * up(problem.diff_dst[2], lanes))


def by_column(problem: ConvProblem, weights: Array) -> Array:
    """Return (groups, O, I, D, H, W) weights as those of one tap with a channel for each column."""
    rows = weights.transpose(0, 1, 3, 4, 5, 2)
    apart = weights.strides[2] > weights.strides[5] and weights.size >= MANY_WEIGHTS
    if apart and 1 < problem.input_channels <= FEW_INPUTS:
        # Channel by channel, and as plain integers: faster than reshape's copy.
        given = rows.view(f"u{rows.itemsize}")
        rows = np.empty(given.shape, given.dtype)
        for channel in range(problem.input_channels):
            rows[..., channel] = given[..., channel]
    return rows.reshape(problem.groups, problem.output_channels, columns(problem), 1, 1, 1)


def margin(problem: ConvProblem) -> int:
    """Return how far positions of a block reach beyond it along the last axis."""
    return (problem.kernel[2] - 1) * problem.dilations[2]


def box_pitch(problem: ConvProblem, width: int) -> int:
    """Return the elements of a row of the sums of `width` positions, whole strides of channels."""
    stride = problem.strides[2]
    return up(width * stride + 2 * margin(problem), stride) * problem.input_channels


def box_elements(problem: ConvProblem, block: Sequence[int], lanes: int) -> int:
    """Return the size of a block's sums, with what the last run touches beyond them."""
    rows = block[0] * problem.strides[0] * block[1] * problem.strides[1]
    return rows * box_pitch(problem, block[2]) + lanes


def tables(problem: ConvProblem, lanes: int, alone: bool) -> tuple[Array, Array]:
    """Return the runs, of one tap where taps are added alone, and the rows of columns.

    Runs: shift along the last axis, elements, first column of the row's, phases, 0.
    Rows: shifts along the other axes, first column.
    """
    axes = tuple(zip(problem.kernel, problem.dilations, problem.pads_begin, strict=True))
    return _tables(axes, problem.strides[2], problem.input_channels, lanes, alone)


# Calls of many lengths share them.
@lru_cache(maxsize=64)
def _tables(
    axes: tuple[Triple, ...], stride: int, inputs: int, lanes: int, alone: bool
) -> tuple[Array, Array]:
    depth, height, width = (np.arange(k, dtype=np.intp) * d - p for k, d, p in axes)
    row = len(width) * inputs
    rows = np.stack(np.meshgrid(depth, height, indexing="ij"), axis=-1).reshape(-1, 2)
    rows = np.column_stack([rows, np.arange(len(rows)) * row])
    taps = 1 if alone or axes[2][1] > 1 else len(width)
    length = taps * inputs
    starts = width[::taps]
    # As many as it takes until the vectors of a run end before the next one of its phase.
    reach = -(-length // lanes) * lanes
    phases = -(-reach // (stride * inputs))
    runs = np.zeros((len(starts), 5), np.intp)
    runs[:, 0] = starts
    runs[:, 1] = length
    runs[:, 2] = np.arange(len(starts)) * length
    runs[:, 3] = phases
    return runs, np.ascontiguousarray(rows, np.intp)
