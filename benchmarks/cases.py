"""Benchmark cases as benchdnn's problem strings, one a line in ``shapes/*.txt``.

A file ``conv*.txt`` holds convolutions, ``deconv*.txt`` transposed ones, ``resampling*.txt``
interpolations; the strings describe the forward problem whose gradient is taken. As in benchdnn,
dilations count from 0, an absent w repeats h and an absent h repeats d, a missing output extent is
derived, ``n"..."`` names the case, and ``--alg=nearest`` may stand before a resampling problem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

SHAPES = Path(__file__).parent / "shapes"

_TOKEN = re.compile(r"([a-z]+)(\d+)|_")
_NAME = re.compile(r'_?n"([^"]*)"$')


class CaseError(ValueError):
    """A problem string that does not parse."""


@dataclass(frozen=True)
class Case:
    """The forward problem: extents of src and dst, and for convolutions the rest."""

    kind: str
    mb: int
    ic: int
    src: tuple[int, ...]
    dst: tuple[int, ...]
    oc: int = 0
    groups: int = 1
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    algorithm: str = "linear"
    name: str = ""

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.src)

    @property
    def spans(self) -> tuple[int, ...]:
        """Extents of the dilated kernel."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def pads_end(self) -> tuple[int, ...]:
        """Pads at the end: what the extents ask for."""
        large, small = (self.src, self.dst) if self.kind == "conv" else (self.dst, self.src)
        return tuple(
            max(0, (y - 1) * s + e - x - p)
            for x, y, s, e, p in zip(large, small, self.strides, self.spans, self.pads, strict=True)
        )

    @property
    def reduction(self) -> int:
        """Products in a sum, at most."""
        if self.kind == "resampling":
            return prod(max(1, -(-2 * o // i)) for i, o in zip(self.src, self.dst, strict=True))
        return self.oc // self.groups * prod(self.kernel)

    @property
    def flop(self) -> int:
        """Operations of the gradient, products with padding counted as benchdnn does."""
        small = self.dst if self.kind == "conv" else self.src
        return 2 * self.mb * self.weights * prod(small)

    @property
    def weights(self) -> int:
        """Elements of the weights; none of resampling."""
        return self.ic * self.oc // self.groups * prod(self.kernel)

    @property
    def elements(self) -> int:
        """Elements of diff_dst, diff_src and the weights: what must be moved."""
        channels = self.oc or self.ic
        tensors = self.mb * (channels * prod(self.dst) + self.ic * prod(self.src))
        return tensors + self.weights

    def __str__(self) -> str:
        """Return the problem string in full."""
        axes = "dhw"[3 - self.rank :]

        def group(prefix: str, values: tuple[int, ...]) -> str:
            return "".join(f"{prefix}{a}{v}" for a, v in zip(axes, values, strict=True))

        name = f'n"{self.name}"' if self.name else ""
        if self.kind == "resampling":
            return (
                f"--alg={self.algorithm} mb{self.mb}ic{self.ic}_"
                f"{group('i', self.src)}{group('o', self.dst)}{name}"
            )
        dilations = tuple(d - 1 for d in self.dilations)
        text = f"g{self.groups}mb{self.mb}ic{self.ic}{group('i', self.src)}oc{self.oc}"
        text += group("o", self.dst) + group("k", self.kernel) + group("s", self.strides)
        if any(dilations):
            text += group("d", dilations)
        return text + group("p", self.pads) + name


def _axes(values: dict[str, int], prefix: str, rank: int, default: int | None) -> list[int | None]:
    """Return the values of d, h and w, an absent one repeating the one before."""
    result: list[int | None] = []
    for axis in "dhw"[3 - rank :]:
        before = result[-1] if result else default
        result.append(values.pop(prefix + axis, before))
    return result


def parse(kind: str, line: str) -> Case:
    """Read one line of a shapes file."""
    text, algorithm = line.strip(), "linear"
    if text.startswith("--alg="):
        option, _, text = text.partition(" ")
        algorithm = option.removeprefix("--alg=")
    if algorithm not in ("linear", "nearest"):
        raise CaseError(f"{line!r}: algorithm must be linear or nearest, got {algorithm!r}")
    match = _NAME.search(text)
    name = match[1] if match else ""
    text = text[: match.start()] if match else text
    values: dict[str, int] = {}
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if not token:
            raise CaseError(f"{line!r}: cannot read {text[position:]!r}")
        position = token.end()
        if token[1]:
            if token[1] in values:
                raise CaseError(f"{line!r}: {token[1]} is given twice")
            values[token[1]] = int(token[2])
    rank = 3 if "id" in values else 2 if "ih" in values else 1
    mb, ic = values.pop("mb", 2), values.pop("ic", 0)
    src = _axes(values, "i", rank, None)
    dst = _axes(values, "o", rank, None)
    if ic < 1 or None in src:
        raise CaseError(f"{line!r}: ic and the extents of the input must be given")
    spatial = tuple(v for v in src if v is not None)
    if kind == "resampling":
        if None in dst or values:
            raise CaseError(f"{line!r}: output extents missing or unknown {sorted(values)}")
        target = tuple(v for v in dst if v is not None)
        return Case(kind, mb, ic, spatial, target, algorithm=algorithm, name=name)
    oc, groups = values.pop("oc", 0), values.pop("g", 1)

    def known(prefix: str, default: int | None) -> tuple[int, ...]:
        found = _axes(values, prefix, rank, default)
        if None in found:
            raise CaseError(f"{line!r}: {prefix} must be given")
        return tuple(v for v in found if v is not None)

    kernel, strides = known("k", None), known("s", 1)
    dilations = tuple(d + 1 for d in known("d", 0))
    pads = known("p", 0)
    if oc < 1 or oc % groups or ic % groups or values:
        raise CaseError(f"{line!r}: oc missing, groups uneven or unknown {sorted(values)}")
    derived = []
    for i, k, s, d, p in zip(spatial, kernel, strides, dilations, pads, strict=True):
        span = (k - 1) * d + 1
        derived.append(
            (i + 2 * p - span) // s + 1 if kind == "conv" else (i - 1) * s + span - 2 * p
        )
    target = tuple(d if o is None else o for o, d in zip(dst, derived, strict=True))
    return Case(
        kind, mb, ic, spatial, target, oc, groups, kernel, strides, dilations, pads, name=name
    )  # fmt: skip


def label(problem: str) -> str:
    """Return the name in a problem string, or all of it where it has none."""
    match = _NAME.search(problem)
    return match[1] if match else problem


def load(folder: Path = SHAPES) -> list[Case]:
    """Read every case of every file, in order."""
    cases = []
    for path in sorted(folder.glob("*.txt")):
        kind = path.stem.split("_")[0]
        for line in path.read_text().splitlines():
            if line.strip() and not line.startswith("#"):
                cases.append(parse(kind, line))  # noqa: PERF401
    return cases
