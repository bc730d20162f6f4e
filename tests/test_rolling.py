"""Depthwise layers channels first whose sums roll over the rows of diff_dst."""

from dataclasses import replace

import numpy as np
import pytest

import gradops_cy
from gradops_cy import _convolution_depthwise_times, _convolution_rolling, _isa, _processor
from gradops_cy import _convolution_plan as plans
from tests import forced
from tests.cases import POINTWISE, every_dtype
from tests.forced import assert_cuts_do_not_change_a_bit, assert_value_reaches_what_it_touches
from tests.test_depthwise import along

PLANE = POINTWISE._replace(
    groups=4,
    diff_src_channels=4,
    diff_dst_channels=4,
    diff_src=(1, 40, 40),
    diff_dst=(1, 40, 40),
    kernel=(1, 3, 3),
)
# One vector of floats or less, of pairs, some, and more than a tile has.
WIDTHS = (1, 2, 7, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 97, 130, 200)


@pytest.fixture(autouse=True)
def along_rows(monkeypatch):
    monkeypatch.setattr(_convolution_depthwise_times, "along_rows", lambda *_: True)
    yield from forced.other_plans()


def case_of(taps, stride=1, *, dst, dtype, **changes):
    """Return a layer of three channels, whose pads are not the same at both ends."""
    rank = len(dst)
    kernel, strides = (taps,) * rank, (stride,) * rank
    return along(kernel, dst=dst, dtype=dtype, strides=strides, **{"groups": 3, **changes})


@pytest.mark.parametrize(
    ("changes", "rolls"),
    [
        ({}, True),
        ({"dtype": 1}, True),
        ({"dtype": 2}, True),
        ({"dtype": 3}, False),
        ({"kernel": (1, 3, 5)}, False),
        ({"kernel": (1, 4, 4)}, False),
        ({"kernel": (3, 5, 5), "rank": 3}, True),
        ({"kernel": (1, 7, 7)}, True),
        ({"kernel": (1, 7, 7), "dtype": 1}, False),  # seven columns of halves to convert
        ({"kernel": (1, 7, 7), "dtype": 2}, True),  # are pairs
        ({"transposed": True}, True),
        ({"dilations": (1, 2, 2)}, True),
        ({"dilations": (1, 9, 9), "diff_dst": (1, 22, 22)}, False),  # far beyond the row
        ({"strides": (1, 2, 2), "diff_dst": (1, 20, 20)}, True),
        ({"strides": (1, 2, 2), "kernel": (1, 7, 7), "diff_dst": (1, 20, 20)}, False),
        ({"strides": (1, 2, 1), "diff_dst": (1, 20, 40)}, False),
        ({"strides": (1, 2, 2), "diff_src": (1, 1, 40), "diff_dst": (1, 1, 20)}, False),
        ({"strides": (1, 2, 2), "transposed": True, "diff_dst": (1, 80, 80)}, False),
    ],
)
def test_which_layers_roll(changes, rolls):
    problem = PLANE._replace(**changes)
    assert _convolution_rolling.rolls(problem, 16, True) == rolls
    assert not _convolution_rolling.rolls(problem, 8, True)


@pytest.mark.parametrize(
    ("changes", "pairs"),
    [
        ({}, False),
        ({"dtype": 2}, True),
        ({"dtype": 2, "diff_src": (1, 40, 16)}, False),
        ({"dtype": 2, "diff_src": (1, 40, 17)}, True),
        ({"dtype": 2, "strides": (1, 2, 2), "diff_src": (1, 40, 32)}, False),
        ({"dtype": 2, "strides": (1, 2, 2), "diff_src": (1, 40, 33)}, True),
        ({"dtype": 2, "dilations": (1, 2, 2)}, False),
    ],
)
def test_which_layers_are_paired(changes, pairs):
    problem = PLANE._replace(**changes)
    assert _convolution_rolling.pairs(problem, True) == pairs
    assert not _convolution_rolling.pairs(problem, False)


def test_what_a_plan_tells():
    case = case_of(5, dst=(28, 28), dtype="bf16")
    plan = gradops_cy.convolution_backward_data_plan(
        case.shape,
        case.formatted(*case.arrays())[1],
        **case.geometry,
        pads_end=case.pads_end,
        data_format="NCX",
        weights_format=case.weights_format,
    )
    wide = _isa.TIER not in ("v2", "v3", "generic")
    reads = "diff_dst in place" if wide else "a packed window"
    assert f"reads     {reads}\n" in plan.describe()


@every_dtype
@pytest.mark.parametrize(
    ("taps", "stride", "dilation"),
    [(3, 1, 1), (5, 1, 1), (7, 1, 1), (3, 1, 2), (5, 1, 2), (3, 1, 3), (3, 2, 1), (5, 2, 1)],
)
def test_rows_of_every_width(taps, stride, dilation, dtype):
    for width in WIDTHS:
        dst = (6 + dilation * taps, max(width, dilation * taps))
        case = case_of(taps, stride, dst=dst, dtype=dtype, dilations=(dilation, dilation))
        case.check(large=True)
        replace(case, pads_begin=(0, 0), pads_end=(1, 2)).check(large=True)
        replace(case, pads_begin=(2, 1), pads_end=(0, 0)).check(large=True)


@every_dtype
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows(rows, stride, dtype):
    for taps in (3, 5):
        case = case_of(taps, stride, dst=(rows, 37), dtype=dtype)
        replace(case, pads_begin=(taps - 1, 1), pads_end=(0, 1)).check(large=True)
        replace(case, pads_begin=(0, 1), pads_end=(taps - 2, 1)).check(large=True)


@every_dtype
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("step", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1)])
def test_volumes(step, dilation, transposed, dtype):
    """Also with planes that no tap reaches."""
    case = case_of(3, dst=(7, 9, 35), dtype=dtype, transposed=transposed)
    case = replace(case, strides=(step, 1, 1), dilations=(dilation, 1, 1))
    case.check(large=True)
    replace(case, kernel=(2, 3, 3), pads_end=(0, 1, 1)).check(large=True)


@every_dtype
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("view", ["contiguous", "inside", "spaced", "reversed"])
def test_past_the_caches(monkeypatch, view, accumulate, stride, dtype):
    """Bit for bit the same, and nothing between is touched."""
    case = case_of(3, stride, dst=(9, 41), dtype=dtype)
    arrays = case.formatted(*case.arrays())
    result = case.call(*arrays)
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    plans.plan_for.cache_clear()
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)
    assert case.call(*arrays, num_threads=2).tobytes() == result.tobytes()


@every_dtype
@pytest.mark.parametrize(("taps", "stride", "dilation"), [(5, 1, 1), (3, 1, 3), (3, 2, 1)])
@pytest.mark.parametrize("dst", [(40, 150), (5, 20, 66)])
def test_blocks_do_not_change_a_bit(monkeypatch, dst, taps, stride, dilation, dtype):
    case = case_of(taps, stride, dst=dst, dtype=dtype, dilations=(dilation,) * len(dst))
    assert_cuts_do_not_change_a_bit(monkeypatch, case, "PLANE_BYTES", (9, 11, 13, 20))


@every_dtype
@pytest.mark.parametrize(("taps", "stride"), [(3, 1), (5, 1), (3, 2), (5, 2)])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values(value, taps, stride, dtype):
    for width in (15, 31, 40):
        case = case_of(taps, stride, dst=(9, width), dtype=dtype)
        assert_value_reaches_what_it_touches(case, value)
