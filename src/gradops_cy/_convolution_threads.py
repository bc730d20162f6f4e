"""How work is cut for threads: so that the one that is done last has least to do, as estimated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod

from gradops_cy import _convolution_scatter, _convolution_split
from gradops_cy._convolution_cut import Cut
from gradops_cy._convolution_kernels import COLUMNS, SCATTER
from gradops_cy._convolution_pieces import (
    BLOCK_POSITIONS,
    half_block,
    half_groups,
    half_scatter_block,
    in_ranges,
    split_channels,
)

# Below this a task is not worth its own window; lanes over positions take longer over theirs.
TASK_FLOP = 1 << 21
ROWS_TASK_FLOP = 1 << 18
# Positions of SCATTER that are multiplied in less time than the weights take to arrive.
FEW_POSITIONS = 64
# Tasks of a thread from which on one more or less does not matter, and what evening out must gain.
TASKS_TO_BALANCE = 8
BALANCE_GAIN = 0.04
# What other tasks than smaller and smaller ones must gain, as estimated.
WORTH = 0.06
# Multiply-adds in the time of a vector of the window, of a row of packed weights, and of one that
# goes by way of memory, as weights do which several tasks use.
WINDOW, PACK, PACK_BEFORE = 8, 14, 21
# And in that of a vector of results; where positions are written in parts, range by range.
RESULT, RESULT_IN_PARTS = 6, 10


def split_for_threads(found: Cut, num_threads: int) -> Cut:
    """Group small tasks together, or cut few large ones, so that every thread has some."""
    choice = found.choice
    if choice.kernel != SCATTER:
        found = _together(found, num_threads)
    if num_threads == 1:
        return found
    cuts = [_balanced(cut, num_threads) for cut in _smaller_tasks(found, num_threads)]
    usual = cuts[-1]
    if choice.over_groups or usual.tasks > TASKS_TO_BALANCE * num_threads:
        return usual
    cuts += _even_ranges(found, num_threads)
    if len(cuts) == 1:
        return usual
    times = [_busiest(cut, num_threads) for cut in cuts]
    least = min(times)
    better = least < (1 - WORTH) * times[cuts.index(usual)]
    return cuts[times.index(least)] if better else usual


def _together(found: Cut, num_threads: int) -> Cut:
    """Give a task as many groups as leave some tasks for each thread."""
    problem, tasks = found.choice.problem, found.tasks
    small = problem.flop // tasks < TASK_FLOP or found.crosses_groups
    if found.choice.over_groups or problem.groups == 1 or not small:
        return found
    return replace(found, task_groups=min(problem.groups, max(1, tasks // (4 * num_threads))))


def _smaller_tasks(found: Cut, num_threads: int) -> Iterator[Cut]:
    """Yield cuts into more and more tasks, until every thread has enough of them."""
    choice, problem = found.choice, found.choice.problem
    scatter = choice.kernel == SCATTER
    # A sum that is cut fills its window again for each range of channels.
    refills = choice.windowed and found.cuts_sums
    wanted = num_threads * (2 if scatter else 1 if refills else 3)
    if scatter and found.packs_in_tasks and problem.batch * prod(problem.diff_dst) < FEW_POSITIONS:
        # They wait for the weights, which the one task that uses them packs in its cache.
        wanted = 1
    enough = ROWS_TASK_FLOP if choice.along_rows and not scatter else TASK_FLOP
    smaller: Cut | None = found
    while smaller is not None:
        found = smaller
        yield found
        if found.tasks >= wanted or problem.flop // found.tasks <= enough:
            return
        smaller = _parts(found)


def _even_ranges(found: Cut, num_threads: int) -> Iterator[Cut]:
    """Yield cuts into ranges of as many channels for each thread, one or two."""
    for count in (num_threads, 2 * num_threads):
        worth = found.choice.problem.flop // count > TASK_FLOP
        if worth and count >= found.channel_splits and (cut := in_ranges(found, count)):
            yield cut


def _parts(whole: Cut) -> Cut | None:
    """Cut a task's channels, positions or groups in two; return nothing if it has one of each."""
    choice = whole.choice
    if choice.kernel == SCATTER:
        return half_groups(whole) or half_scatter_block(whole)
    # Vectors of one group share neither weights nor rows.
    if (choice.broadcast or choice.along_rows) and (fewer := half_groups(whole)):
        return fewer
    axis = max((0, 1), key=lambda a: whole.block[a])
    long_row = whole.block[2] >= 8 * choice.lanes and not choice.whole_rows
    if whole.block[axis] == 1 and long_row:
        axis = 2
    # Cutting positions reads the weights once more, cutting channels the positions.
    rows_first = prod(whole.block) > 4 * BLOCK_POSITIONS // len(choice.residues)
    splittable = whole.channel_splits < len(whole.blocks)
    if splittable and not rows_first:
        return split_channels(whole)
    if whole.block[axis] > 1:
        return half_block(whole, axis)
    return split_channels(whole) if splittable else half_groups(whole)


