"""Tensors of more than 2**31 elements, offsets of 64 bits; and results that no cache holds."""

from dataclasses import replace

import numpy as np
import pytest

import gradops_cy
from gradops_cy import _processor
from tests.cases import every_dtype, every_format, layer
from tests.forced import other_plans

FAR = 2**31
PLAIN = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1}


@pytest.fixture
def storage(tmp_path):
    """More than 2**31 halves in a file with holes, of which only what is written takes room."""
    array = np.memmap(tmp_path / "halves", np.float16, "w+", shape=FAR + 2**16)
    yield array.view(np.ndarray)
    (tmp_path / "halves").unlink()


def test_images_far_apart(storage):
    """Views whose images lie more than 2**31 elements apart, as diff_dst and as out."""
    far = (2 * FAR, 2, 2, 2)
    dy = np.lib.stride_tricks.as_strided(storage, (2, 1, 1, 8), far)
    dy[...] = np.arange(16).reshape(2, 1, 1, 8)
    w = np.eye(8, dtype=np.float16).reshape(1, 1, 8, 8)
    result = gradops_cy.convolution_backward_data(dy, w, **PLAIN)
    assert (result == dy).all()
    out = np.lib.stride_tricks.as_strided(storage[32:], (2, 1, 1, 8), far)
    for function in (
        lambda: gradops_cy.convolution_backward_data(result, w, **PLAIN, out=out),
        lambda: gradops_cy.conv_transpose_backward_data(result, w, **PLAIN, out=out),
        lambda: gradops_cy.interpolate_backward(result.shape, result, mode="bilinear", out=out),
        lambda: gradops_cy.interpolate_backward(result.shape, result, mode="nearest", out=out),
    ):
        out[...] = 0
        function()
        assert (out == result).all()


@every_format
@pytest.mark.parametrize("kernel", [1, 8])
def test_a_stride_beyond_32_bits(storage, kernel, data_format):
    """A transposed convolution that reads the two ends of a long row."""
    rng = np.random.default_rng(0)
    ends = rng.standard_normal((2, kernel)).astype(np.float16)
    storage[:kernel], storage[FAR : FAR + kernel] = ends
    dy = storage[: FAR + kernel].reshape((1, -1, 1) if data_format == "NXC" else (1, 1, -1))
    w = rng.standard_normal((1, 1, kernel)).astype(np.float16)
    result = gradops_cy.conv_transpose_backward_data(
        dy, w, **{**PLAIN, "strides": FAR}, data_format=data_format, weights_format="IOX"
    )
    exact = (ends.astype(np.float64) * w[0].astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(result.ravel().astype(np.float64), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.slow
@every_format
@pytest.mark.parametrize("channels", [1, 16])
def test_a_result_of_more_elements(storage, channels, data_format):
    """Identities that fill it; diff_dst is one position, repeated."""
    extents = (2**16 + 2, 2**15 // channels)
    dy = np.random.default_rng(0).standard_normal(channels).astype(np.float16)
    w = np.eye(channels, dtype=np.float16).reshape(1, 1, channels, channels)
    some = [0, 1, 2**15, -2, -1]
    if data_format == "NXC":
        shape, part = (1, *extents, channels), (0, some)
        dy = dy.reshape(1, 1, 1, channels)
    else:
        shape, part = (1, channels, *extents), (0, slice(None), some)
        dy = dy.reshape(1, channels, 1, 1)
    dy = np.broadcast_to(dy, shape)
    out = storage[: dy.size].reshape(shape)
    for function in (
        lambda: gradops_cy.convolution_backward_data(
            dy, w, **PLAIN, data_format=data_format, out=out
        ),
        lambda: gradops_cy.interpolate_backward(
            shape, dy, mode="nearest", data_format=data_format, out=out
        ),
    ):
        out[part] = 0
        function()
        assert (out[part] == dy[part]).all()


STREAMED = {
    "rows": layer("64-3-1-3-1-1", dst=(260, 255)),
    "rows, short sums": layer("64-16-1-2-2-0", dst=(520, 510), transposed=True),
    "depthwise": layer("1-1-1-3-1-1", dst=(260, 255), groups=64),
    "depthwise, broken lines": layer("1-1-1-3-1-1", dst=(260, 114), groups=145),
    "depthwise with strides": layer("1-1-1-5-2-2", dst=(90, 95), groups=128),
    "groups within a line": layer("48-4-1-3-1-1", dst=(215, 205), groups=2),
    "a batch": layer("64-4-1-1-1-0", dst=(24, 30), batch=92),
}


@pytest.fixture
def small_caches(monkeypatch):
    """Let no cache hold both tensors, however large the processor's are."""
    monkeypatch.setattr(_processor, "_HELD", 0)
    yield from other_plans()


@pytest.mark.parametrize("case", STREAMED.values(), ids=STREAMED)
@every_dtype
def test_results_that_no_cache_holds(small_caches, case, dtype):
    """Written past the caches where they begin on a line of cache, elsewhere as all others."""
    case = replace(case, dtype=dtype, data_format="NXC")
    case.check(large=True)
    dy, weights = case.formatted(*case.arrays())
    result = case.call(dy, weights, num_threads=2)
    assert result.nbytes >= 2**23
    storage = np.empty(result.nbytes + 128, np.uint8)
    begin = -storage.ctypes.data % 64 + 16
    out = storage[begin : begin + result.nbytes].view(result.dtype).reshape(result.shape)
    case.call(dy, weights, out=out)
    np.testing.assert_array_equal(out.view(np.uint8), result.view(np.uint8))
