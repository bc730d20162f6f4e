"""The two convolution operators: signatures, checks, and the problem they build.

Each comes as a function and, for many calls with the same weights, as a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradops_cy import _arrays, _attributes
from gradops_cy._arrays import Array
from gradops_cy._convolution_call import (
    ConvAttributes,
    ConvCall,
    ConvForm,
    ConvShapes,
    compute,
    remembered,
)
from gradops_cy._convolution_reuse import ConvolutionPlan

__all__ = [
    "ConvolutionPlan",
    "conv_transpose_backward_data",
    "conv_transpose_backward_data_plan",
    "convolution_backward_data",
    "convolution_backward_data_plan",
]

Integers = int | Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]]


def convolution_backward_data(
    diff_dst: Array,
    weights: Array,
    dst_shape: Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]] | None = None,
    *,
    strides: Integers,
    pads_begin: Integers,
    pads_end: Integers,
    dilations: Integers,
    auto_pad: str | None = "none",
    auto_pad_rule: str = "forward",
    output_padding: Integers | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    r"""Compute the gradient of a convolution with respect to its input.

    With strides S, dilations D, pads_begin PB and group q owning the input channels
    [q·I/g, (q+1)·I/g) and the output channels [q·O/g, (q+1)·O/g),

    .. math::

        diff\_src[n, i, x] = \sum_{o, k, y :\; yS + kD - PB = x} diff\_dst[n, o, y]\, W[o, i, k]

    Parameters
    ----------
    diff_dst : ndarray of shape (N, y..., O) or (N, O, y...)
        Gradient of the convolution's output, of 1 to 3 spatial axes; float32, float16,
        bfloat16 (``ml_dtypes``) or float64. Any strides.
    weights : ndarray of shape (K..., I/g, O) or (O, I/g, K...)
        The convolution's weights, in `weights_format`, of diff_dst's dtype.
    dst_shape : sequence of int or 1-D integer array, optional
        Shape of the result (this operator's output): all axes in the order of `data_format`, or
        the spatial extents alone. Without it each extent is
        ``S·(y-1) + (K-1)·D + 1 - PB - PE + output_padding``.
    strides, dilations : int or sequence of int
        At least 1, one for all spatial axes or one for each.
    pads_begin, pads_end : int or sequence of int
        At least 0; ignored where `auto_pad` is not ``none``.
    auto_pad : {"none", "valid", "same_upper", "same_lower"}
        ``valid`` sets no pads; ``same_*`` splits
        ``max(0, S·(y-1) + (K-1)·D + 1 - x + output_padding)`` in halves. Any case.
    auto_pad_rule : {"forward", "page"}
        Where the odd cell goes: ``forward`` puts it at the end for same_upper and at the
        beginning for same_lower, as the forward operators of oneDNN, ONNX and TensorFlow do;
        ``page`` does the reverse, as the operator's page says.
    output_padding : int or sequence of int, optional
        At least 0. With `dst_shape` it only enters the total of ``same_*``.
    groups : int
        Divides I and O.
    data_format : {"NXC", "NCX"}
        Order of the axes of diff_dst and of the result; also spelled out (``NHWC``).
    weights_format : {"XIO", "OIX"}
        Order of the axes of `weights`.
    out : ndarray, optional
        Where to write the result: its shape and dtype, no overlap with an input.
    accumulate : bool
        Add to `out` instead of overwriting it, rounded once.
    num_threads : int, optional
        Threads of this call; by default :func:`gradops_cy.get_num_threads`.

    Returns
    -------
    ndarray of shape (N, x..., I) or (N, I, x...)
        diff_src, of diff_dst's dtype; `out` where given.

    Raises
    ------
    TypeError
        Where an argument has a wrong type or dtype.
    ValueError
        Where an attribute is out of range, shapes do not fit each other, `dst_shape` is not one
        that a convolution with these attributes maps to diff_dst's, or `out` cannot be used.
        `out` is untouched then.

    Notes
    -----
    Halves accumulate in float32 and round once, to nearest even. Results are bitwise identical
    for every number of threads and every split of the batch. 3x3 kernels without strides may be
    computed by Winograd's F(2x2, 3x3), whose rounding is bounded beside the largest tap of each
    kernel; ``GRADOPS_WINOGRAD=0`` in the environment turns it off. Source: the oneDNN Graph page
    *ConvolutionBackwardData*, whose ``same_*`` formula is that of ``auto_pad_rule="page"``.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import convolution_backward_data
    >>> diff_dst = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    >>> weights = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1], np.float32).reshape(1, 1, 3, 3)
    >>> convolution_backward_data(
    ...     diff_dst, weights, strides=1, pads_begin=0, pads_end=0, dilations=1,
    ...     data_format="NCX", weights_format="OIX",
    ... )[0, 0]
    array([[0., 1., 0., 1.],
           [2., 3., 3., 3.],
           [0., 3., 3., 1.],
           [2., 3., 2., 3.]], dtype=float32)

    The two rules of auto_pad differ where the total is odd:

    >>> dy = np.array([1, 10, 100, 1000], np.float32).reshape(1, 4, 1)
    >>> w = np.array([1, 2, 4], np.float32).reshape(3, 1, 1)
    >>> for rule in "forward", "page":
    ...     convolution_backward_data(
    ...         dy, w, [1, 8, 1], strides=2, pads_begin=0, pads_end=0, dilations=1,
    ...         auto_pad="same_upper", auto_pad_rule=rule,
    ...     ).ravel().astype(int)
    array([   1,    2,   14,   20,  140,  200, 1400, 2000])
    array([   2,   14,   20,  140,  200, 1400, 2000, 4000])
    """
    given = ConvAttributes(
        dst_shape,
        strides,
        pads_begin,
        pads_end,
        dilations,
        auto_pad,
        auto_pad_rule,
        output_padding,
        groups,
        data_format,
        weights_format,
    )
    op = "convolution_backward_data"
    return compute(op, convolution_form, diff_dst, weights, given, out, accumulate, num_threads)


def convolution_backward_data_plan(
    diff_dst_shape: Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]],
    weights: Array,
    dst_shape: Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]] | None = None,
    *,
    strides: Integers,
    pads_begin: Integers,
    pads_end: Integers,
    dilations: Integers,
    auto_pad: str | None = "none",
    auto_pad_rule: str = "forward",
    output_padding: Integers | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    num_threads: int | None = None,
) -> ConvolutionPlan:
    """Check convolution_backward_data once and pack its weights, for many calls.

    Parameters
    ----------
    diff_dst_shape : sequence of int or 1-D integer array
        Shape of the diff_dst of every call: (N, y..., O) or (N, O, y...).
    weights : ndarray
        As in :func:`convolution_backward_data`; their dtype is that of all arrays. They are
        copied: see :meth:`ConvolutionPlan.set_weights`.
    dst_shape : sequence of int or 1-D integer array, optional
        Shape of the result.
    strides, pads_begin, pads_end, dilations, auto_pad, auto_pad_rule, output_padding, groups, \
