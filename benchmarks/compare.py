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

from benchmarks import calls, memory
from benchmarks.cases import Case
from benchmarks.ours import Ours
from benchmarks.providers import DTYPES, Array, Arrays, Provider, Work
from benchmarks.timing import Timing, interleave
from gradops_cy import _machine

LAYOUTS = ("NXC", "NCX")
OURS, PLAN = Ours(), Ours(planned=True)
CLIFF = 0.25


@dataclass
class Row:
    """One case in one dtype, layout and number of threads."""

    problem: str
    kind: str
    dtype: str
    layout: str
    threads: int
    ours: Timing
    # Calls of a reused plan, its weights packed beforehand; of convolutions only.
    plan: Timing | None = None
    # Seconds of the peers on the same arrays, and of each in its best layout.
    same: dict[str, float] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    rate: float = 0.0
    unit: str = ""
    share: float = 0.0
    # The rate that arithmetic and memory allow, and the operations for each byte that must move.
    roof: float = 0.0
    intensity: float = 0.0
    # Bytes beyond arguments and result, of one thread, and how many there may be.
    extra_bytes: int | None = None
    allowed_bytes: int | None = None

    def speedup(
        self, peer: str = "pytorch", *, any_layout: bool = False, plan: bool = False
    ) -> float | None:
        """Return how many times faster than a peer, where it was measured."""
        seconds = (self.best if any_layout else self.same).get(peer)
        ours = self.plan if plan else self.ours
        return seconds / ours.minimum if seconds and ours else None

    @property
    def of_roof(self) -> float:
        """Return the share of what the machine allows at most."""
        return self.rate / self.roof

    @property
    def cliff(self) -> bool:
        """Tell whether that is too little to be explained."""
        return self.of_roof < CLIFF


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


@dataclass(frozen=True)
class Settings:
    """What is the same for all rows of a run."""

    peers: dict[str, Provider]
    peaks: Peaks
    budget: float
    data: str = "normal"
    memory: bool = False


def check(case: Case, dtype: str, ours: Array, theirs: Array, peer: str) -> None:
    """Raise where two results differ by more than rounding explains.

    Each may err by an eps of the dtype at its one store (some peers sum halves in several stages:
    four), and by the summing of `reduction` float32 products of unit variance. Subnormal data pass
    however they are flushed: there the question is the speed.

    Halves are compared with a peer's float32 result of the same values: on processors without such
    arithmetic some peers sum float16 in float16, which errs by more.
    """
    eps = float(ml_dtypes.finfo(DTYPES[dtype]).eps)  # type: ignore[no-untyped-call]
    accumulator = float(np.finfo(np.float32).eps)
    allowed = 8 * eps * np.abs(theirs) + 16 * accumulator * case.reduction + 4 * eps
    error = np.abs(ours - theirs)
    if not (error <= allowed).all():
        worst = float((error / allowed).max())
        raise AssertionError(f"{case} {dtype}: differs from {peer} by {worst:.2g} of what may be")


def check_problem(case: Case, dtype: str, ours: Array, theirs: Array, peer: str) -> None:
    """Raise unless a peer computes the same problem, however it sums."""
    tiny = float(ml_dtypes.finfo(DTYPES[dtype]).smallest_normal)  # type: ignore[no-untyped-call]
    error, size = (float(np.linalg.norm(array)) for array in (ours - theirs, ours))
    if error > 0.05 * size + tiny * ours.size:
        raise AssertionError(f"{case} {dtype}: {peer} computes something else")


def run_case(case: Case, dtype: str, layout: str, threads: int, settings: Settings) -> Row:
    """Check and time one case against all peers."""
    arrays = Arrays.random(case, dtype, settings.data)
    works: dict[str, Work] = {}
    mine: Array | None = None

    def add(key: str, provider: Provider, layout: str) -> None:
        nonlocal mine
        work = provider.prepare(case, arrays, layout, threads)
        if work is None:
            return
        result = provider.result(work(), layout)
        mine = result.copy() if mine is None else mine
        half = provider not in (OURS, PLAN) and dtype != "f32"
        (check_problem if half else check)(case, dtype, mine, result, key)
        works[key] = work

    add("ours", OURS, layout)
    add("plan", PLAN, layout)
    for name, peer in settings.peers.items():
        for other in LAYOUTS:
            add(f"{name}|{other}", peer, other)
    if dtype != "f32" and settings.peers and mine is not None:
        name, peer = next(iter(settings.peers.items()))
        exact = peer.prepare(case, arrays.widened(), "NCX", threads)
        if exact is not None:
            check(case, dtype, mine, peer.result(exact(), "NCX"), f"{name} in f32")
    timings = interleave(works, budget=settings.budget)
    row = Row(str(case), case.kind, dtype, layout, threads, timings["ours"], timings.get("plan"))
    for key, timing in timings.items():
        name, bar, other = key.partition("|")
        if bar:
            row.best[name] = min(row.best.get(name, float("inf")), timing.minimum)
            if other == layout:
                row.same[name] = timing.minimum
    amount = size = case.elements * arrays.diff_dst.itemsize
    peak = row.roof = settings.peaks.get("copy", threads)
    row.unit = "GB/s"
    if case.kind != "resampling":
        amount, row.intensity, row.unit = case.flop, case.flop / size, "GFLOP/s"
        peak = settings.peaks.get(dtype, threads)
        row.roof = min(peak, row.intensity * row.roof)
        if settings.memory and threads == 1:
            row.extra_bytes, row.allowed_bytes = memory.extra(case, dtype, layout, settings.data)
    row.rate = amount / row.ours.minimum / 1e9
    row.share = row.rate / peak
    return row


def run(
    cases: Iterable[Case],
    dtypes: Iterable[str],
    layouts: Iterable[str],
    threads: Iterable[int],
    settings: Settings,
) -> Iterator[Row]:
    """Run the product of all choices."""
    for count in threads:
        for case in cases:
            for dtype in dtypes:
                for layout in layouts:
                    yield run_case(case, dtype, layout, count, settings)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive values."""
    logs = [log(value) for value in values]
    return exp(sum(logs) / len(logs)) if logs else float("nan")


def environment(cases: Iterable[Case], settings: Settings) -> dict[str, Any]:
    """Describe machine, versions and commit, and what a call costs."""
    versions = {}
    for package in ("torch", "onednn-cpu-gomp", "jax", "tensorflow", "gradops-cy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    compared = [OURS, *(peer for name, peer in settings.peers.items() if name == "pytorch")]
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
        "data": settings.data,
        "peaks": settings.peaks.table(),
        "call_overhead_us": calls.overhead(),
        "cold": calls.cold_table(cases, compared),
    }


def as_record(row: Row) -> dict[str, Any]:
    """Return a row as plain data."""
    return {
        **asdict(row),
        "of_roof": row.of_roof,
        "speedup": row.speedup(),
        "speedup_any": row.speedup(any_layout=True),
        "plan_speedup_onednn": row.speedup("onednn any", any_layout=True, plan=True),
    }
