"""Results depend neither on threads nor on how a batch is cut; concurrent and forked callers."""

import concurrent.futures
import itertools
import multiprocessing
import subprocess
import sys

import numpy as np
import pytest

import gradops_cy
from tests.cases import conv_case
from tests.test_convolution import LAYERS, layer
from tests.tolerances import DTYPES

CASES = [conv_case(seed) for seed in range(40)] + list(LAYERS.values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_threads_do_not_change_a_bit(case):
    arrays = case.formatted(*case.arrays())
    one = case.call(*arrays, num_threads=1)
    for threads in (2, 3, 7):
        assert case.call(*arrays, num_threads=threads).tobytes() == one.tobytes()
    assert case.call(*arrays, num_threads=1).tobytes() == one.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize(("groups", "inputs"), [(1, 40), (1, 3), (33, 1), (8, 4)])
def test_batch_splits_do_not_change_a_bit(groups, inputs, data_format, dtype):
    case = layer(
        f"{inputs}-{inputs}-9-3-1-1",
        groups=groups,
        batch=5,
        data_format=data_format,
        dtype=dtype,
    )
    dy, weights = case.formatted(*case.arrays())
    whole = case.call(dy, weights)
    for cuts in ([0, 1, 2, 3, 4, 5], [0, 2, 5], [0, 4, 5]):
        parts = [
            case.call(dy[a:b], weights, dst_shape=(b - a, *whole.shape[1:]))
            for a, b in itertools.pairwise(cuts)
        ]
        assert np.concatenate(parts).tobytes() == whole.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("channels", [1, 5, 64])
def test_interpolation(channels, mode, data_format, dtype):
    rng = np.random.default_rng(0)
    shape = (4, channels, 37, 70) if data_format == "NCX" else (4, 37, 70, channels)
    result_shape = (4, channels, 20, 41) if data_format == "NCX" else (4, 20, 41, channels)
    dy = rng.standard_normal(shape).astype(DTYPES[dtype])
    keywords = {"mode": mode, "data_format": data_format}
    one = gradops_cy.interpolate_backward(result_shape, dy, **keywords, num_threads=1)
    for threads in (2, 3, 7):
        result = gradops_cy.interpolate_backward(result_shape, dy, **keywords, num_threads=threads)
        assert result.tobytes() == one.tobytes()
    parts = [
        gradops_cy.interpolate_backward((n, *result_shape[1:]), dy[a : a + n], **keywords)
        for a, n in ((0, 1), (1, 3))
    ]
    assert np.concatenate(parts).tobytes() == one.tobytes()


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