def _balanced(found: Cut, num_threads: int) -> Cut:
    """Take smaller blocks where else threads would wait for one that has more of them."""
    block, counts = found.block, found.choice.counts
    axis = next((a for a in (1, 0, 2) if block[a] < counts[a]), None)
    if found.choice.along_rows or found.choice.kernel == SCATTER or axis is None:
        return found
    if found.tasks > TASKS_TO_BALANCE * num_threads:
        return found
    beside = found.tasks // -(-counts[axis] // block[axis])

    def most(extent: int) -> int:
        return -(-beside * -(-counts[axis] // extent) // num_threads) * extent

    # Blocks of three rows instead of four read weights and halos too often.
    extent = min(range(block[axis], block[axis] * 3 // 4, -1), key=most)
    worth = most(extent) * (1 + BALANCE_GAIN) < most(block[axis])
    return found.evened(axis, extent) if worth else found


def _busiest(cut: Cut, num_threads: int) -> float:
    """Estimate the time of the thread that is done last, in multiply-adds of vectors."""
    choice, problem = cut.choice, cut.choice.problem
    rate = 1.0
    if choice.parts:
        rate = choice.tiles.bf16_rate
        if choice.tiles.amx:
            rate = _convolution_split.RATES[choice.parts]
    if choice.kernel == SCATTER:
        return _busiest_of_scatter(cut, num_threads, rate)
    outputs, classes = problem.output_channels, cut.class_splits
    depth = len(choice.taps) * outputs
    # Of COLUMNS, whose lanes are positions, a unit is a channel.
    unit = choice.lanes if choice.panel_kernel == COLUMNS else 1
    widths = [width / unit for width in cut.range_widths]
    packs = PACK * depth if cut.packs_in_tasks else 0
    before = 0.0
    if not packs:
        pieces = problem.groups * len(cut.blocks) * -(-outputs // cut.chunk)
        share = -(-pieces // num_threads) / pieces
        before = PACK_BEFORE * depth * sum(widths) * problem.groups * share
    window = 0.0
    if choice.windowed:
        entries = prod(cut.block) * len(choice.taps) if choice.winograd else cut.entries
        window = WINDOW * cut.task_groups * entries * max(1, outputs / choice.lanes)
    # In the order of tasks: see task_of in convolution.pxi.
    shares = [prod(block) for block in product(*map(_pieces, choice.counts, cut.block))]
    both = list(product(range(len(shares)), widths))
    if len(choice.taps) > 1:
        both = [(block, width) for width in widths for block in range(len(shares))]
    parts = cut.direct and not choice.dot and cut.channel_splits > 1
    result = RESULT_IN_PARTS if parts else RESULT
    each = (depth / rate + result * len(choice.residues)) / classes
    tasks = [
        ((image, block), cut.task_groups * width * (each * shares[block] + packs))
        for image in range(problem.batch * -(-problem.groups // cut.task_groups))
        for block, width in both
        for _ in range(classes)
    ]
    return before + _last(tasks, window, cut.cuts_sums, num_threads)


def _pieces(count: int, block: int) -> list[int]:
    """Return the extents of an axis's blocks."""
    return [min(block, count - begin) for begin in range(0, count, block)]


def _last(
    tasks: list[tuple[tuple[int, int], float]], window: float, refills: bool, num_threads: int
) -> float:
    """Return when the last thread is done: each has a range of tasks, and then helps the others.

    Tasks of a block that follow each other use its window, unless their sums are cut.
    """
    number = len(tasks)
    queues = [
        tasks[number * i // num_threads : number * (i + 1) // num_threads]
        for i in range(num_threads)
    ]
    clocks = [0.0] * num_threads
    held: list[tuple[int, int] | None] = [None] * num_threads
    for _ in tasks:
        thread = clocks.index(min(clocks))
        own = (queues[(thread + i) % num_threads] for i in range(num_threads))
        block, time = next(filter(None, own)).pop(0)
        clocks[thread] += time + (window if refills or held[thread] != block else 0)
        held[thread] = block
    return max(clocks)


def _busiest_of_scatter(cut: Cut, num_threads: int, rate: float) -> float:
    """Estimate it where blocks compute once more what reaches into their neighbours."""
    choice, problem = cut.choice, cut.choice.problem
    columns = -(-_convolution_scatter.columns(problem) // choice.lanes)
    products, adds = problem.output_channels / rate, _convolution_scatter.ADDING
    if cut.shares_product:
        return prod(problem.diff_dst) * columns * (products / num_threads + adds)
    tasks = -(-cut.tasks // num_threads)
    return tasks * cut.task_groups * cut.spanned * columns * (products + adds)
