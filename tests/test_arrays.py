"""Which arrays the operators take, and what becomes of out=."""

import ml_dtypes
import numpy as np
import pytest

import gradops_cy
from tests import reference
from tests.cases import every_dtype
from tests.tolerances import DTYPES
from tests.views import VIEWS, WRITEABLE, unaligned

CONV = {"strides": 2, "pads_begin": 1, "pads_end": 1, "dilations": 1}


def convolution(dy, w, **keywords):
    return gradops_cy.convolution_backward_data(dy, w, (len(dy), 12, 13, 5), **CONV, **keywords)


def transposed(dy, w, **keywords):
    return gradops_cy.conv_transpose_backward_data(dy, w, **CONV, **keywords)


def interpolation(dy, w, **keywords):
    return gradops_cy.interpolate_backward((len(dy), 4, 9, 6), dy, mode="bilinear", **keywords)


def resize(dy, w, **keywords):
    keywords["data_format"] = "NXC"
    return gradops_cy.resize_bilinear_v2_grad(dy, (len(dy), 4, 9, 6), **keywords)


OPERATORS = {
    convolution: ((2, 6, 7, 6), (3, 3, 5, 6)),
    transposed: ((2, 6, 7, 6), (3, 3, 6, 5)),
    interpolation: ((2, 8, 5, 6), (1, 1, 1, 1)),
    resize: ((2, 8, 5, 6), (1, 1, 1, 1)),
}


@pytest.fixture(params=OPERATORS, ids=lambda function: function.__name__)
def call(request):
    """An operator with random float32 arguments (interpolation does not use the weights)."""
    rng = np.random.default_rng(0)
    dy, w = (rng.standard_normal(shape).astype(np.float32) for shape in OPERATORS[request.param])
    return request.param, dy, w


def close(result, expected):
    """Compare two results, which may differ by the order of their sums alone."""
    eps = max(float(ml_dtypes.finfo(result.dtype).eps), 1e-6 if result.itemsize < 8 else 1e-15)
    a, b = result.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=2 * eps, atol=1e-5 if result.itemsize < 8 else 1e-13)


@pytest.mark.parametrize("view", VIEWS)
@every_dtype
def test_a_view_gives_the_same(call, dtype, view):
    function, dy, w = call
    dy, w = dy.astype(DTYPES[dtype]), w.astype(DTYPES[dtype])
    expected = function(dy, w)
    before = dy.tobytes(), w.tobytes()
    result = function(VIEWS[view](dy), VIEWS[view](w))
    assert result.dtype.isnative
    assert type(result) is np.ndarray
    assert result.flags.c_contiguous
    close(result, expected)
    assert (dy.tobytes(), w.tobytes()) == before


@every_dtype
@pytest.mark.parametrize("axis", range(4))
def test_broadcast_inputs(call, axis, dtype):
    function, dy, w = call
    one = dy[(slice(None),) * axis + (slice(0, 1),)].astype(DTYPES[dtype])
    w = w.astype(DTYPES[dtype])
    view = np.broadcast_to(one, dy.shape)
    expected = function(view.copy(), w).astype(np.float64)
    np.testing.assert_allclose(function(view, w).astype(np.float64), expected, rtol=1e-2, atol=1e-5)


def test_a_scalar_broadcast_to_everything(call):
    function, dy, w = call
    view = np.broadcast_to(np.float32(1.5), dy.shape)
    np.testing.assert_allclose(function(view, w), function(view.copy(), w), rtol=1e-5, atol=1e-5)


# -- out= --------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", WRITEABLE)
@every_dtype
def test_out_is_filled_and_returned(call, dtype, view):
    function, dy, w = call
    dy, w = dy.astype(DTYPES[dtype]), w.astype(DTYPES[dtype])
    expected = function(dy, w)
    out = WRITEABLE[view](np.full_like(expected, np.nan))
    result = function(dy, w, out=out)
    assert result is out
    close(out, expected)


@every_dtype
def test_a_large_result_begins_on_a_cache_line(call, dtype):
    function, dy, w = call
    results = [
        function(np.repeat(dy, n, 0).astype(DTYPES[dtype]), w.astype(DTYPES[dtype]))
        for n in (99, 100, 101)
    ]
    assert [result.ctypes.data % 64 for result in results] == [0, 0, 0]
    assert all(type(result) is np.ndarray and result.nbytes >= 1 << 14 for result in results)


def test_out_may_be_a_subclass(call):
    function, dy, w = call
    out = np.empty(function(dy, w).shape, np.float32).view(type("Sub", (np.ndarray,), {}))
    assert function(dy, w, out=out) is out
    np.testing.assert_array_equal(np.asarray(out), function(dy, w))


