"""Which kernel computes a convolution, and what it reads and writes in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from gradops_cy import (
    _convolution_depthwise,
    _convolution_diagonal,
    _convolution_grouped,
    _convolution_pairs,
    _convolution_scatter,
    _convolution_split,
    _convolution_taps,
    _convolution_unfold,
    _isa,
)
from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import Axis, axis_of
from gradops_cy._convolution_problem import ConvProblem, Triple
from gradops_cy._convolution_taps import AxesTaps, Taps
from gradops_cy._processor import ZEN4
from gradops_cy._rounding import up

# DOT multiplies pairs of bfloat16. UNFOLD is DOT on another problem.
ROWS, COLUMNS, GROUPED, DOT, DEPTHWISE, SCATTER, PAIRS, UNFOLD = range(8)
KERNEL_NAMES = ("rows", "columns", "grouped", "dot", "depthwise", "scatter", "pairs")
DOT_ROWS, DOT_COLUMNS, DOT_K = 16, 16, 32
# How many times as fast as float32 without AMX.
DOT_RATE = 1.8
# Bytes of weights that a tile of positions passes by.
DOT_PANELS = 1 << 18
# What a plan takes for granted of the values; whatever breaks it takes another plan. That sums of
# bfloat16 parts, or beside zeros of other groups, are finite, that the weights are, or nothing.
MODERATE, FINITE, NOTHING = range(3)
# Channels up to which taps of a row are one run of products for vectors; more are cut in chunks.
BESIDE = 64
# Channels of diff_src up to which a window whose last tiles have zeros would not pay.
TAIL_CHANNELS = 192
# A row longer than this is cut into blocks.
BLOCK_WIDTH = 2048

KERNELS: Any = _isa.kernels("convolution")


class Tiles(NamedTuple):
    """The register tiles of the tier for one computing type."""

    shapes: dict[int, int]  # rows by vectors
    lanes: int
    rows_nv: int  # the most vectors of a ROWS tile
    bf16_rate: int  # bfloat16 products in the time of one of float32, at the peak; 0 for none

    @property
    def amx(self) -> bool:
        """Whether pairs of bfloat16 are multiplied by AMX tiles."""
        return self.bf16_rate > 2

    @property
    def products(self) -> int:
        """Products of bfloat16 in a cycle, as measured."""
        return 400 if self.amx else 28

    def columns(self, inputs: int) -> int:
        """Return the channels of diff_src that a vector of a DOT tile has room for."""
        narrow = ZEN4 and not self.amx and inputs <= DOT_COLUMNS // 2
        return DOT_COLUMNS // 2 if narrow else DOT_COLUMNS

    def depth(self, outputs: int) -> int:
        """Return how many products a DOT tile has: half of the most where a group has no more."""
        if not self.amx:
            return 2
        return DOT_K // 2 if outputs <= DOT_K // 2 else DOT_K


@lru_cache
def _tiles(f64: bool) -> Tiles:
    return Tiles(*KERNELS.tile_shapes(f64))


class Layout(NamedTuple):
    """What the arrays' strides allow."""

    diff_dst_channels_last: bool
    diff_src_channels_last: bool
    diff_dst_rows: bool  # the positions of a row lie next to each other
    diff_src_rows: bool
    joins: int  # axes that both tensors can join to the last one
    accumulate: bool


