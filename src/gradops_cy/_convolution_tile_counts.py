"""What convolution kernels of AMX tiles do for an image (see _convolution_counts)."""

from __future__ import annotations

from math import prod

from gradops_cy import _convolution_fold, _convolution_scatter, _convolution_taps
from gradops_cy._convolution_counts import COUNTS, Counts, Work, window_of_positions
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_ROWS,
    FOLD,
    GROUPED,
    PAIRS,
    ROWS,
    SCATTER,
    TAIL_CHANNELS,
    UNFOLD,
    block_of_pixels,
    joins_images,
    lie_in_runs,
    taps_beside,
)
from gradops_cy._rounding import up


def _dot(work: Work) -> Counts:
    beside = taps_beside(work.problem, work.parts, work.tiles)
    in_place = _reads_in_place(work, beside)
    depth = work.outputs
    if beside > 1:
        depth = beside * up(depth, 2)
    elif not in_place:
        depth = up(depth, work.tiles.depth(depth))
    in_order = beside > 1 and work.sorts
    # Rows that run into each other have the taps of all of them.
    apart, joined = work.units_of_row(DOT_ROWS)
    inside = work.inside_rows if in_order or apart <= joined else 1.0
    rows = work.rows * (apart if in_order else min(apart, joined))
    if joins_images(work.problem, work.layout):
        rows = work.positions / DOT_ROWS
    moved = {"read": float(work.problem.diff_dst_channels * prod(work.dst))}
    return _products(work, rows, work.taps / beside * inside, depth, work.classes) | (
        moved if in_place else _window(work, in_order)
    )


def _reads_in_place(work: Work, beside: int) -> bool:
    """Whether tiles are loaded from diff_dst, roughly."""
    problem, outputs = work.problem, work.outputs
    if not work.dst_last or (beside > 1 and not lie_in_runs(problem, work.layout)):
        return False
    whole = outputs % work.tiles.depth(outputs) == 0
    whole = whole or (outputs % 2 == 0 and work.inputs <= TAIL_CHANNELS)
    fewest = problem.diff_src[2] // _convolution_taps.out_steps(problem)[2]
    return whole and fewest >= DOT_ROWS and not work.padded


def _products(work: Work, rows: float, taps: float, depth: int, classes: int) -> Counts:
    """Count the products of so many rows of tiles, `depth` deep for each tap."""
    vectors = -(-work.inputs // DOT_COLUMNS)
    # Two tiles of channels meet those of positions, unless these end with a part of one, which
    # takes as long as a whole one.
    together = 2
    if depth > DOT_K and depth % DOT_K:
        together, depth = 1, up(depth, DOT_K)
    return {
        "call": 1,
        "rows of weights": work.weights_rows,
        "weights first": 0 if work.last else work.weights,
        "weights from memory": work.weights_beyond,
        "products": rows * vectors * taps * depth / 2,
        "loads": rows * -(-vectors // together) * taps * -(-depth // DOT_K),
        "rows": work.rows * classes,
        "blocks": work.blocks,
        "results last" if work.last else "results first": work.positions * vectors * classes,
    }


def _kind(work: Work) -> str:
    """Return the name of a window: a stride deals it out, two by two at once."""
    if not work.sorts and work.runs == 1:
        return "window"
    return "window by twos" if work.problem.strides[2] == 2 else "window dealt out"


def _window(work: Work, in_order: bool = False) -> Counts:
    """Count what moves diff_dst to a window of channels for each position."""
    if in_order:
        return window_of_positions(work, 1)
    counts, kind = window_of_positions(work, work.runs), _kind(work)
    return {name.replace("window", kind): count for name, count in counts.items()}


def _unfold(work: Work) -> Counts:
    total = prod(work.problem.kernel) * work.outputs
    rows = work.groups * -(-prod(work.counts) // DOT_ROWS)
    depth = up(total, work.tiles.depth(total))
    counts = _products(work, rows, 1, depth, 1) | _window(work)
    counts["lines unfolded"] = work.lines_unfolded
    copied = work.outputs % 2 or total % DOT_K
    counts[f"weights copied {'last' if work.last else 'first'}"] = work.weights if copied else 0
    return counts


def _fold(work: Work) -> Counts:
    given = work.given
    fold = block_of_pixels(given, work.layout, work.tiles, work.parts, work.assumed)
    assert fold is not None
    problem = _convolution_fold.product(given, fold)
    return _dot(Work(problem, work.layout, work.tiles, work.assumed, work.parts))


def _pairs(work: Work) -> Counts:
    vectors = work.rows * -(-work.counts[2] // DOT_COLUMNS)
    channels = -(-work.inputs // DOT_ROWS)
    steps = work.taps * -(-work.outputs // DOT_K)
    kind = _kind(work)
    return {
        "call": 1,
        "weights": work.weights,
        "weights from memory": work.weights_beyond,
        "loads of positions": vectors * -(-channels // 2) * steps,
        "loads of weights": -(-vectors // 2) * channels * steps,
        "products": vectors * channels * steps,
        "sums": vectors * work.inputs,
        "rows": work.rows,
        "blocks": work.blocks,
        kind: work.window_elements / work.lanes,
        f"{kind}'s runs": work.window_rows * work.runs * -(-work.outputs // 2),
    }


def _scatter(work: Work) -> Counts:
    columns = _convolution_scatter.columns(work.problem)
    rows = work.groups * -(-prod(work.dst) // DOT_ROWS)
    tiles = rows * -(-columns // DOT_COLUMNS)
    moved = work.problem.diff_dst_channels * prod(work.dst) / work.lanes
    return COUNTS[SCATTER](work) | {
        "products": tiles * -(-work.outputs // DOT_K),
        "tiles": tiles,
        "window": moved,
    }


TILE_COUNTS = {
    **{kernel: COUNTS[kernel] for kernel in (ROWS, COLUMNS, GROUPED)},
    SCATTER: _scatter,
    DOT: _dot,
    UNFOLD: _unfold,
    FOLD: _fold,
    PAIRS: _pairs,
}
