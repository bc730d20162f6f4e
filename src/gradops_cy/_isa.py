"""Which compiled kernel set this process runs: chosen once, at import.

The tiers are ``v2``, ``v3`` and ``v4`` (the x86-64 psABI levels), ``v4bf16`` (with AVX512-BF16)
and ``amx`` (with AMX-TILE and AMX-BF16, too); other architectures have the one tier ``generic``.
The environment variable ``GRADOPS_ISA`` forces one. A supported tier that fails to import raises:
there is no silent fall to a slower one.
"""

from __future__ import annotations

import importlib
import os
import platform
from types import ModuleType

from gradops_cy import _cpu

X86_TIERS = ("v2", "v3", "v4", "v4bf16", "amx")
_LEVELS = {2: 1, 3: 2, 4: 3, 5: 4, 6: 5}


def supported_tiers() -> tuple[str, ...]:
    """Return the tiers that this processor and operating system can run, lowest first."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return ("generic",)
    return X86_TIERS[: _LEVELS.get(_cpu.processor_level(), 0)]


def _choose() -> str:
    supported = supported_tiers()
    if not supported:
        raise ImportError(
            "gradops_cy: this processor is below x86-64-v2 (SSE4.2 and POPCNT), which the lowest "
            "kernel set needs"
        )
    forced = os.environ.get("GRADOPS_ISA", "").strip().lower()
    if not forced:
        return supported[-1]
    if forced not in supported:
        raise ImportError(
            f"gradops_cy: GRADOPS_ISA must be one of {', '.join(supported)} on this machine, "
            f"got {forced!r}"
        )
    return forced


TIER: str = _choose()
# Whether pairs of bfloat16 are multiplied as such, which may flush subnormal factors.
MULTIPLIES_BF16: bool = TIER in ("v4bf16", "amx")


def kernels(family: str) -> ModuleType:
    """Import the kernel module of a family (``convolution`` or ``resampling``) for the tier."""
    return importlib.import_module(f"gradops_cy.kernels.{family}_{TIER}")
