"""The interpolation operators: signatures and documentation.

One comes as a function and, for many calls, as a plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._interpolation_call import (
    backprop_form,
    backward_form,
    compute,
    interpolation_attributes,
    resize_form,
)
from gradops_cy._interpolation_reuse import InterpolationPlan

__all__ = [
    "InterpolationPlan",
    "interpolate_backprop",
    "interpolate_backward",
    "interpolate_backward_plan",
    "resize_bilinear_v2_grad",
]

Integers = int | Sequence[int] | Array
Floats = float | Sequence[float] | Array
Shape = Sequence[int]


def interpolate_backward(
    src: Array | Shape,
    diff_dst: Array,
    sizes: Integers | None = None,
    *,
    mode: str,
    coordinate_transformation_mode: str = "half_pixel",
    scales: Floats | None = None,
    data_format: str = "NXC",
    coordinate_scales: Floats | None = None,
    antialias: bool = False,
    cubic_coeff_a: float = -0.75,
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """Compute the gradient of an interpolation with respect to its input.

    Each element of `diff_dst` goes to the source elements that the forward operator read for it,
    times the weights with which it read them::

        diff_src[n, c, x] = sum over y of diff_dst[n, c, y] · product over axes of A[x, y]

    where, on an axis of extents ``src`` and ``dst`` with ``scale = dst/src``, the destination
    index y reads the coordinate s:

    ======================  =====================================================
    half_pixel              ``s = (y + 0.5)/scale - 0.5``
    pytorch_half_pixel      as half_pixel, but ``s = 0`` where ``dst == 1``
    align_corners           ``s = y·(src-1)/(dst-1)``, 0 where ``dst == 1``
    asymmetric              ``s = y/scale``
    ======================  =====================================================

    Linear modes clamp s to ``[0, src-1]`` and have ``A[floor(s), y] = 1 - (s - floor(s))`` and
    ``A[floor(s)+1, y] = s - floor(s)``. Nearest has ``A[r(s), y] = 1``, where r takes
    ``floor(s + 0.5)``, or ``floor(s)`` for asymmetric, clamped. Cubic has ``A[x, y] = k(x - s)``
    for the four x round s, those outside standing for the border's, with the kernel k of cubic
    convolution. All other A are 0: source elements that nobody reads get exactly 0.

    Parameters
    ----------
    src : ndarray of shape (N, *X*, C) or (N, C, *X*), or its shape
        The forward operator's input. Only its shape and dtype matter; for a shape, the dtype is
        that of `diff_dst`.
    diff_dst : ndarray of shape (N, *Y*, C) or (N, C, *Y*)
        The gradient of the forward operator's output; float32, float16, bfloat16 or float64.
        Any strides.
    sizes : int, sequence of int or 1-D integer array, optional
        The spatial extents *Y*, which must be those of `diff_dst`.
    mode : {"nearest", "linear", "bilinear", "trilinear", "cubic", "bicubic"}
        The linear names are one mode, linear along every spatial axis, whatever their number, and
        so are the cubic ones.
    coordinate_transformation_mode : str, default "half_pixel"
        One of the table above.
    scales : float or sequence of float, optional
        dst/src per axis; ``trunc(float32(src)·float32(scale))`` must agree with `diff_dst` within
        1. Coordinates use the ratio of the extents all the same. Ignored if `sizes` is given.
    data_format : {"NXC", "NCX"}, default "NXC"
        Where the channels are. X may be spelt out: NHWC, NCDHW, ...
    coordinate_scales : float or sequence of float, optional
        The scales that the coordinate formulas use in place of the ratio of the extents (what
        PyTorch's `scale_factor` does). No effect with align_corners.
    antialias : bool, default False
        Of linear and cubic, with half_pixel or align_corners: where the scale shrinks, widen the
        filter by ``step = src/dst`` (``(src-1)/(dst-1)`` with align_corners), as Pillow and PyTorch
        do: ``A[x, y] = k((x + 0.5 - step·(y + 0.5))/max(step, 1))`` for the x within the filter's
        reach, divided by their sum.
    cubic_coeff_a : float, default -0.75
        The free coefficient of the cubic kernel: -0.75 is that of PyTorch and the default of ONNX,
        -0.5 that of Pillow, TensorFlow, and PyTorch with antialias.
    out : ndarray, optional
        Where to put the result: of its shape and dtype, not overlapping an input.
    accumulate : bool, default False
        Add to `out` instead of overwriting it.
    num_threads : int, optional
        Threads to use; by default the library's setting (:func:`gradops_cy.set_num_threads`).
        The result does not depend on it.

    Returns
    -------
    ndarray
        diff_src, of the shape and dtype of `src`.

    Raises
    ------
    TypeError
        If an argument has the wrong type, or `src`, `diff_dst` and `out` differ in dtype.
    ValueError
        If an argument has the wrong value or shape, or `out` overlaps an input.

    See Also
    --------
    interpolate_backward_plan : The same for many calls.
    interpolate_backprop : The same under the older names.

    Notes
    -----
    Definition: the oneDNN Graph operation *InterpolateBackward*; the cubic modes, `antialias`,
    asymmetric, pytorch_half_pixel, `coordinate_scales`, `accumulate` and float64 are extensions.
    Coordinates are exact (integer arithmetic, or float64 with `coordinate_scales` or `antialias`).
    Sums are float32 (float64 for float64), rounded once. Nearest and linear weights of zero take no
    part, so that NaN and Inf reach no more elements than those that read them; the cubic modes and
    `antialias` read all that their filter spans, whatever its weights. Subnormal numbers are
    computed as such; data made of them is about ten times slower (float16 excepted). Nothing of a
    tensor's size is copied, except arrays of foreign byte order or alignment.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import interpolate_backward
    >>> diff_dst = np.ones((1, 4, 1), np.float32)
    >>> interpolate_backward((1, 2, 1), diff_dst, mode="linear").ravel()
    array([2., 2.], dtype=float32)
    >>> diff_dst = np.arange(4, dtype=np.float32).reshape(1, 4, 1)
    >>> interpolate_backward((1, 2, 1), diff_dst, mode="nearest").ravel()
    array([1., 5.], dtype=float32)
    """
    attributes = (
        sizes, mode, coordinate_transformation_mode, scales, data_format, coordinate_scales,
        antialias, cubic_coeff_a,
    )  # fmt: skip
    op = "interpolate_backward"
    return compute(
        op, backward_form, "src", "diff_dst", src, diff_dst, attributes, out, accumulate,
        num_threads,
    )  # fmt: skip


def interpolate_backward_plan(
    src_shape: Shape | Array,
    diff_dst_shape: Shape | Array,
    sizes: Integers | None = None,
    *,
    mode: str,
    dtype: Any = np.float32,
    coordinate_transformation_mode: str = "half_pixel",
    scales: Floats | None = None,
    data_format: str = "NXC",
    coordinate_scales: Floats | None = None,
    antialias: bool = False,
    cubic_coeff_a: float = -0.75,
    num_threads: int | None = None,
) -> InterpolationPlan:
    """Check interpolate_backward once and make its tables, for many calls.

    Parameters
    ----------
    src_shape, diff_dst_shape : sequence of int or 1-D integer array
        Shapes of the forward operator's input and of the diff_dst of every call.
    sizes : int, sequence of int or 1-D integer array, optional
        As in :func:`interpolate_backward`.
    mode : str
        As in :func:`interpolate_backward`.
    dtype : dtype, default float32
        That of all arrays: float32, float16, bfloat16 or float64.
    coordinate_transformation_mode, scales, data_format, coordinate_scales, antialias, cubic_coeff_a
        As in :func:`interpolate_backward`.
    num_threads : int, optional
        Threads of every call; by default what :func:`gradops_cy.get_num_threads` says then.

    Returns
    -------
    InterpolationPlan
        ``plan(diff_dst, out=None, accumulate=False)`` returns what the operator does, bit for bit.

    Raises
    ------
    TypeError, ValueError
        As :func:`interpolate_backward`; diff_dst and out are checked by the calls.

    Notes
    -----
    Definition: the oneDNN Graph operation *InterpolateBackward*, as for the operator.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import interpolate_backward_plan
    >>> plan = interpolate_backward_plan((1, 2, 1), (1, 4, 1), mode="linear")
    >>> out = np.zeros(plan.diff_src_shape, plan.dtype)
    >>> for _ in range(2):
    ...     plan(np.arange(4, dtype=np.float32).reshape(1, 4, 1), out, accumulate=True).ravel()
    array([1.25, 4.75], dtype=float32)
    array([2.5, 9.5], dtype=float32)
    """
    op = "interpolate_backward_plan"
    attributes = interpolation_attributes(
        sizes, mode, coordinate_transformation_mode, scales, data_format, coordinate_scales,
        antialias, cubic_coeff_a,
    )  # fmt: skip
    return InterpolationPlan(op, src_shape, diff_dst_shape, dtype, attributes, num_threads)


def interpolate_backprop(
    input_forward: Array | Shape,
    output_delta: Array,
    sizes: Integers | None = None,
    *,
    mode: str,
    coordinate_transformation_mode: str = "half_pixel",
    scales: Floats | None = None,
    data_format: str = "NXC",
    coordinate_scales: Floats | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """Compute the gradient of an interpolation with respect to its input, under the older names.

    The formula and every argument are those of :func:`interpolate_backward`, with two
    differences: `src` and `diff_dst` are called `input_forward` and `output_delta`, and giving
    both `sizes` and `scales` is an error.

    Parameters
    ----------
    input_forward : ndarray of shape (N, *X*, C) or (N, C, *X*), or its shape
        The forward operator's input, of which only shape and dtype matter.
    output_delta : ndarray of shape (N, *Y*, C) or (N, C, *Y*)
        The gradient of the forward operator's output; float32, float16, bfloat16 or float64.
    sizes : int, sequence of int or 1-D integer array, optional
        The spatial extents *Y*, which must be those of `output_delta`.
    mode : {"nearest", "linear", "bilinear", "trilinear"}
        As in :func:`interpolate_backward`.
    coordinate_transformation_mode : str, default "half_pixel"
        As in :func:`interpolate_backward`.
    scales : float or sequence of float, optional
        dst/src per axis, checked against the extents; not together with `sizes`.
    data_format : {"NXC", "NCX"}, default "NXC"
        Where the channels are.
    coordinate_scales : float or sequence of float, optional
        As in :func:`interpolate_backward`.
    out : ndarray, optional
        Where to put the result.
    accumulate : bool, default False
        Add to `out` instead of overwriting it.
    num_threads : int, optional
        Threads to use; by default the library's setting.

    Returns
    -------
    ndarray
        input_delta, of the shape and dtype of `input_forward`.

    Raises
    ------
    TypeError
        If an argument has the wrong type, or the arrays differ in dtype.
    ValueError
        If an argument has the wrong value or shape, `sizes` and `scales` are both given, or `out`
        overlaps an input.

    See Also
    --------
    interpolate_backward : The current operator, with the formula.

    Notes
    -----
    Definition: the oneDNN Graph operation *InterpolateBackprop-1*.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import interpolate_backprop
    >>> output_delta = np.ones((1, 4, 4, 3), np.float32)
    >>> result = interpolate_backprop((1, 2, 2, 3), output_delta, mode="bilinear", scales=2.0)
    >>> result[0, :, :, 0]
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    op = "interpolate_backprop"
    attributes = (
        sizes, mode, coordinate_transformation_mode, scales, data_format, coordinate_scales,
    )  # fmt: skip
    return compute(
        op, backprop_form, "input_forward", "output_delta", input_forward, output_delta,
        attributes, out, accumulate, num_threads,
    )  # fmt: skip


def resize_bilinear_v2_grad(
    grads: Array,
    original_image: Array | Shape,
    *,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    scales: Floats = (0.0, 0.0),
    data_format: str = "NCX",
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """Compute the gradient of a bilinear image resize with respect to the image.

    Each element of `grads` at (y, x) goes to the four pixels round its coordinate (h, w), with
    the weights of bilinear interpolation::

        result[n, c, l_h, l_w] += grads[n, c, y, x] · (1 - f_h) · (1 - f_w)
        result[n, c, l_h, r_w] += grads[n, c, y, x] · (1 - f_h) · f_w
        result[n, c, r_h, l_w] += grads[n, c, y, x] · f_h · (1 - f_w)
        result[n, c, r_h, r_w] += grads[n, c, y, x] · f_h · f_w

    where on each axis, for the coordinate s clamped to ``[0, src-1]``, ``l = floor(s)``,
    ``r = min(l+1, src-1)`` and ``f = s - l``. With the extents ``src`` of the image and ``dst``
    of `grads`:

    ======================  =====================================================
    align_corners           ``s = y·(src-1)/(dst-1)``, 0 where ``dst == 1``
    half_pixel_centers      ``s = (y + 0.5)·src/dst - 0.5``
    neither                 ``s = y·src/dst``
    ======================  =====================================================

    Parameters
    ----------
    grads : ndarray of shape (N, C, H, W) or (N, H, W, C)
        The gradient of the resized image; float32, float16, bfloat16 or float64. Any strides.
    original_image : ndarray of shape (N, C, h, w) or (N, h, w, C), or its shape
        The image before resizing: its shape and dtype are the result's, its values do not matter.
        The dtype is that of `grads`, or float16 or bfloat16 where `grads` is float32. For a
        shape, the dtype is that of `grads`.
    align_corners, half_pixel_centers : bool, default False
        The coordinates, as tabulated. Not both.
    scales : float or sequence of 2 float, default (0.0, 0.0)
        Scales of height and width. Where one is positive, ``src/dst`` above is ``1/scale``
        instead. No effect with `align_corners`.
    data_format : {"NCX", "NXC"}, default "NCX"
        Where the channels are; also NCHW, NHWC.
    out : ndarray, optional
        Where to put the result: of its shape and dtype, not overlapping an input.
    accumulate : bool, default False
        Add to `out` instead of overwriting it.
    num_threads : int, optional
        Threads to use; by default the library's setting (:func:`gradops_cy.set_num_threads`).
        The result does not depend on it.

    Returns
    -------
    ndarray
        The gradient of the image, of the shape and dtype of `original_image`.

    Raises
    ------
    TypeError
        If an argument has the wrong type, or the dtypes are not one of the pairs above.
    ValueError
        If an argument has the wrong value or shape, `align_corners` and `half_pixel_centers` are
        both true, or `out` overlaps an input.

    Notes
    -----
    Definition: the CANN operator *ResizeBilinearV2Grad*; `accumulate` and float64 are extensions.
    Sums are float32 (float64 for float64), rounded once to the image's dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from gradops_cy import resize_bilinear_v2_grad
    >>> grads = np.ones((1, 1, 4, 4), np.float32)
    >>> resize_bilinear_v2_grad(grads, (1, 1, 2, 2))[0, 0]
    array([[2.25, 3.75],
           [3.75, 6.25]], dtype=float32)
    >>> resize_bilinear_v2_grad(grads, (1, 1, 2, 2), half_pixel_centers=True)[0, 0]
    array([[4., 4.],
           [4., 4.]], dtype=float32)
    """
    op = "resize_bilinear_v2_grad"
    attributes = align_corners, half_pixel_centers, scales, data_format
    return compute(
        op, resize_form, "original_image", "grads", original_image, grads, attributes, out,
        accumulate, num_threads,
    )  # fmt: skip
