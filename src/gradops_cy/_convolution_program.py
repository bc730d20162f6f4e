"""What the kernels are told of a problem: tables of axes, taps and blocks, and how it is cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradops_cy import (
    _convolution_columns,
    _convolution_grouped,
    _convolution_scatter,
    _convolution_taps,
    _processor,
)
from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import table
from gradops_cy._convolution_choice import Choice
from gradops_cy._convolution_cut import Cut
from gradops_cy._convolution_kernels import (
    DOT,
    DOT_COLUMNS,
    GROUPED,
    KERNELS,
    LINE,
    PAIRS,
    ROWS,
    SCATTER,
)
from gradops_cy._convolution_problem import ConvProblem

# Packed weights that the second-level cache has no room for.
STREAM_PANELS = 1 << 20
# A thread's share of a diff_dst that no second-level cache has room for.
LARGE_SOURCE = 1 << 21
# Channels of rows that prefetchers of Intel lose.
SHORT_ROW = 96
# Bytes of rows that push each other out of the first-level cache.
PAGE = 4096
# One of a diff_src whose lines stores wait for.
LARGE_RESULT = 1 << 20
# Runs of weights that are asked for before they are packed: prefetchers of Zen 3 and 4 do not
# follow them, others' do.
WEIGHTS_AHEAD = 4 if _processor.AMD else 0


def program_of(
    problem: ConvProblem,
    cut: Cut,
    panels: tuple[Array, Array, Array],
    *,
    packed_bytes: int,
    num_threads: int,
    joins: int,
    of_all_images: bool,
) -> Any:
    """Hand the tables to the kernels, those of `panels` to what packs the weights."""
    choice = cut.choice
    scatter = choice.kernel == SCATTER
    grouped = choice.kernel == GROUPED
    depth, height, _ = choice.work.axes
    ring_d, ring_h = _convolution_grouped.rings(choice.work.axes) if grouped else (0, 0)
    blocking = {
        "kernel": choice.kernel,
        "dtype": problem.dtype,
        "windowed": int(choice.windowed),
        "direct": int(cut.direct),
        "streams": int(cut.streams),
        "stages": int(cut.stages),
        "touches": int(cut.touches or cut.touches_block or cut.touches_results),
        "asks": int(_asks(problem, cut, num_threads)),
        "flatten": int(cut.flatten),
        "rounded": int(cut.rounded),
        "exact_halo": int(choice.exact_halo),
        "all_inside": int(_convolution_taps.stay_inside(choice.problem, choice.work.axes)),
        "interleave": int(cut.interleave),
        "all_classes": int(cut.all_classes),
        "parts": choice.parts,
        "broadcast": choice.broadcast,
        "entry_channels": choice.entry_channels,
        "paired": int(choice.paired),
        "abreast": choice.abreast,
        "checks": int(choice.checks),
        "fold_h": choice.fold[0],
        "fold_w": choice.fold[1],
        "height": choice.given.diff_src[1],
        "width": choice.given.diff_src[2],
        "stride_columns": choice.stride_columns,
        "row_classes": choice.row_classes,
        "column_pairs": int(choice.column_pairs),
        "rolls": int(choice.rolls),
        "strided": int(choice.strided),
        "row_pairs": int(choice.row_pairs),
        "packed_apart": cut.packed_apart,
        "streams_panels": int(_streams_panels(choice, packed_bytes)),
        "weights_ahead": WEIGHTS_AHEAD,
        "unfold": cut.unfold,
        "winograd": int(choice.winograd),
        "dilation_h": choice.given.dilations[1],
        "dilation_w": choice.given.dilations[2],
        "window_plane": cut.window_plane,
        "result_plane": cut.result_plane,
        "joins": joins,
        "any_width": int(problem.rank == 1 and not of_all_images),
        "in_order": int(choice.in_order),
        "batch": problem.batch,
        "groups": choice.problem.groups,
        "task_groups": cut.task_groups,
        "input_channels": choice.problem.input_channels,
        "output_channels": choice.problem.output_channels,
        "source_channels": choice.source_channels,
        "chunk": cut.chunk,
        "merge": cut.merge,
        "channel_splits": cut.channel_splits,
        "class_splits": cut.class_splits,
        "group_panel": cut.group_panel,
        "nv": cut.nv,
        "step": _convolution_columns.step(choice),
        "tile_positions": cut.tile_positions,
        "depth": choice.depth,
        "unit": choice.unit,
        "tail": choice.tail,
        "taps_inside": int(cut.taps_inside),
        "entry_pitch": cut.entry_pitch,
        "planes": cut.planes or 1,
        "shares_product": int(cut.shares_product),
        "strip": cut.strip,
        "box_pitch": cut.box_pitch if scatter else 0,
        "box_bytes": cut.box_bytes if scatter else 0,
        "result_pitch": cut.result_pitch,
        "pair_pitch": cut.pair_pitch,
        "along_rows": int(choice.along_rows),
        "window_pitch": cut.window_pitch,
        "ring_d": ring_d,
        "ring_h": ring_h,
        "taps_apart_d": depth.apart,
        "taps_apart_h": height.apart,
        "visits_d": _convolution_grouped.visiting_step(depth),
        "visits_h": _convolution_grouped.visiting_step(height),
        **cut.scratch,
        "scratch_bytes": cut.scratch_bytes,
    }
    axes, sources = _axis_tables(cut)
    return KERNELS.Program(axes, sources, *_work_tables(cut), cut.block_table, *panels, blocking)


def panel_tables(cut: Cut) -> tuple[Array, Array, Array]:
    """Return what packing reads: kernel coordinates and ranks of the taps, channel blocks."""
    choice = cut.choice
    # Widths in elements instead of vectors.
    unit = {ROWS: choice.lanes, DOT: DOT_COLUMNS}.get(choice.panel_kernel, 1)
    blocks = cut.block_table * np.array([1, 1, unit, 1], np.intp)
    if choice.abreast > 1:
        blocks = blocks[:1]  # of each group by itself
    if choice.kernel == SCATTER:
        return np.zeros((1, 3), np.intp), np.zeros(1, np.intp), blocks
    if cut.packed_apart > 1 or choice.winograd:
        given = _convolution_taps.taps_of(_convolution_taps.axes(choice.given), False)
        return given.coordinates, given.ranks, blocks
    return choice.work.coordinates, choice.work.ranks, blocks


def _work_tables(cut: Cut) -> tuple[Array, Array]:
    """Return the residue classes and taps as the kernel reads them."""
    choice, merge = cut.choice, cut.merge
    if choice.kernel == SCATTER:
        return _convolution_scatter.tables(choice.given, choice.lanes, choice.along_rows)
    if merge == 1:
        return choice.residues, choice.taps
    residues, taps = choice.residues.copy(), choice.taps[::merge].copy()
    residues[:, 3:] //= merge
    return residues, taps


def _axis_tables(cut: Cut) -> tuple[list[Any], list[Any]]:
    """Return the axes of the products, and those by which diff_dst is read."""
    choice, scatter = cut.choice, cut.choice.kernel == SCATTER
    # These kernels find a tap in the window by an index; merged taps follow the first.
    indexed = choice.phased or (choice.kernel == ROWS and choice.windowed)
    depth, height, _ = cut.axes
    plane = depth.window * height.window * cut.row_pitch if cut.planes else 0
    phased = (choice.phased,) * 2 + (choice.phased and not choice.in_order,)
    of_axes = zip(cut.axes, phased, (1, 1, cut.merge), (0, 0, plane), strict=True)
    axes = [
        table(axis, sorts, len(axis.taps) // merge if indexed else 0, apart, scatter)
        for axis, sorts, merge, apart in of_axes
    ]
    sources = axes
    if choice.winograd:
        sources = [table(axis, False, 0) for axis in cut.sources]
    elif choice.unfolds:
        # Of a run of taps, the first.
        sources = [
            table(axis, False, len(axis.taps) // run)
            for axis, run in zip(cut.sources, (1, 1, cut.unfold), strict=True)
        ]
    return axes, sources


def _asks(problem: ConvProblem, cut: Cut, num_threads: int) -> bool:
    """Whether tiles that are loaded from diff_dst ask for what the next ones read.

    Prefetchers do not follow rows that are read side by side. Or GROUPED on Intel, for the next
    rows of diff_src: stores of whole lines wait for them, which lie a position's channels apart.
    """
    choice = cut.choice
    if choice.kernel == GROUPED:
        lines = problem.plain and choice.lanes * choice.size == LINE
        strided = lines and not (_processor.AMD or choice.boxed or choice.broadcast)
        return strided and problem.diff_src_bytes > LARGE_RESULT * num_threads
    if choice.windowed:
        return False
    source, row = problem.diff_dst_bytes, problem.output_channels * problem.itemsize
    large = source > LARGE_SOURCE * num_threads
    if not _processor.AMD:
        short = problem.pointwise and problem.output_channels <= SHORT_ROW
        asks = choice.kernel == DOT or (choice.kernel == ROWS and short)
        return large and problem.groups == 1 and asks
    # Products of a single vector take no longer than asking, unless they wait for memory.
    if problem.input_channels <= choice.lanes:
        large = _processor.past_the_caches(source, source) and row < PAGE
    # Rows of two lines are nearly in order.
    long = choice.kernel in (ROWS, DOT) and row > 2 * LINE
    return large and (long or (choice.kernel == SCATTER and problem.groups == 1))


def _streams_panels(choice: Choice, packed_bytes: int) -> bool:
    """Whether packed weights are written past the caches, which are too small for them."""
    whole_lines = choice.panel_kernel in (ROWS, DOT) and choice.kernel != PAIRS
    whole_lines = whole_lines and choice.parts < 2
    whole_lines = whole_lines and not (choice.broadcast or choice.winograd)
    return _processor.ZEN4 and whole_lines and packed_bytes >= STREAM_PANELS
