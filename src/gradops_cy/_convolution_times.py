"""How long the kernels that multiply float32 take, as estimated from what they do.

Counted are multiply-adds of vectors, and what it takes besides: blocks, rows, taps of tiles,
elements moved to windows and results. The nanoseconds of each were fitted to the times of some
5,000 drawn problems on Zen 5 (float32 and float16, channels first and last, vectors of 64 and 32
bytes). Half of the estimates are within a tenth; what is chosen takes 1.03 times as long as the
best kernel, on average.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt, prod

from gradops_cy import _convolution_grouped, _convolution_scatter, _convolution_taps
from gradops_cy._convolution_kernels import (
    COLUMNS,
    GROUPED,
    LINE,
    ROWS,
    SCATTER,
    Layout,
    Tiles,
    goes_along_rows,
    lanes_of_a_group,
    reads_in_place,
    writes_whole_rows,
)
from gradops_cy._convolution_problem import ConvProblem, Triple
from gradops_cy._processor import ZEN4

# Positions of a block, of windows with three axes, and of the longest row.
_BLOCK, _BLOCK_OF_PLANES, _LONGEST_ROW = 512, 2048, 2048
# Rows that run into each other in one block.
_ROWS_JOINED = 16
# Weights beyond these come from memory.
_WEIGHTS_IN_CACHE = 1 << 20
# Channels that are moved to a window together.
_SQUARE = 16

Counts = dict[str, float]

_NANOSECONDS: dict[int, Counts] = {
    ROWS: {
        "call": 5980,
        "rows of weights": 2.1,
        "weights from memory": 0.09,
        "products": 0.123,
        "taps of tiles": 4.0,
        "rows": 11.3,
        "blocks": 223,
        "results in place": 0.22,
        "results last": 1.35,
        "results of groups": 1.1,
        "results first": 1.28,
        "squares apart": 3.2,
        "window last": 0.79,
        "window first": 1.34,
        "window's runs last": 6.0,
        "window's runs first": 4.8,
    },
    COLUMNS: {
        "call": 6300,
        "weights": 0.113,
        "rows of weights": 2.4,
        "weights from memory": 0.9,
        "products": 0.109,
        "loads": 0.18,
        "sums": 0.71,
        "rows": 18.2,
        "rows joined": 9.4,
        "blocks": 134,
        "results last": 0.86,
        "results of halves last": 0.92,
        "results of groups": 0.38,
        "results' rows": 0.56,
        "results apart": 0.64,
        "results' rows apart": 1.06,
        "window last": 0.93,
        "window first": 0.52,
        "window sorted last": 1.23,
        "window sorted first": 0.92,
        "window's runs last": 20.2,
        "window's runs first": 1.5,
        "window's runs sorted last": 15.7,
        "window's runs sorted first": 3.1,
    },
    SCATTER: {
        "call": 8700,
        "weights": 0.14,
        "products": 0.136,
        "sums": 0.74,
        "rows": 2.8,
        "positions": 1.7,
        "images": 340,
        "transposed": 1.9,
        "results": 1.2,
        "results' rows": 5.2,
        "call along rows": 8700,
        "weights along rows": 0.85,
        "products along rows": 0.125,
        "sums along rows": 0.86,
        "rows along rows": 1.45,
        "results along rows": 4.0,
    },
    GROUPED: {
        "call": 6460,
        "weights": 0.285,
        "vectors": 87,
        "products of lanes": 0.168,
        "products of a vector": 0.115,
        "products of quads": 0.112,
        "positions": 0.89,
        "rows": 7.5,
        "rows of quads": 28.7,
        "rows spread to lanes": 6.7,
        "spread to lanes": 0.32,
        "spread to a vector": 0.047,
        "spread to quads": 0.99,
        "results": 0.51,
        "window": 0.99,
        "window sorted": 1.56,
    },
}


def nanoseconds(
    problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int, kernels: Iterable[int]
) -> dict[int, float]:
    """Estimate the times of kernels for an image: what is computed must not depend on the batch."""
    work = _Work(problem, layout, tiles, assumed)
    times = {}
    for kernel in kernels:
        each = _NANOSECONDS[kernel]
        times[kernel] = sum(each[name] * count for name, count in _COUNTS[kernel](work).items())
    return times


class _Work:
    """What an image of a problem consists of, counted once for all kernels.

    First calls for new lengths wait for it: cached properties would take twice as long.
    """

    def __init__(self, problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int) -> None:
        self.problem, self.layout, self.tiles, self.assumed = problem, layout, tiles, assumed
        self.lanes = lanes = tiles.lanes
        self.groups = groups = problem.groups
        self.inputs, self.outputs = problem.input_channels, problem.output_channels
        self.last = layout.diff_src_channels_last
        self.dst_last = layout.diff_dst_channels_last
        self.size = 8 if problem.dtype == 3 else 4
        # Instructions of a vector: Zen 4 multiplies the halves of 64 bytes by themselves.
        self.halved = 2 if ZEN4 and lanes * self.size == LINE else 1
        self.vectors = -(-self.inputs // lanes)  # of the channels of a group
        self.axes = axes = _convolution_taps.axes(problem)
        self.classes = prod(axis.classes for axis in axes)
        self.taps = prod(map(len, axes))  # of all residue classes
        # Share of the rows that taps read which are not padding.
        self.inside = problem.inside(1) * (problem.inside(0) if problem.rank == 3 else 1)
        self.src = _of_image(problem.diff_src, problem.rank)
        self.dst = _of_image(problem.diff_dst, problem.rank)
        # Positions and rows of a residue class.
        self.counts = _of_image(_convolution_taps.counts(problem), problem.rank)
        depth, height, width = self.counts
        self.rows = groups * depth * height
        self.positions = self.rows * width
        self.block = block = _block(self.counts, problem.kernel[0] > 1)
        pairs = zip(self.counts, block, strict=True)
        self.blocks = groups * prod(-(-count // extent) for count, extent in pairs)
        # Rows of all windows, the entries of one, and its runs of neighbouring positions.
        self.window_rows = self.blocks * axes[0].window(block[0]) * axes[1].window(block[1])
        self.entries, self.runs = axes[2].window(block[2]), axes[2].pieces(block[2])
        self.window_elements = self.window_rows * self.entries * self.outputs
        # Weights, and their rows of up to a vector when they are packed.
        rows = groups * self.outputs * prod(problem.kernel)
        self.weights, self.weights_rows = rows * self.inputs, rows * self.vectors


def _of_image(values: Triple, rank: int) -> Triple:
    """Return the extents of one image; below rank 3 they stand on the first axis."""
    return values if rank == 3 else (1, values[1], values[2])


def _block(counts: Triple, planes: bool) -> Triple:
    """Return the positions of a block, roughly."""
    depth, height, width = counts
    width = min(width, _LONGEST_ROW)
    rows = max(1, (_BLOCK_OF_PLANES if planes else _BLOCK) // width)
    height = min(height, isqrt(rows) if planes and depth > 1 else rows)
    return min(depth, max(1, rows // height)), height, width


def _rows(work: _Work) -> Counts:
    problem, lanes = work.problem, work.lanes
    nv = min(work.vectors, work.tiles.rows_nv)
    tiles = work.rows * -(-work.counts[2] // work.tiles.shapes[nv]) * -(-work.vectors // nv)
    vectors = work.positions * work.vectors
    axis = work.axes[2]
    short = work.outputs < lanes and problem.kernel[2] > 1
    windowed = short or not (problem.plain and work.dst_last)
    # Taps of a row that follow each other in the window are one.
    follow = axis.out_step == 1 and axis.in_step % problem.dilations[2] == 0
    merged = len(axis) if windowed and follow else 1
    counts = {
        "call": 1,
        "rows of weights": work.weights_rows,
        "weights from memory": max(0, work.weights - _WEIGHTS_IN_CACHE),
        "products": vectors * work.taps * work.outputs * work.inside * work.halved,
        "taps of tiles": tiles * work.taps / merged,
        "rows": work.rows * work.classes,
        "blocks": work.blocks,
    }
    results = "first"
    if work.last:
        results = "in place" if problem.plain and work.inputs % lanes == 0 else "last"
    counts[f"results {results}"] = vectors * work.classes
    if not work.last:
        if not writes_whole_rows(problem, work.layout):
            squares = work.rows * work.vectors * -(-work.counts[2] // _SQUARE)
            counts["squares apart"] = squares * work.classes
    elif problem.groups > 1:
        counts["results of groups"] = vectors * work.classes
    if windowed:
        where = "last" if work.dst_last else "first"
        squares = 1 if work.dst_last else -(-work.outputs // _SQUARE)
        counts[f"window {where}"] = work.window_elements / lanes
        counts[f"window's runs {where}"] = work.window_rows * work.runs * squares
    return counts


def _columns(work: _Work) -> Counts:
    problem, lanes, inputs = work.problem, work.lanes, work.inputs
    in_place = reads_in_place(problem, work.layout, work.tiles)
    _, height, width = work.counts
    together = min(height, _ROWS_JOINED)
    row = float(-(-width // lanes))
    joined = -(-((together - 1) * work.entries + width) // lanes) / together
    joins = joined < row and not in_place
    vectors = work.rows * (joined if joins else row)
    depth = work.taps * work.outputs
    tile = max(work.tiles.shapes.values())
    counts = {
        "call": 1,
        "weights": work.weights,
        "rows of weights": work.weights_rows,
        "weights from memory": max(0, work.weights - _WEIGHTS_IN_CACHE),
        "products": vectors * inputs * depth * work.halved,
        "loads": vectors * -(-inputs // tile) * depth,
        "sums": vectors * inputs * work.classes,
        "rows joined" if joins else "rows": work.rows * work.classes,
        "blocks": work.blocks,
    }
    if work.last:
        results = "results last" if problem.plain else "results of halves last"
        counts[results] = work.positions * work.vectors * work.classes
        if problem.groups > 1:
            counts["results of groups"] = work.positions * work.vectors * work.classes
    elif writes_whole_rows(problem, work.layout):
        counts["results' rows"] = work.rows * inputs * work.classes
    else:
        counts["results' rows apart"] = work.rows * inputs * work.classes
        counts["results apart"] = work.positions * inputs * work.classes / lanes
    if not in_place:
        strided = work.runs > 1 or (problem.transposed and problem.strides[2] > 1)
        where = f"{'sorted ' if strided else ''}{'last' if work.dst_last else 'first'}"
        runs = work.window_rows * work.runs
        counts[f"window {where}"] = work.window_elements / lanes
        channels = -(-work.outputs // _SQUARE) if work.dst_last else work.outputs
        counts[f"window's runs {where}"] = runs * channels
    return counts


def _scatter(work: _Work) -> Counts:
    problem, lanes, outputs = work.problem, work.lanes, work.outputs
    columns = _convolution_scatter.columns(problem)
    depth, height, width = work.dst
    rows = work.groups * depth * height
    results = problem.diff_src_channels * prod(work.src) / lanes
    if goes_along_rows(problem, work.layout, work.tiles, SCATTER, 0, work.assumed):
        vectors = rows * -(-width // lanes)
        return {
            "call along rows": 1,
            "weights along rows": work.weights,
            "products along rows": vectors * columns * outputs * work.halved,
            "sums along rows": vectors * columns,
            "rows along rows": rows * columns,
            "results along rows": results,
        }
    # Taps of a row without dilation are one run of sums.
    run = work.inputs * (problem.kernel[2] if problem.dilations[2] == 1 else 1)
    source_rows = work.groups * prod(work.src[:2])
    return {
        "call": 1,
        "weights": work.weights,
        "products": rows * width * -(-columns // lanes) * outputs * work.halved,
        "sums": rows * width * (columns // run) * -(-run // lanes),
        "rows": rows * (columns // run),
        "positions": rows * width,
        "images": work.groups,
        "transposed": 0 if work.dst_last else problem.diff_dst_channels * prod(work.dst) / lanes,
        "results": results,
        "results' rows": source_rows * (1 if work.last else work.inputs),
    }


def _grouped(work: _Work) -> Counts:
    problem, outputs, width = work.problem, work.outputs, work.counts[2]
    alone = lanes_of_a_group(problem, work.tiles, pairs=False)
    lanes = alone or work.lanes
    entry = 1 if alone else _convolution_grouped.entry_channels(problem, lanes)
    kind = "a vector" if alone else "quads" if entry > 1 else "lanes"
    vectors = problem.groups if alone else -(-problem.diff_src_channels // lanes)
    lines = vectors * prod(work.counts[:2])
    products = lines * width * work.taps * outputs * work.inside * work.halved
    # Pieces of rows whose spread form stays in the first-level cache.
    axis, block = work.axes[2], width
    direct = work.last and work.dst_last
    room = _convolution_grouped.room(not direct)
    rows = -(-outputs // entry)
    ring = _convolution_grouped.slots(work.axes) * rows * lanes * work.size
    while block > 1 and axis.window(block) * ring > room:
        block = -(-block // 2)
    pieces = -(-width // block)
    # Rings are filled once, other rows for each tap that reads them.
    spread = lines * len(work.axes[0]) * len(work.axes[1])
    if all(_convolution_grouped.rings(work.axes)):
        depth, height, _ = work.counts
        spread = vectors * work.axes[0].window(depth) * work.axes[1].window(height)
    spread *= pieces * rows
    # Vectors that lanes are taken from.
    sources = max(1, outputs // work.inputs) if kind == "lanes" else 1
    counts = {
        "call": 1,
        "weights": work.weights,
        "vectors": vectors,
        f"products of {kind}": products,
        "positions": lines * width * work.classes,
        "rows of quads" if kind == "quads" else "rows": lines * pieces * work.classes,
        f"spread to {kind}": spread * work.inside * axis.window(block) * sources,
    }
    if kind == "lanes":
        counts["rows spread to lanes"] = spread * work.inside
    if not direct:
        strided = problem.transposed and problem.strides[2] > 1
        window = "window sorted" if strided else "window"
        counts["results"] = -(-problem.diff_src_channels // work.lanes) * prod(work.src)
        counts[window] = -(-problem.diff_dst_channels // work.lanes) * prod(work.dst)
    return counts


_COUNTS = {ROWS: _rows, COLUMNS: _columns, SCATTER: _scatter, GROUPED: _grouped}