@pytest.mark.parametrize("view", ["spaced", "inside"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_nothing_between_is_written(call, accumulate, view):
    function, dy, w = call
    out = WRITEABLE[view](np.zeros_like(function(dy, w)))
    storage = out.base
    storage[...] = 99  # a NaN would hide what is added to it
    out[...] = 0
    function(dy, w, out=out, accumulate=accumulate)
    out[...] = 99
    assert (storage == 99).all()


@every_dtype
def test_nothing_round_out_is_written(call, dtype):
    function, dy, w = call
    dy, w = dy.astype(DTYPES[dtype]), w.astype(DTYPES[dtype])
    expected = function(dy, w)
    guarded = np.full([n + 2 for n in expected.shape], 3, dtype=DTYPES[dtype])
    inside = (slice(1, -1),) * expected.ndim
    function(dy, w, out=guarded[inside])
    assert (guarded[inside] == expected).all()
    guarded[inside] = 3
    assert (guarded == 3).all()


@every_dtype
def test_accumulate_adds_and_rounds_once(call, dtype):
    function, dy, w = call
    dy, w = dy.astype(DTYPES[dtype]), w.astype(DTYPES[dtype])
    plain = function(dy, w)
    before = np.random.default_rng(1).standard_normal(plain.shape).astype(plain.dtype)
    out = before.copy()
    assert function(dy, w, out=out, accumulate=True) is out
    # The sum before its one rounding, from float64 arguments.
    exact = function(dy.astype(np.float64), w.astype(np.float64)) + before.astype(np.float64)
    eps = float(ml_dtypes.finfo(plain.dtype).eps)
    error = np.abs(out.astype(np.float64) - exact)
    assert (error <= 0.51 * eps * np.abs(exact) + 1e-5).all()


def test_out_may_not_overlap_an_input(call):
    function, dy, w = call
    result = function(dy, w)
    storage = np.zeros(dy.size + result.size, np.float32)
    inside = storage[: dy.size].reshape(dy.shape)
    inside[...] = dy
    out = storage[dy.size - 1 : dy.size - 1 + result.size].reshape(result.shape)
    with pytest.raises(ValueError, match=r"out must not overlap"):
        function(inside, w, out=out)
    assert (inside == dy).all()
    beside = storage[dy.size :].reshape(result.shape)
    np.testing.assert_array_equal(function(inside, w, out=beside), result)


def test_out_may_interleave_with_an_input():
    """Views that share a buffer but no element are no overlap."""
    storage = np.zeros((1, 8, 4, 2), np.float32)
    storage[..., 0] = 1
    result = gradops_cy.interpolate_backward(
        (1, 8, 4), storage[..., 0], mode="nearest", out=storage[..., 1]
    )
    assert (result == 1).all()
    assert (storage == 1).all()


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda out: out.tolist(), TypeError, "out must be a NumPy array or None"),
        (lambda out: out.astype(np.float64), TypeError, "out must have dtype float32"),
        (lambda out: out.astype(">f4"), TypeError, "out must have dtype float32"),
        (lambda out: out[:, :-1], ValueError, "out must have shape"),
        (lambda out: out[0], ValueError, "out must have shape"),
        (
            lambda out: np.lib.stride_tricks.as_strided(out, writeable=False),
            ValueError,
            "out must be writeable",
        ),
        (unaligned, ValueError, "out must be aligned"),
        (
            lambda out: np.lib.stride_tricks.as_strided(out, strides=(0, *out.strides[1:])),
            ValueError,
            "out must have one place per element",
        ),
        (
            lambda out: np.lib.stride_tricks.as_strided(out, strides=(*out.strides[:3], 2)),
            ValueError,
            "out must",
        ),
        (lambda out: np.ma.masked_array(out), TypeError, "out must be a NumPy array"),
    ],
)
def test_unusable_out(call, change, error, text):
    function, dy, w = call
    out = np.full_like(function(dy, w), 9)
    bad = change(out)
    with pytest.raises(error, match=text):
        function(dy, w, out=bad)
    assert (out == 9).all()


def test_accumulate_needs_out(call):
    function, dy, w = call
    with pytest.raises(ValueError, match=r"accumulate=True must come with out=.*None"):
        function(dy, w, accumulate=True)
    with pytest.raises(TypeError, match=r"accumulate must be True or False"):
        function(dy, w, accumulate=1, out=function(dy, w))


# -- empty ---------------------------------------------------------------------------


@every_dtype
def test_an_empty_batch(call, dtype):
    function, dy, w = call
    dy, w = dy.astype(DTYPES[dtype]), w.astype(DTYPES[dtype])
    result = function(dy[:0], w)
    assert result.shape == (0, *function(dy, w).shape[1:])
    assert result.dtype == dy.dtype
    assert function(dy[:0], w, out=result) is result


def test_the_reference_moves_axes():
    a = np.zeros((2, 3, 4, 5))
    assert reference.from_ncx(a, "NXC").shape == (2, 4, 5, 3)
    assert reference.to_ncx(reference.from_ncx(a, "NXC"), "NXC").shape == a.shape
