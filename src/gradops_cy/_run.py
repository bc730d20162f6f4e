"""Executing a oneDNN Graph with this package: arrays, operators, timing and the check."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

from gradops_cy import _isa, _machine, _reference, convolution, interpolation
from gradops_cy._graph import Graph, GraphError, LogicalTensor, Op, dense_strides

Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "s32": np.dtype(np.int32),
}

CONVOLUTIONS = ("ConvolutionBackwardData", "ConvTransposeBackwardData")
INTERPOLATIONS = ("InterpolateBackward", "InterpolateBackprop")

_SHARED = ("strides", "pads_begin", "pads_end", "dilations", "auto_pad", "output_padding",
           "groups", "data_format", "weights_format")  # fmt: skip
_ATTRIBUTES = {
    "ConvolutionBackwardData": (*_SHARED, "dst_shape"),
    "ConvTransposeBackwardData": _SHARED,
    "InterpolateBackward": (
        "mode", "coordinate_transformation_mode", "sizes", "scales", "data_format"
    ),
}  # fmt: skip
_ATTRIBUTES["InterpolateBackprop"] = _ATTRIBUTES["InterpolateBackward"]
# Lists whose zeros, or whose emptiness, mean "not given" in serialised graphs.
_OPTIONAL_LISTS = ("dst_shape", "output_padding", "sizes", "scales")


@dataclass(frozen=True)
class Report:
    """One operator's line in the table."""

    op: Op
    shapes: str
    seconds: float
    rate: str
    share: float
    error: float | None = None  # of what is allowed; None without --check


def attributes_of(op: Op) -> dict[str, Any]:
    """Return the attributes that the operator knows and that are given."""
    result = {}
    for name in _ATTRIBUTES[op.kind]:
        value = op.attributes.get(name)
        empty = name in _OPTIONAL_LISTS and isinstance(value, list) and not any(value)
        if value is not None and not empty:
            result[name] = value
    return result


def strided_array(tensor: LogicalTensor) -> Array:
    """Return an array of zeros with the tensor's shape, dtype and strides."""
    assert tensor.shape is not None
    dtype = NUMPY_DTYPES[tensor.dtype]
    strides = tensor.strides or dense_strides(tensor.shape)
    try:
        storage = np.zeros(max(tensor.span, 1), dtype)
        return np.lib.stride_tricks.as_strided(
            storage, tensor.shape, [stride * dtype.itemsize for stride in strides]
        )
    except (MemoryError, ValueError, OverflowError):
        raise GraphError(
            f"tensor {tensor.id}: shape {list(tensor.shape)} does not fit into memory"
        ) from None


def _from_file(tensor: LogicalTensor, value: Array) -> Array:
    """Return a tensor's values from an .npz entry: bfloat16 as its bits, uint16 or two bytes."""
    dtype = NUMPY_DTYPES[tensor.dtype]
    if tensor.dtype == "bf16" and value.dtype in (np.dtype(np.uint16), np.dtype("V2")):
        value = value.view(dtype)
    if value.dtype != dtype:
        raise GraphError(
            f"tensor {tensor.id}: the given array must have dtype {dtype}, got {value.dtype}"
        )
    if value.shape != tensor.shape:
        raise GraphError(
            f"tensor {tensor.id}: the given array must have shape {list(tensor.shape or ())}, "
            f"got {list(value.shape)}"
        )
    return value


