"""What a resampling kernel takes at a time: the block it holds in cache, and tasks of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._resampling_batches import batch_elements, long_rows, planes_at_once
from gradops_cy._resampling_choice import CHUNK_ELEMENTS, KernelChoice
from gradops_cy._resampling_problem import Innermost, ResampleProblem
from gradops_cy._rounding import even, up

_kernels = _isa.kernels("resampling")

# Elements of a block in cache. One of channels holds all of them, up to so many and so many bytes
# of a run of columns: rows of parts of them do not lie together, and were read up to 7 times as
# slowly.
_BLOCK_ELEMENTS = 8192
_MIN_CHANNELS = 64
_MAX_CHANNELS = 4096
_RUN_BYTES = 1 << 18
# Elements of a strip of the kernel of channels: long ones are what hardware prefetches well.
_STRIP_ELEMENTS = 1 << 15
# Elements loaded and stored by one task, about.
_TASK_ELEMENTS = 1 << 16
# Bytes of a cache in which rows stay that several rows of the result touch, and the fewest rows of
# the result that this is done for. AMD's third-level cache is near enough: edges are read again.
_CACHE_BYTES = 1 << 22 if _processor.AMD else 1 << 20
_FEW_ROWS = 3
# How much larger diff_dst may be where phases store past the caches.
_STREAM_GROWTH = 4


class Case(NamedTuple):
    """What blocks depend on."""

    problem: ResampleProblem  # whose channels may be counted as rows
    innermost: Innermost
    choice: KernelChoice
    longest: tuple[int, int, int]  # sums along each axis
    size: int  # bytes of the type that sums

    @property
    def pixel(self) -> int:
        """Elements of a position of a row: those of all channels, if the kernel takes these."""
        apart = self.choice.kernel in ("channels", "planes") or self.innermost == "width"
        return 1 if apart else self.problem.channels

    @property
    def planes(self) -> int:
        """Planes, or volumes, of the batch."""
        return self.problem.batch * self.problem.channels

    @property
    def rows(self) -> int:
        """Rows of the result, of positions."""
        return self.planes // self.pixel * self.plane_rows

    @property
    def plane_rows(self) -> int:
        """Rows of a plane of the result, or of a volume."""
        return math.prod(self.problem.src[:2])

    @property
    def touched(self) -> float:
        """Elements loaded and stored for each one of the result."""
        return 1 + math.prod(self.problem.dst) / math.prod(self.problem.src)

    @property
    def store_size(self) -> int:
        """Bytes of an element of the result."""
        return _arrays.DTYPES[self.problem.store_dtype].itemsize

    @property
    def past_the_caches(self) -> bool:
        """Whether no cache holds the tensors, as if diff_dst were of the result's type."""
        src, dst = (
            self.planes * math.prod(extents) * self.store_size
            for extents in (self.problem.src, self.problem.dst)
        )
        return _processor.past_the_caches(src, src + dst)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks and tasks of a kernel: whole blocks, about equal in what they load and store."""

    lanes: int  # elements side by side: channels of a block, rows with their pixels, planes
    columns: int  # of a block, at most, loaded or stored
    task_rows: int  # or planes of the result; the kernel of channels joins tasks
    task_columns: int
    tasks: int
    streams: bool  # results are stored past the caches
    stage: int = 0  # columns that are put together before they are stored so
    long_rows: int = 1  # of a batch of widths
    planes_at_once: int = 1  # planes that phases take by turns, and then make a task
    rows_in_cache: int = 1  # rows of the result that share what they read in a cache


def blocks_of(case: Case) -> Blocks:
    """Choose the blocks and tasks of a problem's kernel."""
    return _BLOCKS_OF[case.choice.kernel](case)


