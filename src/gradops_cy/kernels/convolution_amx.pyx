# The convolution kernels for tier amx: same source, this tier's compiler flags (see setup.py).
include "convolution.pxi"
include "probe.pxi"