@dataclass(frozen=True, eq=False)
class Choice:
    """The kernel of a problem in one layout, and what follows from it alone."""

    given: ConvProblem
    problem: ConvProblem  # the one given, what unfolding it leaves, of groups abreast or of pairs
    layout: Layout
    assumed: int
    tiles: Tiles
    kernel: int
    abreast: int  # groups that are taken for one, each with DOT tiles of its own; or 1
    diagonal: int  # groups that are taken for one, with zeros for what they do not share; or 1
    beside: int  # taps of a row that are one DOT tile deep; or 1
    paired: bool  # GROUPED takes two channels of diff_dst for one
    broadcast: int  # lanes of a GROUPED vector if it is of one group and its channels are; or 0
    along_rows: bool  # the lanes of DEPTHWISE or SCATTER are positions of a row, not channels
    unfolds: bool  # the window holds all taps side by side
    parts: int  # of bfloat16, that DOT tiles multiply; or 0
    windowed: bool  # diff_dst is read through a window in scratch
    direct: bool  # diff_src is written without scratch
    zero_first: bool
    counts: Triple  # most positions of a residue class on each axis
    work: Taps  # residue classes and taps

    @property
    def residues(self) -> Array:
        """Table of the residue classes."""
        return self.work.residues

    @property
    def taps(self) -> Array:
        """Table of the taps."""
        return self.work.taps

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.tiles.lanes

    @property
    def size(self) -> int:
        """Bytes of the type that sums."""
        return 8 if self.problem.dtype == 3 else 4

    @property
    def factor_size(self) -> int:
        """Bytes of what is multiplied."""
        return 2 * self.parts or self.size

    @property
    def dot(self) -> bool:
        """Whether pairs of bfloat16 are multiplied: by AMX tiles, or into the lanes of vectors."""
        return self.parts > 0

    @property
    def depth(self) -> int:
        """Products of a DOT tile."""
        outputs = self.problem.output_channels
        if self.beside > 1:
            return self.beside * outputs
        if self._in_place:
            return min(outputs // self.abreast, DOT_K)
        plain = self.kernel == DOT and self.parts == 1
        return self.tiles.depth(outputs // self.abreast) if plain else DOT_K

    @property
    def tail(self) -> int:
        """Products of the last step along k of a DOT tile, or 0 for as many."""
        return self.problem.output_channels % self.depth if self._in_place else 0

    @property
    def _in_place(self) -> bool:
        """Whether AMX tiles are loaded from diff_dst."""
        return self.kernel == DOT and not self.windowed and self.tiles.amx

    @property
    def stride_columns(self) -> int:
        """Columns of diff_dst that DEPTHWISE sums side by side, or 1."""
        if self.kernel != DEPTHWISE or self.along_rows:
            return 1
        return _convolution_depthwise.stride_columns(self.problem, self.lanes)

    @property
    def row_classes(self) -> int:
        """Residue classes of a row that DEPTHWISE computes together, or 1."""
        if self.kernel != DEPTHWISE or self.zero_first:
            return 1
        return _convolution_depthwise.row_classes(self.problem)

    @property
    def unit(self) -> int:
        """Channels that an entry of a DOT window has a multiple of."""
        return self.depth // self.beside

    @property
    def exact_halo(self) -> bool:
        """Whether products with padding are left out: there are weights of which zero makes NaN."""
        return self.assumed == NOTHING

    @property
    def otherwise(self) -> int:
        """What may be assumed of values that break what this plan assumes."""
        return FINITE if self.checks else NOTHING

    @property
    def checks(self) -> bool:
        """Whether sums have to be finite: those of parts, and those with zeros of other groups."""
        return self.parts > 1 or self.diagonal > 1

    @property
    def out_steps(self) -> Triple:
        """Steps from position to position of a residue class."""
        return _convolution_taps.out_steps(self.problem)

    @property
    def source_channels(self) -> int:
        """Channels of diff_dst in a group."""
        return (self.given if self.unfolds else self.problem).output_channels

    @property
    def over_groups(self) -> bool:
        """Whether vectors go through the channels of all groups."""
        return self.kernel in (GROUPED, DEPTHWISE)

    @property
    def boxed(self) -> bool:
        """Whether such a kernel goes through boxes with channels last."""
        return self.over_groups and self.windowed and not self.along_rows

    @property
    def panels_over_groups(self) -> bool:
        """Whether a row of the packed weights goes through all groups."""
        return self.over_groups and not self.broadcast

    @property
    def phased(self) -> bool:
        """Whether the kernel needs consecutive positions to read consecutive entries."""
        return self.has_units or self.kernel == GROUPED

    @property
    def has_units(self) -> bool:
        """Whether the kernel works on runs of consecutive positions."""
        return self.kernel in (COLUMNS, DOT, PAIRS)

    @property
    def tiled(self) -> bool:
        """Whether the kernel is nothing but DOT tiles."""
        return self.kernel in (DOT, PAIRS)

    @property
    def panel_kernel(self) -> int:
        """The kernel whose panels are as wide."""
        if self.dot:
            return DOT
        if self.kernel == SCATTER:
            return COLUMNS if self.along_rows else ROWS
        return ROWS if self.broadcast else self.kernel

    def axis(self, number: int, block: int) -> Axis:
        """Return one axis in blocks of `block` positions."""
        return self._axis_of(self.problem, self.work.axes, number, block)

    def source(self, number: int, block: int) -> Axis:
        """Return the axis by which diff_dst is read."""
        if not self.unfolds:
            return self.axis(number, block)
        return self._axis_of(self.given, _convolution_taps.axes(self.given), number, block)

    def _axis_of(self, problem: ConvProblem, axes: AxesTaps, number: int, block: int) -> Axis:
        return axis_of(axes[number], problem.diff_src[number], problem.diff_dst[number], block)


def choose(given: ConvProblem, layout: Layout, assumed: int, parts: int) -> Choice:
    """Choose the kernel and decide what it reads and writes without scratch."""
    tiles = _tiles(given.dtype == 3)
    kernel = choose_kernel(given, layout, tiles, assumed, parts)
    problem, abreast, diagonal, beside, unfolds = given, 1, 1, 1, kernel == UNFOLD
    if unfolds:
        problem, kernel = _convolution_unfold.product(given), DOT
    elif kernel == DOT:
        abreast = _groups_abreast(given, parts)
        diagonal = _groups_on_diagonal(given, layout, tiles, parts, assumed)
        if abreast * diagonal > 1:
            problem = replace(given, groups=given.groups // (abreast * diagonal))
        else:
            beside = _taps_beside(given, parts, tiles)
    along_rows = _goes_along_rows(given, layout, tiles, kernel, parts, assumed)
    paired = kernel == GROUPED and _pairs_channels(given, tiles, assumed)
    broadcast = _lanes_of_a_group(given, tiles, paired) if kernel == GROUPED else 0
    if paired:
        problem = replace(given, diff_dst_channels=given.diff_dst_channels // 2)
    zero_first = _convolution_taps.zero_first(problem)
    work = _convolution_taps.taps_of(_convolution_taps.axes(problem), zero_first)
    plain = problem.dtype in (0, 3)
    # Taps of few channels are summed in one run, which a window makes of them.
    short = problem.output_channels < tiles.lanes and problem.kernel[2] > 1
    reads = plain and layout.diff_dst_channels_last and not short
    writes = plain and layout.diff_src_channels_last and not layout.accumulate
    if kernel in (GROUPED, DEPTHWISE):
        windowed = not (layout.diff_dst_channels_last and layout.diff_src_channels_last)
        direct = not windowed or (along_rows and not layout.accumulate)
    else:
        in_place = kernel == ROWS or (kernel == SCATTER and not parts)
        windowed = not (in_place and reads)
        direct = kernel == ROWS and writes and problem.input_channels % tiles.lanes == 0
    if kernel == SCATTER and along_rows:
        windowed = not plain
    if kernel == COLUMNS:
        direct = plain and _whole_rows(problem, layout) and not layout.accumulate
        windowed = not (direct and problem.pointwise and layout.diff_dst_rows)
    if kernel == DOT:
        # A tile's whole sum is rounded at once (without taps there are no tiles).
        direct = layout.diff_src_channels_last and len(work.taps) > 0
        direct = direct and (tiles.amx or not layout.accumulate)
        reads = layout.diff_dst_channels_last and not unfolds and parts == beside == 1
        windowed = not (reads and _reads_tiles(problem, work, tiles))
    if kernel == PAIRS:
        direct = _whole_rows(problem, layout) and len(work.taps) > 0
    return Choice(
        given,
        problem,
        layout,
        assumed,
        tiles,
        kernel,
        abreast=abreast,
        diagonal=diagonal,
        beside=beside,
        paired=paired,
        broadcast=broadcast,
        along_rows=along_rows,
        unfolds=unfolds,
        parts=parts if kernel in (DOT, PAIRS, SCATTER) else 0,
        windowed=windowed,
        direct=direct,
        zero_first=zero_first,
        counts=_convolution_taps.counts(problem),
        work=work,
    )


def dot_parts(problem: ConvProblem, assumed: int, accumulate: bool) -> int:
    """Return how many bfloat16 parts of an element DOT may multiply; 0 where it may not.

    Of the problem before rows are joined, so that the bits of a result do not depend on its batch.
    """
    tiles = _tiles(problem.dtype == 3)
    if not tiles.bf16_rate or problem.dtype not in _convolution_split.PARTS:
        return 0
    parts = _convolution_split.PARTS[problem.dtype]
    if parts > 1:
        # What a result was added to cannot be computed again.
        again = assumed == MODERATE and not accumulate
        tile = DOT_ROWS, DOT_COLUMNS, DOT_K
        if not tiles.amx or not again or not _convolution_split.pays(problem, tiles.lanes, tile):
            return 0
    return parts


def _pairs_channels(problem: ConvProblem, tiles: Tiles, assumed: int) -> bool:
    """Return whether GROUPED multiplies pairs of bfloat16 channels.

    Vectors do; AMX processors multiply float32 as fast.
    """
    vectors = problem.dtype == 2 and tiles.bf16_rate > 0 and not tiles.amx
    few = problem.input_channels < tiles.lanes and problem.output_channels % 2 == 0
    return vectors and few and assumed != NOTHING


def _lanes_of_a_group(problem: ConvProblem, tiles: Tiles, pairs: bool) -> int:
    """Return the lanes of vectors that are of one group, all or half of them; or 0."""
    inputs, half = problem.input_channels, tiles.lanes // 2
    if inputs == tiles.lanes:
        return inputs
    # Strides leave a position few taps, and half a row of pairs takes as long to copy as to spread.
    dense = prod(_convolution_taps.out_steps(problem)) == 1
    deep = not pairs or (problem.groups > 1 and problem.output_channels >= 2 * half)
    return half if ZEN4 and inputs == half and dense and deep else 0


def _goes_along_rows(
    problem: ConvProblem, layout: Layout, tiles: Tiles, kernel: int, parts: int, assumed: int
) -> bool:
    """Whether lanes are positions: DEPTHWISE's in a window with zeros around it, or SCATTER's."""
    last = layout.diff_dst_channels_last and layout.diff_src_channels_last
    if last or not (layout.diff_dst_rows and layout.diff_src_rows):
        return False
    if kernel == SCATTER:
        return not parts and _convolution_scatter.along_rows(problem)
    depthwise = kernel == DEPTHWISE and assumed != NOTHING
    depthwise = depthwise and not _convolution_taps.zero_first(problem)
    return depthwise and _convolution_depthwise.along_rows(problem, tiles.lanes)


def _groups_abreast(problem: ConvProblem, parts: int) -> int:
    """Return how many groups stand side by side in a row of positions.

    Two of half a tile's depth read and write whole lines of cache, and no zeros between them.
    """
    half = DOT_K // 2
    fits = problem.input_channels == problem.output_channels == half == DOT_COLUMNS
    return 2 if parts == 1 and fits and problem.groups % 2 == 0 else 1


def _groups_on_diagonal(
    problem: ConvProblem, layout: Layout, tiles: Tiles, parts: int, assumed: int
) -> int:
    """Return how many groups are blocks on the diagonal of one group's weights, or 1.

    Infinities make NaN of the zeros beside them: what was computed so is computed again, and so
    must not have been added to something.
    """
    again = assumed == MODERATE and not layout.accumulate
    last = layout.diff_dst_channels_last and layout.diff_src_channels_last
    if parts != 1 or not (tiles.amx and again) or not _convolution_diagonal.joins(problem, last):
        return 1
    most = DOT_K // max(problem.input_channels, problem.output_channels)
    return max(count for count in range(1, most + 1) if problem.groups % count == 0)


def _taps_beside(problem: ConvProblem, parts: int, tiles: Tiles) -> int:
    """Return how many taps make one of a DOT tile's depth: those of a row, or 1.

    Where entries of the window that follow each other are no deeper than a tile.
    """
    outputs, width = problem.output_channels, problem.kernel[2]
    follow = problem.strides[2] == problem.dilations[2] == 1
    fits = outputs % 2 == 0 and (width * outputs <= DOT_K if tiles.amx else outputs <= BESIDE)
    return width if parts == 1 and follow and fits else 1


def _whole_rows(problem: ConvProblem, layout: Layout) -> bool:
    """Whether a vector of neighbouring positions is a vector of diff_src."""
    return layout.diff_src_rows and _convolution_taps.out_steps(problem)[2] == 1


def _reads_tiles(problem: ConvProblem, work: Taps, tiles: Tiles) -> bool:
    """Whether DOT tiles can be loaded from diff_dst: whole ones, and no tap outside."""
    outputs, counts = problem.output_channels, _convolution_taps.counts(problem)
    fewest = problem.diff_src[2] // _convolution_taps.out_steps(problem)[2]
    whole = outputs % tiles.depth(outputs) == 0
    if tiles.amx and not whole and outputs % 2 == 0:
        # A last step of fewer products takes a tile of positions by one of channels: each tile of
        # positions is loaded for each 16 channels of diff_src.
        whole = problem.input_channels <= TAIL_CHANNELS
    whole = whole and (fewest >= DOT_ROWS or not tiles.amx)
    if not whole or not len(work.taps) or counts[2] > BLOCK_WIDTH:
        return False
    # diff_dst comes from memory each time, a window from the second-level cache.
    panels = len(work.taps) * outputs * up(problem.input_channels, DOT_COLUMNS) * 2
    if panels > 2 * DOT_PANELS * len(work.residues):
        return False
    return all(
        axis.low >= 0 and axis.low + axis.span + (count - 1) * axis.in_step <= source
        for axis, count, source in zip(work.axes, counts, problem.diff_dst, strict=True)
    )


def _moved(arithmetic: tuple[float, float], cycles: float) -> float:
    """Return the share of arithmetic in the time, where elements of both tensors are moved."""
    of_diff_src, of_diff_dst = (work / (work + cycles) for work in arithmetic)
    return of_diff_src * of_diff_dst


def choose_kernel(
    problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int, parts: int
) -> int:
    """Weigh the kernels by the share of lanes at work and by the cost of changing layout."""
    last, lanes = layout.diff_src_channels_last, tiles.lanes
    direct = last and layout.diff_dst_channels_last
    zero_first = _convolution_taps.zero_first(problem)
    inputs, outputs = problem.input_channels, problem.output_channels
    if inputs == outputs == 1:
        if direct and problem.groups > 1:
            return DEPTHWISE
        if 2 * problem.groups > lanes and not zero_first:
            return DEPTHWISE
    if _groups_on_diagonal(problem, layout, tiles, parts, assumed) > 1:
        return DOT
    out_steps = _convolution_taps.out_steps(problem)
    dense = prod(out_steps) == 1
    # Cycles of arithmetic on an element of either tensor, against about 1.5 to move it across.
    cycles = prod(problem.kernel) / (2 * lanes)
    arithmetic = cycles * inputs, cycles * outputs / prod(out_steps)
    move = _moved(arithmetic, 1.5)
    move_columns = move
    if ZEN4:  # with half the arithmetic, caches and moves are as fast as ever beside it
        move_columns = 1.35 * _moved(arithmetic, 0.4)
    elif problem.groups == 1:
        # As measured beside ROWS, of which narrow ones have a window and results in scratch, too.
        # Halves are converted on the way.
        turn = 0.18 if problem.dtype in (0, 3) else 0.4
        move_columns = 1.55 * _moved(arithmetic, turn)
    _, height, width = counts = _convolution_taps.counts(problem)
    flat = height * (width + problem.kernel[2] // out_steps[2])
    # Tiles of one vector load more than they multiply.
    in_rows = (0.8 if width <= lanes else 1.0) * width / up(width, lanes)
    across = max(in_rows, height * width / up(flat, lanes))
    # A tile of few rows loads more than it multiplies.
    rows = min(inputs, max(tiles.shapes.values()))
    # The window of COLUMNS passes through the second-level cache once more, and so do its results
    # unless it writes them in place.
    whole_rows = _whole_rows(problem, layout)
    passes = 0.8 if whole_rows and problem.dtype in (0, 3) and width >= 2 * lanes else 0.7
    # Windows and spread rows that are sorted by residues.
    sorting = 0.6 if problem.transposed and problem.strides[2] > 1 else 1.0
    if passes < 0.8:
        passes *= sorting
    rate = 1.0
    if parts:
        rate = _convolution_split.RATES[parts] if tiles.amx else DOT_RATE
    scores = {}
    if parts < 2:
        scores[ROWS] = inputs / up(inputs, lanes) * (1 if last else move)
        scores[COLUMNS] = passes * across * rows / (rows + 1) * (move_columns if last else 1)
    pairs = _pairs_channels(problem, tiles, assumed)
    alone = _lanes_of_a_group(problem, tiles, pairs)
    if (
        parts < 2
        and (problem.groups > 1 or alone)
        and inputs <= lanes
        and (direct or not zero_first)
    ):
        few = prod(counts[1:]) <= 256 or not dense
        moved = sorting * (_moved(arithmetic, 0.4) if pairs else move)  # pairs are not converted
        score = _convolution_grouped.score(problem, alone or lanes, direct, few, moved)
        scores[GROUPED] = score * (DOT_RATE if pairs else 1)
    if prod(problem.kernel) > 1 and inputs < lanes and not problem.transposed:
        along = _goes_along_rows(problem, layout, tiles, SCATTER, parts, assumed)
        scores[SCATTER] = _convolution_scatter.score(problem, last, lanes, rate, along)
        if parts and not tiles.amx:  # as measured against DOT, of which strides shorten the sums
            scores[SCATTER] *= 0.7 if dense else 0.85
    if parts:
        # Pairs move as they are; with AMX this was not measured.
        move_pairs = move if tiles.amx else _moved(arithmetic, 0.6)
        deep = outputs * _taps_beside(problem, parts, tiles)
        grain = DOT_K if tiles.amx else 2
        # Where a tap has one product nothing is paired, and values are better left to float32.
        wide = up(inputs, tiles.columns(inputs) if deep > 1 else DOT_COLUMNS)
        share = inputs / wide * deep / up(deep, grain)
        scores[DOT] = rate * share * (1 if last else move_pairs)
        if GROUPED in scores and inputs < lanes:  # much of each group's time is not spent in tiles
            scores[DOT] *= 0.7
        if parts == 1 and prod(problem.kernel) > 1 and dense:
            share = _convolution_unfold.score(problem, (wide, grain), tiles.products)
            scores[UNFOLD] = rate * share * (1 if last else move_pairs)
            if outputs % DOT_K or not layout.diff_dst_channels_last:
                # A window sorted by residues, of as many entries for each position; channels first
                # each is loaded by itself (measured without AMX).
                products = prod(problem.kernel) * wide / tiles.products
                entry = 0.2 if tiles.amx or layout.diff_dst_channels_last else 2.0
                scores[DOT] *= products / (products + (prod(problem.strides) - 1) * entry)
        if whole_rows and not (last or layout.diff_dst_channels_last):
            gain = _convolution_pairs.gain(problem, DOT_COLUMNS, DOT_K, parts, amx=tiles.amx)
            scores[PAIRS] = scores[DOT] * gain
    best = max(scores, key=lambda kernel: scores[kernel])
    # The kernels that can leave out products with padding.
    return ROWS if assumed == NOTHING and best not in (GROUPED, SCATTER) else best
