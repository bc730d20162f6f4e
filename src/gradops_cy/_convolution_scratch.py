"""What a thread keeps in scratch while it computes a task."""

from __future__ import annotations

from math import prod
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from gradops_cy import _convolution_grouped, _convolution_scatter
from gradops_cy._convolution_depthwise import PAIR_CHANNELS, strided_sums
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DEPTHWISE,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_ROWS,
    GROUPED,
    KERNELS,
    PAIRS,
    ROWS,
    SCATTER,
)
from gradops_cy._convolution_winograd import PATCH, PLANES, TILE
from gradops_cy._rounding import up

if TYPE_CHECKING:
    from gradops_cy._convolution_cut import Cut

# Bytes of a line of cache: results that are streamed lie in lines of scratch as in diff_src's.
_LINE = 64
# Positions of a box that are transposed at a time: long runs of each channel, but in cache.
BOX_RUN = 384


def sizes(cut: Cut) -> dict[str, int]:
    """Return the bytes of the parts of a thread's scratch."""
    choice = cut.choice
    source, size, width = cut.sources[2], choice.size, cut.block[2]
    need = _NEEDS[choice.kernel](cut)
    # Strips of 16 rows that lie across: of positions, or of as many channels as there are, 32 of
    # bfloat16.
    step = choice.out_steps[2]
    streams = step if cut.interleave else 1
    rows, unit = (32, 2) if choice.parts == 1 else (16, size)
    staging = max(
        16 * max(need.channels, need.sums),
        min(16, need.sums) * width * step,
        2 * DOT_K * source.window if choice.parts > 1 else 0,
        17 * streams * (width + 1) + choice.lanes if streams > 1 else 0,
        17 * BOX_RUN if choice.boxed else 0,
        (DOT_COLUMNS + choice.fold[1]) * width if choice.folds else 0,
    )
    loaded = min(rows, need.channels) * max(source.window, source.extent) * unit
    parts = {
        "zero_bytes": need.zeros * size,
        "window_bytes": need.window * choice.window_size,
        "entry_bytes": need.entries * size,
        "result_bytes": need.results * (2 if cut.rounded else size),
        "pointer_bytes": need.pointers * 8,
        "staging_bytes": max(staging * size, loaded),
        "panel_bytes": 0,
        "packing_bytes": 0,
    }
    if cut.packs_in_tasks:
        lanes = {ROWS: choice.lanes, DOT: DOT_COLUMNS}[choice.panel_kernel]
        rows = up(cut.chunk, choice.unit) if choice.dot else cut.chunk
        taps = 1 if choice.kernel == SCATTER else len(choice.taps)
        parts["panel_bytes"] = taps * rows * cut.widest * lanes * choice.factor_size
        staged = max(taps, cut.packed_apart)
        parts["packing_bytes"] = KERNELS.pack_staging(staged, choice.parts, choice.winograd)
    return {name: up(value, 64) for name, value in parts.items()}


class _Need(NamedTuple):
    """What a kernel keeps in scratch, in elements (pointers in words)."""

    window: int
    results: int
    pointers: int
    channels: int  # of diff_dst, staged on their way into the window
    sums: int  # channels of diff_src, staged on their way out
    zeros: int = 0
    entries: int = 0  # of diff_dst, to be unfolded into the window


def _window(cut: Cut) -> int:
    depth, height, width = cut.axes
    return depth.window * height.window * (cut.planes * cut.row_pitch or width.window)


