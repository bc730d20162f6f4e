# The resampling kernels for tier generic: same source, this tier's compiler flags (see setup.py).
include "resampling.pxi"
