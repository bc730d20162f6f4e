"""Slow, obvious float64 references, written from the operators' formulas.

Nothing here comes from the package. Convolutions take channel-first arrays, ``dy`` of shape
(N, O, *y), and weights as the formulas index them; `absolute` versions of the arguments give the
sum of magnitudes that tolerances need.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import product
from math import floor

import numpy as np


def to_ncx(array, data_format):
    """Move the channels of an NXC array to the front."""
    return np.moveaxis(array, -1, 1) if data_format == "NXC" else array


def from_ncx(array, data_format):
    """Move the channels to where `data_format` has them."""
    return np.moveaxis(array, 1, -1) if data_format == "NXC" else array


def to_front(weights, weights_format):
    """Move the two channel axes of XIO or XOI weights to the front: OIX or IOX."""
    return np.moveaxis(weights, (-1, -2), (0, 1)) if weights_format[0] == "X" else weights


def conv_backward(dy, weights, x, *, strides, pads_begin, dilations, groups):
    """diff_src[n, i, x] = sum of dy[n, o, y] W[o, i, k] where y·S + k·D - PB = x."""
    parts, weights = by_group(dy, groups), np.asarray(weights, np.float64)
    panels = weights.reshape(groups, -1, *weights.shape[1:])
    result = np.zeros((groups, len(dy), weights.shape[1], *x))
    for k in np.ndindex(*weights.shape[2:]):
        for y in np.ndindex(*dy.shape[2:]):
            at = [y[a] * strides[a] + k[a] * dilations[a] - pads_begin[a] for a in range(len(x))]
            if all(0 <= at[a] < x[a] for a in range(len(x))):
                result[(..., *at)] += parts[(..., *y)] @ panels[(..., *k)]
    return result.swapaxes(0, 1).reshape(len(dy), -1, *x)


def conv_transpose_backward(dy, weights, x, *, strides, pads_begin, dilations, groups):
    """diff_src[n, i, x] = sum of dy[n, o, x·S + k·D - PB] W[i, o, k], zero outside dy.

    `weights` are (I, O/g, *K).
    """
    parts, weights = by_group(dy, groups), np.asarray(weights, np.float64)
    panels = weights.reshape(groups, -1, *weights.shape[1:]).swapaxes(1, 2)
    result = np.zeros((groups, len(dy), panels.shape[2], *x))
    for k in np.ndindex(*weights.shape[2:]):
        for at in np.ndindex(*x):
            y = [at[a] * strides[a] + k[a] * dilations[a] - pads_begin[a] for a in range(len(x))]
            if all(0 <= y[a] < dy.shape[2 + a] for a in range(len(x))):
                result[(..., *at)] += parts[(..., *y)] @ panels[(..., *k)]
    return result.swapaxes(0, 1).reshape(len(dy), -1, *x)


def by_group(dy, groups):
    """Return dy as (group, N, O/g, *y)."""
    dy = np.asarray(dy, np.float64)
    return dy.reshape(len(dy), groups, -1, *dy.shape[2:]).swapaxes(0, 1)


def implementation_weights(page_weights, groups):
    """Rearrange transposed weights (I/g, O, *K) of the operator's page to (I, O/g, *K)."""
    og = page_weights.shape[1] // groups
    return np.concatenate([page_weights[:, q * og : (q + 1) * og] for q in range(groups)], axis=0)


def page_weights(weights, groups):
    """Rearrange transposed weights (I, O/g, *K) to the (I/g, O, *K) of the operator's page."""
    ig = weights.shape[0] // groups
    return np.concatenate([weights[q * ig : (q + 1) * ig] for q in range(groups)], axis=1)


