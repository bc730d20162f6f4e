"""1-D problems whose lengths vary share plans, which are those of longer rows."""

from dataclasses import replace

import numpy as np
import pytest

from gradops_cy import _convolution_plan as plans
from gradops_cy._convolution_problem import FEWEST_OF_LENGTHS
from tests import forced
from tests.cases import every_dtype, sequence
from tests.test_convolution_plans import plan_of
from tests.tolerances import DTYPES

KERNELS = {
    "chosen": None,
    **{name: number for number, name in enumerate(forced.NAMES) if name != "depthwise"},
}
# Lengths that are shorter than their plans', by one position and by nearly all that there may be.
LENGTHS = (17, 39, 130, 159)
ROWS = {
    "padding": lambda y: sequence(20, 24, y, kernel=3, begin=1, end=1),
    "strides": lambda y: replace(sequence(3, 17, y, kernel=7, stride=3, begin=2), extra=(1,)),
    "dilation": lambda y: sequence(2, 8, y, kernel=5, dilation=3, begin=6, end=6),
    "without a kernel": lambda y: sequence(33, 16, y, kernel=1),
    "groups": lambda y: replace(sequence(4, 4, y, kernel=4, stride=2, begin=1, end=1), groups=9),
    "depthwise": lambda y: replace(sequence(1, 1, y, kernel=7, begin=3, end=3), groups=20),
    "transposed": lambda y: sequence(
        20, 8, 2 * y + 2, transposed=True, kernel=4, stride=2, begin=1
    ),
    "three images": lambda y: replace(sequence(16, 32, y, kernel=3, begin=2), batch=3),
}


@pytest.fixture(params=KERNELS.values(), ids=KERNELS)
def kernel(request, monkeypatch):
    """Let one kernel compute what it can, or the one that is chosen."""
    if request.param is None:
        yield from forced.other_plans()
    else:
        yield from forced.kernel_that_can(monkeypatch, request.param)


@every_dtype
@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.usefixtures("kernel")
def test_rows_are_shorter_than_the_plans(rows, data_format, dtype):
    for length in LENGTHS:
        case = replace(rows(length), data_format=data_format, dtype=dtype)
        for threads in (1, 3):
            case.check(num_threads=threads)
        case.check(accumulate=True)
        around = np.full(np.prod(case.shape) + 64, 7, DTYPES[dtype])
        case.call(*case.formatted(*case.arrays()), out=around[32:-32].reshape(case.shape))
        assert set(around[:32]) == set(around[-32:]) == {7}


@pytest.mark.parametrize("transposed", [False, True])
def test_lengths_share_a_plan(transposed):
    plans.plan_for.cache_clear()
    for length in range(129, 145):
        y = 2 * length if transposed else length
        case = sequence(8, 8, y, transposed=transposed, kernel=2, stride=2)
        case.call(*case.formatted(*case.arrays()))
    assert plans.plan_for.cache_info().misses == 1


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 100, 1000, 16001])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("stride", [1, 3])
def test_a_plan_is_not_much_longer(stride, transposed, length):
    y = stride * (length - 1) + 5 if transposed else length
    case = sequence(8, 8, y, transposed=transposed, kernel=5, stride=stride)
    problem = plan_of(case, case.formatted(*case.arrays())[1])._form.problem
    assert problem == problem.lengthened()
    positions = problem.diff_src[2] if transposed else problem.diff_dst[2]
    assert length <= positions <= max(length + 7, length * 9 // 8)
    assert positions == length or length >= FEWEST_OF_LENGTHS
