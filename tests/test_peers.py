"""Cross-checks against PyTorch: a foreign oracle, in the extra [peers]."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

import gradops_cy
from tests import reference
from tests.cases import conv_case, every_dtype, every_format
from tests.tolerances import DTYPES, assert_close

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


def tensor(array):
    import torch

    if array.dtype == DTYPES["bf16"]:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array))


def array_of(tensor):
    return tensor.double().numpy()


def symmetric(seed):
    """Return a case with symmetric pads and output padding, as the peer has them."""
    while True:
        case = conv_case(seed)
        case = replace(case, pads_end=case.pads_begin)
        if case.possible and all(
            0 <= o < max(s, d)
            for o, s, d in zip(output_padding(case), case.strides, case.dilations, strict=True)
        ):
            return case
        seed += 1_000


def output_padding(case):
    """Return the rows of the large side that its formula leaves over."""
    if not case.transposed:
        return [0] * len(case.dst)
    return [
        y - ((x - 1) * s + e - 2 * p)
        for y, x, s, e, p in zip(
            case.dst, case.src, case.strides, case.spans, case.pads_begin, strict=True
        )
    ]


@pytest.mark.parametrize("seed", range(200))
def test_convolutions(seed):
    """Both operators, the peer in float64, our result in the case's dtype."""
    import torch

    case = symmetric(seed)
    dy, weights = case.arrays()
    src = (case.batch, case.inputs * case.groups, *case.src)

    def peer(a, b):
        return array_of(
            torch.ops.aten.convolution_backward(
                tensor(a.astype(np.float64)),
                torch.empty(src, dtype=torch.float64),
                tensor(b.astype(np.float64)),
                None,
                case.strides,
                case.pads_begin,
                case.dilations,
                case.transposed,
                output_padding(case),
                case.groups,
                [True, False, False],
            )[0]
        )

    result = case.call(*case.formatted(dy, weights))
    exact = peer(dy, weights)
    magnitude = peer(np.abs(dy.astype(np.float64)), np.abs(weights.astype(np.float64)))
    assert_close(case.ncx(result), exact, magnitude)


SHAPES = [
    ((16,), (32,)),
    ((17,), (21,)),
    ((64,), (16,)),
    ((8, 8), (16, 16)),
    ((7, 14), (6, 12)),
    ((65, 33), (129, 65)),
    ((33, 40), (11, 20)),
    ((2, 4, 6), (4, 8, 12)),
    ((3, 8, 7), (5, 4, 9)),
]


@every_dtype
@every_format
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("src", "dst"), SHAPES)
def test_linear_interpolation(src, dst, scaled, align_corners, data_format, dtype):
    import torch

    rank = len(src)
    name = ("linear1d", "bilinear2d", "trilinear3d")[rank - 1]
    function = getattr(torch.ops.aten, f"upsample_{name}_backward")
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((2, 5, *dst)).astype(DTYPES[dtype])
    scales = [round(64 * y / x) / 64 for x, y in zip(src, dst, strict=True)] if scaled else None

    def peer(a):
        return array_of(
            function(
                tensor(a.astype(np.float64)),
                dst,
                (2, 5, *src),
                align_corners,
                *(scales or [None] * rank),
            )
        )

    shape = (2, 5, *src) if data_format == "NCX" else (2, *src, 5)
    result = gradops_cy.interpolate_backward(
        shape,
        np.ascontiguousarray(reference.from_ncx(dy, data_format)),
        mode="linear",
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        data_format=data_format,
        coordinate_scales=scales,
    )
    magnitude = peer(np.abs(dy.astype(np.float64)))
    if dtype == "f64":
        # The peer computes coordinates in floating point.
        magnitude = magnitude + max(src) * magnitude.max()
    assert_close(reference.to_ncx(result, data_format), peer(dy), magnitude)


