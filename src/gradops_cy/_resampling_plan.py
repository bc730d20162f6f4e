"""From a resampling problem to kernel calls: weight tables, block sizes, tasks."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._arrays import Array
from gradops_cy._resampling_axis import AxisTable, axis_table
from gradops_cy._resampling_batches import batch_elements, long_rows, period, planes_at_once
from gradops_cy._resampling_choice import CHUNK_ELEMENTS, THREAD_ELEMENTS, choose
from gradops_cy._resampling_fetching import fetching_of
from gradops_cy._resampling_phases import rows_alike
from gradops_cy._resampling_problem import Innermost, ResampleProblem
from gradops_cy._rounding import even, up

_kernels = _isa.kernels("resampling")
_KERNEL_CODES = {
    "channels": _kernels.CHANNELS,
    "rows": _kernels.ROWS,
    "planes": _kernels.PLANES,
    "width": _kernels.WIDTH,
    "phases": _kernels.PHASES,
    "points": _kernels.POINTS,
}

# Elements of a block in cache. One of channels holds all of them, up to so many and so many bytes
# of a run of columns: rows of parts of them do not lie together, and were read up to 7 times as
# slowly.
_BLOCK_ELEMENTS = 8192
_MIN_CHANNELS = 64
_MAX_CHANNELS = 4096
_RUN_BYTES = 1 << 18
# From so many bytes of both tensors on, which caches hardly hold, the kernel of channels does both
# passes at once. It reads a row again for each row of the result that it touches, and a part of all
# channels after another: more rows than this, and more bytes of the columns between two columns of
# the result, cost more than that gains.
_SLIDING_BYTES = 1 << 24
_SLIDING_ROWS = 6
_SLIDING_COLUMN_BYTES = 1 << 12
# On Zen 4 so it does with fewer bytes too, of no more rows than this and more channels than a
# vector has.
_SLIDING_ROWS_IN_CACHE = 4
# Positions of a box, and their bytes, from which on tensors that no cache holds are better summed
# in two passes: a box takes some channels of each position in turn.
_BOX_POSITIONS, _BOX_BYTES = 16, 1 << 15
# Elements of a strip of the kernel of channels: long ones are what hardware prefetches well.
_STRIP_ELEMENTS = 1 << 15
# Elements of a row of diff_dst and of the result up to which one axis is folded with the channels:
# longer ones are better read one by one.
_FOLDED_ROW = 2048
# Elements loaded and stored by one task, about.
_TASK_ELEMENTS = 1 << 16
# Bytes of a cache in which rows stay that several rows of the result touch, and the fewest rows of
# the result that this is done for. AMD's third-level cache is near enough: edges are read again.
_CACHE_BYTES = 1 << 22 if _processor.AMD else 1 << 20
_FEW_ROWS = 3
# How much larger diff_dst may be where phases store past the caches.
_STREAM_GROWTH = 4
# Bytes of buffers up to which they are kept for the next call.
_SPARE_BYTES = 1 << 19
_BF16 = _arrays.DTYPE_CODES[_arrays.BFLOAT16]
_F32 = _arrays.DTYPE_CODES[np.dtype(np.float32)]
_F64 = _arrays.DTYPE_CODES[np.dtype(np.float64)]
_WORD = np.dtype(np.uint16)


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


def build(problem: ResampleProblem, innermost: Innermost) -> ResamplePlan:
    """Plan a problem for a diff_dst whose elements lie closest along `innermost`."""
    dtype = np.dtype(np.float64 if problem.computes_f64 else np.float32)
    axes = [
        axis_table(problem, src, dst, scale, dtype)
        for src, dst, scale in zip(problem.src, problem.dst, problem.scales, strict=True)
    ]
    longest = [int(axis.count.max()) for axis in axes]
    choice = choose(problem, innermost, axes)
    kernel, in_chains = choice.kernel, choice.chains
    width, phases, points = choice.width, choice.phases, choice.points
    folds = kernel in ("phases", "points") and _folds(problem, innermost)
    computed = problem
    if folds:
        extent = problem.channels
        axes[1] = axis_table(problem, extent, extent, 0.0, dtype)
        problem = replace(
            problem,
            channels=1,
            src=(1, extent, problem.src[2]),
            dst=(1, extent, problem.dst[2]),
        )
        longest[:2] = 1, 1

    tabulated = axes[:2] if choice.has_tables else axes
    place, pieces = 0, []
    for axis in tabulated:
        ends = place + np.cumsum(axis.count)
        pieces += [axis.start, np.concatenate(([place], ends))]
        place = int(ends[-1])
    table = np.concatenate(pieces).astype(np.intp, copy=False)
    weights = np.concatenate([axis.weights for axis in tabulated]).view(np.uint8)

    lanes, pixel = _kernels.ROW_LANES, 1
    itemsize = _arrays.DTYPES[problem.store_dtype].itemsize
    planes = problem.batch * problem.channels
    slides = kernel == innermost == "channels" and _slides(problem, axes, in_chains)
    if kernel == "channels" and innermost == "width":
        lanes = 1
    elif kernel == "channels":
        run = up(min(_kernels.MAX_RUN, longest[2]), 16)
        limit = _RUN_BYTES // (dtype.itemsize * run) // 16 * 16
        limit = max(_MIN_CHANNELS, min(_MAX_CHANNELS, limit))
        lanes = min(problem.channels, up(even(problem.channels, limit), 16))
    elif kernel != "planes" and innermost == "channels":
        pixel = problem.channels
        lanes *= pixel
    elements = _STRIP_ELEMENTS if kernel == "channels" else _BLOCK_ELEMENTS
    columns = max(min(_kernels.MAX_RUN, longest[2]), elements // lanes)
    src, dst = math.prod(problem.src), math.prod(problem.dst)
    streams = _past_the_caches(problem)
    if phases:
        # Between the loads of more than is stored, stores past the caches are slower, and always
        # for halves.
        most = _STREAM_GROWTH if itemsize == 4 or phases.spread > 1 else 0
        streams = streams and dst <= most * src
    stage, rows_of_batch = 0, 1
    if width:
        lanes = pixel
        rows_of_batch = long_rows(width.kinds)
        of_long_rows = rows_of_batch * width.elements // width.group
        elements = max(width.elements, of_long_rows, batch_elements(problem))
        columns = -(-(elements + _kernels.WIDTH_REACH) // lanes)
        stage = columns if streams else 0
        chunks = len(width.chunks) // _kernels.CHUNK_WORDS
    elif points:
        lanes = pixel
        columns = max(points.columns, -(-_kernels.PART_BYTES // (pixel * dtype.itemsize)))
        chunks = len(points.chunks) // _kernels.CHUNK_WORDS
    elif phases:
        lanes = 1
        chunk = min(CHUNK_ELEMENTS // phases.scale, problem.src[2])
        columns = (chunk + 2 * _kernels.ROW_LANES) * phases.scale
        chunks = -(-problem.src[2] // chunk)
    elif kernel != "planes":
        columns = up(min(columns, max(problem.src[2], problem.dst[2])), 16)
        streams = streams and kernel == "channels" and (lanes == 1 or lanes == problem.channels)
    products = longest[0] * longest[1]
    shares = choice.shares
    fetching = fetching_of(problem, kernel, lanes, pixel, products, shares)

    # The tasks: whole blocks, about equal in what they load and store.
    rows = planes // pixel * problem.src[0] * problem.src[1]
    rows_in_cache, task_columns = 1, problem.src[2]
    by_turns = planes_at_once(problem) if phases and chunks == 1 else 1
    if kernel == "planes":
        task_rows = lanes * max(1, _TASK_ELEMENTS // (lanes * (src + dst)))
        tasks = -(-planes // task_rows)
    elif by_turns > 1:
        task_rows = by_turns
        tasks = problem.batch * -(-problem.channels // by_turns)
    elif width:
        # Whole planes, where these are small.
        row_elements = problem.src[2] * (1 + dst / src) * pixel / chunks
        unit = math.prod(problem.src[:2])
        if unit * row_elements > _TASK_ELEMENTS // 2:
            unit = width.group
        task_rows = unit * max(1, int(_TASK_ELEMENTS / (row_elements * unit)))
        tasks = chunks * -(-rows // task_rows)
    elif points:
        row_elements = problem.src[2] * pixel / chunks
        task_rows = max(1, int(_TASK_ELEMENTS / row_elements))
        tasks = chunks * -(-rows // task_rows)
    elif phases:
        task_columns = chunk
        task_rows = max(1, _TASK_ELEMENTS // (chunk * (1 + phases.scale)))
        tasks = chunks * -(-rows // task_rows)
    elif kernel == "channels":
        # The kernel joins them, as many as leave every thread some.
        task_columns = columns * max(1, _TASK_ELEMENTS // (columns * lanes))
        task_rows = 1
        tasks = -(-problem.src[2] // task_columns) * -(-problem.channels // lanes)
        tasks *= rows // problem.channels
        row_bytes = min(columns, problem.dst[2]) * lanes * itemsize * longest[0]
        row_bytes *= problem.dst[1] / problem.src[1]
        rows_in_cache = max(1, int(_CACHE_BYTES / row_bytes))
        if problem.src[0] == 1 or rows_in_cache < _FEW_ROWS:
            rows_in_cache = problem.src[1]
    else:
        task_columns = columns * max(1, _TASK_ELEMENTS // (columns * lanes))
        row_elements = min(task_columns, problem.src[2]) * (1 + dst / src) * lanes
        task_rows = _kernels.ROW_LANES * max(1, int(_TASK_ELEMENTS / row_elements))
        tasks = -(-rows // task_rows) * -(-problem.src[2] // task_columns)

    # Of the kernel of widths, rows of the same kind are reduced together.
    kinds = period(problem, pixel, products) if width else 1
    apart = problem.dst[1] * kinds // problem.src[1]
    repeats = kernel in ("channels", "points") and problem.dst[1] < problem.src[1]
    by_kinds = phases or (width and not shares) or repeats
    whole = (dst, src) if kernel == "planes" else (stage, 0)
    none = np.empty(0, np.intp)
    words = points.words if points else none.astype(np.intc)
    tables: dict[str, Array] = {
        "table": table,
        "weights": weights,
        "chunks": width.chunks if width else points.chunks if points else none,
        "blocks": width.blocks if width else none,
        "patterns": width.patterns if width else words,
        "phases": phases.weights if phases else none.astype(np.float32),
        "alike": rows_alike(axes[1], apart, kinds) if by_kinds else none,
    }
    workspace_bytes = _kernels.workspace_bytes(
        dtype.itemsize, lanes, columns, products, longest[2], *whole
    )
    return ResamplePlan(
        problem=computed,
        kernel=kernel,
        lanes=lanes,
        columns=columns,
        task_rows=task_rows,
        task_unit="planes" if kernel == "planes" or by_turns > 1 else "rows",
        tasks=tasks,
        max_threads=max(1, min(tasks, planes * (src + dst) // THREAD_ELEMENTS)),
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
            chains=in_chains,
            pixel=pixel,
            group=width.group if width else 1,
            scale=phases.scale if phases else 1,
            spread=phases.spread if phases else 1,
            taps=phases.taps if phases else 1,
            planes_at_once=by_turns,
            period=kinds,
            apart=apart,
            stage_bytes=stage * lanes * dtype.itemsize,
            long_rows=rows_of_batch,
            lanes=lanes,
            columns=columns,
            longest_product=products,
            longest_run=longest[2],
            rows_in_cache=rows_in_cache,
            task_rows=task_rows,
            task_columns=task_columns,
            tasks=tasks,
            streams=streams,
            boxes=kernel == "channels" and not slides and _boxes(problem, axes),
            slides=slides,
            shares=shares,
            folds=folds,
            **fetching,
            **tables,
        ),
    )


def _past_the_caches(problem: ResampleProblem) -> bool:
    """Return whether no cache holds the tensors."""
    itemsize = _arrays.DTYPES[problem.store_dtype].itemsize
    bytes_of_one = problem.batch * problem.channels * itemsize
    src, dst = math.prod(problem.src) * bytes_of_one, math.prod(problem.dst) * bytes_of_one
    return _processor.past_the_caches(src, src + dst)


def _folds(problem: ResampleProblem, innermost: Innermost) -> bool:
    """Return whether channels are counted as rows of one: rows alike are one call."""
    flat = problem.src[:2] == problem.dst[:2] == (1, 1)
    short = problem.src[2] + problem.dst[2] <= _FOLDED_ROW
    at_one = {0.0, 1.0}.issuperset(problem.scales[:2])
    return innermost == "width" and flat and short and at_one


def _boxes(problem: ResampleProblem, axes: list[AxisTable]) -> bool:
    """Return whether elements of the result are plain sums of few rows and columns of diff_dst."""
    depth, height, width = (int(axis.count.max()) for axis in axes)
    few = depth * height <= _kernels.ROWS_OF_A_PLANE and width <= _kernels.COLUMNS_IN_SEQUENCE
    plain = all(bool(np.all(axis.weights == 1)) for axis in axes)
    position = problem.channels * _arrays.DTYPES[problem.load_dtype].itemsize
    positions = depth * height * width
    apart = positions >= _BOX_POSITIONS and positions * position >= _BOX_BYTES
    if apart and _processor.beyond_cache(problem.bytes_read):
        return False
    return few and plain and problem.load_dtype == problem.store_dtype


def _slides(problem: ResampleProblem, axes: list[AxisTable], in_chains: int) -> bool:
    """Return whether tensors larger than the caches are better summed in one pass than in two.

    A column of diff_dst may touch no more than two columns of the result.
    """
    itemsize = _arrays.DTYPES[problem.load_dtype].itemsize
    elements = problem.batch * problem.channels * (math.prod(problem.src) + math.prod(problem.dst))
    most_rows, most_chains = _SLIDING_ROWS, 2
    if elements * itemsize < _SLIDING_BYTES:
        most_rows, most_chains = _SLIDING_ROWS_IN_CACHE, 1
        if not (_processor.ZEN4 and problem.channels > _kernels.ROW_LANES):
            return False
    depth, height, width = (int(axis.count.max()) for axis in axes)
    few = depth * height <= most_rows and width <= _kernels.COLUMNS_IN_SEQUENCE
    few = few and in_chains <= most_chains
    column_bytes = problem.dst[2] * problem.channels * itemsize
    near = column_bytes <= problem.src[2] * _SLIDING_COLUMN_BYTES
    start, count = axes[2].start, axes[2].count
    two = bool(np.all((start + count)[:-2] <= start[2:]))
    # To convert halves twice takes narrow vectors longer than memory, and where the width shrinks,
    # halves take longer to store than to read. Boxes (nearest) are as fast there.
    pays = problem.store_dtype == _F32 and problem.mode != "nearest"
    if _kernels.WIDTH_LANES >= _kernels.ROW_LANES:
        pays = pays or problem.dst[2] > problem.src[2]
    computes = problem.load_dtype == problem.store_dtype != _F64
    return few and near and two and pays and computes
