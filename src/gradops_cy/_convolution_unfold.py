"""Few channels of diff_dst with DOT: taps unfolded into the sum, as channels of one tap (im2col).

Only where all positions have the same taps, in one residue class: of a transposed convolution, and
of a convolution without strides.
"""

from __future__ import annotations

from math import prod

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem


def product(problem: ConvProblem) -> ConvProblem:
    """Return the problem of one tap that is left when diff_dst has been unfolded."""
    one = (1, 1, 1)
    return problem._replace(
        transposed=True,
        diff_dst_channels=prod(problem.kernel) * problem.diff_dst_channels,
        diff_dst=problem.diff_src,
        kernel=one,
        strides=one,
        dilations=one,
        pads_begin=(0, 0, 0),
    )


def by_product(problem: ConvProblem, weights: Array) -> Array:
    """Return (groups, O, I, D, H, W) weights as those of one tap, a channel for each product."""
    given = weights.view(f"u{weights.itemsize}")
    # Taps by growing source coordinates.
    given = given if problem.transposed else given[..., ::-1, ::-1, ::-1]
    rows = given.transpose(0, 2, 3, 4, 5, 1)
    if problem.output_channels > 1 and given.strides[1] > abs(given.strides[5]):
        # Channel by channel: several times faster than reshape's copy.
        rows = np.empty(rows.shape, rows.dtype)
        for channel in range(problem.output_channels):
            rows[..., channel] = given[:, channel]
    count = prod(problem.kernel) * problem.output_channels
    rows = rows.reshape(problem.groups, problem.input_channels, count, 1, 1, 1)
    return rows.swapaxes(1, 2)


def packs_apart(problem: ConvProblem, depth: int) -> bool:
    """Return whether the panels of all taps, one after the other, are that of the product.

    So they are where none ends in padding, and no pair is of two taps.
    """
    outputs = problem.output_channels
    return outputs % 2 == 0 and prod(problem.kernel) * outputs % depth == 0
