"""Attributes of the convolution operators: golden facts, auto_pad, shapes, forms of values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradops_cy import conv_transpose_backward_data, convolution_backward_data
from tests import reference
from tests.cases import conv_case, every_format, layer

NO_PADS = {"pads_begin": 0, "pads_end": 0}
PLAIN = {"strides": 1, "dilations": 1, **NO_PADS}


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
    assert (reference.page_weights(stored, groups) == page).all()
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


# -- auto_pad ----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("auto_pad", "begin"), [("same_upper", 1), ("same_lower", 2)])
def test_golden_pads(auto_pad, begin):
    """An extent of 6 and a kernel of 4: pads (1, 2) or (2, 1), seen where a lone tap lands."""
    dy = np.zeros((1, 6, 1), np.float32)
    dy[0, 3] = 1
    w = np.array([1, 2, 3, 4], np.float32).reshape(4, 1, 1)
    result = convolution_backward_data(dy, w, [6], strides=1, dilations=1, **NO_PADS,
                                       auto_pad=auto_pad)  # fmt: skip
    expected = np.zeros(10)
    expected[3 : 3 + 4] = [1, 2, 3, 4]
    assert result.ravel().tolist() == expected[begin : begin + 6].tolist()


@st.composite
def auto_padded_axes(draw):
    """Draw (x, y, kernel, stride, dilation, output_padding) of an axis that ``same_*`` allows."""
    kernel, stride = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    dilation, padding = draw(st.integers(1, 3)), draw(st.integers(0, 2))
    x = draw(st.integers(1, 12))
    y = -(-x // stride) + draw(st.integers(0, 2))
    span = (kernel - 1) * dilation + 1
    total = reference.same_total(y, x, stride=stride, span=span, output_padding=padding)
    forward = (x + total - span) // stride + 1 if x + total >= span else 0
    if forward != y and x + total != stride * (y - 1) + span + padding:
        y = forward  # larger strides leave rows over
        padding = 0
    return x, y, kernel, stride, dilation, padding


@given(
    axes=st.lists(auto_padded_axes(), min_size=1, max_size=3),
    auto_pad=st.sampled_from(["same_upper", "same_lower"]),
    rule=st.sampled_from(["forward", "page"]),
)
def test_auto_pad_equals_explicit_pads(axes, auto_pad, rule):
    x, y, kernel, strides, dilations, output_padding = zip(*axes, strict=True)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    rng = np.random.default_rng(0)
    same = {"auto_pad": auto_pad, "auto_pad_rule": rule, "pads_begin": 1, "pads_end": 5}
    keywords = {"strides": strides, "dilations": dilations}

    def pads(extents, **options):
        totals = [
            reference.same_total(extent, a, stride=s, span=e, output_padding=o, **options)
            for extent, a, s, e, o in zip(extents, x, strides, spans, output_padding, strict=True)
        ]
        split = [reference.same_pads(total, auto_pad, rule) for total in totals]
        begin, end = zip(*split, strict=True)
        return {"pads_begin": begin, "pads_end": end}

    dy = rng.standard_normal((2, *y, 3)).astype(np.float32)
    w = rng.standard_normal((*kernel, 2, 3)).astype(np.float32)
    shape = (2, *x, 2)
    a = convolution_backward_data(dy, w, shape, **keywords, **same, output_padding=output_padding)
    b = convolution_backward_data(
        dy, w, shape, **keywords, **pads(y), output_padding=output_padding
    )
    assert (a == b).all()

    # The total of the transposed operator depends on diff_dst alone; the result is ceil(x/S).
    dy = rng.standard_normal((2, *x, 3)).astype(np.float32)
    w = rng.standard_normal((*kernel, 3, 2)).astype(np.float32)
    a = conv_transpose_backward_data(dy, w, **keywords, **same)
    b = conv_transpose_backward_data(dy, w, **keywords, **pads(x, transposed=True))
    assert a.shape == (2, *(-(-n // s) for n, s in zip(x, strides, strict=True)), 2)
    assert (a == b).all()


def test_auto_pad_valid_and_none():
    dy, w = np.ones((1, 4, 1), np.float32), np.ones((3, 1, 1), np.float32)
    keywords = {"strides": 1, "dilations": 1, "pads_begin": 2, "pads_end": 2}
    assert convolution_backward_data(dy, w, **keywords, auto_pad="VALID").shape == (1, 6, 1)
    assert convolution_backward_data(dy, w, **keywords, auto_pad=None).shape == (1, 2, 1)
    assert conv_transpose_backward_data(dy, w, **keywords, auto_pad="valid").shape == (1, 2, 1)


# -- shapes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "kernel", "keywords", "expected"),
    [
        (227, 11, {"strides": 4}, 55),
        (16, 4, {"dilations": 2, "auto_pad": "VALID"}, 10),
        (16, 3, {"strides": 2, "auto_pad": "SAME_UPPER"}, 8),
        (16, 3, {"strides": 2, "auto_pad": "SAME_LOWER"}, 8),
        (16, 3, {"strides": 2, "auto_pad": "VALID"}, 7),
        (16, 3, {"strides": 2, "pads_end": 41}, 28),
        (5, 2, {"strides": 2, "dilations": 2}, 2),
        (15, 3, {"strides": 2, "auto_pad": "SAME_UPPER"}, 8),
    ],
)
def test_shapes_of_transposed_convolutions_upstream(y, kernel, keywords, expected):
    """Extents that oneDNN's own tests have (the dilated one by the formula)."""
    dy, w = np.ones((1, y, 2), np.float32), np.ones((kernel, 2, 3), np.float32)
    assert conv_transpose_backward_data(dy, w, **{**PLAIN, **keywords}).shape == (1, expected, 3)


