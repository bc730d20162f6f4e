"""How many threads a call may use."""

from __future__ import annotations

import os

from gradops_cy import _cpu
from gradops_cy._attributes import as_integer, shown

# A team far larger than the machine only costs memory, and an absurd one would abort the process
# inside the OpenMP runtime. Results do not depend on the team's size.
_CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
MAX_THREADS = max(64, 2 * _CPUS)


def check_num_threads(op: str, value: object) -> int:
    """Return `value` as a positive thread count, or raise naming `op`."""
    if type(value) is int and 0 < value <= MAX_THREADS:
        return value
    count = as_integer(value)
    if count is None:
        raise TypeError(
            f"{op}: num_threads must be a positive integer or None, got {type(value).__name__}"
        )
    if count < 1:
        raise ValueError(
            f"{op}: num_threads must be a positive integer or None, got {shown(count)}"
        )
    return min(count, MAX_THREADS)


def _initial() -> int:
    for name in ("GRADOPS_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "").split(",")[0].strip()
        if text.isdecimal() and len(text) < 10 and int(text) > 0:
            return min(int(text), MAX_THREADS)
    return _CPUS


_num_threads = _initial()


def set_num_threads(num_threads: int) -> None:
    """Set the number of threads that calls without ``num_threads=`` use.

    Parameters
    ----------
    num_threads : int
        A positive count. The start value is ``GRADOPS_NUM_THREADS``, else ``OMP_NUM_THREADS``,
        else the number of processors this process may run on.

    Raises
    ------
    TypeError, ValueError
        Where `num_threads` is not a positive integer.

    Examples
    --------
    >>> import gradops_cy
    >>> before = gradops_cy.get_num_threads()
    >>> gradops_cy.set_num_threads(1)
    >>> gradops_cy.get_num_threads()
    1
    >>> gradops_cy.set_num_threads(before)
    """
    global _num_threads
    _num_threads = check_num_threads("set_num_threads", num_threads)


def get_num_threads() -> int:
    """Return the number of threads that calls without ``num_threads=`` use.

    Returns
    -------
    int
        At least 1.

    Examples
    --------
    >>> import gradops_cy
    >>> gradops_cy.get_num_threads() >= 1
    True
    """
    return _num_threads


def resolve(op: str, num_threads: int | None) -> int:
    """Return the thread count of one call."""
    return _num_threads if num_threads is None else check_num_threads(op, num_threads)


def _after_fork() -> None:
    # A forked child has none of its parent's OpenMP threads, and libgomp waits for them for ever.
    global _num_threads, MAX_THREADS
    _num_threads = MAX_THREADS = 1


if hasattr(os, "register_at_fork") and _cpu.openmp_version():
    os.register_at_fork(after_in_child=_after_fork)
