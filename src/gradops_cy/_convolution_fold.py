"""Few channels of diff_src with DOT: blocks of its pixels taken for channels (space to depth).

A tile, or a vector, has 16 channels of diff_src whether there are so many or not. A block of 2x2
pixels of an image of three channels has twelve, whose taps are those of all its pixels: the weights
of a pixel are zeros where another's taps are.

    diff_src'[q][rh][rw][i] = diff_src[q * fold + r][i]

Block q reads ``y = q * fold / stride + t`` for taps t, as a transposed convolution does.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem, Triple

# Channels of a block at most: those of a tile.
CHANNELS = 16

Pair = tuple[int, int]


class _Folded(NamedTuple):
    """An axis of blocks: diff_dst coordinates of the first block's taps, and their weights."""

    low: int
    taps: int
    places: tuple[tuple[int, int, int], ...]  # pixel of the block, tap, tap of the kernel


@lru_cache(maxsize=256)
def _axis(fold: int, kernel: int, stride: int, dilation: int, pad: int) -> _Folded:
    places = [
        (pixel, (pixel + pad - tap * dilation) // stride, tap)
        for pixel in range(fold)
        for tap in range(kernel)
        if (pixel + pad - tap * dilation) % stride == 0
    ]
    sources = [source for _, source, _ in places] or [0]
    low = min(sources)
    shifted = tuple((pixel, source - low, tap) for pixel, source, tap in places)
    return _Folded(low, max(sources) - low + 1, shifted)


def _axes(problem: ConvProblem, fold: Pair) -> tuple[_Folded, _Folded]:
    height, width = (
        _axis(
            fold[axis - 1],
            problem.kernel[axis],
            problem.strides[axis],
            problem.dilations[axis],
            problem.pads_begin[axis],
        )
        for axis in (1, 2)
    )
    return height, width


@lru_cache(maxsize=256)
def factors(problem: ConvProblem, last: bool) -> Pair | None:
    """Return the height and width of blocks that take fewest products, if any fit a tile.

    Unless diff_dst has its channels `last`, columns are dealt out on their way into the window:
    two by two that costs nothing, more than what is gained.
    """
    _, step_h, step_w = problem.strides
    inputs = problem.input_channels
    fitting = problem.groups == problem.strides[0] == 1 and not problem.transposed
    if not fitting or problem.bare_axes > 1 or 2 * inputs > CHANNELS:
        return None
    # Below rank 2 the rows are images.
    heights = range(step_h, CHANNELS // inputs + 1, step_h) if problem.rank > 1 else (1,)
    most = CHANNELS if last else 2 * step_w
    choices = [
        (height, width)
        for height in heights
        for width in range(step_w, min(most, CHANNELS // (inputs * height)) + 1, step_w)
        if height * width > 1
    ]
    return min(choices, key=lambda fold: _taps(problem, fold), default=None)


def _taps(problem: ConvProblem, fold: Pair) -> float:
    """Return the taps for each position of diff_dst."""
    taps = prod(axis.taps for axis in _axes(problem, fold))
    return taps * prod(problem.strides[1:]) / prod(fold)


def pays(problem: ConvProblem, fold: Pair) -> bool:
    """Return whether vectors of blocks are faster than those half of whose lanes are at work.

    As fitted to 11 layers. Whatever the batch: the bits of a result should not depend on it.
    """
    # Cycles for a position of diff_dst: pairs, and whole or half vectors of results.
    pairs, steps = (problem.output_channels + 1) // 2, prod(problem.strides)
    folded = _taps(problem, fold) * problem.kernel[0] * pairs / 1.75 + 9 * steps
    return folded < prod(problem.kernel) * pairs / 1.56 + 4 * steps


def product(problem: ConvProblem, fold: Pair) -> ConvProblem:
    """Return the problem that has blocks for channels."""
    height, width = _axes(problem, fold)
    rows, columns = (-(-problem.diff_src[axis] // fold[axis - 1]) for axis in (1, 2))
    return problem._replace(
        transposed=True,
        diff_src_channels=problem.diff_src_channels * prod(fold),
        diff_src=(problem.diff_src[0], rows, columns),
        kernel=(problem.kernel[0], height.taps, width.taps),
        strides=(1, fold[0] // problem.strides[1], fold[1] // problem.strides[2]),
        dilations=(problem.dilations[0], 1, 1),
        pads_begin=(problem.fronts[0], -height.low, -width.low),
    )


def by_block(problem: ConvProblem, fold: Pair, weights: Array) -> Array:
    """Return (1, O, I, D, H, W) weights as those of blocks, zero where a pixel has none."""
    given = weights[0].view(f"u{weights.itemsize}").transpose(1, 2, 3, 4, 0)
    taps, outputs = prod(given.shape[:-1]), given.shape[-1]
    rows = np.empty((taps + 1, outputs), given.dtype)
    rows[:taps].reshape(given.shape)[...] = given
    rows[taps] = 0
    places = _places(_axes(problem, fold), fold, problem.input_channels, problem.kernel)
    folded = rows.take(places, axis=0)
    return folded.reshape(1, -1, *folded.shape[3:]).transpose(0, 5, 1, 2, 3, 4)


@lru_cache(maxsize=64)
def _places(axes: tuple[_Folded, _Folded], fold: Pair, inputs: int, kernel: Triple) -> Array:
    """Return the row of weights of each tap of a block, the last for none: [rh][rw][i][d][h][w]."""
    numbers = np.arange(inputs * prod(kernel)).reshape(inputs, *kernel)
    height, width = axes
    shape = (*fold, inputs, kernel[0], height.taps, width.taps)
    places = np.full(shape, numbers.size)
    for row, h, tap_h in height.places:
        for column, w, tap_w in width.places:
            places[row, column, :, :, h, w] = numbers[:, ::-1, tap_h, tap_w]
    return places
