"""The three interpolation operators against the float64 reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradops_cy import interpolate_backprop, interpolate_backward, resize_bilinear_v2_grad
from tests import reference
from tests.cases import every_dtype, every_format
from tests.tolerances import DTYPES, assert_close
from tests.views import VIEWS, WRITEABLE

MODES = ("nearest", "linear", "bilinear", "trilinear")
TRANSFORMS = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


def of_rounded_coordinates(dtype, src, magnitude):
    """Return what coordinates computed from a given scale, in float64, add to a magnitude.

    They err by an eps of the extent, and what one source element loses its neighbour gains.
    """
    accumulator = np.finfo(np.float64 if dtype == "f64" else np.float32).eps
    return max(src) * magnitude.max() * np.finfo(np.float64).eps / accumulator


def check(
    dtype,
    data_format,
    batch,
    channels,
    src,
    dst,
    mode,
    transform,
    *,
    view="contiguous",
    out_view=None,
    accumulate=False,
    **keywords,
):
    """Call interpolate_backward on random data, from and into views, and compare."""
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((batch, channels, *dst)).astype(DTYPES[dtype])
    shape = (batch, channels, *src) if data_format == "NCX" else (batch, *src, channels)
    scales = keywords.get("coordinate_scales")
    exact, magnitude = (
        reference.interpolate_backward(
            dy.astype(np.float64), src, mode, transform, scales, magnitude=m
        )
        for m in (False, True)
    )
    if scales is not None:
        magnitude = magnitude + of_rounded_coordinates(dtype, src, magnitude)
    if out_view is not None:
        before = rng.standard_normal(shape).astype(dy.dtype)
        keywords.update(out=WRITEABLE[out_view](before.copy()), accumulate=accumulate)
        if accumulate:
            before = reference.to_ncx(before, data_format).astype(np.float64)
            exact, magnitude = exact + before, magnitude + np.abs(before)
    result = interpolate_backward(
        shape,
        VIEWS[view](np.ascontiguousarray(reference.from_ncx(dy, data_format))),
        mode=mode,
        coordinate_transformation_mode=transform,
        data_format=data_format,
        **keywords,
    )
    assert out_view is None or result is keywords["out"]
    assert result.dtype == DTYPES[dtype]
    assert result.shape == shape
    assert_close(reference.to_ncx(result, data_format), exact, magnitude)


EXTENTS = [
    ((1,), (1,)),
    ((1,), (9,)),
    ((9,), (1,)),
    ((17,), (21,)),
    ((32,), (64,)),
    ((200,), (33,)),
    ((7, 14), (6, 12)),
    ((3, 11), (5, 11)),
    ((8, 8), (16, 16)),
    ((4, 5), (32, 40)),
    ((32, 24), (8, 12)),
    ((9, 1), (1, 9)),
    ((33, 17), (65, 20)),
    ((2, 4, 6), (4, 8, 12)),
    ((3, 8, 7), (4, 3, 9)),
    ((5, 1, 6), (2, 4, 6)),
    ((3, 17), (6, 34)),
    ((3, 33), (6, 66)),
    ((27,), (216,)),
    ((5, 100), (10, 25)),
    ((2, 3, 40), (4, 6, 160)),
]


@every_dtype
@every_format
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("src", "dst"), EXTENTS)
def test_extents(src, dst, mode, transform, data_format, dtype):
    check(dtype, data_format, 2, 5, src, dst, mode, transform)


@every_dtype
@every_format
@pytest.mark.parametrize("channels", [1, 2, 3, 8, 15, 16, 17, 21, 33, 64, 100, 600])
def test_channels(channels, data_format, dtype):
    check(dtype, data_format, 1, channels, (5, 9), (10, 18), "bilinear", "half_pixel")
    check(dtype, data_format, 2, channels, (6, 5), (4, 9), "nearest", "half_pixel")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_linear_names_are_synonyms_at_every_rank(rank, mode):
    check("f32", "NXC", 1, 4, (4, 5, 6)[:rank], (7, 3, 6)[:rank], mode, "half_pixel")


# dst/src scales of few bits, so that no exact coordinate lies within a rounding of an integer:
# there indices jump, and a weight is either zero or next to it.
SCALES = st.integers(8, 640).map(lambda k: k / 64)


@given(data=st.data())
def test_any_case_is_exact(data):
    rank = data.draw(st.integers(1, 3))
    extent = st.integers(1, {1: 70, 2: 18, 3: 7}[rank])
    spatial = st.tuples(*[extent] * rank)
    mode = data.draw(st.sampled_from(MODES))
    check(
        data.draw(st.sampled_from(list(DTYPES))),
        data.draw(st.sampled_from(["NXC", "NCX"])),
        data.draw(st.integers(1, 3)),
        data.draw(st.sampled_from([1, 3, 16, 17, 40])),
        data.draw(spatial),
        data.draw(spatial),
        mode,
        data.draw(st.sampled_from(TRANSFORMS)),
        view=data.draw(st.sampled_from(list(VIEWS))),
        out_view=data.draw(st.none() | st.sampled_from(list(WRITEABLE))),
        accumulate=data.draw(st.booleans()),
        num_threads=data.draw(st.integers(1, 4)),
        coordinate_scales=data.draw(st.none() | st.tuples(*[SCALES] * rank)),
    )


@every_format
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("channels", "src", "dst"),
    [
        (21, (65, 65), (129, 129)),
        (3, (64, 64), (256, 256)),
        (256, (20, 20), (40, 40)),
        (1, (300, 200), (37, 41)),
        (8, (2, 2), (300, 200)),
        (16, (12, 16, 16), (24, 32, 32)),
        (5, (2,), (9000,)),
        (2, (9000,), (3,)),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_real_layers(channels, src, dst, mode, data_format, dtype):
    check(dtype, data_format, 1, channels, src, dst, mode, "half_pixel")


@every_dtype
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("src", "dst", "transform"),
    [
        ((3, 290), (12, 1160), "half_pixel"),
        ((3, 290), (24, 2320), "asymmetric"),
        ((2, 2100), (4, 4200), "half_pixel"),
        ((4, 1100), (9, 4400), "asymmetric"),
        ((2, 8, 72), (16, 64, 144), "half_pixel"),
        ((9, 50), (18, 100), "asymmetric"),
        ((5, 7, 40), (10, 14, 80), "half_pixel"),
        ((9, 65), (65, 513), "align_corners"),
        ((2, 3, 131), (8, 3, 521), "align_corners"),
    ],
)
def test_whole_factors(src, dst, transform, mode, accumulate, dtype):
    """Rows in phases: longer than are kept at a time, whole vectors or not."""
    out = {"out_view": "contiguous", "accumulate": accumulate}
    check(dtype, "NCX", 2, 3, src, dst, mode, transform, **out)


@every_dtype
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize(
    ("src", "dst"),
    [((10, 4200), (5, 2100)), ((7, 200), (3, 25)), ((6, 66), (12, 33)), ((3, 5, 48), (3, 5, 12))],
)
def test_whole_shares(src, dst, transform, mode, accumulate, dtype):
    """Columns that are spread over the positions that read them."""
    out = {"out_view": "contiguous", "accumulate": accumulate}
    check(dtype, "NCX", 2, 3, src, dst, mode, transform, **out)


@every_dtype
@pytest.mark.parametrize("out_view", WRITEABLE)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dst", [(12, 96), (18, 384), (3, 12)])
def test_views_of_whole_factors(dst, view, out_view, dtype):
    check(dtype, "NCX", 2, 3, (6, 48), dst, "linear", "half_pixel", view=view, out_view=out_view)


@every_dtype
@every_format
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("channels", "src", "dst"),
    [
        (17, (7, 14), (6, 12)),
        (3, (24, 24), (72, 72)),
        (3, (3, 42), (5, 14)),
        (20, (7, 7), (14, 14)),
        (2, (4, 45), (4, 60)),
        (3, (2, 4200), (3, 6300)),
        (2, (3, 6300), (2, 4200)),
        (2, (2, 2049), (4, 6147)),
        (5, (3, 6, 30), (4, 9, 40)),
        (30, (5, 9), (7, 20)),
        (7, (9, 5), (80, 20)),
        (40, (2, 3, 4), (5, 4, 9)),
        (70, (11,), (27,)),
        (3, (64, 34), (96, 51)),
        (3, (11, 310), (13, 829)),
    ],
)
def test_batches(channels, src, dst, mode, accumulate, data_format, dtype):
    """Batches of small planes, of rows of one plane, and of rows in pieces."""
    out = {"out_view": "contiguous", "accumulate": accumulate}
    check(dtype, data_format, 2, channels, src, dst, mode, "half_pixel", **out)


@every_dtype
@pytest.mark.parametrize("out_view", WRITEABLE)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dst", [(9, 45), (4, 20), (13, 60)])
def test_views_of_batches(dst, view, out_view, dtype):
    check(dtype, "NCX", 2, 9, (6, 30), dst, "linear", "half_pixel", view=view, out_view=out_view)


@every_dtype
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("dst", [(14, 96), (14, 12), (14, 144), (5, 64)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_position_beside_is_spoilt(bad, dst, mode, dtype):
    """What is not finite reaches the positions that read it, and no other."""
    dy = np.zeros((1, 1, *dst), DTYPES[dtype])
    dy[0, 0, 3, ::7] = bad
    spoilt = ~np.isfinite(interpolate_backward((1, 1, 7, 48), dy, mode=mode, data_format="NCX"))
    ones = np.where(np.isfinite(dy), 0, 1).astype(dy.dtype)
    reads = interpolate_backward((1, 1, 7, 48), ones, mode=mode, data_format="NCX") != 0
    np.testing.assert_array_equal(spoilt, reads)


def test_nearest_half_pixel_index_is_exact():
    """The golden fact: (2x+1)·src // (2·dst), for every pair of extents up to 96."""
    for src in range(1, 97):
        for dst in range(1, 97):
            dy = np.arange(1, dst + 1, dtype=np.float64).reshape(1, 1, dst)
            result = interpolate_backward((1, 1, src), dy, mode="nearest", data_format="NCX")
            index = [(2 * y + 1) * src // (2 * dst) for y in range(dst)]
            assert (result.ravel() == np.bincount(index, dy.ravel(), src)).all()


@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(("src", "dst"), [(2**24 + 1, 2**23 + 3), (2**23 + 3, 2**24 + 1)])
def test_indices_are_exact_at_large_extents(src, dst, transform):
    """Where float32 coordinates break: each destination lands where integers say."""
    y = np.arange(dst, dtype=np.int64)
    if transform == "half_pixel":
        index = (2 * y + 1) * src // (2 * dst)
    elif transform == "align_corners":
        index = (2 * y * (src - 1) + dst - 1) // (2 * (dst - 1))
    else:
        index = y * src // dst
    dy = np.ones((1, dst, 1), np.float32)
    result = interpolate_backward(
        (1, src, 1), dy, mode="nearest", coordinate_transformation_mode=transform
    )
    assert (result.ravel() == np.bincount(index, minlength=src)).all()


@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(("src", "dst"), [(2**24 + 1, 2**23 + 3)])
def test_weights_are_exact_at_large_extents(src, dst, transform):
    """Ones spread by their linear weights, against integer coordinates (in float64)."""
    y = np.arange(dst, dtype=np.int64)
    if transform == "half_pixel":
        numerator, divisor = (2 * y + 1) * src - dst, 2 * dst
    elif transform == "align_corners":
        numerator, divisor = y * (src - 1), dst - 1
    else:
        numerator, divisor = y * src, dst
    numerator = np.clip(numerator, 0, (src - 1) * divisor)
    left, rest = np.divmod(numerator, divisor)
    right = np.minimum(left + 1, src - 1)
    exact = np.bincount(left, (divisor - rest) / divisor, src)
    exact += np.bincount(right, rest / divisor, src)
    for dtype in (np.float32, np.float64):
        result = interpolate_backward(
            (1, src, 1),
            np.ones((1, dst, 1), dtype),
            mode="linear",
            coordinate_transformation_mode=transform,
        )
        assert_close(result.ravel(), exact, exact)


def test_golden_nearest():
    dy = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    result = interpolate_backward((1, 2, 2, 1), dy, mode="nearest")
    assert result.ravel().tolist() == [0, 3, 9, 24]


def test_golden_bilinear():
    dy = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    result = interpolate_backward((1, 2, 2, 1), dy, mode="bilinear")
    assert result.ravel().tolist() == [3, 6, 12, 15]


@pytest.mark.parametrize("operator", [interpolate_backward, interpolate_backprop])
def test_sizes_and_scales(operator):
    src = np.zeros((1, 4, 6, 2), np.float32)
    dy = np.ones((1, 8, 18, 2), np.float32)
    expected = operator(src, dy, mode="linear")
    for sizes in ((8, 18), [8, 18], np.array([8, 18], np.int32)):
        assert (operator(src, dy, sizes, mode="linear") == expected).all()
        assert (operator(src.shape, dy, sizes=sizes, mode="linear") == expected).all()
    assert (operator(src, dy, mode="linear", scales=(2.0, 3.0)) == expected).all()
    # A scale whose product falls short by rounding: coordinates come from the extents.
    dy = np.ones((1, 31, 1), np.float32)
    scaled = operator((1, 7, 1), dy, mode="linear", scales=[31 / 7])
    assert (scaled == operator((1, 7, 1), dy, mode="linear")).all()


def test_sizes_win_over_scales():
    dy = np.ones((1, 8, 2), np.float32)
    result = interpolate_backward((1, 4, 2), dy, [8], mode="nearest", scales=[77.0])
    assert (result == 2).all()


def test_older_names_compute_the_same():
    dy = np.random.default_rng(0).standard_normal((2, 9, 7, 3)).astype(np.float32)
    keywords = {"mode": "bilinear", "coordinate_transformation_mode": "align_corners"}
    a = interpolate_backprop(
        input_forward=np.zeros((2, 4, 5, 3), np.float32), output_delta=dy, **keywords
    )
    b = interpolate_backward(src=np.zeros((2, 4, 5, 3), np.float32), diff_dst=dy, **keywords)
    assert (a == b).all()


@pytest.mark.parametrize(("src", "dst"), [(7, 31), (11, 13), (14, 12), (3, 5)])
@pytest.mark.parametrize("operator", [interpolate_backward, interpolate_backprop])
def test_scales_that_do_not_round_trip(operator, src, dst):
    """Coordinates come from the extents, and the scale need only reach them within one."""
    dy = np.random.default_rng(0).standard_normal((1, dst, 2)).astype(np.float32)
    expected = operator((1, src, 2), dy, mode="linear")
    for scale in (dst / src, float(np.float32(dst / src)), round(dst / src, 6)):
        for form in (scale, [scale], np.array([scale]), np.float32(scale)):
            assert (operator((1, src, 2), dy, mode="linear", scales=form) == expected).all()


@pytest.mark.parametrize("form", [8, np.int64(8), [8], (8,), np.array([8], np.int32), range(8, 9)])
@pytest.mark.parametrize("operator", [interpolate_backward, interpolate_backprop])
def test_forms_of_sizes(operator, form):
    dy = np.ones((1, 8, 2), np.float32)
    assert (operator((1, 4, 2), dy, form, mode="linear") == 2).all()


@pytest.mark.parametrize("absent", [None, [], (), np.array([], np.int32)])
@pytest.mark.parametrize("operator", [interpolate_backward, interpolate_backprop])
def test_neither_sizes_nor_scales(operator, absent):
    """The extents of the gradient are taken; graphs write an absent list as an empty one."""
    dy = np.ones((1, 8, 2), np.float32)
    for keywords in ({"sizes": absent}, {"scales": absent}, {"sizes": absent, "scales": [2.0]}):
        assert (operator((1, 4, 2), dy, mode="linear", **keywords) == 2).all()


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_coordinate_scales_of_the_extents_change_nothing(transform, mode):
    dy = np.random.default_rng(0).standard_normal((1, 12, 24, 2)).astype(np.float32)
    keywords = {"mode": mode, "coordinate_transformation_mode": transform}
    plain = interpolate_backward((1, 8, 8, 2), dy, **keywords)
    scaled = interpolate_backward((1, 8, 8, 2), dy, **keywords, coordinate_scales=[1.5, 3.0])
    np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-6)


