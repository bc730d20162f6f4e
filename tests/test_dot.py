"""Products of bfloat16 pairs: forced for every shape and for groups, and cut in every way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_choice as choice
from gradops_cy import _isa
from tests import forced
from tests.cases import conv_cases, layer
from tests.test_convolution_plans import plan_of
from tests.test_pairs import CASES, in_format

pytestmark = pytest.mark.skipif(not _isa.MULTIPLIES_BF16, reason="no products of pairs")

GROUPS = {
    "of 2": layer("2-2-19-3-1-1", groups=21),
    "of 4": layer("4-4-23-3-1-1", groups=9),
    "of 8, strides": layer("8-8-20-3-2-1", groups=5),
    "of 8, transposed": layer("8-8-11-4-2-1", groups=5, transposed=True),
    "of 3 and 6": layer("3-6-17-3-1-1", groups=7),
    "of 12 and 10, dilated": layer("12-10-21-3-1-2", groups=3, dilations=(2, 2)),
    "odd": layer("6-5-13-3-1-1", groups=4),
}
every_case = pytest.mark.parametrize("name", CASES)
every_group = pytest.mark.parametrize("name", GROUPS)
every_format = pytest.mark.parametrize("data_format", ["NXC", "NCX"])


def groups_in_format(name, data_format):
    formats = {"NXC": ("XIO", "XOI"), "NCX": ("OIX", "IOX")}[data_format]
    case = GROUPS[name]
    return replace(
        case, dtype="bf16", data_format=data_format, weights_format=formats[case.transposed]
    )


@pytest.fixture
def everywhere(monkeypatch):
    """Multiply pairs wherever that is possible."""

    def dot(problem, assumed):
        return choice.DOT if problem.dtype == 2 and not assumed else None

    yield from forced.kernel(monkeypatch, dot)


@pytest.fixture
def grouped(monkeypatch):
    """Take lanes over many groups."""

    def lanes(problem, assumed):
        return choice.GROUPED if problem.groups > 1 and not assumed else None

    yield from forced.kernel(monkeypatch, lanes)


@every_case
@every_format
def test_layers(everywhere, name, data_format):
    replace(in_format(name, data_format), batch=2).check(accumulate=True)
    replace(in_format(name, data_format, outputs_first=False), batch=2).check()


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


@every_group
@every_format
def test_groups(grouped, name, data_format):
    replace(groups_in_format(name, data_format), batch=2).check(accumulate=True)


@every_group
@every_format
def test_cuts_of_groups_do_not_change_a_bit(grouped, monkeypatch, name, data_format):
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, groups_in_format(name, data_format))


@every_group
@every_format
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_in_groups_it_reaches_no_other(grouped, name, data_format, value):
    forced.assert_value_reaches_what_it_touches(groups_in_format(name, data_format), value)


def test_taps_outside_are_left_out_without_a_change(everywhere, monkeypatch):
    """Taps farther apart than a tile: half of the products are with padding."""
    case = replace(in_format("image", "NXC"), dst=(33, 33), dilations=(13, 14))
    case = replace(case, pads_begin=(13, 14), pads_end=(13, 14))
    case.check()
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


def test_chosen():
    case = replace(in_format("no kernel", "NXC"), inputs=128, outputs=64)
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert "kernel    dot" in plan.describe()
