"""What a convolution kernel does for an image: what the estimate of its time is made of.

Multiply-adds of vectors, and what it takes besides: blocks, rows, taps of tiles, elements moved to
windows and results.
"""

from __future__ import annotations

from math import isqrt, prod

from gradops_cy import _convolution_grouped, _convolution_scatter, _convolution_taps
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    GROUPED,
    KERNELS,
    LINE,
    PAIRS,
    ROWS,
    SCATTER,
    UNFOLD,
    Layout,
    Tiles,
    goes_along_rows,
    lanes_of_a_group,
    lie_in_runs,
    paired,
    reads_in_place,
    reads_positions_in_place,
    rounds_rows,
    sums_few_pairs,
    sums_few_planes,
    sums_runs,
    taps_beside,
    writes_positions_in_place,
    writes_whole_rows,
)
from gradops_cy._convolution_problem import BLOCK_WIDTH, ConvProblem, Triple
from gradops_cy._processor import ZEN4

# Positions of a block, and of windows with three axes.
_BLOCK, _BLOCK_OF_PLANES = 512, 2048
# Rows that run into each other in one block.
_ROWS_JOINED = 16
# Weights beyond these come from memory.
_WEIGHTS_IN_CACHE = 1 << 20
# Channels that are moved to a window together.
_SQUARE = 16
# Positions of a region (see regions.pxi), whose tiles leave out the taps that are padding for it.
_REGION = 4
# Positions, or channels, of a tile of pairs.
_TILE_OF_PAIRS = 12
# Multiply-adds that a core begins before the first one ends, two a cycle.
_SUMS = 8
# Time of GROUPED's products of one vector beside others', where halves come one after the other.
_PRODUCTS_OF_A_VECTOR = 1.2
# Time to store halves of sums that never leave the first-level cache, beside others', and of those
# of few products that never leave registers.
_ROUNDED, _ROUNDED_IN_REGISTERS = 0.6, 0.4

Counts = dict[str, float]


