"""Which kernel resamples a problem, and the tables of the width that it has of its own.

The kernels reduce depth and height while they load rows, then the width, in vectors whose lanes are

- channels, where these lie innermost and are many,
- positions along the width, picked by permutation, where channels are few or not innermost,
- the same, dealt out or spread, where the width grows or shrinks by 2, 4 or 8,
- elements of a row, zeros and all, where none of its columns reads more than one of diff_dst,
- 16 planes, transposed as a whole, where they fit a cache, or
- 16 rows of the result, with their channels where these lie innermost but are few, transposed in
  cache while they are reduced: for tiers that cannot permute, and for places that lie far apart.

All of them add in one order, so that they agree bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gradops_cy import _arrays, _isa
from gradops_cy._resampling_axis import AxisTable
from gradops_cy._resampling_phases import PhaseTable, phase_table
from gradops_cy._resampling_points import PointTable, point_table
from gradops_cy._resampling_problem import Innermost, ResampleProblem
from gradops_cy._resampling_times import Work
from gradops_cy._resampling_width import WidthTable, chains, width_table

_kernels = _isa.kernels("resampling")

# Where channels lie innermost, of as many the kernel of channels is the best, unless all is points;
# of the second where the width does not shrink. For tiers that cannot permute fewer than the third
# are worse lanes than rows; but fewer rows than the last never are good ones.
_MANY_CHANNELS, _MANY_OF_GROWTH = 32, 16
_FEW_CHANNELS = 8
_FEW_ROWS = 3
# Elements of both tensors up to which sixteen rows side by side are a choice where positions lie
# innermost: from more than caches near the core hold they come slowly.
_ROWS_ELEMENTS = 1 << 19
# The kernel of widths puts rows side by side up to so many elements loaded or stored, and cuts them
# into chunks of about so many elements.
_GROUP_ELEMENTS = 1024
CHUNK_ELEMENTS = 4096
_LONGEST_WIDTH = 1 << 20
# The scale from which on linear phases take two passes, and read each row once.
_SHARED_SCALE = 8
# Channels of a position of the kernel of points, all of which its buffers hold.
_MOST_CHANNELS = 4096
# Elements of both tensors from which on channels are better than points for halves that are rounded
# slowly, and of how few channels bfloat16 is where vectors are rounded by an instruction.
_ROUNDED_ELEMENTS = 1 << 19
_ROUNDED_CHANNELS = 64
# Elements of diff_dst and of the result that the kernel of planes may hold, and the fewest of its
# groups that keep threads busy; and the elements loaded and stored that are worth a thread.
_PLANE_ELEMENTS = 1 << 17
_PLANE_GROUPS = 4
THREAD_ELEMENTS = 1 << 15


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel and its tables: of widths, of phases, or of points.

    The products of a column are summed in so many chains, whatever the kernel. A row of diff_dst
    is read once for two of the result that it touches where it `shares`.
    """

    kernel: str
    chains: int
    shares: bool = False
    width: WidthTable | None = None
    phases: PhaseTable | None = None
    points: PointTable | None = None

    @property
    def has_tables(self) -> bool:
        """Whether the kernel has tables of the width of its own."""
        return bool(self.width or self.phases or self.points)


def choose(problem: ResampleProblem, innermost: Innermost, axes: list[AxisTable]) -> KernelChoice:
    """Choose a kernel; the result does not depend on it."""
    candidates = _Candidates(problem, innermost, axes)
    names = candidates.by_rules() if candidates.has_rules else candidates.by_time()
    # The last one always can.
    return next(choice for name in names if (choice := candidates.make(name)))


