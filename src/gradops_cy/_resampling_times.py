"""How long resampling kernels take, as estimated from what they do.

The nanoseconds of each were fitted to the times of drawn problems in cache on Zen 5, 4,000 of each
layout and vector length, with every kernel that can compute them: within a sixth for half of them.
What is chosen takes 1.016 times as long as the best kernel channels first, and of few channels last
1.02 with vectors of 64 bytes and 1.03 with 32, on average.
"""

from __future__ import annotations

import math
from functools import cached_property

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._resampling_axis import AxisTable
from gradops_cy._resampling_batches import batch_elements, long_rows, period, planes_at_once
from gradops_cy._resampling_problem import ResampleProblem

_kernels = _isa.kernels("resampling")

# Nanoseconds for each thing that a kernel does, with vectors of 64 and of 32 bytes.
_NANOSECONDS = {
    16: {
        # The first pass of widths: a call that reduces rows alike, its rows of diff_dst, vectors of
        # these, of few and of many rows. Where rows are loaded once for two: strips of a row of
        # the result, vectors of diff_dst, a call for some planes.
        "width": (10.2, 0.86, 0.54, 0.485),
        "shared": (1.67, 0.555, 18.0),
        # The second one: blocks, patterns that are set up for a batch, and their steps.
        "summed": (1.34, 3.1, 0.64),
        # A row of the result, its blocks, those for each row of diff_dst; a call for rows alike.
        "phases": (1.8, 1.2, 0.37, 15.0),
        "spread": (1.3, 0.88, 0.2, 12.0),  # phases where the width shrinks
        # A row or a plane, a row that reads something, its blocks, those for each row of diff_dst.
        "points": (0.93, 2.7, 0.7, 0.7),
        # Sixteen planes, a row of these, a position transposed, and each tap.
        "planes": (64.0, 19.5, 2.12, 0.3),
        # Sixteen rows, and their columns; a row of diff_dst, and its vectors; a position, and taps.
        "rows": (178.0, 1.38, 1.22, 0.36, 1.42, 0.167),
        # A row of the result that reads something; rows of diff_dst, and vectors of these that are
        # loaded; vectors of positions, and of their taps. In one pass (nearest): positions, and the
        # vectors that they read.
        "channels": (11.3, 1.93, 0.5, 1.72, 0.55),
        "boxes": (1.97, 0.48),
    },
    8: {
        "width": (9.3, 0.47, 0.31, 0.305),
        "shared": (2.07, 0.4, 3.2),
        "summed": (1.1, 0.2, 0.91),
        "phases": (6.6, 0.95, 0.24, 4.9),
        "spread": (1.0, 1.1, 0.3, 5.0),
        "points": (1.05, 3.4, 0.45, 0.45),
        "planes": (66.0, 17.7, 2.6, 0.48),
        "rows": (193.0, 1.35, 1.28, 0.23, 2.34, 0.363),
        "channels": (14.8, 3.33, 0.36, 0.99, 0.54),
        "boxes": (2.3, 0.4),
    },
}
# A tap of a block of widths: those of all lie in a window of one to three vectors; each lies in
# two, alone or beside others in parts; places lie in four vectors, or in eight.
_WINDOWS = {16: (0.23, 0.23, 0.39), 8: (0.29, 0.28, 0.44)}
_PAIRS, _PARTS = {16: 0.69, 8: 0.49}, {16: 0.83, 8: 0.47}
_FAR = {16: (1.41, 1.96), 8: (0.51, 0.65)}
# Patterns that come again after so many blocks are set up once for a batch: MOST_UNTIL_AGAIN.
_MOST_KINDS = 16
# More rows of diff_dst than this are many.
_FEW_PRODUCTS = 4
# With vectors of 64 bytes Intel was found to favour rows over planes by so much, and Zen 4 kernels
# that do not permute.
_PLANES_INTEL = 1.3
_PERMUTES_ZEN4 = 1.25
# How much longer than where it grows rows take where the width shrinks, with vectors of 64 bytes,
# and channels that are fewer than a vector has lanes; and others.
_ROWS_OF_SHRINKING, _CHANNELS_OF_SHRINKING = 1.2, (1.25, 0.9)
# How much longer than in cache phases take, beside widths, where so many bytes of float32 are read
# for each row of the result from memory.
_LONG_ROWS_BYTES, _PHASES_OF_LONG_ROWS = 1 << 14, 1.3
# And where a tensor is more than such a share of the largest cache: diff_dst, for rows and widths
# beside channels that lie innermost; or the result that halves are spread to. Widths of volumes, of
# planes that grow by so much and by less, and where rows are read again, most of them from cache.
_IN_CACHE, _ROWS_FROM_AFAR = 0.25, 1.4
_VOLUMES_FROM_AFAR, _MUCH, _MUCH_FROM_AFAR, _PLANES_FROM_AFAR, _READ_AGAIN = 1.3, 6, 1.6, 1.1, 0.75
_SPREAD_HALVES = 1.5
_PERMUTING = ("width", "shared", "summed", "planes", "rows")


