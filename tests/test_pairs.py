"""bfloat16 in pairs: each kernel that takes them, forced for every shape, and cut in every way."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given

from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_taps as taps
from gradops_cy import _isa
from tests import forced
from tests.cases import conv_cases, every_format, layer, sequence, volume
from tests.test_convolution_plans import plan_of
from tests.views import VIEWS

pytestmark = pytest.mark.skipif(not _isa.MULTIPLIES_BF16, reason="no products of pairs")

SHAPES = {
    "image": layer("33-47-20-3-1-1"),
    "image, narrow": layer("64-64-7-3-1-1"),
    "small images": layer("40-33-5-3-1-1", batch=9),
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
    "eight channels of diff_src": layer("8-24-23-3-1-1"),
    "few channels of diff_src": layer("5-33-17-4-2-1", transposed=True),
    "few channels of diff_src, many": layer("3-700-6-3-1-1"),
    "few channels of diff_src, strides": layer("7-12-19-3-2-1", groups=2),
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
FEW_OUTPUTS = {
    "image": layer("40-3-17-4-2-1", transposed=True),
    "image, no stride": layer("33-3-20-9-1-4"),
    "inverse STFT": replace(sequence(70, 1, 301, kernel=64, stride=16), transposed=True),
    "dilated": layer("20-5-30-3-1-2", dilations=(2, 3)),
    "dilated, strides": layer("17-2-41-3-2-2", transposed=True, dilations=(3, 2)),
    "gaps": SHAPES["gaps"],
    "groups": layer("17-3-21-3-2-1", transposed=True, groups=3),
    "odd": layer("48-7-19-5-3-2", transposed=True),
    "padding": SHAPES["padding"],
    "3-D": replace(SHAPES["3-D"], outputs=3),
    # Even: the taps are packed by themselves, in vectors where their number is a power of two.
    "even": layer("40-22-17-2-2-0", transposed=True),
    "even, odd taps": layer("37-26-13-3-1-1"),
    "even, groups": layer("19-6-11-4-2-1", transposed=True, groups=3),
    "even, 3-D": replace(SHAPES["3-D"], outputs=4),
    "even, long": replace(sequence(35, 6, 301, kernel=16, stride=8), transposed=True),
}
GROUPS = {
    "of 2": layer("2-2-19-3-1-1", groups=21),
    "of 4": layer("4-4-23-3-1-1", groups=9),
    "of 8 and 18": layer("8-18-23-3-1-1", groups=5),
    "of 8, strides": layer("8-8-20-3-2-1", groups=5),
    "of 8, transposed": layer("8-8-11-4-2-1", groups=5, transposed=True),
    "of 3 and 6": layer("3-6-17-3-1-1", groups=7),
    "of 4, 3-D": replace(volume(4, 4, (8, 9, 11)), groups=6),
    "of 12 and 10, dilated": layer("12-10-21-3-1-2", groups=3, dilations=(2, 2)),
    "odd": layer("6-5-13-3-1-1", groups=4),
}
KERNELS = {
    "dot": (kernels.DOT, SHAPES, lambda problem: True),
    "pairs": (kernels.PAIRS, SHAPES, lambda problem: True),
    "unfold": (kernels.UNFOLD, FEW_OUTPUTS, lambda problem: prod(taps.out_steps(problem)) == 1),
    "grouped": (kernels.GROUPED, GROUPS, lambda problem: problem.groups > 1),
}
every_kernel = pytest.mark.parametrize("everywhere", KERNELS, indirect=True)
every_case = pytest.mark.parametrize(
    ("everywhere", "case"),
    [
        pytest.param(kernel, case, id=f"{kernel}: {name}")
        for kernel, (_, cases, _) in KERNELS.items()
        for name, case in cases.items()
    ],
    indirect=["everywhere"],
)
every_order = pytest.mark.parametrize("outputs_first", [False, True])


def in_format(case, data_format, outputs_first=True):
    weights = ("XIO", "OIX") if not case.transposed else ("XOI", "IOX")
    return replace(
        case, dtype="bf16", data_format=data_format, weights_format=weights[outputs_first]
    )


@pytest.fixture
def everywhere(request, monkeypatch):
    """Take the kernel of that name wherever it is possible."""
    kernel, _, able = KERNELS[request.param]

    def wanted(problem, assumed):
        return kernel if problem.dtype == 2 and able(problem) and not assumed else None

    yield from forced.kernel(monkeypatch, wanted)


@every_case
@every_format
@every_order
def test_layers(everywhere, case, data_format, outputs_first):
    case = in_format(case, data_format, outputs_first)
    case = replace(case, batch=max(2, case.batch))
    case.check()
    case.check(out_view="contiguous", accumulate=True)


@every_kernel
def test_any_convolution(everywhere):
    @given(case=conv_cases())
    def check(case):
        replace(case, dtype="bf16").check()

    check()


@every_case
@every_format
@every_order
def test_cuts_do_not_change_a_bit(everywhere, monkeypatch, case, data_format, outputs_first):
    case = in_format(case, data_format, outputs_first)
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


@every_case
@every_format
@every_order
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_what_is_not_finite_reaches_what_it_touches(
    everywhere, case, data_format, outputs_first, value
):
    case = in_format(case, data_format, outputs_first)
    forced.assert_value_reaches_what_it_touches(case, value)


@pytest.mark.parametrize("everywhere", ["dot"], indirect=True)
def test_taps_outside_are_left_out_without_a_change(everywhere, monkeypatch):
    """Taps farther apart than a tile: half of the products are with padding."""
    case = replace(in_format(SHAPES["image"], "NXC"), dst=(33, 33), dilations=(13, 14))
    case = replace(case, pads_begin=(13, 14), pads_end=(13, 14))
    case.check()
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("everywhere", ["grouped"], indirect=True)
@pytest.mark.parametrize("halves", [False, True])
@every_format
def test_groups_of_eight_in_any_view(everywhere, monkeypatch, data_format, halves, view):
    monkeypatch.setattr(kernels, "ZEN4", halves)
    in_format(GROUPS["of 8 and 18"], data_format).check(view=view)


@every_format
def test_chosen_for_many_channels(data_format):
    # Channels first, Zen 4 takes as long with both.
    kernel = "pairs" if data_format == "NCX" and not kernels.ZEN4 else "dot"
    case = replace(in_format(SHAPES["no kernel"], data_format), inputs=128, outputs=64)
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert f"kernel    {kernel}" in plan.describe()


@every_format
@every_order
def test_unfolded_for_one_channel(data_format, outputs_first):
    case = in_format(FEW_OUTPUTS["image"], data_format, outputs_first)
    case = replace(case, inputs=128, outputs=1, dst=(64, 64))
    plan = plan_of(case, case.formatted(*case.arrays())[1])
    assert "taps side by side" in plan.describe()


def test_the_batch_does_not_decide_what_a_pair_is():
    """Unfolded, odd channels of diff_dst share pairs of two taps: other bits than tap by tap."""
    case = replace(
        sequence(48, 65, 60, kernel=2), strides=(2,), transposed=True, weights_format="XOI"
    )
    chosen = set()
    for batch in (1, 2, 4, 9, 40, 1000):
        many = replace(case, batch=batch, data_format="NCX", dtype="bf16")
        plan = plan_of(many, many.formatted(*many.arrays())[1])
        chosen.add("taps side by side" in plan.describe())
    assert len(chosen) == 1
