"""Float64 references for ``--check``: plain NumPy from the operators' formulas.

They read the raw attributes and share no code with the operators, so that the resolution of pads
and shapes is checked along with the sums. Each returns the exact result and the sum of the
magnitudes of its products, which is what rounding errors grow with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Pair = tuple[Array, Array]


def _channels_first(array: Array, last: bool) -> Array:
    return np.moveaxis(array, -1, 1) if last else array


def _channels_back(array: Array, last: bool) -> Array:
    return np.moveaxis(array, 1, -1) if last else array


def _pads(
    attributes: dict[str, Any], totals: Sequence[int], rank: int
) -> tuple[list[int], list[int]]:
    mode = str(attributes.get("auto_pad") or "none").lower()
    if mode == "valid":
        return [0] * rank, [0] * rank
    if mode == "none":
        return list(attributes["pads_begin"]), list(attributes["pads_end"])
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small, strict=True)]
    return (small, large) if mode == "same_upper" else (large, small)


def _grouped_sum(a: Array, b: Array, groups: int) -> Array:
    """Return sum over o of a[n, (g, o), ...] b[g, o, i] as [n, (g, i), ...]."""
    n, _, *space = a.shape
    left = a.reshape(n, groups, b.shape[1], -1)
    total: Array = np.einsum("ngox,goi->ngix", left, b, optimize=True)
    return total.reshape(n, -1, *space)


def _axis_overlap(count: int, stride: int, shift: int, extent: int) -> tuple[slice, slice]:
    """Return the j < count and the j·stride + shift that lie in [0, extent)."""
    first = max(0, -(shift // stride))
    last = min(count, (extent - 1 - shift) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    return slice(first, last), slice(
        first * stride + shift, (last - 1) * stride + shift + 1, stride
    )


def convolution_backward_data(
    diff_dst: Array,
    weights: Array,
    attributes: dict[str, Any],
    dst_shape: Sequence[int] | None,
) -> Pair:
    """Scatter every tap of a convolution's weights."""
    last = attributes.get("data_format", "NXC") == "NXC"
    if attributes.get("weights_format", "XIO") == "XIO":
        weights = np.moveaxis(weights, (-1, -2), (0, 1))
    groups = int(attributes.get("groups", 1))
    kernel = weights.shape[2:]
    rank = len(kernel)
    stride, dilation = attributes["strides"], attributes["dilations"]
    extra = list(attributes.get("output_padding") or [])
    extra = extra if any(extra) else [0] * rank
    y = _channels_first(diff_dst, last).shape[2:]
    reach = [stride[a] * (y[a] - 1) + (kernel[a] - 1) * dilation[a] + 1 for a in range(rank)]
    if dst_shape is None:
        begin, end = _pads(attributes, [], rank)
        x = [reach[a] - begin[a] - end[a] + extra[a] for a in range(rank)]
    else:
        x = list(dst_shape)
        if len(x) > rank:
            x = x[1:-1] if last else x[2:]
        begin, _ = _pads(
            attributes, [max(0, reach[a] - x[a] + extra[a]) for a in range(rank)], rank
        )

    def scatter(a: Array, b: Array) -> Array:
        a = _channels_first(a.astype(np.float64), last)
        b = b.astype(np.float64).reshape(groups, -1, *b.shape[1:])
        total = np.zeros((a.shape[0], b.shape[2] * groups, *x))
        for tap in product(*map(range, kernel)):
            places = [
                _axis_overlap(y[i], stride[i], tap[i] * dilation[i] - begin[i], x[i])
                for i in range(rank)
            ]
            read, write = zip(*places, strict=True)
            part = a[(slice(None), slice(None), *read)]
            if part.size:
                at: tuple[Any, ...] = (..., *tap)
                part = _grouped_sum(np.ascontiguousarray(part), b[at], groups)
                total[(slice(None), slice(None), *write)] += part
        return _channels_back(total, last)

    return scatter(diff_dst, weights), scatter(np.abs(diff_dst), np.abs(weights))


