"""Every rule of the convolution operators that a call can break, and that out is untouched."""

import numpy as np
import pytest

from gradops_cy import conv_transpose_backward_data, convolution_backward_data
from tests.tolerances import DTYPES


def arguments(transposed):
    """Return keyword arguments of a valid call, N = 2, O = 6, I = 4, 5x6 to 5x6."""
    weights = (3, 3, 6, 4) if transposed else (3, 3, 4, 6)
    return {
        "diff_dst": np.ones((2, 5, 6, 6), np.float32),
        "weights": np.ones(weights, np.float32),
        "strides": 1,
        "pads_begin": 1,
        "pads_end": 1,
        "dilations": 1,
    }


OPERATORS = {
    "convolution_backward_data": convolution_backward_data,
    "conv_transpose_backward_data": conv_transpose_backward_data,
}


@pytest.fixture(params=OPERATORS)
def op(request):
    return request.param


def refuse(op, error, parts, **changes):
    """Call with changed arguments; check the exception, its words, and that out keeps its bytes."""
    keywords = {**arguments(op.startswith("conv_transpose")), **changes}
    out = np.full((2, 5, 6, 4), 7, np.float32)
    keywords.setdefault("out", out)
    with pytest.raises(error) as caught:
        OPERATORS[op](**keywords)
    message = str(caught.value)
    assert message.startswith(f"{op}: ")
    assert "\n" not in message
    for part in parts:
        assert part in message, message
    assert (out == 7).all()


def test_the_arguments_are_valid(op):
    keywords = arguments(op.startswith("conv_transpose"))
    assert OPERATORS[op](**keywords).shape == (2, 5, 6, 4)


ONES = np.ones((2, 5, 6, 6), np.float32)

BAD_ARRAYS = [
    (None, TypeError, "must be a NumPy array, got NoneType"),
    ("text", TypeError, "must be a NumPy array, got str"),
    ([[1.0]], TypeError, "must be a NumPy array, got list"),
    (np.float32(1), TypeError, "must be a NumPy array, got float32"),
    (np.ma.masked_array(ONES), TypeError, "must be a NumPy array, got MaskedArray"),
    (ONES.astype(np.int32), TypeError, "must have dtype float32, float16, bfloat16 or float64"),
    (ONES.astype(np.complex64), TypeError, "got complex64"),
    (ONES.astype(object), TypeError, "got object"),
    (ONES.astype(bool), TypeError, "got bool"),
    (np.ones((), np.float32), ValueError, "axes"),
    (np.ones(4, np.float32), ValueError, "axes"),
    (np.ones((2, 3), np.float32), ValueError, "axes"),
    (np.ones((1,) * 6, np.float32), ValueError, "axes"),
]


@pytest.mark.parametrize("name", ["diff_dst", "weights"])
@pytest.mark.parametrize(("value", "error", "text"), BAD_ARRAYS, ids=lambda v: type(v).__name__)
def test_bad_arrays(op, name, value, error, text):
    refuse(op, error, [name, text], **{name: value})


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_mixed_dtypes(op, dtype):
    refuse(op, TypeError, ["weights must have dtype"], diff_dst=ONES.astype(DTYPES[dtype]))


@pytest.mark.parametrize(
    "shape", [(2, 0, 6, 6), (2, 5, 0, 6), (2, 5, 6, 0)], ids=lambda s: "x".join(map(str, s))
)
def test_zero_extents(op, shape):
    refuse(op, ValueError, ["diff_dst", "zero extent"], diff_dst=np.ones(shape, np.float32))


@pytest.mark.parametrize("axis", range(4))
def test_empty_weights(op, axis):
    shape = list(arguments(op.startswith("conv_transpose"))["weights"].shape)
    shape[axis] = 0
    refuse(op, ValueError, ["weights", "zero extent"], weights=np.ones(shape, np.float32))


LISTS = ("strides", "dilations", "pads_begin", "pads_end", "output_padding")


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1.0, TypeError, "an integer or a list of integers"),
        ("11", TypeError, "an integer or a list of integers"),
        (b"11", TypeError, "an integer or a list of integers"),
        (True, TypeError, "an integer or a list of integers"),
        (object(), TypeError, "an integer or a list of integers"),
        ([1, 1.5], TypeError, "[1] must be an integer, got float 1.5"),
        ([1, None], TypeError, "[1] must be an integer"),
        ([1, True], TypeError, "[1] must be an integer"),
        (np.array([1.0, 1.0]), TypeError, "[0] must be an integer"),
        ([1, 1, 1], ValueError, "must have 2 elements, one per spatial axis, got 3"),
        ([1], ValueError, "must have 2 elements, one per spatial axis, got 1"),
        (np.array([[1, 1]]), ValueError, "one-dimensional"),
        (-1, ValueError, "got -1"),
        ([1, -2], ValueError, "[1] must be in"),
        (2**41, ValueError, "2**40"),
        (2**70, ValueError, "2**40"),
    ],
)
def test_bad_lists(op, name, value, error, text):
    refuse(op, error, [name, text], **{name: value})


@pytest.mark.parametrize("name", ["strides", "dilations"])
@pytest.mark.parametrize("value", [0, [1, 0]])
def test_zero_strides_and_dilations(op, name, value):
    refuse(op, ValueError, [name, "must be in [1,", "got 0"], **{name: value})


