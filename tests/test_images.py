"""Short images without a kernel: tiles have positions of many of them, as if they were one row."""

from dataclasses import replace

import pytest

from tests.cases import every_dtype, every_format, layer, sequence
from tests.test_convolution_plans import check_call, plan_of
from tests.test_threads import same_bits

IMAGES = {
    "linear": layer("40-66-1-1-1-0", batch=37),
    "linear groups": layer("40-64-1-1-1-0", batch=19, groups=2),
    "linear 1-D": sequence(24, 33, 1, kernel=1),
    "maps": layer("33-130-7-1-1-0", batch=9),
    "rows": layer("16-96-1-1-1-0", dst=(1, 5), batch=11),
    "columns": layer("48-32-1-1-1-0", dst=(5, 1), batch=11),
    "1-D": sequence(20, 48, 5, kernel=1),
    "longer 1-D": sequence(20, 48, 19, kernel=1),
    "heavy": layer("600-700-1-1-1-0", batch=150),
    "transposed": layer("20-72-3-1-1-0", transposed=True, batch=12),
}
every_case = pytest.mark.parametrize("name", IMAGES)


def case_of(name, dtype, data_format):
    case = replace(IMAGES[name], dtype=dtype, data_format=data_format)
    return replace(case, batch=23) if case.batch == 1 else case


@every_case
@every_dtype
@every_format
def test_values(data_format, dtype, name):
    """The right ones for all strides, results and plans."""
    case = case_of(name, dtype, data_format)
    case.check_views()
    dy, weights = case.formatted(*case.arrays())
    check_call(case, plan_of(case, weights), dy, weights)


@every_case
@every_dtype
@every_format
def test_an_image_has_the_same_bits_in_any_batch(data_format, dtype, name):
    case = case_of(name, dtype, data_format)
    dy, weights = case.formatted(*case.arrays())
    whole = case.call(dy, weights, num_threads=1)
    assert same_bits(case.call(dy, weights, num_threads=3), whole)
    for begin, end in ((0, 1), (2, 5), (1, case.batch)):
        part = replace(case, batch=end - begin)
        assert same_bits(part.call(dy[begin:end], weights), whole[begin:end])
    apart = dy[::2]
    assert same_bits(replace(case, batch=len(apart)).call(apart, weights), whole[::2])
