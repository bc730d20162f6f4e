"""Rows of diff_dst two by two for DOT: the pitch of the window, and when it is worth it."""

from __future__ import annotations

from math import prod

from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_taps import out_steps
from gradops_cy._rounding import odd, up


def pitch(entries: int) -> int:
    """Return the bytes from pair to pair of a window's segment."""
    return odd(entries * 4, 64)


# Nanoseconds of a multiply-add, by parts: rows of tiles on lines, and anywhere.
ALIGNED, CROSSING = {1: 0.0012, 2: 0.0032, 3: 0.0045}, {1: 0.0018, 2: 0.0038, 3: 0.0054}


def gain(problem: ConvProblem, columns: int, depth: int, parts: int) -> float:
    """Return how many times as fast as DOT this is, channels first.

    Nothing is transposed, but the rows of its tiles begin anywhere in a line, and loading those
    takes as long as multiplying them; longer where only one tile of channels meets them.
    """
    inputs = problem.input_channels
    taps = prod(problem.kernel) / prod(out_steps(problem))
    products = taps * up(inputs, columns) * up(problem.output_channels, depth)
    # Nanoseconds for a position, as measured.
    sources = problem.output_channels * prod(problem.diff_dst) / prod(problem.diff_src)
    loads = CROSSING[parts] * (1 if inputs > columns else 2)
    across = ALIGNED[parts] * products + 0.12 * sources + 0.33 * inputs
    # Rows are moved in whole vectors.
    width = problem.diff_src[2]
    moves = 0.1 * (sources + inputs) * up(width, columns) / width
    return across / (loads * products + moves)
