"""The defining property: <forward(a), b> == <a, backward(b)> for random a and b.

The forward operators are the references', written from the other side.
"""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import interpolate_backward, resize_bilinear_v2_grad
from tests import reference
from tests.cases import conv_case


def same(left, right, magnitude):
    assert abs(left - right) <= 1e-13 * magnitude


@pytest.mark.parametrize("seed", range(60))
def test_convolutions(seed):
    case = conv_case(seed, dtype="f64")
    if case.batch * case.inputs * case.outputs * np.prod(case.dst) > 20_000:
        case = replace(case, batch=1, groups=1, inputs=3, outputs=2)
    dy, weights = case.arrays()
    channels = case.inputs * case.groups
    a = np.random.default_rng(seed).standard_normal((case.batch, channels, *case.src))
    backward = case.ncx(case.call(*case.formatted(dy, weights)))
    if case.transposed:
        # The forward pass of a transposed convolution is a scatter: conv_backward's formula with
        # the roles of the channels exchanged.
        forward = reference.conv_backward(a, weights, case.dst, **case.geometry)
    else:
        forward = reference.conv_forward(a, weights, case.dst, **case.geometry)
    same((forward * dy).sum(), (a * backward).sum(), np.abs(a * backward).sum() + 1)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    "transform", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize(
    ("src", "dst"), [((9,), (13,)), ((4, 6), (7, 3)), ((2, 3, 4), (5, 2, 4)), ((5, 5), (10, 15))]
)
def test_interpolation(src, dst, transform, mode):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, *src)), rng.standard_normal((2, 3, *dst))
    forward = reference.interpolate_forward(a, dst, mode, transform)
    backward = interpolate_backward(
        a, b, mode=mode, coordinate_transformation_mode=transform, data_format="NCX"
    )
    same((forward * b).sum(), (a * backward).sum(), np.abs(a * backward).sum() + 1)


@pytest.mark.parametrize("transform", ["half_pixel", "align_corners"])
@pytest.mark.parametrize(
    ("mode", "filters"),
    [
        ("cubic", {}),
        ("cubic", {"a": -0.5}),
        ("cubic", {"antialias": True}),
        ("linear", {"antialias": True}),
    ],
)
@pytest.mark.parametrize(("src", "dst"), [((9,), (13,)), ((7, 6), (4, 9)), ((2, 3, 4), (5, 2, 4))])
def test_filters(src, dst, mode, filters, transform):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, *src)), rng.standard_normal((2, 3, *dst))
    forward = reference.interpolate_forward(a, dst, mode, transform, **filters)
    backward = interpolate_backward(
        a,
        b,
        mode=mode,
        coordinate_transformation_mode=transform,
        data_format="NCX",
        antialias=filters.get("antialias", False),
        cubic_coeff_a=filters.get("a", -0.75),
    )
    same((forward * b).sum(), (a * backward).sum(), np.abs(a * backward).sum() + 1)


@pytest.mark.parametrize("scales", [(1.25, 0.75), (3.0, 2.0)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_interpolation_with_scales(mode, scales):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((2, 3, 7, 9))
    forward = reference.interpolate_forward(a, (7, 9), mode, "half_pixel", scales)
    backward = interpolate_backward(a, b, mode=mode, coordinate_scales=scales, data_format="NCX")
    same((forward * b).sum(), (a * backward).sum(), np.abs(a * backward).sum() + 1)


@pytest.mark.parametrize(
    ("flags", "transform"),
    [
        ({}, "asymmetric"),
        ({"align_corners": True}, "align_corners"),
        ({"half_pixel_centers": True}, "half_pixel"),
    ],
)
@pytest.mark.parametrize("scales", [(0.0, 0.0), (1.25, 0.75)])
def test_resize(scales, flags, transform):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 5, 4)), rng.standard_normal((2, 3, 7, 9))
    forward = reference.interpolate_forward(
        a, (7, 9), "linear", transform, scales if any(scales) else None
    )
    backward = resize_bilinear_v2_grad(b, a, **flags, scales=scales)
    same((forward * b).sum(), (a * backward).sum(), np.abs(a * backward).sum() + 1)
