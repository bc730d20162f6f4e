"""What a call costs beyond the work: the overhead of small ones, and that of the first."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

from benchmarks.cases import Case, parse
from benchmarks.ours import Ours
from benchmarks.providers import Arrays, Provider
from benchmarks.timing import interleave, once

# Lengths that vary from call to call: speech is synthesised so.
COLD = ("istft_synthesis", "hifigan_up8_synthesis")
_LENGTHS = 7


def overhead() -> dict[str, float]:
    """Return the microseconds of a call on a problem of 1x8x8x8: the operator's and a plan's."""
    case = parse("conv", "mb1ic8ih8oc8kh1")
    arrays = Arrays.random(case, "f32")
    works = {}
    for name, provider in (("operator", Ours()), ("plan", Ours(planned=True))):
        work = provider.prepare(case, arrays, "NXC", 1)
        assert work is not None
        works[name] = work
    timings = interleave(works, budget=0.4)
    return {name: timing.minimum * 1e6 for name, timing in timings.items()}


def cold(case: Case, provider: Provider, layout: str = "NCX") -> float:
    """Return the time of the first call for a new length over that of a warm one, in f32.

    The median of several lengths of a 1-D convolution, all with the same weights, as a layer has
    them; each comes after calls for the length before.
    """
    arrays = Arrays.random(case, "f32")
    works = []
    for more in range(_LENGTHS + 1):
        longer = replace(
            case, src=(case.src[0] + more * case.strides[0],), dst=(case.dst[0] + more,)
        )
        diff_dst = Arrays.random(longer, "f32").diff_dst
        work = provider.prepare(longer, replace(arrays, diff_dst=diff_dst), layout, 1)
        assert work is not None
        works.append(work)
    ratios = []
    for before, work in pairwise(works):
        before()
        first = once(work)
        ratios.append(first / min(once(work) for _ in range(5)))
    return statistics.median(ratios)


def cold_table(cases: Iterable[Case], providers: Iterable[Provider]) -> dict[str, dict[str, float]]:
    """Return the ratios of those cases whose lengths vary, by case and provider."""
    providers = list(providers)
    return {
        case.name: {provider.name: cold(case, provider) for provider in providers}
        for case in cases
        if case.name in COLD
    }