def conv_forward(src, weights, y, *, strides, pads_begin, dilations, groups):
    """Return the forward convolution for weights (O, I/g, *K): for adjoint tests."""
    src, weights = np.asarray(src, np.float64), np.asarray(weights, np.float64)
    outputs, ig = weights.shape[:2]
    og = outputs // groups
    result = np.zeros((src.shape[0], outputs, *y))
    for n, o in product(range(src.shape[0]), range(outputs)):
        for at in np.ndindex(*y):
            total = 0.0
            for i in range(ig):
                for k in np.ndindex(*weights.shape[2:]):
                    x = [
                        at[a] * strides[a] + k[a] * dilations[a] - pads_begin[a]
                        for a in range(len(y))
                    ]
                    if all(0 <= x[a] < src.shape[2 + a] for a in range(len(y))):
                        total += src[(n, o // og * ig + i, *x)] * weights[(o, i, *k)]
            result[(n, o, *at)] = total
    return result


def by_taps(dy, weights, x, *, strides, pads_begin, dilations, groups, transposed):
    """Return what the two functions above do, one matrix product a tap: for large cases.

    The taps of a window lie at ``position·S + k·D`` in the padded large tensor, which is the
    result of a convolution and the gradient of a transposed one.
    """
    dy, weights = np.asarray(dy, np.float64), np.asarray(weights, np.float64)
    batch, outputs = dy.shape[:2]
    small, large = (x, dy.shape[2:]) if transposed else (dy.shape[2:], x)
    kernel = weights.shape[2:]
    padded = tuple(
        max(p + n, s * (m - 1) + (k - 1) * d + 1)
        for p, n, s, m, k, d in zip(
            pads_begin, large, strides, small, kernel, dilations, strict=True
        )
    )
    inside = tuple(slice(p, p + n) for p, n in zip(pads_begin, large, strict=True))
    # (g, O/g, I/g, *K), and the tensor that is read, as (N, *positions, O).
    if transposed:
        inputs = weights.shape[0]
        panels = weights.reshape(groups, inputs // groups, -1, *kernel).swapaxes(1, 2)
        source = np.zeros((batch, *padded, outputs))
        source[:, *inside] = np.moveaxis(dy, 1, -1)
        result = np.zeros((batch, *x, inputs))
    else:
        inputs = weights.shape[1] * groups
        panels = weights.reshape(groups, outputs // groups, -1, *kernel)
        source = np.moveaxis(dy, 1, -1)
        result = np.zeros((batch, *padded, inputs))
    for k in np.ndindex(*kernel):
        window = tuple(
            slice(i * d, i * d + s * (m - 1) + 1, s)
            for i, d, s, m in zip(k, dilations, strides, small, strict=True)
        )
        read = source[:, *window] if transposed else source
        parts = read.reshape(-1, groups, outputs // groups).swapaxes(0, 1)
        product = (parts @ panels[(..., *k)]).swapaxes(0, 1).reshape(*read.shape[:-1], inputs)
        if transposed:
            result += product
        else:
            result[:, *window] += product
    return np.moveaxis(result if transposed else result[:, *inside], -1, 1)


def same_total(y, x, *, stride, span, output_padding=0, transposed=False):
    """Return the padding cells of ``same_*``; `x` is not used for transposed convolutions."""
    if transposed:
        return max(0, span - (y % stride or stride))
    return max(0, stride * (y - 1) + span - x + output_padding)


def same_pads(total, auto_pad, rule):
    """Split a total of padding cells: begin, end."""
    small, large = total // 2, total - total // 2
    at_end = {"same_upper": True, "same_lower": False}[auto_pad]
    if rule == "page":
        at_end = not at_end
    return (small, large) if at_end else (large, small)


# -- interpolation -------------------------------------------------------------------------


def coordinate(y, src, dst, transform, scale=None):
    """Return the exact source coordinate of destination index y."""
    ratio = Fraction(dst, src) if scale is None else Fraction(scale)
    if transform == "align_corners":
        return Fraction(0) if dst == 1 else Fraction(y * (src - 1), dst - 1)
    if transform == "asymmetric":
        return y / ratio
    if transform == "pytorch_half_pixel" and dst == 1:
        return Fraction(0)
    return (y + Fraction(1, 2)) / ratio - Fraction(1, 2)


# Their exact coordinates take longer than what is tested with them.
@lru_cache(maxsize=4)
def axis_matrix(src, dst, mode, transform, scale=None):
    """Return A with forward = A.T @ x on one axis, of shape (src, dst)."""
    matrix = np.zeros((src, dst))
    for y in range(dst):
        s = coordinate(y, src, dst, transform, scale)
        if mode == "nearest":
            index = floor(s) if transform == "asymmetric" else floor(s + Fraction(1, 2))
            matrix[min(max(index, 0), src - 1), y] = 1
        else:
            s = min(max(s, Fraction(0)), Fraction(src - 1))
            left = floor(s)
            matrix[left, y] += float(1 - (s - left))
            matrix[min(left + 1, src - 1), y] += float(s - left)
    return matrix


def kernel(distance, cubic, a):
    """Return the triangle or the cubic convolution kernel at a distance."""
    x = abs(distance)
    if not cubic:
        return max(1 - x, 0)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0


@lru_cache(maxsize=4)
def filter_matrix(src, dst, mode, transform, scale=None, *, antialias=False, a=-0.75):
    """Return axis_matrix of a cubic or antialiased interpolation."""
    matrix = np.zeros((src, dst))
    cubic, a = mode == "cubic", Fraction(a)
    step = Fraction(src, dst) if scale is None else 1 / Fraction(scale)
    if transform == "align_corners":
        step = Fraction(src - 1, dst - 1) if dst > 1 else Fraction(0)
    for y in range(dst):
        if antialias:
            width, center = max(step, 1), step * (y + Fraction(1, 2))
            support = (2 if cubic else 1) * width
            first = max(int(center - support + Fraction(1, 2)), 0)
            last = min(int(center + support + Fraction(1, 2)), src)
            weights = [
                kernel((x + Fraction(1, 2) - center) / width, cubic, a) for x in range(first, last)
            ]
            for x, weight in zip(range(first, last), weights, strict=True):
                matrix[x, y] = float(weight / sum(weights))
        else:
            s = coordinate(y, src, dst, transform, scale)
            for x in range(floor(s) - 1, floor(s) + 3):
                matrix[min(max(x, 0), src - 1), y] += float(kernel(x - s, True, a))
    return matrix


def matrices(src, dst, mode, transform, scales=None, *, antialias=False, a=-0.75):
    """Return the matrix of each axis."""
    mode = {"nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}.get(mode, "linear")
    scales = [None] * len(src) if scales is None else scales
    if mode == "cubic" or antialias:
        return [
            filter_matrix(x, y, mode, transform, scale, antialias=antialias, a=a)
            for x, y, scale in zip(src, dst, scales, strict=True)
        ]
    return [
        axis_matrix(x, y, mode, transform, scale)
        for x, y, scale in zip(src, dst, scales, strict=True)
    ]


def interpolate_backward(dy, src, mode, transform, scales=None, *, magnitude=False, **filters):
    """Return the gradient of an interpolation from spatial extents `src` to those of dy.

    With `magnitude`, the sum of the magnitudes of all products instead.
    """
    result = np.asarray(dy, np.float64)
    of_axes = matrices(src, dy.shape[2:], mode, transform, scales, **filters)
    if magnitude:
        result, of_axes = np.abs(result), [np.abs(matrix) for matrix in of_axes]
    for axis, matrix in enumerate(of_axes):
        result = np.moveaxis(np.tensordot(matrix, result, (1, 2 + axis)), 0, 2 + axis)
    return result


def interpolate_forward(src, dst, mode, transform, scales=None, **filters):
    """Return the forward interpolation, point by point: for adjoint tests."""
    of_axes = matrices(src.shape[2:], dst, mode, transform, scales, **filters)
    result = np.zeros((*src.shape[:2], *dst))
    for y in np.ndindex(*dst):
        for x in np.ndindex(*src.shape[2:]):
            weight = np.prod([of_axes[a][x[a], y[a]] for a in range(len(dst))])
            if weight:
                result[(slice(None), slice(None), *y)] += (
                    weight * src[(slice(None), slice(None), *x)]
                )
    return result


def resize_bilinear_v2_grad(grads, image, *, align_corners, half_pixel_centers, scales):
    """Scatter each element of (N, C, H, W) grads to its four pixels, as the page writes it."""
    grads = np.asarray(grads, np.float64)
    result = np.zeros((*grads.shape[:2], *image))
    taps = []
    for axis in range(2):
        src, dst = image[axis], grads.shape[2 + axis]
        ratio = Fraction(src, dst)
        if scales[axis] > 0:
            ratio = 1 / Fraction(scales[axis])
        if align_corners:
            ratio = Fraction(src - 1, dst - 1) if dst > 1 else Fraction(0)
        half = Fraction(1, 2) if half_pixel_centers else Fraction(0)
        row = []
        for y in range(dst):
            s = min(max((y + half) * ratio - half, Fraction(0)), Fraction(src - 1))
            low = floor(s)
            row.append((low, min(low + 1, src - 1), float(s - low)))
        taps.append(row)
    for y, (top, bottom, fy) in enumerate(taps[0]):
        for x, (left, right, fx) in enumerate(taps[1]):
            g = grads[:, :, y, x]
            result[:, :, top, left] += g * (1 - fy) * (1 - fx)
            result[:, :, top, right] += g * (1 - fy) * fx
            result[:, :, bottom, left] += g * fy * (1 - fx)
            result[:, :, bottom, right] += g * fy * fx
    return result
