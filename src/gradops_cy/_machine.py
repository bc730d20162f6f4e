"""What this machine can do at most, measured: the yardstick of every share of peak.

Each probe runs for about a tenth of a second and reports the best of its repeats.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gradops_cy import _cpu, _isa
from gradops_cy._arrays import aligned_bytes

_COPY_BYTES = 1 << 28
_REPEATS = 12


def _best_rate(run: Callable[[], float]) -> float:
    """Return the highest amount per second over a few runs."""
    best = 0.0
    for _ in range(_REPEATS):
        start = time.perf_counter()
        amount = run()
        best = max(best, amount / (time.perf_counter() - start))
    return best


def peak_gflops(dtype: str, num_threads: int) -> float:
    """Return the measured arithmetic peak in GFLOP/s.

    `dtype` is the tensors' (``f32``, ``f16``, ``bf16``, ``f64``): f16 computes in float32, and so
    does bf16 on tiers that multiply no pairs of it.
    """
    module = _isa.kernels("convolution")
    if dtype == "bf16" and _isa.MULTIPLIES_BF16:
        return _best_rate(lambda: module.probe_dot(200_000, num_threads)) / 1e9
    return _best_rate(lambda: module.probe_fma(1_000_000, num_threads, dtype == "f64")) / 1e9


def copy_bandwidth(num_threads: int) -> float:
    """Return the measured bandwidth of a copy beyond the caches, read plus written, in GB/s."""
    module = _isa.kernels("convolution")
    src, dst = aligned_bytes(_COPY_BYTES), aligned_bytes(_COPY_BYTES)
    src[:] = dst[:] = 1
    return _best_rate(lambda: 2.0 * module.probe_copy(src, dst, num_threads)) / 1e9


def processor_name() -> str:
    """Return the processor's marketing name where the system tells it."""
    path = Path("/proc/cpuinfo")
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def description() -> dict[str, str | int]:
    """Return what a reader of a benchmark table must know of the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "processor": processor_name(),
        "cpus": len(affinity(0)) if affinity else os.cpu_count() or 1,
        "system": f"{platform.system()} {platform.release()}",
        "tier": _isa.TIER,
        "compiler": _cpu.compiler(),
        "openmp": _cpu.openmp_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
