"""Groups of few channels that share tiles or vectors, with zeros between them (bfloat16)."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import _convolution_diagonal as diagonal
from gradops_cy import _convolution_kernels as kernels
from tests import forced
from tests.cases import POINTWISE, every_format, layer, sequence
from tests.test_convolution import in_format

FEW = {
    "4": layer("4-4-17-3-1-1", groups=16),
    "8": layer("8-8-15-3-1-1", groups=8),
    "10, 5x5": layer("10-10-16-5-1-2", groups=6),
    "7, which 32 has a rest of": layer("7-7-12-3-1-1", groups=8),
    "5 from 9": layer("5-9-14-3-1-1", groups=9),
    "1 from 3": layer("1-3-14-3-1-1", groups=20),
    "strides": layer("8-8-9-3-2-1", groups=12),
    "dilations": layer("6-6-18-3-1-3", groups=5, dilations=(3, 3)),
    "transposed": layer("4-8-21-4-2-1", groups=12, transposed=True),
    "groups that no number divides": layer("4-4-11-3-1-1", groups=13),
    "without a kernel": layer("4-4-17-1-1-0", groups=16),
    "without a kernel, 3 from 5": layer("3-5-17-1-1-0", groups=12),
    "one axis": replace(sequence(8, 8, 60, kernel=3, begin=1, end=1), groups=8),
}
PROBLEM = POINTWISE._replace(
    dtype=2,
    groups=16,
    diff_src_channels=128,
    diff_dst_channels=128,
    diff_src=(1, 28, 28),
    diff_dst=(1, 28, 28),
    kernel=(1, 3, 3),
    pads_begin=(0, 1, 1),
)
every_case = pytest.mark.parametrize("case", FEW.values(), ids=FEW)


@pytest.fixture
def joined(monkeypatch):
    """Join groups whatever their number of positions, where pairs are multiplied."""
    monkeypatch.setattr(diagonal, "joins", lambda *_: True)
    monkeypatch.setattr(diagonal, "joins_in_vectors", lambda *_: True)
    yield from forced.other_plans()


@every_format
@every_case
def test_layers(joined, case, data_format):
    case = replace(in_format(case, data_format, "bf16"), batch=2)
    case.check()
    case.check(out_view="contiguous", accumulate=True)
    case.check(view="inside", out_view="spaced")


@every_format
@every_case
def test_cuts_do_not_change_a_bit(joined, monkeypatch, case, data_format):
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, in_format(case, data_format, "bf16"))


@every_format
@every_case
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_reach_their_group_alone(joined, case, value, data_format):
    forced.assert_value_reaches_what_it_touches(in_format(case, data_format, "bf16"), value)


@every_format
def test_sums_that_overflow_stay_in_their_group(joined, data_format):
    """Products of finite values that no float32 holds are infinite, and no others."""
    case = in_format(FEW["8"], data_format, "bf16")
    dy, weights = case.arrays()
    before = case.ncx(case.call(*case.formatted(dy, weights))).astype(np.float64)
    dy[:, :8] = weights[:8] = 3e38
    after = case.ncx(case.call(*case.formatted(dy, weights))).astype(np.float64)
    assert (after[:, :8] == np.inf).all()
    np.testing.assert_allclose(after[:, 8:], before[:, 8:], rtol=2**-7, atol=2**-7)


def choice_of(case, **given):
    return forced.choice_of(PROBLEM._replace(**case), **given)


@pytest.mark.skipif(not kernels.tiles_of(False).amx, reason="no AMX")
def test_which_groups_are_joined():
    """Those of few channels, many of whose positions use the larger weights."""
    assert choice_of({"batch": 1}).diagonal == choice_of({"batch": 99}).diagonal == 4
    assert choice_of({"diff_src": (1, 9, 9), "diff_dst": (1, 9, 9)}).diagonal == 1
    assert choice_of({"groups": 3, "diff_src_channels": 24, "diff_dst_channels": 24}).diagonal == 3
    assert choice_of({}, layout=forced.CHANNELS_LAST._replace(accumulate=True)).diagonal == 1
    assert choice_of({}, assumed=kernels.FINITE).diagonal == 1
    assert choice_of({"dtype": 0}).diagonal == 1


@pytest.mark.skipif(not kernels.tiles_of(False).vector_pairs, reason="no vectors of pairs")
def test_which_groups_share_vectors():
    """Those of few channels without a kernel, in images that are not small."""
    plain = {"kernel": (1, 1, 1), "pads_begin": (0, 0, 0)}
    assert choice_of(plain).diagonal == choice_of(plain | {"batch": 99}).diagonal == 2
    of_four = plain | {"diff_src_channels": 64, "diff_dst_channels": 64}
    assert choice_of(of_four).diagonal == 4
    assert choice_of(plain | {"diff_src": (1, 14, 14), "diff_dst": (1, 14, 14)}).diagonal == 1
    assert choice_of({}).diagonal == 1
    assert choice_of(plain, layout=forced.CHANNELS_FIRST).diagonal == 1
    assert choice_of(plain, layout=forced.CHANNELS_LAST._replace(accumulate=True)).diagonal == 1
    assert choice_of(plain, assumed=kernels.FINITE).diagonal == 1
