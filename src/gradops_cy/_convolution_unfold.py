"""Few channels of diff_dst with DOT: taps unfolded into the sum, as channels of one tap (im2col).

Only where all positions have the same taps, in one residue class: of a transposed convolution, and
of a convolution without strides.
"""

from __future__ import annotations

from math import prod

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._rounding import up


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


def score(problem: ConvProblem, tile: tuple[int, int], speed: float) -> float:
    """Return the share of whole tiles, `tile` channels by products, that is left of copying.

    `speed` is the products of a cycle.
    """
    columns, depth = tile
    outputs, inputs = problem.output_channels, problem.input_channels
    total = prod(problem.kernel) * outputs
    length = (problem.kernel[2] if problem.dilations[2] == 1 else 1) * outputs
    # Cycles for a position: products, runs of taps, and its part of reordering weights.
    products = up(inputs, columns) * up(total, depth) / speed
    copies = total / length * (2 + 5 * -(-length // 32))
    # Pairs of two taps change the bits of a result, and these should not depend on its batch, which
    # may be joined with the axes beyond its rank.
    if outputs % 2:
        positions = prod(problem.diff_src[-problem.rank :])
    else:
        positions = problem.batch * prod(problem.diff_src)
    weights = 2 * total * inputs / positions
    whole = inputs / up(inputs, columns) * total / up(total, depth)
    return whole * products / (products + copies + weights)
