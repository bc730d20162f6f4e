"""What both convolution operators read from a call, and how they compute the result."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache, wraps
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from gradops_cy import _arrays, _attributes, _convolution_frames, _convolution_plan, _threads
from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem, Triple

_AUTO_PAD = ("none", "valid", "same_upper", "same_lower")
_AUTO_PAD_RULES = ("forward", "page")


# What the checks of a call read of its arrays: the shapes and the dtypes of diff_dst and weights.
ConvShapes = tuple[tuple[int, ...], tuple[int, ...], np.dtype[Any], np.dtype[Any]]


class ConvAttributes(NamedTuple):
    """The attributes of a call as they were given, in the order of the signatures."""

    dst_shape: object
    strides: object
    pads_begin: object
    pads_end: object
    dilations: object
    auto_pad: object
    auto_pad_rule: object
    output_padding: object
    groups: object
    data_format: object
    weights_format: object


class ReadAttributes(NamedTuple):
    """Those that do not depend on the operator, checked, with an integer for each spatial axis."""

    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    auto_pad: str
    auto_pad_rule: str
    output_padding: tuple[int, ...]
    groups: int
    data_format: str


class ConvForm(NamedTuple):
    """A checked problem with the shapes and the order of axes that its arrays have."""

    asked: ConvProblem
    framed: bool  # whether frames of diff_dst are taken for channels
    problem: ConvProblem  # of which what is computed is a part
    dtype: np.dtype[Any]
    data_format: str
    diff_dst_shape: tuple[int, ...]
    diff_src_shape: tuple[int, ...]
    weights_shape: tuple[int, ...]
    weights_split: tuple[int, ...]  # with three spatial axes and two of channels for each tensor
    weights_axes: tuple[int, ...]  # where g, O, I, D, H, W of the problem are among them
    taps: tuple[Any, ...]  # the index of those that reach the tensor, where others never do

    @property
    def channels_last(self) -> bool:
        """Whether the channels of the tensors are their last axis."""
        return self.data_format == "NXC"

    def source(self, array: Array) -> Array:
        """Return diff_dst with the channels of the problem that is computed."""
        array = _arrays.native(array)
        if not self.framed:
            return array
        return _convolution_frames.view(array, self.asked, self.channels_last)

    def weights(self, array: Array) -> Array:
        """Return the (g, O, I, D, H, W) view of weights: splitting axes never copies.

        But the only tap of several that reaches the tensor: packing wants rows of channels.
        """
        view = array.reshape(self.weights_split).transpose(self.weights_axes)
        if not self.taps:
            return view
        some: Array = view[self.taps]
        return some.copy(order="K") if prod(some.shape[3:]) == 1 else some


FormOf = Callable[[str, ConvShapes, ConvAttributes], ConvForm]
Of = TypeVar("Of", bound=Hashable)
Read = TypeVar("Read")


def remembered(
    read: Callable[[str, Of, ConvAttributes], Read],
) -> Callable[[str, Of, ConvAttributes], Read]:
    """Remember what was read of the last attributes, so that calls in a loop check them once."""
    cached = lru_cache(maxsize=256)(read)

    @wraps(read)
    def remembering(op: str, of: Of, given: ConvAttributes) -> Read:
        key = _attributes.key(given)
        if key is None:
            return read(op, of, given)
        return cached(op, of, given if key is given else ConvAttributes(*key))

    return remembering


def compute(
    op: str,
    form_of: FormOf,
    diff_dst: Array,
    weights: Array,
    given: ConvAttributes,
    out: Array | None,
    accumulate: object,
    num_threads: int | None,
) -> Array:
    """Check a call and compute its result."""
    _arrays.check_array(op, "diff_dst", diff_dst)
    _arrays.check_array(op, "weights", weights)
    shapes = diff_dst.shape, weights.shape, diff_dst.dtype, weights.dtype
    form = form_of(op, shapes, given)
    threads = _threads.resolve(op, num_threads)
    add = _attributes.flag(op, "accumulate", accumulate)
    result = _arrays.result_array(
        op,
        out,
        form.diff_src_shape,
        form.dtype,
        accumulate=add,
        inputs={"diff_dst": diff_dst, "weights": weights},
    )
    if form.problem.batch:
        _convolution_plan.execute(
            form.problem,
            form.source(diff_dst),
            form.weights(_arrays.native(weights)),
            result,
            channels_last=form.channels_last,
            accumulate=add,
            num_threads=threads,
        )
    return result


@remembered
def read_attributes(op: str, axes: int, given: ConvAttributes) -> ReadAttributes:
    """Check the attributes of a call on arrays of so many axes, but dst_shape.

    Apart from the shapes: a layer's calls differ in these alone.
    """
    data_format = _arrays.data_format(op, given.data_format, axes)
    spatial = axes - 2
    auto_pad = "none" if given.auto_pad is None else given.auto_pad
    return ReadAttributes(
        strides=_attributes.integers(op, "strides", given.strides, spatial, minimum=1),
        dilations=_attributes.integers(op, "dilations", given.dilations, spatial, minimum=1),
        pads_begin=_attributes.integers(op, "pads_begin", given.pads_begin, spatial, minimum=0),
        pads_end=_attributes.integers(op, "pads_end", given.pads_end, spatial, minimum=0),
        auto_pad=_attributes.choice(op, "auto_pad", auto_pad, _AUTO_PAD),
        auto_pad_rule=_attributes.choice(op, "auto_pad_rule", given.auto_pad_rule, _AUTO_PAD_RULES),
        output_padding=_read_output_padding(op, given.output_padding, spatial),
        groups=_attributes.integer(op, "groups", given.groups, minimum=1),
        data_format=data_format,
    )


def _read_output_padding(op: str, value: object, rank: int) -> tuple[int, ...]:
    if value is None:
        return (0,) * rank
    if _attributes.as_integer(value) is None:
        # oneDNN's own graphs carry twelve zeros for "none".
        values = _attributes.items(op, "output_padding", value, "an integer or a list of integers")
        if all(_attributes.as_integer(v) == 0 for v in values):
            return (0,) * rank
    return _attributes.integers(op, "output_padding", value, rank, minimum=0)


class ConvCall:
    """The attributes of a call, read and checked, and the steps that both operators share."""

    def __init__(self, op: str, shapes: ConvShapes, given: ConvAttributes) -> None:
        diff_dst, weights, dtype, weights_dtype = shapes
        self.op, self.diff_dst, self.weights = op, diff_dst, weights
        self.dtype = dtype.newbyteorder("=")
        _arrays.check_rank(op, "diff_dst", len(diff_dst))
        _arrays.same_dtype(op, "weights", weights_dtype, dtype)
        if len(weights) != len(diff_dst):
            raise ValueError(
                f"{op}: weights must have {len(diff_dst)} axes like diff_dst, got {len(weights)}"
            )
        (
            self.strides,
            self.pads_begin,
            self.pads_end,
            self.dilations,
            self.auto_pad,
            self.auto_pad_rule,
            self.output_padding,
            self.groups,
            self.format,
        ) = read_attributes(op, len(diff_dst), ConvAttributes(None, *given[1:]))
        self.dst = _arrays.extents(diff_dst, self.format)
        self.rank = len(self.dst.spatial)
        if 0 in weights:
            raise ValueError(f"{op}: weights must have no zero extent, got shape {weights}")
        if 0 in self.dst.spatial or self.dst.channels == 0:
            raise ValueError(
                f"{op}: diff_dst must have no zero extent but the batch's, got shape {diff_dst}"
            )

    def effective_kernel(self, kernel: Sequence[int]) -> tuple[int, ...]:
        """Return the extents that the dilated kernel spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True))

    def resolve_pads(self, totals: tuple[int, ...]) -> None:
        """Replace the pads as auto_pad says; `totals` are those of the ``same_*`` rules."""
        if self.auto_pad == "valid":
            self.pads_begin = self.pads_end = (0,) * self.rank
        elif self.auto_pad != "none":
            small = tuple(total // 2 for total in totals)
            large = tuple(total - total // 2 for total in totals)
            odd_at_end = (self.auto_pad == "same_upper") == (self.auto_pad_rule == "forward")
            self.pads_begin, self.pads_end = (small, large) if odd_at_end else (large, small)

    def form(
        self,
        inputs: int,
        spatial: tuple[int, ...],
        kernel: tuple[int, ...],
        weights_order: str,
        *,
        transposed: bool,
    ) -> ConvForm:
        """Return the form of the problem.

        `weights_order` is the order of the weights' axes g, O, I and X, of which g is a part of
        the axis that it stands before.
        """
        # Without a depth of their own, images are planes: a task may then take several.
        images = self.dst.batch
        x, y = _triple(spatial), _triple(self.dst.spatial)
        if images and self.rank < 3:
            x, y, images = (images, *x[1:]), (images, *y[1:]), 1
        extents = spatial, self.dst.spatial
        taps = tuple(
            map(
                _reaching,
                kernel,
                self.strides,
                self.dilations,
                self.pads_begin,
                *(extents if transposed else extents[::-1]),
            )
        )
        pads = tuple(
            p - t.start * d for p, t, d in zip(self.pads_begin, taps, self.dilations, strict=True)
        )
        kept = tuple(t.stop - t.start for t in taps)
        # A kernel that stands in one place has no strides.
        strides = tuple(
            1 if (size, pad, src, dst) == (1, 0, 1, 1) else stride
            for size, pad, src, dst, stride in zip(kept, pads, *extents, self.strides, strict=True)
        )
        problem = ConvProblem(
            transposed=transposed,
            dtype=_arrays.DTYPE_CODES[self.dtype],
            batch=images,
            groups=self.groups,
            diff_src_channels=inputs,
            diff_dst_channels=self.dst.channels,
            diff_src=x,
            diff_dst=y,
            kernel=_triple(kept),
            strides=_triple(strides),
            dilations=_triple(self.dilations),
            pads_begin=_triple(pads, 0),
            rank=self.rank,
        )
        frames = _convolution_frames.product(problem)
        split, axes = _arrangement(
            weights_order,
            self.groups,
            problem.output_channels,
            problem.input_channels,
            kernel,
            "gWIDHO" if frames else "gOIDHW",
        )
        diff_src = _arrays.Extents(self.dst.batch, inputs, spatial)
        return ConvForm(
            asked=problem,
            framed=frames is not None,
            problem=(frames or problem).lengthened(),
            dtype=_arrays.DTYPES[problem.dtype],
            data_format=self.format,
            diff_dst_shape=self.diff_dst,
            diff_src_shape=_arrays.shape_of(diff_src, self.format),
            weights_shape=self.weights,
            weights_split=split,
            weights_axes=axes,
            taps=(..., *taps) if problem.kernel != _triple(kernel) else (),
        )


# A layer's calls have the same weights.
@lru_cache(maxsize=64)
def _arrangement(
    order: str, groups: int, outputs: int, inputs: int, kernel: tuple[int, ...], axes: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return weights' extents with three spatial axes, and where `axes` are among them."""
    order = order.replace("X", "DHW")
    spatial = zip("DHW", _triple(kernel), strict=True)
    sizes = {"g": groups, "O": outputs, "I": inputs, **dict(spatial)}
    return tuple(sizes[axis] for axis in order), tuple(order.index(axis) for axis in axes)


def _reaching(
    kernel: int, stride: int, dilation: int, pad: int, strided: int, reached: int
) -> slice:
    """Return the taps but those at either end that lie in the padding, wherever the kernel stands.

    Position ``m·stride + tap·dilation - pad`` of `reached` ones belongs to m of `strided`. Of a
    map of 1x1 the centre of 3x3 is left.
    """

    def reaches(tap: int) -> bool:
        place = tap * dilation - pad
        first = max(0, -(place // stride))
        return first < strided and first * stride + place < reached

    start, stop = 0, kernel
    # No pad becomes negative: that would cut the tensor.
    while start < stop - 1 and not reaches(start) and pad >= (start + 1) * dilation:
        start += 1
    while stop - 1 > start and not reaches(stop - 1):
        stop -= 1
    return slice(start, stop)


def _triple(values: tuple[int, ...], fill: int = 1) -> Triple:
    """Put 1 to 3 spatial values at the end of three."""
    a, b, c = (fill, fill, *values)[-3:]
    return a, b, c
