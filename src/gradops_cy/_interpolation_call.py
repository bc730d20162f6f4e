"""What the interpolation operators read from a call, and how they compute the result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np

from gradops_cy import _arrays, _attributes, _resampling_plan, _threads
from gradops_cy._arrays import Array, Extents
from gradops_cy._resampling_plan import ResamplePlan
from gradops_cy._resampling_problem import Coordinates, Innermost, Mode, ResampleProblem

COORDINATES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
MODES: dict[str, Mode] = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "cubic": "cubic",
    "bicubic": "cubic",
}
# What the definitions allow, of which the rest is an extension.
PAGE_MODES = ("nearest", "linear", "bilinear", "trilinear")

# Forms that are remembered, and the bytes of tables that these keep altogether: the table of a long
# axis takes as long to make as its use. Plans that the caller holds keep theirs.
_REMEMBERED = 32
_KEPT_BYTES = 1 << 25

_INTEGER = frozenset((int,))
_SCALARS = frozenset((type(None), bool, int, float, str))


class Source(NamedTuple):
    """The forward input: its name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Gradient(NamedTuple):
    """The gradient of the forward output: its name, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class InterpolationAttributes(NamedTuple):
    """The attributes of the Interpolate operators, as given."""

    sizes: object
    mode: object
    coordinate_transformation_mode: object
    scales: object
    data_format: object
    coordinate_scales: object
    antialias: object = False
    cubic_coeff_a: object = -0.75


class ResizeAttributes(NamedTuple):
    """The attributes of ResizeBilinearV2Grad, as given."""

    align_corners: object
    half_pixel_centers: object
    scales: object
    data_format: object


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A call whose attributes, shapes and dtypes passed their checks.

    `plans` holds what was planned for it so far, by the axis along which diff_dst runs.
    """

    data_format: str
    diff_dst_shape: tuple[int, ...]
    diff_src_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    problem: ResampleProblem
    plans: dict[Innermost, ResamplePlan] = field(default_factory=dict)

    def innermost(self, strides: tuple[int, ...]) -> Innermost:
        """Tell along which axis a diff_dst of such strides runs in memory.

        Strides decide only where both axes have them, so that a part of a batch, copied or not,
        is computed as the whole.
        """
        channel, width = (-1, -2) if self.data_format == "NXC" else (1, -1)
        if self.diff_dst_shape[channel] == 1:
            return "width"
        if self.diff_dst_shape[width] == 1:
            return "channels" if self.data_format == "NXC" else "width"
        return "channels" if abs(strides[channel]) < abs(strides[width]) else "width"

    @property
    def contiguous(self) -> Innermost:
        """Where arrays in C order run."""
        last = self.data_format == "NXC" and self.diff_dst_shape[-1] > 1
        return "channels" if last else "width"

    def plan(self, innermost: Innermost) -> ResamplePlan:
        """Return the plan for a diff_dst that runs so."""
        plan = self.plans.get(innermost)
        if plan is None:
            # Two threads may come here at once: both plan the same.
            plan = _resampling_plan.build(self.problem, innermost)
            with _forms_lock:
                self.plans[innermost] = plan
                _make_room()
        return plan


# Checks the shapes and the attributes of an operator, these as they were given to it.
FormOf = Callable[[str, Source, Gradient, tuple[object, ...]], Form]

_forms: dict[object, Form] = {}
_forms_lock = threading.Lock()


def _remember(key: object, form: Form) -> None:
    """Remember the last forms, so that calls in a loop check and plan once."""
    with _forms_lock:
        if len(_forms) >= _REMEMBERED:
            del _forms[next(iter(_forms))]
        _forms[key] = form


def _make_room() -> None:
    """Let remembered forms drop their plans, the oldest first, until the others' are few enough."""
    room = _KEPT_BYTES
    for form in reversed(_forms.values()):
        size = sum(plan.tables_bytes for plan in form.plans.values())
        if size > room:
            form.plans.clear()
        else:
            room -= size


