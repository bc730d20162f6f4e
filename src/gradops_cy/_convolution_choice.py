"""What a kernel reads and writes in place, in a window, through scratch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from gradops_cy import (
    _convolution_depthwise,
    _convolution_fold,
    _convolution_grouped,
    _convolution_rolling,
    _convolution_split,
    _convolution_taps,
    _convolution_unfold,
    _convolution_winograd,
)
from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import Axis, axis_of
from gradops_cy._convolution_fastest import choose_kernel
from gradops_cy._convolution_kernels import (
    COLUMNS,
    DEPTHWISE,
    DOT,
    DOT_COLUMNS,
    DOT_K,
    DOT_ROWS,
    FINITE,
    FOLD,
    GROUPED,
    NOTHING,
    PAIRS,
    ROWS,
    SCATTER,
    TAIL_CHANNELS,
    UNFOLD,
    Layout,
    Tiles,
    block_of_pixels,
    blocks_in_place,
    computes_again,
    goes_along_rows,
    groups_abreast,
    groups_on_diagonal,
    joins_images,
    lanes_of_a_group,
    lie_in_runs,
    paired,
    pairs_channels,
    reads_in_place,
    reads_positions_in_place,
    sums_few_pairs,
    sums_few_planes,
    taps_beside,
    tiles_of,
    writes_positions_in_place,
    writes_whole_rows,
)
from gradops_cy._convolution_problem import BLOCK_WIDTH, ConvProblem, Triple
from gradops_cy._convolution_taps import AxesTaps, Taps
from gradops_cy._rounding import up

# Bytes of weights that a tile of positions passes by.
DOT_PANELS = 1 << 18


@dataclass(frozen=True, eq=False)
class Choice:
    """The kernel of a problem in one layout, and what follows from it alone."""

    given: ConvProblem
    problem: ConvProblem  # the one given, unfolded or folded, of groups abreast or of pairs
    layout: Layout
    assumed: int
    tiles: Tiles
    kernel: int
    abreast: int  # groups that are taken for one, each with DOT tiles of its own; or 1
    diagonal: int  # groups that are taken for one, with zeros for what they do not share; or 1
    fold: tuple[int, int]  # rows and columns of diff_src that are taken for channels; or 1
    beside: int  # taps of a row that are one DOT tile deep; or 1
    paired: bool  # GROUPED takes two channels of diff_dst for one
    broadcast: int  # lanes of a GROUPED vector if it is of one group and its channels are; or 0
    along_rows: bool  # the lanes of DEPTHWISE or SCATTER are positions of a row, not channels
    unfolds: bool  # the window holds all taps side by side
    winograd: bool  # patches and filters are transformed to planes
    parts: int  # of bfloat16, that DOT tiles multiply; or 0
    windowed: bool  # diff_dst is read through a window in scratch
    direct: bool  # diff_src is written without scratch
    zero_first: bool
    counts: Triple  # most positions of a residue class on each axis
    work: Taps  # residue classes and taps

    @property
    def residues(self) -> Array:
        """Table of the residue classes."""
        return self.work.residues

    @property
    def taps(self) -> Array:
        """Table of the taps."""
        return self.work.taps

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.tiles.lanes

    @property
    def source_lanes(self) -> int:
        """Elements of a vector of what is multiplied."""
        return self.lanes * self.size // self.factor_size

    @property
    def size(self) -> int:
        """Bytes of the type that sums."""
        return 8 if self.problem.dtype == 3 else 4

    @property
    def factor_size(self) -> int:
        """Bytes of what is multiplied."""
        return 2 * self.parts or self.size

    @property
    def window_size(self) -> int:
        """Bytes of an element of a window: pairs of rows are zipped on their way to registers."""
        return 2 if self.row_pairs else self.factor_size

    @property
    def dot(self) -> bool:
        """Whether pairs of bfloat16 are multiplied: by AMX tiles, or into the lanes of vectors."""
        return self.parts > 0

    @property
    def depth(self) -> int:
        """Products of a DOT tile."""
        outputs = self.problem.output_channels
        if self.beside > 1:
            return min(self._run, DOT_K) if self.tiles.amx else self._run
        if self._in_place:
            return min(outputs // self.abreast, DOT_K)
        plain = self.kernel == DOT and self.parts == 1
        return self.tiles.depth(outputs // self.abreast) if plain else DOT_K

    @property
    def tail(self) -> int:
        """Products of the last step along k of a DOT tile, or 0 for as many."""
        return self._run % self.depth if self._in_place or self.beside > 1 else 0

    @property
    def _run(self) -> int:
        """Products of the taps that are beside each other."""
        return self.beside * up(self.problem.output_channels, 2)

    @property
    def _in_place(self) -> bool:
        """Whether AMX tiles are loaded from diff_dst."""
        return self.kernel == DOT and not self.windowed and self.tiles.amx

    @property
    def stride_columns(self) -> int:
        """Columns of diff_dst that DEPTHWISE sums side by side, or 1."""
        if self.kernel != DEPTHWISE or self.along_rows:
            return 1
        return _convolution_depthwise.stride_columns(self.problem, self.lanes, self.size)

    @property
    def row_classes(self) -> int:
        """Residue classes of a row that DEPTHWISE computes together, or 1."""
        if self.kernel != DEPTHWISE or self.zero_first:
            return 1
        return _convolution_depthwise.row_classes(self.problem)

    @property
    def column_pairs(self) -> bool:
        """Whether DEPTHWISE multiplies neighbouring columns of bfloat16 as one."""
        depthwise, pairs = self.kernel == DEPTHWISE and self.along_rows, self.tiles.vector_pairs
        if self.rolls:
            return _convolution_rolling.pairs(self.problem, pairs)
        return depthwise and _convolution_depthwise.pairs_columns(self.problem, pairs)

    @property
    def rolls(self) -> bool:
        """Whether DEPTHWISE reads rows of diff_dst in place, one after the other."""
        rolls = self.kernel == DEPTHWISE and self.along_rows and self.direct
        pairs = self.tiles.vector_pairs
        return rolls and _convolution_rolling.rolls(self.problem, self.lanes, pairs)

    @property
    def strided(self) -> bool:
        """Whether lanes of DEPTHWISE are columns of diff_dst, those of a stride side by side."""
        depthwise = self.kernel == DEPTHWISE and self.along_rows
        return depthwise and _convolution_depthwise.strided(self.problem, self.lanes)

    @property
    def row_pairs(self) -> bool:
        """Whether DEPTHWISE multiplies neighbouring rows of bfloat16 as one."""
        if self.kernel != DEPTHWISE or self.along_rows or (self.boxed and self.layout.accumulate):
            return False
        return _convolution_depthwise.pairs_rows(self.problem, self.tiles.vector_pairs)

    @property
    def unit(self) -> int:
        """Channels that an entry of a DOT window has a multiple of."""
        return self._run // self.beside if self.beside > 1 else self.depth

    @property
    def exact_halo(self) -> bool:
        """Whether products with padding are left out: there are weights of which zero makes NaN."""
        return self.assumed == NOTHING

    @property
    def otherwise(self) -> int:
        """What may be assumed of values that break what this plan assumes."""
        return FINITE if self.checks else NOTHING

    @property
    def checks(self) -> bool:
        """Whether sums have to be finite: of parts, of tiles, with zeros of other groups."""
        return self.parts > 1 or self.diagonal > 1 or self.folds or self.winograd

    @property
    def folds(self) -> bool:
        """Whether pixels of diff_src are taken for channels."""
        return prod(self.fold) > 1

    @property
    def out_steps(self) -> Triple:
        """Steps from position to position of a residue class."""
        return _convolution_taps.out_steps(self.problem)

    @property
    def source_channels(self) -> int:
        """Channels of diff_dst in a group."""
        return (self.given if self.unfolds else self.problem).output_channels

    @property
    def over_groups(self) -> bool:
        """Whether vectors go through the channels of all groups."""
        return self.kernel in (GROUPED, DEPTHWISE)

    @property
    def boxed(self) -> bool:
        """Whether such a kernel goes through boxes with channels last."""
        return self.over_groups and self.windowed and not self.along_rows

    @property
    def entry_channels(self) -> int:
        """Channels of diff_dst that an entry of GROUPED's rows holds for each group."""
        return self.broadcast or _convolution_grouped.entry_channels(self.problem, self.lanes)

    @property
    def panels_over_groups(self) -> bool:
        """Whether a row of the packed weights goes through all groups."""
        return self.over_groups and not self.broadcast

    @property
    def phased(self) -> bool:
        """Whether the kernel needs consecutive positions to read consecutive entries."""
        return self.has_units or self.kernel == GROUPED

    @property
    def in_order(self) -> bool:
        """Whether rows of a window that a stride steps through are not sorted by its residues."""
        return self.beside > 1 and self.problem.transposed and self.problem.strides[2] > 1

    @property
    def has_units(self) -> bool:
        """Whether the kernel works on runs of consecutive positions."""
        return self.kernel in (COLUMNS, DOT, PAIRS)

    @property
    def whole_rows(self) -> bool:
        """Whether rows are not cut: tiles are loaded from diff_dst, or lie between each other."""
        dilated = self.winograd and self.given.dilations[2] > 1
        return dilated or (self.kernel == DOT and not self.windowed)

    @property
    def tiled(self) -> bool:
        """Whether the kernel is nothing but DOT tiles."""
        return self.kernel in (DOT, PAIRS)

    @property
    def panel_kernel(self) -> int:
        """The kernel whose panels are as wide."""
        if self.dot:
            return DOT
        if self.kernel == SCATTER:
            return COLUMNS if self.along_rows else ROWS
        return ROWS if self.broadcast else self.kernel

    def axis(self, number: int, block: int) -> Axis:
        """Return one axis in blocks of `block` positions."""
        return _axis_of(self.problem, self.work.axes, number, block)

    @property
    def reads_apart(self) -> bool:
        """Whether diff_dst is read by other axes than the products'."""
        return self.unfolds or self.winograd

    @cached_property
    def _read(self) -> tuple[ConvProblem, AxesTaps]:
        read = _convolution_winograd.pixels(self.given) if self.winograd else self.given
        return read, _convolution_taps.axes(read)

    def source(self, number: int, block: int) -> Axis:
        """Return the axis by which diff_dst is read, where that is apart."""
        return _axis_of(*self._read, number, block)