def _rows_need(cut: Cut) -> _Need:
    pitch, merge, windowed = cut.result_pitch, cut.merge, cut.choice.windowed
    if cut.choice.winograd:
        return _winograd_need(cut)
    results = cut.result_positions * pitch
    if cut.direct:
        # Those of a tile, to be rounded.
        vectors = max(rows * nv for nv, rows in cut.choice.tiles.shapes.items())
        results = 0 if cut.choice.problem.plain else vectors * cut.choice.lanes
    return _Need(
        window=_window(cut) * cut.chunk if windowed else 0,
        results=results,
        pointers=prod(cut.block) * (2 + cut.choice.work.most // merge),
        channels=cut.chunk,
        sums=pitch,
        zeros=merge
        * (cut.chunk if windowed else cut.task_groups * cut.choice.problem.output_channels),
    )


def _winograd_need(cut: Cut) -> _Need:
    choice, pitch, width = cut.choice, cut.result_pitch, cut.sources[2]
    rows = PATCH * choice.given.dilations[1]
    return _Need(
        window=PLANES * cut.window_plane,
        # And two rows of pixels.
        results=PLANES * cut.result_plane + TILE * TILE * cut.block[2] * pitch,
        pointers=prod(cut.block) * (2 + choice.work.most),
        channels=cut.chunk,
        sums=pitch,
        zeros=cut.chunk,
        entries=rows * width.window * cut.chunk,
    )


def _columns_need(cut: Cut) -> _Need:
    choice = cut.choice
    tile = max(block.channels for block in cut.blocks)
    rows = -(-len(cut.blocks) // cut.channel_splits) * tile
    # Tiles run on past the window's last entry.
    beyond = cut.nv * choice.lanes + cut.axes[2].window
    window = cut.window_plane * cut.chunk + beyond
    return _Need(
        window=window if choice.windowed else cut.chunk * choice.lanes,
        # Direct, the last tile of a row.
        results=tile * cut.nv * choice.lanes if cut.direct else rows * cut.result_pitch,
        pointers=(choice.work.most if choice.windowed else 2) * cut.chunk,
        channels=cut.chunk,
        sums=rows,
    )


def _dot_need(cut: Cut) -> _Need:
    choice, pitch = cut.choice, cut.result_pitch
    apart = choice.problem.strides[2] if choice.in_order else 1
    beyond = 2 * DOT_ROWS * apart + cut.axes[2].window
    channels, runs, entries = cut.chunk, 0, 0
    if choice.unfolds:
        beyond, channels = 2 * DOT_ROWS, choice.given.output_channels
        runs = prod(choice.given.kernel) // cut.unfold
        # A vector is read beyond the last of them.
        entries = (prod(axis.window for axis in cut.sources) * channels + 1) // 2 + choice.lanes
    positions = cut.result_positions
    if cut.direct:
        # Vectors are stored from registers; a tile of AMX while the next one is computed.
        positions = 2 * cut.tile_positions if choice.tiles.amx else 0
    return _Need(
        window=(_window(cut) + beyond) * cut.entry_pitch if choice.windowed else 0,
        results=positions * pitch,
        pointers=3 * max(choice.work.most, runs),
        channels=channels,
        sums=pitch,
        entries=entries,
    )


def _pairs_need(cut: Cut) -> _Need:
    choice = cut.choice
    depth, height, width = (axis.window for axis in cut.axes)
    segments = depth * (1 if cut.flatten else height)
    # Elements of both rows of a pair; tiles run on past the last entry.
    window = segments * up(cut.chunk, DOT_K) // 2 * cut.pair_pitch // 2
    widths = [block.width for block in cut.blocks]
    rows = DOT_COLUMNS * max(widths) * -(-len(widths) // cut.channel_splits)
    return _Need(
        window=window + 2 * (2 * DOT_ROWS + width),
        # Direct, one tile is stored while the next is computed.
        results=2 * cut.tile_positions * cut.result_pitch
        if cut.direct
        else rows * cut.result_pitch,
        pointers=max(choice.work.most, 6 * len(cut.axes[2].taps)),
        channels=cut.chunk,
        sums=rows,
    )


def _scatter_need(cut: Cut) -> _Need:
    choice, pitch, strip = cut.choice, cut.result_pitch, cut.strip
    outputs = choice.problem.output_channels
    if choice.along_rows:
        product = _convolution_scatter.columns(choice.problem) * pitch
        return _Need(
            # Whole rows, converted, or their last vectors.
            window=cut.chunk * (strip if choice.windowed else choice.source_lanes),
            results=cut.box_bytes // choice.size + product,
            pointers=max(cut.chunk, choice.out_steps[2]),
            channels=0,
            sums=1,
        )
    positions = strip + 2 * DOT_ROWS
    row = up(outputs, DOT_K) if choice.dot else outputs
    return _Need(
        window=positions * row if choice.windowed else 0,
        results=cut.box_bytes // choice.size + (positions + choice.lanes) * pitch,
        pointers=2 * max(strip, prod(choice.problem.kernel[:2])),
        channels=outputs,
        sums=pitch,
    )


def _depthwise_need(cut: Cut) -> _Need:
    if not cut.choice.along_rows:
        return _lanes_need(cut)
    if cut.choice.rolls:
        return _rolling_need(cut)
    axes, steps = cut.axes, [axis.taps.in_step for axis in cut.axes]
    spans = [
        axis.taps.span + (axis.block - 1) * step for axis, step in zip(axes, steps, strict=True)
    ]
    rows = prod(spans[:2]) + (steps[2] > 1)
    choice, results = cut.choice, 0
    if not cut.direct:
        results = cut.strip * choice.row_classes * cut.window_pitch
    elif cut.stages:
        results = prod(map(mul, cut.block[1:], choice.out_steps[1:])) + _LINE // choice.size
    # The columns that taps read, a Stencil for classes beside each other, places and weights.
    stencils, taps = len(choice.residues) // choice.row_classes, 2 * len(choice.taps)
    window = rows * cut.window_pitch + choice.lanes
    if choice.strided:
        taps += len(choice.taps) * choice.lanes // steps[2]
        window += strided_sums(axes[2].block, len(axes[2].taps), steps[2], choice.lanes)
    return _Need(
        window=window,
        results=results,
        pointers=len(axes[2].taps) + KERNELS.STENCIL_WORDS * stencils + taps,
        channels=1,
        sums=1,
    )


def _rolling_need(cut: Cut) -> _Need:
    """Return what there is beside results: a Rolling, Layers; of taps places, weights and masks."""
    choice, taps = cut.choice, len(cut.choice.taps)
    results = 0
    if cut.stages:
        results = prod(map(mul, cut.block[1:], choice.out_steps[1:])) + _LINE // choice.size
    vectors = -(-cut.block[2] // choice.lanes)
    return _Need(
        window=0,
        results=results,
        pointers=KERNELS.ROLLING_WORDS + 5 * len(choice.residues) + (2 + vectors) * taps,
        channels=1,
        sums=1,
    )


def _lanes_need(cut: Cut) -> _Need:
    choice, pitch = cut.choice, cut.result_pitch
    outputs = choice.problem.output_channels
    channels = cut.task_groups * outputs
    window = results = 0
    if choice.windowed:
        window = channels * cut.spanned
        results = pitch * prod(map(mul, cut.block, choice.out_steps))
    elif cut.stages:
        results = cut.block[2] * choice.row_classes * pitch + _LINE // choice.size
    # Tables, and weights that fill two vectors.
    pointers = choice.work.most * (8 + 2 * choice.lanes * choice.size // 8)
    if choice.row_classes > 1:  # their weights without gaps
        pointers += (len(choice.taps) * channels + choice.lanes) * choice.size // 8 + 1
    if choice.row_pairs:
        pointers += len(choice.taps) * up(channels, PAIR_CHANNELS)
    if choice.stride_columns > 1:
        # The weights without gaps, and sums of some positions or of all that one reads.
        inner = cut.strip * up(choice.stride_columns * channels, choice.lanes)
        sums = max(inner, up(choice.problem.kernel[2] * channels, choice.lanes)) + choice.lanes
        pointers += (choice.work.most * channels + sums) * choice.size // 8
    if choice.kernel == GROUPED:
        window += cut.ring_elements
        pointers = _convolution_grouped.pointers(
            cut.axes, len(choice.residues), outputs, choice.lanes * choice.size
        )
    return _Need(window, results, pointers, channels, sums=pitch)


_NEEDS = {
    ROWS: _rows_need,
    COLUMNS: _columns_need,
    GROUPED: _lanes_need,
    DOT: _dot_need,
    PAIRS: _pairs_need,
    DEPTHWISE: _depthwise_need,
    SCATTER: _scatter_need,
}
