"""The tables of the kernel whose width pass has its lanes along the row.

A group of rows side by side, each of so many positions of so many channels, is cut into blocks of
one vector. A block's position i sums the elements ``base + place[i] + k·channels`` of the reduced
rows for ``k < count[i]``. Where its positions lie far apart it has parts, each of which stands
beside itself for as many taps. Blocks that differ in their base alone share a pattern: where the
ratio of the extents is a small one, as two, that leaves a few patterns for a row of any length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradops_cy._arrays import Array, aligned_bytes
from gradops_cy._distinct import Ints, distinct
from gradops_cy._resampling_axis import AxisTable

# Words of a pattern before its places, and the one that holds the elements over which the taps of a
# part reach: PATTERN_HEAD and WINDOW of resampling_width.h.
_HEAD = 16
_WINDOW = 9


def _scattered(count: int) -> Ints:
    """Return different odd numbers with bits in no order (NumPy's take longer to import)."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed ^ mixed >> np.uint64(32) | np.uint64(1)).view(np.intp)


def chains(axis: AxisTable, lanes: int, longest: int) -> int:
    """Return in how many chains the products of a position are summed, whatever the kernel.

    As many as the parts of a block for which one permutation of two vectors reaches all positions
    of a part, and the taps beside each of them. One where there are more than `longest` products
    or would be more than four parts.
    """
    if axis.longest > longest:
        return 1
    for parts in (1, 2, 4):
        apart = min(lanes // parts, len(axis.start)) - 1
        reach = axis.start[apart:] - axis.start[: len(axis.start) - apart]
        if reach.max() + parts <= 2 * lanes:
            return parts
    return 1


def _patterns(parts: int, place: Array, count: Array, weights: Array, step: int) -> Array:
    """Return the patterns of blocks in parts, the weights of each step of each part at last."""
    blocks, lanes = place.shape
    steps = -(-weights.shape[1] // parts)
    # [block][part][tap][position], the taps of a step beside each other.
    shape = blocks, parts, 1, lanes // parts
    tap = np.arange(parts)[:, None]
    place, count = place.reshape(shape), count.reshape(shape)
    far = np.where(count > 0, place, place.max())
    base = far.min(axis=3, keepdims=True) * (parts > 1)  # places of a whole block have its own
    places = np.where(count > 0, far - base, 0) + step * tap
    counts = (count - tap + parts - 1) // parts
    lists = np.stack((places, counts), axis=2, dtype=np.int32, casting="unsafe")
    taps = np.zeros((blocks, steps * parts, lanes), np.int32)
    taps[:, : weights.shape[1]] = weights
    taps = taps.reshape(blocks, steps, parts, parts, -1).swapaxes(2, 3)
    head = np.zeros((blocks, _HEAD), np.int32)
    head[:, 0], head[:, 1] = counts.min(axis=(1, 2, 3)), counts.max(axis=(1, 2, 3))
    head[:, 2], head[:, 3], head[:, 4] = places.max(axis=(1, 2, 3)) + 1, parts, parts
    head[:, 5 : 5 + parts] = base.reshape(blocks, parts)
    head[:, _WINDOW] = (places + (counts - 1) * parts * step).max(axis=(1, 2, 3)) + 1
    return np.concatenate((head, lists.reshape(blocks, -1), taps.reshape(blocks, -1)), axis=1)


@dataclass(frozen=True, slots=True)
class WidthTable:
    """Chunks, blocks and patterns as the kernel reads them; see resampling_width.pxi.

    `kinds` are the patterns that differ, `elements` is the most that a chunk of a group holds,
    loaded or stored.
    """

    group: int
    kinds: int
    chunks: Array
    blocks: Array
    patterns: Array
    elements: int


def width_table(
    axis: AxisTable,
    dst: int,
    pixel: int,
    group: int,
    parts: int,
    *,
    lanes: int,
    reach: int,
    limit: int,
) -> WidthTable | None:
    """Build the tables, or return None where a block's places lie further apart than `reach`.

    `parts` are the chains of a sum. `limit` is the number of elements that a chunk shall hold,
    about.
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
    if place.max() >= reach:
        return None
    most = int(count.max())
    taps = np.arange(most)[:, None]
    used = taps < count[:, None, :]
    index = np.where(used, blocked(firsts, 0)[:, None, :] + taps, 0)
    weights = np.where(used, np.take(axis.weights, index), np.float32(0)).view(np.int32)
    words = _patterns(parts, place, count, weights, pixel)
    whole = np.flatnonzero((words[:, 2] > 2 * lanes) & (parts > 1))
    if len(whole):
        # Parts that one permutation does not reach: sums in chains all the same.
        found = _patterns(1, place[whole], count[whole], weights[whole], pixel)
        found[:, 4] = parts
        words[whole] = 0
        words[whole, : found.shape[1]] = found
    sizes = _HEAD + lanes * words[:, 3] * (2 + words[:, 1])

    # Blocks alike are told by a checksum of their words, and share the first one's pattern.
    factors = _scattered(words.shape[1])
    representative, same = distinct(words @ factors)
    if not np.array_equal(words, words[representative[same]]):
        representative = same = np.arange(len(base))
    sizes = sizes[representative]
    ends = np.cumsum(sizes)
    patterns = [words[b, :size] for b, size in zip(representative, sizes, strict=True)]
    # Vectors of a pattern should not lie across two lines.
    aligned = aligned_bytes(int(ends[-1]) * words.itemsize).view(words.dtype)
    np.concatenate(patterns, out=aligned)
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
        kinds=len(representative),
        chunks=np.array(rows, np.intp).ravel(),
        blocks=blocks.ravel(),
        patterns=aligned,
        elements=elements,
    )
