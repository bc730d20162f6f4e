"""From a convolution problem to kernel calls: tables, packed weights, scratch.

What a plan is made of is chosen in _convolution_choice (the kernel) and _convolution_blocks (the
tasks). However the work is cut, not a bit of the result changes: every element is one sum in one
order, which the kernel and the problem fix (taps, then channels; SCATTER and Winograd add up the
sums over channels).
"""

from __future__ import annotations

from collections import deque
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np

from gradops_cy import (
    _arrays,
    _convolution_blocks,
    _convolution_columns,
    _convolution_diagonal,
    _convolution_fold,
    _convolution_grouped,
    _convolution_scatter,
    _convolution_spread,
    _convolution_taps,
    _convolution_unfold,
    _isa,
)
from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import table
from gradops_cy._convolution_choice import choose, dot_parts
from gradops_cy._convolution_kernels import (
    DOT,
    DOT_COLUMNS,
    GROUPED,
    KERNEL_NAMES,
    KERNELS,
    MODERATE,
    NOTHING,
    PAIRS,
    ROWS,
    SCATTER,
    Layout,
)
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._processor import AMD, ZEN4

# Below this a second thread costs more than it brings; an element moved takes as long as some flop.
THREAD_FLOP = 1 << 20
ELEMENT_FLOP = 8
# Memory up to this size is kept between calls: packed, 3x3 weights of 512 channels have 9 MiB.
KEPT_BYTES = 1 << 24
# From here on NumPy asks for huge pages: what of the last one is not used is memory all the same.
HUGE_BYTES = 1 << 22
# Packed weights that the second-level cache has no room for.
STREAM_PANELS = 1 << 20
# A thread's share of a diff_dst that the second-level cache of AMX processors has no room for.
LARGE_SOURCE = 1 << 21
# Channels of rows that prefetchers of Intel lose.
SHORT_ROW = 96
# One of a diff_src whose lines stores wait for.
LARGE_RESULT = 1 << 20
# Runs of weights that are asked for before they are packed: prefetchers of Zen 3 and 4 do not
# follow them, others' do.
WEIGHTS_AHEAD = 4 if AMD else 0


# Panels and scratch of the last calls, of whatever plan, for the next ones: a page fault for every
# 4096 bytes of fresh memory takes longer than a small problem.
_spare: deque[Array] = deque(maxlen=2)


