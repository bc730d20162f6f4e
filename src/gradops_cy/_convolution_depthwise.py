"""What the kernel of depthwise convolutions decides by itself."""

from __future__ import annotations

from math import prod

from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_taps import out_steps
from gradops_cy._rounding import odd, up

# What a thread's window of a plane may take, and of one with strides: a smaller one shares more
# rows with its neighbours than it has.
PLANE_BYTES, STRIDED_PLANE_BYTES = 1 << 16, 1 << 18
# Rows of a residue class that are computed at a time, while what comes next is asked for.
ROWS = 28
# Channels of a tile of pairs of rows, and bytes of weights that tasks copy for them.
PAIR_CHANNELS, MOST_PAIRED = 32, 1 << 19
# Positions of which sums of columns are in scratch; and the time of their products, of that of
# columns by themselves, for vectors of 64 bytes and for shorter ones.
STRIP = 16
WIDE_BESIDE, BESIDE = 1.1, 0.85
# The stride for which there are tiles of all residue classes of a row.
STRIDE = 2


def strided(problem: ConvProblem, lanes: int) -> bool:
    """Return whether columns of diff_dst are multiplied as they are, by weights for each stride."""
    stride, taps = problem.strides[2], problem.kernel[2]
    divides = taps % stride == lanes % stride == 0
    return problem.transposed and stride > 1 and problem.dilations[2] == 1 and divides


def strided_sums(positions: int, taps: int, stride: int, lanes: int) -> int:
    """Return the elements of what depthwise_strided.h sums of a row, before it is one."""
    return 4 * ((up(positions, lanes) + lanes) * stride + up(taps, lanes))


def window_pitch(positions: int, span: int, stride: int, lanes: int) -> int:
    """Return the elements of a row of the window, of which `positions` read `span` each.

    It has as many parts as the stride of the positions.
    """
    if stride == 1:
        return odd(up(positions, lanes) + span - 1 + lanes, lanes)
    return stride * odd(up(positions, lanes) + (span - 1) // stride, lanes)


def stride_columns(problem: ConvProblem, lanes: int, size: int) -> int:
    """Return how many columns of diff_dst are summed side by side, or 1.

    The columns of a stride are taken for one of so many times the channels, where that leaves
    fewer lanes without work. To add up their sums takes about three products for a vector.
    """
    stride, channels = problem.strides[2], problem.groups
    if not problem.transposed or problem.dilations[2] > 1 or problem.kernel[2] % stride:
        return 1
    taps = prod(problem.kernel) // stride
    apart, beside = stride * up(channels, lanes), up(stride * channels, lanes)
    product = WIDE_BESIDE if lanes * size == 64 else BESIDE
    return stride if product * (beside * taps + 3 * apart) < apart * taps else 1


def pairs_columns(problem: ConvProblem, vector_pairs: bool) -> bool:
    """Return whether to multiply neighbouring columns of bfloat16 as one, along rows.

    Three taps make a pair and one by itself: two products for three gain nothing, but where two
    classes share what they load.
    """
    stride, taps = problem.strides[2], problem.kernel[2]
    pairs = vector_pairs and problem.dtype == 2
    return pairs and _reads_columns_in_turn(problem) and taps > max(stride, 4 - stride)


def pairs_rows(problem: ConvProblem, vector_pairs: bool) -> bool:
    """Return whether to multiply what two rows of taps read of bfloat16 as one, channels last.

    A tile has the channels of a whole vector, those of two that hold floats.
    """
    channels, rows = problem.groups, prod(problem.kernel[:2]) / prod(out_steps(problem)[:2])
    fills = up(channels, PAIR_CHANNELS // 2) > 0.8 * up(channels, PAIR_CHANNELS)
    panel = prod(problem.kernel) * channels * 8
    pairs = vector_pairs and problem.dtype == 2 and rows > 1
    return pairs and _reads_columns_in_turn(problem) and fills and panel <= MOST_PAIRED


def _reads_columns_in_turn(problem: ConvProblem) -> bool:
    """Return whether the taps of a row read column after column, and so do positions."""
    dense = problem.strides[2] == 1 or not problem.transposed
    return dense and problem.dilations[2] == 1


def row_classes(problem: ConvProblem) -> int:
    """Return how many residue classes of a row are computed together, or 1.

    Where the taps of a row read column after column, and each class has one.
    """
    stride = out_steps(problem)[2]
    together = stride == STRIDE and problem.dilations[2] == 1
    return stride if together and min(problem.kernel[2], problem.diff_src[2]) >= stride else 1
