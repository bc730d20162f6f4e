"""Which values of a table are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.intp]]


def distinct(values: Ints) -> tuple[Ints, Ints]:
    """Return where each value first stands, values in growing order, and the rank of each element.

    np.unique would import masked arrays, which takes longer than the first call of a program.
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    new = np.ones(len(values), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    ranks = np.empty(len(values), np.intp)
    ranks[order] = new.cumsum() - 1
    return order[new], ranks
