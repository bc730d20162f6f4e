"""The three interpolation operators: signatures, documentation and checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from gradops_cy import _arrays, _attributes, _resampling_plan, _threads
from gradops_cy._arrays import Array, Extents
from gradops_cy._resampling_problem import Coordinates, Innermost, Mode, ResampleProblem

_MODES = ("nearest", "linear", "bilinear", "trilinear")
_COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")

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
    ``floor(s + 0.5)``, or ``floor(s)`` for asymmetric, clamped. All other A are 0: source
    elements that nobody reads get exactly 0.

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
    mode : {"nearest", "linear", "bilinear", "trilinear"}
        The last three are one mode: linear along every spatial axis, whatever their number.
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
    interpolate_backprop : The same under the older names.

    Notes
    -----
    Definition: the oneDNN Graph operation *InterpolateBackward*; asymmetric, pytorch_half_pixel,
    `coordinate_scales`, `accumulate` and float64 are extensions. Coordinates are exact (integer
    arithmetic, or float64 with `coordinate_scales`). Sums are float32 (float64 for float64),
    rounded once, and weights of zero take no part, so that NaN and Inf reach no more elements
    than those that read them. Subnormal numbers are computed as such; data made of them is about
    ten times slower (float16 excepted). Nothing of a tensor's size is copied, except arrays of
    foreign byte order or alignment.

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
    op = "interpolate_backward"
    given_sizes, given_scales = _given(sizes), _given(scales)
    if given_sizes is not None:
        given_scales = None
    return _interpolate(
        op, ("src", "diff_dst"), src, diff_dst, given_sizes, mode, coordinate_transformation_mode,
        given_scales, data_format, _given(coordinate_scales), out, accumulate, num_threads,
    )  # fmt: skip


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
    given_sizes, given_scales = _given(sizes), _given(scales)
    if given_sizes is not None and given_scales is not None:
        raise ValueError(
            f"{op}: scales must be None where sizes is given, got {_attributes.found(scales)}"
        )
    return _interpolate(
        op, ("input_forward", "output_delta"), input_forward, output_delta, given_sizes, mode,
        coordinate_transformation_mode, given_scales, data_format, _given(coordinate_scales), out,
        accumulate, num_threads,
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
    grads = _arrays.check_array(op, "grads", grads)
    if grads.ndim != 4:
        raise ValueError(f"{op}: grads must have 4 axes, got {grads.ndim}")
    fmt = _arrays.data_format(op, data_format, 4)
    shape, dtype = _source(op, "original_image", original_image, grads.dtype)
    if grads.dtype.newbyteorder("=") != np.float32 or dtype == np.float64:
        _arrays.same_dtype(op, "original_image", dtype, grads.dtype)
    src, dst = _agree(op, ("original_image", "grads"), shape, grads.shape, fmt)
    corners = _attributes.flag(op, "align_corners", align_corners)
    centers = _attributes.flag(op, "half_pixel_centers", half_pixel_centers)
    if corners and centers:
        raise ValueError(
            f"{op}: half_pixel_centers must be False where align_corners is True, got True"
        )
    ratios = _attributes.floats(op, "scales", scales, 2, minimum=-np.inf)
    coordinates: Coordinates = (
        "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    )
    used = (0.0, 0.0) if corners else tuple(max(scale, 0.0) for scale in ratios)
    return _run(
        op, {"original_image": original_image, "grads": grads}, grads, fmt, src, dst, dtype,
        "linear", coordinates, used, out, accumulate, num_threads,
    )  # fmt: skip


def _given(value: Any) -> Any:
    """Return an optional attribute, an empty list (how graphs write an absent one) as None."""
    empty = isinstance(value, list | tuple | np.ndarray) and np.size(value) == 0
    return None if empty else value


def _source(
    op: str, name: str, value: Array | Shape, grad_dtype: np.dtype[Any]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of the forward input, given itself or as a shape."""
    if isinstance(value, (tuple, list)):
        shape, dtype = _attributes.shape(op, name, value), grad_dtype
    elif isinstance(value, np.ndarray):
        array = _arrays.check_array(op, name, value)
        shape, dtype = array.shape, array.dtype
    else:
        raise TypeError(
            f"{op}: {name} must be a NumPy array or a shape, got {_attributes.found(value)}"
        )
    return shape, dtype.newbyteorder("=")


def _agree(
    op: str,
    names: tuple[str, str],
    src_shape: tuple[int, ...],
    dst_shape: tuple[int, ...],
    fmt: str,
) -> tuple[Extents, Extents]:
    """Check the two shapes against each other and return them taken apart."""
    src_name, dst_name = names
    if len(src_shape) != len(dst_shape):
        raise ValueError(
            f"{op}: {src_name} must have {len(dst_shape)} axes as {dst_name} has, "
            f"got {len(src_shape)}"
        )
    src, dst = _arrays.extents(src_shape, fmt), _arrays.extents(dst_shape, fmt)
    if (src.batch, src.channels) != (dst.batch, dst.channels):
        raise ValueError(
            f"{op}: {src_name} must have batch {dst.batch} and {dst.channels} channels to match "
            f"{dst_name}, got batch {src.batch} and {src.channels} channels"
        )
    for name, shape, parts in ((src_name, src_shape, src), (dst_name, dst_shape, dst)):
        if min(parts.spatial) < 1:
            raise ValueError(f"{op}: {name} must have positive spatial extents, got shape {shape}")
    return src, dst


