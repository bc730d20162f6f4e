"""Estimated times: each thing that a kernel does has a cost, and each cost is of something."""

from dataclasses import replace

import pytest

from gradops_cy import _convolution_counts, _convolution_grouped
from gradops_cy import _convolution_fastest as fastest
from gradops_cy import _convolution_kernels as kernels
from gradops_cy import _convolution_times as times
from gradops_cy._convolution_counts import COUNTS, Work
from gradops_cy._convolution_tile_counts import TILE_COUNTS
from gradops_cy._convolution_tile_times import TILE_NANOSECONDS
from tests.cases import LAYERS, conv_case, layer
from tests.forced import NAMES
from tests.test_convolution_plans import plan_of


class Asked(dict):
    """A dictionary that remembers what it was asked for."""

    def __init__(self, values):
        super().__init__(values)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)


def _asked(monkeypatch, dtypes, *names):
    """Return by kernel what is asked of a table when cases are planned, and what the table has.

    Of the table, or of the same for Zen 4.
    """
    known = getattr(times, names[0])
    costs = {kernel: Asked(each) for kernel, each in known.items()}
    for name in names:
        for kernel, each in getattr(times, name).items():
            assert each.keys() == known[kernel].keys()
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
    asked, known = _asked(monkeypatch, ("f32", "f16"), "_NANOSECONDS", "_ON_ZEN4")
    assert asked == known


@pytest.mark.skipif(not TILES.vector_pairs, reason="no vectors multiply pairs")
def test_every_cost_of_pairs_is_counted(monkeypatch):
    names = "_NANOSECONDS_OF_PAIRS", "_ON_ZEN4_OF_PAIRS"
    asked, known = _asked(monkeypatch, ("bf16",), *names)
    # Pairs of channels of a vector alone: halves of 64 bytes have such groups.
    asked["grouped"] |= {"weights of vectors", "products of a vector", "entries"}
    asked["grouped"] |= {"rows of taps", "taps of rows"}
    assert asked == known


# Tiles of a processor with AMX, on whatever machine.
AMX = TILES._replace(lanes=16, bf16_rate=16)
LAYOUTS = [
    kernels.Layout(source, result, not source, not result, source, result, 0, False)
    for source in (False, True)
    for result in (False, True)
]


@pytest.mark.parametrize(
    ("parts", "dtypes"), [(0, ("f32", "f16")), (1, ("bf16",)), (2, ("f16",)), (3, ("f32",))]
)
def test_every_cost_with_amx_is_counted(monkeypatch, parts, dtypes):
    counted = {kernel: set() for kernel in TILE_NANOSECONDS[parts]}
    # Pixels of a few channels, which are read where they lie.
    cases = [*LAYERS.values(), layer("2-32-80-2-2-0"), *map(conv_case, range(300))]
    cases = [replace(case, dtype=dtype) for dtype in dtypes for case in cases]
    problems = [plan_of(case, case.formatted(*case.arrays())[1])._form.problem for case in cases]
    for module, name in ((_convolution_grouped, "AMD"), (_convolution_counts, "ZEN4")):
        monkeypatch.setattr(module, name, False)
    for problem in problems:
        for layout in LAYOUTS:
            given = fastest.Case(problem, layout, AMX, kernels.MODERATE, parts)
            counts = TILE_COUNTS if parts else COUNTS
            for kernel in set(fastest.kernels_that_can(given)) - {kernels.DEPTHWISE}:
                counted[kernel] |= counts[kernel](Work(*given)).keys()
    for kernel, costs in TILE_NANOSECONDS[parts].items():
        assert counted[kernel] == costs.keys(), NAMES[kernel]
