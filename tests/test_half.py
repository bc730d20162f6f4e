"""Every bit pattern of the halves: loads are exact, stores round as ml_dtypes and NumPy do."""

import numpy as np
import pytest

import gradops_cy
from tests.tolerances import DTYPES

HALVES = ("f16", "bf16")
PLAIN = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1}


def every_pattern(dtype):
    return np.arange(2**16, dtype=np.uint16).view(DTYPES[dtype])


def same_values(result, expected):
    """Compare bit for bit; NaN by being NaN, and zeros without sign (a sum with -0 is +0)."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected)
        assert (np.isnan(result) == nan).all()
    special = nan | (expected.view(np.uint16) & 0x7FFF == 0)
    assert (result[~special].view(np.uint16) == expected[~special].view(np.uint16)).all()
    assert (result[special & ~nan] == 0).all()


def identity_resize(x, dtype):
    """Pass values through load and store, summing nothing."""
    shape = (1, 1, *x.shape)
    return gradops_cy.resize_bilinear_v2_grad(
        x.reshape(shape), np.empty(shape, dtype), data_format="NCX"
    ).reshape(x.shape)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [1, 256, 2**16])
def test_interpolation_keeps_every_value(width, dtype):
    x = every_pattern(dtype).reshape(-1, width)
    same_values(identity_resize(x, DTYPES[dtype]), x)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("data_format", "groups"), [("NXC", 1), ("NCX", 1), ("NXC", 16)])
def test_convolution_keeps_every_value(data_format, groups, dtype):
    """By a single channel of weight one, so that nothing is summed but the value itself."""
    x = every_pattern(dtype)
    if dtype == "bf16":  # the amx tier may flush subnormals in products
        x = x[~((x.view(np.uint16) & 0x7F80) == 0) | (x.view(np.uint16) & 0x7FFF == 0)]
        x = x[: len(x) // 16 * 16]
    if data_format == "NXC":
        dy, w = x.reshape(1, -1, groups), np.ones((1, 1, groups), x.dtype)
        keywords = {"weights_format": "XIO"}
    else:
        dy, w = x.reshape(1, 1, -1), np.ones((1, 1, 1), x.dtype)
        keywords = {"weights_format": "OIX"}
    result = gradops_cy.convolution_backward_data(
        dy, w, **PLAIN, groups=groups, data_format=data_format, **keywords
    )
    same_values(result.ravel(), x)


def ties(dtype):
    """Return float32 values on, just below and just above every rounding boundary."""
    x = every_pattern(dtype)
    with np.errstate(invalid="ignore"):
        x = np.sort(x[np.isfinite(x)].astype(np.float64))
    middle = ((x[:-1] + x[1:]) / 2).astype(np.float32)
    below, above = np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)
    large = np.array([6e4, 65519.9, 65520, 65536, 3.4e38, np.inf, np.nan], np.float32)
    return np.concatenate([middle, below, above, large, -large])


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("width", [1, None])
def test_stores_round_to_nearest_even(width, dtype):
    x = ties(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(DTYPES[dtype])
    result = identity_resize(x.reshape(-1, width or x.size), DTYPES[dtype])
    same_values(result.ravel(), expected)


def test_bfloat16_nan_has_the_bits_of_ml_dtypes():
    nan = np.array([np.nan, -np.nan], np.float32)
    result = identity_resize(nan.reshape(1, 2), DTYPES["bf16"]).ravel()
    expected = nan.astype(DTYPES["bf16"])
    assert (result.view(np.uint16) == expected.view(np.uint16)).all()
