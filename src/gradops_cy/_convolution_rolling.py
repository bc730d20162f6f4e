"""Depthwise convolution channels first, whose sums roll over the rows of diff_dst."""

from __future__ import annotations

from math import prod

from gradops_cy._convolution_depthwise import STRIDE
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_taps import axes, counts

# Taps, the same of rows and of columns, by stride.
_TAPS = {1: (3, 5, 7), STRIDE: (3, 5)}
# Lanes of floats, most vectors of a tile, of a row or of a residue class, and sums in registers.
LANES, _MOST_VECTORS, _SUMS = 16, 4, 24
_CONVERTED = 5  # most columns of taps of halves that are converted
# Columns beside diff_dst's that a tile's first and last vector may read, and no other one.
_BEYOND = 8


def rolls(problem: ConvProblem, lanes: int, vector_pairs: bool) -> bool:
    """Return whether rows of diff_dst go, as they are, to sums of rows in registers.

    For float32 and halves there are tiles of vectors of 64 bytes. Halves are converted for each
    column of taps, which for many takes longer than a window of floats.
    """
    stride, taps, dilations = problem.strides[1], problem.kernel[1], problem.dilations[1:]
    square = problem.strides[2] == stride and problem.kernel[2] == taps
    if problem.dtype == 3 or lanes < LANES or not square or taps not in _TAPS.get(stride, ()):
        return False
    if problem.itemsize == 2 and taps > _CONVERTED and not pairs(problem, vector_pairs):
        return False
    if stride == 1:
        return _reach_beyond_rows(problem) <= _BEYOND
    return dilations == (1, 1) and not problem.transposed and min(problem.diff_src[1:]) >= stride


def _reach_beyond_rows(problem: ConvProblem) -> int:
    """Return how many columns beside diff_dst's the taps of a row read at most."""
    axis, last = axes(problem)[2], problem.diff_src[2] - 1
    return max(-axis.low, axis.low + axis.span - 1 + last - (problem.diff_dst[2] - 1))


def pairs(problem: ConvProblem, vector_pairs: bool) -> bool:
    """Return whether to multiply neighbouring columns of bfloat16 as one.

    A vector of pairs has twice the results: where one of floats has a row's, it gains nothing.
    """
    multiplied = vector_pairs and problem.dtype == 2 and problem.dilations[2] == 1
    return multiplied and counts(problem)[2] > LANES


def work(problem: ConvProblem, vector_pairs: bool) -> dict[str, float]:
    """Count what is done for an image.

    Products are those of vectors, of which a tap by itself in pairs is one, too.
    """
    ways = 1 + pairs(problem, vector_pairs)
    stride, taps = problem.strides[1], problem.kernel[1]
    classes = [-(-taps // stride), taps // stride][:stride]
    _, height, width = counts(problem)
    vectors = -(-width // (LANES * ways))
    tiles = -(-vectors // min(_MOST_VECTORS, _SUMS // (taps * stride * ways)))
    read = height + (classes[0] - 1) * problem.dilations[1]
    products = sum(-(-count // ways) for count in classes) * ways * taps
    inside = min(read, problem.diff_dst[1])
    step = 1 if problem.transposed else problem.strides[0]
    layers = problem.kernel[0] * problem.inside(0) / step
    planes = problem.groups * (problem.diff_src[0] if problem.rank == 3 else 1)
    of_pairs, of_classes = " of pairs" * (ways > 1), " of classes" * (stride > 1)
    return {
        "channels": problem.groups,
        "weights": problem.groups * prod(problem.kernel),
        "tiles": planes * tiles,
        "rows": planes * tiles * read,
        f"products{of_pairs}": planes * vectors * inside * products * layers,
        f"results{of_pairs}{of_classes}": planes * vectors * ways * stride**2 * height,
    }
