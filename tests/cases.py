"""Convolution cases as values: what to call, and what the references make of it."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

import gradops_cy
from gradops_cy._convolution_problem import ConvProblem
from tests import reference
from tests.tolerances import DTYPES, assert_close
from tests.views import VIEWS, WRITEABLE

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_narrow_dtype = pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
every_format = pytest.mark.parametrize("data_format", ["NXC", "NCX"])

# A layer without a kernel, for the questions that plans ask of a problem.
POINTWISE = ConvProblem(
    transposed=False,
    dtype=0,
    batch=1,
    groups=1,
    diff_src_channels=4,
    diff_dst_channels=4,
    diff_src=(2, 6, 8),
    diff_dst=(2, 6, 8),
    kernel=(1, 1, 1),
    strides=(1, 1, 1),
    dilations=(1, 1, 1),
    pads_begin=(0, 0, 0),
    rank=2,
)


@dataclass(frozen=True)
class ConvCase:
    """One call of a convolution operator; channels are per group, extents per spatial axis."""

    transposed: bool
    dtype: str
    data_format: str
    weights_format: str
    batch: int
    groups: int
    inputs: int
    outputs: int
    dst: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    extra: tuple[int, ...] = ()  # rows of the result that the formula leaves over, per axis
    page: bool = False  # grouped transposed weights as the operator's page has them
    seed: int = 0

    def __str__(self):
        name = "deconv" if self.transposed else "conv"
        lists = "".join(
            letter + "x".join(map(str, values))
            for letter, values in (
                ("y", self.dst),
                ("k", self.kernel),
                ("s", self.strides),
                ("d", self.dilations),
                ("p", self.pads_begin),
                ("p", self.pads_end),
            )
        )
        return (
            f"{name}-{self.dtype}-{self.data_format}-{self.weights_format}-mb{self.batch}"
            f"g{self.groups}i{self.inputs}o{self.outputs}{lists}"
        )

    @property
    def spans(self):
        return [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def src(self):
        """Spatial extents of the result; an extent below 1 means that there is no such call."""
        pads = [b + e for b, e in zip(self.pads_begin, self.pads_end, strict=True)]
        axes = zip(self.dst, self.spans, self.strides, pads, strict=True)
        if self.transposed:
            return tuple((y + p - e) // s + 1 if y + p >= e else 0 for y, e, s, p in axes)
        extra = self.extra or (0,) * len(self.dst)
        return tuple(
            s * (y - 1) + e - p + min(x, s - 1) for (y, e, s, p), x in zip(axes, extra, strict=True)
        )

    @property
    def possible(self):
        return min(self.src) >= 1

    @property
    def shape(self):
        """The result's shape in the case's format."""
        channels = self.inputs * self.groups
        if self.data_format == "NXC":
            return (self.batch, *self.src, channels)
        return (self.batch, channels, *self.src)

    @property
    def geometry(self):
        """What the references need besides arrays and extents."""
        return {
            "strides": self.strides,
            "pads_begin": self.pads_begin,
            "dilations": self.dilations,
            "groups": self.groups,
        }

    def arrays(self):
        """Return random diff_dst and weights with channels in front: (N, O, *y), OIX or IOX."""
        rng = np.random.default_rng(self.seed)
        dtype = DTYPES[self.dtype]
        first, second = self.outputs * self.groups, self.inputs
        if self.transposed:
            first, second = self.inputs * self.groups, self.outputs
        dy = rng.standard_normal((self.batch, self.outputs * self.groups, *self.dst)).astype(dtype)
        return dy, rng.standard_normal((first, second, *self.kernel)).astype(dtype)

    def formatted(self, dy, weights):
        """Return arrays of :meth:`arrays` as contiguous arrays in the case's formats."""
        dy = np.ascontiguousarray(reference.from_ncx(dy, self.data_format))
        if self.page and self.transposed:
            weights = reference.page_weights(weights, self.groups)
        if self.weights_format[0] == "X":
            weights = np.ascontiguousarray(np.moveaxis(weights, (0, 1), (-1, -2)))
        return dy, weights

    def call(self, dy, weights, **keywords):
        """Call the operator on arrays in the case's own formats."""
        keywords = {
            **self.geometry,
            "pads_end": self.pads_end,
            "data_format": self.data_format,
            "weights_format": self.weights_format,
            **keywords,
        }
        if self.transposed:
            return gradops_cy.conv_transpose_backward_data(dy, weights, **keywords)
        keywords.setdefault("dst_shape", self.shape)
        return gradops_cy.convolution_backward_data(dy, weights, **keywords)

    def ncx(self, result):
        """Move a result's channels to the front."""
        return reference.to_ncx(result, self.data_format)

    def exact(self, dy, weights):
        """Return the exact result and the sum of magnitudes, channels in front."""
        dy, weights = dy.astype(np.float64), weights.astype(np.float64)
        function = reference.conv_transpose_backward if self.transposed else reference.conv_backward
        return (
            function(dy, weights, self.src, **self.geometry),
            function(np.abs(dy), np.abs(weights), self.src, **self.geometry),
        )

    def exact_by_taps(self, dy, weights):
        """Return the same as :meth:`exact`, for large cases."""
        dy, weights = dy.astype(np.float64), weights.astype(np.float64)
        keywords = {**self.geometry, "transposed": self.transposed}
        return (
            reference.by_taps(dy, weights, self.src, **keywords),
            reference.by_taps(np.abs(dy), np.abs(weights), self.src, **keywords),
        )

    def check(
        self,
        *,
        view="contiguous",
        out_view=None,
        accumulate=False,
        large=False,
        exact=None,
        **keywords,
    ):
        """Compute from views, into a view where `out_view` names one, and compare.

        `exact` is as :meth:`exact` returns it, by default that of the case.
        """
        dy, weights = self.arrays()
        exact, magnitude = exact or _exact(replace(self, data_format="NCX"), large)
        arrays = [VIEWS[view](array) for array in self.formatted(dy, weights)]
        if out_view is not None:
            rng = np.random.default_rng(self.seed + 1)
            before = rng.standard_normal(self.shape).astype(dy.dtype)
            out = WRITEABLE[out_view](before.copy())
            keywords.update(out=out, accumulate=accumulate)
            if accumulate:
                exact = exact + self.ncx(before).astype(np.float64)
                magnitude = magnitude + np.abs(self.ncx(before).astype(np.float64))
        result = self.call(*arrays, **keywords)
        assert out_view is None or result is out
        assert result.dtype == DTYPES[self.dtype]
        assert result.shape == self.shape
        assert_close(self.ncx(result), exact, magnitude)

    def check_views(self):
        """Compute from and into arrays of all strides, and add to such."""
        for view in VIEWS:
            self.check(view=view)
        for out_view in WRITEABLE:
            self.check(out_view=out_view)
            self.check(out_view=out_view, accumulate=True)


