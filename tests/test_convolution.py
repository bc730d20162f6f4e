"""Both convolution operators against the float64 reference, over the whole attribute space."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradops_cy import (
    _convolution_columns,
    convolution_backward_data,
    convolution_backward_data_plan,
)
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans
from tests import forced
from tests.cases import (
    LAYERS,
    POINTWISE,
    conv_case,
    conv_cases,
    every_dtype,
    every_format,
    layer,
    sequence,
)
from tests.tolerances import assert_close
from tests.views import VIEWS, WRITEABLE

FORMATS = {"NXC": ("XIO", "XOI"), "NCX": ("OIX", "IOX")}


def in_format(case, data_format, dtype):
    """Return the case in a dtype and a data format, its weights in the format that goes with it."""
    weights_format = FORMATS[data_format][case.transposed]
    return replace(case, data_format=data_format, weights_format=weights_format, dtype=dtype)


@every_dtype
@pytest.mark.parametrize("seed", range(60))
def test_drawn_cases_are_exact(seed, dtype):
    conv_case(seed, dtype=dtype).check()


@given(
    case=conv_cases(),
    view=st.sampled_from(list(VIEWS)),
    out_view=st.none() | st.sampled_from(list(WRITEABLE)),
    accumulate=st.booleans(),
    threads=st.integers(1, 4),
)
def test_any_case_is_exact(case, view, out_view, accumulate, threads):
    case.check(view=view, out_view=out_view, accumulate=accumulate, num_threads=threads)


# -- layers without a kernel --------------------------------------------------------------------


@every_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside", "reversed"])
@pytest.mark.parametrize(("height", "width"), [(7, 7), (40, 40), (3, 1040), (37, 41), (6, 1)])
def test_joined_rows(height, width, view, data_format, dtype):
    # 40x40 is more than a joined row may have, 37 rows of 41 have no smaller part.
    case = layer("20-33-5-1-1-0", dst=(height, width), data_format=data_format, dtype=dtype)
    case.check(view=view, out_view=view)


@pytest.mark.parametrize(
    "change",
    [{"pads_begin": (0, 0, 1)}, {"kernel": (1, 1, 2)}, {"strides": (1, 1, 2)}, {"rank": 1}],
)
def test_rows_with_a_kernel_and_images_are_not_joined(change):
    assert POINTWISE.joined(2, False).diff_src == (2, 1, 48)
    assert POINTWISE._replace(rank=3).joined(2, False).diff_src == (1, 1, 96)
    assert POINTWISE.joined(0, False) == POINTWISE
    assert POINTWISE._replace(**change).joined(2, False).diff_src == (2, 6, 8)


# -- sizes round the widths of vectors and tiles ------------------------------------------------

CHANNELS = (1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 100, 130)


@every_dtype
@every_format
@pytest.mark.parametrize("inputs", CHANNELS)
def test_every_width_of_result_channels(inputs, data_format, dtype):
    layer(f"{inputs}-5-6-3-1-1", data_format=data_format, dtype=dtype).check()


@every_dtype
@every_format
@pytest.mark.parametrize("outputs", CHANNELS)
def test_every_width_of_summed_channels(outputs, data_format, dtype):
    layer(f"18-{outputs}-5-2-2-0", data_format=data_format, dtype=dtype).check()


@every_dtype
@every_format
@pytest.mark.parametrize("width", [1, 2, 7, 8, 14, 15, 16, 17, 31, 33, 48, 65])
@pytest.mark.parametrize(("groups", "inputs"), [(1, 20), (1, 3), (33, 1), (8, 4), (3, 16)])
def test_every_width_of_rows(width, groups, inputs, data_format, dtype):
    case = layer(f"{inputs}-{inputs}-2-3-1-1", dst=(2, width), groups=groups)
    in_format(case, data_format, dtype).check()


@every_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside", "reversed"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize(("inputs", "outputs"), [(40, 24), (8, 100), (3, 32)])
def test_filters_along_columns(
    inputs, outputs, width, stride, transposed, view, data_format, dtype
):
    """Rows of few positions, of which many are packed and stored as one."""
    case = layer(f"{inputs}-{outputs}-9-3-1-1", transposed=transposed, dst=(90, width))
    case = in_format(case, data_format, dtype)
    shape = {"kernel": (4, 1), "strides": (stride, 1), "pads_begin": (1, 0), "pads_end": (1, 0)}
    replace(case, batch=2, **shape).check(view=view, out_view=view, large=True)


@every_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside"])
@pytest.mark.parametrize("stride", [2, 3, 5])
@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_rows_of_few_positions_take_turns(kernel, stride, view, data_format, dtype):
    """Classes of rows with products and without, in a last block that some of them miss."""
    case = in_format(layer("35-38-9-1-1-0", dst=(67, 3)), data_format, dtype)
    shape = {"kernel": (kernel, 1), "strides": (stride, 1), "pads_begin": (0, 0)}
    case = replace(case, batch=2, **shape)
    case.check(view=view, out_view=view, large=True)
    case.check(out_view=view, accumulate=True)


@every_dtype
@every_format
@pytest.mark.parametrize("order", ["fortran order", "last axis second", "second axis last"])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dst", [(9, 1), (9, 1, 1), (4, 9, 1), (5, 1, 4), (1, 9, 1), (1, 1)])
@pytest.mark.parametrize(("groups", "inputs"), [(1, 16), (2, 1), (3, 20)])
def test_axes_of_one_position(groups, inputs, dst, transposed, order, data_format, dtype):
    """NumPy chooses their strides anew when it hands out an array that is dense in some order."""
    ones, zeros = (1,) * len(dst), (0,) * len(dst)
    case = layer(f"{inputs}-{inputs}-1-1-1-0", transposed=transposed, dst=dst, groups=groups)
    case = replace(case, kernel=ones, strides=ones, dilations=ones, pads_begin=zeros)
    case = in_format(replace(case, pads_end=zeros), data_format, dtype)
    for view, out_view in (("contiguous", order), (order, "contiguous"), (order, order)):
        case.check(view=view, out_view=out_view)


@every_dtype
@pytest.mark.parametrize("stride", range(2, 10))
@pytest.mark.parametrize("width", [10, 16, 17, 33, 47, 48, 80, 161])
def test_rows_are_sorted_by_strides(width, stride, dtype):
    """Channels first, transposed: every second, third, ... element of rows of diff_dst."""
    case = layer("20-18-2-1-1-0", transposed=True, dst=(2, width))
    shape = {"kernel": (1, stride + 1), "strides": (1, stride), "pads_begin": (0, stride // 2)}
    in_format(replace(case, **shape), "NCX", dtype).check()


@every_dtype
@pytest.mark.parametrize("taps", range(1, 11))
def test_every_number_of_taps_side_by_side(taps, dtype):
    """Weights of channels first have the taps of sixteen channels in a row."""
    case = in_format(sequence(35, 38, 50, kernel=taps, begin=taps // 2), "NCX", dtype)
    case.check(large=True)
    replace(case, strides=(2,)).check()


@every_dtype
@every_format
@pytest.mark.parametrize("columns", [2, 5])
@pytest.mark.parametrize(("inputs", "outputs"), [(40, 24), (8, 100), (1, 3)])
def test_every_other_column_and_as_many_beside_them(inputs, outputs, columns, data_format, dtype):
    """A row that is read in steps, in as many as it has elements: the last ones lie outside."""
    case = layer(f"{inputs}-{outputs}-9-1-1-0", transposed=True, dst=(8, columns))
    case = in_format(case, data_format, dtype)
    replace(case, strides=(1, 2), pads_end=(0, columns - 1)).check()


@every_dtype
@pytest.mark.parametrize("transposed", [False, True])
@every_format
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    ("inputs", "outputs"), [(1, 1), (1, 2), (2, 1), (4, 4), (8, 8), (8, 20), (16, 5), (16, 16)]
)
def test_groups_of_few_channels(inputs, outputs, stride, data_format, transposed, dtype):
    name = f"{inputs}-{outputs}-5-3-{stride}-1"
    in_format(layer(name, groups=24, transposed=transposed), data_format, dtype).check()


@pytest.fixture
def half_vectors(monkeypatch):
    """Take vectors of 32 bytes for groups of as many channels, whatever the processor is."""
    if kernels.KERNELS.tile_shapes(False)[1] < 16:
        pytest.skip("of tiers with vectors of 64 bytes")
    monkeypatch.setattr(kernels, "ZEN4", True)
    yield from forced.kernel(monkeypatch, lambda problem, assumed: kernels.GROUPED)


@every_dtype
@every_format
@pytest.mark.parametrize("outputs", [1, 8, 13])
@pytest.mark.parametrize(("groups", "width"), [(1, 70), (5, 3), (9, 30)])
@pytest.mark.parametrize("accumulate", [False, True])
def test_groups_of_half_a_vector(
    half_vectors, groups, width, outputs, data_format, dtype, accumulate
):
    channels = 4 if dtype == "f64" else 8
    case = layer(f"{channels}-{outputs}-5-3-1-1", dst=(5, width), groups=groups, dilations=(2, 1))
    in_format(case, data_format, dtype).check(accumulate=accumulate)


@pytest.fixture
def high_tiles(monkeypatch):
    """Let no tile of positions stay in cache: with AMX, six of bfloat16 for one of channels."""
    monkeypatch.setattr(_convolution_columns, "TILE_BYTES", 0)
    yield from forced.other_plans()


@every_format
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dst", [(8, 8), (3, 100), (9, 40), (20, 23)])
@pytest.mark.parametrize("channels", [(17, 32), (50, 130), (64, 100)])
def test_tiles_of_many_positions(high_tiles, channels, dst, accumulate, data_format):
    inputs, outputs = channels
    case = in_format(layer(f"{inputs}-{outputs}-1-3-1-1", dst=dst), data_format, "bf16")
    case.check(out_view="contiguous", accumulate=accumulate)
    case = replace(case, dilations=(2, 3), batch=2)
    case.check(out_view="contiguous", accumulate=accumulate, num_threads=2)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("width", [16, 45, 100])
@pytest.mark.parametrize("outputs", [2, 6, 18, 24, 30, 34, 40, 62, 66, 144])
@pytest.mark.parametrize("inputs", [5, 16, 40, 193])
def test_depths_in_place(inputs, outputs, width, transposed, accumulate):
    """Tiles of AMX are as deep as what is left of a position's channels."""
    case = layer(f"{inputs}-{outputs}-1-1-1-0", dst=(3, width), transposed=transposed, dtype="bf16")
    case.check(out_view="contiguous", accumulate=accumulate)
    replace(case, kernel=(2, 2), strides=(2, 2)).check(out_view="inside", accumulate=accumulate)