def _take(count: int) -> Array:
    """Return at least `count` aligned bytes that no other call holds: taking is atomic."""
    try:
        piece = _spare.pop()
    except IndexError:
        piece = None
    if piece is None or len(piece) < count:
        # With room for a somewhat longer input; what is not used has no memory behind it.
        piece = _arrays.aligned_bytes(count + count // 4 if count < HUGE_BYTES else count)
    return piece


def _give(piece: Array) -> None:
    if len(piece) <= KEPT_BYTES:
        _spare.append(piece)


class Plan:
    """How one problem is computed in one memory layout.

    Parameters
    ----------
    problem : ConvProblem
    layout : Layout
    num_threads : int
        Only how the work is cut depends on it.
    assumed : int
        What is taken for granted of the values: what computes them finds out.
    """

    def __init__(
        self,
        problem: ConvProblem,
        layout: Layout,
        num_threads: int,
        assumed: int = MODERATE,
    ) -> None:
        self.problem = problem
        if layout.spreads:
            joined = _convolution_spread.product(problem)
        else:
            joined = problem.joined(layout.joins, layout.diff_src_channels_last)
        parts = dot_parts(problem, assumed, layout.accumulate)
        self.choice = choose(joined, layout, assumed, parts)
        self._of_all_images = self.choice.given != joined
        joins = layout.joins if joined != problem else 0
        self._joins = 2 if self._of_all_images else joins
        self.cut = _convolution_blocks.cut(self.choice, num_threads)
        work = problem.flop + ELEMENT_FLOP * problem.elements
        shares = len(self.cut.blocks) if self.cut.shares_product else self.cut.tasks
        self.num_threads = max(1, min(num_threads, shares, work // THREAD_FLOP))
        self.packs_in_tasks = self.cut.packs_in_tasks
        # SCATTER clears what it adds to by itself.
        self._clears = (
            self.choice.zero_first and self.choice.kernel != SCATTER and not layout.accumulate
        )

    # -- tables ----------------------------------------------------------------------------

    @cached_property
    def _work_tables(self) -> tuple[Array, Array]:
        """Return the residue classes and taps as the kernel reads them."""
        choice, merge = self.choice, self.cut.merge
        if choice.kernel == SCATTER:
            return _convolution_scatter.tables(choice.given, choice.lanes, choice.along_rows)
        if merge == 1:
            return choice.residues, choice.taps
        residues, taps = choice.residues.copy(), choice.taps[::merge].copy()
        residues[:, 3:] //= merge
        return residues, taps

    @cached_property
    def _blocks(self) -> Array:
        # Of as many blocks as long sums have, numpy.array would take longer than all of planning.
        return np.fromiter(chain.from_iterable(self.cut.blocks), np.intp).reshape(-1, 4)

    @cached_property
    def _panel_tables(self) -> tuple[Array, Array, Array]:
        """Return what packing reads: kernel coordinates and ranks of the taps, channel blocks."""
        choice = self.choice
        # Widths in elements instead of vectors.
        unit = {ROWS: choice.lanes, DOT: DOT_COLUMNS}.get(choice.panel_kernel, 1)
        blocks = self._blocks * np.array([1, 1, unit, 1], np.intp)
        if choice.abreast > 1:
            blocks = blocks[:1]  # of each group by itself
        if choice.kernel == SCATTER:
            return np.zeros((1, 3), np.intp), np.zeros(1, np.intp), blocks
        if self.cut.packed_apart > 1 or choice.winograd:
            given = _convolution_taps.taps_of(_convolution_taps.axes(choice.given), False)
            return given.coordinates, given.ranks, blocks
        return choice.work.coordinates, choice.work.ranks, blocks

    @cached_property
    def _program(self) -> Any:
        """Hand the tables to the kernels."""
        choice, cut = self.choice, self.cut
        scatter = choice.kernel == SCATTER
        grouped = choice.kernel == GROUPED
        ring_d, ring_h = _convolution_grouped.rings(choice.work.axes) if grouped else (0, 0)
        blocking = {
            "kernel": choice.kernel,
            "dtype": self.problem.dtype,
            "windowed": int(choice.windowed),
            "direct": int(cut.direct),
            "streams": int(cut.streams),
            "stages": int(cut.stages),
            "touches": int(cut.touches or cut.touches_block or cut.touches_results),
            "asks": int(self._asks),
            "flatten": int(cut.flatten),
            "rounded": int(cut.rounded),
            "exact_halo": int(choice.exact_halo),
            "all_inside": int(_convolution_taps.stay_inside(choice.problem, choice.work.axes)),
            "interleave": int(cut.interleave),
            "all_classes": int(cut.all_classes),
            "parts": choice.parts,
            "broadcast": choice.broadcast,
            "entry_channels": choice.entry_channels,
            "paired": int(choice.paired),
            "abreast": choice.abreast,
            "checks": int(choice.checks),
            "fold_h": choice.fold[0],
            "fold_w": choice.fold[1],
            "height": choice.given.diff_src[1],
            "width": choice.given.diff_src[2],
            "stride_columns": choice.stride_columns,
            "row_classes": choice.row_classes,
            "column_pairs": int(choice.column_pairs),
            "strided": int(choice.strided),
            "row_pairs": int(choice.row_pairs),
            "packed_apart": cut.packed_apart,
            "streams_panels": int(self._streams_panels),
            "weights_ahead": WEIGHTS_AHEAD,
            "unfold": cut.unfold,
            "winograd": int(choice.winograd),
            "dilation_h": choice.given.dilations[1],
            "dilation_w": choice.given.dilations[2],
            "window_plane": cut.window_plane,
            "result_plane": cut.result_plane,
            "joins": self._joins,
            "any_width": int(self.problem.rank == 1 and not self._of_all_images),
            "in_order": int(choice.in_order),
            "batch": self.problem.batch,
            "groups": choice.problem.groups,
            "task_groups": cut.task_groups,
            "input_channels": choice.problem.input_channels,
            "output_channels": choice.problem.output_channels,
            "source_channels": choice.source_channels,
            "chunk": cut.chunk,
            "merge": cut.merge,
            "channel_splits": cut.channel_splits,
            "class_splits": cut.class_splits,
            "group_panel": cut.group_panel,
            "nv": cut.nv,
            "step": _convolution_columns.step(choice),
            "tile_positions": cut.tile_positions,
            "depth": choice.depth,
            "unit": choice.unit,
            "tail": choice.tail,
            "taps_inside": int(cut.taps_inside),
            "entry_pitch": cut.entry_pitch,
            "planes": cut.planes or 1,
            "shares_product": int(cut.shares_product),
            "strip": cut.strip,
            "box_pitch": cut.box_pitch if scatter else 0,
            "box_bytes": cut.box_bytes if scatter else 0,
            "result_pitch": cut.result_pitch,
            "pair_pitch": cut.pair_pitch,
            "along_rows": int(choice.along_rows),
            "window_pitch": cut.window_pitch,
            "ring_d": ring_d,
            "ring_h": ring_h,
            **cut.scratch,
            "scratch_bytes": cut.scratch_bytes,
        }
        # These kernels find a tap in the window by an index; merged taps follow the first.
        indexed = choice.phased or (choice.kernel == ROWS and choice.windowed)
        depth, height, _ = cut.axes
        plane = depth.window * height.window * cut.row_pitch if cut.planes else 0
        phased = (choice.phased,) * 2 + (choice.phased and not choice.in_order,)
        of_axes = zip(cut.axes, phased, (1, 1, cut.merge), (0, 0, plane), strict=True)
        axes = [
            table(axis, sorts, len(axis.taps) // merge if indexed else 0, apart, scatter)
            for axis, sorts, merge, apart in of_axes
        ]
        sources = axes
        if choice.winograd:
            sources = [table(axis, False, 0) for axis in cut.sources]
        elif choice.unfolds:
            # Of a run of taps, the first.
            sources = [
                table(axis, False, len(axis.taps) // run)
                for axis, run in zip(cut.sources, (1, 1, cut.unfold), strict=True)
            ]
        return KERNELS.Program(
            axes, sources, *self._work_tables, self._blocks, *self._panel_tables, blocking
        )

    @property
    def _asks(self) -> bool:
        """Whether DOT's tiles that are loaded from diff_dst ask for the next positions.

        So do those of ROWS, as measured on Intel: its prefetchers lose the short rows that a tile
        reads side by side. Or GROUPED there, for the next rows of diff_src: stores of whole lines
        wait for them, which lie a position's channels apart, where no prefetcher follows.
        """
        choice, problem = self.choice, self.problem
        if choice.kernel == GROUPED:
            lines = problem.plain and choice.lanes * choice.size == 64
            strided = lines and not (AMD or choice.boxed or choice.broadcast)
            return strided and problem.diff_src_bytes > LARGE_RESULT * self.num_threads
        in_place = not choice.windowed and problem.groups == 1
        in_place = in_place and problem.diff_dst_bytes > LARGE_SOURCE * self.num_threads
        if choice.kernel == ROWS:
            short = problem.pointwise and problem.output_channels <= SHORT_ROW
            return in_place and short and not AMD
        return in_place and choice.kernel == DOT

    # -- memory ----------------------------------------------------------------------------

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        choice = self.choice
        rows = choice.problem.groups
        if choice.panels_over_groups:
            rows = len(choice.taps) * choice.problem.output_channels
        return max(rows * self.cut.weights_bytes, 64)

    @property
    def _streams_panels(self) -> bool:
        """Whether packed weights are written past the caches, which are too small for them."""
        choice = self.choice
        whole_lines = choice.panel_kernel in (ROWS, DOT) and choice.kernel != PAIRS
        whole_lines = whole_lines and choice.parts < 2
        whole_lines = whole_lines and not (choice.broadcast or choice.winograd)
        return ZEN4 and whole_lines and self.packed_bytes >= STREAM_PANELS

    @cached_property
    def _scratch_bytes(self) -> int:
        return self.num_threads * self.cut.scratch_bytes

    @cached_property
    def _pack_staging(self) -> int:
        """Return the bytes that packing needs besides the panels."""
        taps = len(self._panel_tables[0])
        return int(
            self.num_threads * KERNELS.pack_staging(taps, self.choice.parts, self.choice.winograd)
        )

    # -- execution -------------------------------------------------------------------------

    def _packable(self, weights: Array) -> Array:
        """Return the weights with the taps and channels that are packed."""
        choice = self.choice
        if choice.layout.spreads:
            weights = _convolution_spread.packable(weights, choice.layout.spreads)
        elif choice.given.kernel != self.problem.kernel:
            # Rows were joined along a kernel: only axes of one tap move, which never copies.
            weights = weights.reshape(*weights.shape[:3], *choice.given.kernel)
        if choice.kernel == SCATTER:
            return _convolution_scatter.by_column(choice.given, weights)
        if choice.unfolds and self.cut.packed_apart == 1:
            return _convolution_unfold.by_product(choice.given, weights)
        if choice.diagonal > 1:
            return _convolution_diagonal.by_diagonal(weights, choice.diagonal)
        if choice.folds:
            return _convolution_fold.by_block(choice.given, choice.fold, weights)
        return weights

    def pack(self, weights: Array, packed: Array) -> bool:
        """Pack (groups, O, I, D, H, W) weights; tell whether they are as assumed."""
        staging = _take(self._pack_staging)
        weights = self._packable(weights)
        fine: bool = self._program.pack(weights, packed, staging, self.num_threads)
        _give(staging)
        return fine or self.choice.assumed == NOTHING

    def run(
        self,
        diff_dst: Array,
        weights: Array,
        diff_src: Array,
        channels_last: bool,
        packed: bool = True,
    ) -> bool:
        """Compute diff_src from diff_dst and packed weights, or those that each task packs itself.

        Return whether all values are as assumed. If not, another plan is to compute diff_src.
        """
        if self._clears:
            diff_src[...] = 0
        if self.choice.layout.spreads:
            diff_src = _convolution_spread.view(diff_src, channels_last)
        scratch = _take(self._scratch_bytes)
        program, accumulate = self._program, self.choice.layout.accumulate
        fine: bool = (program.run if packed else program.run_packing)(
            diff_dst, weights, diff_src, channels_last, scratch, self.num_threads, accumulate
        )
        _give(scratch)
        return fine

    def execute(
        self, diff_dst: Array, weights: Array, diff_src: Array, channels_last: bool
    ) -> bool:
        """Pack and run; tell whether all values are as assumed."""
        if self.packs_in_tasks:
            weights = self._packable(weights)
            return self.run(diff_dst, weights, diff_src, channels_last, packed=False)
        packed = _take(self.packed_bytes)
        fine = self.pack(weights, packed) and self.run(diff_dst, packed, diff_src, channels_last)
        _give(packed)
        return fine

    def describe(self) -> list[str]:
        """Return lines that tell kernel, tiles, tasks and scratch."""
        choice, cut = self.choice, self.cut
        vectors = cut.widest if choice.panel_kernel == ROWS else cut.nv
        tile = f"{choice.tiles.shapes[vectors]} x {vectors} vectors of {choice.lanes}"
        if choice.over_groups:
            lanes = "positions" if choice.along_rows else "channels"
            pairs = (
                ", rows in pairs" * choice.row_pairs + ", columns in pairs" * choice.column_pairs
            )
            tile = f"vectors of {choice.lanes} {lanes}{pairs}"
        elif choice.along_rows:
            tile = f"{choice.tiles.shapes[cut.nv]} x {cut.nv} vectors of {choice.lanes} positions"
        elif choice.dot and _convolution_columns.step(choice) == 1:
            tile = f"{cut.nv} vectors of {choice.lanes} pairs"
        elif choice.dot:
            tile = f"{cut.tile_positions} x {cut.nv * DOT_COLUMNS} x {choice.depth}"
            if choice.parts > 1:
                tile += f" of {choice.parts} parts"
        splits = f"{len(choice.residues)} residue classes, {cut.channel_splits} channel ranges"
        reads = "a window of taps side by side" if choice.unfolds else "a packed window"
        if choice.winograd:
            reads = "a window of 4 x 4 patches, transformed (Winograd)"
        writes = "diff_src in place" if cut.direct else "through scratch"
        if choice.folds:
            writes += ", {} x {} pixels taken for channels".format(*choice.fold)
        if choice.layout.spreads:
            writes += ", positions taken for channels"
        scratch = f"{cut.scratch_bytes} bytes of scratch a thread"
        return [
            f"kernel    {KERNEL_NAMES[choice.kernel]}, tier {_isa.TIER}, tiles of {tile}",
            f"reads     {reads if choice.windowed else 'diff_dst in place'}",
            f"writes    {writes}",
            f"tasks     {cut.tasks} of {'x'.join(map(str, cut.block))} positions, {splits}",
            f"threads   {self.num_threads}",
            f"memory    {self.packed_bytes} bytes of packed weights, {scratch}",
        ]


@lru_cache(maxsize=128)
def plan_for(problem: ConvProblem, layout: Layout, num_threads: int, assumed: int) -> Plan:
    """Return the plan of a problem; the cache is bounded and holds tables, never weights."""
    return Plan(problem, layout, num_threads, assumed)


# Finding a plan compares its layout by identity.
_shared_layout = lru_cache(maxsize=32)(Layout)


def layout_of(
    problem: ConvProblem,
    diff_dst: Array,
    diff_src: Array,
    weights: Array,
    channels_last: bool,
    accumulate: bool,
) -> Layout:
    """Return the layout of two tensors, and of (g, O, I, D, H, W) weights where that matters."""
    return _layout(
        _convolution_spread.order_of(problem, weights, diff_src, channels_last),
        problem.joinable,
        weights.strides[2] == weights.itemsize,
        diff_dst.shape,
        diff_dst.strides,
        diff_src.shape,
        diff_src.strides,
        diff_src.itemsize,
        channels_last,
        accumulate,
    )


# Calls in a loop have the same strides.
@lru_cache(maxsize=128)
def _layout(
    spreads: str,
    joins: int,
    by_input: bool,
    source_shape: tuple[int, ...],
    source: tuple[int, ...],
    target_shape: tuple[int, ...],
    target: tuple[int, ...],
    unit: int,
    channels_last: bool,
    accumulate: bool,
) -> Layout:
    channel, last = (-1, -2) if channels_last else (1, -1)
    if spreads:
        # There is one position.
        in_place = source[channel] == unit
        flags = in_place, True, False, False, False, False
        return _shared_layout(*flags, 0, accumulate, True, by_input, spreads)
    if joins:
        joins = min(joins, _joins(source_shape, source, last), _joins(target_shape, target, last))
    return _shared_layout(
        source[channel] == unit,
        target[channel] == unit,
        source[last] == unit,
        target[last] == unit,
        source[channel] == unit and source[last] == unit * source_shape[channel],
        target[channel] == unit and target[last] == unit * target_shape[channel],
        joins,
        accumulate,
        _images_join(source_shape, source, last) and _images_join(target_shape, target, last),
        by_input,
    )


def _joins(shape: tuple[int, ...], strides: tuple[int, ...], last: int) -> int:
    """Return how many axes before the last one go on where it ends, and on where that ends."""
    if strides[last - 1] != strides[last] * shape[last]:
        return 0
    first = last - 2 if len(shape) == 5 else 0
    return 1 if strides[first] != strides[last - 1] * shape[last - 1] else 2


def _images_join(shape: tuple[int, ...], strides: tuple[int, ...], last: int) -> bool:
    """Return whether positions lie as far apart from image to image as within one."""
    axes = 0, *range(last - len(shape) + 3, last + 1)
    return _arrays.follow([shape[a] for a in axes], [strides[a] for a in axes])


def prepare(
    problem: ConvProblem, layout: Layout, num_threads: int, weights: Array, assumed: int
) -> tuple[Plan, Array]:
    """Return the first plan that suits the (g, O, I, D, H, W) weights, and them packed for it."""
    while True:
        plan = plan_for(problem, layout, num_threads, assumed)
        packed = _arrays.aligned_bytes(plan.packed_bytes)
        if plan.pack(weights, packed):
            return plan, packed
        assumed = plan.choice.otherwise


def execute(
    problem: ConvProblem,
    diff_dst: Array,
    weights: Array,
    diff_src: Array,
    *,
    channels_last: bool,
    accumulate: bool,
    num_threads: int,
) -> None:
    """Plan, pack and run, on (g, O, I, D, H, W) weights."""
    arranged = layout_of(problem, diff_dst, diff_src, weights, channels_last, accumulate)
    plan = plan_for(problem, arranged, num_threads, MODERATE)
    while not plan.execute(diff_dst, weights, diff_src, channels_last):
        plan = plan_for(problem, arranged, num_threads, plan.choice.otherwise)
