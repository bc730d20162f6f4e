# The convolution kernels for tier v4bf16: same source, this tier's compiler flags (see setup.py).
include "convolution.pxi"
include "probe.pxi"
