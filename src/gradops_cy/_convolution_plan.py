"""From a convolution problem to kernel calls: which tile, which blocks, how much scratch.

The plan is the only place that chooses. However it cuts the work, not a bit of the result changes:
every element is one sum in one order, which the kernel and the problem fix (taps, then channels;
SCATTER adds up the sums over channels).
"""

from __future__ import annotations

import ctypes
from collections import deque
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import gcd, prod
from operator import mul
from typing import Any

import numpy as np

from gradops_cy import _arrays, _convolution_scatter, _isa
from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import Axis, axis_of
from gradops_cy._convolution_problem import ConvProblem

ROWS, COLUMNS, GROUPED, AMX, DEPTHWISE, SCATTER = range(6)
KERNEL_NAMES = ("rows", "columns", "grouped", "amx", "depthwise", "scatter")
AMX_ROWS, AMX_COLUMNS, AMX_K = 16, 16, 32
AMX_PANELS = 1 << 18  # bytes of weights that a tile of positions passes by

# One task's window and results should stay in a core's second-level cache.
WORKSPACE = 1 << 20
# The weights of a channel block that should stay in a core's second-level cache.
PANEL = 1 << 18
# Enough positions to use a weight panel well while it is in cache.
BLOCK_POSITIONS = 512
# Channels that are transposed together: their rows should stay in the first-level cache.
BOX_VECTORS = 2
# The spread rows of a vector of lanes should stay there too.
RING_BYTES = 1 << 15
# A row longer than this is cut anyway.
BLOCK_WIDTH = 2048
# More residue classes than this are not all walked through.
MOST_CLASSES = 64
# Below this a task is not worth its own window.
TASK_FLOP = 1 << 21
# Below this a second thread costs more than it brings.
THREAD_FLOP = 1 << 20
# Memory up to this size is kept by its plan between calls.
KEPT_BYTES = 1 << 15

