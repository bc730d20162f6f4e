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

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._resampling_axis import AxisTable
from gradops_cy._resampling_phases import PhaseTable, phase_table
from gradops_cy._resampling_points import PointTable, point_table
from gradops_cy._resampling_problem import Innermost, ResampleProblem
from gradops_cy._resampling_width import WidthTable, chains, width_table

_kernels = _isa.kernels("resampling")

# Fewer channels than this are worse lanes than rows, but not than fewer rows than this.
_FEW_CHANNELS = 8
_FEW_ROWS = 3
# The kernel of widths takes NXC with fewer channels than this, or than the second where the width
# does not grow and there is little to sum: nearest, or linear that shrinks by the third. It puts
# rows side by side up to so many elements loaded or stored, and cuts them into chunks of about so
# many elements.
_KERNEL_WIDTH_CHANNELS = 16
_KERNEL_WIDTH_CHANNELS_SPARSE = 32
_SPARSE = 3
_GROUP_ELEMENTS = 1024
CHUNK_ELEMENTS = 4096
# Elements of the rows that it reduces, or their sums, before others follow. Volumes have few rows
# that are alike, and more planes of them share what each costs before it begins.
_BATCH_ELEMENTS, _BATCH_ELEMENTS_OF_VOLUMES = 6144, 24576
_LONGEST_WIDTH = 1 << 20
# Channels of a position of the kernel of points, all of which its buffers hold.
_MOST_CHANNELS = 4096
# Elements of diff_dst and of the result that the kernel of planes may hold, and the fewest of its
# groups that keep threads busy; and the elements loaded and stored that are worth a thread.
_PLANE_ELEMENTS = 1 << 17
_PLANE_GROUPS = 4
THREAD_ELEMENTS = 1 << 15

# Nanoseconds of the kernels of positions and planes for each thing that they do, as fitted to the
# times of thousands of drawn problems on Zen 5, with vectors of 64 and of 32 bytes: within a fifth
# for half of them, and what is chosen takes 1.05 times as long as the best one, on average. Those
# of widths, which sum rows by batches since then, were fitted on Zen 4, relative to what the others
# take there, and those of planes again: what is chosen there takes 1.02 times as long.
_NANOSECONDS = {
    16: {
        # A row of the result, its rows of diff_dst of a batch, vectors of these, blocks and picks.
        "width": (1.5, 2.0, 0.5, 2.2, 0.2),
        # A row of the result, its blocks, those for each row of diff_dst.
        "phases": (2.0, 0.75, 0.45),
        "spread": (2.6, 0.65, 0.3),  # phases where the width shrinks
        # A row or a plane, a row that reads something, its blocks, those for each row of diff_dst.
        "points": (1.4, 3.0, 0.3, 1.0),
        # Sixteen planes, a row of these, a position transposed, and each tap.
        "planes": (185.0, 26.5, 2.4, 0.7),
    },
    8: {
        "width": (2.0, 2.0, 0.3, 1.5, 0.1),
        "phases": (2.5, 0.5, 0.4),
        "spread": (1.0, 1.1, 0.3),
        "points": (1.6, 7.1, 0.2, 0.8),
        "planes": (225.0, 29.0, 2.7, 1.1),
    },
}
# What a tap of a block costs that is picked from one to three vectors, or from more in memory.
_PICKS = {16: (1.0, 1.25, 3.0, 4.0), 8: (1.0, 3.0, 5.0, 8.0)}
# With vectors of 64 bytes Intel was found to favour rows over planes by so much, and Zen 4 all
# other kernels over phases where the width shrinks.
_PLANES_INTEL = 1.3
_SPREAD_ZEN4 = 2.0


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """A kernel and its tables: of widths, of phases, or of points.

    The products of a column are summed in so many chains, whatever the kernel.
    """

    kernel: str
    chains: int
    width: WidthTable | None = None
    phases: PhaseTable | None = None
    points: PointTable | None = None

    @property
    def has_tables(self) -> bool:
        """Whether the kernel has tables of the width of its own."""
        return bool(self.width or self.phases or self.points)


def batch_elements(problem: ResampleProblem) -> int:
    """Return the elements of a batch of rows of the kernel of widths."""
    return _BATCH_ELEMENTS_OF_VOLUMES if problem.src[0] > 1 else _BATCH_ELEMENTS


def choose(problem: ResampleProblem, innermost: Innermost, axes: list[AxisTable]) -> KernelChoice:
    """Choose a kernel; the result does not depend on it."""
    candidates = _Candidates(problem, innermost, axes)
    names = candidates.by_rules() if innermost == "channels" else candidates.by_time()
    # The last one always can.
    return next(choice for name in names if (choice := candidates.make(name)))


