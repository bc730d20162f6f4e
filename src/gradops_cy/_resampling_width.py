"""The tables of the kernel whose width pass has its lanes along the row.

A group of rows side by side, each of so many positions of so many channels, is cut into blocks of
one vector. A block's position i sums the elements ``base + place[i] + k·channels`` of the reduced
rows for ``k < count[i]``. Blocks that differ in their base alone share a pattern: where the ratio
of the extents is a small one, as two, that leaves a few patterns for a row of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._distinct import Ints, distinct
from gradops_cy._resampling_axis import AxisTable

# Words of a pattern before its places: PATTERN_HEAD of resampling_width.h.
_HEAD = 16
# What resampling_phases.h can do, and from how many taps on it is faster.
_PHASES = (4, 8)
_FEWEST_TAPS = 3


def _scattered(count: int) -> Ints:
    """Return different odd numbers with bits in no order (NumPy's take longer to import)."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed ^ mixed >> np.uint64(32) | np.uint64(1)).view(np.intp)


def _phases(place: Array, count: Array, weights: Array) -> Ints:
    """Return the blocks' phases: how far apart their positions begin, if all are alike; else 0."""
    step = place[:, 1]
    alike = (place == step[:, None] * np.arange(place.shape[1])).all(axis=1)
    alike &= (count == count[:, :1]).all(axis=1) & (weights == weights[:, :, :1]).all(axis=(1, 2))
    alike &= (count[:, 0] >= _FEWEST_TAPS) & np.isin(step, _PHASES)
    return np.where(alike, step, 0)


@dataclass(frozen=True, slots=True)
class WidthTable:
    """Chunks, blocks and patterns as the kernel reads them; see resampling_width.pxi.

    `elements` is the most that a chunk of a group holds, loaded or stored.
    """

    group: int
    chunks: Array
    blocks: Array
    patterns: Array
    elements: int


def width_table(
    axis: AxisTable, dst: int, pixel: int, group: int, *, lanes: int, reach: int, limit: int
) -> WidthTable | None:
    """Build the tables, or return None where a block's places lie further apart than `reach`.

    `limit` is the number of elements that a chunk shall hold, about.
    """
    start = np.minimum(axis.start, dst - 1)
    first = np.cumsum(axis.count) - axis.count
    position = start[:, None] * pixel + np.arange(pixel)
    position = np.arange(group)[:, None] * (dst * pixel) + position.ravel()
    counts = np.broadcast_to(np.repeat(axis.count, pixel), position.shape)
    firsts = np.broadcast_to(np.repeat(first, pixel), position.shape)

    def blocked(values: Array, fill: int) -> Array:
        values = values.ravel()
        missing = -len(values) % lanes
        return np.concatenate((values, np.full(missing, fill, values.dtype))).reshape(-1, lanes)

    count = blocked(counts, 0)
    position = blocked(position, position.max())
    base = position.min(axis=1)
    place = np.where(count > 0, position - base[:, None], 0)
    reached = place.max(axis=1) + 1
    if reached.max() > reach:
        return None
    most = int(count.max())
    taps = np.arange(most)[:, None]
    used = taps < count[:, None, :]
    index = np.where(used, blocked(firsts, 0)[:, None, :] + taps, 0)
    weights = np.where(used, np.take(axis.weights, index), np.float32(0)).view(np.int32)
    head = np.zeros((len(base), _HEAD), np.intp)
    head[:, 0], head[:, 1], head[:, 2] = count.min(axis=1), count.max(axis=1), reached
    if pixel == 1:
        head[:, 3] = _phases(place, count, weights)
    words = np.concatenate((head, place, count), axis=1).astype(np.int32)

    # Blocks alike are told by a checksum of their words, and share the first one's pattern.
    words = np.concatenate((words, weights.reshape(len(base), -1)), axis=1)
    factors = _scattered(words.shape[1])
    representative, same = distinct(words @ factors)
    if not np.array_equal(words, words[representative[same]]):
        representative = same = np.arange(len(base))
    sizes = _HEAD + 2 * lanes + lanes * head[representative, 1]
    ends = np.cumsum(sizes)
    patterns = [words[b, :size] for b, size in zip(representative, sizes, strict=True)]
    blocks = np.stack((base, (ends - sizes)[same]), axis=1)

    per_chunk = len(base) if group > 1 else max(pixel, limit // lanes // pixel * pixel)
    rows = []
    elements = 0
    for b in range(0, len(base), per_chunk):
        e = min(b + per_chunk, len(base))
        x0, x1 = b * lanes // pixel, min(e * lanes // pixel, len(start))
        if group > 1:
            x1, y0, y1 = len(start), 0, dst
        else:
            y0, y1 = int(start[x0]), int((start + axis.count)[x0:x1].max())
            y1 = max(y0, y1)
            blocks[b:e, 0] -= y0 * pixel
        rows.append((b, x0, x1, y0, y1))
        elements = max(elements, group * pixel * max(x1 - x0, y1 - y0))
    return WidthTable(
        group=group,
        chunks=np.array(rows, np.intp).ravel(),
        blocks=blocks.ravel(),
        patterns=np.concatenate(patterns),
        elements=elements,
    )