def _columns(case: Case, lanes: int, elements: int) -> int:
    """Return the columns of a block of so many elements, which holds the longest run."""
    longest_run: int = min(_kernels.MAX_RUN, case.longest[2])
    return max(longest_run, elements // lanes)


def _columns_of_strips(case: Case, lanes: int, elements: int) -> tuple[int, int]:
    """Return the columns of a block that is a strip of rows, and of a task of such."""
    longer = max(case.problem.src[2], case.problem.dst[2])
    columns = up(min(_columns(case, lanes, elements), longer), 16)
    return columns, columns * max(1, _TASK_ELEMENTS // (columns * lanes))


def _of_channels(case: Case) -> Blocks:
    problem = case.problem
    lanes = 1
    if case.innermost == "channels":
        run = up(min(_kernels.MAX_RUN, case.longest[2]), 16)
        limit = _RUN_BYTES // (case.size * run) // 16 * 16
        limit = max(_MIN_CHANNELS, min(_MAX_CHANNELS, limit))
        lanes = min(problem.channels, up(even(problem.channels, limit), 16))
    columns, task_columns = _columns_of_strips(case, lanes, _STRIP_ELEMENTS)
    tasks = -(-problem.src[2] // task_columns) * -(-problem.channels // lanes)
    row_bytes = min(columns, problem.dst[2]) * lanes * case.store_size * case.longest[0]
    rows_in_cache = max(1, int(_CACHE_BYTES / (row_bytes * problem.dst[1] / problem.src[1])))
    if problem.src[0] == 1 or rows_in_cache < _FEW_ROWS:
        rows_in_cache = problem.src[1]
    return Blocks(
        lanes,
        columns,
        # The kernel joins them, as many as leave every thread some.
        task_rows=1,
        task_columns=task_columns,
        tasks=tasks * problem.batch * case.plane_rows,
        streams=case.past_the_caches and lanes in (1, problem.channels),
        rows_in_cache=rows_in_cache,
    )


def _of_rows(case: Case) -> Blocks:
    lanes, width = _kernels.ROW_LANES * case.pixel, case.problem.src[2]
    columns, task_columns = _columns_of_strips(case, lanes, _BLOCK_ELEMENTS)
    row_elements = min(task_columns, width) * case.touched * lanes
    task_rows = _kernels.ROW_LANES * max(1, int(_TASK_ELEMENTS / row_elements))
    tasks = -(-case.rows // task_rows) * -(-width // task_columns)
    return Blocks(lanes, columns, task_rows, task_columns, tasks, streams=False)


def _of_planes(case: Case) -> Blocks:
    problem, lanes = case.problem, _kernels.ROW_LANES
    elements = math.prod(problem.src) + math.prod(problem.dst)
    task_rows = lanes * max(1, _TASK_ELEMENTS // (lanes * elements))
    return Blocks(
        lanes,
        _columns(case, lanes, _BLOCK_ELEMENTS),
        task_rows,
        task_columns=problem.src[2],
        tasks=-(-case.planes // task_rows),
        streams=case.past_the_caches,
    )


def _of_width(case: Case) -> Blocks:
    problem, pixel, table = case.problem, case.pixel, case.choice.width
    assert table is not None
    rows_of_batch = long_rows(table.kinds)
    of_long_rows = rows_of_batch * table.elements // table.group
    elements = max(table.elements, of_long_rows, batch_elements(problem))
    columns = -(-(elements + _kernels.WIDTH_REACH) // pixel)
    chunks = len(table.chunks) // _kernels.CHUNK_WORDS
    # Whole planes, where these are small.
    row_elements = problem.src[2] * case.touched * pixel / chunks
    unit = case.plane_rows
    if unit * row_elements > _TASK_ELEMENTS // 2:
        unit = table.group
    task_rows = unit * max(1, int(_TASK_ELEMENTS / (row_elements * unit)))
    streams = case.past_the_caches
    return Blocks(
        pixel,
        columns,
        task_rows,
        task_columns=problem.src[2],
        tasks=chunks * -(-case.rows // task_rows),
        streams=streams,
        stage=columns if streams else 0,
        long_rows=rows_of_batch,
    )


def _of_points(case: Case) -> Blocks:
    problem, pixel, table = case.problem, case.pixel, case.choice.points
    assert table is not None
    chunks = len(table.chunks) // _kernels.CHUNK_WORDS
    task_rows = max(1, int(_TASK_ELEMENTS / (problem.src[2] * pixel / chunks)))
    return Blocks(
        pixel,
        max(table.columns, -(-_kernels.PART_BYTES // (pixel * case.size))),
        task_rows,
        task_columns=problem.src[2],
        tasks=chunks * -(-case.rows // task_rows),
        streams=case.past_the_caches,
    )


def _of_phases(case: Case) -> Blocks:
    problem, table = case.problem, case.choice.phases
    assert table is not None
    chunk = min(CHUNK_ELEMENTS // table.scale, problem.src[2])
    chunks = -(-problem.src[2] // chunk)
    task_rows = max(1, _TASK_ELEMENTS // (chunk * (1 + table.scale)))
    tasks = chunks * -(-case.rows // task_rows)
    by_turns = planes_at_once(problem) if chunks == 1 else 1
    if by_turns > 1:
        task_rows, tasks = by_turns, problem.batch * -(-problem.channels // by_turns)
    # Between the loads of more than is stored, stores past the caches are slower, and always for
    # halves.
    most = _STREAM_GROWTH if case.store_size == 4 or table.spread > 1 else 0
    return Blocks(
        1,
        (chunk + 2 * _kernels.ROW_LANES) * table.scale,
        task_rows,
        task_columns=chunk,
        tasks=tasks,
        streams=case.past_the_caches and math.prod(problem.dst) <= most * math.prod(problem.src),
        planes_at_once=by_turns,
    )


_BLOCKS_OF = {
    "channels": _of_channels,
    "rows": _of_rows,
    "planes": _of_planes,
    "width": _of_width,
    "points": _of_points,
    "phases": _of_phases,
}