class _Candidates:
    """The kernels that may compute a problem, the best first."""

    def __init__(
        self, problem: ResampleProblem, innermost: Innermost, axes: list[AxisTable]
    ) -> None:
        self.problem, self.axes = problem, axes
        self.channels_last = innermost == "channels"
        # Channels belong to the positions of a row, or have rows of their own.
        self.pixel = problem.channels if self.channels_last else 1
        self.planes = problem.batch * problem.channels
        self.rows = self.planes // self.pixel * problem.src[0] * problem.src[1]
        self.permutes = _kernels.WIDTH_LANES > 0 and not problem.computes_f64
        self.chains = 1
        if self.permutes:
            lanes, longest = _kernels.WIDTH_LANES, _kernels.COLUMNS_IN_SEQUENCE
            self.chains = chains(axes[2], lanes, longest)
        self.longest = [axis.longest for axis in axes]
        self.plane_elements = math.prod(problem.src) + math.prod(problem.dst)
        self.elements = self.planes * self.plane_elements

    @cached_property
    def shares(self) -> bool:
        """Whether widths read a row of diff_dst once for two of the result."""
        return self.axes[1].shares

    @property
    def has_planes(self) -> bool:
        """Whether planes fit a cache, fill vectors, and leave every thread some."""
        planes, lanes = self.planes, _kernels.ROW_LANES
        groups = -(-planes // lanes)
        fits = lanes * self.plane_elements <= _PLANE_ELEMENTS
        fits = fits and groups * lanes <= planes + planes // 2
        alone = self.permutes and self.elements < 2 * THREAD_ELEMENTS
        return fits and (alone or groups >= _PLANE_GROUPS)

    @property
    def rounds_rows_alike(self) -> bool:
        """Whether to round rows that are the same once, as channels do, is what counts.

        So it is where all positions read something and take longer to round than to read.
        """
        problem = self.problem
        dtype = _arrays.DTYPE_NAMES[problem.store_dtype]
        slow = dtype in ("bf16", "f16") if _kernels.POINT_LANES < 16 else dtype == "bf16"
        if _isa.TIER in ("v4bf16", "amx"):
            slow = slow and problem.channels < _ROUNDED_CHANNELS
        large = problem.mode != "nearest" and self.elements >= _ROUNDED_ELEMENTS
        all_read = problem.dst[1] < problem.src[1] and self.axes[2].count.min() > 0
        return slow and large and bool(all_read)

    @property
    def has_rules(self) -> bool:
        """Whether channels lie innermost and are many, or none of them can be permuted."""
        shrinks = self.problem.dst[2] < self.problem.src[2]
        many = self.problem.channels >= (_MANY_CHANNELS if shrinks else _MANY_OF_GROWTH)
        return self.channels_last and (many or not self.permutes)

    def by_rules(self) -> Iterator[str]:
        """Name them where no times are known."""
        few = self.problem.channels < _FEW_CHANNELS and self.rows >= _FEW_ROWS
        alone = self.longest[0] * self.longest[1] == 1 and not self.rounds_rows_alike
        if few or alone:
            yield "points"
        yield "rows" if few else "channels"

    def by_time(self) -> Iterator[str]:
        """Name them for positions that lie innermost, or few channels, by the time they take."""
        if self.channels_last and max(self.longest) == 1:
            # Times tell nothing of what is rounded, nor of rows that are rounded once.
            wide = self.pixel >= _kernels.WIDTH_LANES
            yield "channels" if wide and self.rounds_rows_alike else "points"
        times = self.nanoseconds()
        yield from sorted(times, key=lambda name: times[name])
        yield "channels" if self.channels_last or self.rows < _FEW_ROWS else "rows"

    def nanoseconds(self) -> dict[str, float]:
        """Estimate the times of the kernels, whether or not their tables hold the problem."""
        work = self.work
        times = {"points": work.points()}
        if self.permutes:
            times["width"] = work.width(self.side_by_side)
        if self.channels_last:
            times["channels"] = work.channels()
        else:
            times["phases"] = work.phases()
            if self.has_planes:
                times["planes"] = work.planes_together()
        if self.rows >= _FEW_ROWS and (self.channels_last or self.elements <= _ROWS_ELEMENTS):
            times["rows"] = work.rows_together()
        return times

    def make(self, name: str) -> KernelChoice | None:
        """Return a kernel with its tables, or None if it cannot compute the problem."""
        if name == "points":
            points = self.points()
            return KernelChoice(name, self.chains, points=points) if points else None
        if name == "phases":
            phases = self.phases()
            shares = phases is not None and phases.scale >= _SHARED_SCALE
            shares = shares and self.problem.mode == "linear"
            return KernelChoice(name, self.chains, shares, phases=phases) if phases else None
        if name == "width":
            width = self.width_table()
            return KernelChoice(name, self.chains, self.shares, width=width) if width else None
        return KernelChoice(name, self.chains)

    def points(self) -> PointTable | None:
        """Return the table of points, or None where a column reads more than one."""
        depth, height, width = self.longest
        if self.problem.computes_f64 or width > 1 or self.pixel > _MOST_CHANNELS:
            return None
        if depth * height > _kernels.POINT_ROWS:
            return None
        lanes = _kernels.POINT_LANES
        return point_table(self.axes[2], self.pixel, lanes=lanes, limit=CHUNK_ELEMENTS)

    def phases(self) -> PhaseTable | None:
        """Return the table of phases, or None for rows that are narrow, or slow to convert.

        Those of another dtype than the result's go through buffers: widths are faster.
        """
        problem = self.problem
        dtypes = {_arrays.DTYPE_NAMES[code] for code in (problem.load_dtype, problem.store_dtype)}
        slow = "f16" in dtypes and not _kernels.PHASE_F16
        slow = slow or (self.permutes and len(dtypes) > 1)
        if slow or problem.computes_f64 or problem.src[2] <= _kernels.ROW_LANES:
            return None
        lanes, parts = _kernels.PHASE_LANES, _kernels.PHASE_PARTS > 0
        return phase_table(self.axes[2], problem.dst[2], lanes=lanes, parts=parts)

    @cached_property
    def work(self) -> Work:
        """What the problem consists of."""
        return Work(self.problem, self.axes, self.longest, self.pixel, self.chains, self.shares)

    @cached_property
    def side_by_side(self) -> int:
        """How many rows of the result the kernel of widths takes side by side."""
        row = max(self.problem.src[2], self.problem.dst[2]) * self.pixel
        most = max(1, min(self.rows, _kernels.ROW_LANES, _GROUP_ELEMENTS // row))
        return min(range(1, most + 1), key=self.work.summed)

    def width_table(self) -> WidthTable | None:
        """Return the table of a row, or None for one that is too long or reads far apart.

        Nor has a tier one that cannot permute.
        """
        src, dst = self.problem.src[2], self.problem.dst[2]
        if (
            not self.permutes
            or self.longest[2] > _kernels.COLUMNS_IN_SEQUENCE
            or src > _LONGEST_WIDTH
        ):
            return None
        return width_table(
            self.axes[2],
            dst,
            self.pixel,
            self.side_by_side,
            self.chains,
            lanes=_kernels.WIDTH_LANES,
            reach=_kernels.WIDTH_REACH,
            limit=int(CHUNK_ELEMENTS * min(1, src / dst)),
        )