def _axis_of(problem: ConvProblem, axes: AxesTaps, number: int, block: int) -> Axis:
    return axis_of(axes[number], problem.diff_src[number], problem.diff_dst[number], block)


def choose(given: ConvProblem, layout: Layout, assumed: int, parts: int) -> Choice:
    """Choose the kernel and decide what it reads and writes without scratch."""
    tiles = tiles_of(given.dtype == 3)
    kernel = choose_kernel(given, layout, tiles, assumed, parts)
    if kernel == DOT and tiles.amx and joins_images(given, layout):
        # The sum of a position is the same in any row of a tile.
        given = given.of_all_images()
    problem, abreast, diagonal, beside, unfolds = given, 1, 1, 1, kernel == UNFOLD
    fold = (1, 1)
    winograd = kernel in (ROWS, COLUMNS) and _winograd(given, layout, tiles, assumed, parts)
    if unfolds:
        problem, kernel = _convolution_unfold.product(given), DOT
    elif winograd:
        problem, kernel = _convolution_winograd.product(given), ROWS
    elif kernel == FOLD:
        fold = block_of_pixels(given, layout, tiles, parts, assumed) or fold
        problem, kernel = _convolution_fold.product(given, fold), DOT
        beside = taps_beside(problem, parts, tiles)
    elif kernel == DOT:
        abreast = groups_abreast(given, parts)
        diagonal = groups_on_diagonal(given, layout, tiles, parts, assumed)
        if abreast * diagonal > 1:
            problem = given._replace(groups=given.groups // (abreast * diagonal))
        else:
            beside = taps_beside(given, parts, tiles)
    along_rows = goes_along_rows(given, layout, tiles, kernel, parts, assumed)
    in_pairs = kernel == GROUPED and pairs_channels(given, tiles, assumed)
    broadcast = lanes_of_a_group(given, tiles, in_pairs) if kernel == GROUPED else 0
    if in_pairs:
        problem = paired(given)
    zero_first = _convolution_taps.zero_first(problem)
    work = _convolution_taps.taps_of(_convolution_taps.axes(problem), zero_first)
    plain = problem.plain
    reads = reads_positions_in_place(problem, layout, tiles)
    if kernel in (GROUPED, DEPTHWISE):
        windowed = along_rows or not layout.channels_last
        direct = not windowed or (along_rows and not layout.accumulate)
    else:
        rows = kernel == ROWS and not winograd
        in_place = rows or (kernel == SCATTER and not parts)
        windowed = not (in_place and reads)
        direct = rows and writes_positions_in_place(problem, layout, tiles)
    if kernel == SCATTER and along_rows:
        windowed = not (plain or parts)
    elif kernel == SCATTER and parts and not tiles.amx:
        windowed = not layout.diff_dst_channels_last or problem.output_channels % 2 > 0
    if kernel == COLUMNS:
        direct = plain and writes_whole_rows(problem, layout) and not layout.accumulate
        direct = direct or sums_few_planes(problem, layout)
        windowed = not (direct and reads_in_place(problem, layout, tiles))
    if kernel == DOT:
        # A tile's whole sum is rounded at once (without taps there are no tiles).
        direct = layout.diff_src_channels_last and len(work.taps) > 0
        direct = direct and (tiles.amx or not layout.accumulate)
        if prod(fold) > 1:
            direct = direct and not tiles.amx and blocks_in_place(given, layout, fold)
        reads = layout.diff_dst_channels_last and not unfolds and parts == 1
        reads = reads and (beside == 1 or lie_in_runs(problem, layout))
        # Rows of 1-D that are shorter than the plan's may end within a block.
        reads = reads and (prod(fold) == 1 or given.rank > 1)
        windowed = not (reads and _reads_tiles(problem, layout, work, tiles))
    if kernel == PAIRS:
        direct = writes_whole_rows(problem, layout) and len(work.taps) > 0
    return Choice(
        given,
        problem,
        layout,
        assumed,
        tiles,
        kernel,
        abreast=abreast,
        diagonal=diagonal,
        fold=fold,
        beside=beside,
        paired=in_pairs,
        broadcast=broadcast,
        along_rows=along_rows,
        unfolds=unfolds,
        winograd=winograd,
        parts=parts if kernel in (DOT, PAIRS, SCATTER) else 0,
        windowed=windowed,
        direct=direct,
        zero_first=zero_first,
        counts=_convolution_taps.counts(problem),
        work=work,
    )


def _winograd(problem: ConvProblem, layout: Layout, tiles: Tiles, assumed: int, parts: int) -> bool:
    """Whether patches and filters are transformed."""
    again = computes_again(assumed, layout.accumulate)
    if parts or not again or not _convolution_winograd.fits(problem):
        return False
    return _convolution_winograd.pays(problem, tiles.lanes)


def dot_parts(problem: ConvProblem, assumed: int, accumulate: bool) -> int:
    """Return how many bfloat16 parts of an element DOT may multiply; 0 where it may not.

    Of the problem before rows are joined, so that the bits of a result do not depend on its batch.
    """
    tiles = tiles_of(problem.dtype == 3)
    if not tiles.bf16_rate or problem.dtype not in _convolution_split.PARTS:
        return 0
    parts = _convolution_split.PARTS[problem.dtype]
    if parts > 1:
        again = computes_again(assumed, accumulate)
        tile = DOT_ROWS, DOT_COLUMNS, DOT_K
        if not tiles.amx or not again or not _convolution_split.pays(problem, tiles.lanes, tile):
            return 0
    return parts


def _reads_tiles(problem: ConvProblem, layout: Layout, work: Taps, tiles: Tiles) -> bool:
    """Whether DOT tiles can be loaded from diff_dst: whole ones, and no tap outside."""
    outputs, counts = problem.output_channels, _convolution_taps.counts(problem)
    fewest = problem.diff_src[2] // _convolution_taps.out_steps(problem)[2]
    whole = outputs % tiles.depth(outputs) == 0 or sums_few_pairs(problem, layout, tiles)
    if tiles.amx and not whole and outputs % 2 == 0:
        # A last step of fewer products takes a tile of positions by one of channels: each tile of
        # positions is loaded for each 16 channels of diff_src.
        whole = problem.input_channels <= TAIL_CHANNELS
    whole = whole and (fewest >= DOT_ROWS or not tiles.amx)
    if not whole or not len(work.taps) or counts[2] > BLOCK_WIDTH:
        return False
    # diff_dst comes from memory each time, a window from the second-level cache; and NumPy's arrays
    # begin 16 bytes beyond a line, so that each row of a tile lies in two.
    panels = len(work.taps) * outputs * up(problem.input_channels, DOT_COLUMNS) * 2
    if panels >= 2 * DOT_PANELS * len(work.residues):
        return False
    return _convolution_taps.stay_inside(problem, work.axes)
