"""Groups of few channels that DOT takes for one: blocks on the diagonal of its weights."""

from __future__ import annotations

from math import prod

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem

# Positions of an image from which on it is not small.
LARGE_IMAGE = 700


def joins(problem: ConvProblem, last: bool) -> bool:
    """Return whether groups share AMX tiles of 32 channels, with zeros between them, as measured.

    They are copied and stored in whole lines, and tiles begin and end less often; but the weights
    are as many times larger. Whatever the batch: the bits of a result should not depend on it.
    """
    channels = max(problem.input_channels, problem.output_channels)
    if not 4 <= channels <= 10 or prod(problem.kernel) == 1:
        return False
    if max(problem.strides) > 1:
        return last and channels >= 8
    return prod(problem.diff_dst) * (channels - 3) >= 600


def joins_in_vectors(problem: ConvProblem, last: bool) -> bool:
    """Return whether groups share vectors of pairs of bfloat16, as measured.

    Without a kernel the products with zeros take less than what spreads rows over lanes. In small
    images it takes longer to put the zeros between weights.
    """
    channels = max(problem.input_channels, problem.output_channels)
    narrow = 3 <= channels <= 8 and problem.groups > 1
    return last and narrow and problem.pointwise and prod(problem.diff_dst) >= LARGE_IMAGE


def by_diagonal(weights: Array, count: int) -> Array:
    """Return (groups, O, I, D, H, W) weights with so many groups in one, and zeros between them."""
    groups, outputs, inputs, *kernel = weights.shape
    given = weights.view(f"u{weights.itemsize}")
    given = given.reshape(groups // count, count, outputs, inputs, *kernel)
    joined = np.zeros((groups // count, count, outputs, count, inputs, *kernel), given.dtype)
    for number in range(count):
        joined[:, number, :, number] = given[:, number]
    return joined.reshape(groups // count, count * outputs, count * inputs, *kernel)
