"""The GROUPED kernel's geometry: rings of rows of diff_dst, spread over the lanes of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from gradops_cy._convolution_axis import Axis, AxisTaps
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._processor import AMD

# Lanes among which a vector's instructions permute without an index in a register.
QUAD = 4
# The spread rows of a vector of lanes should stay in the first-level cache.
RING_BYTES = 1 << 15


def entry_channels(problem: ConvProblem, lanes: int) -> int:
    """Return how many channels of each group an entry holds, for the tile to spread.

    Four, where four lanes are always of one group, and what is spread serves the taps of a row. On
    Intel vectors of 64 bytes are permuted where they are multiplied.
    """
    beside = AMD or lanes * max(problem.itemsize, 4) < 64
    shared = problem.kernel[2] > 2 * problem.strides[2] and problem.dilations[2] == 1
    fits = problem.input_channels % QUAD == problem.output_channels % QUAD == 0 and lanes > QUAD
    return QUAD if beside and shared and fits else 1


def rings(axes: Sequence[AxisTaps]) -> list[int]:
    """Return how many spread rows follow each other in place, over depth and height.

    Of dilated taps those of one residue, which are visited one after the other. 0 where the rows
    that a position reads lie too far apart: each tap then has its own.
    """
    spans = [max(1, -(-axis.span // axis.apart)) for axis in axes[:2]]
    return [n if n <= 2 * len(axis) else 0 for n, axis in zip(spans, axes, strict=False)]


def visiting_step(axis: AxisTaps) -> int:
    """Return the positions from one to the next that reads rows of the same residue."""
    return axis.apart // gcd(axis.apart, axis.in_step)


def slots(axes: Sequence[AxisTaps]) -> int:
    """Return the rows of the rings."""
    return prod(n or len(axis) for n, axis in zip(rings(axes), axes, strict=False))


def shares_halo(axis: AxisTaps, positions: int) -> bool:
    """Return whether rows are best spread whole: so many positions read more than their share.

    To spread a halo again takes longer than reading spread rows from the second-level cache.
    """
    return axis.window(positions) > positions * axis.in_step


def room(boxed: bool) -> int:
    """Return the bytes of spread rows that stay in the first-level cache.

    Pieces of rows take longer to transpose and to store.
    """
    return RING_BYTES * (2 if boxed else 1)


def ring_elements(axes: Sequence[Axis], rows: int, lanes: int) -> int:
    """Return the size of what is spread for one vector of lanes, of a row so many rows."""
    return slots([axis.taps for axis in axes]) * rows * axes[2].window * lanes


def pointers(axes: Sequence[Axis], classes: int, channels: int, vector_bytes: int) -> int:
    """Return the size of the tables that a task makes, in words of 8 bytes."""
    # Three for each run of entries, eleven for each residue class.
    runs = slots([axis.taps for axis in axes]) + 2 * len(axes[2].taps)
    runs += 3 * axes[2].window + 11 * classes
    taps = 2 * prod(len(axis.taps) for axis in axes[:2])
    return runs + taps + channels * (1 + vector_bytes // 8)
