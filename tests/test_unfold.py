"""Few channels of diff_dst: taps unfolded, chosen and forced, and cut in every way."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_choice as choice
from gradops_cy import _convolution_taps as taps
from gradops_cy import _isa
from tests import forced
from tests.cases import conv_cases, layer, sequence
from tests.test_convolution_plans import plan_of

pytestmark = pytest.mark.skipif(not _isa.MULTIPLIES_BF16, reason="no products of pairs")

CASES = {
    "image": layer("40-3-17-4-2-1", transposed=True),
    "image, no stride": layer("33-3-20-9-1-4"),
    "inverse STFT": replace(sequence(70, 1, 301, kernel=64, stride=16), transposed=True),
    "dilated": layer("20-5-30-3-1-2", dilations=(2, 3)),
    "dilated, strides": layer("17-2-41-3-2-2", transposed=True, dilations=(3, 2)),
    "gaps": layer("16-2-40-2-5-0", transposed=True),
    "groups": layer("17-3-21-3-2-1", transposed=True, groups=3),
    "odd": layer("48-7-19-5-3-2", transposed=True),
    "padding": layer("16-3-9-3-2-5", transposed=True),
    "3-D": layer(
        "20-3-6-3-2-1",
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


def in_format(name, data_format):
    formats = {"NXC": ("XIO", "XOI"), "NCX": ("OIX", "IOX")}[data_format]
    case = CASES[name]
    return replace(
        case, dtype="bf16", data_format=data_format, weights_format=formats[case.transposed]
    )


@pytest.fixture
def everywhere(monkeypatch):
    """Unfold wherever that is possible."""

    def unfold(problem, assumed):
        able = problem.dtype == 2 and prod(taps.out_steps(problem)) == 1
        return choice.UNFOLD if able and not assumed else None

    yield from forced.kernel(monkeypatch, unfold)


@every_case
@every_format
def test_layers(everywhere, name, data_format):
    replace(in_format(name, data_format), batch=2).check(accumulate=True)


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


@every_format
def test_few_channels_are_unfolded(data_format):
    case = replace(in_format("image", data_format), inputs=128, dst=(64, 64))
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert "taps side by side" in plan.describe()
