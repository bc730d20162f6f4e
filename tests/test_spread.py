"""One position of diff_dst, as of whole images' layers: positions of diff_src are channels."""

from dataclasses import replace

import numpy as np
import pytest

from tests.cases import every_dtype, every_format, layer, sequence, volume
from tests.test_convolution_plans import check_call, plan_of
from tests.test_threads import same_bits
from tests.views import VIEWS

SPREAD = {
    "of an image": layer("12-40-1-5-1-0"),
    "of a batch": layer("19-7-1-3-1-0", batch=21),
    "of strides": layer("3-33-1-4-4-0", batch=3),
    "of rows": sequence(5, 24, 1, kernel=31),
    "of volumes": replace(volume(4, 18, (1, 1, 1), kernel=3, pad=0), batch=2),
    "of wide rows": layer("65-130-1-1-1-0", kernel=(1, 9), batch=14),
}
NOTE = "positions taken for channels"
# Of weights, that of diff_src.
ORDER = {"NXC": "XIO", "NCX": "OIX"}


def described(case):
    return plan_of(case, case.formatted(*case.arrays())[1]).describe()


@every_dtype
@every_format
@pytest.mark.parametrize("case", SPREAD.values(), ids=SPREAD)
def test_positions_are_channels(case, data_format, dtype):
    """The right values for all strides, results and plans."""
    case = replace(case, dtype=dtype, data_format=data_format)
    case = replace(case, weights_format=ORDER[data_format])
    case.check_views()
    dy, weights = case.formatted(*case.arrays())
    plan = plan_of(case, weights)
    check_call(case, plan, dy, weights)
    assert NOTE in plan.describe()


@every_dtype
@pytest.mark.parametrize(("data_format", "order"), [("NXC", "OIX"), ("NCX", "XIO")])
def test_weights_in_another_order(data_format, order, dtype):
    case = SPREAD["of a batch"]
    case = replace(case, data_format=data_format, dtype=dtype, weights_format=order)
    case.check()
    assert NOTE not in described(case)


@every_dtype
@every_format
def test_weights_with_gaps(data_format, dtype):
    """Taps that lie in the padding are left out, and those beside them are not copied."""
    case = replace(layer("20-17-1-5-1-1", batch=5), dtype=dtype)
    case = replace(case, data_format=data_format, weights_format=ORDER[data_format])
    case.check_views()
    assert NOTE not in described(case)


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
def test_groups(data_format):
    """Channels of a group follow each other, their positions between them, in NCX alone."""
    case = replace(SPREAD["of a batch"], groups=3, data_format=data_format)
    case = replace(case, weights_format=ORDER[data_format])
    for view in VIEWS:
        case.check(view=view)
    assert (NOTE in described(case)) == (data_format == "NCX")


@pytest.mark.parametrize(
    "changes",
    [
        {"dst": (1, 2)},
        {"pads_begin": (0, 0), "extra": (1, 0), "strides": (2, 2)},
        {"pads_begin": (3, 0), "dilations": (2, 1)},
        {"transposed": True, "weights_format": "XOI", "dst": (5, 5)},
    ],
    ids=str,
)
def test_positions_without_a_tap_of_their_own(changes):
    case = replace(SPREAD["of an image"], **changes)
    case.check()
    assert NOTE not in described(case)


@every_dtype
def test_each_image_is_computed_alike(dtype):
    """However many there are: some of them make a tile."""
    case = replace(layer("24-50-1-3-1-0", batch=29), dtype=dtype)
    dy, weights = case.formatted(*case.arrays())
    together = case.call(dy, weights)
    for some in (1, 4, 13):
        part = replace(case, batch=some)
        assert same_bits(part.call(dy[:some], weights), together[:some])


@every_format
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite(value, data_format):
    """A weight reaches its own position alone."""
    case = replace(layer("3-5-1-3-1-0", batch=2), data_format=data_format, weights_format="OIX")
    dy, weights = case.formatted(*case.arrays())
    weights[2, 1, 0, 2] = value
    result = case.ncx(case.call(dy, weights))
    assert np.isfinite(result).sum() == result.size - 2
    assert not np.isfinite(result[:, 1, 0, 2]).any()
