# The one description of the resampling kernels; the stubs of the other tiers repeat these names.
from typing import Any

import numpy as np

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

CHANNELS: int
ROWS: int
PLANES: int
ROW_LANES: int
MAX_PRODUCTS: int
MAX_RUN: int

def workspace_bytes(
    size: int,
    lanes: int,
    columns: int,
    longest_product: int,
    longest_run: int,
    grads_plane: int,
    result_plane: int,
) -> int: ...
def resample(
    grads: Bytes,
    result: Bytes,
    load_dtype: int,
    store_dtype: int,
    accumulate: bool,
    kernel: int,
    table: np.ndarray[Any, np.dtype[np.intp]],
    weights: Bytes,
    lanes: int,
    columns: int,
    longest_product: int,
    longest_run: int,
    task_rows: int,
    task_columns: int,
    tasks: int,
    workspace: Bytes,
) -> None: ...
