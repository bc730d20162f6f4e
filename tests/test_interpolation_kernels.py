"""Every kernel of resampling computes the same, bit for bit, whichever is chosen."""

import math

import numpy as np
import pytest

from gradops_cy import (
    _arrays,
    _interpolation_call,
    _processor,
    _resampling_fetching,
    interpolate_backward,
)
from tests import forced
from tests.cases import every_dtype, every_format, every_narrow_dtype
from tests.test_interpolation import check
from tests.tolerances import DTYPES

# Those of positions, and those of channels that lie innermost.
KERNELS = (
    ["points", "phases", "width", "planes", "rows", "channels"],
    ["points", "width", "rows", "channels"],
)


def shapes_of(data_format, channels, *spatial):
    return [(2, *x, channels) if data_format == "NXC" else (2, channels, *x) for x in spatial]


@every_dtype
@every_format
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("channels", "src", "dst"),
    [
        (3, (7, 40), (14, 80)),
        (3, (5, 6, 35), (10, 12, 70)),
        (16, (5, 20), (10, 40)),
        (17, (21, 48), (5, 12)),
        (5, (3, 9, 33), (3, 4, 16)),
        (16, (12, 6), (24, 9)),
        (40, (37,), (21,)),
        (9, (64,), (8,)),
        (20, (5, 30, 2), (8, 10, 1)),
        (1, (30, 70), (12, 33)),
        (2, (6, 18), (6, 18)),
    ],
)
def test_kernels_agree_bit_for_bit(
    monkeypatch, channels, src, dst, mode, accumulate, data_format, dtype
):
    shape, of_dst = shapes_of(data_format, channels, src, dst)
    rng = np.random.default_rng(0)
    dy = rng.standard_normal(of_dst).astype(DTYPES[dtype])
    start = rng.standard_normal(shape).astype(DTYPES[dtype])
    keywords = {"mode": mode, "data_format": data_format, "accumulate": accumulate}
    results = {}
    for kernel in KERNELS[data_format == "NXC" and channels > 1]:
        forced.resampling_kernel(monkeypatch, kernel)
        out = start.copy()
        try:
            interpolate_backward(shape, dy, **keywords, out=out)
        except StopIteration:  # neither its tables nor the tier have this problem
            continue
        results[kernel] = out.tobytes()
        plans = [
            plan for form in _interpolation_call._forms.values() for plan in form.plans.values()
        ]
        assert [plan.kernel for plan in plans] == [kernel]
    assert len(results) >= 2
    assert len(set(results.values())) == 1, sorted(results, key=lambda name: results[name])


