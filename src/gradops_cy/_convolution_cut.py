"""How the work of a convolution is cut into tasks, and the scratch that a task needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from operator import mul
from typing import NamedTuple

from gradops_cy import (
    _convolution_columns,
    _convolution_depthwise,
    _convolution_grouped,
    _convolution_pairs,
    _convolution_scatter,
    _convolution_unfold,
    _processor,
)
from gradops_cy._convolution_axis import Axis
from gradops_cy._convolution_choice import (
    COLUMNS,
    DEPTHWISE,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_ROWS,
    GROUPED,
    KERNELS,
    PAIRS,
    ROWS,
    SCATTER,
    Choice,
)
from gradops_cy._convolution_problem import Triple
from gradops_cy._rounding import even, odd, up

# Bytes of a group's weights that do not stay in the second-level cache with what they meet.
LARGE_PANELS = 1 << 20
# Bytes of a line of cache: results that are streamed lie in lines of scratch as in diff_src's.
_LINE = 64
# Bytes of a pixel up to which tiles go through a row nearly in the order of memory, and of a row of
# which some stay in the second-level cache.
NARROW_PIXEL = 256
LONG_ROW = 1 << 18
# Words of depthwise_rows.h's Stencil.
_STENCIL = 21
# Positions of a box that are transposed at a time: long runs of each channel, but in cache.
BOX_RUN = 384


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

    @property
    def _blocks(self) -> int:
        """Blocks of positions of an image."""
        (d, h, w), (block_d, block_h, block_w) = self.choice.counts, self.block
        return -(-d // block_d) * -(-h // block_h) * -(-w // block_w)

    @property
    def tasks(self) -> int:
        """Independent pieces of work."""
        problem = self.choice.problem
        ranges = -(-problem.groups // self.task_groups)
        return problem.batch * ranges * self._blocks * self.channel_splits * self.class_splits

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
    def packs_in_tasks(self) -> bool:
        """Whether every panel is used by one task alone, which then had best pack it."""
        choice = self.choice
        once = choice.problem.batch * self._blocks * self.class_splits == 1
        plain = not choice.exact_halo and not choice.layout.accumulate
        # Weights that stay in cache anyway are better met by one tile of positions after the other.
        # PAIRS writes whole rows of few channels.
        large = self.group_panel * choice.factor_size > LARGE_PANELS
        packs = self._one_product or choice.kernel in (ROWS, PAIRS) or choice.broadcast > 0
        return once and plain and (packs or (choice.kernel == DOT and large))

    @property
    def widest(self) -> int:
        """The most units of a channel block."""
        return max(block.width for block in self.blocks)

    @property
    def direct(self) -> bool:
        """Whether diff_src is written without scratch: sums are whole, nothing between the rows."""
        choice = self.choice
        partial = choice.tiled and self.chunk < choice.problem.output_channels
        joined = choice.kernel == COLUMNS and self.flatten
        return choice.direct and not partial and not joined

    @property
    def interleave(self) -> bool:
        """Whether residue classes that share their rows are stored together."""
        choice = self.choice
        scattered = choice.out_steps[2] > 1 and not choice.layout.diff_src_channels_last
        return scattered and self.class_splits == 1 and not choice.zero_first

    @property
    def rounded(self) -> bool:
        """Whether whole sums are rounded on their way from registers to scratch."""
        choice = self.choice
        whole = self.chunk >= choice.problem.output_channels and not choice.layout.accumulate
        vectors = choice.kernel == DOT and not choice.tiles.amx
        return vectors and whole and not self.interleave

    @cached_property
    def axes(self) -> list[Axis]:
        """The tables of the three axes."""
        return [self.choice.axis(number, block) for number, block in enumerate(self.block)]

    @cached_property
    def sources(self) -> list[Axis]:
        """The tables by which diff_dst is read."""
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
        whole = choice.unfolds and self.chunk == choice.problem.output_channels
        apart = whole and _convolution_unfold.packs_apart(choice.given, choice.depth)
        return prod(choice.given.kernel) if apart else 1

    @property
    def merge(self) -> int:
        """How many taps along the last axis are one run of memory in the window."""
        choice = self.choice
        if choice.dot:
            return choice.beside
        mergeable = choice.kernel == ROWS and choice.windowed and not choice.exact_halo
        if not mergeable or self.chunk < choice.problem.output_channels:
            return 1
        axis = self.axes[2]
        return len(axis.taps) if choice.out_steps[2] == 1 and axis.adjacent else 1

    @cached_property
    def planes(self) -> int:
        """How many planes the runs of the window's rows have; 0 where they are rows' parts."""
        choice = self.choice
        apart = choice.kernel == DOT and choice.windowed and self.flatten and not choice.unfolds
        return self.axes[2].runs[0] if apart else 0

    @property
    def row_pitch(self) -> int:
        """Entries from row to row of the window."""
        axis = self.axes[2]
        return axis.runs[1] if self.planes else axis.window

    # -- results in scratch ----------------------------------------------------------------

    @cached_property
    def _past_the_caches(self) -> bool:
        """Whether no cache holds the result, to which nothing is added."""
        problem = self.choice.given
        result = problem.diff_src_bytes
        large = _processor.past_the_caches(result, result + problem.diff_dst_bytes)
        return large and not self.choice.layout.accumulate

    @property
    def streams(self) -> bool:
        """Whether results in place go past the caches."""
        return self._past_the_caches and self.direct and self.choice.kernel not in (COLUMNS, PAIRS)

    @property
    def touches(self) -> bool:
        """Whether DEPTHWISE asks for what lies in no cache before it is used."""
        problem, choice = self.choice.given, self.choice
        both = problem.diff_dst_bytes + problem.diff_src_bytes
        if choice.kernel != DEPTHWISE or not _processor.past_the_caches(both, both):
            return False
        plain = choice.out_steps[2] == choice.row_classes and not choice.windowed
        pixel = problem.groups * problem.itemsize
        # Halves of narrow pixels arrive faster than they are converted.
        waits = problem.itemsize >= 4 or pixel > NARROW_PIXEL
        fits = pixel * max(problem.diff_dst[2], problem.diff_src[2]) <= LONG_ROW
        return choice.along_rows or (plain and waits and fits)

    @property
    def stages(self) -> bool:
        """Whether results of channels by themselves are streamed from scratch.

        DEPTHWISE's in place, where they are no whole lines, and those of boxes.
        """
        in_place = self.streams and (self.touches or self.choice.along_rows)
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
            return self.result_positions
        if choice.kernel == SCATTER and choice.along_rows:
            return odd(self.strip, choice.lanes)
        if choice.tiled and self.direct:
            alone = choice.kernel == DOT and choice.problem.input_channels <= DOT_COLUMNS
            return DOT_COLUMNS if alone else 2 * DOT_COLUMNS
        if choice.kernel == PAIRS:
            return odd(self.result_positions, DOT_ROWS)
        if choice.over_groups:
            return up(self.task_groups * choice.problem.input_channels, choice.lanes)
        splits = self.channel_splits
        edges = [len(self.blocks) * i // splits for i in range(splits + 1)]
        units = max(sum(block.width for block in self.blocks[a:b]) for a, b in pairwise(edges))
        return units * (DOT_COLUMNS if choice.dot else choice.lanes)

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

    @property
    def strip(self) -> int:
        """Positions that SCATTER multiplies at a time; positions or rows of DEPTHWISE's sums."""
        choice = self.choice
        if choice.kernel == SCATTER and choice.along_rows:
            return _convolution_scatter.row_strip(choice.problem, choice.lanes, choice.windowed)
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
        outputs = choice.problem.output_channels
        if choice.broadcast:
            outputs = -(-outputs // choice.broadcast)
        lanes = choice.broadcast or choice.lanes
        return _convolution_grouped.ring_elements(self.axes, outputs, lanes)

    # -- scratch ---------------------------------------------------------------------------

    @cached_property
    def scratch(self) -> dict[str, int]:
        """Bytes of the parts of a thread's scratch."""
        choice = self.choice
        source, size, width = self.sources[2], choice.size, self.block[2]
        need = _NEEDS[choice.kernel](self)
        # Strips of 16 rows that lie across: of positions, or of as many channels as there are.
        step = choice.out_steps[2]
        streams = step if self.interleave else 1
        staging = max(
            16 * max(need.channels, need.sums),
            min(16, need.channels) * max(source.window, source.extent),
            min(16, need.sums) * width * step,
            2 * DOT_K * source.window if choice.parts > 1 else 0,
            17 * streams * (width + 1) + choice.lanes if streams > 1 else 0,
            17 * BOX_RUN if choice.boxed else 0,
        )
        sizes = {
            "zero_bytes": need.zeros * size,
            "window_bytes": need.window * choice.factor_size,
            "entry_bytes": need.entries * size,
            "result_bytes": need.results * size,
            "pointer_bytes": need.pointers * 8,
            "staging_bytes": staging * size,
            "panel_bytes": 0,
            "packing_bytes": 0,
        }
        if self.packs_in_tasks:
            lanes = {ROWS: choice.lanes, DOT: DOT_COLUMNS}[choice.panel_kernel]
            rows = up(self.chunk, choice.unit) if choice.dot else self.chunk
            taps = 1 if choice.kernel == SCATTER else len(choice.taps)
            sizes["panel_bytes"] = taps * rows * self.widest * lanes * choice.factor_size
            staged = max(taps, self.packed_apart)
            sizes["packing_bytes"] = KERNELS.pack_staging(staged, choice.parts)
        return {name: up(value, 64) for name, value in sizes.items()}

    @property
    def scratch_bytes(self) -> int:
        """Bytes of a thread's scratch."""
        return sum(self.scratch.values())

    @property
    def workspace_bytes(self) -> int:
        """Bytes of a thread's scratch without panels, which only some sizes of a batch have."""
        sizes = self.scratch
        return sum(sizes.values()) - sizes["panel_bytes"] - sizes["packing_bytes"]


class _Need(NamedTuple):
    """What a kernel keeps in scratch, in elements (pointers in words)."""

    window: int
    results: int
    pointers: int
    channels: int  # of diff_dst, staged on their way into the window
    sums: int  # channels of diff_src, staged on their way out
    zeros: int = 0
    entries: int = 0  # of diff_dst, to be unfolded into the window


def _window(cut: Cut) -> int:
    depth, height, width = cut.axes
    return depth.window * height.window * (cut.planes * cut.row_pitch or width.window)


def _rows_need(cut: Cut) -> _Need:
    pitch, merge, windowed = cut.result_pitch, cut.merge, cut.choice.windowed
    return _Need(
        window=_window(cut) * cut.chunk if windowed else 0,
        results=0 if cut.direct else cut.result_positions * pitch,
        pointers=prod(cut.block) * (1 + cut.choice.work.most // merge),
        channels=cut.chunk,
        sums=pitch,
        zeros=merge
        * (cut.chunk if windowed else cut.task_groups * cut.choice.problem.output_channels),
    )


def _columns_need(cut: Cut) -> _Need:
    choice = cut.choice
    tile = max(block.channels for block in cut.blocks)
    rows = -(-len(cut.blocks) // cut.channel_splits) * tile
    # Tiles run on past the window's last entry.
    beyond = cut.nv * choice.lanes + cut.axes[2].window
    return _Need(
        window=_window(cut) * cut.chunk + beyond if choice.windowed else cut.chunk * choice.lanes,
        # Direct, the last tile of a row.
        results=tile * cut.nv * choice.lanes if cut.direct else rows * cut.result_pitch,
        pointers=(choice.work.most if choice.windowed else 2) * cut.chunk,
        channels=cut.chunk,
        sums=rows,
    )


def _dot_need(cut: Cut) -> _Need:
    choice, pitch = cut.choice, cut.result_pitch
    beyond = 2 * DOT_ROWS + cut.axes[2].window
    channels, runs, entries = cut.chunk, 0, 0
    if choice.unfolds:
        beyond, channels = 2 * DOT_ROWS, choice.given.output_channels
        runs = prod(choice.given.kernel) // cut.unfold
        # A vector is read beyond the last of them.
        entries = (prod(axis.window for axis in cut.sources) * channels + 1) // 2 + choice.lanes
    positions = cut.result_positions
    if cut.direct:
        # Vectors are stored from registers; a tile of AMX while the next one is computed.
        positions = 2 * cut.tile_positions if choice.tiles.amx else 0
    return _Need(
        window=(_window(cut) + beyond) * cut.entry_pitch if choice.windowed else 0,
        results=positions * pitch,
        pointers=3 * max(choice.work.most, runs),
        channels=channels,
        sums=pitch,
        entries=entries,
    )


def _pairs_need(cut: Cut) -> _Need:
    choice = cut.choice
    depth, height, width = (axis.window for axis in cut.axes)
    segments = depth * (1 if cut.flatten else height)
    # Elements of both rows of a pair; tiles run on past the last entry.
    window = segments * up(cut.chunk, DOT_K) // 2 * cut.pair_pitch // 2
    widths = [block.width for block in cut.blocks]
    rows = DOT_COLUMNS * max(widths) * -(-len(widths) // cut.channel_splits)
    return _Need(
        window=window + 2 * (2 * DOT_ROWS + width),
        # Direct, one tile is stored while the next is computed.
        results=2 * cut.tile_positions * cut.result_pitch
        if cut.direct
        else rows * cut.result_pitch,
        pointers=max(choice.work.most, 6 * len(cut.axes[2].taps)),
        channels=cut.chunk,
        sums=rows,
    )


def _scatter_need(cut: Cut) -> _Need:
    choice, pitch, strip = cut.choice, cut.result_pitch, cut.strip
    outputs = choice.problem.output_channels
    if choice.along_rows:
        product = _convolution_scatter.columns(choice.problem) * pitch
        return _Need(
            # Whole rows, converted, or their last vectors.
            window=cut.chunk * (strip if choice.windowed else choice.lanes),
            results=cut.box_bytes // choice.size + product,
            pointers=max(cut.chunk, choice.out_steps[2]),
            channels=0,
            sums=1,
        )
    positions = strip + 2 * DOT_ROWS
    row = up(outputs, DOT_K) if choice.dot else outputs
    return _Need(
        window=positions * row if choice.windowed else 0,
        results=cut.box_bytes // choice.size + (positions + choice.lanes) * pitch,
        pointers=2 * max(strip, prod(choice.problem.kernel[:2])),
        channels=outputs,
        sums=pitch,
    )


def _depthwise_need(cut: Cut) -> _Need:
    if not cut.choice.along_rows:
        return _lanes_need(cut)
    axes, steps = cut.axes, [axis.taps.in_step for axis in cut.axes]
    spans = [
        axis.taps.span + (axis.block - 1) * step for axis, step in zip(axes, steps, strict=True)
    ]
    rows = prod(spans[:2]) + (steps[2] > 1)
    choice, results = cut.choice, 0
    if not cut.direct:
        results = cut.strip * choice.row_classes * cut.window_pitch
    elif cut.stages:
        results = prod(map(mul, cut.block[1:], choice.out_steps[1:])) + _LINE // choice.size
    # The columns that taps read, a Stencil for classes beside each other, places and weights.
    stencils = len(choice.residues) // choice.row_classes
    return _Need(
        window=rows * cut.window_pitch + choice.lanes,
        results=results,
        pointers=len(axes[2].taps) + _STENCIL * stencils + 2 * len(choice.taps),
        channels=1,
        sums=1,
    )


def _lanes_need(cut: Cut) -> _Need:
    choice, pitch = cut.choice, cut.result_pitch
    outputs = choice.problem.output_channels
    channels = cut.task_groups * outputs
    window = results = 0
    if choice.windowed:
        window = channels * prod(axis.extent for axis in cut.axes)
        results = pitch * prod(map(mul, cut.block, choice.out_steps))
    elif cut.stages:
        results = cut.block[2] * choice.row_classes * pitch + _LINE // choice.size
    # Tables, and weights that fill two vectors.
    pointers = choice.work.most * (8 + 2 * choice.lanes * choice.size // 8)
    if choice.row_classes > 1:  # their weights without gaps
        pointers += (len(choice.taps) * channels + choice.lanes) * choice.size // 8 + 1
    if choice.stride_columns > 1:
        # The weights without gaps, and sums of some positions or of all that one reads.
        inner = cut.strip * up(choice.stride_columns * channels, choice.lanes)
        sums = max(inner, up(choice.problem.kernel[2] * channels, choice.lanes)) + choice.lanes
        pointers += (choice.work.most * channels + sums) * choice.size // 8
    if choice.kernel == GROUPED:
        window += cut.ring_elements
        pointers = _convolution_grouped.pointers(
            cut.axes, len(choice.residues), outputs, choice.lanes * choice.size
        )
    return _Need(window, results, pointers, channels, sums=pitch)


_NEEDS = {
    ROWS: _rows_need,
    COLUMNS: _columns_need,
    GROUPED: _lanes_need,
    DOT: _dot_need,
    PAIRS: _pairs_need,
    DEPTHWISE: _depthwise_need,
    SCATTER: _scatter_need,
}