def test_untouched_positions_are_zero():
    dy = np.full((1, 3, 1), np.float32(5))
    result = interpolate_backward((1, 30, 1), dy, mode="nearest").ravel()
    assert sorted(np.flatnonzero(result)) == [5, 15, 25]


# -- ResizeBilinearV2Grad ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grads_dtype", "image_dtype"),
    [
        ("f32", "f32"),
        ("f16", "f16"),
        ("bf16", "bf16"),
        ("f64", "f64"),
        ("f32", "f16"),
        ("f32", "bf16"),
    ],
)
@pytest.mark.parametrize("data_format", ["NXC", "NCX", "NHWC", "NCHW"])
@pytest.mark.parametrize("flags", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    "scales", [(0.0, 0.0), (1.75, 0.0), (0.0, 0.40625), (3.0, 2.0), (-1.0, 0.25)]
)
def test_resize_bilinear_v2_grad(scales, flags, data_format, grads_dtype, image_dtype):
    rng = np.random.default_rng(1)
    fmt = "NXC" if data_format.endswith("C") else "NCX"
    for image, size in (((5, 7), (11, 7)), ((9, 4), (3, 13)), ((1, 6), (4, 1))):
        grads = rng.standard_normal((2, 3, *size)).astype(DTYPES[grads_dtype])
        shape = (2, 3, *image) if fmt == "NCX" else (2, *image, 3)
        result = resize_bilinear_v2_grad(
            np.ascontiguousarray(reference.from_ncx(grads, fmt)),
            np.empty(shape, DTYPES[image_dtype]),
            align_corners=flags[0],
            half_pixel_centers=flags[1],
            scales=scales,
            data_format=data_format,
        )
        assert result.dtype == DTYPES[image_dtype]
        exact, magnitude = (
            reference.resize_bilinear_v2_grad(
                g, image, align_corners=flags[0], half_pixel_centers=flags[1], scales=scales
            )
            for g in (grads.astype(np.float64), np.abs(grads.astype(np.float64)))
        )
        if any(scales):
            magnitude = magnitude + of_rounded_coordinates(grads_dtype, image, magnitude)
        assert_close(reference.to_ncx(result, fmt), exact, magnitude)


