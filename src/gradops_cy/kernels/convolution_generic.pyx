# The convolution kernels for tier generic: same source, this tier's compiler flags (see setup.py).
include "convolution.pxi"
include "probe.pxi"
