"""Results depend neither on threads nor on how a batch is cut; concurrent and forked callers."""

import concurrent.futures
import itertools
import multiprocessing
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gradops_cy
from gradops_cy import _threads
from tests.cases import LAYERS, conv_case, conv_cases, every_dtype, every_format, layer, sequence
from tests.forced import assert_cuts_do_not_change_a_bit
from tests.tolerances import DTYPES

THREADS = (2, 3, 7)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", LAYERS)
@every_format
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_threads_do_not_change_a_bit(dtype, data_format, name):
    case = replace(LAYERS[name], dtype=dtype, data_format=data_format)
    arrays = case.formatted(*case.arrays())
    one = case.call(*arrays, num_threads=1)
    for threads in (*THREADS, 1):
        assert same_bits(case.call(*arrays, num_threads=threads), one)


@given(case=conv_cases(), batch=st.integers(1, 4), data=st.data())
def test_neither_threads_nor_batch_splits_change_a_bit(case, batch, data):
    case = replace(case, batch=batch)
    dy, weights = case.formatted(*case.arrays())
    whole = case.call(dy, weights, num_threads=1)
    for threads in THREADS:
        assert same_bits(case.call(dy, weights, num_threads=threads), whole)
    cuts = sorted(data.draw(st.sets(st.integers(1, batch - 1)))) if batch > 1 else []
    copied = data.draw(st.booleans())
    for begin, end in itertools.pairwise([0, *cuts, batch]):
        part = dy[begin:end].copy() if copied else dy[begin:end]
        result = replace(case, batch=end - begin).call(part, weights, num_threads=2)
        assert same_bits(result, whole[begin:end])


@every_dtype
@every_format
@pytest.mark.parametrize(("groups", "inputs"), [(1, 40), (1, 3), (33, 1), (8, 4), (2, 16)])
def test_batch_splits_do_not_change_a_bit(groups, inputs, data_format, dtype):
    case = layer(
        f"{inputs}-{inputs}-28-3-1-1",
        groups=groups,
        batch=5,
        data_format=data_format,
        dtype=dtype,
    )
    dy, weights = case.formatted(*case.arrays())
    whole = case.call(dy, weights)
    for cuts in ([0, 1, 2, 3, 4, 5], [0, 2, 5], [0, 4, 5]):
        parts = [
            replace(case, batch=b - a).call(dy[a:b], weights) for a, b in itertools.pairwise(cuts)
        ]
        assert same_bits(np.concatenate(parts), whole)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@every_format
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ["80-64-20-3-1-1", "48-64-13-2-2-0"])
def test_cuts_do_not_change_a_bit(monkeypatch, name, groups, data_format, dtype):
    """Also where tasks share the window that the one before them has filled."""
    case = layer(name, groups=groups, batch=2, data_format=data_format, dtype=dtype)
    assert_cuts_do_not_change_a_bit(monkeypatch, case)


def test_more_threads_than_ranges_of_tasks(monkeypatch):
    """A team larger than TASK_RANGES of tasks.h; what there is to do is done once."""
    monkeypatch.setattr(_threads, "MAX_THREADS", 150)
    case = layer("16-16-40-3-1-1", batch=150)
    arrays = case.formatted(*case.arrays())
    result = np.zeros_like(case.call(*arrays))
    case.call(*arrays, num_threads=150, out=result, accumulate=True)
    assert same_bits(result, case.call(*arrays, num_threads=1, out=0 * result, accumulate=True))
    dy = np.ones((150, 40, 40, 3), np.float32)
    resized = [
        gradops_cy.interpolate_backward((150, 20, 20, 3), dy, mode="linear", num_threads=threads)
        for threads in (1, 150)
    ]
    assert same_bits(*resized)


@given(data=st.data())
def test_interpolation(data):
    """Neither threads nor batch splits, over all kernels."""
    rank = data.draw(st.integers(1, 3))
    extents = st.tuples(*[st.integers(1, {1: 3000, 2: 70, 3: 16}[rank])] * rank)
    src, dst = data.draw(extents), data.draw(extents)
    channels = data.draw(st.sampled_from([1, 2, 5, 8, 16, 17, 64]))
    batch = data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from(list(DTYPES)))
    keywords = {
        "mode": data.draw(st.sampled_from(["nearest", "linear"])),
        "data_format": data.draw(st.sampled_from(["NXC", "NCX"])),
    }
    last = keywords["data_format"] == "NXC"

    def shape(n, spatial):
        return (n, *spatial, channels) if last else (n, channels, *spatial)

    rng = np.random.default_rng(0)
    dy = rng.standard_normal(shape(batch, dst), np.float32).astype(DTYPES[dtype])
    one = gradops_cy.interpolate_backward(shape(batch, src), dy, **keywords, num_threads=1)
    for threads in THREADS:
        result = gradops_cy.interpolate_backward(
            shape(batch, src), dy, **keywords, num_threads=threads
        )
        assert same_bits(result, one)
    cut = data.draw(st.integers(0, batch))
    for begin, end in ((0, cut), (cut, batch)):
        result = gradops_cy.interpolate_backward(
            shape(end - begin, src), dy[begin:end].copy(), **keywords
        )
        assert same_bits(result, one[begin:end])