@every_dtype
@every_format
@pytest.mark.parametrize("width", [16, 70, 140])
def test_rows_that_no_tap_reaches(width, data_format, dtype):
    """Tiles without products lie between others, whose results are still on their way."""
    dilated = {"kernel": (2, 1), "dilations": (12, 1)}
    case = in_format(layer("64-64-1-1-1-0", dst=(8, width), **dilated), data_format, dtype)
    case.check(out_view="contiguous")


@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("outputs", [24, 40])
def test_special_values_in_place(outputs, value):
    case = layer(f"20-{outputs}-1-1-1-0", dst=(3, 40), dtype="bf16")
    forced.assert_value_reaches_what_it_touches(case, value)


@every_format
def test_cuts_of_high_tiles_do_not_change_a_bit(monkeypatch, high_tiles, data_format):
    case = in_format(layer("40-64-1-3-1-1", dst=(20, 23), batch=2), data_format, "bf16")
    forced.assert_cuts_do_not_change_a_bit(monkeypatch, case)


def test_which_tiles_are_high():
    problem = POINTWISE._replace(dtype=2, diff_src_channels=64, diff_dst_channels=256)
    problem = problem._replace(kernel=(1, 3, 3), diff_src=(1, 14, 14), diff_dst=(1, 12, 12))
    cut = plans.Plan(problem, forced.CHANNELS_LAST, 1).cut
    amx = cut.choice.tiles.amx
    assert (cut.taps_inside, cut.tile_positions == 96) == (amx, amx)
    assert not amx or cut.entry_pitch == 256 + 32


