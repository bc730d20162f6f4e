"""First layers and patches: the SCATTER kernel, chosen and forced, and cut in every way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_blocks as blocks
from gradops_cy import _convolution_choice as choice
from gradops_cy import _convolution_plan as plans
from tests.cases import conv_cases, layer
from tests.tolerances import DTYPES

FIRST = {
    "7x7 s2": layer("3-64-17-7-2-3"),
    "3x3": layer("3-16-40-3-1-1"),
    "5x5, one channel": layer("1-20-30-5-1-2"),
    "patches": layer("3-40-5-16-16-0"),
    "dilated": layer("2-33-21-3-1-2", dilations=(2, 2)),
    "groups": layer("3-17-11-3-2-1", groups=3),
    "wide": layer("3-16-9-3-2-1", dst=(5, 700)),
    "gaps": layer("2-16-9-2-5-0"),
}


@pytest.fixture
def forced(monkeypatch):
    """Compute every convolution that is not transposed by SCATTER."""
    choose = choice.choose_kernel

    def scatter(problem, *rest):
        return choose(problem, *rest) if problem.transposed else choice.SCATTER

    monkeypatch.setattr(choice, "choose_kernel", scatter)
    plans.plan_for.cache_clear()
    yield
    plans.plan_for.cache_clear()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("name", FIRST)
def test_layers(forced, name, data_format, dtype):
    replace(FIRST[name], dtype=dtype, data_format=data_format, batch=2).check(accumulate=True)


def test_any_convolution(forced):
    @given(case=conv_cases())
    def check(case):
        case.check()

    check()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("name", FIRST)
def test_cuts_do_not_change_a_bit(forced, monkeypatch, name, data_format, dtype):
    case = replace(FIRST[name], dtype=dtype, data_format=data_format)
    arrays = case.formatted(*case.arrays())
    whole = case.call(*arrays, num_threads=1)
    monkeypatch.setattr(blocks, "TASK_FLOP", 1)
    monkeypatch.setattr(plans, "THREAD_FLOP", 1)
    for workspace in (1 << 10, 1 << 14, 1 << 16, 1 << 20):
        monkeypatch.setattr(blocks, "WORKSPACE", workspace)
        for threads in (1, 3):
            plans.plan_for.cache_clear()
            assert case.call(*arrays, num_threads=threads).tobytes() == whole.tobytes()


def test_weights_that_are_not_finite_meet_no_padding(forced):
    case = layer("3-16-9-3-1-1")
    dy, weights = case.formatted(*case.arrays())
    weights[0] = np.inf
    assert np.isfinite(case.call(dy, weights)[:, -1]).all()
