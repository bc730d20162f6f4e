"""How long convolution kernels take, as estimated from what they do (see _convolution_counts).

The nanoseconds of each were fitted to the times of drawn problems on Zen 5, with every kernel that
can compute them, channels first and last: some 7,000 in float32 and float16 with vectors of 64 and
32 bytes, 1,100 in bfloat16. Half of the estimates are within a tenth; what is chosen takes 1.02
times as long as the best kernel, on average.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import sqrt

from gradops_cy import _convolution_depthwise_times
from gradops_cy._convolution_counts import COUNTS, Counts, Work
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DEPTHWISE,
    DOT,
    GROUPED,
    PAIRS,
    ROWS,
    SCATTER,
    UNFOLD,
    Layout,
    Tiles,
    goes_along_rows,
    pairs_channels,
)
from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_tile_counts import TILE_COUNTS
from gradops_cy._convolution_tile_times import TILE_NANOSECONDS

_NANOSECONDS: dict[int, Counts] = {
    ROWS: {
        "call": 5980,
        "rows of weights": 2.1,
        "weights from memory": 0.09,
        "products": 0.123,
        "taps of tiles": 4.0,
        "rows": 11.3,
        "blocks": 223,
        "results in place": 0.22,
        "results last": 1.35,
        "results of groups": 1.1,
        "results first": 1.28,
        "squares apart": 3.2,
        "window last": 0.79,
        "window first": 1.34,
        "window's runs last": 6.0,
        "window's runs first": 4.8,
    },
    COLUMNS: {
        "call": 6300,
        "weights": 0.113,
        "rows of weights": 2.4,
        "weights from memory": 0.9,
        "products": 0.109,
        "loads": 0.18,
        "sums": 0.71,
        "rows": 18.2,
        "rows joined": 9.4,
        "blocks": 134,
        "results last": 0.86,
        "results of halves last": 0.92,
        "results of groups": 0.38,
        "results' rows": 0.56,
        "results apart": 0.64,
        "results' rows apart": 1.06,
        "window last": 0.93,
        "window first": 0.52,
        "window sorted last": 1.23,
        "window sorted first": 0.92,
        "window's runs last": 20.2,
        "window's runs first": 1.5,
        "window's runs sorted last": 15.7,
        "window's runs sorted first": 3.1,
    },
    SCATTER: {
        "call": 8700,
        "weights": 0.14,
        "products": 0.136,
        "sums": 0.74,
        "rows": 2.8,
        "positions": 1.7,
        "images": 340,
        "transposed": 1.9,
        "results": 1.2,
        "results' rows": 5.2,
        "call along rows": 8700,
        "weights along rows": 0.85,
        "products along rows": 0.125,
        "sums along rows": 0.86,
        "rows along rows": 1.45,
        "results along rows": 4.0,
    },
    GROUPED: {
        "call": 6460,
        "weights": 0.285,
        "weights of vectors": 0.2,
        "vectors": 87,
        "products of lanes": 0.168,
        "products of a vector": 0.105,
        "products of quads": 0.112,
        "positions": 0.89,
        "rows": 7.5,
        "rows of quads": 28.7,
        "rows spread to lanes": 6.7,
        "spread to lanes": 0.32,
        "entries": 0.75,
        "rows of taps": 4.0,
        "taps of rows": 1.5,
        "spread to quads": 0.99,
        "results": 0.51,
        "window": 0.99,
        "window sorted": 1.56,
    },
}

# A call of DEPTHWISE, of which _convolution_depthwise_times tells the rest.
_CALL = 6300

# How the names of things begin that a call does once, and the images of a batch that shares them.
_ONCE = ("call", "weights", "rows of weights")
_BATCH = 8

# The same for bfloat16 whose pairs vectors multiply, and for kernels that convert it.
_NANOSECONDS_OF_PAIRS: dict[int, Counts] = {
    ROWS: {
        "call": 6170,
        "rows of weights": 2.6,
        "weights from memory": 0.06,
        "products": 0.121,
        "taps of tiles": 5.8,
        "rows": 11.4,
        "blocks": 69,
        "results last": 1.14,
        "results of groups": 2.0,
        "results first": 1.18,
        "squares apart": 4.75,
        "window last": 1.23,
        "window first": 2.16,
        "window's runs last": 3.7,
        "window's runs first": 3.3,
    },
    COLUMNS: {
        "call": 6790,
        "weights": 0.12,
        "rows of weights": 3.0,
        "weights from memory": 0.33,
        "products": 0.106,
        "loads": 0.29,
        "sums": 1.15,
        "rows": 23.9,
        "rows joined": 8.9,
        "blocks": 51,
        "results of halves last": 0.78,
        "results of groups": 0.65,
        "results' rows": 1.26,
        "results apart": 0.64,
        "results' rows apart": 2.2,
        "window last": 1.12,
        "window first": 0.43,
        "window sorted last": 1.68,
        "window sorted first": 0.61,
        "window's runs last": 15.5,
        "window's runs first": 1.66,
        "window's runs sorted last": 14.2,
        "window's runs sorted first": 3.2,
    },
    SCATTER: {
        "call": 8130,
        "weights": 0.14,
        "products": 0.137,
        "sums": 1.19,
        "rows": 4.1,
        "positions": 0.79,
        "images": 166,
        "transposed": 2.7,
        "results": 0.88,
        "results' rows": 10.9,
        "call along rows": 8810,
        "weights along rows": 0.43,
        "products along rows": 0.131,
        "sums along rows": 0.81,
        "rows along rows": 1.43,
        "results along rows": 4.8,
    },
    GROUPED: {
        "call": 6780,
        "weights": 0.93,
        "weights of vectors": 0.65,
        "products of lanes": 0.169,
        "products of a vector": 0.11,
        "products of quads": 0.122,
        "positions": 0.97,
        "rows": 10.9,
        "rows of quads": 24.2,
        "spread to lanes": 0.73,
        "entries": 0.75,
        "rows of taps": 4.0,
        "taps of rows": 1.5,
        "spread to quads": 1.19,
        "results": 0.18,
        "window": 1.7,
        "window sorted": 2.1,
    },
    DOT: {
        "call": 6350,
        "rows of weights": 1.67,
        "products": 0.117,
        "taps of tiles": 2.7,
        "rows": 10.7,
        "blocks": 107,
        "results last": 0.5,
        "results first": 1.66,
        "window last": 1.19,
        "window first": 1.2,
        "window's runs last": 8.1,
        "window's runs first": 9.0,
    },
    UNFOLD: {
        "call": 7310,
        "rows of weights": 1.7,
        "products": 0.12,
        "taps of tiles": 16.5,
        "rows": 28.4,
        "blocks": 107,
        "results last": 0.1,
        "results first": 0.74,
        "window last": 0.62,
        "window first": 1.18,
        "window's runs last": 5.1,
        "window's runs first": 2.4,
        "lines unfolded": 0.92,
    },
    PAIRS: {
        "call": 6190,
        "weights": 0.07,
        "products": 0.062,
        "loads": 1.19,
        "sums": 1.43,
        "blocks": 166,
        "window": 0.8,
        "window's runs": 5.9,
    },
}


# On Zen 4 a multiply-add of a vector takes two turns: whatever else a tile does goes on meanwhile,
# as most loads do.
_HALVED, _LOADS = 0.22, 0.3


# What else takes another time there, as fitted to 4,400 drawn problems.
_CHANGES_ON_ZEN4: dict[int, Counts] = {
    ROWS: {"taps of tiles": 5.6},
    COLUMNS: {"rows of weights": 7.2},
    GROUPED: {"positions": 0.45, "rows": 3.75},
    SCATTER: {"weights along rows": 0.43},
}
_CHANGES_ON_ZEN4_OF_PAIRS: dict[int, Counts] = {
    COLUMNS: {"window first": 0.86},
    DOT: {"results first": 1.16},
}


def _on_zen4(table: dict[int, Counts], changes: dict[int, Counts]) -> dict[int, Counts]:
    """Return a table with what takes another time on Zen 4."""
    found = {}
    for kernel, costs in table.items():
        products = {name: _HALVED for name in costs if name.startswith("products")}
        loads = {name: _LOADS * costs[name] for name in costs if name == "loads"}
        found[kernel] = costs | products | loads | changes.get(kernel, {})
    return found


_ON_ZEN4 = _on_zen4(_NANOSECONDS, _CHANGES_ON_ZEN4)
_ON_ZEN4_OF_PAIRS = _on_zen4(_NANOSECONDS_OF_PAIRS, _CHANGES_ON_ZEN4_OF_PAIRS)


def nanoseconds(
    problem: ConvProblem,
    layout: Layout,
    tiles: Tiles,
    assumed: int,
    parts: int,
    kernels: Iterable[int],
) -> dict[int, float]:
    """Estimate the times that kernels take for an image: alone, and of a batch, on average.

    What is computed must not depend on the batch. They multiply float32, or with one of `parts`
    pairs of bfloat16 if they can.
    """
    work = Work(problem, layout, tiles, assumed, parts)
    times = {}
    for kernel in kernels:
        once, each = _of_call_and_image(kernel, work)
        times[kernel] = sqrt((once + each) * (once / _BATCH + each))
    return times


def _of_call_and_image(kernel: int, work: Work) -> tuple[float, float]:
    """Return what a call takes whatever the batch, and for each image."""
    if kernel == DEPTHWISE:
        problem, tiles = work.problem, work.tiles
        rows, boxes = _convolution_depthwise_times.nanoseconds(
            problem, tiles.lanes, tiles.vector_pairs
        )
        along = goes_along_rows(problem, work.layout, tiles, kernel, work.parts, work.assumed)
        return _CALL, rows if along else boxes
    costs, counts = _costs(kernel, work)
    once = each = 0.0
    for name, count in counts.items():
        if name.startswith(_ONCE):
            once += costs[name] * count
        else:
            each += costs[name] * count
    return once, each


def _costs(kernel: int, work: Work) -> tuple[Counts, Counts]:
    """Return what a kernel takes for each thing that it does, and how many of these."""
    if work.tiles.amx:
        counts = TILE_COUNTS if work.parts else COUNTS
        return TILE_NANOSECONDS[work.parts][kernel], counts[kernel](work)
    table, of_pairs = _NANOSECONDS, _NANOSECONDS_OF_PAIRS
    if work.halved:
        table, of_pairs = _ON_ZEN4, _ON_ZEN4_OF_PAIRS
    in_pairs = work.parts > 0
    if kernel == GROUPED:
        in_pairs = pairs_channels(work.problem, work.tiles, work.assumed)
        if in_pairs:
            work = Work(work.problem, work.layout, work.tiles, work.assumed, work.parts, True)
    return (of_pairs if in_pairs else table)[kernel], COUNTS[kernel](work)
