"""How long resampling kernels take where positions lie innermost, as estimated from what they do.

The nanoseconds of each were fitted to the times of 4,000 drawn problems in cache on Zen 5, with
every kernel that can compute them: within a sixth for half of them, and what is chosen takes 1.025
times as long as the best kernel with vectors of 64 bytes, 1.02 with 32, on average.
"""

from __future__ import annotations

import math

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._resampling_axis import AxisTable
from gradops_cy._resampling_batches import batch_elements, period, planes_at_once
from gradops_cy._resampling_problem import ResampleProblem

_kernels = _isa.kernels("resampling")

# Nanoseconds for each thing that a kernel does, with vectors of 64 and of 32 bytes.
_NANOSECONDS = {
    16: {
        # A row of the result; a call that reduces rows alike, and its rows of diff_dst; vectors of
        # these, of few and of many rows; blocks, and picks of few and of many taps.
        "width": (0.9, 6.3, 1.2, 0.255, 0.42, 1.6, 0.15, 0.28),
        # The same where rows are loaded once for two: strips of a row of the result, and vectors
        # of diff_dst; a call for some planes; blocks, and picks of few and of many taps.
        "shared": (1.8, 0.52, 26.5, 1.48, 0.107, 0.29),
        # A row of the result, its blocks, those for each row of diff_dst; a call for rows alike.
        "phases": (1.8, 1.2, 0.37, 15.0),
        "spread": (1.3, 0.88, 0.2, 12.0),  # phases where the width shrinks
        # A row or a plane, a row that reads something, its blocks, those for each row of diff_dst.
        "points": (0.93, 2.7, 0.7, 0.7),
        # Sixteen planes, a row of these, a position transposed, and each tap.
        "planes": (64.0, 19.5, 2.12, 0.3),
        # Sixteen rows, and their columns; a row of diff_dst, and its vectors; a position, and taps.
        "rows": (170.0, 0.96, 1.4, 0.29, 2.6, 0.16),
    },
    8: {
        "width": (1.25, 6.0, 1.06, 0.185, 0.275, 1.15, 0.09, 0.09),
        "shared": (3.0, 0.37, 30.0, 1.24, 0.048, 0.081),
        "phases": (6.6, 0.95, 0.24, 4.9),
        "spread": (1.0, 1.1, 0.3, 5.0),
        "points": (1.05, 3.4, 0.45, 0.45),
        "planes": (66.0, 17.7, 2.6, 0.48),
        "rows": (185.0, 1.1, 1.4, 0.2, 2.7, 0.27),
    },
}
# What a tap of a block costs that is picked from one to three vectors, or from more in memory.
_PICKS = {16: (1.0, 1.25, 3.0, 4.0), 8: (1.0, 3.0, 5.0, 8.0)}
# More rows of diff_dst than this are many, as are more taps, or those of more chains.
_FEW_PRODUCTS, _FEW_TAPS, _FEW_CHAINS = 4, 8, 2
# With vectors of 64 bytes Intel was found to favour rows over planes by so much, and Zen 4 kernels
# that do not permute.
_PLANES_INTEL = 1.3
_PERMUTES_ZEN4 = 1.25
# How much longer than in cache phases take, beside widths, where so many bytes of float32 are read
# for each row of the result from memory.
_LONG_ROWS_BYTES, _PHASES_OF_LONG_ROWS = 1 << 14, 1.3
# And where halves are spread to results that are more than such a share of the largest cache.
_HALVES_IN_CACHE, _SPREAD_HALVES = 0.25, 1.5
_PERMUTING = ("width", "shared", "planes", "rows")


def pick_cost(vectors: int) -> float:
    """Return what a tap of a block of the kernel of widths costs that lies in so many vectors."""
    costs = _PICKS[_kernels.WIDTH_LANES]
    return costs[min(vectors, len(costs)) - 1]


class Work:
    """What a problem with these tables of its axes consists of, counted once for all kernels."""

    def __init__(
        self,
        problem: ResampleProblem,
        axes: list[AxisTable],
        longest: list[int],
        chains: int,
        shares: bool,
    ) -> None:
        self.problem, self.longest = problem, longest
        self.chains, self.shares = chains, shares
        self.lanes = _kernels.POINT_LANES
        self.planes: int = problem.batch * problem.channels
        self.rows = self.planes * problem.src[0] * problem.src[1]
        self.batch_rows = max(1, batch_elements(problem) // max(problem.src[2], problem.dst[2]))
        # Of diff_dst, those read for all of the result's of a plane.
        self.slices = float(axes[0].count.sum())
        self.itemsize: int = _arrays.DTYPES[problem.load_dtype].itemsize
        self.from_memory: bool = _processor.beyond_cache(problem.bytes_read)
        # Of a row of the result, on average.
        self.products = math.prod(float(axis.count.mean()) for axis in axes[:2])
        self.read = math.prod(float((axis.count > 0).mean()) for axis in axes[:2])
        self.taps = float(axes[2].count.mean())
        self.blocks = -(-problem.src[2] // self.lanes)
        self.vectors = -(-problem.dst[2] // self.lanes)

    def nanoseconds(self, kernel: str, *counts: float) -> float:
        """Return the time of what a kernel does so often."""
        costs = _NANOSECONDS[max(self.lanes, 8)][kernel]
        time = sum((cost * count for cost, count in zip(costs, counts, strict=True)), start=0.0)
        if self.lanes == 16 and kernel == "planes" and not _processor.AMD:
            time *= _PLANES_INTEL
        if _processor.ZEN4 and kernel in _PERMUTING:
            time *= _PERMUTES_ZEN4
        return time

    def width(self, blocks: float, picks: float) -> float:
        """Return the time of the kernel of widths, with so many blocks of a row and picks."""
        picks *= self.rows
        many = self.longest[2] > _FEW_TAPS or self.chains > _FEW_CHAINS
        summed = self.rows * blocks, *((0, picks) if many else (picks, 0))
        if self.shares:
            return self.nanoseconds("shared", *self._reduced_shared(), *summed)
        return self.nanoseconds("width", *self._reduced_alike(), *summed)

    def _reduced_alike(self) -> tuple[float, ...]:
        """Return what widths do to reduce depth and height, of rows that are alike."""
        problem, rows = self.problem, self.rows
        products = self.longest[0] * self.longest[1]
        kinds = period(problem, 1, products)
        alike = problem.dst[1] * kinds % problem.src[1] == 0
        kinds = problem.src[0] * (kinds if alike else problem.src[1])
        calls = rows / max(1, min(rows, self.batch_rows) // kinds)
        vectors = rows * self.products * self.vectors
        of_rows = (0, vectors) if products > _FEW_PRODUCTS else (vectors, 0)
        return rows, calls, calls * self.products, *of_rows

    def _reduced_shared(self) -> tuple[float, ...]:
        """Return the same where each row of diff_dst is loaded once."""
        src, dst = self.problem.src, self.problem.dst
        together = max(1, min(self.planes, self.batch_rows // (src[0] * src[1])))
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
        to_memory = _processor.beyond_cache(problem.bytes_written, _HALVES_IN_CACHE)
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
        columns, positions = self.problem.dst[2], self.problem.src[2]
        groups, products = -(-self.rows // _kernels.ROW_LANES), self.rows * self.products
        loaded = groups, groups * columns, products, products * self.vectors
        summed = groups * positions, groups * positions * self.taps
        return self.nanoseconds("rows", *loaded, *summed)
