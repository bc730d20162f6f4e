"""Smaller tasks of one that is given: blocks of channels, and what may be cut in two."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import gcd

from gradops_cy import _convolution_scatter
from gradops_cy._convolution_choice import Choice
from gradops_cy._convolution_cut import ChannelBlock, Cut
from gradops_cy._convolution_kernels import COLUMNS, DOT, DOT_COLUMNS, ROWS, SCATTER
from gradops_cy._rounding import up

# Enough positions to use a weight panel well while it is in cache.
BLOCK_POSITIONS = 512


def whole_groups(choice: Choice) -> int:
    """Return how many groups fill vectors without remainder."""
    return choice.lanes // gcd(choice.lanes, choice.problem.input_channels)


def channel_blocks(choice: Choice, nv: int, ranges: int = 1) -> tuple[list[ChannelBlock], int]:
    """Return the channel blocks, as many for each range, and the elements of a group's panels."""
    problem = choice.problem
    inputs, taps = problem.input_channels, len(choice.taps)
    if choice.kernel == SCATTER:
        inputs, taps = _convolution_scatter.columns(problem), 1
    if choice.panels_over_groups:
        # The last row of lanes may be read a vector too far.
        row = up(problem.diff_src_channels, choice.lanes) + choice.lanes
        return [ChannelBlock(0, inputs, 0, 0)], row
    unit, limit = {
        ROWS: (choice.lanes, 1 if choice.broadcast else choice.tiles.rows_nv),
        COLUMNS: (1, choice.tiles.shapes[nv]),
        DOT: (DOT_COLUMNS, nv),
    }[choice.panel_kernel]
    outputs = problem.output_channels
    reduction = taps * (up(outputs, choice.unit) // choice.abreast if choice.dot else outputs)
    return _even_blocks(inputs, unit, limit, reduction, ranges)


# Calls of many lengths share them.
@lru_cache(maxsize=64)
def _even_blocks(
    inputs: int, unit: int, limit: int, reduction: int, ranges: int
) -> tuple[list[ChannelBlock], int]:
    """Return even blocks of up to `limit` units of channels, of which each has so many products."""
    units = -(-inputs // unit)
    count = min(units, up(-(-units // limit), ranges))
    # The last one is the smallest: half a vector there is one by itself, which Zen 4 takes half the
    # time for.
    edges = [-(-units * i // count) for i in range(count + 1)]
    blocks = [
        ChannelBlock(a * unit, min(b * unit, inputs) - a * unit, b - a, a * unit * reduction)
        for a, b in pairwise(edges)
    ]
    return blocks, units * unit * reduction


def half_scatter_block(whole: Cut) -> Cut | None:
    """Halve the block on the axis where neighbours share least."""
    problem, block = whole.choice.problem, whole.block
    axis = max((0, 1), key=lambda a: block[a] * problem.strides[a] / problem.kernel[a])
    axis = axis if block[axis] > 1 else 2
    return half_block(whole, axis) if block[axis] > 1 else None


def half_block(whole: Cut, axis: int) -> Cut:
    """Halve the block on an axis."""
    return whole.evened(axis, -(-whole.block[axis] // 2))


def half_groups(whole: Cut) -> Cut | None:
    """Give a task half of its groups where that is possible."""
    choice, unit = whole.choice, 1
    if choice.over_groups and not choice.along_rows:
        # Whole vectors: a range of fewer lanes would read and write its neighbour's.
        unit = whole_groups(choice)
    if choice.stride_columns > 1:
        # Whether columns are beside each other must not depend on how work is cut.
        unit = choice.problem.groups
    if whole.task_groups <= unit:
        return None
    return replace(whole, task_groups=up(-(-whole.task_groups // 2), unit))


def split_channels(whole: Cut) -> Cut:
    """Give a task half of its channels."""
    return replace(whole, channel_splits=min(2 * whole.channel_splits, len(whole.blocks)))


def in_ranges(whole: Cut, ranges: int) -> Cut | None:
    """Give so many tasks as many channels each, as far as tiles of fewer vectors allow."""
    choice = whole.choice
    if choice.kernel == SCATTER:  # sums of all columns meet in the same places
        return None
    blocks, group_panel = channel_blocks(choice, whole.nv, ranges)
    # AMX multiplies fewer channels in the same time.
    narrows = len(blocks) > len(whole.blocks)
    if len(blocks) % ranges or (narrows and choice.dot and choice.tiles.amx):
        return None
    return replace(whole, blocks=blocks, group_panel=group_panel, channel_splits=ranges)
