"""3x3 filters by Winograd's F(2x2, 3x3): wherever it can be, cut in every way, how exact it is."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_blocks as blocks
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans
from gradops_cy import _convolution_winograd as winograd
from tests import forced
from tests.cases import POINTWISE, conv_cases, every_format, every_narrow_dtype, layer, volume
from tests.test_convolution import in_format
from tests.test_convolution_plans import plan_of
from tests.tolerances import assert_close

SHAPES = {
    "image": layer("33-47-20-3-1-1"),
    "odd extents": layer("16-20-0-3-1-1", dst=(7, 13)),
    "four pixels": layer("20-16-2-3-1-1"),
    "two rows": layer("17-9-0-3-1-1", dst=(2, 150)),
    "no padding": layer("24-40-9-3-1-0"),
    "padding beyond the filter": layer("8-16-5-3-1-3"),
    "one side": layer("16-16-9-3-1-0", pads_begin=(2, 0), pads_end=(0, 1)),
    "few channels": layer("3-2-11-3-1-1"),
    "many channels": layer("20-700-6-3-1-1"),
    "groups": layer("17-19-21-3-1-1", groups=3),
    "dilated": layer("20-35-30-3-1-2", dilations=(2, 3), pads_begin=(2, 3), pads_end=(3, 2)),
    "dilated to the ends": layer("9-16-10-3-1-9", dilations=(9, 9)),
    "transposed": layer("40-33-17-3-1-1", transposed=True),
    "transposed, dilated": layer("18-16-12-3-1-2", transposed=True, dilations=(2, 1)),
    "volume": volume(20, 17, (5, 6, 9)),
    "volume, transposed": volume(16, 24, (6, 5, 8), transposed=True),
    "planes": layer(
        "24-16-0-0-0-0",
        dst=(5, 6, 7),
        kernel=(2, 3, 3),
        strides=(1, 1, 1),
        dilations=(2, 1, 2),
        pads_begin=(1, 1, 2),
        pads_end=(2, 1, 2),
    ),
}
PROBLEM = POINTWISE._replace(
    diff_src_channels=64,
    diff_dst_channels=64,
    diff_src=(1, 56, 56),
    diff_dst=(1, 56, 56),
    kernel=(1, 3, 3),
    pads_begin=(0, 1, 1),
)
every_case = pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES)


@pytest.fixture
def everywhere(monkeypatch):
    """Transform wherever that is possible."""
    monkeypatch.setattr(winograd, "pays", lambda *_: True)
    monkeypatch.setattr(plans, "dot_parts", lambda *_: 0)
    yield from forced.kernel(monkeypatch, lambda *_: kernels.ROWS)


def transforms(case):
    return "Winograd" in plan_of(case, case.formatted(*case.arrays())[1]).describe()


def exact_beside_largest(case, dy, weights):
    """Return what a case's exact does, magnitudes of the largest tap of a filter for each."""
    exact, _ = case.exact(dy, weights)
    largest = np.abs(weights).max(axis=(-2, -1), keepdims=True)
    _, magnitude = case.exact(dy, np.broadcast_to(largest, weights.shape))
    return exact, magnitude


@every_narrow_dtype
@every_format
@every_case
def test_layers(everywhere, case, data_format, dtype):
    case = replace(in_format(case, data_format, dtype), batch=2)
    assert transforms(case)
    case.check()
    case.check(view="inside", out_view="spaced")
    case.check(view="reversed", out_view="inside")
    case.check(out_view="contiguous", accumulate=True)


def test_any_convolution(everywhere):
    @given(case=conv_cases())
    def check(case):
        case.check(exact=exact_beside_largest(case, *case.arrays()) if transforms(case) else None)

    check()


@every_format
@every_case
@pytest.mark.parametrize("weights_format", ["XIO", "OIX"])
def test_weights_in_every_order(everywhere, case, data_format, weights_format):
    if case.transposed:
        weights_format = {"XIO": "XOI", "OIX": "IOX"}[weights_format]
    replace(case, data_format=data_format, weights_format=weights_format).check()


@every_format
@every_case
def test_cuts_do_not_change_a_bit(everywhere, monkeypatch, case, data_format):
    case = replace(in_format(case, data_format, "f32"), batch=3)
    monkeypatch.setattr(blocks, "WINOGRAD_WORKSPACE_OF_WHOLE", 0)
    forced.assert_cuts_do_not_change_a_bit(
        monkeypatch, case, "WINOGRAD_WORKSPACE", sizes=(10, 15, 17, 19)
    )


def test_rows_of_dilated_groups_are_not_cut(everywhere, monkeypatch):
    """Their tiles lie between each other, however much the groups of a row touch."""
    case = layer("16-16-0-3-1-3", dst=(6, 490), groups=2, dilations=(3, 3))
    for name in ("TOUCHED", "WINOGRAD_WORKSPACE", "WINOGRAD_WORKSPACE_OF_WHOLE"):
        monkeypatch.setattr(blocks, name, 0)
    assert transforms(case)
    case.check()