data_format, weights_format
        As in :func:`convolution_backward_data`.
    num_threads : int, optional
        Threads of every call; by default what :func:`gradops_cy.get_num_threads` says then.

    Returns
    -------
    ConvolutionPlan
        ``plan(diff_dst, out=None, accumulate=False)`` returns what the operator does, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As :func:`convolution_backward_data`; diff_dst and out are checked by the calls.

    Notes
    -----
    Source: the oneDNN Graph page *ConvolutionBackwardData*, as for the operator. The plan keeps a
    copy of the weights beside the packed ones.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import convolution_backward_data_plan
    >>> plan = convolution_backward_data_plan(
    ...     (1, 2, 1), np.array([1, 2, 4], np.float32).reshape(3, 1, 1), (1, 5, 1),
    ...     strides=2, pads_begin=0, pads_end=0, dilations=1,
    ... )
    >>> out = np.empty(plan.diff_src_shape, plan.dtype)
    >>> for values in (1, 10), (2, 0):
    ...     plan(np.array(values, np.float32).reshape(1, 2, 1), out).ravel()
    array([ 1.,  2., 14., 20., 40.], dtype=float32)
    array([2., 4., 8., 0., 0.], dtype=float32)
    """
    given = ConvAttributes(
        dst_shape,
        strides,
        pads_begin,
        pads_end,
        dilations,
        auto_pad,
        auto_pad_rule,
        output_padding,
        groups,
        data_format,
        weights_format,
    )
    op = "convolution_backward_data_plan"
    return ConvolutionPlan(op, convolution_form, diff_dst_shape, weights, given, num_threads)


@remembered
def convolution_form(op: str, shapes: ConvShapes, given: ConvAttributes) -> ConvForm:
    """Check attributes and shapes of convolution_backward_data."""
    call = ConvCall(op, shapes, given)
    layout = _attributes.choice(op, "weights_format", given.weights_format, ("XIO", "OIX"))
    if layout == "OIX":
        outputs, inputs, *kernel = call.weights
    else:
        *kernel, inputs, outputs = call.weights
    if outputs % call.groups:
        raise ValueError(
            f"{op}: groups must divide the {outputs} output channels of weights, got {call.groups}"
        )
    if outputs != call.dst.channels:
        raise ValueError(
            f"{op}: weights of format {layout} must have O = {call.dst.channels}, the channels of "
            f"diff_dst, got shape {call.weights} with O = {outputs}"
        )
    inputs *= call.groups
    span = call.effective_kernel(kernel)
    required = _given_shape(call, given.dst_shape, inputs)
    if required is None:
        if call.auto_pad.startswith("same"):
            raise ValueError(
                f"{op}: dst_shape must be given with auto_pad {call.auto_pad}, got None"
            )
        call.resolve_pads(())
        spatial = tuple(
            s * (y - 1) + e - pb - pe + extra
            for s, y, e, pb, pe, extra in zip(
                call.strides,
                call.dst.spatial,
                span,
                call.pads_begin,
                call.pads_end,
                call.output_padding,
                strict=True,
            )
        )
        for axis, extent in enumerate(spatial):
            if extent < 1:
                raise ValueError(
                    f"{op}: the derived result extent of spatial axis {axis} must be at least 1, "
                    f"got {extent}"
                )
    else:
        spatial = required
        call.resolve_pads(
            tuple(
                max(0, s * (y - 1) + e - x + extra)
                for s, y, e, x, extra in zip(
                    call.strides, call.dst.spatial, span, spatial, call.output_padding, strict=True
                )
            )
        )
        _check_extents(call, spatial, span)
    order = "gOIX" if layout == "OIX" else "XIgO"
    return call.form(inputs, spatial, tuple(kernel), order, transposed=False)


def _given_shape(call: ConvCall, dst_shape: object, channels: int) -> tuple[int, ...] | None:
    """Return the spatial extents of a dst_shape after checking the rest of it."""
    op = call.op
    if dst_shape is None:
        return None
    shape = _attributes.shape(op, "dst_shape", dst_shape)
    if len(shape) not in (call.rank, call.rank + 2):
        raise ValueError(
            f"{op}: dst_shape must have {call.rank + 2} elements (or the {call.rank} spatial "
            f"ones), got {len(shape)}"
        )
    if len(shape) == call.rank + 2:
        parts = _arrays.extents(shape, call.format)
        if parts.batch != call.dst.batch or parts.channels != channels:
            raise ValueError(
                f"{op}: dst_shape must have N = {call.dst.batch} and C = {channels} in "
                f"{call.format} order, got {shape}"
            )
        shape = parts.spatial
    if 0 in shape:
        raise ValueError(f"{op}: dst_shape must have spatial extents of at least 1, got {shape}")
    return shape


def _check_extents(call: ConvCall, spatial: tuple[int, ...], span: tuple[int, ...]) -> None:
    """Raise unless a convolution maps `spatial` to diff_dst's extents."""
    for axis in range(call.rank):
        x, y = spatial[axis], call.dst.spatial[axis]
        stride, pads = call.strides[axis], call.pads_begin[axis] + call.pads_end[axis]
        room = x + pads - span[axis]
        forward = room // stride + 1 if room >= 0 else 0
        derived = stride * (y - 1) + span[axis] - pads + call.output_padding[axis]
        if forward != y and derived != x:
            raise ValueError(
                f"{call.op}: dst_shape must be the shape of a convolution's input that gives "
                f"diff_dst's extent {y} on spatial axis {axis}, got {x}, which gives "
                f"{max(forward, 0)}"
            )


