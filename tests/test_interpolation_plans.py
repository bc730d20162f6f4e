"""Plans of interpolations: what the operator does, for many calls."""

import copy
import math
import pickle
import threading

import numpy as np
import pytest

import gradops_cy
from gradops_cy import (
    _arrays,
    _interpolation_call,
    _processor,
    _resampling_channels,
    _resampling_fetching,
)
from tests.cases import every_dtype, every_format
from tests.tolerances import DTYPES

SHAPES = {"NXC": ((2, 6, 9, 5), (2, 12, 7, 5)), "NCX": ((2, 5, 6, 9), (2, 5, 12, 7))}


def random(shape, dtype="f32"):
    return np.random.default_rng(0).standard_normal(shape).astype(DTYPES[dtype])


@every_dtype
@pytest.mark.parametrize("data_format", SHAPES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_plans_do_what_the_operator_does(mode, data_format, dtype):
    src, dst = SHAPES[data_format]
    keywords = {"mode": mode, "data_format": data_format}
    plan = gradops_cy.interpolate_backward_plan(src, dst, dtype=DTYPES[dtype], **keywords)
    assert (plan.diff_src_shape, plan.diff_dst_shape, plan.dtype) == (src, dst, DTYPES[dtype])
    dy = random(dst, dtype)
    expected = gradops_cy.interpolate_backward(src, dy, **keywords)
    assert plan(dy).tobytes() == expected.tobytes()
    out = np.ones(src, dtype=DTYPES[dtype])
    assert plan(dy, out) is out
    assert out.tobytes() == expected.tobytes()
    again = gradops_cy.interpolate_backward(src, dy, **keywords, out=out.copy(), accumulate=True)
    assert plan(dy, out, accumulate=True).tobytes() == again.tobytes()
    for other in (copy.copy(plan), pickle.loads(pickle.dumps(plan))):
        assert other(dy).tobytes() == expected.tobytes()


def test_one_plan_takes_all_layouts():
    src, dst = SHAPES["NXC"]
    plan = gradops_cy.interpolate_backward_plan(src, dst, mode="linear")
    dy = random(dst)
    turned = np.ascontiguousarray(dy.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    assert plan(turned).tobytes() == plan(dy).tobytes()
    assert (plan(dy[::-1]) == plan(dy)[::-1]).all()


def test_threads_share_a_plan():
    src, dst = (4, 32, 20, 20), (4, 32, 40, 40)
    plan = gradops_cy.interpolate_backward_plan(src, dst, mode="linear", data_format="NCX")
    dy = random(dst)
    expected = plan(dy).tobytes()
    results = []

    def work():
        results.extend(plan(dy).tobytes() == expected for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 20


def test_plans_tell_what_they_are():
    plan = gradops_cy.interpolate_backward_plan(
        (1, 8, 8, 64), [1, 16, 16, 64], [16, 16], mode="bicubic", antialias=True
    )
    text = "mb1ic64_ih8oh16_iw8ow16 cubic half_pixel antialias a -0.75"
    assert repr(plan) == f"<interpolate_backward_plan {text}>"
    assert plan.describe().startswith(text + ": kernel of channels")
    empty = gradops_cy.interpolate_backward_plan((0, 8, 3), (0, 4, 3), mode="linear")
    assert empty(np.ones((0, 4, 3), np.float32)).shape == (0, 8, 3)
    assert empty.describe().endswith("no work")


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"dtype": np.int32}, TypeError, "dtype must be float32"),
        ({"dtype": "nonsense"}, TypeError, "dtype must be a NumPy dtype"),
        ({"src_shape": (1, 4)}, ValueError, "src_shape must have 3 axes"),
        ({"diff_dst_shape": (1, 8, 5)}, ValueError, "src_shape must have batch 1 and 5 channels"),
        ({"diff_dst_shape": 8}, TypeError, "diff_dst_shape must be a list"),
        ({"mode": "quintic"}, ValueError, "mode must be one of"),
        ({"num_threads": 0}, ValueError, "num_threads must be"),
    ],
)
def test_bad_plans(changes, error, text):
    keywords = {"src_shape": (1, 4, 3), "diff_dst_shape": (1, 8, 3), "mode": "linear", **changes}
    with pytest.raises(error, match="^interpolate_backward_plan: " + text):
        gradops_cy.interpolate_backward_plan(**keywords)


def test_bad_calls():
    plan = gradops_cy.interpolate_backward_plan((1, 4, 3), (1, 8, 3), mode="linear")
    for dy, error in (
        (np.ones((1, 7, 3), np.float32), ValueError),
        (np.ones((1, 8, 3), np.float64), TypeError),
        ([1, 2], TypeError),
    ):
        with pytest.raises(error, match=r"^interpolate_backward_plan: diff_dst must"):
            plan(dy)
    with pytest.raises(ValueError, match="out must have shape"):
        plan(np.ones((1, 8, 3), np.float32), np.ones((1, 8, 3), np.float32))


