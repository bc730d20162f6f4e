"""float32 and float16 in bfloat16 parts for AMX: exact in all ranges, and cut in every way."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_plan as plans
from gradops_cy import _convolution_split as split
from gradops_cy import _convolution_threads, _isa
from tests import forced
from tests.cases import conv_cases, every_format, layer
from tests.test_convolution_plans import plan_of
from tests.test_pairs import SHAPES, in_format
from tests.tolerances import assert_close

pytestmark = pytest.mark.skipif(_isa.TIER != "amx", reason="AMX alone multiplies parts")

every_case = pytest.mark.parametrize("name", [*SHAPES, "first layer"])
every_order = pytest.mark.parametrize("outputs_first", [False, True])
every_dtype = pytest.mark.parametrize("dtype", ["f32", "f16"])


def case_of(name, data_format, dtype, outputs_first=True):
    if name == "first layer":
        case = replace(layer("3-40-33-7-2-3"), data_format=data_format)
        return replace(case, dtype=dtype, weights_format=("XIO", "OIX")[outputs_first])
    return replace(in_format(SHAPES[name], data_format, outputs_first), dtype=dtype)


@pytest.fixture
def everywhere(monkeypatch):
    """Split wherever that is possible."""
    monkeypatch.setattr(split, "pays", lambda *_: True)
    yield from forced.other_plans()


def test_large_layers_are_split():
    case = replace(layer("64-64-30-3-1-1"), dtype="f32")
    assert "3 parts" in plan_of(case, case.formatted(*case.arrays())[1]).describe()


@every_case
@every_format
@every_order
@every_dtype
def test_layers(everywhere, name, data_format, outputs_first, dtype):
    replace(case_of(name, data_format, dtype, outputs_first), batch=2).check()


@every_dtype
def test_any_convolution(everywhere, dtype):
    @given(case=conv_cases())
    def check(case):
        replace(case, dtype=dtype).check()

    check()


@every_case
@every_format
@every_dtype
def test_threads_do_not_change_a_bit(everywhere, monkeypatch, name, data_format, dtype):
    case = case_of(name, data_format, dtype)
    arrays = case.formatted(*case.arrays())
    whole = case.call(*arrays, num_threads=1)
    monkeypatch.setattr(_convolution_threads, "TASK_FLOP", 1)
    monkeypatch.setattr(plans, "THREAD_FLOP", 1)
    plans.plan_for.cache_clear()
    assert case.call(*arrays, num_threads=3).tobytes() == whole.tobytes()


@every_case
@every_format
@every_dtype
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_reaches_what_it_touches(everywhere, name, data_format, dtype, value):
    forced.assert_value_reaches_what_it_touches(case_of(name, data_format, dtype), value)


def test_every_nan_is_one(everywhere):
    case = case_of("image", "NXC", "f32")
    for bits in (0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF):
        value = np.array([bits], np.uint32).view(np.float32)[0]
        forced.assert_value_reaches_what_it_touches(case, value)


@every_format
@pytest.mark.parametrize("name", ["image", "no kernel", "many channels", "transposed"])
@pytest.mark.parametrize(
    ("of_diff_dst", "of_weights"),
    [(-140, 0), (-126, 10), (0, -140), (-60, -60), (-100, 100), (40, 40), (100, -100), (120, 0)],
)
def test_ranges(everywhere, name, data_format, of_diff_dst, of_weights):
    """Scaled by powers of two: subnormal, tiny and too large for the sums of parts."""
    case = case_of(name, data_format, "f32")
    dy, weights = case.arrays()
    dy, weights = np.ldexp(dy, of_diff_dst), np.ldexp(weights, of_weights)
    result = case.call(*case.formatted(dy, weights))
    assert_close(case.ncx(result), *case.exact(dy, weights))


@every_format
def test_neighbours_of_what_is_large(everywhere, data_format):
    case = case_of("image", data_format, "f32")
    dy, weights = case.arrays()
    exact, magnitude = case.exact(dy, weights)
    dy[0, 5, 9, 9] = 1e37
    large, large_magnitude = case.exact(dy, weights)
    given = case.formatted(dy, weights)
    results = [case.call(*given), plan_of(case, given[1])(given[0])]
    assert results[0].tobytes() == results[1].tobytes()
    assert_close(case.ncx(results[0]), large, large_magnitude)
    assert (np.abs(large - exact) > magnitude).any()


def test_a_plan_takes_both_kinds_of_values(everywhere):
    case = case_of("no kernel", "NXC", "f32")
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    for scale in (1, 1e30, 1):
        given = (dy * np.float32(scale)).astype(np.float32)
        assert plan(given).tobytes() == case.call(given, weights).tobytes()
    plan.set_weights(2 * weights)
    for scale in (1, 1e30):
        given = (dy * np.float32(scale)).astype(np.float32)
        assert plan(given).tobytes() == case.call(given, 2 * weights).tobytes()
