"""What plans know of the processor, for what was measured on such (docs/performance)."""

from __future__ import annotations

from gradops_cy import _cpu, _isa

_AMD_FAMILY = _cpu.processor_family_amd()

AMD: bool = _AMD_FAMILY > 0
# With their vectors of 64 bytes, of which Zen 4 multiplies the halves one after the other.
AMD_512: bool = AMD and _isa.TIER in ("v4", "v4bf16")
ZEN4: bool = AMD_512 and _AMD_FAMILY == 25
ZEN5: bool = AMD_512 and _AMD_FAMILY == 26

# Asked for once: a virtual machine takes 60 microseconds to answer.
_LARGEST_CACHE: int = _cpu.largest_cache_bytes()
# Bytes of a result from which on it may go past the caches.
_LARGE_RESULT = 1 << 23
# How many times as large as what is read for it.
_OUTGROWN = 4
# Bytes of both tensors that are found in cache by the next operator: as measured, an eighth of a
# cache that other cores share, and no less than this.
_HELD = max(1 << 23, _LARGEST_CACHE // 8)


def past_the_caches(result: int, both: int) -> bool:
    """Return whether no cache holds a result of so many bytes, and both tensors."""
    return result >= _LARGE_RESULT and both >= _HELD


def holds(both: int) -> bool:
    """Return whether the largest cache keeps a result of few products, and what these are of.

    Where measured, they reach it in half of the time that memory takes, and at that size as long.
    """
    return ZEN4 and both <= 0.55 * _LARGEST_CACHE


def outgrows(result: int, read: int) -> bool:
    """Return whether stores of a result take longest, of all that is read and written once.

    On Intel they wait for its lines even where the largest cache holds them.
    """
    return not AMD and result >= max(_LARGE_RESULT, _OUTGROWN * read)


def beyond_cache(read: int, share: float = 0.5) -> bool:
    """Return whether so many bytes are more than that share of the largest cache."""
    return read > max(_LARGE_RESULT, _LARGEST_CACHE * share)
