"""Both convolution operators against the float64 reference, over the whole attribute space."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradops_cy
from gradops_cy import conv_transpose_backward_data, convolution_backward_data
from tests import reference
from tests.cases import ConvCase, conv_case
from tests.tolerances import DTYPES, assert_close

NO_PADS = {"pads_begin": 0, "pads_end": 0}
PLAIN = {"strides": 1, "dilations": 1, **NO_PADS}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(60))
def test_drawn_cases_are_exact(seed, dtype):
    conv_case(seed, dtype=dtype).check()


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32), threads=st.integers(1, 3))
def test_any_case_is_exact(seed, threads):
    conv_case(seed).check(num_threads=threads)


def layer(name, **changes):
    """Return a 2-D case named like a layer: `name` is i-o-y-k-s-p of square extents."""
    i, o, y, k, s, p = (int(part) for part in name.split("-"))
    values = {
        "transposed": False,
        "dtype": "f32",
        "data_format": "NXC",
        "weights_format": "XIO",
        "batch": 1,
        "groups": 1,
        "inputs": i,
        "outputs": o,
        "dst": (y, y),
        "kernel": (k, k),
        "strides": (s, s),
        "dilations": (1, 1),
        "pads_begin": (p, p),
        "pads_end": (p, p),
        **changes,
    }
    return ConvCase(**values)


CHANNELS = (1, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 80, 100, 130)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("inputs", CHANNELS)
def test_every_width_of_result_channels(inputs, data_format, dtype):
    layer(f"{inputs}-5-6-3-1-1", data_format=data_format, dtype=dtype).check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("outputs", CHANNELS)
def test_every_width_of_summed_channels(outputs, data_format, dtype):
    layer(f"18-{outputs}-5-2-2-0", data_format=data_format, dtype=dtype).check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("width", [1, 2, 7, 8, 14, 15, 16, 17, 31, 33, 48, 65])
@pytest.mark.parametrize(("groups", "inputs"), [(1, 20), (1, 3), (33, 1), (8, 4)])
def test_every_width_of_rows(width, groups, inputs, data_format, dtype):
    layer(
        f"{inputs}-{inputs}-2-3-1-1",
        dst=(2, width),
        groups=groups,
        data_format=data_format,
        dtype=dtype,
    ).check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (1, 2), (2, 1), (4, 4), (8, 8)])
def test_groups_of_few_channels(inputs, outputs, stride, data_format, dtype):
    name = f"{inputs}-{outputs}-5-3-{stride}-1"
    layer(name, groups=24, data_format=data_format, dtype=dtype).check()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transposed", [False, True])
def test_strides_above_the_kernel_leave_zeros(transposed, dtype):
    case = layer("5-6-3-2-5-0", dtype=dtype, transposed=transposed, weights_format="XOI")
    if not transposed:
        case = layer("5-6-3-2-5-0", dtype=dtype)
        result = case.call(*case.formatted(*case.arrays()))
        assert not result[:, 2:5].any()
        assert not result[:, :, 2:5].any()
    else:
        case = layer("5-6-9-2-5-0", dtype=dtype, transposed=True, weights_format="XOI")
    case.check()


def dense(case):
    """Return the exact result of a large case, tap by tap with matrix products."""
    dy, weights = case.arrays()
    results = []
    for a, b in ((dy, weights), (np.abs(dy), np.abs(weights))):
        a, b = a.astype(np.float64), b.astype(np.float64)
        # Room for the padding on both sides, cropped in the end.
        pads = zip(case.spans, case.pads_begin, case.pads_end, strict=True)
        margins = [span + begin + end for span, begin, end in pads]
        shape = [x + 2 * m for x, m in zip(case.src, margins, strict=True)]
        total = np.zeros((case.batch, case.inputs * case.groups, *shape))
        og = case.outputs
        for k in np.ndindex(*case.kernel):
            places = []
            for axis, at in enumerate(k):
                first = at * case.dilations[axis] - case.pads_begin[axis] + margins[axis]
                step = case.strides[axis]
                places.append((first, step))
            for q in range(case.groups):
                part = a[:, q * og : (q + 1) * og]
                tap = b[(slice(q * og, (q + 1) * og), slice(None), *k)]
                value = np.einsum("no...,oi->ni...", part, tap)
                window = tuple(
                    slice(first, first + step * y, step)
                    for (first, step), y in zip(places, case.dst, strict=True)
                )
                channels = slice(q * case.inputs, (q + 1) * case.inputs)
                total[(slice(None), channels, *window)] += value
        crop = tuple(slice(m, m + x) for x, m in zip(case.src, margins, strict=True))
        results.append(total[(slice(None), slice(None), *crop)])
    return dy, weights, results


LAYERS = {
    "resnet 3x3": layer("64-64-28-3-1-1", batch=2),
    "resnet 1x1 to 2048": layer("512-1024-7-1-1-0"),
    "resnet 3x3 of 7x7": layer("256-300-7-3-1-1"),
    "resnet stride 2": layer("128-128-14-3-2-1", extra=(1, 1)),
    "first layer": layer("3-64-56-7-2-3", extra=(1, 1)),
    "projection of odd extents": layer("64-96-32-1-2-0"),
    "depthwise stride 2": layer("1-1-28-3-2-1", groups=144, extra=(1, 1)),
    "depthwise 7x7": layer("1-1-28-7-1-3", groups=96),
    "resnext": layer("4-4-28-3-1-1", groups=32),
    "grouped and dilated": layer(
        "12-20-21-3-1-2", groups=4, dilations=(2, 2), pads_begin=(2, 2), pads_end=(2, 2)
    ),
    "dilated": layer("96-80-33-3-1-6", dilations=(6, 6)),
    "patches": layer("3-192-7-16-16-0"),
    "wavenet": layer(
        "48-40-1-1-1-0",
        dst=(3000,),
        kernel=(2,),
        strides=(1,),
        dilations=(512,),
        pads_begin=(512,),
        pads_end=(0,),
    ),
    "unet 3-D": layer(
        "24-20-1-1-1-0",
        dst=(9, 20, 17),
        kernel=(3, 3, 3),
        strides=(1, 1, 1),
        dilations=(1, 1, 1),
        pads_begin=(1, 1, 1),
        pads_end=(1, 1, 1),
    ),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("name", LAYERS)
def test_real_layers(name, data_format, dtype):
    base = LAYERS[name]
    weights_format = "XIO" if data_format == "NXC" else "OIX"
    values = {
        **{f: getattr(base, f) for f in base.__dataclass_fields__},
        "dtype": dtype,
        "data_format": data_format,
        "weights_format": weights_format,
    }
    case = ConvCase(**values)
    dy, weights, exact = dense(case)
    result = case.call(*case.formatted(dy, weights))
    assert_close(reference.to_ncx(result, data_format), *exact)


def test_the_dense_reference_is_the_obvious_one():
    for seed in range(40):
        case = conv_case(seed, dtype="f64")
        if not case.transposed:
            _, _, (exact, magnitude) = dense(case)
            slow, slow_magnitude = case.exact(*case.arrays())
            np.testing.assert_allclose(exact, slow, rtol=0, atol=1e-12 * slow_magnitude.max())
            np.testing.assert_allclose(magnitude, slow_magnitude, rtol=1e-12, atol=0)


# -- the golden facts of the contract ----------------------------------------------------------


def test_golden_3x3():
    dy = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    w = np.array([1, 0, 1, 0, 1, 0, 1, 0, 1], np.float32).reshape(1, 1, 3, 3)
    result = convolution_backward_data(
        dy, w, (1, 1, 4, 4), **PLAIN, data_format="NCX", weights_format="OIX"
    )
    assert result.ravel().tolist() == [0, 1, 0, 1, 2, 3, 3, 3, 0, 3, 3, 1, 2, 3, 2, 3]


def test_golden_groups():
    w = np.array([1, 2, 3, 4], np.float32)
    dy = np.array([1, 10, 100, 1000], np.float32).reshape(1, 4, 1)
    result = convolution_backward_data(
        dy, w.reshape(4, 1, 1), **PLAIN, groups=2, data_format="NCX", weights_format="OIX"
    )
    assert result.ravel().tolist() == [21, 4300]
    dy = np.array([10, 100], np.float32).reshape(1, 2, 1)
    keywords = {**PLAIN, "groups": 2, "data_format": "NCX", "weights_format": "IOX"}
    result = conv_transpose_backward_data(dy, w.reshape(4, 1, 1), **keywords)
    assert result.ravel().tolist() == [10, 20, 300, 400]
    page = np.array([[1, 3], [2, 4]], np.float32).reshape(2, 2, 1)
    assert (conv_transpose_backward_data(dy, page, **keywords) == result).all()


@pytest.mark.parametrize("weights_format", ["IOX", "XOI"])
@pytest.mark.parametrize(("groups", "ig", "og"), [(2, 3, 5), (4, 5, 4), (17, 1, 1), (3, 1, 2)])
def test_both_arrangements_of_transposed_weights(groups, ig, og, weights_format):
    rng = np.random.default_rng(groups)
    page = rng.standard_normal((ig, og * groups, 3, 3)).astype(np.float32)
    stored = reference.implementation_weights(page, groups)
    dy = rng.standard_normal((2, og * groups, 6, 5)).astype(np.float32)
    keywords = {
        "strides": 2,
        "pads_begin": 1,
        "pads_end": (1, 2),
        "dilations": 1,
        "groups": groups,
        "data_format": "NCX",
        "weights_format": weights_format,
    }
    if weights_format == "XOI":
        page, stored = (np.moveaxis(w, (0, 1), (-1, -2)) for w in (page, stored))
    results = [conv_transpose_backward_data(dy, w, **keywords) for w in (page, stored)]
    assert results[0].shape == (2, ig * groups, 3, 3)
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize(
    ("auto_pad", "rule", "expected"),
    [
        ("same_upper", "forward", [1, 2, 14, 20, 140, 200, 1400, 2000]),
        ("SAME_LOWER", "forward", [2, 14, 20, 140, 200, 1400, 2000, 4000]),
        ("Same_Upper", "page", [2, 14, 20, 140, 200, 1400, 2000, 4000]),
        ("same_lower", "PAGE", [1, 2, 14, 20, 140, 200, 1400, 2000]),
    ],
)
def test_golden_auto_pad(auto_pad, rule, expected):
    dy = np.array([1, 10, 100, 1000], np.float32).reshape(1, 4, 1)
    w = np.array([1, 2, 4], np.float32).reshape(3, 1, 1)
    result = convolution_backward_data(
        dy, w, [1, 8, 1], strides=2, dilations=1, pads_begin=7, pads_end=9,
        auto_pad=auto_pad, auto_pad_rule=rule,
    )  # fmt: skip
    assert result.ravel().tolist() == expected


@pytest.mark.parametrize("rule", ["forward", "page"])
@pytest.mark.parametrize("auto_pad", ["same_upper", "same_lower"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(4, 1, 1), (3, 2, 1), (2, 3, 2)])
@pytest.mark.parametrize("extent", [6, 7, 12])
def test_auto_pad_equals_explicit_pads(extent, kernel, stride, dilation, auto_pad, rule):
    span = (kernel - 1) * dilation + 1
    rng = np.random.default_rng(extent)
    y = -(-extent // stride)
    total = max(0, stride * (y - 1) + span - extent)
    begin, end = reference.same_pads(total, auto_pad, rule)
    dy = rng.standard_normal((1, y, 3)).astype(np.float32)
    w = rng.standard_normal((kernel, 2, 3)).astype(np.float32)
    same = {"auto_pad": auto_pad, "auto_pad_rule": rule, **NO_PADS}
    keywords = {"strides": stride, "dilations": dilation}
    shape = (1, extent, 2)
    a = convolution_backward_data(dy, w, shape, **keywords, **same)
    b = convolution_backward_data(dy, w, shape, **keywords, pads_begin=begin, pads_end=end)
    assert (a == b).all()
    # The transposed operator: its total does not depend on the result, which is ceil(y/S).
    dy = rng.standard_normal((1, extent, 3)).astype(np.float32)
    total = max(0, span - (extent % stride or stride))
    begin, end = reference.same_pads(total, auto_pad, rule)
    w = rng.standard_normal((kernel, 3, 2)).astype(np.float32)
    a = conv_transpose_backward_data(dy, w, **keywords, **same)
    b = conv_transpose_backward_data(dy, w, **keywords, pads_begin=begin, pads_end=end)
    assert a.shape == (1, y, 2)
    assert (a == b).all()


def test_auto_pad_valid_and_none():
    dy, w = np.ones((1, 4, 1), np.float32), np.ones((3, 1, 1), np.float32)
    keywords = {"strides": 1, "dilations": 1, "pads_begin": 2, "pads_end": 2}
    assert convolution_backward_data(dy, w, **keywords, auto_pad="VALID").shape == (1, 6, 1)
    assert convolution_backward_data(dy, w, **keywords, auto_pad=None).shape == (1, 2, 1)
    assert conv_transpose_backward_data(dy, w, **keywords, auto_pad="valid").shape == (1, 2, 1)


@pytest.mark.parametrize("form", ["whole", "spatial", "derived", "array", "list"])
def test_forms_of_dst_shape(form):
    case = conv_case(3, dtype="f32")
    while case.transposed or case.extra != (0,) * len(case.dst):
        case = conv_case(case.seed + 1, dtype="f32")
    forms = {
        "whole": case.shape,
        "spatial": case.src,
        "derived": None,
        "array": np.array(case.shape, np.int32),
        "list": list(case.shape),
    }
    case.check(dst_shape=forms[form])


def test_output_padding():
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((1, 14, 14, 4)).astype(np.float32)
    w = rng.standard_normal((1, 1, 3, 4)).astype(np.float32)
    keywords = {"strides": 2, "dilations": 1, **NO_PADS}
    derived = convolution_backward_data(dy, w, **keywords, output_padding=1)
    given_shape = convolution_backward_data(dy, w, (1, 28, 28, 3), **keywords, output_padding=2)
    assert derived.shape == (1, 28, 28, 3)
    assert (derived == given_shape).all()
    assert convolution_backward_data(dy, w, **keywords, output_padding=[0] * 12).shape[1] == 27
    # Above the stride, only the relation with output_padding allows the shape.
    result = convolution_backward_data(dy, w, (1, 30, 30, 3), **keywords, output_padding=3)
    assert (result[:, :28, :28] == derived).all()
    assert not result[:, 28:].any()
    dy = rng.standard_normal((1, 9, 4)).astype(np.float32)
    w = rng.standard_normal((3, 4, 5)).astype(np.float32)
    keywords = {"strides": 2, "dilations": 1, "pads_begin": 1, "pads_end": 1}
    assert conv_transpose_backward_data(dy, w, **keywords).shape == (1, 5, 5)
    assert conv_transpose_backward_data(dy, w, **keywords, output_padding=1).shape == (1, 4, 5)
    assert conv_transpose_backward_data(dy, w, **keywords, output_padding=[0] * 12).shape[1] == 5


def test_attributes_take_ints_sequences_and_arrays():
    case = layer("5-6-4-3-2-1")
    expected = case.call(*case.formatted(*case.arrays()))
    for form in (int, lambda v: (v, v), lambda v: [v, v], lambda v: np.array([v, v], np.int16)):
        result = case.call(
            *case.formatted(*case.arrays()),
            strides=form(2),
            dilations=form(1),
            pads_begin=form(1),
            pads_end=form(1),
            output_padding=form(0),
        )
        assert (result == expected).all()


def test_formats_are_spelled_in_any_way():
    case = layer("5-6-4-3-1-1")
    arrays = case.formatted(*case.arrays())
    expected = case.call(*arrays)
    assert (case.call(*arrays, data_format="nhwc", weights_format="xio") == expected).all()


# -- special values ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(("groups", "inputs"), [(1, 20), (1, 3), (32, 1)])
def test_infinite_weights_stay_inside(groups, inputs, value, data_format, dtype):
    """An infinite weight reaches the positions that it is a factor of, and no padding."""
    case = layer(f"{inputs}-{inputs}-6-3-1-1", groups=groups, data_format=data_format, dtype=dtype)
    dy, weights = case.arrays()
    dy = np.abs(dy) + dy.dtype.type(0.5)
    finite = case.call(*case.formatted(dy, weights))
    weights[0, 0, 0, 0] = value
    result = case.call(*case.formatted(dy, weights))
    result, finite = (reference.to_ncx(r, data_format) for r in (result, finite))
    assert not np.isfinite(result[:, 0, :5, :5].astype(np.float64)).any()
    result[:, 0, :5, :5] = finite[:, 0, :5, :5]
    difference = np.abs(result.astype(np.float64) - finite.astype(np.float64))
    assert difference.max() <= 0.02 * np.abs(finite.astype(np.float64)).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinite_gradients_propagate(value, data_format, dtype):
    case = layer("20-20-6-3-1-1", data_format=data_format, dtype=dtype)
    dy, weights = case.arrays()
    dy[0, 3, 2, 4] = value
    result = reference.to_ncx(case.call(*case.formatted(dy, weights)), data_format)
    touched = np.zeros(result.shape[2:], bool)
    touched[1:4, 3:6] = True
    bad = ~np.isfinite(result.astype(np.float64))
    assert bad[:, :, touched].all()
    assert not bad[:, :, ~touched].any()


def test_float16_overflows_to_infinity():
    dy = np.full((1, 4, 1), 300, np.float16)
    w = np.full((1, 1, 1), 300, np.float16)
    assert np.isinf(convolution_backward_data(dy, w, **PLAIN)).all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
def test_subnormals_are_kept(data_format, dtype):
    tiny = np.finfo(DTYPES[dtype]).smallest_subnormal
    case = layer("20-1-6-1-1-0", data_format=data_format, dtype=dtype)
    dy, weights = case.arrays()
    dy[...], weights[...] = 3 * tiny, 2
    result = case.call(*case.formatted(dy, weights))
    assert (result == 6 * tiny).all()


def test_nothing_is_left_of_a_call():
    """Operators keep no reference to their arguments."""
    import sys

    dy, w = np.ones((1, 8, 8), np.float32), np.ones((3, 8, 8), np.float32)
    before = sys.getrefcount(dy), sys.getrefcount(w)
    gradops_cy.convolution_backward_data(dy, w, **PLAIN)
    assert (sys.getrefcount(dy), sys.getrefcount(w)) == before
