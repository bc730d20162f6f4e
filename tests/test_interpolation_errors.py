"""Every rule of the interpolation operators that a call can break."""

import numpy as np
import pytest

import gradops_cy
from tests.tolerances import DTYPES

NAMES = {
    "interpolate_backward": ("src", "diff_dst"),
    "interpolate_backprop": ("input_forward", "output_delta"),
}


@pytest.fixture(params=NAMES)
def op(request):
    return request.param


def refuse(op, error, parts, **changes):
    """Call with changed arguments, ``src`` and ``dst`` standing for the operator's own names."""
    src, dst = NAMES[op]
    keywords = {"src": (2, 3, 4, 5), "dst": np.ones((2, 6, 8, 5), np.float32), "mode": "linear"}
    keywords.update(changes)
    keywords[src], keywords[dst] = keywords.pop("src"), keywords.pop("dst")
    out = np.full((2, 3, 4, 5), 7, np.float32)
    keywords.setdefault("out", out)
    with pytest.raises(error) as caught:
        getattr(gradops_cy, op)(**keywords)
    message = str(caught.value)
    assert message.startswith(f"{op}: ")
    assert "\n" not in message
    for part in parts:
        assert part.replace("<src>", src).replace("<dst>", dst) in message, message
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, "<dst> must be a NumPy array, got NoneType"),
        ([1.0], TypeError, "<dst> must be a NumPy array, got list"),
        (np.ones((2, 6, 8, 5), np.int64), TypeError, "<dst> must have dtype"),
        (np.ones((2, 6, 8, 5), np.complex128), TypeError, "got complex128"),
        (np.ma.masked_array(np.ones((2, 6, 8, 5))), TypeError, "<dst> must be a NumPy array"),
        (np.float32(3), TypeError, "<dst> must be a NumPy array"),
        (np.ones((6, 5), np.float32), ValueError, "<dst> must have 3, 4 or 5 axes, got 2"),
        (np.ones((1,) * 6, np.float32), ValueError, "<dst> must have 3, 4 or 5 axes, got 6"),
        (np.ones((2, 0, 8, 5), np.float32), ValueError, "<dst>"),
        (np.ones((1, 6, 8, 5), np.float32), ValueError, "batch"),
        (np.ones((2, 6, 8, 4), np.float32), ValueError, "channels"),
        (np.ones((2, 6, 5), np.float32), ValueError, "<src> must have 3 axes"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_bad_gradients(op, value, error, text):
    refuse(op, error, [text], dst=value)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (None, TypeError, "<src> must be a NumPy array or a shape"),
        ("2345", TypeError, "<src> must be a NumPy array or a shape"),
        (7, TypeError, "<src> must be a NumPy array or a shape"),
        ((2, 3.0, 4, 5), TypeError, "<src>[1] must be an integer"),
        ((2, -3, 4, 5), ValueError, "<src>[1]"),
        ((2, 2**41, 4, 5), ValueError, "<src>[1]"),
        ((2, 0, 4, 5), ValueError, "<src> must have positive spatial extents"),
        ((2, 3, 4), ValueError, "<src> must have 4 axes"),
        (np.ones((2, 3, 4, 5), np.int8), TypeError, "<src> must have dtype"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_bad_sources(op, value, error, text):
    refuse(op, error, [text], src=value)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_mixed_dtypes(op, dtype):
    refuse(op, TypeError, ["must have dtype"], src=np.ones((2, 3, 4, 5), DTYPES[dtype]))


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("mode", "quintic", ValueError),
        ("mode", None, TypeError),
        ("coordinate_transformation_mode", "tf_crop", ValueError),
        ("coordinate_transformation_mode", 0, TypeError),
        ("data_format", "CHW", ValueError),
        ("data_format", "NDHWC", ValueError),
        ("data_format", 5, TypeError),
        ("sizes", [6, 9], ValueError),
        ("sizes", [3, 4], ValueError),
        ("sizes", [6, 8, 5], ValueError),
        ("sizes", [0, 8], ValueError),
        ("sizes", [6.0, 8.0], TypeError),
        ("sizes", "68", TypeError),
        ("sizes", np.array([[6, 8]]), ValueError),
        ("scales", [2.0, 3.0], ValueError),
        ("scales", [2.0], ValueError),
        ("scales", [2.0, 0.0], ValueError),
        ("scales", [2.0, -2.0], ValueError),
        ("scales", [2.0, np.nan], ValueError),
        ("scales", [2.0, np.inf], ValueError),
        ("scales", [2.0, "2"], TypeError),
        ("scales", "2", TypeError),
        ("scales", [2.0, 1e300], ValueError),
        ("coordinate_scales", [2.0, 0.0], ValueError),
        ("coordinate_scales", [2.0, np.nan], ValueError),
        ("coordinate_scales", [2.0, 2.0, 2.0], ValueError),
        ("coordinate_scales", object(), TypeError),
        ("accumulate", "yes", TypeError),
    ],
)
def test_bad_attributes(op, name, value, error):
    refuse(op, error, [name], **{name: value})


