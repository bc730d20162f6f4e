"""Where positions are lanes or rows of tiles: the units of a block, and COLUMNS' tile."""

from __future__ import annotations

from gradops_cy._convolution_choice import AMX, AMX_ROWS, COLUMNS, Choice
from gradops_cy._rounding import even, up


def _step(choice: Choice) -> int:
    return AMX_ROWS if choice.kernel == AMX else choice.lanes


def flattens(choice: Choice, width: int) -> bool:
    """Return whether rows of a plane run into each other."""
    if not choice.windowed:
        return False
    height, step = min(choice.counts[1], 16), _step(choice)
    joined = (height - 1) * choice.axis(2, width).window + width
    return up(joined, step) < up(width, step) * height and choice.counts[1] > 1


def unit(choice: Choice, flatten: bool, nv: int, height: int, width: int) -> int:
    """Return the positions that one unit of a block computes, whole vectors or tiles."""
    joined = (height - 1) * choice.axis(2, width).window if flatten else 0
    return up(joined + width, _step(choice) * (nv if choice.kernel == COLUMNS else 1))


def tile_vectors(choice: Choice, flatten: bool, width: int) -> int:
    """Choose how many vectors of positions a tile of COLUMNS takes."""
    shapes, problem = choice.tiles.shapes, choice.problem
    inputs = problem.input_channels
    vectors = unit(choice, flatten, 1, min(choice.counts[1], 16), width) // choice.lanes
    ends = len(choice.residues) / max(1, len(choice.taps) * problem.output_channels)

    def cost(nv: int) -> float:
        rows = even(inputs, shapes[nv])
        tiles = -(-inputs // rows) * -(-vectors // nv)
        # Products; loads, twice for a vector off its boundary, which hide behind products
        # only in part; and what it takes to begin and end the sum.
        cycles = max(rows * nv / 2 + 0.6 * nv, 4.0)
        return float(tiles * (cycles + ends * (10 + 2 * nv * rows)))

    return min(shapes, key=lambda nv: (cost(nv), -nv))
