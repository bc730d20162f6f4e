"""Depthwise layers of bfloat16 whose rows of taps are multiplied in pairs, in place or in boxes."""

from dataclasses import replace

import numpy as np
import pytest

import gradops_cy
from gradops_cy import _isa
from gradops_cy._convolution_depthwise import pairs_columns, pairs_rows
from tests import forced
from tests.cases import POINTWISE, every_format
from tests.test_convolution import in_format
from tests.test_depthwise import along

PROBLEM = POINTWISE._replace(
    dtype=2, groups=64, diff_src_channels=64, diff_dst_channels=64, kernel=(1, 3, 3)
)


def case_of(kernel, *, channels=55, dst=None, data_format="NXC", **changes):
    """Return a layer whose pads are not the same at both ends."""
    dst = dst or (9, 21)[-len(kernel) :]
    case = along(kernel, dst=dst, dtype="bf16", groups=channels, **changes)
    return in_format(case, data_format, "bf16")


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, True),
        ({"dtype": 0}, False),
        ({"groups": 16}, False),  # of 32 channels of a tile
        ({"groups": 17}, True),
        ({"groups": 48}, False),
        ({"groups": 144}, True),
        ({"kernel": (1, 1, 7)}, False),  # one row
        ({"kernel": (2, 1, 1)}, True),
        ({"kernel": (1, 3, 3), "strides": (1, 2, 2)}, True),
        ({"kernel": (1, 3, 3), "strides": (1, 3, 1)}, False),  # one of a class
        ({"dilations": (1, 2, 1)}, True),
        ({"dilations": (1, 1, 2)}, False),
        ({"transposed": True, "strides": (1, 2, 1)}, True),
        ({"transposed": True, "strides": (1, 1, 2)}, False),
        ({"kernel": (1, 31, 31), "groups": 64}, True),
        ({"kernel": (1, 31, 31), "groups": 96}, False),  # more weights than a task should copy
    ],
)
def test_which_rows_are_paired(changes, rows):
    problem = PROBLEM._replace(**changes)
    assert pairs_rows(problem, True) == rows
    assert not pairs_rows(problem, False)


@pytest.mark.parametrize(
    ("kernel", "stride", "columns"),
    [(1, 1, False), (3, 1, False), (4, 1, True), (2, 2, False), (3, 2, True), (7, 2, True)],
)
def test_which_columns_are_paired(kernel, stride, columns):
    problem = PROBLEM._replace(kernel=(1, 3, kernel), strides=(1, 1, stride))
    assert pairs_columns(problem, True) == columns
    assert not pairs_columns(problem, False)
    assert not pairs_columns(problem._replace(dtype=1), True)


@pytest.fixture
def whole_vectors(monkeypatch):
    """Let times be those of a processor that multiplies 64 bytes at once."""
    yield from forced.whole_vectors(monkeypatch)


@pytest.mark.parametrize(
    ("channels", "width", "data_format", "pairs"),
    [
        (64, 28, "NXC", "channels, rows"),
        (64, 7, "NCX", "channels, rows"),
        (48, 28, "NCX", "positions, columns"),
    ],
)
def test_what_plans_tell(whole_vectors, channels, width, data_format, pairs):
    case = case_of((5, 5), channels=channels, dst=(28, width), data_format=data_format)
    plan = gradops_cy.convolution_backward_data_plan(
        case.shape,
        case.formatted(*case.arrays())[1],
        **case.geometry,
        pads_end=case.pads_end,
        data_format=data_format,
        weights_format=case.weights_format,
    )
    vectors = _isa.TIER == "v4bf16"
    assert (f"{pairs} in pairs" in plan.describe()) == vectors


@every_format
@pytest.mark.parametrize("channels", [23, 32, 93])
@pytest.mark.parametrize("height", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 9, 12])
def test_every_kernel(width, height, channels, data_format):
    """Of rows shorter than a tile, of some tiles and of one more position."""
    for columns in (1, 7, 8, 17):
        case = case_of(
            (height, width), channels=channels, dst=(6, columns), data_format=data_format
        )
        case.check(large=True)
        replace(
            case, transposed=True, weights_format="XOI", dst=(height + 3, columns + width)
        ).check(large=True)


@every_format
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("strides", [(2, 1), (1, 2), (2, 2), (3, 2), (2, 3)])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("kernel", [(3, 3), (4, 2), (5, 5), (7, 4)])
def test_strides_and_dilations(kernel, dilation, strides, transposed, data_format):
    case = case_of(kernel, strides=strides, dilations=(dilation, 1), transposed=transposed)
    case = in_format(case, data_format, "bf16")
    case = replace(case, dst=(27, 40) if transposed else (7, 20))
    case.check(large=True)
    replace(case, pads_begin=(0, 0), pads_end=(1, 1)).check(large=True)


@every_format
@pytest.mark.parametrize("view", ["contiguous", "inside", "spaced", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_views(strides, accumulate, view, data_format):
    case = case_of((3, 5), strides=strides, data_format=data_format)
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_format
@pytest.mark.parametrize("kernel", [(5,), (2, 3, 3), (3, 3, 4)])
@pytest.mark.parametrize("stride", [1, 2])
def test_other_ranks(stride, kernel, data_format):
    """Rows of taps of two depths are neighbours, too."""
    rank = len(kernel)
    dst = (4, 5, 18)[-rank:]
    case = case_of(kernel, dst=dst, strides=(stride,) * rank, data_format=data_format)
    case.check(large=True)


@every_format
@pytest.mark.parametrize("channels", [32, 93, 150])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_cuts_do_not_change_a_bit(monkeypatch, strides, channels, data_format):
    case = case_of((3, 3), channels=channels, dst=(30, 33), strides=strides)
    case = in_format(case, data_format, "bf16")
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


@every_format
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("kernel", [(2, 4), (3, 3), (5, 5)])
def test_special_values(kernel, strides, value, data_format):
    case = case_of(kernel, strides=strides, data_format=data_format, dst=(8, 33))
    forced.assert_value_reaches_what_it_touches(case, value)
