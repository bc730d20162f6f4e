"""What the kernel of depthwise convolutions decides by itself."""

from __future__ import annotations

from math import prod

from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._rounding import up

# Positions of which sums of columns are in scratch.
STRIP = 16


def stride_columns(problem: ConvProblem, lanes: int) -> int:
    """Return how many columns of diff_dst are summed side by side, or 1.

    The columns of a stride are taken for one of so many times the channels, where that leaves clearly
    fewer lanes without work. To add up their sums last takes about three products for a vector.
    """
    stride, channels = problem.strides[2], problem.groups
    if not problem.transposed or problem.dilations[2] > 1 or problem.kernel[2] % stride:
        return 1
    taps = prod(problem.kernel) // stride
    apart, beside = stride * up(channels, lanes), up(stride * channels, lanes)
    return stride if 1.1 * (beside * taps + 3 * apart) < apart * taps else 1
