"""The canonical form of the interpolation operators: checked facts, always three spatial axes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from gradops_cy import _arrays

Mode = Literal["nearest", "linear", "cubic"]
Coordinates = Literal["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
# The axis along which the elements of diff_dst lie closest.
Innermost = Literal["channels", "width"]

AXES = "dhw"


@dataclass(frozen=True, slots=True)
class ResampleProblem:
    """What is to be computed: the transpose of a resampling from extents `src` to extents `dst`.

    `scales` holds per axis the dst/src scale of the coordinate formula, 0 where that is the ratio
    of the extents. `cubic_coeff_a` is 0 for the other modes.
    """

    batch: int
    channels: int
    src: tuple[int, int, int]
    dst: tuple[int, int, int]
    mode: Mode
    coordinates: Coordinates
    scales: tuple[float, float, float]
    load_dtype: int
    store_dtype: int
    antialias: bool = False
    cubic_coeff_a: float = 0.0

    @property
    def computes_f64(self) -> bool:
        """Whether sums are held in float64 rather than float32."""
        return _arrays.DTYPE_NAMES[self.load_dtype] == "f64"

    @property
    def bytes_read(self) -> int:
        """Bytes of diff_dst."""
        itemsize = _arrays.DTYPES[self.load_dtype].itemsize
        return self.batch * self.channels * math.prod(self.dst) * itemsize

    @property
    def bytes_written(self) -> int:
        """Bytes of the result."""
        itemsize = _arrays.DTYPES[self.store_dtype].itemsize
        return self.batch * self.channels * math.prod(self.src) * itemsize

    def __str__(self) -> str:
        """Return benchdnn's problem string, the mode and the coordinates."""
        axes = [
            f"i{axis}{src}o{axis}{dst}"
            for axis, src, dst in zip(AXES, self.src, self.dst, strict=True)
        ]
        # Leading axes that resampling does not touch are those that fewer dimensions leave out.
        while len(axes) > 1 and axes[0] in ("id1od1", "ih1oh1"):
            del axes[0]
        text = f"mb{self.batch}ic{self.channels}_{'_'.join(axes)} {self.mode} {self.coordinates}"
        if self.antialias:
            text += " antialias"
        if self.mode == "cubic":
            text += f" a {self.cubic_coeff_a:g}"
        if any(self.scales):
            text += " scales " + "x".join(f"{scale:g}" for scale in self.scales)
        return text