class Work:
    """What a problem with these tables of its axes consists of, counted once for all kernels."""

    def __init__(
        self,
        problem: ResampleProblem,
        axes: list[AxisTable],
        longest: list[int],
        pixel: int,
        chains: int,
        shares: bool,
    ) -> None:
        self.problem, self.longest, self.pixel = problem, longest, pixel
        self.chains, self.shares = chains, shares
        self.lanes: int = _kernels.POINT_LANES
        # Channels that belong to positions are elements of a row, else they are planes.
        self.planes: int = problem.batch * problem.channels // pixel
        self.plane_rows: int = problem.src[0] * problem.src[1]
        self.rows = self.planes * self.plane_rows
        self.positions, self.columns = problem.src[2] * pixel, problem.dst[2] * pixel
        self.batch_rows = max(1, batch_elements(problem) // max(self.positions, self.columns))
        # Of diff_dst, the slices and the rows of one that are read for all of the result's.
        self.slices = float(axes[0].count.sum())
        self.reads = int(axes[1].count.sum())
        self.itemsize: int = _arrays.DTYPES[problem.load_dtype].itemsize
        self.from_memory: bool = _processor.beyond_cache(problem.bytes_read)
        self.leaves_cache: bool = _processor.beyond_cache(problem.bytes_read, _IN_CACHE)
        # Of a row of the result, on average.
        self.products = math.prod(float(axis.count.mean()) for axis in axes[:2])
        self.read = math.prod(float((axis.count > 0).mean()) for axis in axes[:2])
        self.taps = float(axes[2].count.mean())
        self.blocks = -(-self.positions // self.lanes)
        self.vectors = -(-self.columns // self.lanes)

    def nanoseconds(self, kernel: str, *counts: float) -> float:
        """Return the time of what a kernel does so often."""
        costs = _NANOSECONDS[max(self.lanes, 8)][kernel]
        time = sum((cost * count for cost, count in zip(costs, counts, strict=True)), start=0.0)
        return time * self.slower(kernel)

    def slower(self, kernel: str) -> float:
        """Return how much longer a kernel was found to take than in cache on Zen 5."""
        factor = 1.0
        if self.lanes == 16 and kernel == "planes" and not _processor.AMD:
            factor *= _PLANES_INTEL
        if _processor.ZEN4 and kernel in _PERMUTING:
            factor *= _PERMUTES_ZEN4
        return factor

    def from_afar(self, kernel: str) -> float:
        """Return how much longer it takes, beside channels that lie innermost, not from cache."""
        src, dst = self.problem.src, self.problem.dst
        if self.pixel == 1 or not self.leaves_cache:
            return 1.0
        if kernel == "rows":
            return _ROWS_FROM_AFAR
        if self.reads > 2 * dst[1]:
            return _READ_AGAIN
        if src[0] > 1:
            return _VOLUMES_FROM_AFAR
        much = self.shares and dst[1] >= _MUCH * src[1]
        return _MUCH_FROM_AFAR if much else _PLANES_FROM_AFAR

    def width(self, side: int) -> float:
        """Return the time of the kernel of widths, with so many rows side by side."""
        if self.shares:
            time = self.nanoseconds("shared", *self._reduced_shared())
        else:
            time = self.nanoseconds("width", *self._reduced_alike())
        return (time + self.summed(side)) * self.from_afar("width")

    def summed(self, side: int) -> float:
        """Return the time of the second pass of widths."""
        of_side = -(-side * self.positions // self.lanes)
        blocks = of_side / side * self.rows
        # The first and the last block differ.
        runs = min(of_side, self.kinds + 2 if self.kinds <= _MOST_KINDS else of_side)
        steps, cost = self._taps(min(self.lanes, side * self.positions))
        block, pattern, step = _NANOSECONDS[self.lanes]["summed"]
        time = blocks * (block + steps * cost) + runs * self.batches * (pattern + steps * step)
        return time * self.slower("summed")

    @cached_property
    def kinds(self) -> int:
        """After how many blocks of widths their patterns come again."""
        terms = self.problem.src[2] // math.gcd(self.problem.src[2], self.problem.dst[2])
        return terms * self.pixel // math.gcd(terms * self.pixel, self.lanes)

    @cached_property
    def batches(self) -> int:
        """How many batches of rows the kernel of widths takes."""
        rows = self.batch_rows
        if rows < 2 * self.plane_rows:
            rows = max(rows // 2, long_rows(self.kinds))
        return -(-self.rows // rows)

    def _taps(self, places: int) -> tuple[int, float]:
        # The taps of a block with so many places, and the time of one by where they lie.
        taps, chains, lanes, pixel = self.longest[2], self.chains, self.lanes, self.pixel
        growth, windows = self.columns / self.positions - 1, _WINDOWS[lanes]

        def reach(places: int) -> int:
            # Over how many elements they lie.
            moves = places - pixel if places % pixel == 0 else places - 1
            return math.ceil(places + moves * growth)

        of_part = reach(min(places, lanes // chains))
        window = of_part + (taps - 1) * pixel
        in_window = chains <= 2 and window <= len(windows) * lanes
        if of_part + (chains - 1) * pixel > 2 * lanes:
            far = chains == 4 or reach(places) > 4 * lanes
            in_window = in_window and chains == 1
            cost = _FAR[lanes][far]
        else:
            taps = -(-taps // chains) * chains
            cost = _PAIRS[lanes] if chains == 1 else _PARTS[lanes]
        return taps, windows[max(0, -(-window // lanes) - 1)] if in_window else cost

    def _reduced_alike(self) -> tuple[float, ...]:
        """Return what widths do to reduce depth and height, of rows that are alike."""
        problem, rows = self.problem, self.rows
        products = self.longest[0] * self.longest[1]
        kinds = period(problem, self.pixel, products)
        alike = problem.dst[1] * kinds % problem.src[1] == 0
        kinds = problem.src[0] * (kinds if alike else problem.src[1])
        calls = rows / max(1, min(rows, self.batch_rows) // kinds)
        vectors = rows * self.products * self.vectors
        of_rows = (0, vectors) if products > _FEW_PRODUCTS else (vectors, 0)
        return calls, calls * self.products, *of_rows

    def _reduced_shared(self) -> tuple[float, ...]:
        """Return the same where each row of diff_dst is loaded once."""
        src, dst = self.problem.src, self.problem.dst
        together = max(1, min(self.planes, self.batch_rows // self.plane_rows))
        calls = self.planes * src[0] / together * max(1, src[1] / self.batch_rows)
        # A strip has four vectors, of several planes where these are narrow.
        narrow = max(1, min(together, 4 // self.vectors))
        strips = self.rows * -(-self.vectors // 4) / narrow
        return strips, self.planes * self.slices * dst[1] * self.vectors, calls

    def phases(self) -> float:
        """Return the time of the kernel of phases."""
        problem = self.problem
        growth = problem.dst[2] / problem.src[2]
        blocks = self.rows * self.blocks
        alike = problem.dst[1] % problem.src[1] == 0
        # Of rows alike, the first and the last of a plane are others.
        calls = (3 * self.planes * problem.src[0] if alike else self.rows) / planes_at_once(problem)
        products = blocks * self.products * max(1.0, growth)
        kind = "spread" if growth < 1 else "phases"
        time = self.nanoseconds(kind, self.rows, blocks * self.read, products, calls)
        new_bytes = problem.dst[1] / problem.src[1] * problem.dst[2] * self.itemsize
        if self.itemsize == 4 and new_bytes >= _LONG_ROWS_BYTES and self.from_memory:
            time *= _PHASES_OF_LONG_ROWS
        to_memory = _processor.beyond_cache(problem.bytes_written, _IN_CACHE)
        if kind == "spread" and self.itemsize == 2 and to_memory:
            time *= _SPREAD_HALVES
        return time

    def points(self) -> float:
        """Return the time of the kernel of points."""
        read = self.rows * self.read
        products = self.rows * self.blocks * self.products
        both = self.planes + self.rows
        return self.nanoseconds("points", both, read, read * self.blocks, products)

    def planes_together(self) -> float:
        """Return the time of the kernel of planes."""
        src, dst = math.prod(self.problem.src), math.prod(self.problem.dst)
        rows, groups = src // self.problem.src[2], -(-self.planes // _kernels.ROW_LANES)
        return self.nanoseconds(
            "planes", groups, groups * rows, groups * (src + dst), groups * src * self.taps
        )

    def rows_together(self) -> float:
        """Return the time of the kernel of rows."""
        groups, products = -(-self.rows // _kernels.ROW_LANES), self.rows * self.products
        loaded = groups, groups * self.columns, products, products * self.vectors
        summed = groups * self.positions, groups * self.positions * self.taps
        time = self.nanoseconds("rows", *loaded, *summed) * self.from_afar("rows")
        slow = self.pixel > 1 and self.lanes == 16 and self.columns < self.positions
        return time * _ROWS_OF_SHRINKING if slow else time

    def channels(self) -> float:
        """Return the time of the kernel of channels, for those that lie innermost."""
        depth, height, width = self.longest
        positions, vectors = self.rows * self.problem.src[2], -(-self.pixel // self.lanes)
        taps = positions * vectors * self.taps
        few = depth * height <= _kernels.ROWS_OF_A_PLANE and width <= _kernels.COLUMNS_IN_SEQUENCE
        if self.problem.mode == "nearest" and few:
            return self.nanoseconds("boxes", positions, taps * self.products)
        loaded = self.planes * self.slices * self.problem.dst[1] * self.vectors
        of_rows = self.rows * self.read, self.rows * self.products, loaded
        time = self.nanoseconds("channels", *of_rows, positions * vectors, taps)
        if self.columns < self.positions:
            time *= _CHANNELS_OF_SHRINKING[self.pixel >= self.lanes]
        return time