@every_format
@every_case
def test_batches_do_not_change_a_bit(everywhere, case, data_format):
    case = replace(in_format(case, data_format, "f32"), batch=3)
    dy, weights = case.formatted(*case.arrays())
    whole = case.call(dy, weights)
    for image in range(3):
        alone = replace(case, batch=1).call(dy[image : image + 1], weights)
        assert alone.tobytes() == whole[image : image + 1].tobytes()


@every_format
@every_case
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_reach_what_they_touch_alone(everywhere, case, value, data_format):
    forced.assert_value_reaches_what_it_touches(in_format(case, data_format, "f32"), value)


@every_format
@pytest.mark.parametrize(
    ("of_diff_dst", "of_weights"), [(-60, -60), (-100, 100), (40, 40), (127, -10)]
)
def test_ranges(everywhere, data_format, of_diff_dst, of_weights):
    """Scaled by powers of two: tiny, and so large that patches overflow."""
    case = in_format(SHAPES["image"], data_format, "f32")
    dy, weights = case.arrays()
    dy = np.ldexp(dy / 8, of_diff_dst)
    weights = np.ldexp(weights, of_weights)
    result = case.call(*case.formatted(dy, weights))
    assert_close(case.ncx(result), *case.exact(dy, weights))


@every_format
@every_case
def test_plans_take_all_values(everywhere, case, data_format):
    case = in_format(case, data_format, "f32")
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    assert plan(dy).tobytes() == case.call(dy, weights).tobytes()
    dy[tuple(extent // 2 for extent in dy.shape)] = np.inf
    np.testing.assert_array_equal(plan(dy), case.call(dy, weights))


@every_format
def test_errors_are_beside_the_largest_of_a_filter(everywhere, data_format):
    """Not beside each product, where the taps of a filter differ by orders of magnitude."""
    case = in_format(SHAPES["image"], data_format, "f32")
    dy, weights = case.arrays()
    rng = np.random.default_rng(3)
    weights *= np.float32(10) ** rng.integers(-4, 5, weights.shape).astype(np.float32)
    dy *= rng.random(dy.shape) < 0.1
    result = case.ncx(case.call(*case.formatted(dy, weights)))
    assert_close(result, *exact_beside_largest(case, dy, weights))


def pays(lanes=8, **changes):
    return winograd.pays(PROBLEM._replace(**changes), lanes)


def square(extent):
    return {"diff_src": (1, extent, extent), "diff_dst": (1, extent, extent)}


def test_which_layers_are_transformed():
    """Those of enough channels and tiles, whatever the batch, in tiers of every vector."""
    assert pays()
    assert pays(lanes=4)
    assert pays(lanes=16)
    assert pays(**square(8))
    assert not pays(**square(5))
    assert not pays(diff_src_channels=4)
    assert not pays(diff_dst_channels=8, **square(14))
    assert not pays(dilations=(1, 24, 24))
    assert pays(diff_src=(9, 56, 56), diff_dst=(9, 56, 56))
    assert not pays(diff_src=(99, 5, 5), diff_dst=(99, 5, 5))  # images


@pytest.mark.parametrize(("rate", "worth"), [(6, True), (12, False), (18, False)])
def test_products_with_padding_are_not_counted(rate, worth):
    """Taps far apart read padding at most positions: ROWS leaves those out, patches do not."""
    layer = square(33) | {"dilations": (1, rate, rate), "pads_begin": (0, rate, rate)}
    assert pays(**layer) == worth


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": (1, 3, 1)},
        {"kernel": (1, 5, 5)},
        {"strides": (1, 2, 1)},
        {"rank": 1},
        {"dtype": 3},
        {"dilations": (1, 1, 2), "diff_src": (1, 9, 1000)},
    ],
)
def test_what_is_not_transformed(changes):
    assert winograd.fits(PROBLEM)
    assert not winograd.fits(PROBLEM._replace(**changes))


def test_what_must_not_be_computed_again_is_not_transformed():
    last = forced.CHANNELS_LAST
    assert forced.choice_of(PROBLEM).winograd or kernels.tiles_of(False).amx
    assert not forced.choice_of(PROBLEM, layout=last._replace(accumulate=True)).winograd
    assert not forced.choice_of(PROBLEM, assumed=kernels.FINITE).winograd


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_environment_turns_it_off(value):
    code = (
        "import gradops_cy; from gradops_cy import _convolution_winograd as w;"
        "from tests.test_winograd import PROBLEM;"
        "print(w.fits(PROBLEM), gradops_cy.show_config('dicts')['kernels']['winograd'])"
    )
    environment = {**os.environ, "GRADOPS_WINOGRAD": value}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(value == "1")] * 2
