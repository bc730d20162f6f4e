"""First layers and patches: the SCATTER kernel, chosen and forced, and cut in every way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans
from gradops_cy import _convolution_scatter as scatter
from tests import forced
from tests.cases import conv_cases, every_dtype, every_format, layer, sequence

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

# Strides of each way to deal residues out, chunks of channels, strips of a row, three axes.
ROWS = {
    "audio": sequence(1, 70, 3500, kernel=10, stride=5, begin=3),
    "4x4 s4": layer("3-33-20-4-4-0"),
    "stride 8": sequence(2, 65, 301, kernel=16, stride=8, begin=5, end=2),
    "3x3 s3": layer("2-40-37-3-3-1"),
    "no stride": layer("2-35-50-5-1-2"),
    "volume": layer(
        "2-34-0-0-0-0",
        dst=(3, 5, 18),
        kernel=(2, 3, 4),
        strides=(1, 2, 2),
        dilations=(1, 1, 3),
        pads_begin=(0, 1, 2),
        pads_end=(1, 0, 3),
    ),
}


@pytest.fixture
def everywhere(monkeypatch):
    """Compute every convolution that is not transposed by SCATTER."""
    yield from forced.kernel(
        monkeypatch, lambda problem, _: None if problem.transposed else kernels.SCATTER
    )


@pytest.fixture(params=["by columns", "along rows", "in pairs"])
def all_ways(monkeypatch, request, everywhere):
    """Compute them all by columns or, where planes allow it, along rows; bfloat16 also in pairs."""
    monkeypatch.setattr(scatter, "along_rows", lambda *_: request.param != "by columns")
    if request.param != "in pairs":
        monkeypatch.setattr(plans, "dot_parts", lambda *_: 0)


@every_dtype
@every_format
@pytest.mark.parametrize("name", FIRST)
def test_layers(everywhere, name, data_format, dtype):
    case = replace(FIRST[name], dtype=dtype, data_format=data_format, batch=2)
    case.check()
    for out_view in ("contiguous", "fortran order"):
        case.check(out_view=out_view, accumulate=True)


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


@every_dtype
@pytest.mark.parametrize("view", ["contiguous", "inside", "reversed"])
@pytest.mark.parametrize("name", [*FIRST, *ROWS])
def test_planes(all_ways, name, view, dtype):
    """Rows that go on where the next one begins or not, of whole vectors and of less than one."""
    case = replace({**FIRST, **ROWS}[name], dtype=dtype, data_format="NCX", batch=2)
    case.check(view=view, out_view=view, large=True)
    case.check(view=view, out_view=view, accumulate=True, large=True)


def test_any_planes(all_ways):
    @given(case=conv_cases())
    def check(case):
        replace(case, data_format="NCX").check()

    check()


@every_dtype
@pytest.mark.parametrize("name", [*FIRST, *ROWS])
def test_cuts_of_planes_do_not_change_a_bit(all_ways, monkeypatch, name, dtype):
    case = replace({**FIRST, **ROWS}[name], dtype=dtype, data_format="NCX")
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


@every_dtype
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_values_reach_what_they_touch(all_ways, value, dtype):
    case = replace(FIRST["7x7 s2"], dtype=dtype, data_format="NCX")
    forced.assert_value_reaches_what_it_touches(case, value)
