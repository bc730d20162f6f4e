"""Reading and checking attribute values: every function returns a plain value or raises.

The messages have one form: ``op: argument must be <required>, got <found>``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

INT64_MAX = 2**63 - 1
# Attributes far beyond any real tensor would overflow 64-bit index arithmetic.
ATTRIBUTE_MAX = 2**40


def found(value: object) -> str:
    """Describe a value in at most a line."""
    if isinstance(value, int) and abs(value) > INT64_MAX:
        return "an integer beyond 64 bits"
    text = " ".join(repr(value).split())
    if not isinstance(value, str):
        text = f"{type(value).__name__} {text}"
    return text if len(text) <= 120 else text[:117] + "..."


def shown(value: int) -> str:
    """Return an integer's digits where they are few."""
    return str(value) if abs(value) <= INT64_MAX else found(value)


def as_integer(value: object) -> int | None:
    """Return the int that a value is, or None; a bool is none."""
    if type(value) is int:
        return value
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def integer(op: str, name: str, value: object, *, minimum: int) -> int:
    """Return `value` as an int of at least `minimum`."""
    result = as_integer(value)
    if result is None:
        raise TypeError(f"{op}: {name} must be an integer, got {found(value)}")
    if not minimum <= result <= ATTRIBUTE_MAX:
        raise ValueError(f"{op}: {name} must be in [{minimum}, 2**40], got {shown(result)}")
    return result


def items(op: str, name: str, value: object, what: str) -> list[object]:
    """Return the elements of a sequence or 1-D array."""
    if isinstance(value, (list, tuple)):  # as nearly all are, and Sequence is asked slowly
        return list(value)
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise ValueError(
                f"{op}: {name} must be one-dimensional, got an array of shape {value.shape}"
            )
        return list(value)
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"{op}: {name} must be {what}, got {found(value)}")
    return list(value)


def integers(op: str, name: str, value: object, length: int, *, minimum: int) -> tuple[int, ...]:
    """Return `value`, an integer for all axes or a list of `length` integers, as a tuple."""
    single = as_integer(value)
    if single is not None:
        return (integer(op, name, single, minimum=minimum),) * length
    values = items(op, name, value, "an integer or a list of integers")
    if len(values) != length:
        raise ValueError(
            f"{op}: {name} must have {length} elements, one per spatial axis, got {len(values)}"
        )
    return _each(op, name, values, minimum=minimum)


def _each(op: str, name: str, values: list[object], *, minimum: int) -> tuple[int, ...]:
    return tuple(
        element
        if type(element) is int and minimum <= element <= ATTRIBUTE_MAX
        else integer(op, f"{name}[{i}]", element, minimum=minimum)
        for i, element in enumerate(values)
    )


def shape(op: str, name: str, value: object) -> tuple[int, ...]:
    """Return `value`, a list or 1-D array of integers, as a tuple of non-negative extents."""
    values = items(op, name, value, "a list or 1-D array of integers")
    return _each(op, name, values, minimum=0)


def key(values: tuple[object, ...]) -> tuple[object, ...] | None:
    """Return attributes as a key that no others share, or None for unusual ones.

    Equality alone would take True or 1.0 for 1, so that only None, str, int and lists of int make
    keys, by their exact types. Lists become tuples: no check tells them apart.
    """
    lists = False
    for value in values:
        kind = type(value)
        if kind is int or kind is str or value is None:
            continue
        if kind is not tuple and kind is not list:
            return None
        for element in value:  # type: ignore[attr-defined]
            if type(element) is not int:
                return None
        lists = lists or kind is list
    if not lists:
        return values
    return tuple([tuple(value) if type(value) is list else value for value in values])


def floats(op: str, name: str, value: object, length: int, *, minimum: float) -> tuple[float, ...]:
    """Return `value`, a list of `length` finite floats (or one for all axes), as a tuple.

    Elements must exceed `minimum`.
    """
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        values: list[object] = [value] * length
    else:
        values = items(op, name, value, "a number or a list of numbers")
    if len(values) != length:
        raise ValueError(
            f"{op}: {name} must have {length} elements, one per spatial axis, got {len(values)}"
        )
    result = []
    for i, element in enumerate(values):
        if isinstance(element, (bool, np.bool_)) or not isinstance(
            element, (int, float, np.integer, np.floating)
        ):
            raise TypeError(f"{op}: {name}[{i}] must be a number, got {found(element)}")
        try:
            number = float(element)
        except OverflowError:  # an int beyond the floats
            number = math.inf
        if not (math.isfinite(number) and number > minimum):
            raise ValueError(
                f"{op}: {name}[{i}] must be finite and greater than {minimum:g}, got {number}"
            )
        result.append(number)
    return tuple(result)


def choice(op: str, name: str, value: object, allowed: Sequence[str]) -> str:
    """Return the one of `allowed` that `value` names in any case."""
    if not isinstance(value, str):
        raise TypeError(f"{op}: {name} must be one of {', '.join(allowed)}, got {found(value)}")
    if value in allowed:
        return value
    for candidate in allowed:
        if candidate.lower() == value.lower():
            return candidate
    raise ValueError(f"{op}: {name} must be one of {', '.join(allowed)}, got {value!r}")


def flag(op: str, name: str, value: object) -> bool:
    """Return `value` as a bool."""
    if value is True or value is False:
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{op}: {name} must be True or False, got {found(value)}")