class Runner:
    """Runs a graph's operators in order, on given or random inputs."""

    def __init__(
        self,
        graph: Graph,
        given: Mapping[str, Array],
        *,
        seed: int,
        repeat: int,
        num_threads: int,
        check: bool,
    ) -> None:
        self.graph = graph
        self.given = given
        self.seed = seed
        self.repeat = repeat
        self.num_threads = num_threads
        self.check = check
        self.values: dict[int, Array] = {}

    def run(self) -> list[Report]:
        """Execute every operator and return what became of each."""
        for op in self.graph.ops:
            if op.kind not in _ATTRIBUTES:
                raise GraphError(f"{op}: operator {op.kind!r} is not supported")
            most = 2 if op.kind == "ConvTransposeBackwardData" else 3
            if not 2 <= len(op.inputs) <= most or len(op.outputs) != 1:
                raise GraphError(
                    f"{op}: must have 2{' or 3' if most == 3 else ''} inputs and 1 output, got "
                    f"{len(op.inputs)} and {len(op.outputs)}"
                )
        reports = [self._guarded(self._run_op, op) for op in self.graph.ops]
        if self.check:
            # After all timing: the references' matrix products leave threads that spin.
            for i, op in enumerate(self.graph.ops):
                reports[i] = replace(reports[i], error=self._guarded(self._error, op))
        return reports

    @staticmethod
    def _guarded(step: Callable[[Op], T], op: Op) -> T:
        """Do a step for an operator; what goes wrong with it becomes one line that names it."""
        try:
            return step(op)
        except (TypeError, ValueError) as error:
            raise GraphError(f"{op}: {error}") from None
        except KeyError as error:
            raise GraphError(f"{op}: attribute {error} is missing") from None
        except MemoryError:
            raise GraphError(f"{op}: the result does not fit into memory") from None

    def _value(self, op: Op, position: int) -> Array:
        """Return an input of an operator, making it where the graph does not."""
        number = op.inputs[position]
        if number in self.values:
            return self.values[number]
        tensor = self.graph.tensors[number]
        given = self.given.get(str(number))
        integers = tensor.dtype == "s32"
        if integers != (position == 2):
            raise GraphError(f"{op}: input {position} (tensor {number}) has dtype {tensor.dtype}")
        if given is None and integers:
            value = self._extents(op)
        elif tensor.shape is None:
            raise GraphError(f"{op}: tensor {number} has no shape")
        else:
            value = strided_array(tensor)
            if given is None:
                rng = np.random.default_rng([self.seed, number])
                value[...] = rng.standard_normal(tensor.shape, np.float32).astype(value.dtype)
            else:
                value[...] = _from_file(tensor, given)
        self.values[number] = value
        return value

    def _extents(self, op: Op) -> Array:
        """Return what a third input holds when nobody gives it: what the graph's shapes say."""
        if op.kind in INTERPOLATIONS:
            shape = self._value(op, 1).shape
            spatial = shape[2:] if op.attributes.get("data_format") == "NCX" else shape[1:-1]
            return np.array(spatial, np.int32)
        shape = self.graph.tensors[op.outputs[0]].shape or ()
        if not shape:
            raise GraphError(f"{op}: tensor {op.inputs[2]} (dst_shape) must be given")
        return np.array(shape, np.int32)

    def _run_op(self, op: Op) -> Report:
        attributes = attributes_of(op)
        first, second = self._value(op, 0), self._value(op, 1)
        extents = self._value(op, 2) if len(op.inputs) == 3 else None
        tensor = self.graph.tensors[op.outputs[0]]
        call = _call(op, first, second, extents, attributes, self.num_threads)
        result = call(None)
        if tensor.shape is None:
            tensor = replace(tensor, shape=result.shape)
        elif tensor.shape != result.shape:
            raise GraphError(
                f"{op}: tensor {tensor.id} must have shape {list(result.shape)}, "
                f"got {list(tensor.shape)}"
            )
        if NUMPY_DTYPES[tensor.dtype] != result.dtype:
            raise GraphError(
                f"{op}: tensor {tensor.id} must have dtype {result.dtype}, got {tensor.dtype}"
            )
        out = strided_array(tensor)
        seconds = []
        for _ in range(self.repeat):
            start = time.perf_counter()
            call(out)
            seconds.append(time.perf_counter() - start)
        self.values[tensor.id] = out
        median = statistics.median(seconds)
        rate, share = _rate(op, first, second, out, attributes, median, self.num_threads)
        shapes = " ".join("x".join(map(str, a.shape)) for a in (first, second))
        shapes += " -> " + "x".join(map(str, out.shape))
        return Report(op, shapes, median, rate, share)

    def _error(self, op: Op) -> float:
        """Return the largest error as a share of what rounding and summing may cost."""
        arguments = [self.values[number] for number in op.inputs]
        result = self.values[op.outputs[0]]
        exact, magnitude = _exact(op, attributes_of(op), *arguments)
        info = ml_dtypes.finfo(result.dtype)  # type: ignore[no-untyped-call]
        accumulator = float(np.finfo(np.float32).eps)
        allowed = 4 * float(info.eps) * np.abs(exact) + 8 * accumulator * magnitude
        allowed = allowed + float(info.smallest_subnormal)
        error = np.abs(result.astype(np.float64) - exact) / allowed
        return float(np.max(error, initial=0.0))


