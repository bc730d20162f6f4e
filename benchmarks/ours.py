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
        dy, w = arrays.diff_dst, arrays.weights
        shape: tuple[int, ...] = (case.mb, case.ic, *case.src)
        if channels_last:
            dy, shape = np.moveaxis(dy, 1, -1), (case.mb, *case.src, case.ic)
        dy = arrays.place(dy)
        out = np.full(shape, 0, dy.dtype)  # written, so that no call pays for fresh pages
        keywords: dict[str, Any] = {"data_format": layout, "num_threads": threads}
        if case.kind == "resampling":
            if self.planned:
                return None
            return lambda: gradops_cy.interpolate_backward(
                shape, dy, mode=case.algorithm, out=out, **keywords
            )
        weights_format = "OIX" if conv else "IOX"
        if channels_last:
            w, weights_format = np.moveaxis(w, (0, 1), (-1, -2)), "XIO" if conv else "XOI"
        w = arrays.place(w)
        keywords |= {
            "strides": case.strides,
            "pads_begin": case.pads,
            "pads_end": case.pads_end,
            "dilations": case.dilations,
            "groups": case.groups,
            "weights_format": weights_format,
        }
        name = "convolution_backward_data" if conv else "conv_transpose_backward_data"
        extents = (shape,) if conv else ()
        if self.planned:
            plan = getattr(gradops_cy, f"{name}_plan")(dy.shape, w, *extents, **keywords)
            return lambda: plan(dy, out=out)
        operator = getattr(gradops_cy, name)
        return lambda: operator(dy, w, *extents, out=out, **keywords)

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        array = np.moveaxis(value, -1, 1) if layout == "NXC" else value
        return np.asarray(array, np.float32)
