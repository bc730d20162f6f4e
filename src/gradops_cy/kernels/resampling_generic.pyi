"""The signatures of the resampling kernels, the same for every tier."""

from typing import Any

import numpy as np
from typing_extensions import disjoint_base

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_Places = np.ndarray[Any, np.dtype[np.intp]]

CHANNELS: int
ROWS: int
PLANES: int
WIDTH: int
PHASES: int
POINTS: int
POINT_LANES: int
POINT_ROWS: int
PART_BYTES: int
NEAR: int
ROW_LANES: int
MAX_PRODUCTS: int
MAX_RUN: int
ROWS_AT_ONCE: int
ROWS_OF_A_PLANE: int
COLUMNS_IN_SEQUENCE: int
WIDTH_LANES: int
PHASE_LANES: int
PHASE_PARTS: int
PHASE_F16: int
WIDTH_REACH: int
CHUNK_BLOCK: int
CHUNK_FIRST: int
CHUNK_LAST: int
CHUNK_START: int
CHUNK_END: int
CHUNK_WORDS: int

def workspace_bytes(
    size: int,
    lanes: int,
    columns: int,
    longest_product: int,
    longest_run: int,
    grads_plane: int,
    result_plane: int,
) -> int: ...

@disjoint_base
class Resampling:
    def __init__(
        self,
        *,
        kernel: int,
        load_dtype: int,
        store_dtype: int,
        result_shape: tuple[int, ...],
        grads_shape: tuple[int, ...],
        table: _Places,
        weights: _Bytes,
        chunks: _Places,
        blocks: _Places,
        patterns: np.ndarray[Any, np.dtype[np.intc]],
        phases: np.ndarray[Any, np.dtype[np.float32]],
        alike: _Places,
        scale: int,
        spread: int,
        taps: int,
        planes_at_once: int,
        period: int,
        apart: int,
        stage_bytes: int,
        long_rows: int,
        chains: int,
        pixel: int,
        group: int,
        lanes: int,
        columns: int,
        longest_product: int,
        longest_run: int,
        rows_in_cache: int,
        task_rows: int,
        task_columns: int,
        tasks: int,
        ahead: int,
        rows_ahead: int,
        in_order: bool,
        asks_near: bool,
        streams: bool,
        boxes: bool,
        slides: bool,
        shares: bool,
        folds: bool,
    ) -> None: ...
    def run(
        self,
        grads: np.ndarray[Any, Any],
        result: np.ndarray[Any, Any],
        channels_last: bool,
        accumulate: bool,
        workspace: _Bytes,
        threads: int,
    ) -> None: ...