def _call(
    op: Op,
    first: Array,
    second: Array,
    extents: Array | None,
    attributes: dict[str, Any],
    num_threads: int,
) -> Callable[[Array | None], Array]:
    """Return the operator as a function of ``out``; the third input wins over its attribute."""
    operators: dict[str, Callable[..., Array]] = {
        "ConvolutionBackwardData": convolution.convolution_backward_data,
        "ConvTransposeBackwardData": convolution.conv_transpose_backward_data,
        "InterpolateBackward": interpolation.interpolate_backward,
        "InterpolateBackprop": interpolation.interpolate_backprop,
    }
    function = operators[op.kind]
    keywords = dict(attributes)
    if extents is not None:
        keywords["dst_shape" if op.kind in CONVOLUTIONS else "sizes"] = extents

    def call(out: Array | None) -> Array:
        return function(first, second, **keywords, out=out, num_threads=num_threads)

    return call


def _exact(
    op: Op, attributes: dict[str, Any], first: Array, second: Array, extents: Array | None = None
) -> tuple[Array, Array]:
    if op.kind in INTERPOLATIONS:
        return _reference.interpolate_backward(first.shape, second, attributes)
    if op.kind == "ConvTransposeBackwardData":
        return _reference.conv_transpose_backward_data(first, second, attributes)
    shape = attributes.get("dst_shape") if extents is None else extents.tolist()
    return _reference.convolution_backward_data(first, second, attributes, shape)


@cache
def _peak(dtype: str, num_threads: int) -> float:
    if dtype == "copy":
        return _machine.copy_bandwidth(num_threads)
    return _machine.peak_gflops(dtype, num_threads)


def _rate(
    op: Op,
    first: Array,
    second: Array,
    out: Array,
    attributes: dict[str, Any],
    seconds: float,
    num_threads: int,
) -> tuple[str, float]:
    """Return GFLOP/s (products with padding counted) or GB/s, and the share of the peak."""
    if op.kind in INTERPOLATIONS:
        amount = (second.nbytes + out.nbytes) / seconds / 1e9
        return f"{amount:.1f} GB/s", amount / _peak("copy", num_threads)
    small = first if op.kind == "ConvolutionBackwardData" else out
    other = out if small is first else first
    last = attributes.get("data_format", "NXC") == "NXC"
    channels = other.shape[-1 if last else 1]
    formats = attributes.get("weights_format", "XIO")
    kernel = second.shape[:-2] if formats.startswith("X") else second.shape[2:]
    operations = 2 * small.size * channels // int(attributes.get("groups", 1)) * prod(kernel)
    amount = operations / seconds / 1e9
    dtype = next(name for name, value in NUMPY_DTYPES.items() if value == out.dtype)
    return f"{amount:.1f} GFLOP/s", amount / _peak(dtype, num_threads)


def table(reports: list[Report]) -> str:
    """Lay the reports out as text."""
    head = ["op", "shapes", "kernels", "time", "rate", "of peak"]
    checked = any(report.error is not None for report in reports)
    rows = [head + ["error / allowed"] * checked]
    for report in reports:
        row = [report.op.name or report.op.kind, report.shapes, _isa.TIER]
        row += [f"{report.seconds * 1e3:.3f} ms", report.rate, f"{report.share:.0%}"]
        if report.error is not None:
            row.append(f"{report.error:.2g}{'' if report.error <= 1 else '  WRONG'}")
        rows.append(row)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
