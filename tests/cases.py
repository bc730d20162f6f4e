"""Convolution cases as values: what to call, and what the references make of it."""

from dataclasses import dataclass, field

import numpy as np

import gradops_cy
from tests import reference
from tests.tolerances import DTYPES, assert_close


@dataclass(frozen=True)
class ConvCase:
    """One call of a convolution operator; extents are per group and per spatial axis."""

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
    seed: int = 0
    keywords: dict = field(default_factory=dict, compare=False)

    def __str__(self):
        name = "deconv" if self.transposed else "conv"
        lists = "k{}s{}d{}p{}p{}".format(
            *(
                "x".join(map(str, values))
                for values in (
                    self.kernel,
                    self.strides,
                    self.dilations,
                    self.pads_begin,
                    self.pads_end,
                )
            )
        )
        dst = "x".join(map(str, self.dst))
        return (
            f"{name}-{self.dtype}-{self.data_format}-{self.weights_format}-mb{self.batch}"
            f"g{self.groups}i{self.inputs}o{self.outputs}y{dst}{lists}"
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

    def arrays(self):
        """Return random diff_dst and weights with channels in front: (N, O, *y), OIX or IOX."""
        rng = np.random.default_rng(self.seed)
        dtype = DTYPES[self.dtype]
        first, second = self.outputs * self.groups, self.inputs
        if self.transposed:
            first, second = self.inputs * self.groups, self.outputs
        dy = rng.standard_normal((self.batch, self.outputs * self.groups, *self.dst)).astype(dtype)
        return dy, rng.standard_normal((first, second, *self.kernel)).astype(dtype)

    def call(self, dy, weights, **keywords):
        """Call the operator on arrays in the case's own formats."""
        keywords = {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads_begin": self.pads_begin,
            "pads_end": self.pads_end,
            "groups": self.groups,
            "data_format": self.data_format,
            "weights_format": self.weights_format,
            **self.keywords,
            **keywords,
        }
        if self.transposed:
            return gradops_cy.conv_transpose_backward_data(dy, weights, **keywords)
        keywords.setdefault("dst_shape", self.shape)
        return gradops_cy.convolution_backward_data(dy, weights, **keywords)

    @property
    def shape(self):
        """The result's shape in the case's format."""
        channels = self.inputs * self.groups
        if self.data_format == "NXC":
            return (self.batch, *self.src, channels)
        return (self.batch, channels, *self.src)

    def formatted(self, dy, weights):
        """Return arrays of :meth:`arrays` as contiguous arrays in the case's formats."""
        dy = np.ascontiguousarray(reference.from_ncx(dy, self.data_format))
        if self.weights_format[0] == "X":
            weights = np.ascontiguousarray(np.moveaxis(weights, (0, 1), (-1, -2)))
        return dy, weights

    def exact(self, dy, weights):
        """Return the exact result and the sum of magnitudes, channels in front."""
        function = reference.conv_transpose_backward if self.transposed else reference.conv_backward
        keywords = {
            "strides": self.strides,
            "pads_begin": self.pads_begin,
            "dilations": self.dilations,
            "groups": self.groups,
        }
        dy, weights = dy.astype(np.float64), weights.astype(np.float64)
        return (
            function(dy, weights, self.src, **keywords),
            function(np.abs(dy), np.abs(weights), self.src, **keywords),
        )

    def check(self, **keywords):
        """Compute and compare."""
        dy, weights = self.arrays()
        result = self.call(*self.formatted(dy, weights), **keywords)
        assert result.dtype == DTYPES[self.dtype]
        assert result.shape == self.shape
        assert_close(reference.to_ncx(result, self.data_format), *self.exact(dy, weights))


def conv_case(seed, *, dtype=None):
    """Draw a case from the whole attribute space, the same for the same seed."""
    rng = np.random.default_rng(seed)

    def pick(*values):
        return values[rng.integers(len(values))]

    rank = pick(1, 2, 2, 3)
    transposed = bool(rng.integers(2))
    limit = {1: 40, 2: 9, 3: 4}[rank]
    groups = pick(1, 1, 1, 2, 3, 4, 16, 17)
    widths = (1, 2, 3, 4) if groups > 3 else (1, 3, 4, 7, 8, 15, 16, 17, 31, 33)
    kernel = tuple(pick(1, 2, 3, 3, 4, 5) if rank < 3 else pick(1, 2, 3) for _ in range(rank))
    dilations = tuple(pick(1, 1, 2, 3) for _ in kernel)
    case = ConvCase(
        transposed=transposed,
        dtype=dtype or pick(*DTYPES),
        data_format=pick("NXC", "NCX"),
        weights_format=pick("XOI", "IOX") if transposed else pick("XIO", "OIX"),
        batch=pick(1, 1, 2, 3),
        groups=groups,
        inputs=pick(*widths),
        outputs=pick(*widths),
        dst=tuple(int(rng.integers(1, limit + 1)) for _ in kernel),
        kernel=kernel,
        strides=tuple(pick(1, 1, 2, 3, 4) for _ in kernel),
        dilations=dilations,
        pads_begin=tuple(pick(0, 0, 1, 2, k, k + 2) for k in kernel),
        pads_end=tuple(pick(0, 0, 1, 2, k) for k in kernel),
        extra=tuple(pick(0, 0, 1, 2) for _ in kernel),
        seed=seed,
    )
    return case if case.possible else conv_case(seed + 1_000_003, dtype=dtype)