def test_golden_resize():
    grads = np.ones((1, 1, 4, 4), np.float32)
    assert resize_bilinear_v2_grad(grads, (1, 1, 2, 2)).ravel().tolist() == [2.25, 3.75, 3.75, 6.25]
    for flags in ({"half_pixel_centers": True}, {"align_corners": True}):
        assert (resize_bilinear_v2_grad(grads, (1, 1, 2, 2), **flags) == 4).all()


def test_resize_takes_a_shape_for_the_image():
    grads = np.ones((1, 2, 4, 4), DTYPES["bf16"])
    result = resize_bilinear_v2_grad(grads, [1, 2, 2, 2])
    assert result.dtype == DTYPES["bf16"]
    assert result.shape == (1, 2, 2, 2)


def test_zero_batch_and_zero_channels_are_empty():
    for shape in ((0, 4, 3), (2, 4, 0)):
        dy = np.ones((shape[0], 8, shape[2]), np.float32)
        assert interpolate_backward(shape, dy, mode="linear").shape == shape
    for shape in ((0, 3, 4, 4), (2, 0, 4, 4)):
        dy = np.ones((*shape[:2], 8, 8), np.float32)
        assert resize_bilinear_v2_grad(dy, shape).shape == shape


@every_dtype
@pytest.mark.parametrize("channels", [1, 3, 5, 16])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("dst", [100, 157, 210, 300, 340])
def test_chains_are_the_same_in_every_layout(dst, mode, channels, dtype):
    """Scales from 2 to 8: rows in parts, and in one where taps lie some channels apart."""
    rng = np.random.default_rng(dst)
    dy = rng.standard_normal((2, channels, 4, dst)).astype(DTYPES[dtype])
    first = interpolate_backward((2, channels, 2, 40), dy, mode=mode, data_format="NCX")
    exact, magnitude = (
        reference.interpolate_backward(values.astype(np.float64), (2, 40), mode, "half_pixel", None)
        for values in (dy, np.abs(dy))
    )
    assert_close(first, exact, magnitude)
    last = interpolate_backward((2, 2, 40, channels), np.moveaxis(dy, 1, -1).copy(), mode=mode)
    assert np.moveaxis(last, -1, 1).tobytes() == first.tobytes()


