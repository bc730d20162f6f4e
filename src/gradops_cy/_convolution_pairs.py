"""Rows of diff_dst two by two for DOT: the pitch of the window, and when it is worth it."""

from __future__ import annotations

from math import prod

from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_taps import out_steps
from gradops_cy._rounding import odd, up


def pitch(entries: int) -> int:
    """Return the bytes from pair to pair of a window's segment."""
    return odd(entries * 4, 64)


# Nanoseconds of a multiply-add with AMX, by parts: rows of tiles on lines, and anywhere.
ALIGNED, CROSSING = {1: 0.0012, 2: 0.0032, 3: 0.0045}, {1: 0.0018, 2: 0.0038, 3: 0.0054}


def gain(problem: ConvProblem, columns: int, depth: int, parts: int) -> float:
    """Return how many times as fast as DOT this is with AMX, channels first.

    Nothing is transposed. But the rows of AMX tiles begin anywhere in a line, and loading those
    takes as long as multiplying them, longer where only one tile of channels meets them.
    """
    inputs, outputs = problem.input_channels, problem.output_channels
    width = problem.diff_src[2]
    vectors = up(width, columns) / width
    # Nanoseconds for a position, as measured.
    taps = prod(problem.kernel) / prod(out_steps(problem))
    products = taps * up(inputs, columns) * up(outputs, depth)
    here = CROSSING[parts] * (1 if inputs > columns else 2) * products
    sources = outputs * prod(problem.diff_dst) / prod(problem.diff_src)
    moves = 0.1 * (sources + inputs) * vectors
    across = ALIGNED[parts] * products + 0.12 * sources + 0.33 * inputs
    return across / (here + moves)
