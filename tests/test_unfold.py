"""Few channels of diff_dst: taps unfolded for AMX, chosen and forced, and cut in every way."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_blocks as blocks
from gradops_cy import _convolution_choice as choice
from gradops_cy import _convolution_plan as plans
from gradops_cy import _convolution_taps as taps
from gradops_cy import _isa
from tests.cases import conv_cases, layer, sequence
from tests.test_convolution_plans import plan_of

pytestmark = pytest.mark.skipif(_isa.TIER != "amx", reason="unfolds for AMX alone")

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
def forced(monkeypatch):
    """Unfold wherever that is possible."""
    choose = choice.choose_kernel

    def unfold(problem, layout, tiles, exact_halo):
        if problem.dtype == 2 and prod(taps.out_steps(problem)) == 1 and not exact_halo:
            return choice.UNFOLD
        return choose(problem, layout, tiles, exact_halo)

    monkeypatch.setattr(choice, "choose_kernel", unfold)
    plans.plan_for.cache_clear()
    yield
    plans.plan_for.cache_clear()


@every_case
@every_format
def test_layers(forced, name, data_format):
    replace(in_format(name, data_format), batch=2).check(accumulate=True)


def test_any_convolution(forced):
    @given(case=conv_cases())
    def check(case):
        replace(case, dtype="bf16").check()

    check()


@every_case
@every_format
def test_cuts_do_not_change_a_bit(forced, monkeypatch, name, data_format):
    case = in_format(name, data_format)
    arrays = case.formatted(*case.arrays())
    whole = case.call(*arrays, num_threads=1)
    monkeypatch.setattr(blocks, "TASK_FLOP", 1)
    monkeypatch.setattr(plans, "THREAD_FLOP", 1)
    for workspace in (1 << 10, 1 << 14, 1 << 16, 1 << 20):
        monkeypatch.setattr(blocks, "WORKSPACE", workspace)
        for threads in (1, 3):
            plans.plan_for.cache_clear()
            assert case.call(*arrays, num_threads=threads).tobytes() == whole.tobytes()


@every_case
@every_format
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_reaches_what_it_touches(forced, name, data_format, value):
    case = in_format(name, data_format)
    arrays = case.arrays()
    for array in arrays:
        where = tuple(extent // 2 for extent in array.shape)
        kept, array[where] = array[where], value
        result = case.ncx(case.call(*case.formatted(*arrays))).astype(np.float64)
        with np.errstate(invalid="ignore"):
            exact, _ = case.exact(*arrays)
        assert 0 < np.isfinite(exact).sum() < exact.size
        np.testing.assert_array_equal(np.isfinite(result), np.isfinite(exact))
        np.testing.assert_array_equal(np.isnan(result), np.isnan(exact))
        array[where] = kept


@every_format
def test_few_channels_are_unfolded(data_format):
    case = replace(in_format("image", data_format), inputs=128, dst=(32, 32))
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert "taps side by side" in plan.describe()
