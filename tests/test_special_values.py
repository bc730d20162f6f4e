"""NaN, Inf, overflow and subnormal numbers, in every kernel that may compute them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradops_cy import _isa, convolution_backward_data, interpolate_backward
from tests import reference
from tests.cases import conv_cases, every_dtype, every_format, layer
from tests.forced import assert_value_reaches_what_it_touches
from tests.tolerances import DTYPES, assert_close, assert_same_class, assert_same_values

PLAIN = {"strides": 1, "dilations": 1, "pads_begin": 0, "pads_end": 0}
SPECIAL = st.sampled_from([np.inf, -np.inf, np.nan])


@given(case=conv_cases(), data=st.data())
def test_convolutions_propagate_what_is_not_finite(case, data):
    """Into the sums that it is a term of, and no others: padding is no term."""
    arrays = case.arrays()
    for array in arrays:
        for _ in range(data.draw(st.integers(0, 2))):
            index = tuple(data.draw(st.integers(0, extent - 1)) for extent in array.shape)
            array[index] = data.draw(SPECIAL)
    result = case.ncx(case.call(*case.formatted(*arrays)))
    with np.errstate(invalid="ignore"):
        exact = case.exact(*arrays)
    assert_same_values(result, *exact)


# By kernel: matrix products with channels or positions in the lanes, groups side by side. Those of
# several tiles are stored while the next one multiplies.
KERNELS = [
    layer("20-20-6-3-1-1"),
    layer("64-64-6-3-1-1"),
    layer("40-40-20-3-1-1"),
    layer("3-3-6-3-1-1"),
    layer("1-1-6-3-1-1", groups=32),
    layer("2-3-6-3-2-1", groups=16),
    layer("8-3-6-3-2-1", groups=3),
    layer("16-3-6-3-1-1", groups=2),
    layer("16-16-6-3-1-1", groups=4),
    layer("20-8-6-3-1-1"),
]
every_kernel = pytest.mark.parametrize("case", KERNELS, ids=str)


@every_kernel
@every_format
@every_dtype
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinite_weights_stay_inside(value, dtype, data_format, case):
    """An infinite weight reaches the positions that it is a factor of, and no padding."""
    case = replace(case, dtype=dtype, data_format=data_format)
    dy, weights = case.arrays()
    weights[0, 0, 0, 0] = value
    result = case.ncx(case.call(*case.formatted(dy, weights)))
    with np.errstate(invalid="ignore"):
        exact, magnitude = case.exact(dy, weights)
    finite = np.isfinite(exact)
    assert 0 < finite.sum() < finite.size
    assert_same_values(result, exact, magnitude)


@every_kernel
@every_format
@every_dtype
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_value_reaches_what_it_touches(value, dtype, data_format, case):
    """Not the groups beside its own, whose channels may stand in the same tile."""
    case = replace(case, dtype=dtype, data_format=data_format)
    assert_value_reaches_what_it_touches(case, value)


@every_format
@every_dtype
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("channels", [(1, 1), (3, 2), (40, 70)])
def test_overflow_is_infinite(channels, transposed, data_format, dtype):
    largest = float(np.finfo(np.float32).max if dtype == "bf16" else np.finfo(DTYPES[dtype]).max)
    i, o = channels
    case = layer(f"{i}-{o}-4-1-1-0", transposed=transposed, dtype=dtype, data_format=data_format)
    dy, weights = case.arrays()
    dy[...], weights[...] = largest / 3, 4
    dy[..., 0] = -dy[..., 0]
    result = case.ncx(case.call(*case.formatted(dy, weights)))
    assert np.isneginf(result[..., 0].astype(np.float64)).all()
    assert np.isposinf(result[..., 1:].astype(np.float64)).all()


def test_float16_sums_beyond_its_range_come_back():
    """Halves accumulate in float32: only the sum must fit."""
    dy = np.array([60000, 60000, -60000], np.float16).reshape(1, 1, 3)
    w = np.ones((1, 5, 3), np.float16)
    assert (convolution_backward_data(dy, w, **PLAIN) == 60000).all()
    dy = np.array([60000, 60000, -60000, 0], np.float16).reshape(1, 4, 1)
    assert interpolate_backward((1, 1, 1), dy, mode="nearest").item() == 60000


@every_kernel
@every_format
@every_dtype
def test_convolutions_keep_subnormal_numbers(dtype, data_format, case):
    """Small multiples of the smallest number, with small integer weights, give exact sums."""
    case = replace(case, dtype=dtype, data_format=data_format)
    dy, weights = case.arrays()
    info = np.finfo(np.float32) if dtype == "bf16" else np.finfo(DTYPES[dtype])
    tiny = 2.0**-133 if dtype == "bf16" else float(info.smallest_subnormal)
    rng = np.random.default_rng(0)
    dy[...] = rng.integers(-3, 4, dy.shape) * tiny
    weights[...] = rng.integers(-2, 3, weights.shape)
    result = case.ncx(case.call(*case.formatted(dy, weights)))
    exact, _ = case.exact(dy, weights)
    assert exact.any()
    expected = exact.astype(DTYPES[dtype])
    if dtype == "bf16" and _isa.MULTIPLIES_BF16:
        assert ((result == expected) | (result == 0)).all()  # factors may be flushed
    else:
        assert (result == expected).all()


@every_format
@every_dtype
@pytest.mark.parametrize("channels", [1, 3, 16, 40])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_interpolation_keeps_subnormal_numbers(mode, channels, dtype, data_format):
    """At a ratio of 2 the nearest sums are exact; linear ones err by less than a unit."""
    tiny = 2.0**-133 if dtype == "bf16" else float(np.finfo(DTYPES[dtype]).smallest_subnormal)
    rng = np.random.default_rng(0)
    dy = (rng.integers(-9, 10, (2, channels, 8, 34)) * tiny).astype(DTYPES[dtype])
    shape = (2, channels, 4, 17) if data_format == "NCX" else (2, 4, 17, channels)
    result = interpolate_backward(
        shape,
        np.ascontiguousarray(reference.from_ncx(dy, data_format)),
        mode=mode,
        data_format=data_format,
    )
    exact = reference.interpolate_backward(dy.astype(np.float64), (4, 17), mode, "half_pixel")
    error = np.abs(reference.to_ncx(result, data_format).astype(np.float64) - exact)
    # Of float32 and float64 the products round to units of the smallest number themselves.
    allowed = {"nearest": 0, "linear": 8 if dtype in ("f32", "f64") else 0.5}[mode]
    assert error.max() <= allowed * tiny


@given(data=st.data())
def test_interpolation_propagates_what_is_not_finite(data):
    rank = data.draw(st.integers(1, 3))
    extents = st.tuples(*[st.integers(1, {1: 40, 2: 12, 3: 5}[rank])] * rank)
    src, dst = data.draw(extents), data.draw(extents)
    dtype = data.draw(st.sampled_from(list(DTYPES)))
    data_format = data.draw(st.sampled_from(["NXC", "NCX"]))
    channels = data.draw(st.sampled_from([1, 3, 16, 17, 40]))
    dy = np.random.default_rng(0).standard_normal((2, channels, *dst)).astype(DTYPES[dtype])
    index = tuple(data.draw(st.integers(0, extent - 1)) for extent in dy.shape)
    dy[index] = data.draw(SPECIAL)
    transform = data.draw(st.sampled_from(["half_pixel", "align_corners", "asymmetric"]))
    mode = data.draw(st.sampled_from(["nearest", "linear"]))
    shape = (2, channels, *src) if data_format == "NCX" else (2, *src, channels)
    result = interpolate_backward(
        shape,
        np.ascontiguousarray(reference.from_ncx(dy, data_format)),
        mode=mode,
        coordinate_transformation_mode=transform,
        data_format=data_format,
    )
    result = reference.to_ncx(result, data_format)
    # Which elements it reaches: those where its weight is not zero.
    marker = np.zeros(dy.shape)
    marker[index] = 1
    reached = reference.interpolate_backward(marker, src, mode, transform) != 0
    value = dy[index].astype(np.float64)
    clean = dy.astype(np.float64)
    clean[index] = 0
    exact = reference.interpolate_backward(clean, src, mode, transform)
    assert_same_class(result, np.where(reached, value, exact))
    magnitude = reference.interpolate_backward(np.abs(clean), src, mode, transform)
    assert_close(result[~reached], exact[~reached], magnitude[~reached])