def test_sizes_and_scales_exclude_each_other_in_the_older_operator():
    refuse("interpolate_backprop", ValueError, ["scales", "sizes"], sizes=[6, 8], scales=[2.0, 2.0])


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_absurd_coordinate_scales_do_no_harm(op, mode, scale):
    dst = np.ones((1, 40, 3), np.float32)
    result = getattr(gradops_cy, op)((1, 20, 3), dst, mode=mode, coordinate_scales=scale)
    assert np.isfinite(result).all()
    assert result.sum() == dst.sum()


RESIZE = {"grads": np.ones((2, 3, 4, 4), np.float32), "original_image": (2, 3, 2, 2)}


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"grads": None}, TypeError, "grads must be a NumPy array"),
        ({"grads": np.ones((3, 4, 4), np.float32)}, ValueError, "grads must have 4 axes, got 3"),
        ({"grads": np.ones((2, 3, 0, 4), np.float32)}, ValueError, "grads"),
        ({"original_image": (2, 3, 2)}, ValueError, "original_image must have 4 axes"),
        ({"original_image": (2, 4, 2, 2)}, ValueError, "channels"),
        ({"original_image": (1, 3, 2, 2)}, ValueError, "batch"),
        ({"original_image": (2, 3, 0, 2)}, ValueError, "original_image"),
        ({"original_image": None}, TypeError, "original_image"),
        ({"align_corners": True, "half_pixel_centers": True}, ValueError, "half_pixel_centers"),
        ({"align_corners": 1}, TypeError, "align_corners"),
        ({"half_pixel_centers": "no"}, TypeError, "half_pixel_centers"),
        ({"scales": [1.0]}, ValueError, "scales must have 2 elements"),
        ({"scales": [1.0, np.nan]}, ValueError, "scales[1] must be finite"),
        ({"scales": [1.0, np.inf]}, ValueError, "scales[1] must be finite"),
        ({"scales": "11"}, TypeError, "scales"),
        ({"data_format": "ND"}, ValueError, "data_format"),
        ({"accumulate": None}, TypeError, "accumulate"),
    ],
)
def test_resize(changes, error, text):
    out = np.full((2, 3, 2, 2), 7, np.float32)
    with pytest.raises(error) as caught:
        gradops_cy.resize_bilinear_v2_grad(**{**RESIZE, "out": out, **changes})
    message = str(caught.value)
    assert message.startswith("resize_bilinear_v2_grad: ")
    assert text in message
    assert (out == 7).all()


@pytest.mark.parametrize(
    ("grads", "image"),
    [("f16", "f32"), ("bf16", "f32"), ("f16", "bf16"), ("f64", "f32"), ("f32", "f64")],
)
def test_resize_refuses_other_mixtures(grads, image):
    with pytest.raises(TypeError, match="resize_bilinear_v2_grad: original_image must have dtype"):
        gradops_cy.resize_bilinear_v2_grad(
            np.ones((1, 1, 4, 4), DTYPES[grads]), np.ones((1, 1, 2, 2), DTYPES[image])
        )
