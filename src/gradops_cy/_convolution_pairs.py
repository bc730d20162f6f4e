"""Rows of diff_dst two by two for DOT."""

from __future__ import annotations

from gradops_cy._rounding import odd


def pitch(entries: int) -> int:
    """Return the bytes from pair to pair of a window's segment."""
    return odd(entries * 4, 64)
