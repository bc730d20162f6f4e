"""The kernels of a convolution, and which forms of them a problem in a layout may have."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from gradops_cy import (
    _convolution_depthwise_times,
    _convolution_diagonal,
    _convolution_fold,
    _convolution_scatter,
    _convolution_taps,
    _isa,
)
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._processor import ZEN4
from gradops_cy._rounding import up

# DOT multiplies pairs of bfloat16. UNFOLD and FOLD are DOT on other problems.
ROWS, COLUMNS, GROUPED, DOT, DEPTHWISE, SCATTER, PAIRS, UNFOLD, FOLD = range(9)
KERNEL_NAMES = ("rows", "columns", "grouped", "dot", "depthwise", "scatter", "pairs")
DOT_ROWS, DOT_COLUMNS, DOT_K = 16, 16, 32
# What a plan takes for granted of the values; whatever breaks it takes another plan. That sums of
# bfloat16 parts, or with zeros of other groups or pixels, are finite, that the weights are, or
# nothing.
MODERATE, FINITE, NOTHING = range(3)
# Bytes that caches move, and from which on addresses meet in the same places of the first.
LINE, PAGE = 64, 4096
# Products with padding, of a tap's, that take as long as to begin with each tap of a row anew.
PADDING_OF_RUNS = 3
# Channels of diff_src up to which a window whose last AMX tiles have zeros would not pay.
TAIL_CHANNELS = 192
# Channels up to which taps of a row are one run of products for vectors; more are cut in chunks.
# And for AMX, whose tiles a tap of more channels fills well enough by itself.
BESIDE, FEW_OF_A_TILE = 64, 12
# Products of a sum up to which ROWS rounds halves at once.
SHORT_SUM = 64

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
    def vector_pairs(self) -> bool:
        """Whether vectors multiply pairs of bfloat16, and no AMX does."""
        return self.bf16_rate > 0 and not self.amx

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
def tiles_of(f64: bool) -> Tiles:
    """Return the tiles for float64, or for what is summed in float32."""
    return Tiles(*KERNELS.tile_shapes(f64))


class Layout(NamedTuple):
    """What the arrays' strides allow."""

    diff_dst_channels_last: bool
    diff_src_channels_last: bool
    diff_dst_rows: bool  # the positions of a row lie next to each other
    diff_src_rows: bool
    diff_dst_packed: bool  # the channels of neighbouring positions follow each other
    diff_src_packed: bool
    joins: int  # axes that both tensors can join to the last one
    accumulate: bool
    joins_images: bool = False  # the positions of an image go on where those of the last one end
    weights_by_input: bool = False  # weights of neighbouring channels of diff_src lie side by side
    spreads: str = ""  # the order of diff_src's axes where positions are taken for channels; or ""

    @property
    def channels_last(self) -> bool:
        """Whether the channels of both tensors follow each other."""
        return self.diff_dst_channels_last and self.diff_src_channels_last


def pairs_channels(problem: ConvProblem, tiles: Tiles, assumed: int) -> bool:
    """Return whether GROUPED multiplies pairs of bfloat16 channels.

    Vectors do; AMX processors multiply float32 as fast.
    """
    vectors = problem.dtype == 2 and tiles.vector_pairs
    few = problem.input_channels < tiles.lanes and problem.output_channels % 2 == 0
    return vectors and few and assumed != NOTHING


