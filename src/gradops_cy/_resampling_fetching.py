"""What is asked for, or touched, of a diff_dst that no cache holds, before it is summed."""

from __future__ import annotations

import math

from gradops_cy import _arrays, _isa, _processor
from gradops_cy._resampling_problem import ResampleProblem
from gradops_cy._rounding import up

_kernels = _isa.kernels("resampling")

# The share of the largest cache beyond which rows are asked for in the order of memory, and that of
# channels: from that cache they come better side by side (1.05 to 1.3 times as fast).
_IN_ORDER, _IN_ORDER_CHANNELS = 0.25, 1.0
# Bytes of a diff_dst, more than a second-level cache holds, from which on rows are asked for before
# they are summed, and how many bytes before.
_FETCH_BYTES = 1 << 21
_AHEAD_BYTES = {
    "channels": 1 << 12 if _processor.AMD else 1 << 10,
    "width": 1 << 15,
    "rows": 0,
    "points": 1 << 13,
}
# The kernels that ask for rows in the first-level cache: on Zen 4 that takes the place of loads. On
# Zen 5 all of a sum's rows are asked for no farther than this together, so that it holds them.
_NEAR: frozenset[str] = frozenset()
if _processor.ZEN5:
    _NEAR = frozenset({"channels", "planes", "rows", "phases"})
elif _isa.TIER == "amx":
    _NEAR = frozenset({"channels", "planes"})
_NEAR_BYTES = 5 << 12
# Rows of channels that are shorter than this on Zen 5: beyond the end lies the next one, which is
# there already.
_SHORT_ROW_OF_CHANNELS_BYTES = 1 << 15
# Rows that lie within a few kilobytes, which AMD's prefetchers up to Zen 4 do not follow (7 of 24
# GB/s): what lies beyond a row's end is the next one, which is there already. Phases ask for those
# of so many rows of the result further on, or as many as so many bytes hold.
_ROWS_AHEAD = 16
_ROWS_AHEAD_BYTES = 1 << 14
# Rows of phases that are shorter than this come in the order of memory on Zen 5 too: side by side
# they came up to 2.8 times as slowly.
_SHORT_ROW_BYTES = 1 << 11
# Where two rows of the result share what they read, those of the next one are asked for, on Zen 5
# in the first-level cache if they are no longer than this.
_NEXT_ROWS_NEAR_BYTES = 3 << 13
# What channels ask for in the order of memory, of the next row of the result or of later ones: no
# more than this, half of the second-level cache.
_WHOLE_ROWS_BYTES = 1 << 19


def fetching_of(
    problem: ResampleProblem, kernel: str, lanes: int, pixel: int, products: int, shares: bool
) -> dict[str, int]:
    """Choose how diff_dst is read: `ahead`, `rows_ahead`, `in_order` and `asks_near`.

    A row of the result has up to `products` rows of diff_dst, which phases may share with the next
    one; positions have `pixel` elements.
    """
    one_by_one = kernel == "phases" and shares
    if one_by_one:
        kernel = "width"
    itemsize = _arrays.DTYPES[problem.load_dtype].itemsize
    plane_bytes = math.prod(problem.dst) * itemsize
    read = problem.bytes_read
    if read < _FETCH_BYTES:
        return {"ahead": 0, "rows_ahead": 0, "in_order": False, "asks_near": False}
    next_rows = max(1, problem.dst[1] // problem.src[1]) * problem.dst[2] * pixel * itemsize
    of_all_channels = problem.dst[2] * problem.channels * itemsize
    near = kernel in _NEAR
    if kernel == "channels" and _processor.ZEN5:
        # From memory whole rows are asked for instead, unless there are few for each row of the
        # result.
        short = of_all_channels < _SHORT_ROW_OF_CHANNELS_BYTES
        grows = math.prod(problem.dst) > math.prod(problem.src)
        near = not (short and grows and _processor.beyond_cache(read, _IN_ORDER_CHANNELS))
    share = _IN_ORDER_CHANNELS if kernel == "channels" else _IN_ORDER
    short = kernel == "phases" and problem.dst[2] * itemsize < _SHORT_ROW_BYTES
    in_order = (short or not near) and _processor.beyond_cache(read, share)
    if kernel == "planes":
        ahead = plane_bytes * lanes
    elif one_by_one and problem.src[0] == 1 and products > 1:
        near = _processor.ZEN5 and next_rows <= _NEXT_ROWS_NEAR_BYTES
        ahead = up(max(next_rows, _ROWS_AHEAD_BYTES) if in_order else next_rows, 64)
    elif kernel == "phases":
        ahead = 2 * max(1, min(_ROWS_AHEAD, _ROWS_AHEAD_BYTES // next_rows))
    elif kernel == "width":
        # From the third-level cache AMD's cores have what they read sooner without being asked.
        ahead = _AHEAD_BYTES[kernel] if in_order or not _processor.AMD else 0
    else:
        ahead = _AHEAD_BYTES[kernel]
        if _processor.ZEN5:
            ahead = min(ahead, _NEAR_BYTES // products // 64 * 64)
    if near and ahead:
        ahead += _kernels.NEAR
    rows_ahead = 0
    if kernel == "channels" and in_order:
        rows_ahead = _rows_ahead(problem, of_all_channels)
    return {
        "ahead": ahead,
        "rows_ahead": rows_ahead,
        "in_order": in_order,
        "asks_near": _processor.ZEN5,
    }


def _rows_ahead(problem: ResampleProblem, row_bytes: int) -> int:
    """Return how many rows of the result ahead whole rows are asked for; 0 for none."""
    new = row_bytes
    for src, dst in zip(problem.src[:2], problem.dst[:2], strict=True):
        new *= max(1, dst // src)
    if not _processor.AMD or new > _WHOLE_ROWS_BYTES:
        return 0
    return 1 if problem.src[0] > 1 else max(1, min(_ROWS_AHEAD, _ROWS_AHEAD_BYTES // new))
