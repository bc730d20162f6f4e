"""One position of diff_dst an image: all elements of diff_src taken for channels.

A map as a kernel (the end of LeNet, VGG's 7x7 as a convolution) has a tap of its own for each
position of diff_src: a product without a kernel, which has as many columns as diff_src elements.
"""

from __future__ import annotations

from math import prod

from gradops_cy import _arrays
from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem

# The order of diff_src's axes, and where (g, O, I, D, H, W) weights have them.
_AXES = {"XI": (0, 1, 3, 4, 5, 2), "IX": (0, 1, 2, 3, 4, 5)}


def order_of(problem: ConvProblem, weights: Array, diff_src: Array, channels_last: bool) -> str:
    """Return the order in which positions can be taken for channels, or "" where there is none.

    That of diff_src. Weights in another one, or with gaps where taps lie in the padding, would have
    to be copied, which takes longer than their products.
    """
    if not _fits(problem) or (channels_last and problem.groups > 1):
        return ""
    found = "XI" if channels_last else "IX"
    axes = _AXES[found][2:]
    # An element is an axis of bytes.
    dense = (*diff_src.shape[1:], diff_src.itemsize), (*diff_src.strides[1:], 1)
    taps = [weights.shape[a] for a in axes], [weights.strides[a] for a in axes]
    return found if _arrays.follow(*dense) and _arrays.follow(*taps) else ""


def _fits(problem: ConvProblem) -> bool:
    """Whether the one position of diff_dst reaches all of diff_src, each with a tap."""
    if problem.diff_dst[2] > 1 or problem.transposed:
        return False
    if prod(problem.kernel) == 1 or any(problem.pads_begin):
        return False
    axes = range(3 - problem.rank, 3)
    return all(problem.diff_dst[a] == 1 and problem.kernel[a] == problem.diff_src[a] for a in axes)


def product(problem: ConvProblem) -> ConvProblem:
    """Return the problem whose channels are all positions of diff_src."""
    return problem._replace(
        diff_src_channels=problem.diff_src_channels * prod(problem.kernel),
        diff_src=problem.diff_dst,
        kernel=(1, 1, 1),
        strides=(1, 1, 1),
        dilations=(1, 1, 1),
    )


def packable(weights: Array, order: str) -> Array:
    """Return (g, O, I, D, H, W) weights with those channels."""
    weights = weights.transpose(_AXES[order])
    return weights.reshape(*weights.shape[:2], -1, 1, 1, 1)


def view(diff_src: Array, channels_last: bool) -> Array:
    """Return diff_src with those channels, in the same order of axes: a view."""
    ones = (1,) * (diff_src.ndim - 2)
    images = len(diff_src)
    return diff_src.reshape((images, *ones, -1) if channels_last else (images, -1, *ones))