@lru_cache(maxsize=32)
def _exact(case, large):
    """Return what the result of a case's own arrays is: views and plans of one case share it."""
    values = (case.exact_by_taps if large else case.exact)(*case.arrays())
    for array in values:
        array.flags.writeable = False
    return values


def _draw(pick, dtype):
    """Draw a case from the whole attribute space; `pick` chooses one of its arguments."""
    rank = pick(2, 1, 3)
    transposed = pick(False, True)
    limit = {1: 40, 2: 9, 3: 4}[rank]
    groups = pick(1, 1, 1, 2, 3, 4, 16, 17)
    widths = (1, 2, 3, 4) if groups > 3 else (1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65)
    kernel = tuple(pick(1, 2, 3, 3, 4, 5) if rank < 3 else pick(1, 2, 3) for _ in range(rank))
    return ConvCase(
        transposed=transposed,
        dtype=dtype or pick(*DTYPES),
        data_format=pick("NXC", "NCX"),
        weights_format=pick("XOI", "IOX") if transposed else pick("XIO", "OIX"),
        batch=pick(1, 1, 2, 3),
        groups=groups,
        inputs=pick(*widths),
        outputs=pick(*widths),
        dst=tuple(pick(*range(1, limit + 1)) for _ in kernel),
        kernel=kernel,
        strides=tuple(pick(1, 1, 2, 3, 4) for _ in kernel),
        dilations=tuple(pick(1, 1, 2, 3) for _ in kernel),
        pads_begin=tuple(pick(0, 0, 1, 2, k, k + 2) for k in kernel),
        pads_end=tuple(pick(0, 0, 1, 2, k, k + 3) for k in kernel),
        extra=tuple(pick(0, 0, 1, 2, 3) for _ in kernel),
        page=pick(False, True),
    )