def _interpolate(
    op: str,
    names: tuple[str, str],
    src: Array | Shape,
    diff_dst: Array,
    sizes: Integers | None,
    mode: str,
    coordinate_transformation_mode: str,
    scales: Floats | None,
    data_format: str,
    coordinate_scales: Floats | None,
    out: Array | None,
    accumulate: bool,
    num_threads: int | None,
) -> Array:
    """Check the arguments that both Interpolate operators share, and run."""
    src_name, dst_name = names
    diff_dst = _arrays.check_array(op, dst_name, diff_dst)
    _arrays.check_rank(op, dst_name, diff_dst.ndim)
    rank = diff_dst.ndim - 2
    fmt = _arrays.data_format(op, data_format, diff_dst.ndim)
    shape, dtype = _source(op, src_name, src, diff_dst.dtype)
    _arrays.same_dtype(op, dst_name, diff_dst.dtype, dtype)
    source, target = _agree(op, names, shape, diff_dst.shape, fmt)
    nearest = _attributes.choice(op, "mode", mode, _MODES) == "nearest"
    coordinates = cast(
        Coordinates,
        _attributes.choice(
            op, "coordinate_transformation_mode", coordinate_transformation_mode, _COORDINATES
        ),
    )
    if sizes is not None:
        extents = _attributes.integers(op, "sizes", sizes, rank, minimum=1)
        if extents != target.spatial:
            raise ValueError(
                f"{op}: sizes must be the spatial extents {target.spatial} of {dst_name}, "
                f"got {extents}"
            )
    elif scales is not None:
        _check_scales(
            op, dst_name, _attributes.floats(op, "scales", scales, rank, minimum=0), source, target
        )
    used: tuple[float, ...] = (0.0,) * rank
    if coordinate_scales is not None:
        used = _attributes.floats(op, "coordinate_scales", coordinate_scales, rank, minimum=0)
        if coordinates == "align_corners":
            used = (0.0,) * rank
    return _run(
        op, {src_name: src, dst_name: diff_dst}, diff_dst, fmt, source, target, dtype,
        "nearest" if nearest else "linear", coordinates, used, out, accumulate, num_threads,
    )  # fmt: skip


def _check_scales(
    op: str, dst_name: str, scales: tuple[float, ...], src: Extents, dst: Extents
) -> None:
    """Raise unless every ``trunc(float32(src)·float32(scale))`` is dst, or beside it."""
    for axis, (scale, small, large) in enumerate(
        zip(scales, src.spatial, dst.spatial, strict=True)
    ):
        with np.errstate(over="ignore", under="ignore"):
            product = float(np.float32(small) * np.float32(scale))
        if not abs(np.trunc(product) - large) <= 1:
            raise ValueError(
                f"{op}: scales[{axis}] must take extent {small} to extent {large} of {dst_name}, "
                f"give or take one, got {scale:g}, which gives {product:g}"
            )


def _run(
    op: str,
    arguments: dict[str, Array | Shape],
    diff_dst: Array,
    fmt: str,
    src: Extents,
    dst: Extents,
    dtype: np.dtype[Any],
    mode: Mode,
    coordinates: Coordinates,
    scales: tuple[float, ...],
    out: Array | None,
    accumulate: bool,
    num_threads: int | None,
) -> Array:
    """Check what all operators share, state the problem, plan and compute."""
    accumulate = _attributes.flag(op, "accumulate", accumulate)
    threads = _threads.resolve(op, num_threads)
    inputs = {name: value for name, value in arguments.items() if isinstance(value, np.ndarray)}
    result = _arrays.result_array(
        op, out, _arrays.shape_of(src, fmt), dtype, accumulate=accumulate, inputs=inputs
    )
    if result.size == 0:
        return result
    grads = _arrays.canonical(_arrays.native(diff_dst), fmt)
    missing = 3 - len(scales)
    problem = ResampleProblem(
        batch=src.batch,
        channels=src.channels,
        src=cast(tuple[int, int, int], (1,) * missing + src.spatial),
        dst=cast(tuple[int, int, int], (1,) * missing + dst.spatial),
        mode=mode,
        coordinates=coordinates,
        scales=cast(tuple[float, float, float], (0.0,) * missing + scales),
        load_dtype=_arrays.DTYPE_CODES[grads.dtype],
        store_dtype=_arrays.DTYPE_CODES[dtype],
        innermost=_innermost(grads, fmt),
    )
    _resampling_plan.plan(problem).run(
        grads, _arrays.canonical(result, fmt), accumulate=accumulate, num_threads=threads
    )
    return result


def _innermost(grads: Array, fmt: str) -> Innermost:
    """Tell along which axis of an (N, C, D, H, W) view memory runs.

    Strides decide only where both axes have them, so that a part of a batch, copied or not, is
    computed as the whole.
    """
    channels, width = grads.shape[1], grads.shape[4]
    if channels == 1:
        return "width"
    if width == 1:
        return "channels" if fmt == "NXC" else "width"
    return "channels" if abs(grads.strides[1]) < abs(grads.strides[4]) else "width"
