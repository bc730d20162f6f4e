"""Whatever is passed, a call gives a result or a clear error: it never crashes or hangs.

The error tests say what each rule's message is; here values that fit no rule are thrown at every
argument, alone and together.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradops_cy

OWN_ERROR = "an error of the argument's own"


class _Raises:
    """An object whose conversions fail with an error of its own."""

    def __index__(self):
        raise ValueError(OWN_ERROR)

    __iter__ = __float__ = __len__ = __bool__ = __index__


ANYTHING = [
    *(None, True, False, np.True_, Ellipsis, NotImplemented, object(), int, len, _Raises()),
    *(0, 1, 2, 3, -1, 2**31, 2**32, 2**40, 2**41, 2**62, 2**63, 2**64, 10**400, 10**5000),
    *(1.0, 2.5, -0.0, float("nan"), float("inf"), 1e-310, 1e308, 1j),
    *(np.int8(1), np.uint64(2**63), np.float16(2), ml_dtypes.bfloat16(2), np.datetime64("2020")),
    *("", "none", "same_upper", "NXC", "NCX", "nhwc", "OIX", "XOI", "linear", "11", b"11"),
    *([], [1], (2, 2), [3, 3], [1, 1, 1], [-1, 1], [0, 1], [2**39, 1], [2**63, 1], [10**400, 1]),
    *([None, None], [[1], [1]], ["1", "1"], [1, 1.5], [np.nan, 1], [1e308, 1e-308], [1, _Raises()]),
    *({}, {1: 2, 3: 4}, {1, 2}, range(1, 3), iter([1, 1]), itertools.count(1), bytearray(b"ab")),
    *((2, 5, 6, 4), [2, 3, 4, 5], (2, 3, 2, 2), (0, 5, 6, 4), (2, 2**40, 2**40, 2**40)),
    *(np.array(2), np.array(2.5), np.array([1, 1]), np.array([1.0, 1.0]), np.array([[1, 1]])),
    *(np.array([2**63, 1], np.uint64), np.array([True, True]), np.array([1, None], object)),
    *(np.array(["a", "b"]), np.zeros(2, [("a", int)]), np.zeros(0, np.int64), np.zeros((2, 2))),
    *(np.ones((2, 5, 6, 6), dtype) for dtype in (np.float16, np.float64, ">f4", int, complex)),
    *(np.ones((2, 5, 6, 6), dtype) for dtype in (object, bool, ml_dtypes.float8_e4m3fn, "m8[s]")),
    *(np.ones((2, 6, 8, 5), dtype) for dtype in (np.float32, ml_dtypes.bfloat16, np.longdouble)),
    *(np.ones(shape, np.float32) for shape in ((), (4,), (0, 5, 6, 6), (2, 5, 6, 0), (1,) * 6)),
    *(np.ones(shape, np.float32) for shape in ((3, 3, 4, 6), (3, 3, 6, 4), (2, 5, 6, 4))),
    np.ma.ones((2, 5, 6, 6), np.float32),
    np.broadcast_to(np.float32(1), (2, 5, 6, 6)),
]

_CONVOLUTION = {
    "diff_dst": np.ones((2, 5, 6, 6), np.float32),
    "weights": np.ones((3, 3, 4, 6), np.float32),
    "strides": 1,
    "pads_begin": 1,
    "pads_end": 1,
    "dilations": 1,
    "auto_pad": "none",
    "auto_pad_rule": "forward",
    "output_padding": None,
    "groups": 1,
    "data_format": "NXC",
    "weights_format": "XIO",
}
_INTERPOLATION = {
    "sizes": None,
    "mode": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "scales": None,
    "data_format": "NXC",
    "coordinate_scales": None,
}
_SOURCE, _GRADIENT = np.ones((2, 3, 4, 5), np.float32), np.ones((2, 6, 8, 5), np.float32)

CALLS = {
    "convolution_backward_data": {**_CONVOLUTION, "dst_shape": (2, 5, 6, 4)},
    "conv_transpose_backward_data": {
        **_CONVOLUTION,
        "weights": np.ones((3, 3, 6, 4), np.float32),
        "weights_format": "XOI",
    },
    "interpolate_backward": {"src": _SOURCE, "diff_dst": _GRADIENT, **_INTERPOLATION},
    "interpolate_backprop": {
        "input_forward": _SOURCE,
        "output_delta": _GRADIENT,
        **_INTERPOLATION,
    },
    "resize_bilinear_v2_grad": {
        "grads": np.ones((2, 3, 4, 4), np.float32),
        "original_image": (2, 3, 2, 2),
        "align_corners": False,
        "half_pixel_centers": False,
        "scales": (0.0, 0.0),
        "data_format": "NCX",
    },
}


def attempt(op, keywords):
    """Call: return the result, or None where an error says in one line what is wrong."""
    try:
        return getattr(gradops_cy, op)(**keywords)
    except MemoryError:  # asked for terabytes
        return None
    except (TypeError, ValueError) as error:
        message = str(error)
    if message != OWN_ERROR:
        assert message.startswith(f"{op}: "), message
        assert "\n" not in message
        assert len(message) < 300
    return None


def survive(op, changes):
    """Call with changed arguments: a result, or an error that leaves out alone."""
    out = np.full(getattr(gradops_cy, op)(**CALLS[op]).shape, 7, np.float32)
    result = attempt(op, {**CALLS[op], "num_threads": 2, "out": out, **changes})
    if result is None:
        assert (out == 7).all()
    else:
        assert isinstance(result, np.ndarray)


@pytest.mark.parametrize("op", CALLS)
def test_the_calls_are_valid(op):
    assert getattr(gradops_cy, op)(**CALLS[op]).any()


@pytest.mark.parametrize(
    ("op", "name"),
    [(op, name) for op in CALLS for name in (*CALLS[op], "out", "accumulate", "num_threads")],
)
def test_any_value_of_any_argument(op, name):
    for value in ANYTHING:
        survive(op, {name: value})


@given(data=st.data())
def test_any_values_of_several_arguments(data):
    op = data.draw(st.sampled_from(list(CALLS)))
    names = [*CALLS[op], "out", "accumulate", "num_threads"]
    changed = data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=5, unique=True))
    survive(op, {name: data.draw(st.sampled_from(ANYTHING)) for name in changed})


# Small, large, absurd, and so are their quotients: an axis is short, millions or hopeless, two axes
# of millions are hopeless too. A result either has few elements or exceeds any memory.
INTEGERS = st.integers(0, 5) | st.sampled_from([2**22, 2**62])


@given(data=st.data())
def test_any_integers_as_geometry(data):
    op = data.draw(st.sampled_from(["convolution_backward_data", "conv_transpose_backward_data"]))
    pairs = INTEGERS | st.lists(INTEGERS, min_size=2, max_size=2)
    lists = ("strides", "pads_begin", "pads_end", "dilations", "output_padding")
    keywords = {**CALLS[op], **{name: data.draw(pairs) for name in lists}}
    keywords["auto_pad"] = data.draw(st.sampled_from(["none", "same_upper", "valid"]))
    keywords["diff_dst"] = np.ones((1, 2, 1, 2), np.float32)
    keywords["weights"] = np.ones((2, 1, 1, 2), np.float32)
    if op == "convolution_backward_data":
        keywords["dst_shape"] = data.draw(st.none() | st.lists(INTEGERS, min_size=2, max_size=2))
    else:
        keywords["weights"] = keywords["weights"].swapaxes(2, 3)
    result = attempt(op, keywords)
    assert result is None or np.isfinite(result).all()
