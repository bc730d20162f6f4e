"""Where positions are lanes or rows of tiles: the units of a block, and COLUMNS' tile."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from gradops_cy import _convolution_scatter
from gradops_cy._convolution_choice import Choice
from gradops_cy._convolution_kernels import DOT, DOT_COLUMNS, DOT_K, DOT_ROWS, PAIRS, SCATTER
from gradops_cy._rounding import even, up

# Products that AMX has under way before the sum of the first is ready for the next one.
AMX_LATENCY = 52 / 16
# Bytes of positions that a tile finds again in the first-level cache, for the most part: those of
# all its sums, or of a step along k, beside which the weights of many steps pass.
TILE_BYTES, STEP_BYTES = 48 << 10, 24 << 10
# Weights for each position from which on packing takes long.
PACKED_LONG = 1 << 10


class DotTile(NamedTuple):
    """AMX tiles whose sums are under way at the same time."""

    across: int  # of channels
    down: int  # of positions


def step(choice: Choice) -> int:
    """Return the positions that units have a multiple of: vectors, or rows of AMX tiles."""
    if choice.kernel == DOT and not choice.tiles.amx:
        return 1
    return DOT_ROWS if choice.dot else choice.lanes


def flattens(choice: Choice, width: int) -> bool:
    """Return whether rows of a plane run into each other."""
    if not choice.windowed or choice.in_order or step(choice) == 1:
        return False
    height = min(choice.counts[1], 16)
    joined = (height - 1) * row_pitch(choice, width) + width
    # Rows by themselves go without the taps whose rows lie outside.
    inside = choice.problem.inside(1) if choice.kernel == DOT else 1.0
    saved = inside * _apart(choice, height, width) / _cost(choice, joined)
    # Rows by themselves begin with whole lines, which load faster.
    return saved > (1.1 if choice.kernel == PAIRS else 1) and choice.counts[1] > 1


def row_pitch(choice: Choice, width: int) -> int:
    """Return the entries from row to row that run into each other.

    DOT keeps each run of a row in a plane of its own: residues modulo a stride.
    """
    axis = choice.axis(2, width)
    return axis.longest_run if choice.kernel == DOT else axis.window


def _apart(choice: Choice, height: int, width: int) -> float:
    """Return the time of rows by themselves.

    AMX has tiles down the columns that are left beside whole tiles, where these are fewer.
    """
    whole, columns = divmod(width, DOT_ROWS)
    tiles = columns * -(-height // DOT_ROWS)
    if choice.kernel != DOT or tiles >= height or whole % dot_tile(choice, False, width).down:
        return _cost(choice, width) * height
    return _cost(choice, width - columns) * height + _cost(choice, DOT_ROWS) * tiles


def _cost(choice: Choice, positions: int) -> float:
    """Return the time of a unit, in vectors or in tiles whose products do not wait for sums."""
    steps = -(-positions // step(choice))
    if not (choice.dot and choice.tiles.amx and steps):
        return steps
    across = 1 if _alone(choice) else 2
    down = 4 // across if choice.parts == 1 else 2
    count = -(-steps // down)
    low, higher = divmod(steps, count)
    cycles = (count - higher) * max(low * across, AMX_LATENCY)
    return (cycles + higher * max((low + 1) * across, AMX_LATENCY)) / across


def _alone(choice: Choice) -> bool:
    """Return whether a group has channels of diff_src for one tile."""
    return choice.problem.input_channels <= choice.abreast * DOT_COLUMNS


def unit(choice: Choice, flatten: bool, height: int, width: int) -> int:
    """Return the positions that one unit of a block computes, whole vectors or tiles."""
    joined = (height - 1) * row_pitch(choice, width) if flatten else 0
    return up(joined + width, step(choice))


def dot_tile(choice: Choice, flatten: bool, width: int) -> DotTile:
    """Choose the tile of DOT: two by two, or one of channels by four or six of positions.

    One of channels halves what is loaded of the weights, and doubles the loads of positions, which
    gains where many taps find them in the first-level cache. Two such may share a panel.
    """
    problem = choice.problem
    if not choice.tiles.amx:
        return DotTile(1, 4) if choice.kernel == DOT and _alone(choice) else DotTile(2, 2)
    positions = unit(choice, flatten, min(choice.counts[1], 16), width)
    tall = choice.kernel == DOT and choice.parts == 1 and positions > 2 * DOT_ROWS
    if choice.abreast > 1 or choice.tail or (tall and _alone(choice)):
        return DotTile(1, 4)
    if not tall or choice.work.most < 8:
        return DotTile(2, 2)
    across = 2 if _packs_lines(choice) else 1
    # What the taps of a tile read: those of a row read the same, but for strides.
    in_row = -(-problem.kernel[2] // choice.out_steps[2])
    phases = min(in_row, problem.strides[2] if problem.transposed else 1)

    def entry_bytes(down: int) -> int:
        return 2 * (choice.work.most // in_row) * (down * DOT_ROWS * phases + in_row)

    if entry_bytes(4) * problem.output_channels <= TILE_BYTES:
        return DotTile(across, 4)
    steps = choice.depth == DOT_K and choice.windowed and entry_bytes(6) * DOT_K <= STEP_BYTES
    return DotTile(across, 6) if steps and positions >= 4 * DOT_ROWS else DotTile(2, 2)


def _packs_lines(choice: Choice) -> bool:
    """Return whether panels of tall tiles are two tiles wide: a line of cache of the weights.

    Where these lie so, and packing takes long beside the products, which are 4 % slower.
    """
    problem = choice.problem
    positions = problem.batch * prod(problem.diff_src)
    weights = problem.input_channels * problem.output_channels * len(choice.taps)
    return choice.layout.weights_by_input and weights > PACKED_LONG * positions


def tile_vectors(choice: Choice, flatten: bool, width: int) -> int:
    """Choose how many vectors of positions a tile of COLUMNS takes, or of SCATTER along rows."""
    shapes, problem = choice.tiles.shapes, choice.problem
    inputs = problem.input_channels
    ends = len(choice.residues) / max(1, len(choice.taps) * problem.output_channels)
    if choice.kernel == SCATTER:
        inputs, width = _convolution_scatter.columns(problem), prod(problem.diff_dst[1:])
        ends = 1 / _convolution_scatter.ROWS_CHUNK
    vectors = unit(choice, flatten, min(choice.counts[1], 16), width) // choice.lanes

    def cost(nv: int) -> float:
        rows = even(inputs, shapes[nv])
        cycles, left, width = 0.0, vectors, nv
        while left:
            while width not in shapes or width > left:
                width -= 1
            # Two products or two loads a cycle, where a vector from the second-level cache counts
            # as four; at least a product's latency; and what it takes to begin and end the sum.
            once = max(rows * width, rows + 4 * width + 1, 8) / 2
            cycles += left // width * (once + ends * (10 + 2 * width * rows))
            left %= width
        return cycles * -(-inputs // rows)

    return min(shapes, key=lambda nv: (cost(nv), -nv))
