"""The layout of a convolution's arrays, as their strides tell it."""

from __future__ import annotations

from functools import lru_cache

from gradops_cy import _arrays, _convolution_spread
from gradops_cy._arrays import Array
from gradops_cy._convolution_kernels import Layout
from gradops_cy._convolution_problem import ConvProblem

# Finding a plan compares its layout by identity.
_shared_layout = lru_cache(maxsize=32)(Layout)


def layout_of(
    problem: ConvProblem,
    diff_dst: Array,
    diff_src: Array,
    weights: Array,
    channels_last: bool,
    accumulate: bool,
) -> Layout:
    """Return the layout of two tensors, and of (g, O, I, D, H, W) weights where that matters."""
    return _layout(
        _convolution_spread.order_of(problem, weights, diff_src, channels_last),
        problem.joinable,
        weights.strides[2] == weights.itemsize,
        diff_dst.shape,
        diff_dst.strides,
        diff_src.shape,
        diff_src.strides,
        diff_src.itemsize,
        channels_last,
        accumulate,
    )


# Calls in a loop have the same strides.
@lru_cache(maxsize=128)
def _layout(
    spreads: str,
    joins: int,
    by_input: bool,
    source_shape: tuple[int, ...],
    source: tuple[int, ...],
    target_shape: tuple[int, ...],
    target: tuple[int, ...],
    unit: int,
    channels_last: bool,
    accumulate: bool,
) -> Layout:
    channel, last = (-1, -2) if channels_last else (1, -1)
    source_step, target_step = source[channel], target[channel]
    if channels_last:  # that of a single channel, which is a view of rows, may be any
        source_step = unit if source_shape[channel] == 1 else source_step
        target_step = unit if target_shape[channel] == 1 else target_step
    if spreads:
        # There is one position.
        in_place = source_step == unit
        flags = in_place, True, False, False, False, False
        return _shared_layout(*flags, 0, accumulate, True, by_input, spreads)
    if joins:
        joins = min(joins, _joins(source_shape, source, last), _joins(target_shape, target, last))
    return _shared_layout(
        source_step == unit,
        target_step == unit,
        source[last] == unit,
        target[last] == unit,
        source_step == unit and source[last] == unit * source_shape[channel],
        target_step == unit and target[last] == unit * target_shape[channel],
        joins,
        accumulate,
        _images_join(source_shape, source, last) and _images_join(target_shape, target, last),
        by_input,
    )


def _joins(shape: tuple[int, ...], strides: tuple[int, ...], last: int) -> int:
    """Return how many axes before the last one go on where it ends, and on where that ends."""
    if strides[last - 1] != strides[last] * shape[last]:
        return 0
    first = last - 2 if len(shape) == 5 else 0
    return 1 if strides[first] != strides[last - 1] * shape[last - 1] else 2


def _images_join(shape: tuple[int, ...], strides: tuple[int, ...], last: int) -> bool:
    """Return whether positions lie as far apart from image to image as within one."""
    axes = 0, *range(last - len(shape) + 3, last + 1)
    return _arrays.follow([shape[a] for a in axes], [strides[a] for a in axes])