class Work:
    """What an image of a problem consists of, counted once for all kernels.

    First calls for new lengths wait for it: cached properties would take twice as long.
    """

    def __init__(
        self,
        given: ConvProblem,
        layout: Layout,
        tiles: Tiles,
        assumed: int,
        parts: int,
        pairs: bool = False,
    ) -> None:
        self.given, self.layout, self.tiles = given, layout, tiles
        self.assumed, self.parts, self.pairs = assumed, parts, pairs
        # Two channels of diff_dst that are multiplied as one are one.
        self.problem = problem = paired(given) if pairs else given
        self.lanes = lanes = tiles.lanes
        self.groups = groups = problem.groups
        self.inputs, self.outputs = problem.input_channels, problem.output_channels
        self.last = layout.diff_src_channels_last
        self.dst_last = layout.diff_dst_channels_last
        self.size = 8 if problem.dtype == 3 else 4
        # Zen 4 multiplies the halves of 64 bytes one after the other.
        self.halved = ZEN4 and lanes * self.size == LINE
        self.vectors = -(-self.inputs // lanes)  # of the channels of a group
        # Those that are multiplied, without a second half that holds no channel.
        self.multiplied = -(-self.inputs * 2 // lanes) / 2 if self.halved else self.vectors
        self.axes = axes = _convolution_taps.axes(problem)
        self.classes = prod(axis.classes for axis in axes)
        self.taps = prod(map(len, axes))  # of all residue classes
        # Share of the rows that taps read which are not padding.
        self.inside_rows = problem.inside(1) * (problem.inside(0) if problem.rank == 3 else 1)
        self.src = _of_image(problem.diff_src, problem.rank)
        self.dst = _of_image(problem.diff_dst, problem.rank)
        # Positions and rows of a residue class.
        self.counts = _of_image(_convolution_taps.counts(problem), problem.rank)
        depth, height, width = self.counts
        # And of the positions, where a tap's columns are enough to be a region of their own.
        apart = depth * height * problem.dilations[2] >= _REGION
        self.inside = self.inside_rows * (problem.inside(2) if apart else 1)
        self.rows = groups * depth * height
        self.positions = self.rows * width
        block = _block(self.counts, problem.kernel[0] > 1)
        tiled = zip(self.counts, block, strict=True)
        self.blocks = groups * prod(-(-count // extent) for count, extent in tiled)
        # Rows of all windows, the entries of one, and its runs of neighbouring positions.
        self.window_rows = self.blocks * axes[0].window(block[0]) * axes[1].window(block[1])
        self.entries, self.runs = axes[2].window(block[2]), axes[2].runs(block[2])
        self.window_elements = self.window_rows * self.entries * self.outputs
        # Weights, those from memory, and their rows of up to a vector when they are packed.
        rows = groups * self.outputs * prod(problem.kernel)
        self.weights, self.weights_rows = rows * self.inputs, rows * self.vectors
        self.weights_beyond = max(0, self.weights - _WEIGHTS_IN_CACHE)
        # Whether windows are sorted by the residues of a stride.
        self.sorts = problem.transposed and problem.strides[2] > 1

    def units_of_row(self, unit: int) -> tuple[float, float]:
        """Return the vectors, or tiles, of `unit` positions of a row: alone, or run into others."""
        _, height, width = self.counts
        together = min(height, _ROWS_JOINED)
        joined = -(-((together - 1) * self.entries + width) // unit) / together
        return float(-(-width // unit)), joined

    @property
    def padded(self) -> bool:
        """Whether taps read padding."""
        inside = prod(map(self.problem.inside, range(3)))
        return any(self.problem.pads_begin) or inside < 1

    @property
    def lines_unfolded(self) -> int:
        """Lines of cache that the taps of all positions are copied to, run by run."""
        problem, outputs = self.problem, self.outputs
        length = outputs * (problem.kernel[2] if problem.dilations[2] == 1 else 1)
        runs = self.positions * (prod(problem.kernel) * outputs // length)
        return runs * -(-length // DOT_K)


def _of_image(values: Triple, rank: int) -> Triple:
    """Return the extents of one image; below rank 3 they stand on the first axis."""
    return values if rank == 3 else (1, values[1], values[2])


def _block(counts: Triple, planes: bool) -> Triple:
    """Return the positions of a block, roughly."""
    depth, height, width = counts
    width = min(width, BLOCK_WIDTH)
    rows = max(1, (_BLOCK_OF_PLANES if planes else _BLOCK) // width)
    height = min(height, isqrt(rows) if planes and depth > 1 else rows)
    return min(depth, max(1, rows // height)), height, width


def _rows(work: Work) -> Counts:
    problem = work.problem
    nv = min(work.vectors, work.tiles.rows_nv)
    tiles = work.rows * -(-work.counts[2] // work.tiles.shapes[nv]) * -(-work.vectors // nv)
    vectors = work.positions * work.vectors
    axis = work.axes[2]
    windowed = not reads_positions_in_place(problem, work.layout, work.tiles)
    # Taps of a row that follow each other in memory are one.
    follow = axis.out_step == 1 and axis.in_step % problem.dilations[2] == 0
    merged = len(axis) if follow and sums_runs(problem, work.layout, work.tiles) else 1
    inside = work.inside_rows if merged > 1 else work.inside
    multiplied = max(1, work.multiplied)  # half a vector by itself takes as long as a whole one
    counts = {
        "call": 1,
        "rows of weights": work.weights_rows,
        "weights from memory": work.weights_beyond,
        "products": work.positions * multiplied * work.taps * work.outputs * inside,
        "taps of tiles": tiles * work.taps / merged,
        "rows": work.rows * work.classes,
        "blocks": work.blocks,
    }
    results = "first"
    if work.last:
        results = "in place" if problem.plain else "last"
    counts[f"results {results}"] = vectors * work.classes
    few = writes_positions_in_place(problem, work.layout, work.tiles)
    few = few and work.taps * work.outputs <= KERNELS.FEW_PRODUCTS
    if few:
        counts["taps of tiles"] = 0
    if rounds_rows(problem, work.layout, work.tiles):
        counts["results last"] *= _ROUNDED_IN_REGISTERS if few else _ROUNDED
    if not work.last:
        if not writes_whole_rows(problem, work.layout):
            squares = work.rows * work.vectors * -(-work.counts[2] // _SQUARE)
            counts["squares apart"] = squares * work.classes
    elif problem.groups > 1:
        counts["results of groups"] = vectors * work.classes
    return counts | window_of_positions(work, work.runs) if windowed else counts


def window_of_positions(work: Work, runs: int) -> Counts:
    """Count what moves diff_dst to a window of channels for each position, in runs of a row."""
    where = "last" if work.dst_last else "first"
    squares = 1 if work.dst_last else -(-work.outputs // _SQUARE)
    return {
        f"window {where}": work.window_elements / work.lanes,
        f"window's runs {where}": work.window_rows * runs * squares,
    }


def _columns(work: Work) -> Counts:
    problem, lanes, inputs = work.problem, work.lanes, work.inputs
    in_place = reads_in_place(problem, work.layout, work.tiles)
    row, joined = work.units_of_row(lanes)
    joins = joined < row and not in_place
    vectors = work.rows * (joined if joins else row)
    depth = work.taps * work.outputs
    tile = max(work.tiles.shapes.values())
    counts = {
        "call": 1,
        "weights": work.weights,
        "rows of weights": work.weights_rows,
        "weights from memory": work.weights_beyond,
        "products": vectors * inputs * depth,
        "loads": vectors * -(-inputs // tile) * depth,
        "sums": vectors * inputs * work.classes,
        "rows joined" if joins else "rows": work.rows * work.classes,
        "blocks": work.blocks,
    }
    if sums_few_planes(problem, work.layout):
        counts["sums"] = 0
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
        strided = work.runs > 1 or work.sorts
        where = f"{'sorted ' if strided else ''}{'last' if work.dst_last else 'first'}"
        runs = work.window_rows * work.runs
        counts[f"window {where}"] = work.window_elements / lanes
        channels = -(-work.outputs // _SQUARE) if work.dst_last else work.outputs
        counts[f"window's runs {where}"] = runs * channels
    return counts


def _scatter(work: Work) -> Counts:
    problem, lanes = work.problem, work.lanes
    outputs = -(-work.outputs // 2) if work.parts else work.outputs
    columns = _convolution_scatter.columns(problem)
    depth, height, width = work.dst
    rows = work.groups * depth * height
    results = problem.diff_src_channels * prod(work.src) / lanes
    if goes_along_rows(problem, work.layout, work.tiles, SCATTER, work.parts, work.assumed):
        vectors = rows * -(-width // lanes)
        return {
            "call along rows": 1,
            "weights along rows": work.weights,
            "products along rows": vectors * columns * outputs,
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
        "products": rows * width * -(-columns // lanes) * outputs,
        "sums": rows * width * (columns // run) * -(-run // lanes),
        "rows": rows * (columns // run),
        "positions": rows * width,
        "images": work.groups,
        "transposed": 0 if work.dst_last else problem.diff_dst_channels * prod(work.dst) / lanes,
        "results": results,
        "results' rows": source_rows * (1 if work.last else work.inputs),
    }


def _grouped(work: Work) -> Counts:
    problem, outputs, width = work.problem, work.outputs, work.counts[2]
    alone = lanes_of_a_group(work.given, work.tiles, work.pairs)
    lanes = alone or work.lanes
    # Entries hold channels to be broadcast, or what is spread of one channel, or of a quad.
    entry = alone or _convolution_grouped.entry_channels(problem, lanes)
    kind = "a vector" if alone else "quads" if entry > 1 else "lanes"
    vectors = problem.groups if alone else -(-problem.diff_src_channels // lanes)
    lines = vectors * prod(work.counts[:2])
    # Pieces of rows whose spread form stays in the first-level cache.
    axis, block = work.axes[2], width
    direct = work.layout.channels_last
    room = _convolution_grouped.room(not direct)
    rows = -(-outputs // entry)
    ring = _convolution_grouped.slots(work.axes) * rows * lanes * work.size
    shares = _convolution_grouped.shares_halo(axis, width)
    while not shares and block > 1 and axis.window(block) * ring > room:
        block = -(-block // 2)
    pieces = -(-width // block)
    # Fewer sums than are on their way at a time wait for themselves.
    least = _SUMS // 2 if work.halved and lanes == work.lanes else _SUMS
    products = lines * pieces * max(width / pieces, least) * work.taps * outputs * work.inside_rows
    if work.halved and alone:
        products *= 0.5 if alone < work.lanes else _PRODUCTS_OF_A_VECTOR
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
        "weights of vectors" if alone else "weights": work.weights,
        f"products of {kind}": products,
        "positions": lines * width * work.classes,
        "rows of quads" if kind == "quads" else "rows": lines * pieces * work.classes,
    }
    if alone:
        counts["entries"] = spread * work.inside_rows * axis.window(block)
        counts["taps of rows"] = lines * pieces * work.taps * work.inside_rows
        counts["rows of taps"] = lines * len(work.axes[0]) * len(work.axes[1]) * work.inside_rows
    else:
        counts[f"spread to {kind}"] = spread * work.inside_rows * axis.window(block) * sources
    if not work.pairs:
        counts["vectors"] = vectors
        if kind == "lanes":
            counts["rows spread to lanes"] = spread * work.inside_rows
    if not direct:
        window = "window sorted" if work.sorts else "window"
        counts["results"] = -(-problem.diff_src_channels // work.lanes) * prod(work.src)
        counts[window] = -(-problem.diff_dst_channels // work.lanes) * prod(work.dst)
    return counts


def _dot(work: Work) -> Counts:
    beside = taps_beside(work.problem, 1, work.tiles)
    depth = -(-work.outputs * beside // 2)
    inside = work.inside_rows if beside > 1 else work.inside
    few = sums_few_pairs(work.problem, work.layout, work.tiles)
    counts = _tiles_of_pairs(work, work.taps // beside, depth, inside)
    counts |= _moved_for_pairs(work, beside, few)
    if few:
        counts["taps of tiles"] = 0
        counts["results last"] *= _ROUNDED_IN_REGISTERS
    return counts


def _unfold(work: Work) -> Counts:
    total = prod(work.problem.kernel) * work.outputs
    return (
        _tiles_of_pairs(work, 1, -(-total // 2), 1)
        | _moved_for_pairs(work, 0, few=False)
        | {"lines unfolded": work.lines_unfolded}
    )


def _tiles_of_pairs(work: Work, taps: int, depth: int, inside: float) -> Counts:
    """Count the products of `depth` pairs for each of some taps, of which a share is `inside`."""
    vectors = -(-work.inputs // DOT_COLUMNS)
    tiles = -(-work.positions // _TILE_OF_PAIRS) * -(-vectors // 2)
    results = "results last" if work.last else "results first"
    return {
        "call": 1,
        "rows of weights": work.weights_rows,
        "products": work.positions * work.multiplied * taps * depth * inside,
        "taps of tiles": tiles * taps,
        "rows": work.rows * work.classes,
        "blocks": work.blocks,
        results: work.positions * vectors * work.classes,
    }


def _moved_for_pairs(work: Work, beside: int, few: bool) -> Counts:
    """Count what moves diff_dst to a window, unless it is read where it lies.

    There `few` products may be an odd number.
    """
    problem = work.problem
    in_place = beside == 1 or (beside > 1 and lie_in_runs(problem, work.layout))
    pairs = work.outputs % 2 == 0 or few
    if in_place and work.dst_last and pairs and not work.padded:
        return {}
    counts = window_of_positions(work, 1 if beside > 1 else work.runs)
    if work.dst_last and work.outputs % 2:
        # Each position is filled up to pairs, and so moved by itself.
        counts["window last"] = work.window_rows * work.entries * -(-work.outputs // work.lanes)
    return counts


def _pairs(work: Work) -> Counts:
    inputs = work.inputs
    vectors = work.rows * -(-work.counts[2] // DOT_COLUMNS)
    depth = -(-work.outputs // DOT_K) * (DOT_K // 2)
    tiles = -(-vectors // 2) * -(-inputs // _TILE_OF_PAIRS)
    return {
        "call": 1,
        "weights": work.weights,
        "products": vectors * inputs * work.taps * depth,
        "loads": tiles * work.taps * depth,
        "sums": vectors * inputs,
        "blocks": work.blocks,
        "window": work.window_elements / work.lanes,
        "window's runs": work.window_rows * work.runs * -(-work.outputs // 2),
    }


COUNTS = {
    ROWS: _rows,
    COLUMNS: _columns,
    SCATTER: _scatter,
    GROUPED: _grouped,
    DOT: _dot,
    UNFOLD: _unfold,
    PAIRS: _pairs,
}
