# The resampling kernels for tier v4bf16: same source, this tier's compiler flags (see setup.py).
include "resampling.pxi"
