"""First layers and patches: the SCATTER kernel, chosen and forced, and cut in every way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_choice as choice
from tests import forced
from tests.cases import conv_cases, every_dtype, every_format, layer

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
def everywhere(monkeypatch):
    """Compute every convolution that is not transposed by SCATTER."""
    yield from forced.kernel(
        monkeypatch, lambda problem, _: None if problem.transposed else choice.SCATTER
    )


@every_dtype
@every_format
@pytest.mark.parametrize("name", FIRST)
def test_layers(everywhere, name, data_format, dtype):
    case = replace(FIRST[name], dtype=dtype, data_format=data_format, batch=2)
    case.check()
    case.check(out_view="contiguous", accumulate=True)


def test_any_convolution(everywhere):
    @given(case=conv_cases())
    def check(case):
        case.check()

    check()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@every_format
@pytest.mark.parametrize("name", FIRST)
def test_cuts_do_not_change_a_bit(everywhere, monkeypatch, name, data_format, dtype):
    case = replace(FIRST[name], dtype=dtype, data_format=data_format)
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


def test_weights_that_are_not_finite_meet_no_padding(everywhere):
    case = layer("3-16-9-3-1-1")
    dy, weights = case.formatted(*case.arrays())
    weights[0] = np.inf
    assert np.isfinite(case.call(dy, weights)[:, -1]).all()
