"""Who computes a case: the peers, each behind the same two methods as ours.

`prepare` returns a callable that does the work on arrays it has made ready, or None where the
library lacks the operator; calling it returns the result as an (N, C, *X) array.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from benchmarks.cases import Case

Array = np.ndarray[Any, np.dtype[Any]]
Work = Callable[[], Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
}


DATA = ("normal", "subnormal", "views")


@dataclass(frozen=True)
class Arrays:
    """The inputs of a case, channels first; weights (O, I/g, *K), transposed (I, O/g, *K).

    Of `data`, ``subnormal`` has a diff_dst of subnormal numbers; ``views`` hands over parts of
    wider arrays, to ours and to PyTorch.
    """

    diff_dst: Array
    weights: Array
    data: str = "normal"

    @classmethod
    def random(cls, case: Case, dtype: str, data: str = "normal") -> Arrays:
        """Draw them, the same for the same case."""
        rng = np.random.default_rng(0)
        first, second = case.oc, case.ic // case.groups
        if case.kind == "deconv":
            first, second = case.ic, case.oc // case.groups
        shape = (case.mb, case.oc or case.ic, *case.dst)
        dy = rng.standard_normal(shape, np.float32)
        if data == "subnormal":
            dy *= float(ml_dtypes.finfo(DTYPES[dtype]).smallest_normal) / 8  # type: ignore[no-untyped-call]
        dy = dy.astype(DTYPES[dtype])
        if case.kind == "resampling":
            return cls(dy, np.empty(0, DTYPES[dtype]), data)
        w = rng.standard_normal((first, second, *case.kernel), np.float32)
        return cls(dy, w.astype(DTYPES[dtype]), data)

    def widened(self) -> Arrays:
        """Return the same values in float32."""
        single = np.float32
        return Arrays(self.diff_dst.astype(single), self.weights.astype(single), self.data)

    def place(self, array: Array) -> Array:
        """Return it dense in the order of the axes, copied only if it is not, or a part of one."""
        if self.data != "views":
            return np.ascontiguousarray(array)
        *outer, inner = array.shape
        part = np.zeros((*outer, inner + 1), array.dtype)[..., :inner]
        part[...] = array
        return part


class Provider(Protocol):
    """One library, in one way of using it."""

    name: str

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the work on arrays in `layout`, NCX or NXC."""

    def result(self, value: Any, layout: str) -> Array:
        """Return what the work returned as an (N, C, *X) array of float32."""


def last(array: Array) -> Array:
    """Return a contiguous channels-last copy."""
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


