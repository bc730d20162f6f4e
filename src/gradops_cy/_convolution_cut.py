"""How the work of a convolution is cut into tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from gradops_cy import (
    _convolution_columns,
    _convolution_depthwise,
    _convolution_grouped,
    _convolution_pairs,
    _convolution_scatter,
    _convolution_scratch,
    _convolution_unfold,
    _processor,
)
from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import Axis
from gradops_cy._convolution_choice import Choice
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DEPTHWISE,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_ROWS,
    GROUPED,
    KERNELS,
    LINE,
    PAIRS,
    ROWS,
    SCATTER,
    sums_few_pairs,
    sums_few_planes,
    sums_runs,
)
from gradops_cy._convolution_problem import Triple
from gradops_cy._rounding import even, odd, up

# Bytes of a group's weights that do not stay in the second-level cache with what they meet.
LARGE_PANELS = 1 << 20
# Those of all groups that are met once more for each block without loss.
LIGHT_PANELS = 1 << 18
# Bytes of a pixel up to which tiles go through a row nearly in the order of memory, and of a row of
# which some stay in the second-level cache.
NARROW_PIXEL = 256
LONG_ROW = 1 << 18


def resized(block: Triple, axis: int, extent: int) -> Triple:
    """Return a block with `extent` positions on an axis."""
    d, h, w = (extent if number == axis else block[number] for number in range(3))
    return d, h, w


class ChannelBlock(NamedTuple):
    """Channels of diff_src that a tile computes."""

    first: int
    channels: int
    width: int  # in vectors, or DOT tiles
    panel: int  # offset of its panel


@dataclass(frozen=True, eq=False)
class Cut:
    """What one task computes: some groups, a block of positions, a range of channel blocks."""

    choice: Choice
    chunk: int  # channels of diff_dst that are summed at a time
    nv: int  # vectors of a tile, or DOT tiles across
    down: int  # DOT tiles of positions
    flatten: bool  # rows of a plane run into each other
    blocks: list[ChannelBlock]
    group_panel: int  # elements of a group's packed weights
    task_groups: int
    block: Triple
    channel_splits: int = 1
    class_splits: int = 1

    def reblocked(self, block: Triple) -> Cut:
        """Return the cut with other blocks of positions."""
        return self if block == self.block else replace(self, block=block)

    def evened(self, axis: int, extent: int) -> Cut:
        """Return the cut with as many blocks on an axis as `extent` makes, even ones."""
        return self.reblocked(resized(self.block, axis, even(self.choice.counts[axis], extent)))

    @cached_property
    def block_table(self) -> Array:
        """Table of the channel blocks."""
        # Of as many blocks as long sums have, numpy.array would take longer than all of planning.
        return np.fromiter(chain.from_iterable(self.blocks), np.intp).reshape(-1, 4)

    @property
    def position_blocks(self) -> int:
        """Blocks of positions of an image."""
        (d, h, w), (block_d, block_h, block_w) = self.choice.counts, self.block
        return -(-d // block_d) * -(-h // block_h) * -(-w // block_w)

    @property
    def tasks(self) -> int:
        """Independent pieces of work."""
        problem = self.choice.problem
        ranges = -(-problem.groups // self.task_groups)
        return (
            problem.batch * ranges * self.position_blocks * self.channel_splits * self.class_splits
        )

    @property
    def _one_product(self) -> bool:
        """Whether SCATTER multiplies all positions of an image at once."""
        choice = self.choice
        depth, height, width = choice.problem.diff_dst
        one = depth == 1 and height * width <= self.strip
        return one and choice.kernel == SCATTER and not choice.along_rows

    @property
    def shares_product(self) -> bool:
        """Whether the only task has a single product, whose columns threads may share."""
        return self._one_product and self.tasks == 1

    @property
    def weights_bytes(self) -> int:
        """Bytes of a group's packed weights."""
        return self.group_panel * self.choice.factor_size

    @property
    def packs_in_tasks(self) -> bool:
        """Whether every panel is used by one task alone, which then had best pack it."""
        choice = self.choice
        once = choice.problem.batch * self.position_blocks * self.class_splits == 1
        plain = not choice.exact_halo and not choice.layout.accumulate
        # Weights that stay in cache anyway are better met by one tile of positions after the other.
        # PAIRS writes whole rows of few channels. Blocks of few products are stored together, if
        # there are positions enough to be worth the packing.
        large = self.weights_bytes > LARGE_PANELS
        together = self._stores_whole_positions and len(self.blocks) > 1
        rows = choice.kernel == ROWS and not (together and prod(self.block) > choice.lanes)
        packs = self._one_product or rows or choice.kernel == PAIRS or choice.broadcast > 0
        return once and plain and (packs or (choice.kernel == DOT and large))

    @cached_property
    def range_widths(self) -> list[int]:
        """The units of the channels of each range."""
        splits = self.channel_splits
        edges = [len(self.blocks) * i // splits for i in range(splits + 1)]
        return [sum(block.width for block in self.blocks[a:b]) for a, b in pairwise(edges)]

    @property
    def cuts_sums(self) -> bool:
        """Whether a sum is cut into chunks, for each of which a window is filled."""
        return self.chunk < self.choice.problem.output_channels

    @property
    def widest(self) -> int:
        """The most units of a channel block."""
        return max(block.width for block in self.blocks)

    @property
    def direct(self) -> bool:
        """Whether diff_src is written without scratch: sums are whole, nothing between the rows."""
        choice = self.choice
        adds_up = choice.tiled or not choice.problem.plain
        partial = adds_up and self.cuts_sums
        joined = choice.kernel == COLUMNS and self.flatten
        return choice.direct and not partial and not joined

    @property
    def all_classes(self) -> bool:
        """Whether a task computes all residue classes of its positions."""
        return self.class_splits == 1 and not self.choice.zero_first

    @property
    def interleave(self) -> bool:
        """Whether residue classes that share their rows are stored together."""
        choice = self.choice
        scattered = choice.out_steps[2] > 1 and not choice.layout.diff_src_channels_last
        return scattered and self.all_classes and not choice.winograd

    @property
    def rounded(self) -> bool:
        """Whether whole sums are rounded on their way from registers to scratch."""
        choice = self.choice
        if choice.boxed:
            return choice.row_pairs
        whole = not self.cuts_sums and not choice.layout.accumulate
        vectors = choice.kernel == DOT and not choice.tiles.amx
        return vectors and whole and not self.interleave and not choice.folds

    @cached_property
    def axes(self) -> list[Axis]:
        """The tables of the three axes."""
        return [self.choice.axis(number, block) for number, block in enumerate(self.block)]

    @property
    def entries(self) -> int:
        """Positions of diff_dst that a block reads: the entries of its window."""
        return prod(axis.window for axis in self.axes)

    @property
    def spanned(self) -> int:
        """Positions of diff_dst that lie between those, too."""
        return prod(axis.extent for axis in self.axes)

    @cached_property
    def sources(self) -> list[Axis]:
        """The tables by which diff_dst is read."""
        if not self.choice.reads_apart:
            return self.axes
        return [self.choice.source(number, block) for number, block in enumerate(self.block)]

    @property
    def unfold(self) -> int:
        """How many taps along the last axis are one run of what is unfolded."""
        width = self.sources[2]
        if not self.choice.unfolds:
            return 0
        return len(width.taps) if width.adjacent else 1

    @property
    def packed_apart(self) -> int:
        """How many unfolded taps are packed by themselves; 1 where the product's weights are."""
        choice = self.choice
        whole = choice.unfolds and not self.cuts_sums
        apart = whole and _convolution_unfold.packs_apart(choice.given, choice.depth)
        return prod(choice.given.kernel) if apart else 1

    @cached_property
    def merge(self) -> int:
        """How many taps along the last axis are one run of memory, mostly of the window."""
        choice = self.choice
        if choice.dot:
            return choice.beside
        runs = sums_runs(choice.problem, choice.layout, choice.tiles)
        mergeable = choice.kernel == ROWS and runs and not choice.exact_halo
        if not mergeable or self.cuts_sums:
            return 1
        axis = self.axes[2]
        return len(axis.taps) if choice.out_steps[2] == 1 and axis.adjacent else 1

    @cached_property
    def planes(self) -> int:
        """How many planes the runs of the window's rows have; 0 where they are rows' parts."""
        choice = self.choice
        apart = choice.kernel == DOT and choice.windowed and self.flatten and not choice.unfolds
        return self.axes[2].runs if apart else 0

    @property
    def row_pitch(self) -> int:
        """Entries from row to row of the window."""
        axis = self.axes[2]
        return axis.longest_run if self.planes else axis.window

    # -- results in scratch ----------------------------------------------------------------

    @property
    def _stores_whole_positions(self) -> bool:
        """Whether a kernel does little else than to store positions, one after the other."""
        choice = self.choice
        if choice.kernel == DOT:
            return sums_few_pairs(choice.problem, choice.layout, choice.tiles)
        few = len(choice.taps) == 1 and choice.problem.output_channels <= KERNELS.FEW_PRODUCTS
        rows = choice.kernel == ROWS and choice.direct and not choice.exact_halo
        return rows and few and choice.size == 4

    @cached_property
    def _past_the_caches(self) -> bool:
        """Whether no cache holds the result, to which nothing is added, or stores wait for it."""
        problem = self.choice.given
        result, read = problem.diff_src_bytes, problem.diff_dst_bytes
        large = _processor.past_the_caches(result, result + read)
        # Of more products halves take longer to round, unless pairs are multiplied.
        halves = problem.itemsize == 2 and self.choice.kernel == ROWS
        most = 1 if halves else KERNELS.FEW_PRODUCTS
        few = problem.pointwise and problem.diff_dst_channels <= most
        stores = few and self._stores_whole_positions
        large = large and not (stores and _processor.holds(result + read))
        large = large or (problem.pointwise and _processor.outgrows(result, read))
        return large and not self.choice.layout.accumulate

    @property
    def streams(self) -> bool:
        """Whether results in place go past the caches."""
        choice = self.choice
        # Groups of ROWS begin at vectors, which are stored without a look at where.
        whole = choice.kernel != ROWS or choice.problem.input_channels % choice.lanes == 0
        if choice.kernel == COLUMNS:
            whole = sums_few_planes(choice.problem, choice.layout)
        return self._past_the_caches and self.direct and whole and choice.kernel != PAIRS

    @property
    def _tensors_past_the_caches(self) -> bool:
        """Whether no cache holds both tensors."""
        problem = self.choice.given
        both = problem.diff_dst_bytes + problem.diff_src_bytes
        return _processor.past_the_caches(both, both)

    @property
    def touches(self) -> bool:
        """Whether DEPTHWISE asks for what lies in no cache before it is used."""
        problem, choice = self.choice.given, self.choice
        if choice.kernel != DEPTHWISE or not self._tensors_past_the_caches:
            return False
        plain = choice.out_steps[2] == choice.row_classes and not choice.windowed
        pixel = problem.groups * problem.itemsize
        # Halves of narrow pixels arrive faster than they are converted.
        waits = problem.itemsize >= 4 or pixel > NARROW_PIXEL
        fits = pixel * max(problem.diff_dst[2], problem.diff_src[2]) <= LONG_ROW
        return choice.along_rows or (plain and waits and fits)

    @property
    def touches_block(self) -> bool:
        """Whether GROUPED does, whose vectors of lanes take a line of each position in turn."""
        problem, choice = self.choice.given, self.choice
        pixel = problem.diff_src_channels * problem.itemsize
        lines = choice.kernel == GROUPED and not choice.boxed and pixel > LINE
        return lines and self._tensors_past_the_caches

    @property
    def touches_results(self) -> bool:
        """Whether tiles ask for lines that they write to, where these do not go past the caches.

        Stores of 64 bytes that lie in two lines wait for both; on Intel less than asking takes.
        """
        written = self.choice.kernel in (ROWS, DOT) and self.direct and self._past_the_caches
        return _processor.AMD_512 and written

    @property
    def crosses_groups(self) -> bool:
        """Whether a task goes on to the next group, with which this one shares lines of cache.

        Winograd has blocks of its own, whose rows may not be cut.
        """
        choice = self.choice
        if choice.kernel not in (ROWS, DOT) or choice.winograd or choice.problem.groups == 1:
            return False
        light = choice.problem.groups * self.weights_bytes <= LIGHT_PANELS
        return choice.layout.channels_last and light

    @property
    def touched_bytes(self) -> int:
        """Bytes of both tensors that all groups of a task's positions have."""
        problem = self.choice.given
        read = self.spanned * problem.diff_dst_channels
        steps = zip(self.block, self.choice.out_steps, strict=True)
        written = prod(count * step for count, step in steps) * problem.diff_src_channels
        return (read + written) * problem.itemsize

    @property
    def stages(self) -> bool:
        """Whether results of channels by themselves are streamed from scratch.

        DEPTHWISE's in place, where they are no whole lines, and those of boxes.
        """
        # As many results as there are of diff_dst are stored while the next ones are summed.
        waits = self.choice.rolls and self.choice.row_classes == 1
        in_place = self.streams and (self.touches or self.choice.along_rows) and not waits
        return in_place or (self._past_the_caches and self.choice.boxed)

    @property
    def result_positions(self) -> int:
        """Positions of a task's results in scratch, over its residue classes."""
        choice = self.choice
        depth, height, width = self.block
        positions = prod(self.block)
        if choice.has_units:
            unit = _convolution_columns.unit(choice, self.flatten, height, width)
            positions = depth * unit * (1 if self.flatten else height)
        return positions * -(-len(choice.residues) // self.class_splits)

    @cached_property
    def result_pitch(self) -> int:
        """Elements from position to position of the results, or (positions first) channels."""
        choice = self.choice
        if choice.kernel == COLUMNS:
            # As with the window's planes.
            return odd(self.result_positions, 16)
        if choice.kernel == SCATTER and choice.along_rows:
            return odd(self.strip, choice.lanes)
        if choice.tiled and self.direct:
            alone = choice.kernel == DOT and choice.problem.input_channels <= DOT_COLUMNS
            return DOT_COLUMNS if alone else 2 * DOT_COLUMNS
        if choice.kernel == PAIRS:
            return odd(self.result_positions, DOT_ROWS)
        if choice.over_groups:
            return up(self.task_groups * choice.problem.input_channels, choice.lanes)
        return max(self.range_widths) * (DOT_COLUMNS if choice.dot else choice.lanes)

    @property
    def window_plane(self) -> int:
        """Elements between planes of what patches are transformed to, or COLUMNS' channels; or 0.

        An odd number of lines: powers of two would displace each other from the first-level cache.
        """
        plane = self.entries
        if self.choice.winograd:
            return odd(plane * self.chunk, 16)
        return odd(plane, 16) if self.choice.kernel == COLUMNS else 0

    @property
    def result_plane(self) -> int:
        """Elements from plane to plane of their sums; or 0."""
        return odd(prod(self.block) * self.result_pitch, 16) if self.choice.winograd else 0

    @property
    def window_pitch(self) -> int:
        """Elements from row to row of DEPTHWISE's window, where lanes are positions."""
        if self.choice.kernel != DEPTHWISE or not self.choice.along_rows:
            return 0
        taps, lanes = self.axes[2].taps, self.choice.lanes
        return _convolution_depthwise.window_pitch(self.block[2], taps.span, taps.in_step, lanes)

    @property
    def pair_pitch(self) -> int:
        """Bytes from pair to pair of PAIRS' window."""
        _, height, width = (axis.window for axis in self.axes)
        return _convolution_pairs.pitch(height * width if self.flatten else width)

    @property
    def tile_positions(self) -> int:
        """Positions of a tile of DOT or PAIRS, which meet the same weights one after another."""
        return self.down * DOT_ROWS

    @property
    def taps_inside(self) -> bool:
        """Whether DOT's tiles meet all taps of a step along k before the next step."""
        return self.down > 4

    @property
    def entry_pitch(self) -> int:
        """Elements from entry to entry of a DOT window.

        Where taps find the lines of a step again, an odd number of them: entries 512 bytes apart
        share an eighth of the first-level cache.
        """
        depth = up(self.chunk, self.choice.unit)
        return depth | DOT_K if self.taps_inside else depth

    @cached_property
    def strip(self) -> int:
        """Positions that SCATTER multiplies at a time; positions or rows of DEPTHWISE's sums."""
        choice = self.choice
        if choice.kernel == SCATTER and choice.along_rows:
            return _convolution_scatter.row_strip(
                choice.problem, choice.source_lanes, choice.dot, choice.windowed
            )
        if choice.kernel == SCATTER:
            return _convolution_scatter.strip(self.result_pitch, choice.dot)
        if choice.along_rows:
            return min(_convolution_depthwise.ROWS, self.block[1])
        return _convolution_depthwise.STRIP if choice.stride_columns > 1 else 0

    @property
    def box_pitch(self) -> int:
        """Elements of a row of SCATTER's sums."""
        return _convolution_scatter.box_pitch(self.choice.problem, self.block[2])

    @property
    def box_bytes(self) -> int:
        """Bytes of SCATTER's sums."""
        choice = self.choice
        elements = _convolution_scatter.box_elements(choice.problem, self.block, choice.lanes)
        return up(elements * choice.size, 64)

    @property
    def ring_elements(self) -> int:
        """Elements of the rows that GROUPED spreads for one vector of lanes."""
        choice = self.choice
        rows = -(-choice.problem.output_channels // choice.entry_channels)
        lanes = choice.broadcast or choice.lanes
        return _convolution_grouped.ring_elements(self.axes, rows, lanes)

    # -- scratch (see _convolution_scratch) -------------------------------------------------

    @cached_property
    def scratch(self) -> dict[str, int]:
        """Bytes of the parts of a thread's scratch."""
        return _convolution_scratch.sizes(self)

    @property
    def scratch_bytes(self) -> int:
        """Bytes of a thread's scratch."""
        return sum(self.scratch.values())

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a thread's scratch without panels, which only some sizes of a batch have."""
        sizes = self.scratch
        return sum(sizes.values()) - sizes["panel_bytes"] - sizes["packing_bytes"]
