"""From a resampling problem to kernel calls: its tables and all that the kernel is told."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradops_cy import _arrays, _isa
from gradops_cy._arrays import Array
from gradops_cy._resampling_axis import AxisTable, axis_table
from gradops_cy._resampling_batches import period
from gradops_cy._resampling_blocks import Case, blocks_of
from gradops_cy._resampling_channels import in_boxes, slides
from gradops_cy._resampling_choice import THREAD_ELEMENTS, KernelChoice, choose
from gradops_cy._resampling_fetching import fetching_of
from gradops_cy._resampling_phases import rows_alike
from gradops_cy._resampling_problem import Innermost, ResampleProblem

_kernels = _isa.kernels("resampling")
_KERNEL_CODES = {
    "channels": _kernels.CHANNELS,
    "rows": _kernels.ROWS,
    "planes": _kernels.PLANES,
    "width": _kernels.WIDTH,
    "phases": _kernels.PHASES,
    "points": _kernels.POINTS,
}

# Elements of a row of diff_dst and of the result up to which one axis is folded with the channels:
# longer ones are better read one by one.
_FOLDED_ROW = 2048
# Bytes of buffers up to which they are kept for the next call.
_SPARE_BYTES = 1 << 19
_BF16 = _arrays.DTYPE_CODES[_arrays.BFLOAT16]
_WORD = np.dtype(np.uint16)
_NONE = np.empty(0, np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class ResamplePlan:
    """The tables and block sizes of one problem; reusable, and independent of the threads.

    Attributes
    ----------
    kernel : {"channels", "width", "phases", "points", "rows", "planes"}
        What the lanes are.
    lanes : int
        Channels of a block, or rows, or planes, side by side.
    columns : int
        The most columns of a block, loaded or stored.
    task_rows : int
        Rows or planes of the result of a task; the kernel of channels joins tasks.
    task_unit : {"rows", "planes"}
        Which of these.
    tasks : int
        Independent tasks, each with results of its own.
    max_threads : int
        The most threads that the work is worth.
    workspace_bytes : int
        Bytes of buffers that each thread needs.
    tables_bytes : int
        Bytes of the tables.
    """

    problem: ResampleProblem
    kernel: str
    lanes: int
    columns: int
    task_rows: int
    task_unit: str
    tasks: int
    max_threads: int
    workspace_bytes: int
    tables_bytes: int
    _resampling: Any
    _words: tuple[bool, bool]  # the buffer protocol knows no bfloat16
    _spare: deque[Array]  # of one thread, kept for the next call

    def describe(self) -> str:
        """Return the plan in a line."""
        return (
            f"{self.problem}: kernel of {self.kernel}, tier {_isa.TIER}, "
            f"{self.lanes} lanes x {self.columns} columns, {self.tasks} tasks of "
            f"{self.task_rows} {self.task_unit}, "
            f"{self.workspace_bytes} bytes of workspace per thread, "
            f"{self.tables_bytes} bytes of tables"
        )

    def run(
        self, grads: Array, result: Array, channels_last: bool, accumulate: bool, num_threads: int
    ) -> None:
        """Compute `result` from `grads`."""
        of_grads, of_result = self._words
        if of_grads:
            grads = grads.view(_WORD)
        if of_result:
            result = result.view(_WORD)
        threads = min(num_threads, self.max_threads)
        # Taking is atomic, so that no two calls ever hold the same piece.
        try:
            spare = self._spare.pop() if threads == 1 else None
        except IndexError:
            spare = None
        if spare is None:
            spare = np.empty(threads * self.workspace_bytes, np.uint8)
        self._resampling.run(grads, result, channels_last, accumulate, spare, threads)
        if threads == 1:
            self._spare.append(spare)


def build(given: ResampleProblem, innermost: Innermost) -> ResamplePlan:
    """Plan a problem for a diff_dst whose elements lie closest along `innermost`."""
    dtype = np.dtype(np.float64 if given.computes_f64 else np.float32)
    axes = [
        axis_table(given, src, dst, scale, dtype)
        for src, dst, scale in zip(given.src, given.dst, given.scales, strict=True)
    ]
    choice = choose(given, innermost, axes)
    kernel, problem = choice.kernel, given
    folds = kernel in ("phases", "points") and _folds(given, innermost)
    if folds:
        rows = given.channels
        problem = replace(
            given, channels=1, src=(1, rows, given.src[2]), dst=(1, rows, given.dst[2])
        )
        axes[1] = axis_table(given, rows, rows, 0.0, dtype)
    depth, height, width = (axis.longest for axis in axes)
    case = Case(problem, innermost, choice, (depth, height, width), dtype.itemsize)
    blocks, pixel = blocks_of(case), case.pixel
    lanes, columns, products, shares = blocks.lanes, blocks.columns, depth * height, choice.shares
    # Of the kernel of widths, rows of the same kind are reduced together.
    kinds = period(problem, pixel, products) if choice.width else 1
    apart = problem.dst[1] * kinds // problem.src[1]
    repeats = kernel in ("channels", "points") and problem.dst[1] < problem.src[1]
    by_kinds = choice.phases or (choice.width and not shares) or repeats
    alike = rows_alike(axes[1], apart, kinds) if by_kinds else _NONE
    tables = _tables_of(choice, axes) | {"alike": alike}
    in_one_pass = kernel == innermost == "channels" and slides(problem, axes, choice.chains)
    src, dst = math.prod(problem.src), math.prod(problem.dst)
    whole = (dst, src) if kernel == "planes" else (blocks.stage, 0)
    workspace_bytes = _kernels.workspace_bytes(
        dtype.itemsize, lanes, columns, products, width, *whole
    )
    of_planes = kernel == "planes" or blocks.planes_at_once > 1
    return ResamplePlan(
        problem=given,
        kernel=kernel,
        lanes=lanes,
        columns=columns,
        task_rows=blocks.task_rows,
        task_unit="planes" if of_planes else "rows",
        tasks=blocks.tasks,
        max_threads=max(1, min(blocks.tasks, case.planes * (src + dst) // THREAD_ELEMENTS)),
        workspace_bytes=workspace_bytes,
        tables_bytes=sum(array.nbytes for array in tables.values()),
        _words=(problem.load_dtype == _BF16, problem.store_dtype == _BF16),
        _spare=deque(maxlen=1 if workspace_bytes <= _SPARE_BYTES else 0),
        _resampling=_kernels.Resampling(
            kernel=_KERNEL_CODES[kernel],
            load_dtype=problem.load_dtype,
            store_dtype=problem.store_dtype,
            result_shape=(problem.batch, problem.channels, *problem.src),
            grads_shape=(problem.batch, problem.channels, *problem.dst),
            chains=choice.chains,
            pixel=pixel,
            group=choice.width.group if choice.width else 1,
            scale=choice.phases.scale if choice.phases else 1,
            spread=choice.phases.spread if choice.phases else 1,
            taps=choice.phases.taps if choice.phases else 1,
            planes_at_once=blocks.planes_at_once,
            period=kinds,
            apart=apart,
            stage_bytes=blocks.stage * lanes * dtype.itemsize,
            long_rows=blocks.long_rows,
            lanes=lanes,
            columns=columns,
            longest_product=products,
            longest_run=width,
            rows_in_cache=blocks.rows_in_cache,
            task_rows=blocks.task_rows,
            task_columns=blocks.task_columns,
            tasks=blocks.tasks,
            streams=blocks.streams,
            boxes=kernel == "channels" and not in_one_pass and in_boxes(problem, axes),
            slides=in_one_pass,
            shares=shares,
            folds=folds,
            **fetching_of(problem, kernel, lanes, pixel, products, shares),
            **tables,
        ),
    )


def _folds(problem: ResampleProblem, innermost: Innermost) -> bool:
    """Return whether channels are counted as rows of one: rows alike are one call."""
    flat = problem.src[:2] == problem.dst[:2] == (1, 1)
    short = problem.src[2] + problem.dst[2] <= _FOLDED_ROW
    at_one = {0.0, 1.0}.issuperset(problem.scales[:2])
    return innermost == "width" and flat and short and at_one


def _tables_of(choice: KernelChoice, axes: list[AxisTable]) -> dict[str, Array]:
    """Return what the kernel reads of the axes, and of its own tables of the width."""
    tabulated = axes[:2] if choice.has_tables else axes
    place, pieces = 0, []
    for axis in tabulated:
        ends = place + np.cumsum(axis.count)
        pieces += [axis.start, np.concatenate(([place], ends))]
        place = int(ends[-1])
    width, phases, points = choice.width, choice.phases, choice.points
    words = points.words if points else _NONE.astype(np.intc)
    return {
        "table": np.concatenate(pieces).astype(np.intp, copy=False),
        "weights": np.concatenate([axis.weights for axis in tabulated]).view(np.uint8),
        "chunks": width.chunks if width else points.chunks if points else _NONE,
        "blocks": width.blocks if width else _NONE,
        "patterns": width.patterns if width else words,
        "phases": phases.weights if phases else _NONE.astype(np.float32),
    }