@pytest.mark.parametrize("case", [conv_case(seed) for seed in range(20)], ids=str)
def test_every_run_gives_the_same_bits(case):
    """Also into memory that holds something else."""
    arrays = case.formatted(*case.arrays())
    first = case.call(*arrays)
    for fill in (np.nan, -1):
        out = np.full_like(first, fill)
        assert same_bits(case.call(*arrays, out=out), first)


def test_concurrent_callers():
    cases = [conv_case(seed) for seed in range(24)]
    expected = [case.call(*case.formatted(*case.arrays())) for case in cases]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            results = pool.map(
                lambda case: case.call(*case.formatted(*case.arrays()), num_threads=2), cases
            )
            for result, exact in zip(results, expected, strict=True):
                assert result.tobytes() == exact.tobytes()


def _in_child(queue):
    case = LAYERS["resnet 3x3"]
    queue.put(case.call(*case.formatted(*case.arrays())).tobytes())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_processes_do_not_hang(method):
    case = LAYERS["resnet 3x3"]
    expected = case.call(*case.formatted(*case.arrays()), num_threads=2)
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == expected.tobytes()
    child.join(timeout=60)
    assert child.exitcode == 0


def test_the_setting():
    before = gradops_cy.get_num_threads()
    try:
        gradops_cy.set_num_threads(3)
        assert gradops_cy.get_num_threads() == 3
        for bad, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)):
            with pytest.raises(error, match="set_num_threads: num_threads must be a positive"):
                gradops_cy.set_num_threads(bad)
        assert gradops_cy.get_num_threads() == 3
        gradops_cy.set_num_threads(10**9)
        assert gradops_cy.get_num_threads() < 10**6
    finally:
        gradops_cy.set_num_threads(before)


@pytest.mark.parametrize("value", [1, 2, 5])
def test_the_environment_variable(value):
    code = "import gradops_cy; print(gradops_cy.get_num_threads())"
    for name in ("GRADOPS_NUM_THREADS", "OMP_NUM_THREADS"):
        environment = {"PATH": "", name: str(value)}
        output = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        ).stdout
        assert int(output) == value


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (-3, ValueError), (2.0, TypeError), ("2", TypeError)]
)
def test_bad_num_threads(value, error):
    dy, w = np.ones((1, 4, 2), np.float32), np.ones((1, 2, 2), np.float32)
    with pytest.raises(error, match="convolution_backward_data: num_threads must be a positive"):
        gradops_cy.convolution_backward_data(
            dy, w, strides=1, pads_begin=0, pads_end=0, dilations=1, num_threads=value
        )
    with pytest.raises(error, match="interpolate_backward: num_threads must be a positive"):
        gradops_cy.interpolate_backward((1, 2, 2), dy, mode="linear", num_threads=value)


@pytest.mark.parametrize("width", [300, 500, 700])
@pytest.mark.parametrize("outputs", [200, 256, 384])
def test_a_task_that_packs_its_weights_sums_in_the_same_order(width, outputs):
    case = replace(sequence(64, outputs, width, kernel=5, begin=2, end=2), dtype="f16", batch=2)
    dy, weights = case.formatted(*case.arrays())
    both = case.call(dy, weights, num_threads=1)
    single = replace(case, batch=1).call(dy[:1], weights, num_threads=1)
    assert single.tobytes() == both[:1].tobytes()


@pytest.mark.parametrize("bad", [False, True])
@every_dtype
@every_format
@pytest.mark.parametrize(
    "shape",
    [
        sequence(1, 131, 21, kernel=512, stride=128, begin=9, end=70),
        sequence(2, 70, 40, kernel=300, stride=100),
        layer("3-64-6-16-16-0"),
    ],
    ids=str,
)
def test_threads_share_the_only_product(shape, data_format, dtype, bad):
    """Of few positions; the weights are packed by those who use them, or before."""
    case = replace(shape, dtype=dtype, data_format=data_format)
    dy, weights = case.formatted(*case.arrays())
    if bad:
        weights[(0,) * weights.ndim] = np.nan
    one = case.call(dy, weights, num_threads=1)
    plan = gradops_cy.convolution_backward_data_plan
    for threads in THREADS:
        assert same_bits(case.call(dy, weights, num_threads=threads), one)
    case.check()
    planned = plan(
        dy.shape,
        weights,
        dst_shape=case.shape,
        **case.geometry,
        pads_end=case.pads_end,
        data_format=data_format,
        weights_format=case.weights_format,
        num_threads=2,
    )
    assert same_bits(planned(dy), one)
    if "scatter" in planned.describe():
        assert "threads   2" in planned.describe()
