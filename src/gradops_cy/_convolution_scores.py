"""Which kernel a problem in a layout is for.

Of float32 the one that takes the least time (see _convolution_times); of parts of bfloat16 the one
whose score is highest. A score is the share of lanes at work, less what it costs to change the
layout, as measured: float32 multiply-adds that nothing holds up have 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from gradops_cy import (
    _convolution_fold,
    _convolution_grouped,
    _convolution_pairs,
    _convolution_scatter,
    _convolution_split,
    _convolution_taps,
    _convolution_unfold,
)
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DEPTHWISE,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_RATE,
    FOLD,
    GROUPED,
    NOTHING,
    PAIRS,
    ROWS,
    SCATTER,
    UNFOLD,
    Layout,
    Tiles,
    block_of_pixels,
    goes_along_rows,
    groups_on_diagonal,
    lanes_of_a_group,
    paired,
    pairs_channels,
    reads_in_place,
    taps_beside,
    writes_whole_rows,
)
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_times import nanoseconds
from gradops_cy._processor import ZEN4
from gradops_cy._rounding import up

# Channels of diff_dst that are no sum to speak of.
FEW_OUTPUTS = 4


@dataclass(frozen=True)
class _Case:
    """What scores depend on."""

    problem: ConvProblem
    layout: Layout
    tiles: Tiles
    assumed: int
    parts: int

    @property
    def last(self) -> bool:
        """Whether diff_src has channels last."""
        return self.layout.diff_src_channels_last

    @property
    def direct(self) -> bool:
        """Whether both tensors have channels last."""
        return self.last and self.layout.diff_dst_channels_last

    @cached_property
    def dense(self) -> bool:
        """Whether all positions are of one residue class."""
        return prod(_convolution_taps.out_steps(self.problem)) == 1

    @cached_property
    def arithmetic(self) -> tuple[float, float]:
        """Cycles of multiply-adds on an element of diff_dst, and of diff_src."""
        problem = self.problem
        cycles = prod(problem.kernel) / (2 * self.tiles.lanes)
        steps = prod(_convolution_taps.out_steps(problem))
        return cycles * problem.input_channels, cycles * problem.output_channels / steps

    def moved(self, cycles: float) -> float:
        """Return the share of arithmetic where elements of both tensors are moved across."""
        of_diff_dst, of_diff_src = (work / (work + cycles) for work in self.arithmetic)
        return of_diff_dst * of_diff_src

    @property
    def move(self) -> float:
        """The same for what is transposed and converted."""
        return self.moved(1.5)

    @property
    def sorting(self) -> float:
        """What is left where windows and spread rows are sorted by residues."""
        return 0.6 if self.problem.transposed and self.problem.strides[2] > 1 else 1.0

    @property
    def rate(self) -> float:
        """The rate of the products of parts, of which float32 has 1."""
        return _convolution_split.RATES[self.parts] if self.tiles.amx else DOT_RATE

    @cached_property
    def passes(self) -> float:
        """What is left of COLUMNS where its window and results pass the second-level cache.

        Unless it reads, and writes, in place.
        """
        problem, width = self.problem, _convolution_taps.counts(self.problem)[2]
        if reads_in_place(problem, self.layout, self.tiles):
            return 1.05
        in_place = writes_whole_rows(problem, self.layout) and problem.plain
        if in_place and width >= 2 * self.tiles.lanes:
            return 0.8
        return 0.7 * self.sorting


def choose_kernel(
    problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int, parts: int
) -> int:
    """Choose the kernel of a problem whose values are `assumed` to be such, in so many `parts`."""
    case = _Case(problem, layout, tiles, assumed, parts)
    if problem.input_channels == problem.output_channels == 1:
        if case.direct and problem.groups > 1:
            return DEPTHWISE
        if 2 * problem.groups > tiles.lanes and not _convolution_taps.zero_first(problem):
            return DEPTHWISE
    if groups_on_diagonal(problem, layout, tiles, parts, assumed) > 1:
        return DOT
    if not parts:
        times = nanoseconds(problem, layout, tiles, assumed, _kernels_of_float32(case))
        best = min(times, key=lambda kernel: times[kernel])
    else:
        scores = _scores(case)
        best = max(scores, key=lambda kernel: scores[kernel])
        if best in ((SCATTER, DOT) if tiles.amx else (COLUMNS, DOT)):
            fold = block_of_pixels(problem, layout, tiles, parts, assumed)
            if fold and _convolution_fold.pays(problem, fold, tiles.amx):
                return FOLD
    # The kernels that can leave out products with padding.
    return ROWS if assumed == NOTHING and best not in (GROUPED, SCATTER) else best


def _kernels_of_float32(case: _Case) -> list[int]:
    """Return the kernels that can multiply float32."""
    problem, tiles = case.problem, case.tiles
    kernels = [ROWS, COLUMNS]
    pairs = pairs_channels(problem, tiles, case.assumed)
    alone = lanes_of_a_group(problem, tiles, pairs)
    groups = (problem.groups > 1 or alone) and problem.input_channels <= tiles.lanes
    if groups and (case.direct or not _convolution_taps.zero_first(problem)):
        kernels.append(GROUPED)
    enough = problem.output_channels >= _convolution_scatter.FEWEST_OUTPUTS
    if not case.parts and enough and _has_columns(case):
        kernels.append(SCATTER)
    return kernels


def _has_columns(case: _Case) -> bool:
    """Whether the product with all taps and channels of diff_src is one for SCATTER."""
    problem = case.problem
    several = prod(problem.kernel) > 1
    return several and problem.input_channels < case.tiles.lanes and not problem.transposed


def _scores(case: _Case) -> dict[int, float]:
    """Return the scores of the kernels that can compute a problem of parts."""
    problem, scores = case.problem, {}
    if case.parts == 1:
        alike = {ROWS: _rows, COLUMNS: _columns, GROUPED: _grouped}
        scores = {kernel: alike[kernel](case) for kernel in _kernels_of_float32(case)}
    if _has_columns(case):
        scores[SCATTER] = _scatter(case)
    # A sum of one product is nothing to pair, and float32 keeps its subnormals.
    single = problem.output_channels == prod(problem.kernel) == 1
    if case.parts > 1 or not single:
        scores.update(_products_of_parts(case, GROUPED in scores))
    return scores


def _rows(case: _Case) -> float:
    inputs = case.problem.input_channels
    filled = inputs / up(inputs, case.tiles.lanes)
    if not case.last:
        return filled**2 * case.move  # parts of squares take as long to turn
    rounded = 0.0 if case.problem.plain else 0.1
    through_scratch = rounded if filled == 1 else 0.3
    of_diff_src = case.arithmetic[1]
    return filled * of_diff_src / (of_diff_src + through_scratch)


def _columns(case: _Case) -> float:
    problem, lanes = case.problem, case.tiles.lanes
    _, height, width = _convolution_taps.counts(problem)
    flat = height * (width + problem.kernel[2] // _convolution_taps.out_steps(problem)[2])
    # Tiles of one vector load more than they multiply, and so do those of few rows.
    in_rows = (0.8 if width <= lanes else 1.0) * width / up(width, lanes)
    across = max(in_rows, height * width / up(flat, lanes))
    rows = min(problem.input_channels, max(case.tiles.shapes.values()))
    move = 1.0
    if case.last and ZEN4:  # with half the arithmetic, caches and moves are as fast as ever
        move = 1.35 * case.moved(0.4)
    elif case.last and problem.groups == 1:
        # As measured beside ROWS, of which narrow ones have a window and results in scratch, too,
        # and halves at any rate.
        move = 1.55 * case.moved(0.18)
    elif case.last:
        move = case.move
    return case.passes * across * rows / (rows + 1) * move


def _grouped(case: _Case) -> float:
    problem = case.problem
    pairs = pairs_channels(problem, case.tiles, case.assumed)
    lanes = lanes_of_a_group(problem, case.tiles, pairs) or case.tiles.lanes
    few = prod(_convolution_taps.counts(problem)[1:]) <= 256 or not case.dense
    if not pairs:
        return _convolution_grouped.score(
            problem, lanes, case.direct, few, case.sorting * case.move
        )
    moved = case.sorting * case.moved(0.4)  # pairs are not converted
    return DOT_RATE * _convolution_grouped.score(paired(problem), lanes, case.direct, few, moved)


def _scatter(case: _Case) -> float:
    problem, tiles, parts = case.problem, case.tiles, case.parts
    along = goes_along_rows(problem, case.layout, tiles, SCATTER, parts, case.assumed)
    score = _convolution_scatter.score(problem, case.last, tiles.lanes, case.rate, along)
    if tiles.amx:
        return score
    # As measured against DOT, of which strides shorten the sums.
    return score * (0.7 if case.dense else 0.85)


def _products_of_parts(case: _Case, beside_groups: bool) -> dict[int, float]:
    """Return the scores of the kernels that multiply parts of bfloat16."""
    problem, layout, tiles, parts = case.problem, case.layout, case.tiles, case.parts
    inputs, outputs, last = problem.input_channels, problem.output_channels, case.last
    scores = {}
    # Pairs move as they are; with AMX this was not measured.
    move = case.move if tiles.amx else case.moved(0.6)
    rate = case.rate * (1 if last else move)
    deep = outputs * taps_beside(problem, parts, tiles)
    grain = DOT_K if tiles.amx else 2
    # Where a tap has one product nothing is paired, and values are better left to float32.
    columns = tiles.columns(inputs) if deep > 1 else DOT_COLUMNS
    wide = up(inputs, columns)
    scores[DOT] = rate * inputs / wide * deep / up(deep, grain)
    if beside_groups and inputs < tiles.lanes:  # much of a group's time is not spent in tiles
        scores[DOT] *= 0.7
    if parts == 1 and prod(problem.kernel) > 1 and case.dense:
        scores[UNFOLD] = rate * _convolution_unfold.score(problem, (wide, grain), tiles.products)
        if last and tiles.vector_pairs and deep <= FEW_OUTPUTS:
            # As measured: each tap is a sum of one or two steps, or all of them are one.
            scores[DOT] *= 0.7
            scores[UNFOLD] *= 1.3
        if outputs % DOT_K or not layout.diff_dst_channels_last:
            # A window sorted by residues, of as many entries for each position; channels first
            # each is loaded by itself (measured without AMX).
            products = prod(problem.kernel) * wide / tiles.products
            entry = 0.2 if tiles.amx or layout.diff_dst_channels_last else 2.0
            scores[DOT] *= products / (products + (prod(problem.strides) - 1) * entry)
    if writes_whole_rows(problem, layout) and not (last or layout.diff_dst_channels_last):
        gain = _convolution_pairs.gain(problem, columns, DOT_K, parts, amx=tiles.amx)
        scores[PAIRS] = scores[DOT] * gain
    return scores
