"""A problem's residue classes and taps over all three axes (see _convolution_axis for one)."""

from __future__ import annotations

from math import prod

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import Axis, axis_of
from gradops_cy._convolution_problem import ConvProblem, Triple

# More residue classes than this are not all walked through.
MOST_CLASSES = 64


def out_steps(problem: ConvProblem) -> Triple:
    """Return the steps from position to position of a residue class of diff_src."""
    return (1, 1, 1) if problem.transposed else problem.strides


def counts(problem: ConvProblem) -> Triple:
    """Return the most positions of a residue class on each axis."""
    (d, h, w), (step_d, step_h, step_w) = problem.diff_src, out_steps(problem)
    return -(-d // step_d), -(-h // step_h), -(-w // step_w)


def zero_first(problem: ConvProblem) -> bool:
    """Return whether diff_src is cleared first, and classes without taps are left out.

    With a few classes it is better to write every element once, zero or not; strides far above the
    kernel leave more empty classes than there is other work.
    """
    return prod(map(min, out_steps(problem), problem.diff_src)) > MOST_CLASSES


def axis(problem: ConvProblem, number: int, block: int, phased: bool) -> Axis:
    """Return the table of one axis for blocks of `block` positions."""
    return axis_of(
        problem.transposed,
        problem.diff_src[number],
        problem.diff_dst[number],
        problem.kernel[number],
        problem.strides[number],
        problem.dilations[number],
        problem.pads_begin[number],
        block,
        phased,
    )


def tables(problem: ConvProblem, phased: bool) -> tuple[Array, Array]:
    """Return the residue classes and every tap by axis.

    Classes: residues on the three axes, first tap and last + 1.
    """
    # On each axis: residue, first tap, number of taps. Classes come in C order.
    axes = [_axis_classes(problem, number, phased) for number in range(3)]
    grid = np.indices([len(classes) for classes in axes]).reshape(3, -1)
    classes = np.stack([on_axis[index] for on_axis, index in zip(axes, grid, strict=True)])
    sizes = classes[:, :, 2].prod(axis=0)
    ends = np.cumsum(sizes)
    residues = np.column_stack([*classes[:, :, 0], ends - sizes, ends])
    # The l-th tap of a class, taken apart over its axes, the last one fastest.
    owner = np.repeat(np.arange(len(sizes)), sizes)
    local = np.arange(len(owner)) - (ends - sizes)[owner]
    taps = np.empty((len(owner), 3), np.intp)
    for number in (2, 1, 0):
        count = classes[number, owner, 2]
        taps[:, number] = classes[number, owner, 1] + local % count
        local //= count
    return np.ascontiguousarray(residues, np.intp), taps


def _axis_classes(problem: ConvProblem, number: int, phased: bool) -> Array:
    """Return residue, first tap and number of taps of an axis's classes."""
    single = axis(problem, number, 1, phased)
    residues = np.arange(single.classes)
    if zero_first(problem):  # at least one, so that there is something to plan for
        residues = np.unique(single.residues) if len(single.residues) else residues[:1]
    begin = np.searchsorted(single.residues, residues)
    end = np.searchsorted(single.residues, residues, side="right")
    return np.stack([residues, begin, end - begin], axis=1)
