"""Timing on a noisy machine: take turns, repeat, keep the minimum and the median."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Seconds: before a turn counts, of a turn, and of a call that is not repeated.
SETTLE, TURN, LONG = 0.008, 0.02, 1.0


@dataclass(frozen=True)
class Timing:
    """Seconds of one call."""

    minimum: float
    median: float
    calls: int


def once(work: Callable[[], Any]) -> float:
    """Return the seconds of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def turn(work: Callable[[], Any]) -> list[float]:
    """Return the seconds of each call of one turn, after those of its start.

    The threads of the library before spin for some milliseconds before they go to sleep, and the
    caches hold what it has left there.
    """
    start = time.perf_counter()
    first = once(work)
    if first > LONG:
        return [first]
    while time.perf_counter() < start + SETTLE:
        work()
    end = time.perf_counter() + TURN
    seconds = [once(work)]
    while time.perf_counter() < end:
        seconds.append(once(work))
    return seconds


def interleave(
    works: dict[str, Callable[[], Any]], *, budget: float, least: int = 3
) -> dict[str, Timing]:
    """Take turns until the budget of seconds is spent, and at least `least` rounds.

    What takes long (a peer's reference code) is run only once.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    end = time.perf_counter() + budget
    rounds = 0
    while rounds < least or time.perf_counter() < end:
        for name, work in works.items():
            if seconds[name] and seconds[name][0] > LONG:
                continue
            seconds[name] += turn(work)
        rounds += 1
    return {
        name: Timing(min(values), statistics.median(values), len(values))
        for name, values in seconds.items()
    }
