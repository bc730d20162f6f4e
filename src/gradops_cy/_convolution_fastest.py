"""Which kernel a problem in a layout is for: the one that takes the least time, as estimated."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from gradops_cy import _convolution_fold, _convolution_scatter, _convolution_taps
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DEPTHWISE,
    DOT,
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
    sums_few_pairs,
    writes_whole_rows,
)
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_times import nanoseconds

# Channels of diff_dst, or weights, from which on a sum is deep enough, or unfolding them too much.
FEW_OUTPUTS, FEW_WEIGHTS = 32, 1 << 15
# With AMX: products of a sum beyond which the weights of unfolded taps are not packed at once.
DEEPEST = 1 << 13


class Case(NamedTuple):
    """What the choice depends on."""

    problem: ConvProblem
    layout: Layout
    tiles: Tiles
    assumed: int
    parts: int

    @property
    def positions_in_place(self) -> bool:
        """Whether DEPTHWISE reads and writes the channels of positions where they lie."""
        return self.layout.channels_last and self.problem.groups > 1


def choose_kernel(
    problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int, parts: int
) -> int:
    """Choose the kernel of a problem whose values are `assumed` to be such, in so many `parts`."""
    case = Case(problem, layout, tiles, assumed, parts)
    kernels = kernels_that_can(case)
    if DEPTHWISE in kernels:
        many = 2 * problem.groups > tiles.lanes and not problem.pointwise
        if many or case.positions_in_place:
            return DEPTHWISE
    if groups_on_diagonal(problem, layout, tiles, parts, assumed) > 1:
        return DOT
    times = nanoseconds(*case, kernels)
    best = min(times, key=lambda kernel: times[kernel])
    if best in (COLUMNS, DOT) and not tiles.amx:
        fold = block_of_pixels(problem, layout, tiles, parts, assumed)
        if fold and _convolution_fold.pays(problem, fold):
            return FOLD
    # The kernels that can leave out products with padding.
    return ROWS if assumed == NOTHING and best not in (GROUPED, SCATTER) else best


def kernels_that_can(case: Case) -> list[int]:
    """Return the kernels that can compute a problem, of which times are estimated."""
    problem, layout, tiles, assumed, parts = case
    kernels = [] if parts > 1 else [ROWS, COLUMNS]
    zero_first = _convolution_taps.zero_first(problem)
    if problem.input_channels == problem.output_channels == 1:
        # A window needs taps that read it.
        windowed = not zero_first and all(map(len, _convolution_taps.axes(problem)))
        if windowed or case.positions_in_place:
            kernels.append(DEPTHWISE)
    alone = lanes_of_a_group(problem, tiles, pairs_channels(problem, tiles, assumed))
    groups = (problem.groups > 1 or alone) and problem.input_channels <= tiles.lanes
    if parts < 2 and groups and (layout.channels_last or not zero_first):
        kernels.append(GROUPED)
    taps, outputs = prod(problem.kernel), problem.output_channels
    # The product with all taps and channels of diff_src has few columns.
    few = taps > 1 and problem.input_channels < tiles.lanes and not problem.transposed
    if few and outputs >= _convolution_scatter.FEWEST_OUTPUTS:
        kernels.append(SCATTER)
    # A sum of one product is nothing to pair, and float32 keeps its subnormals.
    single = parts == 1 and outputs == taps == 1
    if not parts or (single and not sums_few_pairs(problem, layout, tiles)):
        return kernels
    kernels.append(DOT)
    weights = problem.diff_src_channels * outputs * taps
    shallow = outputs <= FEW_OUTPUTS or weights < FEW_WEIGHTS
    if tiles.amx:
        shallow = taps * outputs <= DEEPEST
    dense = prod(_convolution_taps.out_steps(problem)) == 1
    if parts == 1 and taps > 1 and dense and shallow:
        kernels.append(UNFOLD)
    if tiles.amx and block_of_pixels(problem, layout, tiles, parts, assumed):
        kernels.append(FOLD)
    in_rows = not (layout.diff_src_channels_last or layout.diff_dst_channels_last)
    if in_rows and writes_whole_rows(problem, layout):
        kernels.append(PAIRS)
    return kernels
