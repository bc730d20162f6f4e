"""A problem's residue classes and taps over all three axes (see _convolution_axis for one)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from gradops_cy._arrays import Array
from gradops_cy._convolution_axis import AxisTaps, axis_taps
from gradops_cy._convolution_problem import ConvProblem, Triple
from gradops_cy._distinct import distinct

# More residue classes than this are not all walked through.
MOST_CLASSES = 64

AxesTaps = tuple[AxisTaps, AxisTaps, AxisTaps]


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


def axes(problem: ConvProblem) -> AxesTaps:
    """Return the taps of the three axes."""
    steps, extents = out_steps(problem), problem.diff_src
    depth, height, width = (
        axis_taps(
            problem.transposed,
            min(steps[number], extents[number]),
            problem.kernel[number],
            problem.strides[number],
            problem.dilations[number],
            problem.pads_begin[number],
        )
        for number in range(3)
    )
    return depth, height, width


def stay_inside(problem: ConvProblem, axes: AxesTaps) -> bool:
    """Return whether no tap reads outside diff_dst, as if all classes had the most positions."""
    return all(
        axis.low >= 0 and axis.low + axis.span + (count - 1) * axis.in_step <= source
        for axis, count, source in zip(axes, counts(problem), problem.diff_dst, strict=True)
    )


@dataclass(frozen=True, eq=False)
class Taps:
    """Residue classes and taps; no extent of a tensor matters beyond the number of classes."""

    axes: AxesTaps
    residues: Array  # [classes][5]: residues on the three axes, first tap and last + 1
    taps: Array  # [taps][3]: by axis, the last one fastest

    @cached_property
    def most(self) -> int:
        """The taps of the residue class that has most."""
        return int((self.residues[:, 4] - self.residues[:, 3]).max())

    @cached_property
    def coordinates(self) -> Array:
        """The taps' coordinates in the kernel."""
        columns = [axis.taps[self.taps[:, number]] for number, axis in enumerate(self.axes)]
        return np.stack(columns, axis=1)

    @cached_property
    def ranks(self) -> Array:
        """Where each tap of the kernel, in C order, stands; nothing if not all are used."""
        kernel = [axis.kernel for axis in self.axes]
        if len(self.taps) < prod(kernel):
            return np.empty(0, np.intp)
        return np.argsort(np.ravel_multi_index(tuple(self.coordinates.T), kernel))


@lru_cache(maxsize=128)
def taps_of(axes: AxesTaps, used_only: bool) -> Taps:
    """Tabulate the residue classes, all of them or those with taps."""
    # On each axis: residue, first tap, number of taps. Classes come in C order.
    on_axes = [_axis_classes(axis, used_only) for axis in axes]
    grid = np.indices([len(classes) for classes in on_axes]).reshape(3, -1)
    classes = np.stack([on_axis[index] for on_axis, index in zip(on_axes, grid, strict=True)])
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
    return Taps(axes, np.ascontiguousarray(residues, np.intp), taps)


def _axis_classes(axis: AxisTaps, used_only: bool) -> Array:
    """Return residue, first tap and number of taps of an axis's classes."""
    residues = np.arange(axis.classes)
    if used_only:  # at least one, so that there is something to plan for
        residues = axis.residues[distinct(axis.residues)[0]] if len(axis) else residues[:1]
    begin = np.searchsorted(axis.residues, residues)
    end = np.searchsorted(axis.residues, residues, side="right")
    return np.stack([residues, begin, end - begin], axis=1)
