"""What both convolution operators read from a call, and how they compute the result."""

from __future__ import annotations

import numpy as np

from gradops_cy import _arrays, _attributes, _convolution_plan, _threads
from gradops_cy._arrays import Array
from gradops_cy._convolution_problem import ConvProblem, Triple

_AUTO_PAD = ("none", "valid", "same_upper", "same_lower")
_AUTO_PAD_RULES = ("forward", "page")


class ConvCall:
    """The attributes of one call, read and checked, and the steps that both operators share."""

    def __init__(
        self,
        op: str,
        diff_dst: Array,
        weights: Array,
        *,
        strides: object,
        pads_begin: object,
        pads_end: object,
        dilations: object,
        auto_pad: object,
        auto_pad_rule: object,
        output_padding: object,
        groups: object,
        data_format: object,
    ) -> None:
        self.op = op
        self.diff_dst = _arrays.check_array(op, "diff_dst", diff_dst)
        self.weights = _arrays.check_array(op, "weights", weights)
        _arrays.check_rank(op, "diff_dst", diff_dst.ndim)
        _arrays.same_dtype(op, "weights", weights.dtype, diff_dst.dtype)
        if weights.ndim != diff_dst.ndim:
            raise ValueError(
                f"{op}: weights must have {diff_dst.ndim} axes like diff_dst, got {weights.ndim}"
            )
        self.format = _arrays.data_format(op, data_format, diff_dst.ndim)
        self.dst = _arrays.extents(diff_dst.shape, self.format)
        self.rank = len(self.dst.spatial)
        if 0 in weights.shape:
            raise ValueError(f"{op}: weights must have no zero extent, got shape {weights.shape}")
        if 0 in self.dst.spatial or self.dst.channels == 0:
            raise ValueError(
                f"{op}: diff_dst must have no zero extent but the batch's, got shape "
                f"{diff_dst.shape}"
            )
        axes = self.rank
        self.strides = _attributes.integers(op, "strides", strides, axes, minimum=1)
        self.dilations = _attributes.integers(op, "dilations", dilations, axes, minimum=1)
        self.pads_begin = _attributes.integers(op, "pads_begin", pads_begin, axes, minimum=0)
        self.pads_end = _attributes.integers(op, "pads_end", pads_end, axes, minimum=0)
        self.auto_pad = (
            "none" if auto_pad is None else _attributes.choice(op, "auto_pad", auto_pad, _AUTO_PAD)
        )
        self.auto_pad_rule = _attributes.choice(op, "auto_pad_rule", auto_pad_rule, _AUTO_PAD_RULES)
        self.output_padding = self._read_output_padding(output_padding)
        self.groups = _attributes.integer(op, "groups", groups, minimum=1)

    def _read_output_padding(self, value: object) -> tuple[int, ...]:
        if value is None:
            return (0,) * self.rank
        if _attributes.as_integer(value) is None:
            # oneDNN's own graphs carry twelve zeros for "none".
            values = _attributes.items(
                self.op, "output_padding", value, "an integer or a list of integers"
            )
            if all(_attributes.as_integer(v) == 0 for v in values):
                return (0,) * self.rank
        return _attributes.integers(self.op, "output_padding", value, self.rank, minimum=0)

    def effective_kernel(self, kernel: tuple[int, ...]) -> tuple[int, ...]:
        """Return the extents that the dilated kernel spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(kernel, self.dilations, strict=True))

    def resolve_pads(self, totals: tuple[int, ...]) -> None:
        """Replace the pads as auto_pad says; `totals` are those of the ``same_*`` rules."""
        if self.auto_pad == "valid":
            self.pads_begin = self.pads_end = (0,) * self.rank
        elif self.auto_pad != "none":
            small = tuple(total // 2 for total in totals)
            large = tuple(total - total // 2 for total in totals)
            odd_at_end = (self.auto_pad == "same_upper") == (self.auto_pad_rule == "forward")
            self.pads_begin, self.pads_end = (small, large) if odd_at_end else (large, small)

    def run(
        self,
        weights: Array,
        diff_src: _arrays.Extents,
        out: Array | None,
        accumulate: object,
        num_threads: int | None,
        *,
        transposed: bool,
    ) -> Array:
        """Compute the result from weights viewed as (groups, O, I, spatial...)."""
        op = self.op
        threads = _threads.resolve(op, num_threads)
        add = _attributes.flag(op, "accumulate", accumulate)
        dtype = self.diff_dst.dtype.newbyteorder("=")
        result = _arrays.result_array(
            op,
            out,
            _arrays.shape_of(diff_src, self.format),
            dtype,
            accumulate=add,
            inputs={"diff_dst": self.diff_dst, "weights": self.weights},
        )
        if diff_src.batch == 0:
            return result
        problem = ConvProblem(
            transposed=transposed,
            dtype=_arrays.DTYPE_CODES[dtype],
            batch=diff_src.batch,
            groups=self.groups,
            diff_src_channels=diff_src.channels,
            diff_dst_channels=self.dst.channels,
            diff_src=_triple(diff_src.spatial),
            diff_dst=_triple(self.dst.spatial),
            kernel=_triple(weights.shape[3:]),
            strides=_triple(self.strides),
            dilations=_triple(self.dilations),
            pads_begin=_triple(self.pads_begin, 0),
            rank=self.rank,
        )
        missing = (np.newaxis,) * (3 - self.rank)
        _convolution_plan.execute(
            problem,
            _arrays.canonical(_arrays.native(self.diff_dst), self.format),
            _arrays.native(weights)[(slice(None),) * 3 + missing],
            _arrays.canonical(result, self.format),
            accumulate=add,
            num_threads=threads,
        )
        return result


def _triple(values: tuple[int, ...], fill: int = 1) -> Triple:
    """Put 1 to 3 spatial values at the end of three."""
    a, b, c = (fill,) * (3 - len(values)) + tuple(values)
    return a, b, c


def split_axis(array: Array, axis: int, groups: int) -> Array:
    """Split one axis in two, the group first: always a view."""
    stride, extent = array.strides[axis], array.shape[axis]
    return np.lib.stride_tricks.as_strided(
        array,
        (*array.shape[:axis], groups, extent // groups, *array.shape[axis + 1 :]),
        (*array.strides[:axis], stride * (extent // groups), stride, *array.strides[axis + 1 :]),
        writeable=False,
    )
