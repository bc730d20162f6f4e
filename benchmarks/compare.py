"""The comparison: every case checked against the peers, then timed with them."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.cases import Case
from benchmarks.providers import DTYPES, Array, Arrays, Ours, Provider, Work
from benchmarks.timing import Timing, interleave
from gradops_cy import _machine

LAYOUTS = ("NXC", "NCX")
OURS = Ours()


@dataclass
class Row:
    """One case in one dtype, layout and number of threads."""

    problem: str
    kind: str
    dtype: str
    layout: str
    threads: int
    ours: Timing
    # Seconds of the peers on the same arrays, and of each in its best layout.
    same: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    rate: float = 0.0
    unit: str = ""
    share: float = 0.0

    def speedup(self, peer: str = "pytorch", *, any_layout: bool = False) -> float | None:
        """Return how many times faster than a peer, where it was measured."""
        seconds = (self.best if any_layout else self.same).get(peer)
        return seconds / self.ours.minimum if seconds else None


class Peaks:
    """The machine's limits, measured once in this run."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], float] = {}

    def get(self, what: str, threads: int) -> float:
        """Return GFLOP/s of a dtype, or GB/s of ``copy``."""
        key = (what, threads)
        if key not in self._known:
            self._known[key] = (
                _machine.copy_bandwidth(threads)
                if what == "copy"
                else _machine.peak_gflops(what, threads)
            )
        return self._known[key]

    def table(self) -> dict[str, float]:
        """Return all that were measured."""
        return {f"{what} {threads}": value for (what, threads), value in self._known.items()}


def check(case: Case, dtype: str, ours: Array, theirs: Array, peer: str) -> None:
    """Raise where two results differ by more than rounding explains.

    Each may err by an eps of the dtype at its one store (some peers sum halves in several stages:
    four), and by the summing of `reduction` float32 products of unit variance.
    """
    eps = float(ml_dtypes.finfo(DTYPES[dtype]).eps)  # type: ignore[no-untyped-call]
    accumulator = float(np.finfo(np.float32).eps)
    allowed = 8 * eps * np.abs(theirs) + 16 * accumulator * case.reduction + 4 * eps
    error = np.abs(ours - theirs)
    if not (error <= allowed).all():
        worst = float((error / allowed).max())
        raise AssertionError(f"{case} {dtype}: differs from {peer} by {worst:.2g} of what may be")


def run_case(
    case: Case,
    dtype: str,
    layout: str,
    threads: int,
    peers: dict[str, Provider],
    peaks: Peaks,
    budget: float,
) -> Row:
    """Check and time one case against all peers."""
    arrays = Arrays.random(case, dtype)
    own = OURS.prepare(case, arrays, layout, threads)
    assert own is not None
    works: dict[str, Work] = {"ours": own}
    mine = OURS.result(own(), layout)
    for name, peer in peers.items():
        for other in LAYOUTS:
            work = peer.prepare(case, arrays, other, threads)
            if work is None:
                continue
            theirs = peer.result(work(), other)
            check(case, dtype, mine, theirs, name)
            works[f"{name}|{other}"] = work
    timings = interleave(works, budget=budget)
    row = Row(str(case), case.kind, dtype, layout, threads, timings["ours"])
    for key, timing in timings.items():
        name, bar, other = key.partition("|")
        if bar:
            row.best[name] = min(row.best.get(name, float("inf")), timing.minimum)
            if other == layout:
                row.same[name] = timing.minimum
    if case.kind == "resampling":
        amount, what, row.unit = case.elements() * arrays.diff_dst.itemsize, "copy", "GB/s"
    else:
        amount, what, row.unit = case.flop, dtype, "GFLOP/s"
    row.rate = amount / row.ours.minimum / 1e9
    row.share = row.rate / peaks.get(what, threads)
    return row


def run(
    cases: Iterable[Case],
    dtypes: Iterable[str],
    layouts: Iterable[str],
    threads: Iterable[int],
    peers: dict[str, Provider],
    peaks: Peaks,
    budget: float,
) -> Iterator[Row]:
    """Run the product of all choices."""
    for count in threads:
        for case in cases:
            for dtype in dtypes:
                for layout in layouts:
                    yield run_case(case, dtype, layout, count, peers, peaks, budget)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values."""
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs)) if logs else float("nan")


def call_overhead() -> float:
    """Return the microseconds of a call on a problem of 1x8x8x8."""
    case = Case("conv", 1, 8, (8, 8), (8, 8), 8, 1, (1, 1), (1, 1), (1, 1), (0, 0))
    work = OURS.prepare(case, Arrays.random(case, "f32"), "NXC", 1)
    assert work is not None
    return interleave({"ours": work}, budget=0.2, least=100)["ours"].minimum * 1e6


def environment(peaks: Peaks) -> dict[str, Any]:
    """Describe machine, versions and commit."""
    versions = {}
    for package in ("torch", "onednn-cpu-gomp", "jax", "tensorflow", "gradops-cy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "machine": _machine.description(),
        "versions": versions,
        "commit": commit,
        "peaks": peaks.table(),
        "call_overhead_us": call_overhead(),
    }


def as_record(row: Row) -> dict[str, Any]:
    """Return a row as plain data."""
    return {**asdict(row), "speedup": row.speedup(), "speedup_any": row.speedup(any_layout=True)}