class _Candidates:
    """The kernels that may compute a problem, the best first."""

    def __init__(
        self, problem: ResampleProblem, innermost: Innermost, axes: list[AxisTable]
    ) -> None:
        self.problem, self.axes = problem, axes
        # Channels belong to the positions of a row, or have rows of their own.
        self.pixel = problem.channels if innermost == "channels" else 1
        planes = problem.batch * problem.channels // self.pixel
        self.rows = planes * problem.src[0] * problem.src[1]
        self.permutes = _kernels.WIDTH_LANES > 0 and not problem.computes_f64
        self.chains = 1
        if self.permutes:
            lanes, longest = _kernels.WIDTH_LANES, _kernels.COLUMNS_IN_SEQUENCE
            self.chains = chains(axes[2], lanes, longest)
        self.longest = [int(axis.count.max()) for axis in axes]

    @property
    def has_planes(self) -> bool:
        """Whether planes fit a cache, fill vectors, and leave every thread some."""
        problem, lanes = self.problem, _kernels.ROW_LANES
        planes = problem.batch * problem.channels
        elements = math.prod(problem.src) + math.prod(problem.dst)
        groups = -(-planes // lanes)
        fits = lanes * elements <= _PLANE_ELEMENTS and groups * lanes <= planes + planes // 2
        alone = self.permutes and planes * elements < 2 * THREAD_ELEMENTS
        return fits and (alone or groups >= _PLANE_GROUPS)

    def by_rules(self) -> Iterator[str]:
        """Name them for channels that lie innermost."""
        problem = self.problem
        limit = _KERNEL_WIDTH_CHANNELS
        sparse = 1 if problem.mode == "nearest" else _SPARSE
        if problem.dst[2] * sparse <= problem.src[2]:
            limit = _KERNEL_WIDTH_CHANNELS_SPARSE
        widths = self.permutes and problem.channels < limit
        few = problem.channels < _FEW_CHANNELS and self.rows >= _FEW_ROWS
        if widths or few or self.longest[0] * self.longest[1] == 1:
            yield "points"
        if widths:
            yield "width"
            few = problem.channels < _KERNEL_WIDTH_CHANNELS
        yield "rows" if few else "channels"

    def by_time(self) -> list[str]:
        """Name them for positions that lie innermost, by the time that they take."""
        times = self.nanoseconds()
        names = sorted(times, key=lambda name: times[name])
        return [*names, "rows" if self.rows >= _FEW_ROWS else "channels"]

    def nanoseconds(self) -> dict[str, float]:
        """Estimate the times of all but rows, whether or not their tables hold the problem."""
        problem, rows = self.problem, self.rows
        planes = problem.batch * problem.channels
        src, dst = math.prod(problem.src), math.prod(problem.dst)
        extent, columns = problem.src[2], problem.dst[2]
        products = math.prod(float(axis.count.mean()) for axis in self.axes[:2])
        read = math.prod(float((axis.count > 0).mean()) for axis in self.axes[:2])
        taps = float(self.axes[2].count.mean())
        lanes = _kernels.POINT_LANES
        of = _NANOSECONDS[max(lanes, 8)]
        blocks = -(-extent // lanes)
        times = {}

        if self.has_planes:
            groups = -(-planes // _kernels.ROW_LANES)
            group, row, moved, tap = of["planes"]
            each = group + row * src / extent + moved * (src + dst) + tap * src * taps
            times["planes"] = groups * each
            if lanes == 16 and not _processor.AMD:
                times["planes"] *= _PLANES_INTEL
        if self.permutes:
            row, product, vector, block, pick = of["width"]
            blocks_of_row, picks = self.blocks(self.side_by_side)
            elements = max(extent, columns) * problem.src[0] * problem.src[1]
            together = max(1, min(planes, batch_elements(problem) // elements))
            reduced = products * (product / together + vector * -(-columns // lanes))
            times["width"] = rows * (row + reduced + block * blocks_of_row + pick * picks)
        kind = "spread" if columns < extent else "phases"
        row, block, product = of[kind]
        each = row + blocks * (block * read + product * products * max(1.0, columns / extent))
        times["phases"] = rows * each
        if kind == "spread" and _processor.ZEN4:
            times["phases"] *= _SPREAD_ZEN4
        plane, row, block, product = of["points"]
        each = plane + row * read + blocks * (block * read + product * products)
        times["points"] = planes * plane + rows * each
        return times

    def make(self, name: str) -> KernelChoice | None:
        """Return a kernel with its tables, or None if it cannot compute the problem."""
        if name == "points":
            points = self.points()
            return KernelChoice(name, self.chains, points=points) if points else None
        if name == "phases":
            phases = self.phases()
            return KernelChoice(name, self.chains, phases=phases) if phases else None
        if name == "width":
            width = self.width_table()
            return KernelChoice(name, self.chains, width=width) if width else None
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
        """Return the table of phases, or None for rows that are narrow, or slow to convert."""
        problem = self.problem
        dtypes = {_arrays.DTYPE_NAMES[code] for code in (problem.load_dtype, problem.store_dtype)}
        converts = _kernels.PHASE_F16 or "f16" not in dtypes
        if not converts or problem.computes_f64 or problem.src[2] <= _kernels.ROW_LANES:
            return None
        lanes, parts = _kernels.PHASE_LANES, _kernels.PHASE_PARTS > 0
        return phase_table(self.axes[2], problem.dst[2], lanes=lanes, parts=parts)

    @cached_property
    def side_by_side(self) -> int:
        """How many rows of the result the kernel of widths takes side by side."""
        row = max(self.problem.src[2], self.problem.dst[2]) * self.pixel
        most = max(1, min(self.rows, _kernels.ROW_LANES, _GROUP_ELEMENTS // row))
        return min(range(1, most + 1), key=lambda rows: sum(self.blocks(rows)))

    def blocks(self, rows: int) -> tuple[float, float]:
        """Return the blocks of a row, of so many side by side, and what they pick, by its cost."""
        lanes, taps = _kernels.WIDTH_LANES, self.longest[2]
        extent, columns = self.problem.src[2] * self.pixel, self.problem.dst[2] * self.pixel
        blocks = -(-rows * extent // lanes)
        # A part of a block reads so many columns, more where it is of two rows.
        positions = min(lanes // self.chains, rows * extent)
        reach = -(-positions * columns // extent) + taps * self.pixel * (1 + (rows > 1))
        vectors = -(-min(reach, rows * columns) // lanes)
        cost = _PICKS[lanes][min(vectors, len(_PICKS[lanes])) - 1]
        return blocks / rows, blocks / rows * taps * cost

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