@every_dtype
@every_format
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 7])
def test_every_pair_of_kernel_and_stride(kernel, stride, data_format, dtype):
    """Strides above the kernel leave rows of zeros; each residue class has taps of its own."""
    for transposed in (False, True):
        case = layer(f"6-5-8-{kernel}-{stride}-0", transposed=transposed, dst=(9, 8))
        in_format(case, data_format, dtype).check()


@every_format
def test_strides_above_the_kernel_leave_zeros(data_format):
    case = in_format(layer("5-6-3-2-5-0"), data_format, "f32")
    result = case.ncx(case.call(*case.formatted(*case.arrays())))
    assert not result[:, :, 2:5].any()
    assert not result[..., 2:5].any()
    assert result[:, :, :2, :2].all()


@every_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 2), (1, 3), (2, 4)])
@pytest.mark.parametrize("inputs", [3, 40])
def test_views_with_strides_above_the_kernel(
    inputs, kernel, stride, accumulate, view, data_format, dtype
):
    case = in_format(layer(f"{inputs}-35-23-{kernel}-{stride}-0"), data_format, dtype)
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
@every_format
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("begin", "end"), [(0, 7), (7, 0), (3, 11), (9, 9)])
def test_pads_larger_than_the_kernel(begin, end, transposed, data_format, dtype):
    case = layer(
        "7-6-9-3-2-0",
        transposed=transposed,
        dst=(14, 17),
        pads_begin=(begin, end),
        pads_end=(end, begin),
    )
    in_format(case, data_format, dtype).check()


