"""How long depthwise convolutions take channels first: along rows, or in boxes of channels.

Fitted to the times of 3,700 drawn problems on Zen 5, with vectors of 64 and 32 bytes. Along rows
half of the estimates are within a tenth, in boxes within a sixth. On Zen 4 what was fitted is the
choice: of 6,000 problems, and 1,200 batches that come from memory. Where sums roll, 6,800 problems
were timed there: the choice takes 1.01 to 1.02 times as long as the faster way, on average.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod

from gradops_cy._convolution_depthwise import (
    PLANE_BYTES,
    STRIDED_PLANE_BYTES,
    pairs_columns,
    pairs_rows,
    row_classes,
    strided,
    window_pitch,
)
from gradops_cy._convolution_problem import BLOCK_WIDTH, ConvProblem
from gradops_cy._convolution_rolling import rolls, work
from gradops_cy._convolution_taps import axes, counts
from gradops_cy._processor import ZEN4

# Rows and vectors of a tile, and strides by which vectors are dealt out in registers.
_TILE_ROWS, _TILE_VECTORS = 4, 4
_DEALT = (2, 4, 8)
# Bytes of a box, of a line of cache, and of what stands beside a window for each tap.
_BOX_BYTES, _LINE, _TAP_BYTES = 1 << 20, 64, 16
# What products of 64 bytes take on Zen 4, which multiplies halves of them.
_HALVED = 1.65

_NANOSECONDS_OF_ROWS = {
    "channels": 22.5,
    "weights": 0.98,
    "products": 0.132,
    "products alone": 0.25,
    "products of classes": 0.159,
    "products of pairs": 0.102,
    "products of strides": 0.5,
    "tiles": 8.8,
    "taps of tiles": 0.15,
    "results": 0.16,
    "window": 0.372,
    "window dealt": 0.58,
    "window taken apart": 2.45,
    "rows dealt": 6.7,
    "rows taken apart": 8.7,
}
# Where sums roll over rows, timed on Zen 4.
_NANOSECONDS_OF_ROLLS = {
    "channels": 7.1,
    "weights": 0.5,
    "tiles": 10.3,
    "rows": 0.247,
    "products": 0.235 / _HALVED,
    "products of pairs": 0.253 / _HALVED,
    "results": 1.11,
    "results of pairs": 0.321,
    "results of classes": 0.81,
    "results of pairs of classes": 0.397,
}
_NANOSECONDS_OF_BOXES = {
    "products": 0.157,
    "products of pairs": 0.033,
    "runs of taps": 0.35,
    "lines": 5.0,
    "window": 0.131,
    "window of halves": 0.211,
    "window of pairs": 0.0,
    "window sorted": 0.22,
    "results": 0.407,
}


def _on_zen4(costs: dict[str, float], others: dict[str, float]) -> dict[str, float]:
    """Return costs with products of 64 bytes, and what else takes another time, on Zen 4."""
    products = {name: _HALVED * cost for name, cost in costs.items() if name.startswith("products")}
    return costs | products | others


_ON_ZEN4_OF_ROLLS = _on_zen4(_NANOSECONDS_OF_ROLLS, {})
_ON_ZEN4_OF_ROWS = _on_zen4(
    _NANOSECONDS_OF_ROWS,
    {
        "channels": 13.5,
        "products alone": 0.3168,
        "products of strides": 0.3993,
        "window": 0.595,
        "window dealt": 0.348,
        "rows dealt": 4.02,
    },
)
_ON_ZEN4_OF_BOXES = _on_zen4(
    _NANOSECONDS_OF_BOXES,
    {
        "products of pairs": 0.08745,
        "lines": 6.25,
        "window": 0.105,
        "window of pairs": 0.16,
    },
)


def along_rows(problem: ConvProblem, lanes: int, vector_pairs: bool) -> bool:
    """Return whether positions of a row had best be lanes, where rows are dense.

    Then neighbours of a residue class read neighbouring columns, but last vectors have idle lanes.
    """
    rows, boxes = nanoseconds(problem, lanes, vector_pairs)
    return rows < boxes


# What chooses a kernel asks, and what decides how it goes.
@lru_cache(maxsize=64)
def nanoseconds(problem: ConvProblem, lanes: int, vector_pairs: bool) -> tuple[float, float]:
    """Estimate the times of an image along rows and in boxes, without that of the call.

    Infinite is what cannot be.
    """
    image = _Image(problem, lanes, vector_pairs)
    of_rows, of_rolls = _NANOSECONDS_OF_ROWS, _NANOSECONDS_OF_ROLLS
    of_boxes = _NANOSECONDS_OF_BOXES
    if ZEN4 and lanes * image.size == _LINE:
        of_rows, of_rolls, of_boxes = _ON_ZEN4_OF_ROWS, _ON_ZEN4_OF_ROLLS, _ON_ZEN4_OF_BOXES
    boxes = _time(image.in_boxes(), of_boxes)
    if not problem.transposed and problem.strides[2] not in (1, row_classes(problem)):
        return inf, boxes
    if rolls(problem, lanes, vector_pairs):
        return _time(work(problem, vector_pairs), of_rolls), boxes
    return _time(image.along_rows(), of_rows), boxes


def _time(done: dict[str, float], costs: dict[str, float]) -> float:
    """Add up what all that is done takes."""
    return sum(costs[name] * count for name, count in done.items())


class _Image:
    """What is done for an image of a problem."""

    def __init__(self, problem: ConvProblem, lanes: int, vector_pairs: bool) -> None:
        self.problem, self.lanes, self.vector_pairs = problem, lanes, vector_pairs
        self.size = 8 if problem.dtype == 3 else 4
        self.groups = problem.groups
        self.axes = axes(problem)
        # Positions and rows of a residue class; below rank 3 images stand on the first axis.
        depth, self.height, self.width = counts(problem)
        self.depth = depth if problem.rank == 3 else 1
        self.lines = self.depth * self.height
        self.classes = prod(axis.classes for axis in self.axes)
        self.taps = prod(map(len, self.axes))  # of all residue classes
        self.step = self.axes[2].in_step
        self.block = min(self.width, BLOCK_WIDTH)
        self.entries = (self.block - 1) * self.step + self.axes[2].span

    def rows_read(self, room: int) -> float:
        """Return how many rows a block reads for each of its own, of which it has room for so many.

        Infinite if there is not enough for one.
        """
        deep_axis, high_axis = self.axes[:2]
        least, deep = inf, 1
        while True:
            layers = (deep - 1) * deep_axis.in_step + deep_axis.span
            high = min(self.height, (room // layers - high_axis.span) // high_axis.in_step + 1)
            if high < 1:
                return least
            read = layers * ((high - 1) * high_axis.in_step + high_axis.span)
            least = min(least, read / (deep * high))
            if deep == self.depth:
                return least
            deep = min(2 * deep, self.depth)

    def along_rows(self) -> dict[str, float]:
        """Count what is done with positions for lanes."""
        problem, rows = self.problem, self.groups * self.lines
        vectors, together = -(-self.width // self.lanes), row_classes(problem)
        below = len(self.axes[1]) // self.axes[1].classes  # rows of taps that a row meets
        columns = strided(problem, self.lanes)
        kind = ""
        if columns:
            kind = " of strides"
        elif below == 1 or self.height == 1:
            kind = " alone"
        elif pairs_columns(problem, self.vector_pairs):
            kind = " of pairs"
        elif together > 1:
            kind = " of classes"
        pitch = window_pitch(self.block, self.axes[2].span, self.step, self.lanes) * self.size
        strides = problem.transposed and max(problem.strides) > 1
        room = (STRIDED_PLANE_BYTES if strides else PLANE_BYTES) - _TAP_BYTES * self.taps
        read = rows * self.rows_read(room // pitch)
        apart = ""
        if self.step > 1 and not columns:
            apart = " dealt" if self.step in _DEALT else " taken apart"
        in_rows = -(-vectors * together // _TILE_VECTORS) * self.classes / together
        tiles = rows / min(_TILE_ROWS, self.height) * in_rows
        done = {
            "channels": self.groups,
            "weights": self.groups * self.taps,
            f"products{kind}": rows * vectors * self.taps,
            "tiles": tiles,
            "taps of tiles": tiles * self.taps / self.classes * together / max(1, below),
            "results": rows * vectors * self.classes,
            f"window{apart}": read * self.width / self.block * -(-self.entries // self.lanes),
        }
        return done | {f"rows{apart}": read} if apart else done

    def in_boxes(self) -> dict[str, float]:
        """Count what is done with channels for lanes."""
        problem = self.problem
        vectors = -(-self.groups // self.lanes)
        lines = vectors * self.lines
        least = self.axes[0].span * self.axes[1].span
        room = _BOX_BYTES // (2 * self.lanes * self.entries * self.size)
        entries = min(self.entries * self.width / self.block, problem.diff_dst[2])
        read = lines * self.rows_read(max(room, least)) * entries
        turns = self.lanes.bit_length() - 1  # steps in which vectors of squares are transposed
        inside = problem.inside(1) * (problem.inside(0) if problem.rank == 3 else 1)
        pairs = " of pairs" if pairs_rows(problem, self.vector_pairs) else ""
        halves = " of halves" if problem.itemsize == 2 else ""
        done = {
            f"products{pairs}": lines * self.width * self.taps * inside,
            "lines": lines * self.classes,
            "runs of taps": lines * self.width * len(self.axes[0]) * len(self.axes[1]) * inside,
            f"window{pairs or halves}": turns * read,
            "results": turns * lines * self.width * self.classes,
        }
        return done | {"window sorted": read} if problem.transposed and self.step > 1 else done
