"""The forms of depthwise layers: channels in the lanes, columns beside each other, or rows."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import (
    _convolution_cut,
    _convolution_depthwise,
    _convolution_depthwise_times,
    _processor,
)
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_plan as plans
from gradops_cy._convolution_depthwise import row_classes, stride_columns
from gradops_cy._convolution_depthwise_times import along_rows as along_rows_of
from tests import forced
from tests.cases import POINTWISE, every_dtype, every_format, layer
from tests.forced import assert_cuts_do_not_change_a_bit, assert_value_reaches_what_it_touches
from tests.test_convolution import in_format

# Kernel, stride, channels.
FILTERS = [(16, 8, 21), (4, 2, 3), (8, 8, 3), (6, 3, 1), (12, 4, 9), (16, 4, 33)]

every_filter = pytest.mark.parametrize(("kernel", "stride", "channels"), FILTERS)


def case_of(kernel, stride, channels, dtype="f32", data_format="NXC", **changes):
    """Return a transposed layer whose pads leave some columns out at both ends."""
    pads = {"pads_begin": (1, stride - 1), "pads_end": (kernel - stride, 1)}
    changes = {"dst": (kernel + stride, kernel + 22 * stride + 1), **pads, **changes}
    case = layer(f"1-1-9-{kernel}-{stride}-0", transposed=True, groups=channels, **changes)
    return in_format(case, data_format, dtype)


PROBLEM = POINTWISE._replace(
    transposed=True,
    groups=21,
    diff_src_channels=21,
    diff_dst_channels=21,
    diff_src=(1, 8, 8),
    diff_dst=(1, 18, 18),
    kernel=(1, 4, 4),
    strides=(1, 2, 2),
)


@every_filter
def test_columns_of_a_stride(kernel, stride, channels):
    problem = PROBLEM._replace(
        groups=channels, kernel=(1, kernel, kernel), strides=(1, stride, stride)
    )
    assert stride_columns(problem, 16, 4) == stride


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": (1, 4, 3)},
        {"dilations": (1, 1, 2)},
        {"strides": (1, 2, 1)},
        {"groups": 64},  # no lanes without work
        {"kernel": (1, 1, 2)},  # as much to add up as to multiply
        {"transposed": False},
    ],
)
def test_columns_by_themselves(changes):
    assert stride_columns(PROBLEM._replace(**changes), 16, 4) == 1


@pytest.mark.parametrize(
    ("channels", "kernel", "columns"),
    [
        (12, 4, 2),
        (12, 2, 1),  # as much to add up as to multiply
        (100, 4, 1),  # nearly all lanes have work as it is
    ],
)
def test_columns_in_short_vectors(channels, kernel, columns):
    problem = PROBLEM._replace(groups=channels, kernel=(1, kernel, kernel))
    assert stride_columns(problem, 8, 4) == columns


@every_dtype
@every_format
@every_filter
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_values(kernel, stride, channels, data_format, dtype, view, accumulate):
    case = case_of(kernel, stride, channels, dtype, data_format, batch=2)
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
@pytest.mark.parametrize(("begin", "end"), [(0, 0), (7, 9), (40, 3), (3, 40)])
@pytest.mark.parametrize("width", [1, 5, 16, 31])
def test_rows_of_which_positions_read_nothing(begin, end, width, dtype):
    if width + begin + end < 4:
        end = 3
    case_of(4, 2, 7, dtype, dst=(6, width), pads_begin=(0, begin), pads_end=(0, end)).check()


@every_dtype
@every_format
@pytest.mark.parametrize("name", [0, 1, 4])
def test_cuts_do_not_change_a_bit(monkeypatch, name, data_format, dtype):
    assert_cuts_do_not_change_a_bit(monkeypatch, case_of(*FILTERS[name], dtype, data_format))


@every_dtype
@every_format
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values(value, data_format, dtype):
    assert_value_reaches_what_it_touches(case_of(4, 2, 5, dtype, data_format), value)


# -- residue classes of a row together ------------------------------------------------------------


def strided(kernel, width, dtype, data_format="NXC", **changes):
    """Return a layer of stride 2 along its rows, `width` of them in diff_dst."""
    case = layer("1-1-9-1-1-0", groups=37)
    changes = {"dst": (5, width), "kernel": (3, kernel), "strides": (2, 2), **changes}
    return replace(in_format(case, data_format, dtype), batch=2, **changes)


@pytest.mark.parametrize(
    ("changes", "classes"),
    [
        ({}, 2),
        ({"strides": (1, 2, 1)}, 1),
        ({"strides": (1, 1, 3)}, 1),
        ({"dilations": (1, 1, 3)}, 1),
        ({"kernel": (1, 4, 1)}, 1),  # a class without taps
        ({"diff_src": (1, 8, 1)}, 1),
        ({"transposed": True}, 1),
    ],
)
def test_classes_that_go_together(changes, classes):
    assert row_classes(PROBLEM._replace(**{"transposed": False, **changes})) == classes


@every_dtype
@pytest.mark.parametrize("begin", [0, 1, 2, 3])
@pytest.mark.parametrize("width", [1, 2, 7, 20])
@pytest.mark.parametrize("kernel", range(2, 11))
def test_every_kernel_with_strides(kernel, width, begin, dtype):
    for end in (0, 1, 2):
        if 2 * (width - 1) + kernel > begin + end:
            case = strided(kernel, width, dtype, pads_begin=(1, begin), pads_end=(0, end))
            case.check(large=True)


@every_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "spaced", "inside", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("groups", [1, 3, 16, 150])
def test_views_with_strides(groups, accumulate, view, data_format, dtype):
    pads = {"pads_begin": (1, 2), "pads_end": (2, 1)}
    case = strided(5, 11, dtype, data_format, groups=groups, **pads)
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
@every_format
@pytest.mark.parametrize("dst", [(41,), (3, 4, 15)])
def test_other_ranks_with_strides(dst, data_format, dtype):
    rank = len(dst)
    extents = {"dst": dst, "kernel": (3,) * rank, "strides": (2,) * rank, "dilations": (1,) * rank}
    pads = {"pads_begin": (1,) * rank, "pads_end": (1,) * rank}
    replace(strided(3, 1, dtype, data_format), **extents, **pads).check()


@every_dtype
@every_format
def test_cuts_with_strides_do_not_change_a_bit(monkeypatch, data_format, dtype):
    case = strided(3, 40, dtype, data_format, pads_begin=(1, 1), pads_end=(0, 0))
    assert_cuts_do_not_change_a_bit(monkeypatch, case)


@every_dtype
@every_format
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values_with_strides(value, data_format, dtype):
    case = strided(3, 9, dtype, data_format, pads_begin=(1, 1), pads_end=(0, 0))
    assert_value_reaches_what_it_touches(case, value)


# -- more than caches hold -------------------------------------------------------------------------


@every_dtype
@pytest.mark.parametrize("view", ["contiguous", "inside", "spaced", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("channels", [3, 9, 33])
def test_rows_past_the_caches(monkeypatch, channels, accumulate, view, dtype):
    """As if no cache held anything: bit for bit the same, and nothing between is touched."""
    case = replace(layer("1-1-1-3-1-1", groups=channels), batch=2, dst=(4, 11), dtype=dtype)
    cases = [case, replace(case, kernel=(1, 2), pads_begin=(0, 2), pads_end=(0, 1))]
    cases.append(replace(case, strides=(2, 1), dilations=(1, 2), pads_begin=(1, 2)))
    cases.append(replace(case, transposed=True, weights_format="XOI", strides=(1, 2)))
    cases.append(replace(case, strides=(2, 2), pads_begin=(1, 1)))
    cases += [in_format(case, "NCX", dtype) for case in cases]
    for case in cases:
        arrays = case.formatted(*case.arrays())
        results = [case.call(*arrays)]
        with monkeypatch.context() as patch:
            patch.setattr(_processor, "past_the_caches", lambda *_: True)
            patch.setattr(_convolution_cut, "NARROW_PIXEL", 0)
            plans.plan_for.cache_clear()
            case.check(view=view, out_view=view, accumulate=accumulate, large=True)
            results.append(case.call(*arrays, num_threads=2))
        plans.plan_for.cache_clear()
        assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize(("width", "fits"), [(112, True), (4096, False)])
def test_scratch_for_rows_past_the_caches(width, fits):
    extents = (1, 64, width)
    problem = POINTWISE._replace(batch=16, groups=512, diff_src=extents, diff_dst=extents)
    problem = problem._replace(diff_src_channels=512, diff_dst_channels=512, kernel=(1, 3, 1))
    cut = plans.Plan(problem, forced.CHANNELS_LAST, 1).cut
    assert cut.streams
    assert cut.stages == fits
    assert (cut.scratch_bytes > width * 512 * 4) == fits


# -- along rows -----------------------------------------------------------------------------------


@pytest.fixture
def along_rows(monkeypatch):
    """Let positions be lanes wherever they can."""
    monkeypatch.setattr(
        _convolution_depthwise_times,
        "along_rows",
        lambda p, *_: p.transposed or p.strides[2] in (1, row_classes(p)),
    )
    yield from forced.other_plans()


def along(kernel, *, dst, dtype, transposed=False, strides=None, dilations=None, **changes):
    """Return a layer whose pads are not the same at both ends."""
    ones = (1,) * len(kernel)
    return replace(
        in_format(layer("1-1-9-1-1-0", groups=19, transposed=transposed), "NCX", dtype),
        batch=2,
        dst=dst,
        kernel=kernel,
        strides=strides or ones,
        dilations=dilations or ones,
        pads_begin=tuple(k // 2 for k in kernel),
        pads_end=tuple((k - 1) // 2 for k in kernel),
        **changes,
    )


PLANES = kernels.Layout(False, False, True, True, False, False, 0, False)
ONES = (1, 1, 1)


def plane(
    width, *, height=30, channels=64, kernel=(1, 3, 3), strides=ONES, transposed=False, dtype=0
):
    """Return a problem without padding, of one image of diff_src."""
    diff_src = (1, height, width)
    axes = list(zip(diff_src, kernel, strides, strict=True))
    diff_dst = tuple(
        (x - 1) * s + k if transposed else max(1, (x - k) // s + 1) for x, k, s in axes
    )
    return POINTWISE._replace(
        transposed=transposed,
        dtype=dtype,
        groups=channels,
        diff_src_channels=channels,
        diff_dst_channels=channels,
        diff_src=diff_src,
        diff_dst=diff_dst,
        kernel=kernel,
        strides=strides,
    )


@pytest.fixture
def whole_vectors(monkeypatch):
    """Let times be those of a processor that multiplies 64 bytes at once."""
    yield from forced.whole_vectors(monkeypatch)


@pytest.mark.parametrize(
    ("dtype", "taps", "channels", "pairs", "least"),
    [
        (0, 3, 64, False, 14),
        (1, 3, 64, False, 14),
        (0, 7, 64, False, 14),
        (1, 7, 64, False, 56),  # in a window of floats
        (0, 3, 3, False, 3),  # of a vector's lanes three would have a channel
        (2, 3, 64, True, 28),
        (2, 7, 64, True, 56),  # boxes multiply pairs of rows
        (2, 7, 48, True, 28),  # and here only rows do, of columns
    ],
)
def test_which_rows_are_long_enough(whole_vectors, dtype, taps, channels, pairs, least):
    for width in (1, 3, 7, 14, 28, 56, 112):
        problem = plane(width, channels=channels, kernel=(1, taps, taps), dtype=dtype)
        assert along_rows_of(problem, 16, pairs) == (width >= least)


@pytest.mark.parametrize(
    ("transposed", "strides", "along"),
    [
        (True, (1, 1, 2), True),
        (True, (1, 5, 5), False),  # columns are taken apart one by one
        (False, (1, 2, 1), True),
        (False, (1, 2, 2), True),
        (False, (1, 1, 2), True),
        (False, (1, 4, 4), False),
    ],
)
def test_which_strides_go_along_rows(whole_vectors, transposed, strides, along):
    problem = plane(112, strides=strides, transposed=transposed)
    assert along_rows_of(problem, 16, False) == along


@pytest.mark.parametrize(
    ("channels", "width", "kernel", "changes", "along"),
    [
        (64, 1000, 3, {}, False),
        (17, 16000, 3, {}, True),  # the second vector of channels would have one
        (17, 20, 31, {}, False),
        (24, 16000, 31, {}, False),
        (64, 16000, 8, {"transposed": True, "strides": (1, 1, 4)}, False),
        (17, 16000, 3, {"strides": (1, 1, 3)}, False),
        (17, 16000, 3, {"strides": (1, 1, 2)}, True),
    ],
)
def test_which_rows_alone_are_lanes(whole_vectors, channels, width, kernel, changes, along):
    problem = plane(width, height=1, channels=channels, kernel=(1, 1, kernel), **changes)
    assert along_rows_of(problem, 16, False) == along


@pytest.mark.parametrize(
    ("kernel", "width", "along"),
    [
        ((1, 1, 3), 56, True),
        ((1, 1, 21), 112, False),  # each product loads
        ((1, 21, 1), 112, True),
    ],
)
def test_which_lines_of_taps_go_along_rows(whole_vectors, kernel, width, along):
    assert along_rows_of(plane(width, kernel=kernel), 16, False) == along


def test_windows_that_do_not_fit_are_left_to_boxes():
    volume = plane(32, height=32, channels=3, kernel=(9, 9, 9))._replace(
        rank=3, diff_src=(32, 32, 32), diff_dst=(8, 8, 8), dilations=(3, 3, 3)
    )
    assert _convolution_depthwise_times.nanoseconds(volume, 16, False)[0] == np.inf
    assert not along_rows_of(volume, 16, False)


@pytest.mark.parametrize(
    ("stride", "kernel", "dilation", "columns"),
    [
        (8, 16, 1, True),
        (8, 8, 1, True),
        (8, 12, 1, False),  # half of the last stride's weights would be invented
        (8, 16, 2, False),
        (4, 8, 1, True),
    ],
)
def test_which_columns_are_lanes(stride, kernel, dilation, columns):
    problem = plane(112, kernel=(1, kernel, kernel), strides=(1, stride, stride), transposed=True)
    problem = problem._replace(dilations=(1, dilation, dilation))
    assert _convolution_depthwise.strided(problem, 16) == columns
    assert not _convolution_depthwise.strided(problem, stride // 2)


@pytest.mark.parametrize("channels", [1, 2])
def test_planes_of_few_channels_go_along_rows(channels):
    found = forced.choice_of(plane(56, channels=channels, height=56), PLANES)
    assert found.kernel == kernels.DEPTHWISE
    assert found.along_rows


@every_dtype
@every_format
@pytest.mark.parametrize("groups", [1, 3, 33])
@pytest.mark.parametrize("accumulate", [False, True])
def test_kernels_that_no_position_meets(groups, accumulate, data_format, dtype):
    case = along((1, 4), dst=(3, 40), dtype=dtype, strides=(4, 1))
    # Every fourth row is met by a tap, and these are not among the three of the result.
    case = replace(case, groups=groups, pads_begin=(5, 2), pads_end=(1, 0))
    in_format(case, data_format, dtype).check(accumulate=accumulate)


def test_an_image_of_one_channel_is_a_plane():
    image = plane(56, channels=1, height=56)
    layout = kernels.Layout(True, True, True, True, True, True, 0, False)
    assert forced.choice_of(image, layout).along_rows


@pytest.mark.parametrize("kernel", [(3, 3), (4, 2), (5,)])
def test_an_image_of_one_channel_is_added_to(kernel):
    case = replace(along(kernel, dst=(9, 40)[-len(kernel) :], dtype="f32"), groups=1)
    arrays = in_format(case, "NXC", "f32").formatted(*case.arrays())
    dy, weights = map(np.ascontiguousarray, arrays)
    call = in_format(case, "NXC", "f32").call
    result = call(dy, weights)
    out = np.ones_like(result)
    call(dy, weights, out=out, accumulate=True)
    np.testing.assert_allclose(out, result + 1, rtol=1e-5, atol=1e-5)


@every_dtype
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("width", [3, 16, 65, 90, 100, 120, 128, 130, 150, 300])
def test_rows_alone(along_rows, width, stride, dtype):
    along((5,), dst=(width,), dtype=dtype, strides=(stride,)).check(large=True)


@every_dtype
@pytest.mark.parametrize("groups", [1, 3, 8])
@pytest.mark.parametrize("kernel", [(3, 3), (5, 1), (1, 5), (3, 3, 3)])
def test_few_channels_along_rows(along_rows, kernel, groups, dtype):
    case = along(kernel, dst=(6,) * (len(kernel) - 1) + (40,), dtype=dtype)
    replace(case, groups=groups).check(large=True)


@every_dtype
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 7, 9, 12])
@pytest.mark.parametrize("width", [1, 5, 16, 17, 31, 70, 140])
def test_every_kernel_along_rows(along_rows, width, height, transposed, dtype):
    kernel = (height, 1 + height % 5)
    along(kernel, dst=(13, width + 1), dtype=dtype, transposed=transposed).check(large=True)


@every_dtype
@pytest.mark.parametrize("view", ["contiguous", "inside", "reversed", "fortran order"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dilations", [(1, 1), (2, 1), (1, 3), (4, 5)])
def test_views_along_rows(along_rows, dilations, accumulate, view, dtype):
    case = along((3, 5), dst=(15, 45), dtype=dtype, dilations=dilations)
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
@pytest.mark.parametrize("view", ["contiguous", "inside", "spaced"])
@pytest.mark.parametrize("dst", [(90,), (13, 45), (3, 5, 33)])
def test_planes_past_the_caches(monkeypatch, along_rows, dst, view, dtype):
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: True)
    along((3,) * len(dst), dst=dst, dtype=dtype).check(view=view, out_view=view, large=True)


@every_dtype
@pytest.mark.parametrize("dst", [(40,), (7, 7, 40)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_other_ranks_along_rows(along_rows, dilation, dst, dtype):
    kernel, dilations = (2, 3, 4)[-len(dst) :], (dilation,) * len(dst)
    case = along(kernel, dst=dst, dtype=dtype, dilations=dilations)
    case.check(large=True)
    replace(case, pads_begin=(3,) * len(dst), pads_end=(4,) * len(dst)).check(large=True)


@every_dtype
@pytest.mark.parametrize("dilations", [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("strides", [(1, 2), (2, 1), (3, 4), (6, 3), (8, 8)])
@pytest.mark.parametrize("positions", [1, 5, 33])
def test_strides_along_rows(along_rows, positions, strides, dilations, dtype):
    """Of positions that read beyond both ends, and with rows at the end that none reads."""
    for kernel in ((1, 1), (3, 5), (16, 8)):
        extents = zip((7, positions), strides, kernel, dilations, strict=True)
        dst = tuple((n - 1) * s + (k - 1) * d + 1 for n, s, k, d in extents)
        case = along(
            kernel, dst=dst, dtype=dtype, transposed=True, strides=strides, dilations=dilations
        )
        case.check(large=True)
        replace(case, pads_begin=(0, 0), pads_end=tuple(s + 1 for s in strides)).check(large=True)


@every_dtype
@pytest.mark.parametrize("dst", [(131,), (9, 14, 72)])
@pytest.mark.parametrize("view", ["contiguous", "inside", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
def test_views_of_strides_along_rows(along_rows, accumulate, view, dst, dtype):
    rank = len(dst)
    case = along((4,) * rank, dst=dst, dtype=dtype, transposed=True, strides=(2, 3, 4)[-rank:])
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
def test_blocks_of_strides_along_rows_do_not_change_a_bit(monkeypatch, along_rows, dtype):
    case = along((8, 8), dst=(80, 140), dtype=dtype, transposed=True, strides=(4, 4))
    limits = (13, 15, 17, 20)
    assert_cuts_do_not_change_a_bit(monkeypatch, case, "STRIDED_PLANE_BYTES", limits)


@every_dtype
@pytest.mark.parametrize("dst", [(40, 90), (6, 20, 40)])
@pytest.mark.parametrize("taps", [3, 5])
def test_blocks_along_rows_do_not_change_a_bit(monkeypatch, along_rows, taps, dst, dtype):
    case = along((taps,) * len(dst), dst=dst, dtype=dtype)
    assert_cuts_do_not_change_a_bit(monkeypatch, case, "PLANE_BYTES", (10, 12, 14, 20))


@every_dtype
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("strides", [(1, 2), (2, 2), (3, 2), (2, 1), (5, 1)])
@pytest.mark.parametrize("kernel", [(1, 2), (2, 3), (3, 3), (4, 7), (7, 5), (9, 2)])
def test_residue_classes_along_rows(along_rows, kernel, strides, dilation, dtype):
    """Of rows of a few vectors or less, even and odd, and of classes without a tap."""
    for width in (2, 9, 32, 33, 64, 97, 160):
        dst = (14 + dilation * kernel[0], max(width, kernel[1]))
        case = along(
            kernel, dst=dst, dtype=dtype, strides=strides, dilations=(dilation, 1), groups=3
        )
        case.check(large=True)
        replace(case, pads_begin=(0, 0), pads_end=(1, 2)).check(large=True)


@every_dtype
@pytest.mark.parametrize("dst", [(131,), (9, 14, 72)])
@pytest.mark.parametrize("view", ["contiguous", "inside", "reversed"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("past", [False, True])
def test_views_of_classes_along_rows(monkeypatch, along_rows, past, accumulate, view, dst, dtype):
    monkeypatch.setattr(_processor, "past_the_caches", lambda *_: past)
    rank = len(dst)
    case = along((3,) * rank, dst=dst, dtype=dtype, strides=(2, 3, 2)[-rank:])
    case.check(view=view, out_view=view, accumulate=accumulate, large=True)


@every_dtype
@pytest.mark.parametrize("dst", [(80, 140), (7, 20, 66)])
def test_blocks_of_classes_along_rows_do_not_change_a_bit(monkeypatch, along_rows, dst, dtype):
    case = along((3,) * len(dst), dst=dst, dtype=dtype, strides=(2,) * len(dst))
    assert_cuts_do_not_change_a_bit(monkeypatch, case, "PLANE_BYTES", (9, 11, 13, 20))


@every_dtype
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_special_values_along_rows(along_rows, value, dtype):
    for kernel in ((3, 3), (2, 4), (3, 5)):
        case = along(kernel, dst=(9, 31), dtype=dtype, groups=3)
        assert_value_reaches_what_it_touches(case, value)
    for strides in ((2, 2), (3, 2)):
        case = along((3, 3), dst=(9, 31), dtype=dtype, groups=3, strides=strides)
        assert_value_reaches_what_it_touches(case, value)
    case = along((3, 3), dst=(9, 31), dtype=dtype, groups=3, transposed=True, strides=(2, 4))
    assert_value_reaches_what_it_touches(case, value)
