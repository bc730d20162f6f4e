"""What this build and this process are made of."""

from __future__ import annotations

import json
from typing import Any, Literal, overload

from gradops_cy import _convolution_winograd, _cpu, _isa, _machine, _threads
from gradops_cy._version import __version__


@overload
def show_config(mode: Literal["stdout"] = "stdout") -> None: ...
@overload
def show_config(mode: Literal["dicts"]) -> dict[str, Any]: ...
def show_config(mode: str = "stdout") -> dict[str, Any] | None:
    """Show the kernel set, threads, compiler and OpenMP runtime in use.

    Parameters
    ----------
    mode : {"stdout", "dicts"}
        Print the configuration, or return it, as :func:`numpy.show_config` does.

    Returns
    -------
    dict or None
        The configuration with ``mode="dicts"``, else None.

    Raises
    ------
    ValueError
        Where `mode` is neither.

    Examples
    --------
    >>> import gradops_cy
    >>> gradops_cy.show_config("dicts")["kernels"]["supported"]  # doctest: +SKIP
    ['v2', 'v3', 'v4', 'v4bf16', 'amx']
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"show_config: mode must be 'stdout' or 'dicts', got {mode!r}")
    config: dict[str, Any] = {
        "version": __version__,
        "kernels": {
            "tier": _isa.TIER,
            "supported": list(_isa.supported_tiers()),
            "winograd": _convolution_winograd.ENABLED,
        },
        "threads": {
            "num_threads": _threads.get_num_threads(),
            "openmp": _cpu.openmp_version() or None,
            "openmp_threads": _cpu.openmp_threads(),
        },
        "build": {"compiler": _cpu.compiler()},
        "machine": _machine.description(),
    }
    if mode == "dicts":
        return config
    print(json.dumps(config, indent=2))
    return None
