"""Frames of one channel, that a view has for channels: inverse STFTs and their like."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import _convolution_frames as frames
from gradops_cy import convolution
from gradops_cy._convolution_layout import layout_of
from tests.cases import every_dtype, sequence
from tests.test_convolution_plans import check_call, plan_of
from tests.test_threads import same_bits
from tests.views import VIEWS


def signal(channels, length, **geometry):
    """Return a transposed convolution to one channel."""
    return sequence(channels, 1, length, transposed=True, **geometry)


FRAMES = {
    "of a signal": replace(signal(33, 399, kernel=64, stride=16), batch=2),
    "and what is left": signal(8, 77, kernel=16, stride=9),
    "apart": signal(17, 200, kernel=16, stride=20),
    "one": replace(signal(40, 32, kernel=32, stride=8), batch=3),
    "side by side": signal(5, 160, kernel=16, stride=16),
    "at each position": signal(5, 80, kernel=20),
}


@every_dtype
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("case", FRAMES.values(), ids=FRAMES)
def test_frames_are_channels(monkeypatch, case, data_format, dtype):
    """The right values for all strides and plans, and the bits of taps."""
    case = replace(case, data_format=data_format, dtype=dtype)
    for view in VIEWS:
        case.check(view=view)
    arrays = dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    check_call(case, plan, dy, weights)
    assert f"kw{case.kernel[0]}" in plan.describe()
    form, last = plan._form, data_format == "NXC"
    array = form.source(np.ones(dy.shape, dy.dtype))
    axes = form.weights(weights)
    assert plan._contiguous is layout_of(form.problem, array, plan(dy), axes, last, False)
    halves_overlap = dtype in ("f16", "bf16") and case.kernel[0] > 2 * case.strides[0]
    assert form.framed != halves_overlap
    monkeypatch.setattr(frames, "product", lambda problem: None)
    # Others than the form that is remembered.
    form_of = convolution.conv_transpose_form
    monkeypatch.setattr(convolution, "conv_transpose_form", form_of.__wrapped__)
    assert same_bits(case.call(*arrays), plan(dy))


@pytest.mark.parametrize(
    "changes",
    [
        {"pads_begin": (1,)},
        {"pads_end": (40,)},
        {"dilations": (2,)},
        {"outputs": 2},
        {"groups": 2},
        {"kernel": (15,)},
        {"transposed": False, "weights_format": "XIO"},
    ],
    ids=str,
)
def test_frames_that_no_view_has(changes):
    case = signal(4, 100, kernel=16, stride=8)
    case = replace(case, **changes)
    case.check()
    assert not plan_of(case, case.formatted(*case.arrays())[1])._form.framed


def test_frames_beside_others():
    """What lies around the frames of an image is not read."""
    case = replace(signal(9, 200, kernel=32, stride=8), batch=2)
    dy, weights = case.formatted(*case.arrays())
    around = np.full((2, 300, 3), np.nan, dy.dtype)
    around[:, 50:250, 1:2] = dy
    assert same_bits(case.call(around[:, 50:250, 1:2], weights), case.call(dy, weights))
