"""From a resampling problem to kernel calls: weight tables, block sizes, the choice of kernel.

Every axis gets the table of its gather: source index x is touched by the destination indices
``start[x] <= y < start[x] + first[x+1] - first[x]``, a run because coordinates are monotone, with
weights ``weight[first[x]:first[x+1]]``. The kernels reduce depth and height while they load
rows, then the width, in vectors whose lanes are

- channels, where these lie innermost and are many (one, where there are but a few rows),
- 16 rows of the result, with their channels where these lie innermost but are few, transposed in
  cache while they are reduced, or
- 16 planes, transposed as a whole, where planes are small and channels do not lie innermost.

All three add in one order, so that they agree bit for bit.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradops_cy import _arrays, _isa
from gradops_cy._arrays import Array
from gradops_cy._resampling_problem import ResampleProblem

_kernels = _isa.kernels("resampling")
_KERNEL_CODES = {
    "channels": _kernels.CHANNELS,
    "rows": _kernels.ROWS,
    "planes": _kernels.PLANES,
}

# Destination indices whose coordinates are computed at once: bounds both the temporaries and
# the integers, which stay exact up to extents of 2**40.
_CHUNK = 1 << 20
# Elements of a block in cache, the fewest and most channels of one, and the runs that it holds.
_BLOCK_ELEMENTS = 8192
_MIN_CHANNELS = 64
_MAX_CHANNELS = 512
_RUNS_IN_BLOCK = 4
# Fewer channels than this are worse lanes than rows, but not than fewer rows than this.
_FEW_CHANNELS = 8
_FEW_ROWS = 3
# Elements of diff_dst and of the result that the kernel of planes may hold, and the fewest of its
# groups that keep threads busy.
_PLANE_ELEMENTS = 1 << 17
_PLANE_GROUPS = 4
# Elements loaded and stored by one task, about; and those worth a thread of its own.
_TASK_ELEMENTS = 1 << 16
_THREAD_ELEMENTS = 1 << 15
# Plans are kept for problems of moderate extents only, so that the cache stays small.
_CACHED_EXTENTS = 32768


@dataclass(frozen=True, slots=True)
class AxisTable:
    """Which destination indices touch each source index of an axis, with which weights."""

    start: Array
    count: Array
    weights: Array


def _chunks(extent: int) -> itertools.starmap[range]:
    bounds = itertools.chain(range(0, extent, _CHUNK), (extent,))
    return itertools.starmap(range, itertools.pairwise(bounds))


def _exact_coordinates(
    mode: str, coordinates: str, src: int, dst: int, indices: range
) -> tuple[Array, Array, Array]:
    """Return floor, fraction and 1 - fraction of ``(slope·y + shift)/divisor``.

    That is the integer form of a mode. Both shares are rounded once: the smaller of two weights
    would lose its digits as a difference.
    """
    centred = coordinates in ("half_pixel", "pytorch_half_pixel")
    if dst == 1 and coordinates in ("align_corners", "pytorch_half_pixel"):
        slope, shift, divisor = 0, 0, 1
    elif coordinates == "align_corners":
        slope, shift, divisor = 2 * (src - 1), 0, 2 * (dst - 1)
    else:
        slope, shift, divisor = 2 * src, src - dst if centred else 0, 2 * dst
    if mode == "nearest" and coordinates != "asymmetric" and slope:
        shift += divisor // 2
    low, rest = divmod(slope * indices.start + shift, divisor)
    numerator = rest + slope * np.arange(len(indices), dtype=np.int64)
    whole = numerator // divisor
    numerator -= whole * divisor
    return low + whole, numerator / divisor, (divisor - numerator) / divisor


def _float_coordinates(
    mode: str, coordinates: str, src: int, dst: int, scale: float, indices: range
) -> tuple[Array, Array, Array]:
    """Return floor, fraction and 1 - fraction of the coordinates for a scale that is given."""
    index = np.arange(indices.start, indices.stop, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        if coordinates == "asymmetric":
            coordinate = index / scale
        elif coordinates == "pytorch_half_pixel" and dst == 1:
            coordinate = np.zeros(len(index))
        else:
            coordinate = (index + 0.5) / scale - 0.5
    if mode == "nearest" and coordinates != "asymmetric":
        coordinate = coordinate + 0.5
    coordinate = np.clip(coordinate, -1.0, float(src))
    low = np.floor(coordinate)
    fraction = coordinate - low
    return low.astype(np.int64), fraction, 1.0 - fraction


def axis_table(
    mode: str, coordinates: str, src: int, dst: int, scale: float, dtype: np.dtype[Any]
) -> AxisTable:
    """Build the gather table of one axis; `scale` 0 means the ratio of the extents."""
    low = np.empty(dst, np.int64)
    fraction, complement = np.zeros(dst), np.ones(dst)
    for indices in _chunks(dst):
        part = slice(indices.start, indices.stop)
        if scale and coordinates != "align_corners":
            floor, above, below = _float_coordinates(mode, coordinates, src, dst, scale, indices)
        else:
            floor, above, below = _exact_coordinates(mode, coordinates, src, dst, indices)
        low[part] = np.clip(floor, 0, src - 1)
        if mode == "linear":
            outside = (floor < 0) | (floor >= src - 1)
            fraction[part] = np.where(outside, 0.0, above)
            complement[part] = np.where(outside, 1.0, below)
    high = low + (fraction > 0)
    # Coordinates do not decrease: those at or below x are a prefix, and so are those below x.
    stop = np.cumsum(np.bincount(low, minlength=src))
    start = np.cumsum(np.bincount(high, minlength=src))
    start[1:], start[0] = start[:-1], 0
    count = stop - start
    weights = np.empty(int(count.sum()), dtype)
    # The weight of (x, y) is at first[x] - start[x] + y.
    shift = np.cumsum(count) - stop
    for indices in _chunks(dst):
        part = slice(indices.start, indices.stop)
        index = np.arange(indices.start, indices.stop)
        # Where the two are one place, the last to write is right.
        weights[shift[high[part]] + index] = fraction[part]
        weights[shift[low[part]] + index] = complement[part]
    return AxisTable(start, count, weights)


@dataclass(frozen=True, slots=True, eq=False)
class ResamplePlan:
    """The tables and block sizes of one problem; reusable, and independent of the threads.

    Attributes
    ----------
    kernel : {"channels", "rows", "planes"}
        What the lanes are.
    table : ndarray of intp
        For each axis the starts, then the places of the weights with the end of the last.
    weights : ndarray of bytes
        The weights of the three axes, in the type that computes.
    lanes : int
        Channels of a block, or rows, or planes, side by side.
    columns : int
        The most columns of a block, loaded or stored.
    longest_product, longest_run : int
        The most rows of diff_dst that touch a row of the result, and the most columns that touch
        a column.
    task_rows, task_columns : int
        Rows of the result (or planes) and columns of a task.
    tasks : int
        Independent tasks, each with results of its own.
    max_threads : int
        The most threads that the work is worth.
    """

    problem: ResampleProblem
    kernel: str
    table: Array
    weights: Array
    lanes: int
    columns: int
    longest_product: int
    longest_run: int
    task_rows: int
    task_columns: int
    tasks: int
    max_threads: int
    workspace_bytes: int

    def describe(self) -> str:
        """Return the plan in a line."""
        return (
            f"{self.problem}: kernel of {self.kernel}, tier {_isa.TIER}, "
            f"{self.lanes} lanes x {self.columns} columns, {self.tasks} tasks of "
            f"{self.task_rows} {'planes' if self.kernel == 'planes' else 'rows'} x "
            f"{self.task_columns} columns, "
            f"{self.workspace_bytes} bytes of workspace per thread"
        )

    def run(self, grads: Array, result: Array, *, accumulate: bool, num_threads: int) -> None:
        """Compute `result` from `grads`, both viewed as (N, C, D, H, W)."""
        problem = self.problem
        threads = min(num_threads, self.max_threads)
        _kernels.resample(
            _arrays.byte_view(grads),
            _arrays.byte_view(result),
            problem.load_dtype,
            problem.store_dtype,
            accumulate,
            _KERNEL_CODES[self.kernel],
            self.table,
            self.weights,
            self.lanes,
            self.columns,
            self.longest_product,
            self.longest_run,
            self.task_rows,
            self.task_columns,
            self.tasks,
            np.empty((threads, self.workspace_bytes), np.uint8),
        )


def _build(problem: ResampleProblem) -> ResamplePlan:
    dtype = np.dtype(np.float64 if problem.computes_f64 else np.float32)
    axes = [
        axis_table(problem.mode, problem.coordinates, src, dst, scale, dtype)
        for src, dst, scale in zip(problem.src, problem.dst, problem.scales, strict=True)
    ]
    place, pieces = 0, []
    for axis in axes:
        ends = place + np.cumsum(axis.count)
        pieces += [axis.start, np.concatenate(([place], ends))]
        place = int(ends[-1])
    longest = [int(axis.count.max()) for axis in axes]

    kernel = _kernel(problem)
    lanes = _kernels.ROW_LANES
    if kernel == "channels" and problem.innermost == "width":
        lanes = 1
    elif kernel == "channels":
        limit = _BLOCK_ELEMENTS // (_RUNS_IN_BLOCK * longest[2]) // 16 * 16
        limit = max(_MIN_CHANNELS, min(_MAX_CHANNELS, limit))
        lanes = -(-problem.channels // -(-problem.channels // limit))
        lanes = min(problem.channels, -(-lanes // 16) * 16)
    elif kernel == "rows" and problem.innermost == "channels":
        lanes *= problem.channels
    columns = max(min(_kernels.MAX_RUN, longest[2]), _BLOCK_ELEMENTS // lanes)
    if kernel != "planes":
        columns = -(-min(columns, max(problem.src[2], problem.dst[2])) // 16) * 16

    # The tasks: whole blocks, about equal in what they load and store.
    src, dst = math.prod(problem.src), math.prod(problem.dst)
    planes = problem.batch * problem.channels
    if kernel == "planes":
        task_columns = problem.src[2]
        task_rows = lanes * max(1, _TASK_ELEMENTS // (lanes * (src + dst)))
        tasks = -(-planes // task_rows)
    else:
        task_columns = columns * max(1, _TASK_ELEMENTS // (columns * lanes))
        row_elements = min(task_columns, problem.src[2]) * (1 + dst / src) * lanes
        task_rows = max(1, int(_TASK_ELEMENTS / row_elements))
        rows = problem.batch * problem.src[0] * problem.src[1]
        blocks = 1
        if kernel == "channels":
            blocks = -(-problem.channels // lanes)
        else:
            task_rows *= _kernels.ROW_LANES
            rows *= problem.channels * _kernels.ROW_LANES // lanes
        tasks = blocks * -(-rows // task_rows) * -(-problem.src[2] // task_columns)

    products = longest[0] * longest[1]
    whole = (dst, src) if kernel == "planes" else (0, 0)
    return ResamplePlan(
        problem=problem,
        kernel=kernel,
        table=np.concatenate(pieces).astype(np.intp, copy=False),
        weights=np.concatenate([axis.weights for axis in axes]).view(np.uint8),
        lanes=lanes,
        columns=columns,
        longest_product=products,
        longest_run=longest[2],
        task_rows=task_rows,
        task_columns=task_columns,
        tasks=tasks,
        max_threads=max(1, min(tasks, planes * (src + dst) // _THREAD_ELEMENTS)),
        workspace_bytes=_kernels.workspace_bytes(
            dtype.itemsize, lanes, columns, products, longest[2], *whole
        ),
    )


def _kernel(problem: ResampleProblem) -> str:
    """Choose what the lanes are; the result does not depend on it."""
    rows = problem.batch * problem.src[0] * problem.src[1]
    if problem.innermost == "channels":
        few = problem.channels < _FEW_CHANNELS and rows >= _FEW_ROWS
        return "rows" if few else "channels"
    elements = _kernels.ROW_LANES * (math.prod(problem.src) + math.prod(problem.dst))
    groups = problem.batch * problem.channels / _kernels.ROW_LANES
    if elements <= _PLANE_ELEMENTS and groups >= _PLANE_GROUPS:
        return "planes"
    return "rows" if rows * problem.channels >= _FEW_ROWS else "channels"


_cached = functools.lru_cache(maxsize=32)(_build)


def plan(problem: ResampleProblem) -> ResamplePlan:
    """Return the plan of a problem."""
    small = sum(problem.src) + sum(problem.dst) <= _CACHED_EXTENTS
    return _cached(problem) if small else _build(problem)
