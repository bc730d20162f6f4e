"""Nothing outside of an array is read or written: arrays end, or begin, at a forbidden page."""

import ctypes
import mmap
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import gradops_cy
from gradops_cy import _arrays, _convolution_plan
from tests.cases import LAYERS, conv_case, layer, sequence

PROT_NONE = 0
PAGE = mmap.PAGESIZE


def guarded(array, at_end):
    """Return a copy that touches a page which may not be read."""
    pages = -(-max(array.nbytes, 1) // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (address, address + (pages + 1) * PAGE):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = PAGE if not at_end else (pages + 1) * PAGE - array.nbytes
    storage = np.frombuffer(memory, np.uint8)[start : start + array.nbytes]
    view = storage.view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def guarded_scratch(count):
    """Return the memory that the plan asks for, its end at most a cache line before the page."""
    return guarded(np.empty(-(-count // 64) * 64, np.uint8), at_end=True)[:count]


# Groups of few channels that many threads, or little scratch, cut into parts of a vector.
GROUPS = [
    replace(case, data_format=data_format, dtype=dtype)
    for case in (
        layer("1-1-56-3-1-1", groups=200),
        layer("1-1-56-3-2-1", groups=100, transposed=True),
        layer("3-2-40-3-1-1", groups=50),
        layer("1-1-9-5-1-2", groups=6001),
    )
    for data_format in ("NXC", "NCX")
    for dtype in ("f32", "bf16")
]
# Rows of which every so many elements are read.
SORTED = [
    replace(
        layer("20-18-1-1-1-0", transposed=True, dst=(1, width), data_format="NCX", dtype=dtype),
        kernel=(1, stride + 1),
        strides=(1, stride),
    )
    for width in (50, 97, 133)
    for stride in (2, 3, 4, 5, 6, 8)
    for dtype in ("f32", "f16", "bf16", "f64")
]


def exact_scratch():
    """Have each call's scratch end at a forbidden page, with no byte more than the plan counts."""
    _arrays.aligned_bytes = guarded_scratch
    _convolution_plan.KEPT_BYTES = _convolution_plan.HUGE_BYTES = 0


def convolutions():
    cases = [conv_case(seed) for seed in range(300)] + list(LAYERS.values()) + GROUPS + SORTED
    exact_scratch()
    for number, case in enumerate(cases):
        dy, weights = case.formatted(*case.arrays())
        expected = case.call(dy, weights)
        for at_end in (False, True):
            print(case, at_end, file=sys.stderr, flush=True)
            out = guarded(np.zeros_like(expected), at_end)
            arrays = guarded(dy, at_end), guarded(weights, at_end)
            case.call(*arrays, out=out, num_threads=(1, 2, 7)[number % 3])
            assert out.tobytes() == expected.tobytes()


def frames():
    """Have positions of diff_dst overlap, as those of a signal's frames that are views of it."""
    rng = np.random.default_rng(0)
    exact_scratch()
    for number in range(600):
        channels, sums = (int(rng.integers(2, rng.choice([9, 70]))) for _ in range(2))
        kernel, stride = rng.integers(1, (8, 4), dtype=int)
        case = replace(
            sequence(
                sums,
                channels,
                int(rng.integers(kernel, 400)),
                transposed=bool(rng.integers(2)),
                kernel=int(kernel),
                stride=int(stride),
            ),
            data_format="NXC",
            dtype=("f16", "bf16", "f32")[number % 3],
        )
        dy, weights = case.formatted(*case.arrays())
        hop = int(rng.integers(1, channels + 1))
        signal = dy.reshape(-1)[: channels + (dy.shape[1] - 1) * hop]
        expected = case.call(in_frames(signal, hop, dy.shape).copy(), weights)
        for at_end in (False, True):
            print(case, hop, at_end, file=sys.stderr, flush=True)
            views = in_frames(guarded(signal, at_end), hop, dy.shape)
            out = guarded(np.zeros_like(expected), at_end)
            case.call(views, weights, out=out, num_threads=1 + number % 2)
            assert out.tobytes() == expected.tobytes()


def in_frames(signal, hop, shape):
    """Return a view of which each position holds the signal's elements from `hop` further on."""
    steps = (0, hop * signal.itemsize, signal.itemsize)
    return np.lib.stride_tricks.as_strided(signal, shape, steps)


def interpolations():
    rng = np.random.default_rng(0)
    for number in range(300):
        rank = rng.integers(1, 4)
        src, dst = rng.integers(1, (0, 90, 24, 9)[rank], (2, rank))
        channels = rng.choice([1, 2, 3, 5, 16, 17, 40])
        data_format, dtype = rng.choice(["NXC", "NCX"]), rng.choice(["f4", "f2", "f8"])
        shapes = [
            (2, *extents, channels) if data_format == "NXC" else (2, channels, *extents)
            for extents in (src, dst)
        ]
        shape = tuple(int(extent) for extent in shapes[0])
        dy = rng.standard_normal(shapes[1]).astype(dtype)
        keywords = {"mode": ("nearest", "linear")[number % 2], "data_format": str(data_format)}
        expected = gradops_cy.interpolate_backward(shape, dy, **keywords)
        for at_end in (False, True):
            print(shapes, dtype, keywords, at_end, file=sys.stderr, flush=True)
            out = guarded(np.zeros_like(expected), at_end)
            gradops_cy.interpolate_backward(
                shape, guarded(dy, at_end), **keywords, out=out, num_threads=1 + number % 3
            )
            assert out.tobytes() == expected.tobytes()


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
@pytest.mark.parametrize("battery", ["convolutions", "frames", "interpolations"])
@pytest.mark.parametrize("tier", gradops_cy.show_config("dicts")["kernels"]["supported"])
def test_nothing_beyond_an_array_is_touched(tier, battery):
    code = f"from tests import test_bounds; test_bounds.{battery}(); print('inside')"
    process = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "GRADOPS_ISA": tier},
        capture_output=True,
        text=True,
        check=False,
    )
    # The last case that was begun is the one that crashed.
    assert process.stdout == "inside\n", process.stderr[-2000:]
