"""Every bit pattern of the halves: loads are exact, stores round as ml_dtypes and NumPy do."""

import numpy as np
import pytest

import gradops_cy
from gradops_cy import _isa
from tests.cases import every_format
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


def identity_resize(x, dtype, data_format="NCX"):
    """Pass values through load and store, summing nothing."""
    shape = (1, 1, *x.shape) if data_format == "NCX" else (1, len(x), 1, x.shape[1])
    return gradops_cy.resize_bilinear_v2_grad(
        x.reshape(shape), np.empty(shape, dtype), data_format=data_format
    ).reshape(x.shape)


@pytest.mark.parametrize("dtype", HALVES)
@every_format
@pytest.mark.parametrize("width", [1, 2, 16, 256, 2**16])
def test_interpolation_keeps_every_value(width, data_format, dtype):
    x = every_pattern(dtype).reshape(-1, width)
    same_values(identity_resize(x, DTYPES[dtype], data_format), x)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(("data_format", "groups"), [("NXC", 1), ("NCX", 1), ("NXC", 16)])
def test_convolution_keeps_every_value(data_format, groups, dtype):
    """By a single channel of weight one, so that nothing is summed but the value itself."""
    x = every_pattern(dtype)
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


def flushed(x):
    """Return bfloat16 values as products of pairs may take them: subnormal ones as zeros."""
    subnormal = x.view(np.uint16) & 0x7F80 == 0
    return np.where(subnormal, DTYPES["bf16"].type(0), x)


@pytest.mark.parametrize("dtype", HALVES)
@every_format
@pytest.mark.parametrize("channels", [2, 16, 32, 64])
@pytest.mark.parametrize("transposed", [False, True])
def test_identity_matrices_keep_every_finite_value(transposed, channels, data_format, dtype):
    """Each value is summed with products by zero, as diff_dst and as weights."""
    x = every_pattern(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = x[np.isfinite(x.astype(np.float32))]
    x = x[: len(x) // channels * channels].reshape(-1, channels)
    one = np.eye(channels, dtype=x.dtype)
    function = gradops_cy.convolution_backward_data
    if transposed:
        function = gradops_cy.conv_transpose_backward_data
    for rows, matrix in ((x, one), (one, x)):
        # The product rows @ matrix.T, by a 1x1 convolution of (I, O) weights.
        dy, weights = rows[np.newaxis], matrix[np.newaxis]
        if transposed:
            weights = np.swapaxes(weights, 1, 2)
        if data_format == "NCX":
            dy = np.ascontiguousarray(np.swapaxes(dy, 1, 2))
        result = function(dy, weights, **PLAIN, data_format=data_format)[0]
        if data_format == "NCX":
            result = result.T
        expected = rows if matrix is one else matrix.T
        result, expected = result.ravel(), np.ascontiguousarray(expected).ravel()
        if dtype == "bf16" and _isa.MULTIPLIES_BF16:
            same_values(flushed(result), flushed(expected))
        else:
            same_values(result, expected)


def ties(dtype):
    """Return float32 values on, just below and just above every rounding boundary."""
    x = every_pattern(dtype)
    with np.errstate(invalid="ignore"):
        x = np.sort(x[np.isfinite(x)].astype(np.float64))
    middle = ((x[:-1] + x[1:]) / 2).astype(np.float32)
    below, above = np.nextafter(middle, -np.inf), np.nextafter(middle, np.inf)
    large = np.array([6e4, 65519.9, 65520, 65536, 3.39e38, 3.4e38, np.inf, np.nan], np.float32)
    return np.concatenate([middle, below, above, large, -large])


@pytest.mark.parametrize("dtype", HALVES)
@every_format
@pytest.mark.parametrize("width", [1, 3, None])
def test_stores_round_to_nearest_even(width, data_format, dtype):
    x = ties(dtype)
    x = x[: len(x) // (width or 1) * (width or 1)].reshape(-1, width or x.size)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = x.astype(DTYPES[dtype])
    result = identity_resize(x, DTYPES[dtype], data_format)
    same_values(result.ravel(), expected.ravel())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("channels", [1, 20, 64])
def test_convolutions_round_sums_to_nearest_even(channels, dtype):
    """Sums of a value and half of its last place: exact in float32, a tie at the store."""
    with np.errstate(over="ignore", invalid="ignore"):
        x = every_pattern(dtype).astype(np.float32)
        unit = np.spacing(every_pattern(dtype)).astype(np.float32)
    keep = np.isfinite(x) & (np.abs(x) >= 2.0**-10) & (np.abs(x) < 2.0**14)
    half = (unit[keep] / 2).astype(DTYPES[dtype])
    dy = np.stack([every_pattern(dtype)[keep], half], axis=-1)[np.newaxis]
    weights = np.ones((1, channels, 2), DTYPES[dtype])
    result = gradops_cy.convolution_backward_data(dy, weights, **PLAIN)
    expected = (dy[..., 0].astype(np.float32) + dy[..., 1].astype(np.float32)).astype(dy.dtype)
    for channel in range(channels):
        same_values(np.ascontiguousarray(result[..., channel]).ravel(), expected.ravel())


def test_bfloat16_nan_has_the_bits_of_ml_dtypes():
    nan = np.array([np.nan, -np.nan], np.float32)
    result = identity_resize(nan.reshape(1, 2), DTYPES["bf16"]).ravel()
    expected = nan.astype(DTYPES["bf16"])
    assert (result.view(np.uint16) == expected.view(np.uint16)).all()
