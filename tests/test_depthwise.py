"""Depthwise layers with strides whose columns are summed beside each other."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy._convolution_depthwise import stride_columns
from gradops_cy._convolution_problem import ConvProblem
from tests.cases import layer
from tests.forced import assert_cuts_do_not_change_a_bit, assert_value_reaches_what_it_touches
from tests.test_convolution import in_format
from tests.tolerances import DTYPES

# Kernel, stride, channels.
FILTERS = [(16, 8, 21), (4, 2, 3), (8, 8, 3), (6, 3, 1), (12, 4, 9), (16, 4, 33)]

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_format = pytest.mark.parametrize("data_format", ["NXC", "NCX"])
every_filter = pytest.mark.parametrize(("kernel", "stride", "channels"), FILTERS)


def case_of(kernel, stride, channels, dtype="f32", data_format="NXC", **changes):
    """Return a transposed layer whose pads leave some columns out at both ends."""
    pads = {"pads_begin": (1, stride - 1), "pads_end": (kernel - stride, 1)}
    changes = {"dst": (kernel + stride, kernel + 22 * stride + 1), **pads, **changes}
    case = layer(f"1-1-9-{kernel}-{stride}-0", transposed=True, groups=channels, **changes)
    return in_format(case, data_format, dtype)


PROBLEM = ConvProblem(
    transposed=True,
    dtype=0,
    batch=1,
    groups=21,
    diff_src_channels=21,
    diff_dst_channels=21,
    diff_src=(1, 8, 8),
    diff_dst=(1, 18, 18),
    kernel=(1, 4, 4),
    strides=(1, 2, 2),
    dilations=(1, 1, 1),
    pads_begin=(0, 0, 0),
    rank=2,
)


@every_filter
def test_columns_of_a_stride(kernel, stride, channels):
    problem = replace(
        PROBLEM, groups=channels, kernel=(1, kernel, kernel), strides=(1, stride, stride)
    )
    assert stride_columns(problem, 16) == stride


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": (1, 4, 3)},
        {"dilations": (1, 1, 2)},
        {"strides": (1, 2, 1)},
        {"groups": 64},  # no lanes without work
        {"kernel": (1, 1, 2)},  # as much to add up as to multiply
        {"transposed": False},
    ],
)
def test_columns_by_themselves(changes):
    assert stride_columns(replace(PROBLEM, **changes), 16) == 1


@every_dtype
@every_format
@every_filter
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_values(kernel, stride, channels, data_format, dtype, view, accumulate):
    case = case_of(kernel, stride, channels, dtype, data_format, batch=2)
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
@pytest.mark.parametrize(("begin", "end"), [(0, 0), (7, 9), (40, 3), (3, 40)])
@pytest.mark.parametrize("width", [1, 5, 16, 31])
def test_rows_of_which_positions_read_nothing(begin, end, width, dtype):
    if width + begin + end < 4:
        end = 3
    case_of(4, 2, 7, dtype, dst=(6, width), pads_begin=(0, begin), pads_end=(0, end)).check()


@every_dtype
@every_format
@pytest.mark.parametrize("name", [0, 1, 4])
def test_cuts_do_not_change_a_bit(monkeypatch, name, data_format, dtype):
    assert_cuts_do_not_change_a_bit(monkeypatch, case_of(*FILTERS[name], dtype, data_format))


@every_dtype
@every_format
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values(value, data_format, dtype):
    assert_value_reaches_what_it_touches(case_of(4, 2, 5, dtype, data_format), value)