def _key(values: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return attributes as a key that no others share, or None for unusual ones.

    Equality alone would take True or 1.0 for 1, so that types are part of it.
    """
    of_values = tuple(map(type, values))
    if _SCALARS.issuperset(of_values):
        return of_values, values
    parts: list[object] = []
    for value, kind in zip(values, of_values, strict=True):
        if kind in _SCALARS:
            parts += (kind, value)
        elif kind is tuple or kind is list:
            kinds = tuple(map(type, value))  # type: ignore[call-overload]
            if not _SCALARS.issuperset(kinds):
                return None
            parts += (kinds, *value)  # type: ignore[misc]
        else:
            return None
    return tuple(parts)


def source(
    op: str, name: str, value: object, grad_dtype: np.dtype[Any]
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of the forward input, given itself or as a shape."""
    if type(value) is tuple and _INTEGER.issuperset(map(type, value)):
        return value, grad_dtype  # checked with the form
    if isinstance(value, np.ndarray):
        array = _arrays.check_array(op, name, value)
        return array.shape, array.dtype
    if isinstance(value, (tuple, list)):
        return _attributes.shape(op, name, value), grad_dtype
    raise TypeError(
        f"{op}: {name} must be a NumPy array or a shape, got {_attributes.found(value)}"
    )


def compute(
    op: str,
    form_of: FormOf,
    source_name: str,
    gradient_name: str,
    src: object,
    diff_dst: Array,
    attributes: tuple[object, ...],
    out: Array | None,
    accumulate: object,
    num_threads: int | None,
) -> Array:
    """Check a call and compute its result."""
    _arrays.check_array(op, gradient_name, diff_dst)
    shape, dtype = diff_dst.shape, diff_dst.dtype
    src_shape, src_dtype = source(op, source_name, src, dtype)
    of_attributes = _key(attributes)
    key = op, src_shape, src_dtype, shape, dtype, of_attributes
    form = _forms.get(key) if of_attributes is not None else None
    if form is None:
        forward = Source(source_name, src_shape, src_dtype)
        form = form_of(op, forward, Gradient(gradient_name, shape, dtype), attributes)
        if of_attributes is not None:
            _remember(key, form)
    inputs = {gradient_name: diff_dst}
    if isinstance(src, np.ndarray):
        inputs[source_name] = src
    return run(op, form, diff_dst, inputs, out, accumulate, num_threads)


def run(
    op: str,
    form: Form,
    diff_dst: Array,
    inputs: dict[str, Array],
    out: Array | None,
    accumulate: object,
    num_threads: int | None,
) -> Array:
    """Check the arguments that are no part of a form, and compute."""
    add = _attributes.flag(op, "accumulate", accumulate)
    threads = _threads.resolve(op, num_threads)
    result = _arrays.result_array(
        op, out, form.diff_src_shape, form.dtype, accumulate=add, inputs=inputs
    )
    if result.size:
        grads = _arrays.native(diff_dst)
        contiguous = grads.flags.c_contiguous
        plan = form.plan(form.contiguous if contiguous else form.innermost(grads.strides))
        plan.run(grads, result, form.data_format == "NXC", add, threads)
    return result


# -- forms ---------------------------------------------------------------------------------


def _given(value: object) -> object:
    """Return an optional attribute, an empty list (how graphs write an absent one) as None."""
    if value is None or isinstance(value, (int, float)):
        return value
    empty = isinstance(value, (list, tuple, np.ndarray)) and np.size(value) == 0
    return None if empty else value


def interpolation_attributes(
    sizes: object, mode: object, coordinates: object, scales: object, *others: object
) -> InterpolationAttributes:
    """Return the attributes of InterpolateBackward, of whose sizes and scales the first wins."""
    sizes = _given(sizes)
    scales = _given(scales) if sizes is None else None
    data_format, coordinate_scales, antialias, cubic_coeff_a = others
    return InterpolationAttributes(
        sizes, mode, coordinates, scales, data_format, _given(coordinate_scales), antialias,
        cubic_coeff_a,
    )  # fmt: skip


def backward_form(op: str, src: Source, diff_dst: Gradient, values: tuple[object, ...]) -> Form:
    """Check attributes and shapes of InterpolateBackward."""
    return interpolation_form(op, src, diff_dst, interpolation_attributes(*values))


def backprop_form(op: str, src: Source, diff_dst: Gradient, values: tuple[object, ...]) -> Form:
    """Check attributes and shapes of InterpolateBackprop, where sizes and scales exclude others."""
    sizes, mode, coordinates, scales, data_format, coordinate_scales = values
    if _given(sizes) is not None and _given(scales) is not None:
        raise ValueError(
            f"{op}: scales must be None where sizes is given, got {_attributes.found(scales)}"
        )
    of_coordinates = _given(coordinate_scales)
    attributes = InterpolationAttributes(
        _given(sizes), mode, coordinates, _given(scales), data_format, of_coordinates
    )
    return interpolation_form(op, src, diff_dst, attributes)


def interpolation_form(
    op: str, src: Source, diff_dst: Gradient, given: InterpolationAttributes
) -> Form:
    """Check attributes and shapes of an Interpolate operator."""
    rank = len(diff_dst.shape) - 2
    _arrays.check_rank(op, diff_dst.name, len(diff_dst.shape))
    fmt = _arrays.data_format(op, given.data_format, len(diff_dst.shape))
    _arrays.same_dtype(op, diff_dst.name, diff_dst.dtype, src.dtype)
    small, large = _agree(op, src, diff_dst, fmt)
    modes = PAGE_MODES if op == "interpolate_backprop" else tuple(MODES)
    mode = MODES[_attributes.choice(op, "mode", given.mode, modes)]
    coordinates = cast(
        Coordinates,
        _attributes.choice(
            op,
            "coordinate_transformation_mode",
            given.coordinate_transformation_mode,
            COORDINATES,
        ),
    )
    antialias = _attributes.flag(op, "antialias", given.antialias)
    if antialias and mode == "nearest":
        raise ValueError(f"{op}: antialias must be False with mode nearest, got True")
    if antialias and coordinates not in ("half_pixel", "align_corners"):
        raise ValueError(
            f"{op}: coordinate_transformation_mode must be half_pixel or align_corners with "
            f"antialias, got {coordinates!r}"
        )
    (coefficient,) = _attributes.floats(
        op, "cubic_coeff_a", given.cubic_coeff_a, 1, minimum=-np.inf
    )
    if given.sizes is not None:
        extents = _attributes.integers(op, "sizes", given.sizes, rank, minimum=1)
        if extents != large.spatial:
            raise ValueError(
                f"{op}: sizes must be the spatial extents {large.spatial} of {diff_dst.name}, "
                f"got {extents}"
            )
    elif given.scales is not None:
        scales = _attributes.floats(op, "scales", given.scales, rank, minimum=0)
        _check_scales(op, diff_dst.name, scales, small, large)
    used: tuple[float, ...] = (0.0,) * rank
    if given.coordinate_scales is not None:
        used = _attributes.floats(op, "coordinate_scales", given.coordinate_scales, rank, minimum=0)
        if coordinates == "align_corners":
            used = (0.0,) * rank
    problem = _problem(
        small,
        large,
        mode=mode,
        coordinates=coordinates,
        scales=used,
        antialias=antialias,
        cubic_coeff_a=coefficient if mode == "cubic" else 0.0,
        load_dtype=_arrays.DTYPE_CODES[diff_dst.dtype.newbyteorder("=")],
        store_dtype=_arrays.DTYPE_CODES[src.dtype.newbyteorder("=")],
    )
    return _form(fmt, src, diff_dst, small, problem)


def resize_form(op: str, src: Source, grads: Gradient, values: tuple[object, ...]) -> Form:
    """Check attributes and shapes of ResizeBilinearV2Grad."""
    given = ResizeAttributes(*values)
    if len(grads.shape) != 4:
        raise ValueError(f"{op}: grads must have 4 axes, got {len(grads.shape)}")
    fmt = _arrays.data_format(op, given.data_format, 4)
    dtype = src.dtype.newbyteorder("=")
    if grads.dtype.newbyteorder("=") != np.float32 or dtype == np.float64:
        _arrays.same_dtype(op, src.name, dtype, grads.dtype)
    small, large = _agree(op, src, grads, fmt)
    corners = _attributes.flag(op, "align_corners", given.align_corners)
    centers = _attributes.flag(op, "half_pixel_centers", given.half_pixel_centers)
    if corners and centers:
        raise ValueError(
            f"{op}: half_pixel_centers must be False where align_corners is True, got True"
        )
    scales = _attributes.floats(op, "scales", given.scales, 2, minimum=-np.inf)
    problem = _problem(
        small,
        large,
        mode="linear",
        coordinates="align_corners" if corners else "half_pixel" if centers else "asymmetric",
        scales=(0.0, 0.0) if corners else tuple(max(scale, 0.0) for scale in scales),
        load_dtype=_arrays.DTYPE_CODES[grads.dtype.newbyteorder("=")],
        store_dtype=_arrays.DTYPE_CODES[dtype],
    )
    return _form(fmt, src, grads, small, problem)


def _form(
    fmt: str, src: Source, diff_dst: Gradient, parts: Extents, problem: ResampleProblem
) -> Form:
    dtype = src.dtype.newbyteorder("=")
    return Form(fmt, diff_dst.shape, _arrays.shape_of(parts, fmt), dtype, problem)


def _problem(
    src: Extents, dst: Extents, *, scales: tuple[float, ...], **facts: Any
) -> ResampleProblem:
    missing = 3 - len(src.spatial)
    return ResampleProblem(
        batch=src.batch,
        channels=src.channels,
        src=cast(tuple[int, int, int], (1,) * missing + src.spatial),
        dst=cast(tuple[int, int, int], (1,) * missing + dst.spatial),
        scales=cast(tuple[float, float, float], (0.0,) * missing + scales),
        **facts,
    )


def _agree(op: str, src: Source, diff_dst: Gradient, fmt: str) -> tuple[Extents, Extents]:
    """Check the two shapes against each other and return them taken apart."""
    _attributes.shape(op, src.name, src.shape)
    if len(src.shape) != len(diff_dst.shape):
        raise ValueError(
            f"{op}: {src.name} must have {len(diff_dst.shape)} axes as {diff_dst.name} has, "
            f"got {len(src.shape)}"
        )
    small, large = _arrays.extents(src.shape, fmt), _arrays.extents(diff_dst.shape, fmt)
    if (small.batch, small.channels) != (large.batch, large.channels):
        raise ValueError(
            f"{op}: {src.name} must have batch {large.batch} and {large.channels} channels to "
            f"match {diff_dst.name}, got batch {small.batch} and {small.channels} channels"
        )
    for name, shape, parts in (
        (src.name, src.shape, small),
        (diff_dst.name, diff_dst.shape, large),
    ):
        if min(parts.spatial) < 1:
            raise ValueError(f"{op}: {name} must have positive spatial extents, got shape {shape}")
    return small, large


def _check_scales(
    op: str, dst_name: str, scales: tuple[float, ...], src: Extents, dst: Extents
) -> None:
    """Raise unless every ``trunc(float32(src)·float32(scale))`` is dst, or beside it."""
    for axis, (scale, small, large) in enumerate(
        zip(scales, src.spatial, dst.spatial, strict=True)
    ):
        with np.errstate(over="ignore", under="ignore"):
            product = float(np.float32(small) * np.float32(scale))
        if not abs(np.trunc(product) - large) <= 1:
            raise ValueError(
                f"{op}: scales[{axis}] must take extent {small} to extent {large} of {dst_name}, "
                f"give or take one, got {scale:g}, which gives {product:g}"
            )
