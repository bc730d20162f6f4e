"""Channels first in bfloat16: rows of diff_dst two by two, forced, and cut in every way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_choice as choice
from gradops_cy import _isa
from tests import forced
from tests.cases import conv_cases, layer, sequence
from tests.test_convolution_plans import plan_of

pytestmark = pytest.mark.skipif(not _isa.MULTIPLIES_BF16, reason="no products of pairs")

CASES = {
    "image": layer("33-47-20-3-1-1"),
    "image, narrow": layer("64-64-7-3-1-1"),
    "no kernel": layer("70-40-19-1-1-0"),
    "strides": layer("20-18-17-3-2-1"),
    "transposed": layer("40-33-17-4-2-1", transposed=True),
    "transposed, strides of 3": layer("16-5-13-5-3-2", transposed=True),
    "long": sequence(50, 65, 301, kernel=3, dilation=4),
    "many channels": layer("20-700-6-3-1-1"),
    "dilated": layer("20-35-30-3-1-2", dilations=(2, 3)),
    "gaps": layer("16-2-40-2-5-0", transposed=True),
    "groups": layer("17-19-21-3-1-1", groups=3),
    "one channel": layer("1-1-19-5-1-2"),
    "padding": layer("16-3-9-3-2-5", transposed=True),
    "3-D": layer(
        "20-37-6-3-2-1",
        transposed=True,
        dst=(6, 7, 9),
        kernel=(3, 2, 4),
        strides=(1, 2, 2),
        dilations=(2, 1, 1),
        pads_begin=(1, 0, 2),
        pads_end=(1, 1, 0),
    ),
}
every_case = pytest.mark.parametrize("name", CASES)
every_format = pytest.mark.parametrize("data_format", ["NXC", "NCX"])
every_order = pytest.mark.parametrize("outputs_first", [False, True])


def in_format(name, data_format, outputs_first=True):
    case = CASES[name]
    weights = ("XIO", "OIX") if not case.transposed else ("XOI", "IOX")
    return replace(
        case, dtype="bf16", data_format=data_format, weights_format=weights[outputs_first]
    )


@pytest.fixture
def everywhere(monkeypatch):
    """Read pairs wherever that is possible."""

    def pairs(problem, assumed):
        return choice.PAIRS if problem.dtype == 2 and not assumed else None

    yield from forced.kernel(monkeypatch, pairs)


@every_case
@every_format
@every_order
def test_layers(everywhere, name, data_format, outputs_first):
    replace(in_format(name, data_format, outputs_first), batch=2).check(accumulate=True)


def test_any_convolution(everywhere):
    @given(case=conv_cases())
    def check(case):
        replace(case, dtype="bf16").check()

    check()


@every_case
@every_format
def test_cuts_do_not_change_a_bit(everywhere, monkeypatch, name, data_format):
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, in_format(name, data_format))


@every_case
@every_format
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_reaches_what_it_touches(everywhere, name, data_format, value):
    forced.assert_value_reaches_what_it_touches(in_format(name, data_format), value)


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
def test_chosen_channels_first(data_format):
    case = replace(in_format("no kernel", data_format), inputs=128, outputs=64)
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert ("kernel    pairs" in plan.describe()) == (data_format == "NCX")
