"""float32 and float16 on AMX: products of bfloat16 parts, and when they pay.

Three parts hold the 24 bits of a float32, two the 11 of a float16. A product of float32 takes six
of parts, where those below its own rounding are left out, and one of float16 four. Sums are those
of AMX, in float32.
"""

from __future__ import annotations

from math import prod

from gradops_cy._convolution_problem import ConvProblem
from gradops_cy._convolution_taps import counts
from gradops_cy._rounding import up

# Parts of an element, by dtype: float32, float16, and bfloat16 is one itself.
PARTS = {0: 3, 1: 2, 2: 1}
# How many times as fast as float32 multiply-adds AMX multiplies, by parts.
RATES = {1: 8.0, 2: 3.3, 3: 2.2}
# Multiply-adds of the time that it takes to split an element of diff_dst, to bring an element of
# diff_src back, and to pack one of the weights more than without parts.
SPLIT, UNSPLIT, PACK = {2: 12, 3: 30}, {2: 6, 3: 12}, 12
# Taps whose weights are split together.
MOST_TAPS = 128


def pays(problem: ConvProblem, lanes: int, tile: tuple[int, int, int]) -> bool:
    """Return whether AMX on parts is faster than multiply-adds.

    Whatever the layout and the batch: the bits of a result should not depend on them.
    """
    parts = PARTS[problem.dtype]
    taps, inputs, outputs = prod(problem.kernel), problem.input_channels, problem.output_channels
    images = problem.batch * (problem.diff_src[0] if problem.rank < 3 else 1)
    sources = prod(problem.diff_dst[-problem.rank :])
    split = SPLIT[parts] * outputs * sources
    if problem.transposed and max(problem.strides) > 1:
        split += split // 5  # the window is sorted by residues
    unsplit = UNSPLIT[parts] * inputs * prod(problem.diff_src[-problem.rank :])
    pack = PACK * taps * outputs * inputs
    rows, columns, depth = tile
    _, height, width = counts(problem)
    if taps > 1 and inputs < lanes and not problem.transposed:
        # The columns of SCATTER, where positions are those of diff_dst and results stay in cache.
        inputs *= taps
        if inputs <= 2 * tile[1]:  # multiply-adds lose nothing, and read rows where they lie
            return False
        split, unsplit = split // 2, 0
        height, width = 1, sources
    elif taps > MOST_TAPS:
        return False
    if problem.bare_axes > 1:
        height, width = 1, sources
    # Rows by themselves, with the columns beside whole tiles of two or not, or run into each other.
    pitch = width + (problem.kernel[2] - 1) // (problem.strides[2] if problem.transposed else 1)
    tiles = min(height * up(width, rows), up((height - 1) * pitch + width, rows))
    beside = width % (2 * rows)
    if beside < rows:
        tiles = min(tiles, height * (width - beside) + beside * up(height, rows))
    whole = inputs / up(inputs, columns) * outputs / up(outputs, depth) * height * width / tiles
    products = problem.flop / 2 / images
    moves = problem.groups * (split + unsplit + pack)
    other = products / (1.0 if problem.groups > 1 else max(0.7, inputs / up(inputs, lanes)))
    return products / (RATES[parts] * whole) + moves < other
