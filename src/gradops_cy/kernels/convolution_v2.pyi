"""The signatures of the convolution kernels, the same for every tier."""

from typing import Any

import numpy as np
from typing_extensions import disjoint_base

_Array = np.ndarray[Any, np.dtype[Any]]
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Ints = np.ndarray[Any, np.dtype[np.intp]]

FEW_PAIRED: int
FEW_PRODUCTS: int
ROLLING_WORDS: int
STENCIL_WORDS: int

@disjoint_base
class Program:
    def __init__(
        self,
        axes: list[_Ints],
        sources: list[_Ints],
        residues: _Ints,
        taps: _Ints,
        blocks: _Ints,
        coordinates: _Ints,
        ranks: _Ints,
        panel_blocks: _Ints,
        blocking: dict[str, int],
    ) -> None: ...
    def pack(self, weights: _Array, packed: _Bytes, staging: _Bytes, num_threads: int) -> bool: ...
    def run(
        self,
        diff_dst: _Array,
        packed: _Bytes,
        diff_src: _Array,
        channels_last: bool,
        scratch: _Bytes,
        num_threads: int,
        accumulate: bool,
    ) -> bool: ...
    def run_packing(
        self,
        diff_dst: _Array,
        weights: _Array,
        diff_src: _Array,
        channels_last: bool,
        scratch: _Bytes,
        num_threads: int,
        accumulate: bool,
    ) -> bool: ...

def pack_staging(taps: int, parts: int, winograd: bool) -> int: ...
def tile_shapes(f64: bool) -> tuple[dict[int, int], int, int, int]: ...
def probe_fma(rounds: int, num_threads: int, double_precision: bool) -> float: ...
def probe_dot(rounds: int, num_threads: int) -> float: ...
def probe_copy(src: _Bytes, dst: _Bytes, num_threads: int) -> int: ...
