"""The tables of the kernel of points: no column of a row reads more than one of diff_dst.

A row is cut into chunks of positions, and these, where a position has fewer channels than a vector
has lanes, into blocks of one vector: of each element its place from the first on that the block
reads, or -1 where it reads none, and its weight. Other positions have their column, or -1, and
their weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._resampling_axis import AxisTable
from gradops_cy._rounding import up


@dataclass(frozen=True, slots=True)
class PointTable:
    """Chunks of a row and their words, as resampling_points.h reads them.

    `columns` is the most positions that a chunk loads or stores.
    """

    columns: int
    chunks: Array
    words: Array


def point_table(axis: AxisTable, pixel: int, *, lanes: int, limit: int) -> PointTable:
    """Return the table of an axis whose indices read no more than one of diff_dst each.

    Positions have `pixel` elements, and chunks about `limit`.
    """
    src = len(axis.start)
    columns = min(up(max(1, limit // pixel), lanes), up(src, lanes))
    first = np.arange(0, src, columns)
    last = np.minimum(first + columns, src)
    begin = axis.start[first]
    end = axis.start[last - 1] + axis.count[last - 1]
    used = axis.count > 0
    weights = np.zeros(src, np.float32)
    weights[used] = axis.weights
    column = np.where(used, axis.start - np.repeat(begin, last - first), -1)
    if pixel >= lanes:
        place, words = first * 2, np.stack((column, weights.view(np.int32)), axis=1)
    else:
        words = _blocks(column, weights, pixel, lanes)
        place = first * pixel // lanes * words.shape[1]
    chunks = np.stack((place, first, last, begin, end), axis=1)
    return PointTable(
        columns, chunks.astype(np.intp).ravel(), words.astype(np.intc, copy=False).ravel()
    )


def _blocks(column: Array, weights: Array, pixel: int, lanes: int) -> Array:
    """Return the words of the blocks of a row: where places begin, places, and weights.

    Places of a block lie within a vector, since columns of neighbours differ by no more than one.
    """
    pad = -len(column) * pixel % lanes
    place = np.where(column < 0, -1, column * pixel)[:, None] + np.arange(pixel)
    place[column < 0] = -1
    place = np.pad(place.ravel(), (0, pad), constant_values=-1).reshape(-1, lanes)
    shares = np.pad(np.repeat(weights, pixel), (0, pad)).reshape(-1, lanes)
    far = np.iinfo(np.intp).max
    first = np.where(place < 0, far, place).min(axis=1, keepdims=True)
    first[first == far] = 0
    place = np.where(place < 0, -1, place - first)
    return np.concatenate(
        (first, place, shares.view(np.int32)), axis=1, dtype=np.int32, casting="unsafe"
    )