# -- kernels along the axis before short rows -----------------------------------------------------


def _along(i, o, dst, taps, *, stride=1, dilation=1, pad=0, **changes):
    """Return a case whose kernel has extents along the first axis of `dst` alone."""
    others = len(dst) - 1
    shape = {
        "dst": dst,
        "kernel": (taps, *(1,) * others),
        "strides": (stride, *(1,) * others),
        "dilations": (dilation, *(1,) * others),
        "pads_begin": (pad, *(0,) * others),
        "pads_end": (pad, *(0,) * others),
    }
    return layer(f"{i}-{o}-1-1-1-0", **{**shape, **changes})


ALONG = {
    "one column": _along(20, 36, (30, 1), 5, stride=3, pad=2, batch=3),
    "one column, transposed": _along(20, 36, (30, 1), 5, stride=3, pad=2, transposed=True),
    "one column, strides along it": _along(17, 5, (23, 1), 3, strides=(2, 4)),
    "narrow": _along(16, 33, (40, 7), 3, dilation=2, pad=2, batch=2),
    "narrow, transposed": _along(5, 48, (18, 3), 7, pad=3, transposed=True),
    "narrow, of few channels": _along(3, 20, (25, 5), 4, pad=1),
    "wide": _along(24, 8, (9, 100), 3, pad=1),
    "too wide": _along(4, 8, (5, 300), 3, pad=1),
    "halo alone": _along(8, 8, (2, 3), 9, pad=4),
    "groups": _along(8, 4, (12, 5), 3, pad=1, groups=4),
    "groups, wide": _along(8, 4, (5, 40), 3, pad=1, groups=4),
    "groups of a vector": _along(16, 16, (21, 6), 5, pad=2, groups=2),
    "depthwise": _along(1, 1, (20, 6), 3, pad=1, groups=37),
    "depthwise, one column": _along(1, 1, (50, 1), 7, stride=2, pad=3, groups=64),
    "volume": _along(20, 12, (6, 3, 5), 3, pad=1, batch=2),
    "volume of columns": _along(20, 12, (6, 7, 1), 3, kernel=(3, 2, 1), strides=(1, 2, 1)),
}


@every_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside"])
@pytest.mark.parametrize("name", ALONG)
def test_kernels_along_the_axis_before_short_rows(name, view, data_format, dtype):
    in_format(ALONG[name], data_format, dtype).check(view=view, out_view=view)


