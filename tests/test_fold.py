"""Blocks of pixels of diff_src that are taken for channels (products of bfloat16 pairs)."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import _convolution_fold as fold
from gradops_cy import _convolution_kernels as kernels
from tests import forced
from tests.cases import POINTWISE, every_format, layer, sequence
from tests.test_convolution import in_format

FEW = {
    "7x7 s2": layer("3-64-17-7-2-3"),
    "odd extents": layer("3-33-16-3-2-1", dst=(32, 31)),
    "3x3": layer("3-16-21-3-1-1"),
    "5x5, one channel": layer("1-40-19-5-1-2"),
    "two channels": layer("2-24-18-3-1-0"),
    "four channels s2": layer("4-64-9-3-2-1"),
    "eight channels": layer("8-17-13-3-1-1"),
    "eight channels, even extents": layer("8-6-14-3-1-1"),
    "dilated": layer("3-16-12-3-1-2", dilations=(2, 2)),
    "strides that differ": layer(
        "2-32-0-0-0-0",
        dst=(9, 14),
        kernel=(3, 5),
        strides=(2, 1),
        pads_begin=(1, 0),
        pads_end=(0, 2),
    ),
    "stride beyond the kernel": layer("1-16-7-2-4-0"),
    "volume": layer(
        "3-20-0-0-0-0",
        dst=(4, 6, 11),
        kernel=(3, 3, 4),
        strides=(1, 1, 2),
        dilations=(2, 1, 1),
        pads_begin=(2, 1, 0),
        pads_end=(1, 1, 1),
    ),
    "one axis": sequence(1, 64, 300, kernel=9, stride=1, begin=4, end=4),
    "one axis s2": sequence(3, 32, 149, kernel=8, stride=2, begin=3, end=2),
}
PROBLEM = POINTWISE._replace(
    dtype=2,
    diff_src_channels=3,
    diff_dst_channels=64,
    diff_src=(1, 224, 224),
    diff_dst=(1, 112, 112),
    kernel=(1, 7, 7),
    strides=(1, 2, 2),
    pads_begin=(0, 3, 3),
)
every_case = pytest.mark.parametrize("case", FEW.values(), ids=FEW)


@pytest.fixture
def folded(monkeypatch):
    """Fold wherever a tile has room for two pixels, where the processor multiplies pairs."""
    monkeypatch.setattr(fold, "pays", lambda *_: True)
    yield from forced.other_plans()


@every_format
@every_case
def test_layers(folded, case, data_format):
    case = replace(in_format(case, data_format, "bf16"), batch=2)
    case.check()
    case.check(out_view="contiguous", accumulate=True)
    case.check(view="inside", out_view="spaced")
    case.check(view="reversed", out_view="inside")


@every_format
@every_case
def test_cuts_do_not_change_a_bit(folded, monkeypatch, case, data_format):
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, in_format(case, data_format, "bf16"))


@every_format
@every_case
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_reach_what_they_touch_alone(folded, case, value, data_format):
    forced.assert_value_reaches_what_it_touches(in_format(case, data_format, "bf16"), value)


def choice_of(case, **given):
    return forced.choice_of(PROBLEM._replace(**case), **given)


@pytest.mark.skipif(not kernels.tiles_of(False).amx, reason="no AMX")
def test_which_layers_are_folded():
    """Those whose pixels have few channels, unless the product of all taps is much smaller."""
    assert choice_of({"batch": 1}).fold == choice_of({"batch": 99}).fold == (2, 2)
    assert choice_of({"strides": (1, 1, 1), "diff_dst": (1, 224, 224)}).fold == (1, 5)
    assert choice_of({"diff_dst_channels": 1024, "kernel": (1, 3, 3)}).fold == (1, 1)
    assert choice_of({"diff_src_channels": 9}).fold == (1, 1)
    assert choice_of({}, layout=forced.CHANNELS_LAST._replace(accumulate=True)).fold == (1, 1)
    assert choice_of({}, assumed=kernels.FINITE).fold == (1, 1)
    assert choice_of({"dtype": 0}).fold == (1, 1)


TILES = kernels.tiles_of(False)
WHOLE_VECTORS = TILES.vector_pairs and TILES.columns(8) == kernels.DOT_COLUMNS


@pytest.mark.skipif(not WHOLE_VECTORS, reason="no vectors of 16 pairs")
def test_which_layers_fill_vectors():
    """Those of a few taps and channels; in place where blocks of pixels are blocks of memory."""
    few = {
        "diff_src_channels": 8,
        "diff_dst_channels": 8,
        "kernel": (1, 3, 3),
        "strides": (1, 1, 1),
    }
    few |= {"diff_dst": (1, 224, 224), "pads_begin": (0, 1, 1)}
    whole, odd = choice_of(few), choice_of(few | {"diff_src": (1, 224, 223)})
    assert (whole.fold, whole.direct) == ((1, 2), True)
    assert (odd.fold, odd.direct) == ((1, 2), False)
    apart = forced.CHANNELS_LAST._replace(diff_src_packed=False)
    assert not choice_of(few, layout=apart).direct
    assert choice_of(few | {"diff_src_channels": 4}).fold == (2, 2)
    assert choice_of(few | {"diff_src_channels": 9}).fold == (1, 1)
    assert choice_of(few | {"kernel": (1, 1, 1), "pads_begin": (0, 0, 0)}).fold == (1, 1)
    first = forced.CHANNELS_LAST._replace(diff_src_channels_last=False, diff_src_packed=False)
    assert choice_of(few, layout=first).fold == (1, 1)
    assert choice_of(few, layout=forced.CHANNELS_LAST._replace(accumulate=True)).fold == (1, 1)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_blocks_are_the_same_convolution(kernel, stride, dilation):
    """By the definitions of both problems, for the weights of one axis."""
    extent, pad = 23, 1
    few = (extent + 2 * pad - (kernel - 1) * dilation - 1) // stride + 1
    problem = PROBLEM._replace(
        diff_src_channels=1,
        diff_dst_channels=1,
        diff_src=(1, 1, extent),
        diff_dst=(1, 1, few),
        kernel=(1, 1, kernel),
        strides=(1, 1, stride),
        dilations=(1, 1, dilation),
        pads_begin=(0, 0, pad),
    )
    block = (1, 2 * stride)
    weights = np.arange(1, kernel + 1, dtype=np.int16).reshape(1, 1, 1, 1, 1, kernel)
    product, folded = fold.product(problem, block), fold.by_block(problem, block, weights)
    wanted = np.zeros((few, extent + 2 * stride), int)
    for y in range(few):
        for tap in range(kernel):
            x = y * stride - pad + tap * dilation
            if 0 <= x < extent:
                wanted[y, x] += weights[0, 0, 0, 0, 0, tap]
    found = np.zeros_like(wanted)
    for q in range(product.diff_src[2]):
        for tap in range(product.kernel[2]):
            y = q * product.strides[2] + tap - product.pads_begin[2]
            if 0 <= y < few:
                found[y, q * block[1] : (q + 1) * block[1]] += folded[0, 0, :, 0, 0, tap]
    np.testing.assert_array_equal(found[:, :extent], wanted[:, :extent])
