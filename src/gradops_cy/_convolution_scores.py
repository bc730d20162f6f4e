"""Which kernel a problem in a layout is for.

The one that takes the least time (see _convolution_times); where AMX multiplies parts of bfloat16,
the one whose score is highest. A score is the share of lanes at work, less what it costs to change
the layout, as measured: float32 multiply-adds that nothing holds up have 1.
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
    groups_on_diagonal,
    lanes_of_a_group,
    pairs_channels,
    taps_beside,
    writes_whole_rows,
)
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_times import nanoseconds
from gradops_cy._rounding import up

# Channels of diff_dst, or weights, from which on a sum is deep enough, or unfolding them too much.
FEW_OUTPUTS, FEW_WEIGHTS = 32, 1 << 15
# Products of bfloat16 in a cycle of AMX, as measured.
AMX_PRODUCTS = 400


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
        return self.layout.channels_last

    @property
    def positions_in_place(self) -> bool:
        """Whether DEPTHWISE reads and writes the channels of positions where they lie."""
        return self.direct and self.problem.groups > 1

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
        return _convolution_split.RATES[self.parts]


def choose_kernel(
    problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int, parts: int
) -> int:
    """Choose the kernel of a problem whose values are `assumed` to be such, in so many `parts`."""
    case = _Case(problem, layout, tiles, assumed, parts)
    kernels = kernels_that_can(case)
    if DEPTHWISE in kernels:
        many = 2 * problem.groups > tiles.lanes and not problem.pointwise
        if many or case.positions_in_place:
            return DEPTHWISE
    if groups_on_diagonal(problem, layout, tiles, parts, assumed) > 1:
        return DOT
    if parts and tiles.amx and DEPTHWISE not in kernels:
        scores = _scores(case)
        best = max(scores, key=lambda kernel: scores[kernel])
    else:
        times = nanoseconds(problem, layout, tiles, assumed, parts, kernels)
        best = min(times, key=lambda kernel: times[kernel])
    if best in ((SCATTER, DOT) if tiles.amx else (COLUMNS, DOT)):
        fold = block_of_pixels(problem, layout, tiles, parts, assumed)
        if fold and _convolution_fold.pays(problem, fold, tiles.amx):
            return FOLD
    # The kernels that can leave out products with padding.
    return ROWS if assumed == NOTHING and best not in (GROUPED, SCATTER) else best


def kernels_that_can(case: _Case) -> list[int]:
    """Return the kernels that can compute a problem."""
    problem, tiles, parts = case.problem, case.tiles, case.parts
    kernels = [] if parts > 1 else [ROWS, COLUMNS]
    zero_first = _convolution_taps.zero_first(problem)
    if problem.input_channels == problem.output_channels == 1:
        # A window needs taps that read it.
        windowed = not zero_first and all(map(len, _convolution_taps.axes(problem)))
        if windowed or case.positions_in_place:
            kernels.append(DEPTHWISE)
    alone = lanes_of_a_group(problem, tiles, pairs_channels(problem, tiles, case.assumed))
    groups = (problem.groups > 1 or alone) and problem.input_channels <= tiles.lanes
    if kernels and groups and (case.direct or not zero_first):
        kernels.append(GROUPED)
    taps, outputs = prod(problem.kernel), problem.output_channels
    # The product with all taps and channels of diff_src has few columns.
    few = taps > 1 and problem.input_channels < tiles.lanes and not problem.transposed
    if few and outputs >= _convolution_scatter.FEWEST_OUTPUTS:
        kernels.append(SCATTER)
    # A sum of one product is nothing to pair, and float32 keeps its subnormals.
    if not parts or (parts == 1 and outputs == taps == 1):
        return kernels
    kernels.append(DOT)
    weights = problem.diff_src_channels * outputs * taps
    shallow = tiles.amx or outputs <= FEW_OUTPUTS or weights < FEW_WEIGHTS
    if parts == 1 and taps > 1 and case.dense and shallow:
        kernels.append(UNFOLD)
    layout = case.layout
    if writes_whole_rows(problem, layout) and not (case.last or layout.diff_dst_channels_last):
        kernels.append(PAIRS)
    return kernels


def _scores(case: _Case) -> dict[int, float]:
    """Return the scores of the kernels that can compute a problem of parts with AMX."""
    kernels = kernels_that_can(case)
    alike = {ROWS: _rows, COLUMNS: _columns, GROUPED: _grouped, SCATTER: _scatter}
    scores = {kernel: alike[kernel](case) for kernel in kernels if kernel in alike}
    return scores | _products_of_parts(case, kernels) if DOT in kernels else scores


def _rows(case: _Case) -> float:
    inputs = case.problem.input_channels
    filled = inputs / up(inputs, case.tiles.lanes)
    if not case.last:
        return filled**2 * case.move  # parts of squares take as long to turn
    through_scratch = 0.1 if filled == 1 else 0.3
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
    if case.last and problem.groups == 1:
        # As measured beside ROWS, of which narrow ones have a window and results in scratch, too,
        # and halves at any rate.
        move = 1.55 * case.moved(0.18)
    elif case.last:
        move = case.move
    # Its window and results pass the second-level cache.
    return 0.7 * case.sorting * across * rows / (rows + 1) * move


def _grouped(case: _Case) -> float:
    few = prod(_convolution_taps.counts(case.problem)[1:]) <= 256 or not case.dense
    move = case.sorting * case.move
    return _convolution_grouped.score(case.problem, case.tiles.lanes, case.direct, few, move)


def _scatter(case: _Case) -> float:
    return _convolution_scatter.score(case.problem, case.last, case.tiles.lanes, case.rate)


def _products_of_parts(case: _Case, kernels: list[int]) -> dict[int, float]:
    """Return the scores of those `kernels` that are nothing but products of parts."""
    problem, layout, tiles, parts = case.problem, case.layout, case.tiles, case.parts
    inputs, outputs, last = problem.input_channels, problem.output_channels, case.last
    rate = case.rate * (1 if last else case.move)
    deep = outputs * taps_beside(problem, parts, tiles)
    wide = up(inputs, DOT_COLUMNS)
    scores = {DOT: rate * inputs / wide * deep / up(deep, DOT_K)}
    if GROUPED in kernels and inputs < tiles.lanes:  # much of a group's time is not spent in tiles
        scores[DOT] *= 0.7
    if UNFOLD in kernels:
        scores[UNFOLD] = rate * _convolution_unfold.score(problem, (wide, DOT_K), AMX_PRODUCTS)
        if outputs % DOT_K or not layout.diff_dst_channels_last:
            # A window sorted by residues, of as many entries for each position.
            products = prod(problem.kernel) * wide / AMX_PRODUCTS
            scores[DOT] *= products / (products + (prod(problem.strides) - 1) * 0.2)
    if PAIRS in kernels:
        scores[PAIRS] = scores[DOT] * _convolution_pairs.gain(problem, DOT_COLUMNS, DOT_K, parts)
    return scores
