"""Packed weights that no cache holds go past the caches: here of whatever size they are."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import _convolution_program as program
from gradops_cy import _processor
from tests.cases import every_dtype, every_format, layer, volume
from tests.forced import other_plans
from tests.test_convolution_plans import plan_of
from tests.tolerances import assert_same_values

SHAPES = {
    "whole blocks": layer("64-32-5-3-1-1"),
    "a rest of channels": layer("70-33-5-3-1-1"),
    "fewer than a vector": layer("12-6-5-3-1-1", groups=2),
    "pixels": layer("48-64-5-1-1-0"),
    "a volume": volume(32, 20, (3, 4, 4)),
    "transposed": layer("36-24-5-3-2-1", transposed=True),
    "a first layer": layer("3-40-9-7-2-3"),
    "from one channel": layer("1-48-9-5-3-2"),
    "groups": layer("16-16-6-3-1-1", groups=4),
    "odd channels": layer("21-19-5-2-1-0"),
    "odd and many channels": layer("20-1027-3-2-1-0"),
}
every_shape = pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)
every_order = pytest.mark.parametrize(("first", "swapped"), [(0, 0), (0, 1), (1, 0), (1, 1)])


@pytest.fixture(autouse=True)
def streaming(monkeypatch):
    """Do what is done on processors where it pays, with any weights."""
    monkeypatch.setattr(_processor, "ZEN4", True)
    monkeypatch.setattr(program, "STREAM_PANELS", 0)
    monkeypatch.setattr(program, "WEIGHTS_AHEAD", 4)
    yield from other_plans()


def in_format(case, dtype, data_format, first):
    """Return the case with the kernel's axes first or last in the weights."""
    order = ("XOI", "IOX")[first] if case.transposed else ("XIO", "OIX")[first]
    return replace(case, dtype=dtype, data_format=data_format, weights_format=order)


def check(case, dy, weights, swapped):
    """Compare a plan's result, with the weights' two axes of channels swapped in memory or not."""
    diff_dst, formatted = case.formatted(dy, weights)
    if swapped:
        axes = (0, 1) if case.weights_format[0] != "X" else (-1, -2)
        formatted = np.ascontiguousarray(formatted.swapaxes(*axes)).swapaxes(*axes)
    result = case.ncx(plan_of(case, formatted)(diff_dst))
    with np.errstate(invalid="ignore"):
        exact = case.exact(dy, weights)
    assert_same_values(result, *exact)


@every_shape
@every_dtype
@every_format
@every_order
def test_results(case, dtype, data_format, first, swapped):
    case = in_format(case, dtype, data_format, first)
    check(case, *case.arrays(), swapped)


@every_shape
@every_dtype
@every_order
@pytest.mark.parametrize("where", ["first", "last", "middle"])
def test_what_is_not_finite_is_found(case, dtype, first, swapped, where):
    """It reaches the positions that it is a factor of, and no padding: by another plan."""
    case = in_format(case, dtype, "NXC", first)
    dy, weights = case.arrays()
    place = {"first": 0, "last": weights.size - 1, "middle": weights.size // 2}[where]
    weights.flat[place] = np.inf
    check(case, dy, weights, swapped)
