"""Every kernel that can compute a problem computes it, whatever times and scores say."""

from dataclasses import replace

import pytest

from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_times as times
from tests import forced
from tests.cases import LAYERS, conv_case, every_dtype
from tests.test_convolution_plans import plan_of

NAMES = [*kernels.KERNEL_NAMES, "unfold"]
SOME = ("rows", "columns", "grouped", "scatter", "dot", "pairs", "unfold")
every_kernel = pytest.mark.parametrize("kernel", [NAMES.index(name) for name in SOME], ids=SOME)


@pytest.fixture
def only(kernel, monkeypatch):
    """Let one kernel compute what it can."""
    yield from forced.kernel_that_can(monkeypatch, kernel)


@every_dtype
@every_kernel
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("only")
def test_kernels_compute_drawn_cases(seed, dtype):
    case = conv_case(seed, dtype=dtype)
    case.check()
    replace(case, data_format="NCX" if case.data_format == "NXC" else "NXC").check()


@every_kernel
@pytest.mark.parametrize("threads", [2, 5])
@pytest.mark.usefixtures("only")
def test_kernels_compute_drawn_cases_with_threads(threads):
    for seed in range(40):
        conv_case(seed, dtype="f32").check(num_threads=threads)


class Asked(dict):
    """A dictionary that remembers what it was asked for."""

    def __init__(self, values):
        super().__init__(values)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


def _asked(monkeypatch, name, dtypes):
    """Return by kernel what is asked of a table when cases are planned, and what the table has."""
    costs = {kernel: Asked(each) for kernel, each in getattr(times, name).items()}
    monkeypatch.setattr(times, name, costs)
    for case in [*LAYERS.values(), *map(conv_case, range(300))]:
        for dtype in dtypes:
            changed = replace(case, dtype=dtype)
            plan_of(changed, changed.formatted(*changed.arrays())[1]).describe()
    return (
        {NAMES[kernel]: each.names for kernel, each in costs.items()},
        {NAMES[kernel]: set(each) for kernel, each in costs.items()},
    )


TILES = kernels.tiles_of(False)


@pytest.mark.skipif(TILES.amx, reason="float32 and float16 are parts there")
def test_every_cost_is_counted(monkeypatch):
    asked, known = _asked(monkeypatch, "_NANOSECONDS", ("f32", "f16"))
    assert asked == known


@pytest.mark.skipif(not TILES.vector_pairs, reason="no vectors multiply pairs")
def test_every_cost_of_pairs_is_counted(monkeypatch):
    asked, known = _asked(monkeypatch, "_NANOSECONDS_OF_PAIRS", ("bf16",))
    # Pairs of channels of a vector alone: halves of 64 bytes have such groups.
    asked["grouped"] |= {"products of a vector", "spread to a vector"}
    assert asked == known
