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
# ... and with vectors, of which fewer channels wait for their own sums.
VECTORS, FEWEST = 0.0097, 5


def gain(problem: ConvProblem, columns: int, depth: int, parts: int, *, amx: bool) -> float:
    """Return how many times as fast as DOT this is, channels first.

    Nothing is transposed. But the rows of AMX tiles begin anywhere in a line, and loading those
    takes as long as multiplying them, longer where only one tile of channels meets them; vectors
    multiply what DOT leaves out: channels up to the depth of a tile, positions up to whole ones,
    and taps outside.
    """
    inputs, outputs = problem.input_channels, problem.output_channels
    taps = prod(problem.kernel) / prod(out_steps(problem))
    width = problem.diff_src[2]
    vectors = up(width, columns) / width
    # Nanoseconds for a position, as measured.
    if amx:
        products = taps * up(inputs, columns) * up(outputs, depth)
        across = ALIGNED[parts] * products
        transposes = 0.12, 0.33
        here = CROSSING[parts] * (1 if inputs > columns else 2) * products
    else:
        inside = prod(map(problem.inside, range(3)))
        across = VECTORS * taps * up(inputs, columns) * up(outputs, 2) * inside
        transposes = 0.11, 0.11
        here = VECTORS * taps * max(inputs, FEWEST) * up(outputs, depth) * vectors
    sources = outputs * prod(problem.diff_dst) / prod(problem.diff_src)
    moves = 0.1 * (sources + inputs) * vectors
    across += transposes[0] * sources + transposes[1] * inputs
    return across / (here + moves)
