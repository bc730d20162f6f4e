"""oneDNN itself, through its C API (version 3): plain layouts, and weights in its own.

The library is the one that ``GRADOPS_LIBDNNL`` names, else that of the ``onednn-cpu-gomp`` package.
Only the execution is timed, on memory that is ready; with `chosen` all layouts are the library's
choice and the weights are reordered beforehand.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.providers import Array, Arrays, Work

_DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
_FORWARD_TRAINING = 64
_TAG_ANY = 1
_ALGORITHMS = {"conv": 1, "deconv": 0xA, "nearest": 0x2FFF0, "linear": 0x2FFF1}
_QUERY_DIFF_SRC, _QUERY_WEIGHTS, _QUERY_DIFF_DST = 130, 131, 134
_ARG_WEIGHTS, _ARG_DIFF_SRC, _ARG_DIFF_DST, _ARG_FROM, _ARG_TO = 33, 129, 145, 1, 17

_Dims = ctypes.c_int64 * 12


class _Argument(ctypes.Structure):
    _fields_ = (("index", ctypes.c_int), ("memory", ctypes.c_void_p))


@cache
def library() -> Any:
    """Load the shared library, or return None."""
    names = [os.environ.get("GRADOPS_LIBDNNL", "")]
    names.append(str(Path(sys.prefix) / "lib" / "libdnnl.so.3"))
    for name in names:
        if name and Path(name).exists():
            found = ctypes.CDLL(name)
            found.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
            return found
    return None


def version() -> str:
    """Return the library's version."""

    class Version(ctypes.Structure):
        _fields_ = (("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int))

    function = library().dnnl_version
    function.restype = ctypes.POINTER(Version)
    found = function().contents
    return f"{found.major}.{found.minor}.{found.patch}"


class _Unsupported(Exception):
    pass


def _call(name: str, *arguments: Any) -> None:
    if getattr(library(), name)(*arguments):
        raise _Unsupported(name)


def _create(name: str, *arguments: Any) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *arguments)
    return made


def _dims(values: Sequence[int]) -> Any:
    return _Dims(*values)


class _Session:
    """An engine and a stream, and what is made with them."""

    def __init__(self) -> None:
        self.engine = _create("dnnl_engine_create", 1, ctypes.c_size_t(0))
        self.stream = _create("dnnl_stream_create", self.engine, 1)

    def strided(self, array: Array, dims: Sequence[int], order: Sequence[int]) -> ctypes.c_void_p:
        """Describe `array`, whose axes in memory are dims[order]."""
        strides, step = [0] * len(dims), 1
        for axis in reversed(order):
            strides[axis], step = step, step * dims[axis]
        return _create(
            "dnnl_memory_desc_create_with_strides",
            len(dims), _dims(dims), _DTYPES[array.dtype.name], _dims(strides),
        )  # fmt: skip

    def any(self, array: Array, dims: Sequence[int]) -> ctypes.c_void_p:
        """Describe a tensor whose layout the library chooses."""
        return _create(
            "dnnl_memory_desc_create_with_tag",
            len(dims), _dims(dims), _DTYPES[array.dtype.name], _TAG_ANY,
        )  # fmt: skip

    def memory(self, descriptor: Any, data: int) -> ctypes.c_void_p:
        """Wrap memory; -1 lets the library allocate it."""
        return _create("dnnl_memory_create", descriptor, self.engine, ctypes.c_void_p(data))

    def primitive(self, descriptor: ctypes.c_void_p, memories: dict[int, Any]) -> Work:
        """Return the execution of a primitive."""
        made = _create("dnnl_primitive_create", descriptor)
        arguments = (_Argument * len(memories))(
            *(_Argument(index, memory.value) for index, memory in memories.items())
        )

        def execute() -> None:
            _call("dnnl_primitive_execute", made, self.stream, len(memories), arguments)
            _call("dnnl_stream_wait", self.stream)

        return execute

    def reorder(self, a: ctypes.c_void_p, md_a: Any, b: ctypes.c_void_p, md_b: Any) -> Work:
        """Return the copy of one memory to another in its layout."""
        descriptor = _create(
            "dnnl_reorder_primitive_desc_create", md_a, self.engine, md_b, self.engine, None
        )
        return self.primitive(descriptor, {_ARG_FROM: a, _ARG_TO: b})


class OneDNN:
    """The primitive behind the operator."""

    def __init__(self, chosen: bool) -> None:
        self.chosen = chosen
        self.name = "onednn any" if chosen else "onednn"

    def prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work | None:
        """Return the execution, then the result's array."""
        if self.chosen and layout == "NXC":
            return None  # any layout is any layout: once is enough
        try:
            return self._prepare(case, arrays, layout, threads)
        except _Unsupported:
            return None

    def _prepare(self, case: Case, arrays: Arrays, layout: str, threads: int) -> Work:
        openmp = ctypes.CDLL("libgomp.so.1")
        openmp.omp_set_num_threads(threads)
        session = _Session()
        rank = case.rank
        plain = tuple(range(rank + 2))
        order = (0, *range(2, rank + 2), 1) if layout == "NXC" else plain
        dy = np.ascontiguousarray(arrays.diff_dst.transpose(order))
        dst_dims = arrays.diff_dst.shape
        src_dims = (case.mb, case.ic, *case.src)
        out = np.empty([src_dims[axis] for axis in order], dy.dtype)
        describe_dst = session.strided(dy, dst_dims, order)
        describe_src = session.strided(out, src_dims, order)
        use_dst, use_src = describe_dst, describe_src
        if self.chosen:
            use_dst, use_src = session.any(dy, dst_dims), session.any(out, src_dims)
        memories: dict[int, Any] = {}
        if case.kind == "resampling":
            algorithm = _ALGORITHMS[case.algorithm]
            factors = (ctypes.c_float * rank)(
                *(o / i for i, o in zip(case.src, case.dst, strict=True))
            )
            hint = _create(
                "dnnl_resampling_forward_primitive_desc_create",
                session.engine, _FORWARD_TRAINING, algorithm, factors, use_src, describe_dst, None,
            )  # fmt: skip
            descriptor = _create(
                "dnnl_resampling_backward_primitive_desc_create",
                session.engine, algorithm, factors, use_src, use_dst, hint, None,
            )  # fmt: skip
        else:
            weights, dims, axes = self._weights(case, arrays, layout)
            describe_weights = session.strided(weights, dims, axes)
            use_weights = session.any(weights, dims) if self.chosen else describe_weights
            shapes = (
                _dims(case.strides),
                _dims([d - 1 for d in case.dilations]),
                _dims(case.pads),
                _dims(case.pads_end),
            )
            name = "convolution" if case.kind == "conv" else "deconvolution"
            hint = _create(
                f"dnnl_{name}_forward_primitive_desc_create",
                session.engine, _FORWARD_TRAINING, _ALGORITHMS[case.kind], use_src, use_weights,
                None, use_dst, *shapes, None,
            )  # fmt: skip
            descriptor = _create(
                f"dnnl_{name}_backward_data_primitive_desc_create",
                session.engine, _ALGORITHMS[case.kind], use_src, use_weights, use_dst, *shapes,
                hint, None,
            )  # fmt: skip
            memories[_ARG_WEIGHTS] = self._ready(
                session, descriptor, _QUERY_WEIGHTS, weights, describe_weights
            )
        memories[_ARG_DIFF_DST] = self._ready(
            session, descriptor, _QUERY_DIFF_DST, dy, describe_dst
        )
        target = session.memory(describe_src, out.ctypes.data)
        md = ctypes.c_void_p(library().dnnl_primitive_desc_query_md(descriptor, _QUERY_DIFF_SRC, 0))
        memories[_ARG_DIFF_SRC] = session.memory(md, -1) if self.chosen else target
        execute = session.primitive(descriptor, memories)
        inverse = np.argsort(order)
        if self.chosen:  # bring the result to where it can be checked, once
            execute()
            session.reorder(memories[_ARG_DIFF_SRC], md, target, describe_src)()

        def work() -> Array:
            execute()
            return out.transpose(inverse)

        # The arrays must outlive the memories that point into them.
        work.arrays = (dy, out, memories)  # type: ignore[attr-defined]
        if case.kind != "resampling":
            work.weights = weights  # type: ignore[attr-defined]
        return work

    def _ready(
        self, session: _Session, descriptor: Any, query: int, array: Array, plain: Any
    ) -> ctypes.c_void_p:
        """Return an input in the layout that the primitive wants."""
        given = session.memory(plain, array.ctypes.data)
        if not self.chosen:
            return given
        md = ctypes.c_void_p(library().dnnl_primitive_desc_query_md(descriptor, query, 0))
        wanted = session.memory(md, -1)
        session.reorder(given, plain, wanted, md)()
        return wanted

    def _weights(
        self, case: Case, arrays: Arrays, layout: str
    ) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
        """Return weights as stored, their logical extents and the order of axes in memory."""
        w = arrays.weights
        stored = np.moveaxis(w, (0, 1), (-1, -2)) if layout == "NXC" else w
        stored = np.ascontiguousarray(stored)
        space = tuple(range(2, case.rank + 2))
        # Logical (O, I, *K); deconvolution's weights are stored as (I, O, *K).
        if case.kind == "conv":
            dims: tuple[int, ...] = w.shape
            order = (*space, 1, 0) if layout == "NXC" else (0, 1, *space)
        else:
            dims = (w.shape[1], w.shape[0], *w.shape[2:])
            order = (*space, 0, 1) if layout == "NXC" else (1, 0, *space)
        if case.groups == 1:
            return stored, dims, order
        # Logical (g, O/g, I/g, *K): the group is the outer part of the axis that is stored whole.
        outer = 0 if case.kind == "conv" else 1
        split = list(dims)
        split[outer] //= case.groups
        position = order.index(outer)
        grouped = [axis + 1 for axis in order]
        grouped.insert(position, 0)
        return stored, (case.groups, *split), tuple(grouped)

    def result(self, value: Any, layout: str) -> Array:
        """Return the result in float32."""
        return np.asarray(value, np.float32)
