"""The regression suite: shares of the machine's peak, measured in the same run.

No case is gated on seconds: each share of peak is compared with the one in ``baseline.json`` for
the tier in use, and may not fall below half of it; shared machines are that noisy.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cases import Case, load
from benchmarks.compare import Peaks, check
from benchmarks.ours import Ours
from benchmarks.providers import Array, Arrays
from gradops_cy import _isa, _reference

BASELINE = Path(__file__).parent / "baseline.json"
FLOOR = 0.5

NAMES = (
    "resnet50_conv2_3x3",
    "resnet50_conv3_3x3_s2",
    "resnet50_conv5_3x3",
    "mobilenet2_dw3x3",
    "resnext50_conv2",
    "unet_up2",
    "wavenet_d4",
    "bilinear_x2",
    "nearest_x2",
)
CASES = [
    pytest.param(case, dtype, layout, id=f"{case}-{dtype}-{layout}")
    for case in load()
    if case.name in NAMES
    for dtype in ("f32", "bf16")
    for layout in ("NXC", "NCX")
]


@pytest.fixture(scope="session")
def peaks() -> Peaks:
    """The machine's limits, measured once."""
    return Peaks()


def exact(case: Case, arrays: Arrays) -> Array:
    """Return the float64 result, channels first."""
    attributes: dict[str, Any] = {"data_format": "NCX"}
    if case.kind == "resampling":
        attributes["mode"] = case.algorithm
        shape = (case.mb, case.ic, *case.src)
        return _reference.interpolate_backward(shape, arrays.diff_dst, attributes)[0]
    attributes |= {
        "strides": case.strides,
        "pads_begin": case.pads,
        "pads_end": case.pads_end,
        "dilations": case.dilations,
        "groups": case.groups,
        "weights_format": "OIX" if case.kind == "conv" else "IOX",
    }
    dy, w = arrays.diff_dst, arrays.weights
    if case.kind == "conv":
        return _reference.convolution_backward_data(dy, w, attributes, case.src)[0]
    return _reference.conv_transpose_backward_data(dy, w, attributes)[0]


@pytest.mark.parametrize(("case", "dtype", "layout"), CASES)
def test_share_of_peak(case: Case, dtype: str, layout: str, benchmark: Any, peaks: Peaks) -> None:
    ours = Ours()
    arrays = Arrays.random(case, dtype)
    work = ours.prepare(case, arrays, layout, 1)
    assert work is not None
    check(case, dtype, ours.result(work(), layout), exact(case, arrays), "the reference")
    benchmark.pedantic(work, rounds=20, warmup_rounds=3)
    if benchmark.stats is None:  # --benchmark-disable
        return
    if case.kind == "resampling":
        amount, peak = case.elements * arrays.diff_dst.itemsize, peaks.get("copy", 1)
    else:
        amount, peak = case.flop, peaks.get(dtype, 1)
    share = amount / benchmark.stats.stats.min / 1e9 / peak
    benchmark.extra_info["share_of_peak"] = share
    known = json.loads(BASELINE.read_text())
    key = f"{case.name} {dtype} {layout}"
    if os.environ.get("GRADOPS_WRITE_BASELINE"):
        known.setdefault(_isa.TIER, {})[key] = round(share, 4)
        BASELINE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        return
    if key not in known.get(_isa.TIER, {}):
        pytest.skip(f"no baseline for tier {_isa.TIER}")
    assert share >= FLOOR * known[_isa.TIER][key]
