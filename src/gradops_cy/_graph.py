"""Reading a serialised oneDNN Graph: operators and the tensors that chain them.

The format is what ``ONEDNN_GRAPH_DUMP`` writes and what benchdnn's graph driver reads; the two
rewriting languages, ``--in-shapes`` and ``--op-attrs``, are benchdnn's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

DTYPES = ("f32", "f16", "bf16", "s32")


class GraphError(Exception):
    """What is wrong with a graph or with an argument about it, in one line."""


@dataclass(frozen=True)
class LogicalTensor:
    """A tensor of the graph; strides in elements, None for dense in row-major order.

    A shape of None is one that only executing can tell.
    """

    id: int
    dtype: str
    shape: tuple[int, ...] | None
    strides: tuple[int, ...] | None

    @property
    def span(self) -> int:
        """Elements from the first to the last, both included."""
        shape, strides = self.shape or (), self.strides or dense_strides(self.shape or ())
        if 0 in shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


@dataclass
class Op:
    """One operator: attributes as plain values, tensors by id."""

    id: int
    name: str
    kind: str
    attributes: dict[str, Any]
    inputs: list[int]
    outputs: list[int]

    def __str__(self) -> str:
        """Name the operator in a message."""
        return f"op {self.id} ({self.name or self.kind})"


@dataclass
class Graph:
    """Operators in an order in which they can run, and all tensors by id."""

    ops: list[Op]
    tensors: dict[int, LogicalTensor]

    @property
    def produced(self) -> set[int]:
        """The tensors that an operator writes."""
        return {tensor for op in self.ops for tensor in op.outputs}

    @property
    def boundary(self) -> set[int]:
        """The tensors that the graph reads from outside or leaves behind."""
        read = {tensor for op in self.ops for tensor in op.inputs}
        return (read - self.produced) | (self.produced - read)


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the row-major strides of a shape, in elements."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


# -- reading -----------------------------------------------------------------------------------


def _get(record: Any, key: str, kind: type | tuple[type, ...], where: str) -> Any:
    if not isinstance(record, dict):
        raise GraphError(f"{where}: must be an object, got {type(record).__name__}")
    if key not in record:
        raise GraphError(f"{where}: key {key!r} is missing")
    value = record[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise GraphError(f"{where}: key {key!r} has the wrong type {type(value).__name__}")
    return value


def _integers(record: Any, key: str, where: str) -> tuple[int, ...]:
    values = _get(record, key, list, where)
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise GraphError(f"{where}: key {key!r} must be a list of integers, got {values}")
    return tuple(values)


def _read_tensor(record: Any, where: str) -> LogicalTensor:
    number = _get(record, "id", int, where)
    where = f"{where} tensor {number}"
    dtype = _get(record, "dtype", str, where)
    if dtype not in DTYPES:
        raise GraphError(f"{where}: dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    shape: tuple[int, ...] | None = _integers(record, "shape", where)
    strides: tuple[int, ...] | None = None
    if record.get("stride"):
        strides = _integers(record, "stride", where)
    if shape is None or any(extent < 0 for extent in shape):
        return LogicalTensor(number, dtype, None, None)
    if strides is not None and any(stride < 0 for stride in strides):
        strides = None  # unknown strides of a tensor that was never compiled
    tensor = LogicalTensor(number, dtype, shape, strides)
    check_strides(tensor, where)
    return tensor


def check_strides(tensor: LogicalTensor, where: str) -> None:
    """Raise unless every element has a place of its own."""
    if tensor.shape is None or tensor.strides is None:
        return
    if len(tensor.strides) != len(tensor.shape):
        raise GraphError(
            f"{where}: stride must have {len(tensor.shape)} elements, got {len(tensor.strides)}"
        )
    reach = 1
    pairs = zip(tensor.strides, tensor.shape, strict=True)
    for stride, extent in sorted(pair for pair in pairs if pair[1] > 1):
        if stride < reach:
            raise GraphError(
                f"{where}: stride {list(tensor.strides)} puts two elements of shape "
                f"{list(tensor.shape)} in one place"
            )
        reach = stride * (extent - 1) + reach


def _read_attributes(record: Any, where: str) -> dict[str, Any]:
    attributes = {}
    for name, entry in record.items():
        if not isinstance(entry, dict) or "value" not in entry:
            raise GraphError(f"{where}: attribute {name!r} must have a type and a value")
        attributes[name] = entry["value"]
    return attributes


def _read_op(record: Any, position: int, tensors: dict[int, LogicalTensor]) -> Op:
    where = f"graph[{position}]"
    number = _get(record, "id", int, where)
    kind = _get(record, "kind", str, where)
    where = f"op {number} ({kind})"
    name = record.get("name", "")
    attributes = _read_attributes(_get(record, "attrs", dict, where), where)
    ends: dict[str, list[int]] = {}
    for side in ("inputs", "outputs"):
        ends[side] = []
        for entry in _get(record, side, list, where):
            tensor = _read_tensor(entry, where)
            known = tensors.setdefault(tensor.id, tensor)
            if known.shape is None and tensor.shape is not None:
                tensors[tensor.id] = known = tensor
            if tensor.dtype != known.dtype or (
                tensor.shape is not None and tensor.shape != known.shape
            ):
                raise GraphError(f"{where}: tensor {tensor.id} is described in two ways")
            ends[side].append(tensor.id)
    return Op(number, name if isinstance(name, str) else "", kind, attributes, **ends)


def load(path: str | Path) -> Graph:
    """Read a graph, its operators in an order in which they can run."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise GraphError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise GraphError(f"{path}: not a text file") from None
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise GraphError(f"{path}: not JSON: {error}") from None
    tensors: dict[int, LogicalTensor] = {}
    records = _get(document, "graph", list, str(path))
    if not records:
        raise GraphError(f"{path}: the graph has no operators")
    ops = [_read_op(record, i, tensors) for i, record in enumerate(records)]
    return Graph(_in_order(ops), tensors)