def test_which_rows_are_joined_along_a_kernel():
    narrow = POINTWISE._replace(kernel=(1, 3, 1), diff_dst=(2, 4, 8), dilations=(1, 2, 1))
    joined = narrow.joined(1, False)
    assert (joined.diff_src, joined.diff_dst) == ((2, 1, 48), (2, 1, 32))
    assert (joined.kernel, joined.dilations) == ((1, 1, 3), (1, 1, 16))
    assert joined.flop == narrow.flop
    assert narrow._replace(strides=(1, 2, 1)).joinable == 0
    assert narrow._replace(pads_begin=(0, 0, 1)).joinable == 0
    column = narrow._replace(strides=(1, 2, 1), diff_src=(2, 6, 1), diff_dst=(2, 4, 1))
    assert column.joined(1, False).strides == (1, 1, 2)
    spread = narrow._replace(groups=2, diff_src=(2, 6, 20), diff_dst=(2, 4, 20))
    assert spread.joined(1, True) == spread
    assert spread.joined(1, False).diff_src == (2, 1, 120)
    depthwise = spread._replace(diff_src_channels=2, diff_dst_channels=2)
    assert depthwise.joined(1, False) == depthwise


# -- taps in the padding -------------------------------------------------------------------------

BESIDE = {
    "3x3 of 1x1": layer("64-48-1-3-1-1"),
    "7x7 of 2x2": layer("20-36-2-7-1-3", batch=3),
    "dilation beyond the image": layer("32-40-9-3-1-12", dilations=(12, 12)),
    "rows and columns apart": layer(
        "17-33-1-1-1-0", dst=(1, 30), kernel=(5, 3), pads_begin=(2, 1), pads_end=(2, 1)
    ),
    "none that reach": layer("5-7-1-2-1-4", dilations=(8, 8)),
    "first ones with a stride": layer("9-16-2-5-3-4", dilations=(3, 3)),
    "transposed": layer("40-24-2-5-2-4", transposed=True),
    "depthwise": layer("1-1-1-5-1-2", groups=33),
    "groups": layer("4-8-2-7-1-3", groups=6),
}


@every_dtype
@every_format
@pytest.mark.parametrize("name", BESIDE)
def test_taps_that_reach_nothing(name, data_format, dtype):
    in_format(BESIDE[name], data_format, dtype).check()


def test_taps_that_reach_nothing_are_no_work():
    weights = np.full((3, 3, 8, 4), np.nan, np.float32)
    weights[1, 1] = 1
    keywords = {"strides": 1, "pads_begin": 1, "pads_end": 1, "dilations": 1}
    dy = np.ones((2, 1, 1, 4), np.float32)
    np.testing.assert_array_equal(convolution_backward_data(dy, weights, **keywords), 4)
    plan = convolution_backward_data_plan(dy.shape, weights, **keywords)
    assert "kh1kw1" in plan.describe()
    np.testing.assert_array_equal(plan(dy), 4)


# -- real layers ---------------------------------------------------------------------------------


@every_dtype
@every_format
@pytest.mark.parametrize("name", LAYERS)
def test_real_layers(name, data_format, dtype):
    in_format(LAYERS[name], data_format, dtype).check(large=True)


@every_dtype
@every_format
def test_long_sums_of_one_sign(data_format, dtype):
    """Errors that all go one way: the worst that accumulation in one order can meet."""
    case = in_format(layer("40-512-7-3-1-1"), data_format, dtype)
    dy, weights = (np.abs(array) for array in case.arrays())
    result = case.ncx(case.call(*case.formatted(dy, weights)))
    assert_close(result, *case.exact_by_taps(dy, weights), terms=9 * 512)


@pytest.mark.parametrize("seed", range(60))
def test_the_two_references_agree(seed):
    case = conv_case(seed, dtype="f64")
    exact, magnitude = case.exact(*case.arrays())
    by_taps, same_magnitude = case.exact_by_taps(*case.arrays())
    np.testing.assert_allclose(by_taps, exact, rtol=0, atol=1e-13 * magnitude.max())
    np.testing.assert_allclose(same_magnitude, magnitude, rtol=1e-12, atol=0)
