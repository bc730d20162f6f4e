"""Which processors plans tell apart, for what was measured on them (docs/performance.md)."""

from __future__ import annotations

from gradops_cy import _cpu, _isa

_AMD_FAMILY = _cpu.processor_family_amd()

AMD: bool = _AMD_FAMILY > 0
# With its vectors of 64 bytes, which it multiplies in halves, one after the other.
ZEN4: bool = _AMD_FAMILY == 25 and _isa.TIER in ("v4", "v4bf16")