def paired(problem: ConvProblem) -> ConvProblem:
    """Return the problem of which a channel of diff_dst is two."""
    return problem._replace(diff_dst_channels=problem.diff_dst_channels // 2)


def lanes_of_a_group(problem: ConvProblem, tiles: Tiles, pairs: bool) -> int:
    """Return the lanes of vectors that are of one group, all or half of them; or 0."""
    inputs, half = problem.input_channels, tiles.lanes // 2
    if inputs == tiles.lanes:
        return inputs
    # Strides leave a position few taps, and half a row of pairs takes as long to copy as to spread.
    dense = prod(_convolution_taps.out_steps(problem)) == 1
    deep = not pairs or (problem.groups > 1 and problem.output_channels >= 2 * half)
    return half if ZEN4 and inputs == half and dense and deep else 0


def goes_along_rows(
    problem: ConvProblem, layout: Layout, tiles: Tiles, kernel: int, parts: int, assumed: int
) -> bool:
    """Whether lanes are positions: DEPTHWISE's in a window with zeros around it, or SCATTER's."""
    last = layout.channels_last and problem.diff_src_channels > 1
    if last or not (layout.diff_dst_rows and layout.diff_src_rows):
        return False
    if kernel == SCATTER:
        # In pairs of channels where vectors multiply them, which AMX does no better than others.
        fits = not parts or not (tiles.amx or problem.output_channels % 2)
        return fits and _convolution_scatter.along_rows(problem, parts > 0)
    if kernel != DEPTHWISE or assumed == NOTHING or _convolution_taps.zero_first(problem):
        return False
    return _convolution_depthwise_times.along_rows(problem, tiles.lanes, tiles.vector_pairs)


def groups_abreast(problem: ConvProblem, parts: int) -> int:
    """Return how many groups stand side by side in a row of positions.

    Two of half a tile's depth read and write whole lines of cache, and no zeros between them.
    """
    half = DOT_K // 2
    fits = problem.input_channels == problem.output_channels == half == DOT_COLUMNS
    return 2 if parts == 1 and fits and problem.groups % 2 == 0 else 1


def computes_again(assumed: int, accumulate: bool) -> bool:
    """Return whether results that are not finite can be computed again: nothing was added to."""
    return assumed == MODERATE and not accumulate


def groups_on_diagonal(
    problem: ConvProblem, layout: Layout, tiles: Tiles, parts: int, assumed: int
) -> int:
    """Return how many groups are blocks on the diagonal of one group's weights, or 1.

    Infinities make NaN of the zeros beside them: what was computed so is computed again, and so
    must not have been added to something.
    """
    again = computes_again(assumed, layout.accumulate)
    last = layout.channels_last
    joins = _convolution_diagonal.joins if tiles.amx else _convolution_diagonal.joins_in_vectors
    if parts != 1 or not again or not joins(problem, last):
        return 1
    width = DOT_K if tiles.amx else DOT_COLUMNS
    most = width // max(problem.input_channels, problem.output_channels)
    return max(count for count in range(1, most + 1) if problem.groups % count == 0)


def block_of_pixels(
    problem: ConvProblem, layout: Layout, tiles: Tiles, parts: int, assumed: int
) -> tuple[int, int] | None:
    """Return the rows and columns of diff_src that DOT takes for channels, if any.

    Infinities make NaN of the zeros among their weights, as beside other groups.
    """
    last = layout.channels_last
    # Half a vector is as fast where it takes half the time.
    fills = tiles.amx or (last and tiles.columns(problem.input_channels) == DOT_COLUMNS)
    if parts != 1 or not (fills and computes_again(assumed, layout.accumulate)):
        return None
    return _convolution_fold.factors(problem, layout.diff_dst_channels_last)


def blocks_in_place(problem: ConvProblem, layout: Layout, fold: tuple[int, int]) -> bool:
    """Return whether blocks of pixels are blocks of diff_src's memory.

    Those of 1-D are not: rows that are shorter than the plan's may end within one.
    """
    in_rows = layout.diff_src_packed and fold[0] == 1 and problem.rank > 1
    return in_rows and problem.diff_src[2] % fold[1] == 0


def taps_beside(problem: ConvProblem, parts: int, tiles: Tiles) -> int:
    """Return how many taps make one of a DOT tile's depth: those of a row, or 1.

    Where entries of the window that follow each other are no deeper than a tile, or would leave
    much of it to zeros one by one. AMX tiles have a zero after an odd number of channels. A stride
    steps through rows of diff_dst as they are; groups may lie in place, where they are no row.
    """
    outputs, width = problem.output_channels, problem.kernel[2]
    steps = problem.transposed and problem.groups == 1
    follow = problem.dilations[2] == 1 and (steps or problem.strides[2] == 1)
    if tiles.amx:
        entry = up(outputs, 2)
        fits = outputs > 1 and (width * entry <= DOT_K or entry <= FEW_OF_A_TILE)
    else:
        fits = outputs % 2 == 0 and outputs <= BESIDE
    return width if parts == 1 and follow and fits else 1


def joins_images(problem: ConvProblem, layout: Layout) -> bool:
    """Whether AMX tiles of DOT take the positions of all images for one row."""
    return layout.joins_images and problem.has_short_images


def writes_whole_rows(problem: ConvProblem, layout: Layout) -> bool:
    """Whether a vector of neighbouring positions is a vector of diff_src."""
    return layout.diff_src_rows and _convolution_taps.out_steps(problem)[2] == 1


def reads_positions_in_place(problem: ConvProblem, layout: Layout, tiles: Tiles) -> bool:
    """Whether ROWS and SCATTER multiply the channels of a position where they lie.

    Taps of few channels are summed in one run, which a window makes of them where they are none.
    """
    in_place = problem.plain and layout.diff_dst_channels_last
    return in_place and (not _has_short_taps(problem, tiles) or lie_in_runs(problem, layout))


def writes_positions_in_place(problem: ConvProblem, layout: Layout, tiles: Tiles) -> bool:
    """Whether ROWS leaves sums where they belong, and not in scratch."""
    plain = problem.plain and layout.diff_src_channels_last and not layout.accumulate
    return plain or rounds_rows(problem, layout, tiles)


def rounds_rows(problem: ConvProblem, layout: Layout, tiles: Tiles) -> bool:
    """Whether ROWS rounds a tile's sums before they leave the first-level cache.

    Short sums of halves would else take as long to go through scratch. Tiles of shorter vectors
    have less than a line of each position, but few products have whole positions.
    """
    products = prod(problem.kernel) * problem.output_channels
    most = SHORT_SUM if tiles.lanes * 4 == LINE else KERNELS.FEW_PRODUCTS
    halves = products <= most and not problem.plain
    return halves and layout.diff_src_channels_last and not layout.accumulate


def sums_few_pairs(problem: ConvProblem, layout: Layout, tiles: Tiles) -> bool:
    """Whether DOT sums so few products for a position that no tile takes it, but one loop over all.

    Sums of one product are pairs too, then, and odd numbers of products are read where they lie.
    """
    pairs = problem.dtype == 2 and tiles.vector_pairs and prod(problem.kernel) == 1
    few = pairs and problem.output_channels <= KERNELS.FEW_PAIRED
    return few and layout.channels_last and not layout.accumulate


def sums_few_planes(problem: ConvProblem, layout: Layout) -> bool:
    """Whether COLUMNS sums so few products that it writes each channel's positions in turn."""
    few = problem.pointwise and problem.output_channels <= KERNELS.FEW_PRODUCTS
    rows = few and problem.dtype != 3 and writes_whole_rows(problem, layout)
    return rows and not layout.accumulate


def sums_runs(problem: ConvProblem, layout: Layout, tiles: Tiles) -> bool:
    """Whether ROWS may sum the taps of a row as one run: a window's, or where they are one.

    It does not leave those out that read padding, which takes longer than many short runs.
    """
    if _has_short_taps(problem, tiles):
        return True
    padding = (1 - problem.inside(2)) * problem.output_channels
    return padding < PADDING_OF_RUNS and not reads_positions_in_place(problem, layout, tiles)


def _has_short_taps(problem: ConvProblem, tiles: Tiles) -> bool:
    return problem.output_channels < tiles.lanes and problem.kernel[2] > 1


def lie_in_runs(problem: ConvProblem, layout: Layout) -> bool:
    """Whether the taps of a row are one run of diff_dst, channels last, none of them in padding."""
    dense = layout.diff_dst_packed and problem.transposed and problem.groups == 1
    reach = (problem.diff_src[2] - 1) * problem.strides[2] + problem.kernel[2]
    inside = problem.pads_begin[2] == 0 and reach <= problem.diff_dst[2]
    return dense and inside and problem.dilations[2] == 1


def reads_in_place(problem: ConvProblem, layout: Layout, tiles: Tiles) -> bool:
    """Whether COLUMNS multiplies vectors of diff_dst where they lie.

    Channels pages apart displace each other from the first-level cache: those of which a vector is
    a whole line are not needed a second time.
    """
    plane = prod(problem.diff_dst) * problem.itemsize
    stay = tiles.lanes * problem.itemsize == LINE or plane % PAGE != 0
    return problem.pointwise and problem.plain and layout.diff_dst_rows and stay