def _in_order(ops: list[Op]) -> list[Op]:
    """Sort operators so that each comes after those whose results it reads."""
    producers: dict[int, Op] = {}
    for op in ops:
        for tensor in op.outputs:
            if tensor in producers:
                raise GraphError(f"{op}: tensor {tensor} is also written by {producers[tensor]}")
            producers[tensor] = op
    ordered: list[Op] = []
    waiting = list(ops)
    while waiting:
        written = {tensor for op in ordered for tensor in op.outputs}
        ready = [op for op in waiting if all(t in written for t in op.inputs if t in producers)]
        if not ready:
            raise GraphError(f"{waiting[0]}: the graph has a cycle")
        ordered += ready
        waiting = [op for op in waiting if op not in ready]
    return ordered


# -- rewriting ---------------------------------------------------------------------------------


def _numbers(text: str, where: str) -> tuple[int, ...]:
    try:
        values = tuple(int(part) for part in text.split("x"))
    except ValueError:
        raise GraphError(f"{where}: must be integers joined by x, got {text!r}") from None
    if any(value < 0 for value in values):
        raise GraphError(f"{where}: must not be negative, got {text!r}")
    return values


def _tag_strides(tag: str, shape: tuple[int, ...], where: str) -> tuple[int, ...]:
    """Return the strides of a physical order of axes such as acdb."""
    if sorted(tag) != [chr(ord("a") + i) for i in range(len(shape))]:
        raise GraphError(f"{where}: tag must permute the {len(shape)} axes, got {tag!r}")
    strides, step = [0] * len(shape), 1
    for letter in reversed(tag):
        axis = ord(letter) - ord("a")
        strides[axis], step = step, step * shape[axis]
    return tuple(strides)


def _without_results(graph: Graph) -> dict[int, LogicalTensor]:
    """Return the tensors, the shapes of what the operators write forgotten."""
    return {
        number: replace(tensor, shape=None, strides=None) if number in graph.produced else tensor
        for number, tensor in graph.tensors.items()
    }


def rewrite_shapes(graph: Graph, rewrite: str) -> Graph:
    """Return the graph with tensors as one ``--in-shapes`` alternative says.

    ``ID:SHAPE``, ``ID:*TAG``, ``ID:*STRIDES``, ``ID:SHAPE*TAG`` or ``ID:SHAPE*STRIDES``, joined
    with ``+``. What the operators write is inferred anew, unless it is named as well.
    """
    if not rewrite:
        return graph
    tensors = _without_results(graph)
    for entry in rewrite.split("+"):
        where = f"--in-shapes {entry!r}"
        number, colon, value = entry.partition(":")
        if not colon or not number.isdigit():
            raise GraphError(f"{where}: must have the form ID:SHAPE*LAYOUT")
        if int(number) not in graph.boundary:
            raise GraphError(f"{where}: {number} is no input or output of the graph")
        tensor = tensors[int(number)]
        text, star, layout = value.partition("*")
        shape = _numbers(text, where) if text and text != "-" else tensor.shape
        if shape is None:
            shape = graph.tensors[int(number)].shape
        if shape is None:
            raise GraphError(f"{where}: the tensor has no shape to keep")
        strides: tuple[int, ...] | None = None
        if star:
            digits = layout.replace("x", "").isdigit()
            strides = _numbers(layout, where) if digits else _tag_strides(layout, shape, where)
        tensor = replace(tensor, shape=shape, strides=strides)
        check_strides(tensor, where)
        tensors[int(number)] = tensor
    return Graph(graph.ops, tensors)


# How the values of attributes are written; other attributes are strings.
_INTEGER_LISTS = {
    "strides",
    "pads_begin",
    "pads_end",
    "dilations",
    "output_padding",
    "dst_shape",
    "sizes",
}


def rewrite_attributes(graph: Graph, rewrite: str) -> Graph:
    """Return the graph with attributes as one ``--op-attrs`` alternative says.

    ``OP_ID:NAME:VALUE``, further ``*NAME:VALUE`` of the same operator, operators joined with
    ``+``; the value ``undef`` removes an attribute. Shapes of results are inferred anew.
    """
    if not rewrite:
        return graph
    ops = {op.id: replace(op, attributes=dict(op.attributes)) for op in graph.ops}
    for entry in rewrite.split("+"):
        where = f"--op-attrs {entry!r}"
        number, colon, settings = entry.partition(":")
        if not colon or not number.isdigit():
            raise GraphError(f"{where}: must have the form OP_ID:NAME:VALUE*NAME:VALUE")
        if int(number) not in ops:
            raise GraphError(f"{where}: the graph has no op {number}")
        attributes = ops[int(number)].attributes
        for setting in settings.split("*"):
            name, colon, value = setting.partition(":")
            if not colon or not name:
                raise GraphError(f"{where}: must have the form OP_ID:NAME:VALUE*NAME:VALUE")
            if value == "undef":
                attributes.pop(name, None)
            elif name in _INTEGER_LISTS:
                attributes[name] = list(_numbers(value, where))
            elif name == "scales":
                try:
                    attributes[name] = [float(part) for part in value.split("x")]
                except ValueError:
                    raise GraphError(f"{where}: scales must be numbers joined by x") from None
            elif name == "groups":
                attributes[name] = _numbers(value, where)[0]
            else:
                attributes[name] = value
    return Graph([ops[op.id] for op in graph.ops], _without_results(graph))