@pytest.mark.parametrize("name", ["strides", "dilations", "pads_begin", "pads_end"])
def test_required_keywords(op, name):
    keywords = arguments(op.startswith("conv_transpose"))
    del keywords[name]
    with pytest.raises(TypeError, match=name):
        OPERATORS[op](**keywords)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("auto_pad", "same", ValueError),
        ("auto_pad", 1, TypeError),
        ("auto_pad_rule", "backward", ValueError),
        ("auto_pad_rule", None, TypeError),
        ("data_format", "NHCW", ValueError),
        ("data_format", "NCW", ValueError),
        ("data_format", None, TypeError),
        ("weights_format", "IXO", ValueError),
        ("weights_format", 3, TypeError),
        ("groups", 0, ValueError),
        ("groups", -2, ValueError),
        ("groups", 1.0, TypeError),
        ("groups", True, TypeError),
        ("groups", None, TypeError),
        ("groups", 4, ValueError),
        ("groups", 2**40, ValueError),
    ],
)
def test_bad_choices(op, name, value, error):
    refuse(op, error, [name], **{name: value})


def test_weights_formats_of_the_other_operator():
    refuse("convolution_backward_data", ValueError, ["XIO, OIX", "'XOI'"], weights_format="XOI")
    refuse("conv_transpose_backward_data", ValueError, ["XOI, IOX", "'OIX'"], weights_format="OIX")


def test_channels_must_agree(op):
    weights = np.ones((3, 3, 5, 5), np.float32)
    refuse(op, ValueError, ["weights", "(3, 3, 5, 5)"], weights=weights)


def test_transposed_weights_that_fit_neither_arrangement():
    refuse(
        "conv_transpose_backward_data",
        ValueError,
        ["(*K, 3, I) or (*K, 6, I/g)", "(3, 3, 4, 4)"],
        weights=np.ones((3, 3, 4, 4), np.float32),
        groups=2,
    )
    refuse(
        "conv_transpose_backward_data",
        ValueError,
        ["groups must divide I = 5"],
        weights=np.ones((3, 3, 3, 5), np.float32),
        groups=2,
    )


CONVOLUTION = "convolution_backward_data"


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (5, TypeError, "a list or 1-D array of integers"),
        ("2564", TypeError, "a list or 1-D array of integers"),
        ([2, 5.0, 6, 4], TypeError, "dst_shape[1]"),
        ([2, 5, 6], ValueError, "must have 4 elements (or the 2 spatial ones), got 3"),
        ([], ValueError, "got 0"),
        ([[2, 5, 6, 4]], TypeError, "dst_shape[0]"),
        (np.array([[2, 5, 6, 4]]), ValueError, "one-dimensional"),
        ([3, 5, 6, 4], ValueError, "N = 2 and C = 4"),
        ([2, 5, 6, 5], ValueError, "N = 2 and C = 4"),
        ([2, 4, 5, 6], ValueError, "N = 2 and C = 4"),
        ([2, 0, 6, 4], ValueError, "spatial extents of at least 1"),
        ([2, -5, 6, 4], ValueError, "dst_shape[1]"),
        ([2, 4, 6, 4], ValueError, "gives diff_dst's extent 5 on spatial axis 0, got 4"),
        ([2, 5, 7, 4], ValueError, "gives diff_dst's extent 6 on spatial axis 1, got 7"),
        ([2, 2**40, 6, 4], ValueError, "spatial axis 0"),
    ],
)
def test_bad_dst_shapes(value, error, text):
    refuse(CONVOLUTION, error, ["dst_shape", text], dst_shape=value)


def test_a_kernel_larger_than_the_padded_input():
    """Some implementations let it slip through integer truncation: room -1 // 2 == 0 there."""
    refuse(
        CONVOLUTION,
        ValueError,
        ["dst_shape", "extent 1"],
        diff_dst=np.ones((2, 1, 1, 6), np.float32),
        dst_shape=(2, 2, 3, 4),
        strides=2,
        pads_begin=0,
        pads_end=0,
    )
    refuse(
        "conv_transpose_backward_data",
        ValueError,
        ["must fit into the padded diff_dst", "3 against 2 on spatial axis 0"],
        diff_dst=np.ones((2, 2, 6, 6), np.float32),
        pads_begin=0,
        pads_end=0,
    )


def test_a_derived_extent_below_one():
    refuse(
        CONVOLUTION,
        ValueError,
        ["derived result extent of spatial axis 0", "got -1"],
        pads_begin=4,
        pads_end=4,
    )


@pytest.mark.parametrize("auto_pad", ["same_upper", "SAME_LOWER"])
def test_same_padding_needs_a_shape(auto_pad):
    refuse(CONVOLUTION, ValueError, ["dst_shape", "must be given"], auto_pad=auto_pad)


@pytest.mark.parametrize(
    ("value", "text"), [(1, "less than max(stride, dilation) = 1, got 1"), ([0, 7], "got 7")]
)
def test_transposed_output_padding(value, text):
    refuse("conv_transpose_backward_data", ValueError, ["output_padding", text],
           output_padding=value)  # fmt: skip


def test_unknown_keywords_and_positions(op):
    keywords = arguments(op.startswith("conv_transpose"))
    with pytest.raises(TypeError, match="padding"):
        OPERATORS[op](**keywords, padding=1)
    with pytest.raises(TypeError, match="positional"):
        OPERATORS[op](keywords.pop("diff_dst"), keywords.pop("weights"), None, 1, **keywords)