@every_dtype
@pytest.mark.parametrize("channels", [3, 17, 64])
@every_format
@pytest.mark.parametrize("spread", ["whole", "rows", "channels"])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize(
    ("src", "dst"), [((21, 37), (9, 18)), ((20, 96), (10, 48)), ((26, 40), (6, 10))]
)
def test_results_stored_past_the_caches(
    monkeypatch, dtype, channels, data_format, spread, mode, lines, src, dst
):
    """Large results are stored in another way, bit for bit alike, and only where they belong."""
    shape = (2, *src, channels) if data_format == "NXC" else (2, channels, *src)
    of_dst = (2, *dst, channels) if data_format == "NXC" else (2, channels, *dst)
    diff_dst = random(of_dst, dtype)
    axis = {"whole": 0, "rows": -2, "channels": -1}[spread]
    room = list(shape)
    room[axis] += 5
    results = []
    for streams in (False, True):
        monkeypatch.setattr(_processor, "past_the_caches", lambda *_, past=streams: past)
        monkeypatch.setattr(_interpolation_call, "_forms", {})
        count = math.prod(room) + 1
        storage = _arrays.aligned_bytes(count * np.dtype(DTYPES[dtype]).itemsize)
        out = storage.view(DTYPES[dtype])[0 if lines else 1 :][: count - 1].reshape(room)
        out[...] = 7
        inside = np.moveaxis(np.moveaxis(out, axis, 0)[: shape[axis]], 0, axis)
        keywords = {"mode": mode, "data_format": data_format, "num_threads": 2}
        gradops_cy.interpolate_backward(shape, diff_dst, **keywords, out=inside)
        results.append(out)
    np.testing.assert_array_equal(results[0], results[1])
    assert (np.moveaxis(results[1], axis, 0)[shape[axis] :] == 7).all()


@every_dtype
@pytest.mark.parametrize("shape", [(2, 10, 120, 17), (2, 40, 21, 64), (20, 9, 5, 3)])
@every_format
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_fetching_does_not_change_a_bit(monkeypatch, dtype, shape, data_format, mode):
    """Large tensors are asked for ahead, or touched, or neither."""
    of_dst = (shape[0], 20, 63, shape[3])
    if data_format == "NCX":
        shape, of_dst = ((s[0], s[3], s[1], s[2]) for s in (shape, of_dst))
    diff_dst = random(of_dst, dtype)
    results = []
    for limit, amd, beyond in (
        (1 << 40, False, False),
        (0, True, False),
        (0, True, True),
        (0, False, True),
    ):
        monkeypatch.setattr(_resampling_fetching, "_FETCH_BYTES", limit)
        monkeypatch.setattr(_processor, "AMD", amd)
        monkeypatch.setattr(_processor, "beyond_cache", lambda *_, past=beyond: past)
        monkeypatch.setattr(_interpolation_call, "_forms", {})
        keywords = {"mode": mode, "data_format": data_format, "num_threads": 2}
        results.append(gradops_cy.interpolate_backward(shape, diff_dst, **keywords))
    assert all(result.tobytes() == results[0].tobytes() for result in results)


@every_dtype
@pytest.mark.parametrize("channels", [16, 29, 40, 64, 150])
@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ((9, 50), (18, 100)),
        ((9, 50), (14, 77)),
        ((11, 33), (5, 17)),
        ((2, 3, 20), (2, 3, 60)),
        ((4, 6, 10), (6, 9, 15)),
        ((90,), (355,)),
    ],
)
@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric"])
def test_one_pass_instead_of_two(monkeypatch, dtype, channels, mode, src, dst, transform):
    """Where columns touch no more than two, both passes are one, bit for bit alike."""
    shape, of_dst = (2, *src, channels), (2, *dst, channels)
    diff_dst = random(of_dst, dtype)
    keywords = {"mode": mode, "coordinate_transformation_mode": transform}
    monkeypatch.setattr(_resampling_channels, "_SLIDING_ROWS", 9)
    results = []
    for limit, threads, past in ((1 << 60, 1, False), (0, 1, False), (0, 3, True), (0, 1, True)):
        monkeypatch.setattr(_resampling_channels, "_SLIDING_BYTES", limit)
        monkeypatch.setattr(_processor, "past_the_caches", lambda *_, past=past: past)
        monkeypatch.setattr(_interpolation_call, "_forms", {})
        out = np.full((2, *src, channels + 3 * past), 7, DTYPES[dtype])
        inside = out[..., :channels] if past and threads > 1 else np.empty(shape, DTYPES[dtype])
        gradops_cy.interpolate_backward(
            shape, diff_dst, **keywords, out=inside, num_threads=threads
        )
        results.append(inside.tobytes())
        assert (out[..., channels:] == 7).all()
    assert results[1:] == results[:1] * 3


def test_one_pass_asks_for_rows(monkeypatch):
    shape, of_dst = (1, 12, 40, 80), (1, 24, 80, 80)
    diff_dst = random(of_dst)
    monkeypatch.setattr(_resampling_channels, "_SLIDING_BYTES", 0)
    results = []
    for limit in (0, 1 << 60):
        monkeypatch.setattr(_resampling_fetching, "_FETCH_BYTES", limit)
        monkeypatch.setattr(_interpolation_call, "_forms", {})
        results.append(gradops_cy.interpolate_backward(shape, diff_dst, mode="linear").tobytes())
    assert results[0] == results[1]


def test_remembered_tables_are_few(monkeypatch):
    # The oldest go; a plan that the caller holds keeps its own.
    monkeypatch.setattr(_interpolation_call, "_forms", {})
    monkeypatch.setattr(_interpolation_call, "_KEPT_BYTES", 60_000)
    plan = gradops_cy.interpolate_backward_plan((1, 3000, 16), (1, 6000, 16), mode="linear")
    held = plan._form.plan("channels")
    for extent in (1000, 1001, 5000):
        grad = np.ones((1, 2 * extent, 16), np.float32)
        gradops_cy.interpolate_backward((1, extent, 16), grad, mode="linear")
    kept = [len(form.plans) for form in _interpolation_call._forms.values()]
    assert kept == [0, 1, 0]
    assert plan._form.plan("channels") is held