class Torch:
    """PyTorch's backward operators; NXC is its channels_last memory format."""

    name = "pytorch"

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the call of the aten operator."""
        import torch

        torch.set_num_threads(threads)

        def tensor(array: Array) -> Any:
            placed = arrays.place(np.moveaxis(array, 1, -1) if layout == "NXC" else array)
            if array.dtype == DTYPES["bf16"]:
                made = torch.from_numpy(placed.view(np.int16)).view(torch.bfloat16)
            else:
                made = torch.from_numpy(placed)
            # Channels innermost in memory, whatever the rank.
            return made.movedim(-1, 1) if layout == "NXC" else made

        dy = tensor(arrays.diff_dst)
        src = [case.mb, case.ic, *case.src]
        if case.kind == "resampling":
            if case.algorithm == "linear":
                name = ("linear1d", "bilinear2d", "trilinear3d")[case.rank - 1]
                linear = getattr(torch.ops.aten, f"upsample_{name}_backward")
                return lambda: linear(dy, list(case.dst), src, False)
            nearest = getattr(torch.ops.aten, f"_upsample_nearest_exact{case.rank}d_backward")
            return lambda: nearest(dy, list(case.dst), src)
        transposed = case.kind == "deconv"
        padding = [
            y - ((x - 1) * s + e - 2 * p)
            for y, x, s, e, p in zip(
                case.dst, case.src, case.strides, case.spans, case.pads, strict=True
            )
        ]
        pads, extents = case.pads, case.src
        sides = zip(case.pads, case.pads_end, case.strides, strict=True)
        causal = not transposed and any(not end <= begin < end + s for begin, end, s in sides)
        if causal:
            # Pads that differ: the forward pass pads by itself, the gradient is a part.
            extents = tuple(map(sum, zip(case.src, case.pads, case.pads_end, strict=True)))
            pads = (0,) * case.rank
        w = tensor(arrays.weights)
        x = torch.empty([case.mb, case.ic, *extents], dtype=dy.dtype)
        if layout == "NXC":
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)

        def backward() -> Any:
            value = torch.ops.aten.convolution_backward(
                dy, x, w, None, case.strides, pads, case.dilations, transposed,
                padding if transposed else [0] * case.rank, case.groups, [True, False, False],
            )[0]  # fmt: skip
            if causal:
                for axis, (begin, extent) in enumerate(zip(case.pads, case.src, strict=True)):
                    value = value.narrow(2 + axis, begin, extent)
            return value

        return backward

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        array: Array = value.float().numpy()
        return array


class Jax:
    """JAX: the compiled transpose of its own forward operator, NCX only."""

    name = "jax"

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the compiled vector-Jacobian product of a convolution."""
        if case.kind != "conv" or layout != "NCX":
            return None
        import jax
        from jax import lax

        pads = list(zip(case.pads, case.pads_end, strict=True))
        axes = "DHW"[3 - case.rank :]
        numbers = (f"NC{axes}", f"OI{axes}", f"NC{axes}")
        x = jax.numpy.zeros((case.mb, case.ic, *case.src), arrays.diff_dst.dtype)

        def gradient(dy: Any, w: Any) -> Any:
            def forward(x: Any) -> Any:
                return lax.conv_general_dilated(
                    x, w, case.strides, pads, rhs_dilation=case.dilations,
                    dimension_numbers=numbers, feature_group_count=case.groups,
                )  # fmt: skip

            return jax.vjp(forward, x)[1](dy)[0]

        compiled = jax.jit(gradient)
        dy, w = jax.numpy.asarray(arrays.diff_dst), jax.numpy.asarray(arrays.weights)
        return lambda: compiled(dy, w).block_until_ready()

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        return np.asarray(value, np.float32)


class TensorFlow:
    """TensorFlow's raw operators: NXC, two spatial axes, no groups."""

    name = "tensorflow"

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the raw operator."""
        if layout != "NXC" or case.rank != 2 or case.groups > 1:
            return None
        import tensorflow as tf

        dy = tf.constant(last(arrays.diff_dst))
        shape = (case.mb, *case.src, case.ic)
        if case.kind == "resampling":
            if case.algorithm == "nearest":
                return lambda: tf.raw_ops.ResizeNearestNeighborGrad(
                    grads=dy, size=case.src, half_pixel_centers=True
                )
            image = tf.zeros(shape, tf.float32)
            return lambda: tf.raw_ops.ResizeBilinearGrad(
                grads=tf.cast(dy, tf.float32), original_image=image, half_pixel_centers=True
            )
        if case.kind == "deconv" or max(case.dilations) > 1:
            return None
        w = tf.constant(np.ascontiguousarray(np.moveaxis(arrays.weights, (0, 1), (-1, -2))))
        pads = [0, 0, *np.ravel(list(zip(case.pads, case.pads_end, strict=True))), 0, 0]
        return lambda: tf.raw_ops.Conv2DBackpropInput(
            input_sizes=shape, filter=w, out_backprop=dy, strides=[1, *case.strides, 1],
            padding="EXPLICIT", explicit_paddings=pads,
        )  # fmt: skip

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        return np.moveaxis(np.asarray(value, np.float32), -1, 1)


def available() -> dict[str, Provider]:
    """Return the peers that are installed, by name."""
    from benchmarks.onednn import OneDNN, library

    found: dict[str, Provider] = {}
    for module, peers in (
        ("torch", [Torch()]),
        ("jax", [Jax()]),
        ("tensorflow", [TensorFlow()]),
    ):
        if importlib.util.find_spec(module) is not None:
            found.update({peer.name: peer for peer in peers})
    if library() is not None:
        found.update({peer.name: peer for peer in (OneDNN(False), OneDNN(True))})
    return found
