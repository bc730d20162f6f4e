"""3x3 filters without strides: Winograd's F(2x2, 3x3), which takes 16 products for 36.

A tile of 2x2 pixels of diff_src is summed from a patch of 4x4 of diff_dst. Patches and filters are
transformed to 16 planes, in each of which a tile has one product for each channel, and their sums
are transformed to pixels (see winograd.h). Planes are residue classes for ROWS, tiles positions:

    diff_src'[4 q + plane] = sum over k of patches[plane][q][k] · filters[plane][k]

A transformed filter is as large as the largest of its taps: errors are those of float32 beside a
sum of products with that, not with each tap. And what is not finite reaches all pixels of a tile:
such results are computed again by the taps.
"""

from __future__ import annotations

import os
from functools import lru_cache
from math import prod

from gradops_cy._convolution_problem import ConvProblem, Triple
from gradops_cy._processor import ZEN5
from gradops_cy._rounding import up

# Whether the process wants it, which the environment says.
ENABLED = os.environ.get("GRADOPS_WINOGRAD", "1").strip() != "0"
FILTER, TILE, PATCH = 3, 2, 4
PLANES = PATCH * PATCH
# Tiles of a row that lie between each other, which is not cut.
DILATED_ROW = 256
# Products of vectors in the time that it takes to transform a vector of patches and of filters, and
# to write one of sums and transform those. Filters are transformed once for all images, and are
# counted as for three: on 7x7 one image loses a tenth and eight gain a seventh. On Zen 5, where
# one would lose a quarter and eight gain a tenth, fewer.
PATCHES, SUMS, FILTERS = 50, 140, 240
IMAGES = 1.5 if ZEN5 else 3
# As many in that of loading a vector of diff_dst on its way to patches.
LOADS = 20
# Bytes of an element in scratch, and positions of a strip of channels that is staged.
FLOAT, STAGED = 4, 16


def _tiles(problem: ConvProblem) -> Triple:
    """Return the tiles on each axis: those of a dilated filter lie between each other."""
    height, width = (
        up(extent, TILE * dilation) // TILE
        for extent, dilation in zip(problem.diff_src[1:], problem.dilations[1:], strict=True)
    )
    return problem.diff_src[0], height, width


def product(problem: ConvProblem) -> ConvProblem:
    """Return the problem that has planes for residue classes."""
    depth, height, width = _tiles(problem)
    taps, dilation = problem.kernel[0], problem.dilations[0]
    return problem._replace(
        transposed=False,
        diff_src=(depth, PATCH * height, PATCH * width),
        diff_dst=(problem.diff_dst[0], height, width),
        kernel=(taps, PATCH, PATCH),
        strides=(1, PATCH, PATCH),
        dilations=(dilation, 1, 1),
        pads_begin=((taps - 1) * dilation - problem.fronts[0], 0, 0),
    )


def pixels(problem: ConvProblem) -> ConvProblem:
    """Return a transposed convolution that reads what the patches of some tiles do."""
    height, width = (TILE + TILE * dilation for dilation in problem.dilations[1:])
    return problem._replace(
        transposed=True,
        diff_src=_tiles(problem),
        kernel=(problem.kernel[0], height, width),
        strides=(1, TILE, TILE),
        dilations=(problem.dilations[0], 1, 1),
        pads_begin=problem.fronts,
    )


def block(problem: ConvProblem, chunk: int, channels: int, room: int) -> Triple | None:
    """Return the tiles of a task that leave least to be read and transformed twice.

    With `chunk` channels of diff_dst in the window and sums of `channels` they fit `room` bytes;
    None if not even those of a row do.
    """
    depth, height, width = _tiles(problem)
    dilation = problem.dilations[1]
    columns = TILE * (width + problem.dilations[2])
    room = room // FLOAT - PATCH * dilation * columns * chunk - TILE * TILE * width * channels
    room -= STAGED * max(chunk, channels) + PLANES * 2 * STAGED  # planes are odd lines apart
    found, least = None, (0.0, 0)
    for planes in (*(1 << n for n in range((depth - 1).bit_length())), depth):
        read = planes + (problem.kernel[0] - 1) * min(planes, problem.dilations[0])
        rows = min(height, room // (PLANES * width * (read * chunk + planes * channels)))
        if rows < 1:
            break
        work = read / planes * (PATCHES + LOADS * (rows + dilation) / rows), -planes * rows
        if found is None or work < least:
            found, least = (planes, rows, width), work
    return found


def fits(problem: ConvProblem) -> bool:
    """Return whether filters are 3x3 on the last two axes, without strides on any."""
    plain = problem.strides == (1, 1, 1) and problem.rank > 1 and problem.dtype != 3
    short = problem.dilations[2] == 1 or _tiles(problem)[2] <= DILATED_ROW
    return ENABLED and plain and short and problem.kernel[1:] == (FILTER, FILTER)


@lru_cache(maxsize=256)
def pays(problem: ConvProblem, lanes: int) -> bool:
    """Return whether transforming is faster than multiplying.

    Whatever the layout and the batch: the bits of a result should not depend on them.
    """
    inputs, outputs = problem.input_channels, problem.output_channels
    if min(inputs, outputs) < lanes:
        return False
    depth, height, width = _tiles(problem)
    taps, planes = problem.kernel[0], depth if problem.rank == 3 else 1
    tiles = planes * height * width
    results = planes * prod(problem.diff_src[1:])
    vectors = up(inputs, lanes) // lanes
    products = taps * outputs * vectors
    moved = tiles * (PATCHES * outputs / lanes + SUMS * vectors) + FILTERS * products / IMAGES
    direct = products * results * FILTER * FILTER * problem.inside(1) * problem.inside(2)
    return products * tiles * PLANES + moved < direct