_KERNELS: Any = _isa.kernels("convolution")


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _cut(extent: int, block: int) -> int:
    """Return the block size that cuts `extent` evenly into as many pieces as `block` would."""
    return -(-extent // -(-extent // block))


def aligned_bytes(count: int) -> Array:
    """Return `count` bytes of uninitialised memory on a cache-line boundary."""
    storage = np.empty(count + 64, np.uint8)
    # Several times faster than ndarray.ctypes, and on the way of every call.
    address = ctypes.addressof(ctypes.c_char.from_buffer(storage.data))
    offset = -address % 64
    return storage[offset : offset + count]


class _Spare:
    """Aligned memory of one size, of which small pieces are kept for the next call.

    Allocating and aligning takes longer than a small problem. Taking is atomic, so that no two
    calls ever hold the same piece.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pieces: deque[Array] = deque(maxlen=2 if count <= KEPT_BYTES else 0)

    def take(self) -> Array:
        try:
            return self._pieces.pop()
        except IndexError:
            return aligned_bytes(self._count)

    def give(self, piece: Array) -> None:
        self._pieces.append(piece)


@dataclass(frozen=True, slots=True)
class Layout:
    """What the arrays' strides allow: channels next to each other or not."""

    diff_dst_channels_last: bool
    diff_src_channels_last: bool
    accumulate: bool


class Plan:
    """How one problem is computed in one memory layout.

    Parameters
    ----------
    problem : ConvProblem
    layout : Layout
    num_threads : int
        Only how the work is cut depends on it.
    exact_halo : bool
        Leave out products with padding instead of multiplying by zero: for weights that hold
        NaN or Inf.
    """

    def __init__(
        self, problem: ConvProblem, layout: Layout, num_threads: int, exact_halo: bool = False
    ) -> None:
        self.problem = problem
        self.layout = layout
        self.exact_halo = exact_halo
        self.size = 8 if problem.dtype == 3 else 4
        shapes, self.lanes, self.rows_nv, self.has_amx = _KERNELS.tile_shapes(problem.dtype == 3)
        self.tile_shapes: dict[int, int] = shapes
        self.counts = [-(-x // s) for x, s in zip(problem.diff_src, self._out_steps, strict=True)]
        self.kernel = self._choose_kernel()
        self._choose_directness()
        self._choose_blocks(num_threads)
        self.num_threads = max(1, min(num_threads, self.tasks, problem.flop // THREAD_FLOP))

    @property
    def _out_steps(self) -> tuple[int, int, int]:
        return (1, 1, 1) if self.problem.transposed else self.problem.strides

    # -- which tile ------------------------------------------------------------------------

    def _choose_kernel(self) -> int:
        """Weigh the kernels by the share of lanes at work and by the cost of changing layout."""
        problem, layout = self.problem, self.layout
        last = layout.diff_src_channels_last
        single = problem.input_channels == problem.output_channels == 1
        if single and last and layout.diff_dst_channels_last and problem.groups > 1:
            return DEPTHWISE
        if single and 2 * problem.groups >= self.lanes and not self.zero_first:
            return DEPTHWISE
        inputs, lanes = problem.input_channels, self.lanes
        # Cycles of arithmetic on an element of either tensor, against about 1.5 to move it across.
        products = prod(problem.kernel) / (2 * lanes)
        sums = products * problem.output_channels / prod(self._out_steps)
        move = products * inputs / (products * inputs + 1.5) * sums / (sums + 1.5)
        _, _, width = self.counts
        flat = self.counts[1] * (width + problem.kernel[2] // self._out_steps[2])
        across = max(
            width / _up(width, lanes),
            self.counts[1] * width / _up(flat, lanes),
        )
        # A tile of few rows loads more than it multiplies.
        rows = min(inputs, max(self.tile_shapes.values()))
        # Positions that read every other entry go through a window sorted by residues.
        phases = 0.6 if problem.transposed and problem.strides[2] > 1 else 1.0
        scores = {
            ROWS: inputs / _up(inputs, lanes) * (1 if last else move),
            # Its window and its results pass through the second-level cache once more.
            COLUMNS: 0.7 * phases * across * rows / (rows + 1) * (move if last else 1),
        }
        direct = last and layout.diff_dst_channels_last
        if problem.groups > 1 and inputs < lanes and (direct or not self.zero_first):
            scores[GROUPED] = self._grouped_score(direct, move)
        amx = problem.dtype == 2 and self.has_amx
        if prod(problem.kernel) > 1 and inputs < lanes and not problem.transposed:
            scores[SCATTER] = _convolution_scatter.score(problem, last, lanes, amx)
        if amx:
            # About eight times the float32 rate, on whole tiles.
            outputs = problem.output_channels
            whole = inputs / _up(inputs, AMX_COLUMNS) * outputs / _up(outputs, AMX_K)
            scores[AMX] = 8 * whole * (1 if last else move)
            if GROUPED in scores:  # much of each group's time is not spent in tiles
                scores[AMX] *= 0.7
        best = max(scores, key=lambda kernel: scores[kernel])
        # The kernels that can leave out products with padding.
        return ROWS if self.exact_halo and best not in (GROUPED, SCATTER) else best

    def _grouped_score(self, direct: bool, move: float) -> float:
        """Weigh lanes over many groups: what it takes to spread a vector is shared by its taps."""
        problem, lanes = self.problem, self.lanes
        inputs, total = problem.input_channels, problem.diff_src_channels
        taps = prod(problem.kernel) / 2
        # Vectors of diff_dst that hold the channels of one vector of lanes.
        vectors = max(1, problem.output_channels // inputs)
        spread = vectors if vectors == 1 else 3 * vectors
        score = 0.92 * taps / (taps + spread) * total / _up(total, lanes)
        if direct:
            return score
        # Through boxes it is better, as measured, where COLUMNS has little to do for a group.
        little = inputs <= 2 or prod(self.counts[1:]) <= 256 or prod(self._out_steps) > 1
        return 1.0 if little and inputs <= 4 and lanes % inputs == 0 else score * move

    def _choose_directness(self) -> None:
        """Decide whether diff_dst is read, and diff_src written, without scratch."""
        problem, layout = self.problem, self.layout
        self.amx = self.kernel == AMX or (
            self.kernel == SCATTER and problem.dtype == 2 and self.has_amx
        )
        plain = problem.dtype in (0, 3)
        lanes_fit = problem.input_channels % self.lanes == 0
        # Taps of few channels are summed in one run, which a window makes of them.
        short = problem.output_channels < self.lanes and problem.kernel[2] > 1
        reads = plain and layout.diff_dst_channels_last and not short
        writes = plain and layout.diff_src_channels_last and not layout.accumulate
        self.windowed = not (self.kernel in (ROWS, SCATTER) and reads)
        self.direct = self.kernel == ROWS and writes and lanes_fit
        if self.over_groups:
            self.direct = layout.diff_dst_channels_last and layout.diff_src_channels_last
            self.windowed = not self.direct
        if self.kernel == AMX:
            # A tile's whole sum is rounded at once (without taps there are no tiles).
            self.direct = layout.diff_src_channels_last and self.taps > 0
            self.windowed = not self._reads_tiles()

    def _reads_tiles(self) -> bool:
        """Whether AMX tiles can be loaded from diff_dst: whole ones, and no tap outside."""
        problem = self.problem
        whole = problem.output_channels % AMX_K == 0 and self._panel_chunk() % AMX_K == 0
        if not (whole and self.layout.diff_dst_channels_last and self.taps > 0):
            return False
        if self._panel_chunk() < problem.output_channels or self.counts[2] < AMX_ROWS:
            return False
        # diff_dst comes from memory each time, a window from the second-level cache.
        panels = self.taps * problem.output_channels * _up(problem.input_channels, AMX_COLUMNS) * 2
        if panels > 2 * AMX_PANELS * len(self.residues):
            return False
        axes = [self.axis(number, 1) for number in range(3)]
        # Blocks of a long row are at least a tile long.
        return self.counts[2] <= BLOCK_WIDTH and all(
            axis.offsets.min() >= 0
            and axis.offsets.max() + (count - 1) * axis.in_step < axis.source
            for axis, count in zip(axes, self.counts, strict=True)
        )

    # -- which blocks ----------------------------------------------------------------------

    def _choose_blocks(self, num_threads: int) -> None:
        problem = self.problem
        self._cut_chunk(self._panel_chunk())
        self.task_groups = problem.groups if self.over_groups else 1
        if self.over_groups and self.windowed:
            vectors = BOX_VECTORS if self.kernel == DEPTHWISE else 1
            lanes = max(1, vectors * self.lanes // problem.input_channels)
            self.task_groups = min(problem.groups, lanes)
        self.channel_splits = self.class_splits = 1
        self.flatten = False
        self.nv = self.rows_nv
        self.block = [1, 1, min(self.counts[2], BLOCK_WIDTH)]
        if self.kernel == SCATTER:
            self._cut_channels()
            self._choose_scatter_blocks(num_threads)
            return
        if self.kernel in (COLUMNS, AMX):
            self._choose_units()
        if self.kernel == COLUMNS:
            self._choose_columns_tile()
        self._cut_channels()
        # Rows are cut where their spread form would not stay in the first-level cache.
        while self.kernel == GROUPED and self.block[2] > 1 and self._ring_bytes() > RING_BYTES:
            self.block[2] = _cut(self.counts[2], self.block[2] - 1)
        self._shrink_to_workspace()
        self._grow_block()
        self._split_for_threads(num_threads)

    def _cut_chunk(self, chunk: int) -> None:
        """Sum `chunk` channels of diff_dst at a time."""
        self.chunk = chunk
        if self.kernel == AMX and chunk < self.problem.output_channels:
            self.direct = False

    def _panel_chunk(self) -> int:
        """Return how many channels of diff_dst are summed at a time.

        A panel of so many stays in the second-level cache while all positions of a block use it.
        Of the problem and the kernel alone: where a sum is cut decides its last bits.
        """
        outputs, inputs = self.problem.output_channels, self.problem.input_channels
        widths = {ROWS: self.rows_nv * self.lanes * self.size, AMX: 2 * AMX_COLUMNS * 2}
        if self.kernel not in widths:
            return outputs
        unit = self.lanes * self.size if self.kernel == ROWS else AMX_COLUMNS * 2
        channel = self.taps * min(widths[self.kernel], _up(inputs * self.size, unit))
        if outputs * channel <= 2 * PANEL:
            return outputs
        return min(outputs, max(64, PANEL // channel // AMX_K * AMX_K))

    @property
    def packs_in_tasks(self) -> bool:
        """Whether every panel is used by one task alone, which then had best pack it."""
        blocks = prod(-(-n // b) for n, b in zip(self.counts, self.block, strict=True))
        once = self.problem.batch * blocks * self.class_splits == 1
        plain = not self.exact_halo and not self.layout.accumulate
        return once and plain and self.kernel in (ROWS, AMX)

    def _choose_scatter_blocks(self, num_threads: int) -> None:
        """Take as large a block as fits: its neighbours compute what reaches into both."""
        problem = self.problem
        self.block = list(self.counts)
        wanted = 2 * num_threads if num_threads > 1 else 1

        def halve() -> bool:
            axis = max((0, 1), key=lambda a: self.block[a] * problem.strides[a] / problem.kernel[a])
            axis = axis if self.block[axis] > 1 else 2
            if self.block[axis] == 1:
                return False
            self.block[axis] = _cut(self.counts[axis], -(-self.block[axis] // 2))
            return True

        # The product has its own size; it is the sums that a smaller block makes smaller.
        while self._box_bytes > WORKSPACE // 2 and halve():
            pass
        while self.tasks < wanted and problem.flop // self.tasks > TASK_FLOP:
            if not self._halve_groups() and not halve():
                break

    @property
    def over_groups(self) -> bool:
        """Whether the lanes of a vector are channels of several groups."""
        return self.kernel in (GROUPED, DEPTHWISE)

    @property
    def _panel_kernel(self) -> int:
        """The kernel whose panels this one reads."""
        if self.kernel == SCATTER:
            return AMX if self.amx else ROWS
        return self.kernel

    @property
    def phased(self) -> bool:
        """Whether the kernel needs consecutive positions to read consecutive entries."""
        return self.kernel in (COLUMNS, AMX, GROUPED)

    @property
    def _unit_step(self) -> int:
        return AMX_ROWS if self.kernel == AMX else self.lanes

    def _unit(self, height: int, width: int) -> int:
        """Return the positions that one unit of a block computes, whole vectors or tiles."""
        joined = (height - 1) * self.axis(2, width).window if self.flatten else 0
        return _up(joined + width, self._unit_step * (self.nv if self.kernel == COLUMNS else 1))

    def _choose_units(self) -> None:
        """Decide whether rows of a plane run into each other."""
        if not self.windowed:
            return
        width, height, step = self.block[2], min(self.counts[1], 16), self._unit_step
        single = _up(width, step) * height
        joined = _up((height - 1) * self.axis(2, width).window + width, step)
        self.flatten = joined < single and self.counts[1] > 1

    def _choose_columns_tile(self) -> None:
        """Choose how many vectors of positions a tile takes."""
        self.nv = 1
        vectors = self._unit(min(self.counts[1], 16), self.block[2]) // self.lanes

        ends = len(self.residues) / max(1, self.taps * self.chunk)

        def cost(nv: int) -> float:
            rows = _cut(self.problem.input_channels, self.tile_shapes[nv])
            tiles = -(-self.problem.input_channels // rows) * -(-vectors // nv)
            # Products; loads, twice for a vector off its boundary, which hide behind products
            # only in part; and what it takes to begin and end the sum.
            cycles = max(rows * nv / 2 + 0.6 * nv, 4.0)
            return float(tiles * (cycles + ends * (10 + 2 * nv * rows)))

        self.nv = min(self.tile_shapes, key=lambda nv: (cost(nv), -nv))

    def _cut_channels(self) -> None:
        """Tabulate the channel blocks: first channel, channels, tile width, panel offset."""
        inputs, taps = self.problem.input_channels, self.taps
        if self.kernel == SCATTER:
            inputs, taps = _convolution_scatter.columns(self.problem), 1
        if self.over_groups:
            self.blocks = np.array([[0, inputs, 0, 0]], np.intp)
            # The last row of lanes may be read a vector too far.
            self.group_panel = _up(self.problem.diff_src_channels, self.lanes) + self.lanes
            return
        unit, limit = {
            ROWS: (self.lanes, self.rows_nv),
            COLUMNS: (1, self.tile_shapes[self.nv]),
            AMX: (AMX_COLUMNS, 2),
        }[self._panel_kernel]
        units = -(-inputs // unit)
        count = -(-units // limit)
        edges = [units * i // count for i in range(count + 1)]
        outputs = self.problem.output_channels
        reduction = taps * (_up(outputs, AMX_K) if self.amx else outputs)
        self.blocks = np.array(
            [
                [a * unit, min(b * unit, inputs) - a * unit, b - a, a * unit * reduction]
                for a, b in pairwise(edges)
            ],
            np.intp,
        )
        self.group_panel = units * unit * reduction

    def _shrink_to_workspace(self) -> None:
        """Cut channels, rows and at last residue classes until one task fits its workspace."""
        while self._scratch_bytes() > WORKSPACE:
            if self._halve_groups():
                continue
            if self.windowed and self.chunk > 64 and not self.over_groups:
                self._cut_chunk(_up(self.chunk // 2, AMX_K))
            elif self.block[2] > 4 * self.lanes and (self.windowed or self.kernel != AMX):
                self.block[2] = _cut(self.counts[2], _up(self.block[2] // 2, self.lanes))
            elif self.channel_splits < len(self.blocks):
                self.channel_splits = min(2 * self.channel_splits, len(self.blocks))
            elif self.block[2] > 1 and (self.windowed or self.kernel != AMX):
                self.block[2] = _cut(self.counts[2], -(-self.block[2] // 2))
            elif not self.over_groups and self.class_splits < len(self.residues):
                self.class_splits = min(2 * self.class_splits, len(self.residues))
            else:
                break

    def _halve_groups(self) -> bool:
        """Give a task half of its groups; return whether that was possible."""
        unit = 1
        if self.over_groups:
            # Whole vectors: a range of fewer lanes would read and write its neighbour's.
            unit = self.lanes // gcd(self.lanes, self.problem.input_channels)
        if self.task_groups <= unit:
            return False
        self.task_groups = _up(-(-self.task_groups // 2), unit)
        return True

    def _grow_block(self) -> None:
        """Take more rows into a task while they fit, the axis first whose halo weighs most."""
        # A window of three axes is mostly halo unless the block is large.
        limit = BLOCK_POSITIONS * (4 if self.windowed and self.problem.kernel[0] > 1 else 1)
        growing = [axis for axis in (1, 0) if self.block[axis] < self.counts[axis]]
        while growing:
            axis = max(growing, key=lambda a: self.problem.kernel[a] / self.block[a])
            before = self.block[axis]
            self.block[axis] = min(2 * before, self.counts[axis])
            large = prod(self.block) > limit and before * 2 > 4
            if large or self._scratch_bytes() > WORKSPACE:
                self.block[axis] = before
                growing.remove(axis)
            elif self.block[axis] == self.counts[axis]:
                growing.remove(axis)
        for axis in (1, 0):
            self.block[axis] = _cut(self.counts[axis], self.block[axis])

    def _split_for_threads(self, num_threads: int) -> None:
        """Group small tasks together, or cut few large ones, so that every thread has some."""
        problem = self.problem
        flop = problem.flop // self.tasks
        if not self.over_groups and problem.groups > 1 and flop < TASK_FLOP:
            fewest = max(1, problem.groups * self.tasks // problem.groups // (4 * num_threads))
            self.task_groups = max(1, min(problem.groups, TASK_FLOP // max(flop, 1), fewest))
        wanted = 3 * num_threads if num_threads > 1 else 1
        while self.tasks < wanted and problem.flop // self.tasks > TASK_FLOP:
            axis = max((0, 1), key=lambda a: self.block[a])
            # Cutting positions reads the weights once more, cutting channels the positions.
            rows_first = prod(self.block) > 4 * BLOCK_POSITIONS // len(self.residues)
            if self.channel_splits < len(self.blocks) and not rows_first:
                self.channel_splits = min(2 * self.channel_splits, len(self.blocks))
            elif self.block[axis] > 1:
                self.block[axis] = _cut(self.counts[axis], -(-self.block[axis] // 2))
            elif self.channel_splits < len(self.blocks):
                self.channel_splits = min(2 * self.channel_splits, len(self.blocks))
            elif not self._halve_groups():
                break

    @property
    def tasks(self) -> int:
        """Independent pieces of work."""
        ranges = -(-self.problem.groups // self.task_groups)
        blocks = prod(-(-n // b) for n, b in zip(self.counts, self.block, strict=True))
        splits = self.channel_splits * self.class_splits
        return self.problem.batch * ranges * blocks * splits

    # -- scratch ---------------------------------------------------------------------------

    def axis(self, number: int, block: int) -> Axis:
        """Return the table of one axis for blocks of `block` positions."""
        problem = self.problem
        return axis_of(
            problem.transposed,
            problem.diff_src[number],
            problem.diff_dst[number],
            problem.kernel[number],
            problem.strides[number],
            problem.dilations[number],
            problem.pads_begin[number],
            block,
            self.phased,
        )

    @property
    def axes(self) -> list[Axis]:
        """The tables of the three axes."""
        return [self.axis(number, block) for number, block in enumerate(self.block)]

    @property
    def merge(self) -> int:
        """How many taps along the last axis are one run of memory in the window."""
        mergeable = self.kernel == ROWS and self.windowed and not self.exact_halo
        if not mergeable or self.chunk < self.problem.output_channels:
            return 1
        axis = self.axes[2]
        return len(axis.taps) if axis.out_step == 1 and axis.adjacent else 1

    @cached_property
    def _tap_tables(self) -> tuple[Array, Array]:
        """Return the residue classes with their ranges of taps, and every tap by axis."""
        # On each axis: residue, first tap, number of taps. Classes come in C order.
        axes = [self._axis_classes(number) for number in range(3)]
        grid = np.indices([len(axis) for axis in axes]).reshape(3, -1)
        classes = np.stack([axis[index] for axis, index in zip(axes, grid, strict=True)])
        sizes = classes[:, :, 2].prod(axis=0)
        ends = np.cumsum(sizes)
        residues = np.column_stack([*classes[:, :, 0], ends - sizes, ends])
        # The l-th tap of a class, taken apart over its axes, the last one fastest.
        owner = np.repeat(np.arange(len(sizes)), sizes)
        local = np.arange(len(owner)) - (ends - sizes)[owner]
        taps = np.empty((len(owner), 3), np.intp)
        for axis in (2, 1, 0):
            count = classes[axis, owner, 2]
            taps[:, axis] = classes[axis, owner, 1] + local % count
            local //= count
        return np.ascontiguousarray(residues, np.intp), taps

    @cached_property
    def _work_tables(self) -> tuple[Array, Array]:
        """Return the residue classes and taps as the kernel reads them."""
        if self.kernel == SCATTER:
            return _convolution_scatter.tables(self.problem, self.lanes)
        return self._tap_tables

    def _axis_classes(self, number: int) -> Array:
        """Return residue, first tap and number of taps of an axis's classes."""
        axis = self.axis(number, 1)
        residues = np.arange(axis.classes)
        if self.zero_first:  # at least one, so that there is something to plan for
            residues = np.unique(axis.residues) if len(axis.residues) else residues[:1]
        begin = np.searchsorted(axis.residues, residues)
        end = np.searchsorted(axis.residues, residues, side="right")
        return np.stack([residues, begin, end - begin], axis=1)

    @cached_property
    def zero_first(self) -> bool:
        """Whether diff_src is cleared first, and classes without taps are left out.

        With a few classes it is better to write every element once, zero or not; strides far
        above the kernel leave more empty classes than there is other work.
        """
        return prod(map(min, self._out_steps, self.problem.diff_src)) > MOST_CLASSES

    @property
    def residues(self) -> Array:
        """The residue classes: residues on the three axes, first tap and last + 1."""
        return self._tap_tables[0]

    @property
    def taps(self) -> int:
        """Taps that touch the result."""
        return len(self._tap_tables[1])

    @property
    def interleave(self) -> bool:
        """Whether residue classes that share their rows are stored together."""
        scattered = self._out_steps[2] > 1 and not self.layout.diff_src_channels_last
        return scattered and self.class_splits == 1 and not self.zero_first

    def _result_pitch(self) -> int:
        if self.kernel == AMX and self.direct:
            return 2 * AMX_COLUMNS
        if self.over_groups:
            return _up(self.task_groups * self.problem.input_channels, self.lanes)
        if self.kernel != COLUMNS:
            edges = [
                len(self.blocks) * i // self.channel_splits for i in range(self.channel_splits + 1)
            ]
            widths = self.blocks[:, 2] * (AMX_COLUMNS if self.amx else self.lanes)
            return max(int(widths[a:b].sum()) for a, b in pairwise(edges))
        return self._result_positions()

    def _result_positions(self) -> int:
        """Return the positions of a task's results in scratch, over its residue classes."""
        depth, height, width = self.block
        positions = prod(self.block)
        if self.kernel in (COLUMNS, AMX):
            positions = depth * self._unit(height, width) * (1 if self.flatten else height)
        return positions * -(-len(self.residues) // self.class_splits)

    def _sizes(self) -> dict[str, int]:
        """Return the bytes of the parts of a thread's scratch."""
        axes = self.axes
        outputs = self.problem.output_channels
        window = prod(axis.window for axis in axes)
        pitch = self._result_pitch()
        most_taps = int((self.residues[:, 4] - self.residues[:, 3]).max())
        window_size, channels = self.size, self.chunk
        elements = 0
        zeros, results = 0, 0 if self.direct else self._result_positions() * pitch
        if self.kernel == COLUMNS:
            # Tiles run on past the window's last entry.
            elements = window * channels + self.nv * self.lanes + axes[2].window
            rows = -(-len(self.blocks) // self.channel_splits) * int(self.blocks[:, 1].max())
            results, pointers = rows * pitch, most_taps * channels
        elif self.kernel == AMX:
            window_size = 2
            if self.windowed:
                elements = (window + 2 * AMX_ROWS + axes[2].window) * _up(channels, AMX_K)
            pointers = most_taps
            if self.direct:
                results = 2 * 2 * AMX_ROWS * pitch
        elif self.kernel == SCATTER:
            positions = self._strip + 2 * AMX_ROWS
            window_size, channels = (2 if self.amx else self.size), outputs
            if self.windowed:
                elements = positions * (_up(outputs, AMX_K) if self.amx else outputs)
            results = self._box_bytes // self.size + (positions + self.lanes) * pitch
            pointers = 2 * max(self._strip, prod(self.problem.kernel[:2]))
        elif self.over_groups:
            pointers = 4 * most_taps
            channels = self.task_groups * outputs
            if self.windowed:
                elements = channels * prod(map(self._source_extent, axes))
                results = pitch * prod(map(mul, self.block, self._out_steps))
            if self.kernel == GROUPED:
                elements += self._ring_bytes() // self.size
                tables = prod(self._ring_slots) + 2 * len(axes[2].taps)
                # Of 8 bytes: three for each run of entries, eleven for each residue class.
                tables += 3 * axes[2].window + 11 * len(self.residues)
                pointers = tables + 2 * prod(len(axis.taps) for axis in axes[:2])
                pointers += outputs * (1 + self.lanes * self.size // 8)
        else:
            row = channels * self.merge
            elements = window * channels if self.windowed else 0
            zeros, pointers = row, prod(self.block) * (1 + most_taps // self.merge)
        # Strips of 16 rows that lie across: of positions, or of as many channels as there are.
        sums = rows if self.kernel == COLUMNS else pitch
        streams = self._out_steps[2] if self.interleave else 1
        staging = max(
            16 * max(channels, sums),
            min(16, channels) * max(axes[2].window, self._source_extent(axes[2])),
            min(16, sums) * self.block[2] * self._out_steps[2],
            17 * streams * (self.block[2] + 1) + self.lanes if streams > 1 else 0,
        )
        sizes = {
            "zero_bytes": zeros * self.size,
            "window_bytes": elements * window_size,
            "result_bytes": results * self.size,
            "pointer_bytes": pointers * 8,
            "staging_bytes": staging * self.size,
            "panel_bytes": 0,
            "packing_bytes": 0,
        }
        if self.packs_in_tasks:
            unit = {ROWS: self.lanes * self.size, AMX: AMX_COLUMNS * 2}[self.kernel]
            width = int(self.blocks[:, 2].max()) * unit
            rows = _up(self.chunk, AMX_K) if self.amx else self.chunk
            sizes["panel_bytes"] = self.taps * rows * width
            sizes["packing_bytes"] = _KERNELS.pack_staging(self.taps)
        return {name: _up(value, 64) for name, value in sizes.items()}

    @property
    def _strip(self) -> int:
        """Positions that SCATTER multiplies at a time."""
        return _convolution_scatter.strip(self._result_pitch(), self.amx)

    @property
    def _box_pitch(self) -> int:
        """Elements of a row of SCATTER's sums."""
        width = self.block[2] * self._out_steps[2] + 2 * _convolution_scatter.margin(self.problem)
        return width * self.problem.input_channels

    @property
    def _box_bytes(self) -> int:
        """Bytes of SCATTER's sums, with what the last run touches beyond them."""
        rows = prod(map(mul, self.block[:2], self._out_steps))
        return _up((rows * self._box_pitch + self.lanes) * self.size, 64)

    @property
    def _rings(self) -> list[int]:
        """Return how many spread rows follow each other in place, over depth and height.

        0 where the rows that a position reads lie too far apart: each tap then has its own.
        """
        axes = self.axes[:2]
        spans = [int(np.ptp(axis.offsets)) + 1 if len(axis.offsets) else 1 for axis in axes]
        return [n if n <= 2 * len(axis.taps) else 0 for n, axis in zip(spans, axes, strict=True)]

    @property
    def _ring_slots(self) -> list[int]:
        return [n or len(axis.taps) for n, axis in zip(self._rings, self.axes, strict=False)]

    def _ring_bytes(self) -> int:
        """Return the size of the rows that are spread for one vector of lanes."""
        row = self.problem.output_channels * self.axis(2, self.block[2]).window
        return int(prod(self._ring_slots) * row * self.lanes * self.size)

    def _source_extent(self, axis: Axis) -> int:
        """Return the source coordinates that a block spans at most."""
        if not len(axis.offsets):
            return 0
        span = int(np.ptp(axis.offsets)) + (axis.block - 1) * axis.in_step + 1
        return min(axis.source, span)

    def _scratch_bytes(self) -> int:
        return sum(self._sizes().values())

    # -- execution -------------------------------------------------------------------------

    @cached_property
    def _program(self) -> Any:
        """Hand the tables to the kernels."""
        residues, taps = self._work_tables
        merge = self.merge
        if merge > 1:
            residues, taps = residues.copy(), taps[::merge].copy()
            residues[:, 3:] //= merge
        sizes = self._sizes()
        blocking = {
            "kernel": self.kernel,
            "dtype": self.problem.dtype,
            "windowed": int(self.windowed),
            "direct": int(self.direct),
            "flatten": int(self.flatten),
            "exact_halo": int(self.exact_halo),
            "interleave": int(self.interleave),
            "amx": int(self.amx),
            "groups": self.problem.groups,
            "task_groups": self.task_groups,
            "input_channels": self.problem.input_channels,
            "output_channels": self.problem.output_channels,
            "chunk": self.chunk,
            "merge": merge,
            "channel_splits": self.channel_splits,
            "class_splits": self.class_splits,
            "group_panel": self.group_panel,
            "nv": self.nv,
            "strip": self._strip if self.kernel == SCATTER else 0,
            "box_pitch": self._box_pitch if self.kernel == SCATTER else 0,
            "box_bytes": self._box_bytes if self.kernel == SCATTER else 0,
            "result_pitch": self._result_pitch(),
            "ring_d": self._rings[0],
            "ring_h": self._rings[1],
            **sizes,
            "scratch_bytes": sum(sizes.values()),
        }
        axes = [axis.table(self.windowed or self.phased) for axis in self.axes]
        return _KERNELS.Program(
            *axes, residues, taps, self.blocks, *self._panel_tables, blocking
        )

    @cached_property
    def packed_bytes(self) -> int:
        """Bytes of the packed weights."""
        rows, size = self.problem.groups, self.size
        if self.over_groups:
            rows = self.taps * self.problem.output_channels
        elif self.amx:
            size = 2
        return max(int(rows * self.group_panel * size), 64)

    @cached_property
    def _panel_tables(self) -> tuple[Array, Array, Array]:
        """Return what packing reads: kernel coordinates and ranks of the taps, channel blocks."""
        # Widths in elements instead of vectors.
        unit = {ROWS: self.lanes, AMX: AMX_COLUMNS}.get(self._panel_kernel, 1)
        blocks = self.blocks * np.array([1, 1, unit, 1], np.intp)
        if self.kernel == SCATTER:
            return np.zeros((1, 3), np.intp), np.zeros(1, np.intp), blocks
        taps = self._tap_tables[1]
        coordinates = np.stack([self.axis(a, 1).taps[taps[:, a]] for a in range(3)], axis=1)
        # Where each tap of the kernel, in C order, stands among the panels.
        places = np.ravel_multi_index(tuple(coordinates.T), self.problem.kernel)
        every = len(places) == prod(self.problem.kernel)
        ranks = np.argsort(places) if every else np.empty(0, np.intp)
        return np.ascontiguousarray(coordinates), ranks, blocks

    @cached_property
    def _panels(self) -> _Spare:
        return _Spare(self.packed_bytes)

    @cached_property
    def _scratch(self) -> _Spare:
        return _Spare(self.num_threads * self._scratch_bytes())

    @cached_property
    def _pack_staging(self) -> int:
        """Return the bytes that packing needs besides the panels."""
        return int(self.num_threads * _KERNELS.pack_staging(len(self._panel_tables[0])))

    def pack(self, weights: Array) -> tuple[Array, bool]:
        """Pack the (groups, O, I, D, H, W) view of the weights; tell whether all are finite."""
        packed = self._panels.take()
        if self.kernel == SCATTER:
            weights = _convolution_scatter.by_column(self.problem, weights)
        staging = np.empty(self._pack_staging, np.uint8)
        view = _arrays.byte_view(weights)
        return packed, self._program.pack(view, packed, staging, self.num_threads)

    def give_back(self, packed: Array) -> None:
        """Take back what :meth:`pack` returned and nobody uses any more."""
        self._panels.give(packed)

    def run(self, diff_dst: Array, packed: Array, diff_src: Array) -> None:
        """Compute diff_src from (N, C, D, H, W) views and packed weights."""
        if self.zero_first and self.kernel != SCATTER and not self.layout.accumulate:
            diff_src[...] = 0
        scratch = self._scratch.take()
        self._program.run(
            _arrays.byte_view(diff_dst),
            packed,
            _arrays.byte_view(diff_src),
            scratch,
            self.num_threads,
            self.layout.accumulate,
        )
        self._scratch.give(scratch)

    def run_packing(self, diff_dst: Array, weights: Array, diff_src: Array) -> bool:
        """Compute diff_src, packing on the way; tell whether all weights are finite."""
        if self.zero_first:
            diff_src[...] = 0
        scratch = self._scratch.take()
        finite: bool = self._program.run_packing(
            _arrays.byte_view(diff_dst),
            _arrays.byte_view(weights),
            _arrays.byte_view(diff_src),
            scratch,
            self.num_threads,
        )
        self._scratch.give(scratch)
        return finite

    def describe(self) -> str:
        """Return kernel, tiles, tasks, scratch and operations in a few lines."""
        vectors = int(self.blocks[:, 2].max()) if self._panel_kernel == ROWS else self.nv
        tile = f"{self.tile_shapes[vectors]} x {vectors} vectors of {self.lanes}"
        if self.amx:
            tile = f"{2 * AMX_ROWS} x {2 * AMX_COLUMNS} x {AMX_K}"
        splits = f"{len(self.residues)} residue classes, {self.channel_splits} channel ranges"
        scratch = f"{self._scratch_bytes()} bytes of scratch a thread"
        return "\n".join(
            [
                f"problem   {self.problem}",
                f"kernel    {KERNEL_NAMES[self.kernel]}, tier {_isa.TIER}, tiles of {tile}",
                f"reads     {'a packed window' if self.windowed else 'diff_dst in place'}",
                f"writes    {'diff_src in place' if self.direct else 'through scratch'}",
                f"tasks     {self.tasks} of {'x'.join(map(str, self.block))} positions, {splits}",
                f"threads   {self.num_threads}",
                f"memory    {self.packed_bytes} bytes of packed weights, {scratch}",
                f"work      {self.problem.flop} flop",
            ]
        )


@lru_cache(maxsize=128)
def plan_for(problem: ConvProblem, layout: Layout, num_threads: int, exact_halo: bool) -> Plan:
    """Return the plan of a problem; the cache is bounded and holds tables, never weights."""
    return Plan(problem, layout, num_threads, exact_halo)


@lru_cache(maxsize=8)
def layout(diff_dst_last: bool, diff_src_last: bool, accumulate: bool) -> Layout:
    """Return the one layout of these properties: finding a plan compares it by identity."""
    return Layout(diff_dst_last, diff_src_last, accumulate)


def layout_of(diff_dst: Array, diff_src: Array, accumulate: bool) -> Layout:
    """Return the layout of (N, C, D, H, W) tensors."""
    return layout(_channels_last(diff_dst), _channels_last(diff_src), accumulate)


def _channels_last(array: Array) -> bool:
    return array.strides[1] == array.itemsize


def prepare(
    problem: ConvProblem, layout: Layout, num_threads: int, weights: Array
) -> tuple[Plan, Array]:
    """Return the plan that suits the (g, O, I, D, H, W) weights, and the weights packed for it."""
    plan = plan_for(problem, layout, num_threads, False)
    packed, finite = plan.pack(weights)
    if not finite:
        plan = plan_for(problem, layout, num_threads, True)
        packed, _ = plan.pack(weights)
    return plan, packed


def execute(
    problem: ConvProblem,
    diff_dst: Array,
    weights: Array,
    diff_src: Array,
    *,
    accumulate: bool,
    num_threads: int,
) -> None:
    """Plan, pack and run, on (N, C, D, H, W) tensors and (g, O, I, D, H, W) weights."""
    arranged = layout_of(diff_dst, diff_src, accumulate)
    plan = plan_for(problem, arranged, num_threads, False)
    if plan.packs_in_tasks and plan.run_packing(diff_dst, weights, diff_src):
        return
    plan, packed = prepare(problem, arranged, num_threads, weights)
    plan.run(diff_dst, packed, diff_src)
    plan.give_back(packed)
