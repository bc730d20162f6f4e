"""Timing on a noisy machine: interleave, repeat, keep the minimum and the median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Timing:
    """Seconds of one call."""

    minimum: float
    median: float
    rounds: int


def once(work: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def interleave(
    works: dict[str, Callable[[], Any]], *, budget: float, least: int = 5
) -> dict[str, Timing]:
    """Run each in turn until the budget of seconds is spent, and at least `least` times.

    One that alone takes several budgets (a peer's reference code) is run only once.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    end = time.perf_counter() + budget
    rounds = 0
    while rounds < least or time.perf_counter() < end:
        for name, work in works.items():
            if seconds[name] and seconds[name][0] > 4 * budget:
                continue
            seconds[name].append(once(work))
        rounds += 1
    return {
        name: Timing(min(values), statistics.median(values), len(values))
        for name, values in seconds.items()
    }