def conv_case(seed, *, dtype=None):
    """Return a possible case, the same for the same seed."""
    rng = np.random.default_rng(seed)
    while True:
        case = _draw(lambda *values: values[rng.integers(len(values))], dtype)
        if case.possible:
            return replace(case, seed=seed)


@st.composite
def conv_cases(draw, dtype=None):
    """Draw a possible case with hypothesis, which shrinks towards the first of the choices."""
    case = _draw(lambda *values: draw(st.sampled_from(values)), dtype)
    assume(case.possible)
    return case


def layer(name, **changes):
    """Return a 2-D case named like a layer: `name` is i-o-y-k-s-p of square extents."""
    i, o, y, k, s, p = (int(part) for part in name.split("-"))
    transposed = changes.get("transposed", False)
    values = {
        "transposed": transposed,
        "dtype": "f32",
        "data_format": "NXC",
        "weights_format": "XOI" if transposed else "XIO",
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
    }
    return ConvCase(**{**values, **changes})


def sequence(i, o, y, *, transposed=False, kernel, stride=1, dilation=1, begin=0, end=0):
    """Return a 1-D case."""
    return layer(
        f"{i}-{o}-1-1-1-0",
        transposed=transposed,
        dst=(y,),
        kernel=(kernel,),
        strides=(stride,),
        dilations=(dilation,),
        pads_begin=(begin,),
        pads_end=(end,),
    )


def volume(i, o, dst, *, transposed=False, kernel=3, stride=1, pad=1):
    """Return a 3-D case of a cubic kernel."""
    return layer(
        f"{i}-{o}-1-1-1-0",
        transposed=transposed,
        dst=dst,
        kernel=(kernel,) * 3,
        strides=(stride,) * 3,
        dilations=(1,) * 3,
        pads_begin=(pad,) * 3,
        pads_end=(pad,) * 3,
    )