def conv_transpose_backward_data(
    diff_dst: Array,
    weights: Array,
    *,
    strides: Integers,
    pads_begin: Integers,
    pads_end: Integers,
    dilations: Integers,
    auto_pad: str | None = "none",
    auto_pad_rule: str = "forward",
    output_padding: Integers | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    r"""Compute the gradient of a transposed convolution with respect to its input.

    This is an ordinary strided correlation of diff_dst with the weights: with strides S,
    dilations D and pads_begin PB, diff_dst being 0 outside its extents,

    .. math::

        diff\_src[n, i, x] = \sum_{o, k} diff\_dst[n, o, xS + kD - PB]\, W[i, o, k]

    Parameters
    ----------
    diff_dst : ndarray of shape (N, y..., O) or (N, O, y...)
        Gradient of the transposed convolution's output, of 1 to 3 spatial axes; float32,
        float16, bfloat16 (``ml_dtypes``) or float64. Any strides.
    weights : ndarray of shape (K..., O/g, I) or (I, O/g, K...)
        The weights, in `weights_format`, of diff_dst's dtype. With groups the arrangement of the
        operator's page, (K..., O, I/g) or (I/g, O, K...), is taken as well: the extent of the O
        axis tells them apart.
    strides, dilations : int or sequence of int
        At least 1, one for all spatial axes or one for each.
    pads_begin, pads_end : int or sequence of int
        At least 0; ignored where `auto_pad` is not ``none``.
    auto_pad : {"none", "valid", "same_upper", "same_lower"}
        ``valid`` sets no pads; ``same_*`` splits
        ``max(0, (K-1)·D + 1 - (S if y mod S == 0 else y mod S))`` in halves. Any case.
    auto_pad_rule : {"forward", "page"}
        Where the odd cell goes: see :func:`convolution_backward_data`.
    output_padding : int or sequence of int, optional
        What the forward operator added at the end, 0 to max(S, D) - 1.
    groups : int
        Divides I and O.
    data_format : {"NXC", "NCX"}
        Order of the axes of diff_dst and of the result; also spelled out (``NHWC``).
    weights_format : {"XOI", "IOX"}
        Order of the axes of `weights`.
    out : ndarray, optional
        Where to write the result: its shape and dtype, no overlap with an input.
    accumulate : bool
        Add to `out` instead of overwriting it, rounded once.
    num_threads : int, optional
        Threads of this call; by default :func:`gradops_cy.get_num_threads`.

    Returns
    -------
    ndarray of shape (N, x..., I) or (N, I, x...)
        diff_src, of diff_dst's dtype, with
        ``x = floor((y + PB + PE - output_padding - ((K-1)·D + 1)) / S) + 1``; `out` where given.

    Raises
    ------
    TypeError
        Where an argument has a wrong type or dtype.
    ValueError
        Where an attribute is out of range, shapes do not fit each other, the kernel exceeds the
        padded diff_dst, or `out` cannot be used. `out` is untouched then.

    Notes
    -----
    Halves accumulate in float32 and round once, to nearest even. Results are bitwise identical
    for every number of threads and every split of the batch. 3x3 kernels without strides may be
    computed by Winograd's F(2x2, 3x3), as in :func:`convolution_backward_data`. Source: the oneDNN
    Graph page *ConvTransposeBackwardData*; the arrangement (I, O/g, K...) is the one that
    oneDNN's code, ONNX and PyTorch store.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import conv_transpose_backward_data
    >>> diff_dst = np.array([10, 100], np.float32).reshape(1, 2, 1)
    >>> weights = np.array([1, 2, 3, 4], np.float32).reshape(4, 1, 1)
    >>> conv_transpose_backward_data(
    ...     diff_dst, weights, strides=1, pads_begin=0, pads_end=0, dilations=1, groups=2,
    ...     data_format="NCX", weights_format="IOX",
    ... ).ravel()
    array([ 10.,  20., 300., 400.], dtype=float32)
    """
    given = ConvAttributes(
        None,
        strides,
        pads_begin,
        pads_end,
        dilations,
        auto_pad,
        auto_pad_rule,
        output_padding,
        groups,
        data_format,
        weights_format,
    )
    op = "conv_transpose_backward_data"
    return compute(op, conv_transpose_form, diff_dst, weights, given, out, accumulate, num_threads)


def conv_transpose_backward_data_plan(
    diff_dst_shape: Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]],
    weights: Array,
    *,
    strides: Integers,
    pads_begin: Integers,
    pads_end: Integers,
    dilations: Integers,
    auto_pad: str | None = "none",
    auto_pad_rule: str = "forward",
    output_padding: Integers | None = None,
    groups: int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    num_threads: int | None = None,
) -> ConvolutionPlan:
    """Check conv_transpose_backward_data once and pack its weights, for many calls.

    Parameters
    ----------
    diff_dst_shape : sequence of int or 1-D integer array
        Shape of the diff_dst of every call: (N, y..., O) or (N, O, y...).
    weights : ndarray
        As in :func:`conv_transpose_backward_data`; their dtype is that of all arrays. They are
        copied: see :meth:`ConvolutionPlan.set_weights`.
    strides, pads_begin, pads_end, dilations, auto_pad, auto_pad_rule, output_padding, groups, \
data_format, weights_format
        As in :func:`conv_transpose_backward_data`.
    num_threads : int, optional
        Threads of every call; by default what :func:`gradops_cy.get_num_threads` says then.

    Returns
    -------
    ConvolutionPlan
        ``plan(diff_dst, out=None, accumulate=False)`` returns what the operator does, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As :func:`conv_transpose_backward_data`; diff_dst and out are checked by the calls.

    Notes
    -----
    Source: the oneDNN Graph page *ConvTransposeBackwardData*, as for the operator. The plan keeps a
    copy of the weights beside the packed ones.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import conv_transpose_backward_data_plan
    >>> plan = conv_transpose_backward_data_plan(
    ...     (1, 5, 1), np.array([1, 2, 4], np.float32).reshape(3, 1, 1),
    ...     strides=2, pads_begin=0, pads_end=0, dilations=1,
    ... )
    >>> diff_dst = np.array([1, 10, 100, 0, 0], np.float32).reshape(1, 5, 1)
    >>> diff_src = plan(diff_dst)
    >>> diff_src.ravel()
    array([421., 100.], dtype=float32)
    >>> plan(diff_dst, diff_src, accumulate=True).ravel()
    array([842., 200.], dtype=float32)
    """
    given = ConvAttributes(
        None,
        strides,
        pads_begin,
        pads_end,
        dilations,
        auto_pad,
        auto_pad_rule,
        output_padding,
        groups,
        data_format,
        weights_format,
    )
    op = "conv_transpose_backward_data_plan"
    return ConvolutionPlan(op, conv_transpose_form, diff_dst_shape, weights, given, num_threads)