@pytest.mark.parametrize("seed", range(60))
def test_layouts_and_batches_agree_bit_for_bit(seed):
    """Kernels differ in what their lanes are, not in what they compute."""
    rng = np.random.default_rng(seed)
    rank = rng.integers(1, 4)
    src, dst = (tuple(map(int, rng.integers(1, (0, 90, 30, 9)[rank], rank))) for _ in range(2))
    batch, channels = int(rng.integers(1, 4)), int(rng.choice([1, 2, 3, 5, 16, 17, 70]))
    dtype = DTYPES[rng.choice(list(DTYPES))]
    keywords = {"mode": str(rng.choice(["nearest", "linear", "cubic"]))}
    if keywords["mode"] != "nearest":
        keywords["antialias"] = bool(rng.integers(2))
    dy = rng.standard_normal((batch, channels, *dst)).astype(dtype)
    first = interpolate_backward(
        (batch, channels, *src), dy, **keywords, data_format="NCX", num_threads=1
    )
    last = interpolate_backward(
        (batch, *src, channels), np.ascontiguousarray(np.moveaxis(dy, 1, -1)), **keywords
    )
    assert np.moveaxis(last, -1, 1).tobytes() == first.tobytes()
    part = interpolate_backward(
        (1, channels, *src), dy[-1:], **keywords, data_format="NCX", num_threads=3
    )
    assert part.tobytes() == first[-1:].tobytes()