def test_grouped_shapes_of_transposed_convolutions_upstream():
    keywords = {**PLAIN, "data_format": "NCX", "weights_format": "IOX"}
    dy = np.ones((2, 16, 5, 5, 5), np.float32)
    w = np.ones((20, 4, 3, 3, 3), np.float32)
    result = conv_transpose_backward_data(dy, w, **keywords, groups=4)
    assert result.shape == (2, 20, 3, 3, 3)
    assert (result == 4 * 27).all()
    w = np.ones((17, 1, 3, 3, 3), np.float32)
    result = conv_transpose_backward_data(np.ones((2, 17, 5, 5, 5), np.float32), w, **keywords,
                                          groups=17)  # fmt: skip
    assert result.shape == (2, 17, 3, 3, 3)


@pytest.mark.parametrize(
    ("y", "kernel", "x", "keywords"),
    [
        (14, 1, 28, {"strides": 2}),
        (14, 1, 28, {"strides": 2, "output_padding": 2}),
        (224, 3, 452, {"strides": 2, "output_padding": 3}),
        (14, 1, 27, {"strides": 2}),
        (4, 3, 6, {}),
    ],
)
def test_shapes_of_convolutions_upstream(y, kernel, x, keywords):
    dy, w = np.ones((1, y, 2), np.float32), np.ones((kernel, 3, 2), np.float32)
    result = convolution_backward_data(dy, w, (1, x, 3), **{**PLAIN, **keywords})
    exact = reference.conv_backward(
        np.ones((1, 2, y)),
        np.ones((2, 3, kernel)),
        (x,),
        strides=(keywords.get("strides", 1),),
        pads_begin=(0,),
        dilations=(1,),
        groups=1,
    )
    np.testing.assert_array_equal(result[0].T, exact[0])


@pytest.mark.parametrize("form", ["whole", "spatial", "derived", "array", "list", "uint8", "int64"])
@every_format
def test_forms_of_dst_shape(data_format, form):
    case = conv_case(3)
    while case.transposed or any(case.extra) or case.data_format != data_format:
        case = conv_case(case.seed + 1)
    forms = {
        "whole": case.shape,
        "spatial": case.src,
        "derived": None,
        "array": np.array(case.shape, np.int32),
        "list": list(case.shape),
        "uint8": np.array(case.shape, np.uint8),
        "int64": [np.int64(extent) for extent in case.shape],
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
    with pytest.raises(ValueError, match="dst_shape"):
        convolution_backward_data(dy, w, (1, 30, 30, 3), **keywords, output_padding=2)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 4])
@pytest.mark.parametrize("y", [9, 10, 11])
def test_output_padding_of_transposed_convolutions(y, dilation, stride):
    """What the forward operator added at the end is read only as far as it reaches."""
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((1, y, 4)).astype(np.float32)
    w = rng.standard_normal((3, 4, 5)).astype(np.float32)
    keywords = {"strides": stride, "dilations": dilation, "pads_begin": 1, "pads_end": 1}
    whole = conv_transpose_backward_data(dy, w, **keywords)
    for padding in range(max(stride, dilation)):
        room = y + 2 - padding - (2 * dilation + 1)
        extent = room // stride + 1 if room >= 0 else 0
        if extent == 0:
            continue
        result = conv_transpose_backward_data(dy, w, **keywords, output_padding=padding)
        assert result.shape == (1, extent, 5)
        assert (result == whole[:, :extent]).all()
    padded = conv_transpose_backward_data(dy, w, **keywords, output_padding=[0] * 12)
    assert (padded == whole).all()


# -- forms of values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda v: v,
        np.int64,
        np.uint8,
        np.array,
        lambda v: (v, v),
        lambda v: [v, np.int32(v)],
        lambda v: np.array([v, v], np.int16),
    ],
)
def test_attributes_take_ints_sequences_and_arrays(form):
    case = layer("5-6-4-3-2-1")
    expected = case.call(*case.formatted(*case.arrays()))
    result = case.call(
        *case.formatted(*case.arrays()),
        strides=form(2),
        dilations=form(1),
        pads_begin=form(1),
        pads_end=form(1),
        output_padding=form(0),
        groups=np.int64(1),
        num_threads=np.int32(2),
    )
    assert (result == expected).all()


def test_formats_are_spelled_in_any_way():
    case = layer("5-6-4-3-1-1")
    arrays = case.formatted(*case.arrays())
    expected = case.call(*arrays)
    assert (case.call(*arrays, data_format="nhwc", weights_format="xio") == expected).all()
