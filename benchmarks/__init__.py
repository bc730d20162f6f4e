"""Benchmarks: ours and the peers', interleaved in one process on the same arrays.

Several OpenMP runtimes share the process (each library brings its own), and by default the idle
team of one spins on the cores that the next one needs. All of them are told to sleep instead, which
costs each the same few microseconds of waking up. The variable must be set before any is loaded.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
