"""Extents in whole units and in even pieces."""

from __future__ import annotations


def up(value: int, unit: int) -> int:
    """Return the multiple of `unit` that is not below `value`."""
    return -(-value // unit) * unit


def odd(value: int, unit: int) -> int:
    """Return the odd multiple of `unit` that is not below `value`, or one above.

    Rows an odd number of lines apart spread over the sets of the caches.
    """
    return (-(-value // unit) | 1) * unit


def even(extent: int, piece: int) -> int:
    """Return the piece that cuts `extent` evenly into as many as `piece` would."""
    return -(-extent // -(-extent // piece))