@remembered
def conv_transpose_form(op: str, shapes: ConvShapes, given: ConvAttributes) -> ConvForm:
    """Check attributes and shapes of conv_transpose_backward_data."""
    call = ConvCall(op, shapes, given)
    layout = _attributes.choice(op, "weights_format", given.weights_format, ("XOI", "IOX"))
    inputs, kernel, order = _read_transposed(call, layout)
    span = call.effective_kernel(kernel)
    for axis in range(call.rank):
        limit = max(call.strides[axis], call.dilations[axis])
        if call.output_padding[axis] >= limit:
            raise ValueError(
                f"{op}: output_padding[{axis}] must be less than max(stride, dilation) = {limit}, "
                f"got {call.output_padding[axis]}"
            )
    call.resolve_pads(
        tuple(
            max(0, e - (y % s or s))
            for e, y, s in zip(span, call.dst.spatial, call.strides, strict=True)
        )
    )
    spatial = []
    for axis in range(call.rank):
        padded = call.dst.spatial[axis] + call.pads_begin[axis] + call.pads_end[axis]
        room = padded - call.output_padding[axis] - span[axis]
        if room < 0:
            raise ValueError(
                f"{op}: the dilated kernel must fit into the padded diff_dst, got {span[axis]} "
                f"against {padded - call.output_padding[axis]} on spatial axis {axis}"
            )
        spatial.append(room // call.strides[axis] + 1)
    return call.form(inputs, tuple(spatial), kernel, order, transposed=True)


def _read_transposed(call: ConvCall, layout: str) -> tuple[int, tuple[int, ...], str]:
    """Return I, the kernel's extents and the order of axes of transposed weights."""
    op, groups, outputs, shape = call.op, call.groups, call.dst.channels, call.weights
    if layout == "IOX":
        first, second, *kernel = shape
    else:
        *kernel, second, first = shape
    if outputs % groups:
        raise ValueError(
            f"{op}: groups must divide the {outputs} channels of diff_dst, got {groups}"
        )
    if second * groups == outputs:
        if first % groups:
            raise ValueError(f"{op}: groups must divide I = {first} of weights, got {groups}")
        return first, tuple(kernel), "gIOX" if layout == "IOX" else "XOgI"
    if second == outputs:
        return first * groups, tuple(kernel), "IgOX" if layout == "IOX" else "XgOI"
    orders = {
        "IOX": f"(I, {outputs // groups}, *K) or (I/g, {outputs}, *K)",
        "XOI": f"(*K, {outputs // groups}, I) or (*K, {outputs}, I/g)",
    }
    raise ValueError(
        f"{op}: weights of format {layout} with {groups} groups must have shape "
        f"{orders[layout]}, got {shape}"
    )
