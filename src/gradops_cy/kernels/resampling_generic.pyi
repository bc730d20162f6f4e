# The one description of the resampling kernels; the stubs of the other tiers repeat these names.
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
Places = np.ndarray[Any, np.dtype[np.intp]]

CHANNELS: int
ROWS: int
PLANES: int
WIDTH: int
ROW_LANES: int
MAX_PRODUCTS: int
MAX_RUN: int
COLUMNS_IN_SEQUENCE: int
WIDTH_LANES: int
WIDTH_REACH: int
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

class Resampling:
    def __init__(
        self,
        *,
        kernel: int,
        load_dtype: int,
        store_dtype: int,
        result_shape: tuple[int, ...],
        grads_shape: tuple[int, ...],
        table: Places,
        weights: Bytes,
        chunks: Places,
        blocks: Places,
        patterns: np.ndarray[Any, np.dtype[np.intc]],
        pixel: int,
        group: int,
        lanes: int,
        columns: int,
        longest_product: int,
        longest_run: int,
        task_rows: int,
        task_columns: int,
        tasks: int,
    ) -> None: ...
    def run(
        self,
        grads: np.ndarray[Any, Any],
        result: np.ndarray[Any, Any],
        channels_last: bool,
        accumulate: bool,
        workspace: Bytes,
        threads: int,
    ) -> None: ...