# Layers of real networks at or near their real extents. For transposed ones y is the large side.
LAYERS = {
    "resnet 3x3": layer("64-64-56-3-1-1", batch=2),
    "resnet 1x1 from 2048": layer("2048-512-7-1-1-0"),
    "resnet 3x3 of 7x7": layer("256-300-7-3-1-1"),
    "resnet 3x3 of 4x4": layer("96-80-4-3-1-1", batch=11),
    "planes without depth": layer(
        "40-36-1-1-1-0",
        dst=(5, 4, 9),
        kernel=(1, 3, 3),
        strides=(1,) * 3,
        dilations=(1,) * 3,
        pads_begin=(1, 1, 1),
        pads_end=(0, 1, 1),
        batch=2,
    ),
    "resnet stride 2": layer("128-128-14-3-2-1", extra=(1, 1)),
    "resnet first layer": layer("3-64-56-7-2-3", extra=(1, 1)),
    "projection of odd extents": layer("64-96-32-1-2-0"),
    "depthwise": layer("1-1-28-3-1-1", groups=144),
    "depthwise stride 2": layer("1-1-28-3-2-1", groups=144, extra=(1, 1)),
    "depthwise 7x7": layer("1-1-28-7-1-3", groups=96),
    "depthwise of three channels": layer("1-1-67-5-1-2", groups=3, batch=2),
    "depthwise of five channels, dilated": layer("1-1-90-3-1-5", groups=5, dilations=(5, 6)),
    "deconv depthwise of four channels": layer("1-1-70-4-1-1", transposed=True, groups=4),
    "depthwise 3-D": replace(volume(1, 1, (9, 10, 12)), groups=40),
    "depthwise with multiplier": layer("1-3-20-3-1-1", groups=40),
    "resnext": layer("4-4-28-3-1-1", groups=32),
    "groups of 4 channels from 8": layer("4-8-29-3-1-1", groups=9, batch=2),
    "groups of 4 channels from 12": layer("4-12-9-5-1-2", groups=7),
    "groups of 12 channels": layer("12-12-30-3-1-1", groups=6),
    "groups of 8 channels": layer("8-8-13-3-1-1", groups=5),
    "groups of 8 channels, 3-D": replace(volume(8, 4, (4, 5, 14)), groups=3),
    "taps beside each other": layer("40-8-30-3-1-1", batch=2),
    "taps beside each other, 7x7": layer("16-4-21-7-1-3"),
    "taps beside each other, more than a tile": layer("40-8-33-5-1-2"),
    "taps of odd channels beside each other": layer("40-7-33-5-1-2", batch=2),
    "deconv, taps of three channels": layer("24-3-20-4-2-1", transposed=True),
    "deconv, taps beside each other in steps": layer("72-6-39-7-3-2", transposed=True, batch=2),
    "deconv, taps beside each other": layer("24-6-20-5-1-2", transposed=True, groups=3),
    "resnext of 16 channels": layer("16-16-28-3-1-1", groups=6),
    "regnet": layer("16-40-28-3-1-1", groups=3),
    "regnet of 8 channels": layer("8-12-29-5-2-2", groups=5, extra=(1, 1)),
    "grouped and dilated": layer(
        "12-20-21-3-1-2", groups=4, dilations=(2, 2), pads_begin=(2, 2), pads_end=(2, 2)
    ),
    "dilated": layer("96-80-33-3-1-6", dilations=(6, 6)),
    "dilated, columns left": layer("64-72-65-3-1-9", dilations=(9, 9), batch=2),
    "dilated, columns left of a class": layer("32-64-33-3-2-12", dilations=(12, 12)),
    "dilated, narrow": layer("64-48-1-3-1-9", dst=(20, 3), dilations=(9, 9)),
    "period of 3": layer(
        "33-40-1-1-1-0",
        dst=(61, 3),
        kernel=(5, 1),
        strides=(3, 1),
        pads_begin=(2, 0),
        pads_end=(2, 0),
        extra=(1, 0),
    ),
    "period of 11, groups": layer(
        "20-17-1-1-1-0",
        dst=(29, 11),
        kernel=(4, 1),
        strides=(2, 1),
        pads_begin=(1, 0),
        pads_end=(0, 0),
        groups=3,
        batch=3,
    ),
    "patches": layer("3-192-7-16-16-0"),
    "wavenet": sequence(48, 40, 3000, kernel=2, dilation=512, begin=512),
    "speech": sequence(80, 100, 500, kernel=5, stride=2, begin=2, end=2),
    "unet 3-D": volume(24, 20, (9, 20, 17)),
    "unet 3-D up": volume(33, 24, (10, 16, 12), transposed=True, kernel=2, stride=2, pad=0),
    "dcgan 4x4": layer("128-64-32-4-2-1", transposed=True),
    "dcgan image": layer("64-3-64-4-2-1", transposed=True),
    "unet up": layer("128-64-56-2-2-0", transposed=True),
    "deconv 3x3 groups": layer("8-12-20-3-1-1", transposed=True, groups=8),
    "deconv depthwise": layer("1-1-30-4-2-1", transposed=True, groups=48),
    "deconv dilated": layer("30-50-33-3-1-2", transposed=True, dilations=(2, 2)),
}
