"""This library: its operators, and plans of them that are reused."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradops_cy
from benchmarks.cases import Case
from benchmarks.providers import Array, Arrays, Work


class Ours:
    """This library, into a preallocated result.

    A call does everything that a user does for each; with `planned` it is one of a plan, which has
    been checked and has packed its weights beforehand.
    """

    def __init__(self, planned: bool = False) -> None:
        self.planned = planned
        self.name = "gradops_cy plan" if planned else "gradops_cy"

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the call; None for plans of what has none."""
        channels_last, conv = layout == "NXC", case.kind == "conv"
        dy = arrays.diff_dst
        shape: tuple[int, ...] = (case.mb, case.ic, *case.src)
        if channels_last:
            dy, shape = np.moveaxis(dy, 1, -1), (case.mb, *case.src, case.ic)
        dy = arrays.place(dy)
        out = np.full(shape, 0, dy.dtype)  # written, so that no call pays for fresh pages
        if case.kind == "resampling":
            if self.planned:
                return None
            return lambda: gradops_cy.interpolate_backward(
                shape,
                dy,
                mode=case.algorithm,
                out=out,
                data_format=layout,
                num_threads=threads,
            )
        if self.planned:
            plan = self.plan(case, arrays, layout, threads)
            return lambda: plan(dy, out=out)
        w, keywords = _weights_and_attributes(case, arrays, layout, threads)
        operator = getattr(gradops_cy, _name(case))
        extents = (shape,) if conv else ()
        return lambda: operator(dy, w, *extents, out=out, **keywords)

    def plan(
        self, case: Case, arrays: Arrays, layout: str, threads: int
    ) -> gradops_cy.ConvolutionPlan:
        """Return the plan of a convolution."""
        channels_last = layout == "NXC"
        w, keywords = _weights_and_attributes(case, arrays, layout, threads)
        shapes = [(case.mb, case.oc, *case.dst), (case.mb, case.ic, *case.src)]
        if channels_last:
            shapes = [(n, *x, c) for n, c, *x in shapes]
        dst, src = shapes
        make = getattr(gradops_cy, f"{_name(case)}_plan")
        extents = (src,) if case.kind == "conv" else ()
        plan: gradops_cy.ConvolutionPlan = make(dst, w, *extents, **keywords)
        return plan

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        array = np.moveaxis(value, -1, 1) if layout == "NXC" else value
        return np.asarray(array, np.float32)


def _name(case: Case) -> str:
    return "convolution_backward_data" if case.kind == "conv" else "conv_transpose_backward_data"


def _weights_and_attributes(
    case: Case, arrays: Arrays, layout: str, threads: int
) -> tuple[Array, dict[str, Any]]:
    w, weights_format = arrays.weights, "OIX" if case.kind == "conv" else "IOX"
    if layout == "NXC":
        w, weights_format = np.moveaxis(w, (0, 1), (-1, -2)), weights_format[::-1]
    return arrays.place(w), {
        "data_format": layout,
        "num_threads": threads,
        "strides": case.strides,
        "pads_begin": case.pads,
        "pads_end": case.pads_end,
        "dilations": case.dilations,
        "groups": case.groups,
        "weights_format": weights_format,
    }
