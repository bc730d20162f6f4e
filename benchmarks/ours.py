"""This library: its operators, and plans of them that are reused."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradops_cy
from benchmarks.cases import Case
from benchmarks.providers import Array, Arrays, Work
from gradops_cy._arrays import new_result


class Ours:
    """This library, into a preallocated result, which lies where a call would have put it.

    A call does everything that a user does for each; with `planned` it is one of a plan, which has
    been checked and has packed its weights beforehand.
    """

    def __init__(self, planned: bool = False) -> None:
        self.planned = planned
        self.name = "gradops_cy plan" if planned else "gradops_cy"

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the call; None for plans of what has none."""
        dy = np.moveaxis(arrays.diff_dst, 1, -1) if layout == "NXC" else arrays.diff_dst
        dy = arrays.place(dy)
        shape = _shape(case.mb, case.ic, case.src, layout)
        out = new_result("benchmark", shape, dy.dtype)
        out.fill(0)  # so that no call pays for fresh pages
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
        return lambda: operator(dy, w, out=out, **keywords)

    def plan(
        self, case: Case, arrays: Arrays, layout: str, threads: int
    ) -> gradops_cy.ConvolutionPlan:
        """Return the plan of a convolution."""
        w, keywords = _weights_and_attributes(case, arrays, layout, threads)
        make = getattr(gradops_cy, f"{_name(case)}_plan")
        shape = _shape(case.mb, case.oc, case.dst, layout)
        plan: gradops_cy.ConvolutionPlan = make(shape, w, **keywords)
        return plan

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        array = np.moveaxis(value, -1, 1) if layout == "NXC" else value
        return np.asarray(array, np.float32)


def _name(case: Case) -> str:
    return "convolution_backward_data" if case.kind == "conv" else "conv_transpose_backward_data"


def _shape(images: int, channels: int, spatial: tuple[int, ...], layout: str) -> tuple[int, ...]:
    return (images, *spatial, channels) if layout == "NXC" else (images, channels, *spatial)


def _weights_and_attributes(
    case: Case, arrays: Arrays, layout: str, threads: int
) -> tuple[Array, dict[str, Any]]:
    w, weights_format = arrays.weights, "OIX" if case.kind == "conv" else "IOX"
    if layout == "NXC":
        w, weights_format = np.moveaxis(w, (0, 1), (-1, -2)), weights_format[::-1]
    keywords: dict[str, Any] = {
        "data_format": layout,
        "num_threads": threads,
        "strides": case.strides,
        "pads_begin": case.pads,
        "pads_end": case.pads_end,
        "dilations": case.dilations,
        "groups": case.groups,
        "weights_format": weights_format,
    }
    if case.kind == "conv":
        keywords["dst_shape"] = _shape(case.mb, case.ic, case.src, layout)
    return arrays.place(w), keywords