@every_dtype
@every_format
@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric"])
@pytest.mark.parametrize(("src", "dst"), SHAPES)
def test_nearest_interpolation(src, dst, transform, data_format, dtype):
    """Where the peer's float32 index agrees with the exact one."""
    import torch

    rank = len(src)
    exact = "_exact" if transform == "half_pixel" else ""
    underscore = "_" if exact else ""
    function = getattr(torch.ops.aten, f"{underscore}upsample_nearest{exact}{rank}d_backward")
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((2, 5, *dst)).astype(DTYPES[dtype])

    def peer(a):
        return array_of(function(tensor(a.astype(np.float64)), dst, (2, 5, *src), *[None] * rank))

    own = reference.interpolate_backward(np.abs(dy.astype(np.float64)), src, "nearest", transform)
    magnitude = peer(np.abs(dy.astype(np.float64)))
    if not np.allclose(own, magnitude):
        pytest.skip("the peer's float32 index is another one here")
    shape = (2, 5, *src) if data_format == "NCX" else (2, *src, 5)
    result = gradops_cy.interpolate_backward(
        shape,
        np.ascontiguousarray(reference.from_ncx(dy, data_format)),
        mode="nearest",
        coordinate_transformation_mode=transform,
        data_format=data_format,
    )
    assert_close(reference.to_ncx(result, data_format), peer(dy), magnitude)


@every_dtype
@every_format
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("mode", "antialias"), [("cubic", False), ("linear", True), ("cubic", True)]
)
@pytest.mark.parametrize(("src", "dst"), [shapes for shapes in SHAPES if len(shapes[0]) == 2])
def test_filters(src, dst, mode, antialias, scaled, align_corners, data_format, dtype):
    import torch

    name = "_upsample_bi{}2d_aa_backward" if antialias else "upsample_bi{}2d_backward"
    function = getattr(torch.ops.aten, name.format(mode))
    rng = np.random.default_rng(0)
    dy = rng.standard_normal((2, 5, *dst)).astype(DTYPES[dtype])
    scales = [round(64 * y / x) / 64 for x, y in zip(src, dst, strict=True)] if scaled else None
    exact = array_of(
        function(
            tensor(dy.astype(np.float64)), dst, (2, 5, *src), align_corners, *(scales or [None] * 2)
        )
    )
    transform = "align_corners" if align_corners else "half_pixel"
    coefficient = -0.5 if antialias else -0.75
    shape = (2, 5, *src) if data_format == "NCX" else (2, *src, 5)
    result = gradops_cy.interpolate_backward(
        shape,
        np.ascontiguousarray(reference.from_ncx(dy, data_format)),
        mode=mode,
        coordinate_transformation_mode=transform,
        data_format=data_format,
        coordinate_scales=scales,
        antialias=antialias,
        cubic_coeff_a=coefficient,
    )
    magnitude = reference.interpolate_backward(
        dy.astype(np.float64), src, mode, transform, None if align_corners else scales,
        magnitude=True, antialias=antialias, a=coefficient,
    )  # fmt: skip
    if dtype == "f64":
        # The peer computes coordinates in floating point.
        magnitude = magnitude + max(src) * magnitude.max()
    assert_close(reference.to_ncx(result, data_format), exact, magnitude)


@pytest.mark.parametrize("dtypes", [("f32", "f32"), ("bf16", "bf16"), ("f32", "f16")], ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("scales", [(0.0, 0.0), (1.75, 0.5), (0.0, 3.0)])
@pytest.mark.parametrize(("src", "dst"), [shapes for shapes in SHAPES if len(shapes[0]) == 2])
def test_bilinear_resize(src, dst, scales, align_corners, dtypes):
    import torch

    rng = np.random.default_rng(0)
    grads = rng.standard_normal((2, 5, *dst)).astype(DTYPES[dtypes[0]])

    def peer(a):
        return array_of(
            torch.ops.aten.upsample_bilinear2d_backward(
                tensor(a.astype(np.float64)),
                dst,
                (2, 5, *src),
                align_corners,
                *(scale or None for scale in scales),
            )
        )

    result = gradops_cy.resize_bilinear_v2_grad(
        grads,
        np.empty((2, 5, *src), DTYPES[dtypes[1]]),
        align_corners=align_corners,
        half_pixel_centers=not align_corners,
        scales=scales,
    )
    assert_close(result, peer(grads), peer(np.abs(grads)))


def test_tensors_are_no_arrays():
    import torch

    with pytest.raises(TypeError, match="diff_dst must be a NumPy array, got Tensor"):
        gradops_cy.interpolate_backward((1, 2, 2), torch.ones(1, 4, 2), mode="nearest")
