"""How large the blocks of a convolution are, for the caches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

from gradops_cy import (
    _convolution_columns,
    _convolution_grouped,
    _convolution_scatter,
    _convolution_winograd,
)
from gradops_cy._convolution_choice import Choice
from gradops_cy._convolution_cut import Cut, resized
from gradops_cy._convolution_depthwise import PLANE_BYTES, STRIDED_PLANE_BYTES
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_ROWS,
    GROUPED,
    ROWS,
    SCATTER,
)
from gradops_cy._convolution_pieces import (
    BLOCK_POSITIONS,
    channel_blocks,
    half_block,
    half_groups,
    half_scatter_block,
    split_channels,
    whole_groups,
)
from gradops_cy._convolution_problem import BLOCK_WIDTH, ConvProblem, Triple
from gradops_cy._convolution_threads import split_for_threads
from gradops_cy._rounding import up

# One task's window and results should stay in a core's second-level cache.
WORKSPACE = 1 << 20
# Processors with AMX have at least 2 MiB of that cache. Blocks of few positions may take more of
# it: each reads all weights once more.
AMX_WORKSPACE, AMX_WORKSPACE_OF_FEW, AMX_FEW_POSITIONS = 3 << 19, 7 << 18, 170
# Pointwise weights that cost next to nothing to read once more for each small block, and those that
# cost less than sums that are cut.
AMX_WORKSPACE_OF_LIGHT, AMX_LIGHT_WEIGHTS, AMX_MODERATE_WEIGHTS = 1 << 19, 1 << 17, 1 << 19
# Of Winograd's 16 planes one is at work at a time; but a call has 2 MiB for all but the weights.
# Tasks that pack these themselves, since they have whole images, may have more of it.
WINOGRAD_WORKSPACE, WINOGRAD_WORKSPACE_OF_WHOLE = 5 << 18, 31 << 16
# The weights of a channel block that should stay in a core's second-level cache.
PANEL = 1 << 18
# Channels that are transposed together: their rows should stay in the first-level cache.
BOX_VECTORS = 2
# Spans of dilated taps that blocks go down: fewer have few rows of a residue to share.
DILATED_SPANS = 2
# Of both tensors, which groups share lines of: the second-level cache keeps these.
TOUCHED = 1 << 19
# Positions down to which rows of channels are cut before their sums are: rows share no more than a
# kernel's width, and stay pieces of memory, while parts of sums go through scratch.
SHORTEST_CUT = 512
# A share of products that lie in padding, from which on regions are what tiles are made of.
MOSTLY_INSIDE = 0.7


def cut(choice: Choice, num_threads: int) -> Cut:
    """Cut the work of a kernel into tasks."""
    width = min(choice.counts[2], BLOCK_WIDTH)
    flatten = choice.has_units and _convolution_columns.flattens(choice, width)
    nv, down = choice.tiles.rows_nv, 0
    if choice.panel_kernel == COLUMNS:
        nv = _convolution_columns.tile_vectors(choice, flatten, width)
    if choice.dot:
        nv, down = _convolution_columns.dot_tile(choice, flatten, width)
    blocks, group_panel = channel_blocks(choice, nv)
    chunk, groups = _panel_chunk(choice), _task_groups(choice)
    first = Cut(choice, chunk, nv, down, flatten, blocks, group_panel, groups, (1, 1, width))
    if choice.kernel == SCATTER:
        return split_for_threads(_cut_for_scatter(first), num_threads)
    if choice.kernel == GROUPED:
        first = _cut_for_ring(first)
    while _touches_much(first) and first.block[2] > 4 * choice.lanes:
        first = half_block(first, 2)
    if choice.winograd:
        return split_for_threads(_by_channels(_cut_for_winograd(first)), num_threads)
    found = _by_channels(_grow(_fit_workspace(first)))
    if _may_cut_positions(first):
        found = min(found, _by_channels(_grow(_fit_workspace(first, True))), key=_moved_bytes)
    return split_for_threads(found, num_threads)


def _workspace(choice: Choice, positions: int = BLOCK_POSITIONS) -> int:
    """Return the bytes for a task, whose blocks have so many positions."""
    if choice.along_rows:
        strided = choice.problem.transposed and max(choice.problem.strides) > 1
        return STRIDED_PLANE_BYTES if strided else PLANE_BYTES
    if choice.winograd:
        return WINOGRAD_WORKSPACE
    if choice.dot and choice.tiles.amx:
        if _has_light_weights(choice, AMX_LIGHT_WEIGHTS):
            return AMX_WORKSPACE_OF_LIGHT
        return AMX_WORKSPACE_OF_FEW if positions < AMX_FEW_POSITIONS else AMX_WORKSPACE
    return WORKSPACE


def _has_light_weights(choice: Choice, most: int) -> bool:
    """Whether a product without a kernel has up to `most` bytes of weights."""
    problem = choice.problem
    weights = problem.output_channels * problem.input_channels * choice.factor_size
    return problem.pointwise and not choice.unfolds and weights <= most


def _reads_weights_again(choice: Choice) -> bool:
    """Return whether blocks had rather read all weights than have their sums cut."""
    return not choice.tiles.amx or _has_light_weights(choice, AMX_MODERATE_WEIGHTS)


def _panel_chunk(choice: Choice) -> int:
    """Return how many channels of diff_dst are summed at a time.

    A panel of so many stays in the second-level cache while all positions of a block use it.
    Of the problem and the kernel alone: where a sum is cut decides its last bits.
    """
    outputs, inputs = choice.problem.output_channels, choice.problem.input_channels
    if not choice.windowed and choice.kernel == DOT:
        return outputs
    if choice.kernel == SCATTER and choice.along_rows:
        return min(outputs, _convolution_scatter.row_chunk(choice.dot))
    if choice.kernel == ROWS:
        unit = choice.lanes * choice.size
        widest = choice.tiles.rows_nv * unit
    elif choice.tiled:
        unit = DOT_COLUMNS * choice.factor_size
        widest = 2 * unit
    else:
        return outputs
    channel = len(choice.taps) * min(widest, up(inputs * choice.size, unit))
    if outputs * channel <= 2 * PANEL:
        return outputs
    return min(outputs, max(64, PANEL // channel // DOT_K * DOT_K))


def _task_groups(choice: Choice) -> int:
    """Return the groups of a task, before there is a reason to take fewer or more."""
    problem = choice.problem
    if not choice.over_groups:
        return 1
    if not choice.windowed:
        return problem.groups
    unit = whole_groups(choice)
    units = max(1, BOX_VECTORS * choice.lanes // (unit * problem.input_channels))
    return min(problem.groups, unit * units)


def _cut_for_scatter(whole: Cut) -> Cut:
    """Take as large a block as fits: its neighbours compute what reaches into both."""
    found = whole.reblocked(whole.choice.counts)
    # The product has its own size; it is the sums that a smaller block makes smaller.
    while found.box_bytes > WORKSPACE // 2 and (smaller := half_scatter_block(found)):
        found = smaller
    return found


def _cut_for_ring(whole: Cut) -> Cut:
    """Cut rows whose spread form would not stay in the first-level cache."""
    room = _convolution_grouped.room(whole.choice.boxed)
    if _convolution_grouped.shares_halo(whole.axes[2].taps, whole.block[2]):
        return whole
    while whole.block[2] > 1 and whole.ring_elements * whole.choice.size > room:
        whole = whole.evened(2, whole.block[2] - 1)
    return whole


def _cut_for_winograd(whole: Cut) -> Cut:
    """Take as many tiles as fit, of whole images if they can be."""
    found = _by_tiles(whole, WINOGRAD_WORKSPACE)
    if found is None or found.position_blocks > 1:
        larger = _by_tiles(whole, WINOGRAD_WORKSPACE_OF_WHOLE)
        if larger is not None and larger.packs_in_tasks:
            return larger
    return found or _fit_workspace(whole)


def _by_tiles(whole: Cut, room: int) -> Cut | None:
    """Weigh blocks, which read all weights each, against ranges of channels, which read the window.

    With sums of fewer channels in scratch, there is room for more positions.
    """
    choice, found, least = whole.choice, None, 0
    for splits in (1 << n for n in range(len(whole.blocks).bit_length())):
        cut = replace(whole, channel_splits=splits)
        block = _convolution_winograd.block(choice.given, cut.chunk, cut.result_pitch, room)
        if block is not None:
            cut = cut.reblocked(block).evened(1, block[1]).evened(0, block[0])
            moved = cut.position_blocks * (choice.problem.input_channels + splits * prod(block))
            if found is None or moved < least:
                found, least = cut, moved
    return found


def _may_cut_positions(first: Cut) -> bool:
    """Return whether blocks of positions might read heavy weights, instead of sums that are cut."""
    choice = first.choice
    apart = choice.tiled and choice.problem.pointwise and not choice.unfolds
    heavy = apart and not _reads_weights_again(choice)
    return heavy and first.workspace_bytes > _workspace(choice)


def _fit_workspace(found: Cut, positions_first: bool = False) -> Cut:
    """Make tasks smaller until one fits its workspace.

    This may cut a sum, and must not depend on the batch: panels are left out.
    """
    room = _workspace(found.choice)
    while found.workspace_bytes > room and (smaller := _smaller(found, positions_first)):
        found = smaller
    return found


def _smaller(whole: Cut, positions_first: bool) -> Cut | None:
    """Cut groups, channels, rows or at last residue classes; return nothing if all are cut."""
    choice, width = whole.choice, whole.block[2]
    if not choice.along_rows and (fewer := half_groups(whole)):
        return fewer
    splittable = whole.channel_splits < len(whole.blocks)
    # Ranges of channels use one window after the other, blocks of positions all weights each.
    if choice.unfolds and splittable and whole.weights_bytes > whole.workspace_bytes:
        return split_channels(whole)
    # Unfolded or without a kernel, positions share nothing of a window, and whole sums need no
    # results in scratch; but AMX multiplies so fast that heavy weights had best be read once.
    apart = choice.unfolds or (choice.problem.pointwise and _reads_weights_again(choice))
    if (apart and width > 4 * DOT_ROWS) or (positions_first and width > 8 * DOT_ROWS):
        return whole.evened(2, up(width // 2, DOT_ROWS))
    if choice.windowed and whole.chunk > 64 and not choice.over_groups:
        last = choice.layout.diff_dst_channels_last
        if last and width > SHORTEST_CUT and not choice.whole_rows:
            return whole.evened(2, up(width // 2, choice.lanes))
        return replace(whole, chunk=up(whole.chunk // 2, DOT_K))
    # Cutting channels reads the positions once more, cutting positions the weights.
    if splittable and whole.weights_bytes > 2 * whole.workspace_bytes:
        return split_channels(whole)
    if width > 4 * choice.lanes and not choice.whole_rows:
        return whole.evened(2, up(width // 2, choice.lanes))
    if splittable:
        return split_channels(whole)
    if width > 1 and not choice.whole_rows:
        return half_block(whole, 2)
    classes = len(choice.residues)
    if not (choice.over_groups or choice.winograd) and whole.class_splits < classes:
        return replace(whole, class_splits=min(2 * whole.class_splits, classes))
    return None


def _grow(found: Cut) -> Cut:
    """Take more rows into a task while they fit."""
    if found.choice.kernel == GROUPED:
        found = _down_dilated_taps(found)
    grown = found.reblocked(_grown(found, lambda _: True))
    # What fits at last fits on the way there: few need to look at every step.
    if not _fits(found, grown.block):
        grown = found.reblocked(_grown(found, partial(_fits, found)))
    return grown.evened(1, grown.block[1]).evened(0, grown.block[0])


def _by_channels(found: Cut) -> Cut:
    """Cut channels instead of an image where weights are more than the caches hold.

    Blocks of positions read all weights each; ranges of channels share a window or, where sums are
    cut, fill it once each.
    """
    choice = found.choice
    whole = found.reblocked(choice.counts)
    able = choice.tiled or (choice.kernel == ROWS and whole.packs_in_tasks)
    room = _workspace(choice)
    heavy = able and found.weights_bytes > room
    if not heavy or found.direct or whole.block == found.block:
        return found
    fewest, least = prod(found.block), _moved_bytes(found)
    while prod(whole.block) > fewest:
        cut = whole
        while _held_bytes(cut) > room and cut.channel_splits < len(cut.blocks):
            cut = split_channels(cut)
        moved = _moved_bytes(cut)
        if _held_bytes(cut) <= room and moved < least:
            found, least = cut, moved
        whole = half_block(whole, next(a for a in (0, 1, 2) if whole.block[a] > 1))
    return found


def _moved_bytes(whole: Cut) -> int:
    """Return the bytes of weights that blocks read, of windows and of parts of sums.

    Windows are filled and read; parts of sums, which tiles load and store, take a quarter of that.
    """
    choice = whole.choice
    problem = choice.problem
    parts = -(-problem.output_channels // whole.chunk)
    fills = whole.channel_splits if parts > 1 else 1
    window = prod(problem.diff_dst) * problem.output_channels * choice.factor_size
    sums = prod(problem.diff_src) * problem.input_channels * choice.size
    moved = whole.position_blocks * whole.weights_bytes + 2 * fills * window
    return moved + (parts - 1) * sums // 2


def _fits(found: Cut, block: Triple) -> bool:
    larger = found.reblocked(block)
    fits = _held_bytes(larger) <= _workspace(found.choice, prod(block))
    return fits and not _touches_much(larger)


def _held_bytes(whole: Cut) -> int:
    """Return the bytes that a task uses again: not panels that it packs, and uses at once."""
    return whole.workspace_bytes if whole.packs_in_tasks else whole.scratch_bytes


def _touches_much(whole: Cut) -> bool:
    """Whether groups, or vectors of lanes, would come too late for lines that they share."""
    shares = whole.touches_block or whole.crosses_groups
    return shares and whole.touched_bytes > TOUCHED


def _grown(found: Cut, fits: Callable[[Triple], bool]) -> Triple:
    """Double a block's rows, on the axis first whose halo weighs most."""
    choice, block = found.choice, found.block
    counts, kernel = choice.counts, choice.problem.kernel
    # A window of three axes is mostly halo unless the block is large.
    limit = BLOCK_POSITIONS * (4 if choice.windowed and kernel[0] > 1 else 1)
    # Kernels that are fast, or transpose what they read: a halo costs them more.
    limit *= 2 if choice.tiled else 4 if choice.boxed else 1
    # Rows that two blocks copy cost bfloat16 more, for its products are fast. Without results in
    # scratch there is room for more of them in a block.
    copied = choice.kernel == DOT and choice.parts == 1 and choice.windowed and choice.direct
    fewest = max(2, 4 * (kernel[1] - 1)) if copied and kernel[0] == 1 else 2
    if choice.kernel == ROWS and _is_mostly_padding(choice.problem):
        # Tiles of regions, which are cut where taps leave diff_dst: of images rather than rows.
        several = resized(block, 0, min(counts[0], max(choice.tiles.shapes.values())))
        block = several if fits(several) else block
    growing = [axis for axis in (1, 0) if block[axis] < counts[axis]]
    while growing:
        axis = max(growing, key=lambda a: kernel[a] / block[a])
        extent = min(2 * block[axis], counts[axis])
        larger = resized(block, axis, extent)
        enough = prod(larger) > limit and block[axis] > (fewest if axis == 1 else 2)
        if choice.along_rows:  # whole images, which lie in one piece, but no two of them
            enough = axis == 0 and kernel[0] == 1
        if choice.boxed and kernel[axis] == 1:  # images share no weights worth keeping
            enough = prod(larger) > BLOCK_POSITIONS // 2
        if enough or not fits(larger):
            growing.remove(axis)
            continue
        block = larger
        if extent == counts[axis]:
            growing.remove(axis)
    return block


def _down_dilated_taps(found: Cut) -> Cut:
    """Take so many rows that dilated taps read the same ones, if they fit."""
    choice, block = found.choice, found.block
    for axis, taps in enumerate(choice.work.axes[:2]):
        if taps.apart > 1:
            extent = DILATED_SPANS * taps.span // taps.in_step
            block = resized(block, axis, max(block[axis], min(extent, choice.counts[axis])))
    larger = found.reblocked(block)
    return larger if larger.workspace_bytes <= _workspace(choice) else found


def _is_mostly_padding(problem: ConvProblem) -> bool:
    """Whether taps lie outside for most positions, and images are an axis like others."""
    inside = problem.inside(1) * problem.inside(2)
    return problem.rank < 3 and inside < MOSTLY_INSIDE
