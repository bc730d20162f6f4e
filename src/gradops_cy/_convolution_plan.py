"""From a convolution problem to kernel calls: its program, packed weights, scratch.

What a plan is made of is chosen in _convolution_choice (the kernel) and _convolution_blocks (the
tasks), and handed to the kernels by _convolution_program. However the work is cut, not a bit of the
result changes: every element is one sum in one order, which the kernel and the problem fix (taps,
then channels; SCATTER and Winograd add up the sums over channels).
"""

from __future__ import annotations

from collections import deque
from functools import cached_property, lru_cache
from typing import Any

from gradops_cy import (
    _arrays,
    _convolution_blocks,
    _convolution_columns,
    _convolution_diagonal,
    _convolution_fold,
    _convolution_scatter,
    _convolution_spread,
    _convolution_unfold,
    _isa,
)
from gradops_cy._arrays import Array
from gradops_cy._convolution_choice import choose, dot_parts
from gradops_cy._convolution_kernels import (
    DOT_COLUMNS,
    KERNEL_NAMES,
    KERNELS,
    MODERATE,
    NOTHING,
    ROWS,
    SCATTER,
    Layout,
)
from gradops_cy._convolution_layout import layout_of
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_program import panel_tables, program_of

# Below this a second thread costs more than it brings; an element moved takes as long as some flop.
THREAD_FLOP = 1 << 20
ELEMENT_FLOP = 8
# Memory up to this size is kept between calls: packed, 3x3 weights of 512 channels have 9 MiB.
KEPT_BYTES = 1 << 24
# From here on NumPy asks for huge pages: what of the last one is not used is memory all the same.
HUGE_BYTES = 1 << 22


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

    @cached_property
    def _panel_tables(self) -> tuple[Array, Array, Array]:
        return panel_tables(self.cut)

    @cached_property
    def _program(self) -> Any:
        return program_of(
            self.problem,
            self.cut,
            self._panel_tables,
            packed_bytes=self.packed_bytes,
            num_threads=self.num_threads,
            joins=self._joins,
            of_all_images=self._of_all_images,
        )

    # -- memory ----------------------------------------------------------------------------

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        choice = self.choice
        rows = choice.problem.groups
        if choice.panels_over_groups:
            rows = len(choice.taps) * choice.problem.output_channels
        return max(rows * self.cut.weights_bytes, 64)

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
            f"reads     {reads if choice.windowed and not choice.rolls else 'diff_dst in place'}",
            f"writes    {writes}",
            f"tasks     {cut.tasks} of {'x'.join(map(str, cut.block))} positions, {splits}",
            f"threads   {self.num_threads}",
            f"memory    {self.packed_bytes} bytes of packed weights, {scratch}",
        ]


@lru_cache(maxsize=128)
def plan_for(problem: ConvProblem, layout: Layout, num_threads: int, assumed: int) -> Plan:
    """Return the plan of a problem; the cache is bounded and holds tables, never weights."""
    return Plan(problem, layout, num_threads, assumed)


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
