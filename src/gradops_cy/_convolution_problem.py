"""The canonical form of both convolution operators: checked facts, always three spatial axes.

Both operators compute, for every result position ``x`` on each axis,

    diff_src[x] = sum over taps k and channels o of diff_dst[y(x, k), o] · W[o, k]

ConvolutionBackwardData with ``y·S = x + PB - k·D`` (only where S divides the right side),
ConvTransposeBackwardData with ``y = x·S + k·D - PB``. They differ in nothing else.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import NamedTuple

from gradops_cy import _arrays

Triple = tuple[int, int, int]

# Positions that make a row long enough; and a row longer than so many is cut into blocks.
ROW, BLOCK_WIDTH = 1024, 2048
# Positions of rows up to which a kernel along the axis before them is one along longer rows; and
# where groups of channels are last, whose rows are spread.
SHORT_ROW, SHORT_ROW_OF_GROUPS = 256, 12
# Lengths that share a plan differ in fewer positions than these, or than an eighth of long rows;
# and none has fewer positions than a tile.
LENGTHS, LENGTH_BITS, FEWEST_OF_LENGTHS = 8, 3, 16


class _Facts(NamedTuple):
    transposed: bool
    dtype: int
    batch: int
    groups: int
    diff_src_channels: int
    diff_dst_channels: int
    diff_src: Triple
    diff_dst: Triple
    kernel: Triple
    strides: Triple
    dilations: Triple
    pads_begin: Triple
    rank: int


class ConvProblem(_Facts):
    """What is to be computed, with oneDNN's letters in :meth:`__str__`.

    Below rank 3 the images stand on the first spatial axis, and `batch` is 1. A tuple, which every
    call makes and looks a plan up by: a frozen dataclass takes several times as long for either.
    """

    @cached_property
    def pointwise(self) -> bool:
        """Whether each position reads the one that it is."""
        return all(self._pointwise_along(axis) for axis in range(3))

    def _pointwise_along(self, axis: int) -> bool:
        plain = self.kernel[axis] == self.strides[axis] == 1 and not self.pads_begin[axis]
        return plain and self.diff_src[axis] == self.diff_dst[axis]

    @cached_property
    def bare_axes(self) -> int:
        """How many axes at the end have no kernel."""
        axes = range(2, 2 - self.rank, -1)
        return next((2 - axis for axis in axes if not self._pointwise_along(axis)), self.rank)

    @property
    def _bare_positions(self) -> int:
        """Positions of the axes without a kernel: the taps of the axis before lie so far apart."""
        return prod(self.diff_src[3 - self.bare_axes :])

    @cached_property
    def joinable(self) -> int:
        """Axes whose positions may stand in the rows of the last one.

        Those without a kernel; and one more where rows are short, as the taps are rows apart. Never
        the images: how a sum is computed would depend on their number.
        """
        if self.rank == 1:
            return 0
        length = self._bare_positions
        apart = 0 < self.bare_axes < self.rank and (
            length == 1 or (length <= SHORT_ROW and self.strides[2 - self.bare_axes] == 1)
        )
        return self.bare_axes if apart else max(0, self.bare_axes - 1)

    def joined(self, axes: int, channels_last: bool) -> ConvProblem:
        """Return the same problem in longer rows, made of up to `axes` axes and the last.

        Short rows leave lanes idle, and so do the ends of those above ROW positions.
        """
        if 0 < self.bare_axes == min(axes, self.joinable):
            depthwise = self.input_channels == self.output_channels == 1
            spread = self.groups > 1 and (channels_last or depthwise)
            if not spread or self._bare_positions <= SHORT_ROW_OF_GROUPS:
                return self._joined_kernel()
        x, y = list(self.diff_src), list(self.diff_dst)
        for axis in (1, 0)[: max(0, min(axes, self.bare_axes - 1))]:
            rows = max(n for n in range(1, max(1, ROW // x[2]) + 1) if x[axis] % n == 0)
            x[axis] = y[axis] = x[axis] // rows
            x[2] = y[2] = x[2] * rows
            if x[axis] > 1:
                break
        return self._replace(diff_src=(x[0], x[1], x[2]), diff_dst=(y[0], y[1], y[2]))

    @property
    def has_short_images(self) -> bool:
        """Whether those of many images are worth being one row: positions without a kernel.

        Not rows of 1-D which may be shorter than their plan's.
        """
        _, height, width = self.diff_src
        most = FEWEST_OF_LENGTHS if self.rank == 1 else SHORT_ROW
        return self.rank < 3 and height * width < most and self.pointwise

    def of_all_images(self) -> ConvProblem:
        """Return the same problem with all images in one row."""
        row = (1, 1, prod(self.diff_src))
        return self._replace(diff_src=row, diff_dst=row)

    def _joined_kernel(self) -> ConvProblem:
        """Return the problem whose rows are an axis with a kernel and the bare ones behind it."""
        axis, length = 2 - self.bare_axes, self._bare_positions

        def last(values: Triple, value: int, bare: int = 1) -> Triple:
            a, b, c = (*values[:axis], *(bare,) * (2 - axis), value)
            return a, b, c

        return self._replace(
            diff_src=last(self.diff_src, self.diff_src[axis] * length),
            diff_dst=last(self.diff_dst, self.diff_dst[axis] * length),
            kernel=last(self.kernel, self.kernel[axis]),
            strides=last(self.strides, self.strides[axis]),
            dilations=last(self.dilations, self.dilations[axis] * length),
            pads_begin=last(self.pads_begin, self.pads_begin[axis] * length, 0),
        )

    def lengthened(self) -> ConvProblem:
        """Return the problem whose plan computes this one: in 1-D that of somewhat longer rows.

        Calls whose lengths vary find one that was made before. The products of both differ only in
        how far they go on.
        """
        x, y, step = self.diff_src[2], self.diff_dst[2], self.strides[2]
        few, positions = (x, x) if self.transposed else (y, x // step)
        more = -few % max(LENGTHS, 1 << few.bit_length() >> 1 + LENGTH_BITS)
        if self.rank > 1 or min(few, positions) < FEWEST_OF_LENGTHS or not more:
            return self
        longer, stretched = (more, more * step) if self.transposed else (more * step, more)
        return self._replace(
            diff_src=(*self.diff_src[:2], x + longer),
            diff_dst=(*self.diff_dst[:2], y + stretched),
        )

    @property
    def fronts(self) -> Triple:
        """Padding of the transposed convolution that is the same, where there are no strides."""
        if self.transposed:
            return self.pads_begin
        axes = zip(self.kernel, self.dilations, self.pads_begin, strict=True)
        depth, height, width = ((kernel - 1) * dilation - pad for kernel, dilation, pad in axes)
        return depth, height, width

    @property
    def input_channels(self) -> int:
        """Channels of diff_src in a group."""
        return self.diff_src_channels // self.groups

    @property
    def output_channels(self) -> int:
        """Channels of diff_dst in a group."""
        return self.diff_dst_channels // self.groups

    @cached_property
    def flop(self) -> int:
        """Floating-point operations without those on padding."""
        channels = self.diff_src_channels * self.output_channels
        return 2 * self.batch * channels * prod(self._products)

    @cached_property
    def elements(self) -> int:
        """Elements of diff_dst and diff_src."""
        return (self.diff_dst_bytes + self.diff_src_bytes) // self.itemsize

    @property
    def plain(self) -> bool:
        """Whether values are computed as they are stored, and not converted."""
        return self.dtype in (0, 3)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _arrays.DTYPES[self.dtype].itemsize

    @property
    def diff_dst_bytes(self) -> int:
        """Bytes of diff_dst."""
        return self.batch * self.diff_dst_channels * prod(self.diff_dst) * self.itemsize

    @property
    def diff_src_bytes(self) -> int:
        """Bytes of diff_src."""
        return self.batch * self.diff_src_channels * prod(self.diff_src) * self.itemsize

    def inside(self, axis: int) -> float:
        """Return the share of an axis's products that are not with padding."""
        steps = 1 if self.transposed else self.strides[axis]
        return self._products[axis] * steps / (self.diff_src[axis] * self.kernel[axis])

    @cached_property
    def _products(self) -> Triple:
        """The (position, tap) pairs of each axis that meet inside both tensors."""
        return self._pairs(0), self._pairs(1), self._pairs(2)

    def _pairs(self, axis: int) -> int:
        """Count those of an axis."""
        large, small = self.diff_src[axis], self.diff_dst[axis]
        if self.transposed:
            large, small = small, large
        # Taps and positions stand for each other here: the fewer are walked through.
        (few, step), (many, stride) = sorted(
            [(self.kernel[axis], self.dilations[axis]), (small, self.strides[axis])]
        )
        if not self.pads_begin[axis] and (few - 1) * step + (many - 1) * stride < large:
            return few * many
        count = 0
        for shift in range(-self.pads_begin[axis], few * step - self.pads_begin[axis], step):
            first = max(0, -(shift // stride))
            last = min(many - 1, (large - 1 - shift) // stride)
            count += max(0, last - first + 1)
        return count

    def __str__(self) -> str:
        """Return benchdnn's problem string (dilations counted from 0, as there)."""
        ic, oc = self.diff_src_channels, self.diff_dst_channels
        i, o = self.diff_src, self.diff_dst
        axes = "dhw"[3 - self.rank :]
        images = self.batch if self.rank == 3 else self.batch * i[0]
        parts = [f"g{self.groups}" if self.groups > 1 else "", f"mb{images}", f"ic{ic}"]
        for names, values in (("i", i), (f"oc{oc}o", o), ("k", self.kernel)):
            prefix, letter = names[:-1], names[-1]
            parts.append(prefix)
            parts += [f"{letter}{a}{values[3 - self.rank + n]}" for n, a in enumerate(axes)]
        for letter, values, default, base in (
            ("s", self.strides, 1, 0),
            ("d", self.dilations, 1, 1),
            ("p", self.pads_begin, 0, 0),
        ):
            used = values[3 - self.rank :]
            if any(value != default for value in used):
                parts += [f"{letter}{a}{value - base}" for a, value in zip(axes, used, strict=True)]
        kind = "deconv" if self.transposed else "conv"
        return f"{kind}:{_arrays.DTYPE_NAMES[self.dtype]}:" + "".join(parts)