@every_narrow_dtype
@every_format
@pytest.mark.parametrize("view", ["contiguous", "reversed", "last axis second"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("transform", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize(
    ("channels", "src", "dst"),
    [
        (3, (33, 40), (8, 10)),
        (20, (9, 4100), (2, 500)),
        (4, (11, 5, 70), (3, 9, 17)),
        (70, (16, 7), (2, 1)),
        (2, (40, 1), (90, 1)),
        (33, (90,), (7,)),
    ],
)
def test_points(monkeypatch, channels, src, dst, transform, mode, view, data_format, dtype):
    """Results of which most are zero, and rows of several products."""
    forced.resampling_kernel(monkeypatch, "points")
    check(dtype, data_format, 2, channels, src, dst, mode, transform, view=view)
    check(dtype, data_format, 2, channels, src, dst, mode, transform, out_view=view)


@every_narrow_dtype
@every_format
@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize("channels", [3, 16, 48, 50])
@pytest.mark.parametrize(
    ("src", "dst"), [((22, 64), (5, 8)), ((3, 9, 96), (1, 4, 40)), ((30, 31), (9, 11))]
)
def test_points_past_the_caches(monkeypatch, src, dst, channels, lines, data_format, dtype):
    """Whole lines are streamed from registers, others gathered first, and all else is left."""
    shape, of_dst = shapes_of(data_format, channels, src, dst)
    dy = np.random.default_rng(0).standard_normal(of_dst).astype(DTYPES[dtype])
    results = []
    for streams in (False, True):
        monkeypatch.setattr(_processor, "past_the_caches", lambda *_, past=streams: past)
        forced.resampling_kernel(monkeypatch, "points")
        count = math.prod(shape)
        room = _arrays.aligned_bytes((count + 64) * dy.itemsize).view(dy.dtype)
        room[...] = 7
        first = 0 if lines else 3
        out = room[first : first + count].reshape(shape)
        interpolate_backward(shape, dy, mode="nearest", data_format=data_format, out=out)
        assert (room[:first] == 7).all()
        assert (room[first + count :] == 7).all()
        results.append(out.tobytes())
    assert results[0] == results[1]


@every_narrow_dtype
@every_format
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 11])
@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ((30, 40), (41, 52)),
        ((20, 30), (30, 45)),
        ((9, 150), (14, 225)),
        ((6, 50), (90, 150)),
        ((3, 8, 33), (27, 40, 45)),
        ((7, 4, 20), (9, 7, 33)),
        ((25, 20), (11, 9)),
        ((60, 20), (90, 30)),
        ((100, 31), (150, 47)),
        ((3, 4, 5), (7, 9, 11)),
        ((1, 9), (1, 20)),
        ((40,), (300,)),
        ((9, 9), (80, 90)),
        ((80, 7), (9, 9)),
        ((3, 9000), (4, 3)),
        ((30, 310), (40, 830)),
        ((3, 100), (40, 900)),
        ((4, 5, 6), (24, 30, 20)),
        ((17, 12), (5, 12)),
        ((9, 12, 20), (4, 18, 30)),
        ((5, 7, 9), (5, 11, 8)),
    ],
)
def test_batches(monkeypatch, src, dst, channels, spread, data_format, dtype):
    """Rows and planes are summed together, asked for, gathered and streamed: the same bits."""
    shape, of_dst = shapes_of(data_format, channels, src, dst)
    dy = np.random.default_rng(0).standard_normal(of_dst).astype(DTYPES[dtype])
    results = []
    for name, streams, fetch, threads in (
        ("rows", False, 1 << 60, 1),
        ("width", False, 1 << 60, 2),
        ("width", True, 0, 1),
    ):
        monkeypatch.setattr(_processor, "past_the_caches", lambda *_, past=streams: past)
        monkeypatch.setattr(_processor, "beyond_cache", lambda *_, past=streams: past)
        monkeypatch.setattr(_resampling_fetching, "_FETCH_BYTES", fetch)
        forced.resampling_kernel(monkeypatch, name)
        room = np.full((*shape[:-1], shape[-1] + 5), 7, DTYPES[dtype])
        out = room[..., : shape[-1]] if spread else np.empty(shape, DTYPES[dtype])
        keywords = {"mode": "linear", "data_format": data_format, "num_threads": threads}
        try:
            interpolate_backward(shape, dy, **keywords, out=out)
        except StopIteration:  # neither its tables nor the tier have this problem
            continue
        assert (room[..., shape[-1] :] == 7).all()
        results.append(out.tobytes())
    assert len(results) in (1, 3)
    assert len(set(results)) == 1


@every_narrow_dtype
@every_format
@pytest.mark.parametrize(
    ("mode", "channels", "src", "dst"),
    [
        ("cubic", 3, (6, 64), (12, 128)),
        ("cubic", 3, (5, 96), (8, 144)),
        ("cubic", 2, (3, 32), (12, 128)),
        ("linear", 1, (4, 3, 256), (2, 6, 128)),
    ],
)
def test_where_a_line_of_memory_begins(mode, channels, src, dst, data_format, dtype):
    """Vectors are read from where lines begin, wherever diff_dst does: the same bits."""
    shape, of_dst = shapes_of(data_format, channels, src, dst)
    room = np.empty(math.prod(of_dst) + 64, DTYPES[dtype])
    values = np.random.default_rng(0).standard_normal(of_dst).astype(room.dtype)
    results = set()
    for begin in (0, 1, 8, 13, 16, 31):
        room[:] = np.nan
        dy = room[begin : begin + values.size].reshape(of_dst)
        dy[...] = values
        result = interpolate_backward(shape, dy, mode=mode, data_format=data_format)
        results.add(result.tobytes())
    assert len(results) == 1
