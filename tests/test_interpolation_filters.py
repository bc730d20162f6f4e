"""Cubic and antialiased interpolation against the float64 reference."""

import numpy as np
import pytest

from gradops_cy import interpolate_backward
from tests import reference
from tests.cases import every_dtype, every_format
from tests.tolerances import DTYPES, assert_close

EXTENTS = [
    ((1,), (9,)),
    ((9,), (1,)),
    ((17,), (21,)),
    ((40,), (80,)),
    ((300,), (33,)),
    ((7, 14), (6, 12)),
    ((20, 33), (5, 11)),
    ((8, 8), (16, 16)),
    ((9, 1), (1, 9)),
    ((4, 8, 7), (4, 3, 9)),
]
FILTERS = [("cubic", False), ("linear", True), ("bicubic", True)]


def check(src, dst, mode, transform, data_format, dtype, channels, a=-0.75, antialias=False):
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((2, channels, *dst)).astype(DTYPES[dtype])
    shape = (2, channels, *src) if data_format == "NCX" else (2, *src, channels)
    result = interpolate_backward(
        shape,
        np.ascontiguousarray(reference.from_ncx(dy, data_format)),
        mode=mode,
        coordinate_transformation_mode=transform,
        data_format=data_format,
        antialias=antialias,
        cubic_coeff_a=a,
    )
    exact, magnitude = (
        reference.interpolate_backward(
            dy.astype(np.float64), src, mode, transform, magnitude=m, antialias=antialias, a=a
        )
        for m in (False, True)
    )
    # Weights of either sign are rounded sums: their errors go by the products, not by the result.
    accumulator = np.finfo(np.float64 if dtype == "f64" else np.float32).eps
    store = float(np.finfo(np.float64).eps) * max(src) / accumulator if antialias else 0.0
    assert_close(reference.to_ncx(result, data_format), exact, magnitude + store * magnitude.max())


@every_dtype
@every_format
@pytest.mark.parametrize("transform", ["half_pixel", "align_corners"])
@pytest.mark.parametrize(("mode", "antialias"), FILTERS)
@pytest.mark.parametrize(("src", "dst"), EXTENTS)
def test_extents(src, dst, mode, antialias, transform, data_format, dtype):
    check(src, dst, mode, transform, data_format, dtype, 5, antialias=antialias)


@pytest.mark.parametrize("transform", ["asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize(("src", "dst"), EXTENTS)
def test_cubic_takes_all_coordinates(src, dst, transform):
    check(src, dst, "cubic", transform, "NXC", "f32", 3)


@pytest.mark.parametrize("channels", [1, 3, 16, 21, 64])
@pytest.mark.parametrize("a", [-0.5, -1, 0.25])
def test_coefficients_and_channels(a, channels):
    for data_format in ("NXC", "NCX"):
        check((12, 40), (30, 25), "cubic", "half_pixel", data_format, "f32", channels, a)
        check((12, 40), (5, 25), "cubic", "half_pixel", data_format, "f32", channels, a, True)


def test_the_mode_s_names_are_synonyms():
    dy = np.random.default_rng(0).standard_normal((1, 8, 9, 2)).astype(np.float32)
    one, other = (interpolate_backward((1, 4, 5, 2), dy, mode=m) for m in ("cubic", "bicubic"))
    assert (one == other).all()


def test_growing_antialiased_is_linear():
    dy = np.random.default_rng(0).standard_normal((1, 16, 20, 2)).astype(np.float64)
    plain, filtered = (
        interpolate_backward((1, 8, 10, 2), dy, mode="linear", antialias=a) for a in (False, True)
    )
    np.testing.assert_allclose(plain, filtered, rtol=1e-12)


def test_weights_of_a_filter_sum_to_one():
    for mode in ("linear", "cubic"):
        dy = np.ones((1, 37, 1), np.float64)
        result = interpolate_backward((1, 1000, 1), dy, mode=mode, antialias=True)
        np.testing.assert_allclose(result.sum(), 37, rtol=1e-13)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"mode": "nearest", "antialias": True}, ValueError, "antialias must be False"),
        ({"antialias": 1}, TypeError, "antialias must be True or False"),
        (
            {"antialias": True, "coordinate_transformation_mode": "asymmetric"},
            ValueError,
            "coordinate_transformation_mode must be half_pixel or align_corners",
        ),
        ({"cubic_coeff_a": "x"}, TypeError, "cubic_coeff_a must be"),
        ({"cubic_coeff_a": float("nan")}, ValueError, "cubic_coeff_a.* must be finite"),
        ({"cubic_coeff_a": True}, TypeError, "cubic_coeff_a"),
    ],
)
def test_bad_attributes(changes, error, text):
    dy = np.ones((1, 8, 9, 2), np.float32)
    interpolate_backward((1, 4, 5, 2), dy, mode="linear", antialias=True)  # remembered
    with pytest.raises(error, match="^interpolate_backward: " + text):
        interpolate_backward((1, 4, 5, 2), dy, **{"mode": "linear", **changes})