def conv_transpose_backward_data(
    diff_dst: Array, weights: Array, attributes: dict[str, Any]
) -> Pair:
    """Gather for every tap of a transposed convolution's weights."""
    last = attributes.get("data_format", "NXC") == "NXC"
    if attributes.get("weights_format", "XOI") == "XOI":
        weights = np.moveaxis(weights, (-1, -2), (0, 1))
    groups = int(attributes.get("groups", 1))
    stride, dilation = attributes["strides"], attributes["dilations"]
    shape = _channels_first(diff_dst, last).shape
    outputs, y = shape[1], shape[2:]
    kernel = weights.shape[2:]
    rank = len(kernel)
    extra = list(attributes.get("output_padding") or [])
    extra = extra if any(extra) else [0] * rank
    span = [(kernel[a] - 1) * dilation[a] + 1 for a in range(rank)]
    begin, end = _pads(
        attributes,
        [max(0, span[a] - (y[a] % stride[a] or stride[a])) for a in range(rank)],
        rank,
    )
    x = [(y[a] + begin[a] + end[a] - extra[a] - span[a]) // stride[a] + 1 for a in range(rank)]
    if weights.shape[1] == outputs and groups > 1:  # (I/g, O, *K), as the page has it
        taps = weights.reshape(weights.shape[0], groups, -1, *kernel)
        taps = np.moveaxis(taps, 0, 2)
    else:
        taps = weights.reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)

    def gather(a: Array, b: Array) -> Array:
        a, b = _channels_first(a.astype(np.float64), last), b.astype(np.float64)
        total = np.zeros((a.shape[0], b.shape[2] * groups, *x))
        for tap in product(*map(range, kernel)):
            places = [
                _axis_overlap(x[i], stride[i], tap[i] * dilation[i] - begin[i], y[i])
                for i in range(rank)
            ]
            write, read = zip(*places, strict=True)
            part = a[(slice(None), slice(None), *read)]
            if part.size:
                at: tuple[Any, ...] = (..., *tap)
                part = _grouped_sum(np.ascontiguousarray(part), b[at], groups)
                total[(slice(None), slice(None), *write)] += part
        return _channels_back(total, last)

    return gather(diff_dst, taps), gather(np.abs(diff_dst), np.abs(taps))


def interpolate_backward(
    src_shape: Sequence[int], diff_dst: Array, attributes: dict[str, Any]
) -> Pair:
    """Scatter along one axis after the other."""
    last = attributes.get("data_format", "NXC") == "NXC"
    extents = src_shape[1:-1] if last else src_shape[2:]
    corners = attributes.get("coordinate_transformation_mode") == "align_corners"
    nearest = attributes["mode"] == "nearest"

    def scatter(a: Array) -> Array:
        a = _channels_first(a.astype(np.float64), last)
        for axis, src in enumerate(extents, start=2):
            dst = a.shape[axis]
            y = np.arange(dst, dtype=np.int64)
            # The coordinate is numerator/denominator; half-up rounding adds one half to it.
            if corners:
                numerator, denominator = 2 * y * (src - 1), max(2 * (dst - 1), 1)
            else:
                numerator, denominator = (2 * y + 1) * src - dst, 2 * dst
            moved = np.moveaxis(a, axis, 0)
            total = np.zeros((src, *moved.shape[1:]))
            if nearest:
                index = (2 * numerator + denominator) // (2 * denominator)
                np.add.at(total, np.clip(index, 0, src - 1), moved)
            else:
                numerator = np.clip(numerator, 0, (src - 1) * denominator)
                left = numerator // denominator
                right = np.minimum(left + 1, src - 1)
                share = (numerator - left * denominator) / denominator
                share = share.reshape(-1, *(1,) * (a.ndim - 1))
                np.add.at(total, left, (1 - share) * moved)
                np.add.at(total, right, share * moved)
            a = np.moveaxis(total, 0, axis)
        return _channels_back(a, last)

    return scatter(diff_dst), scatter(np.abs(diff_dst))
