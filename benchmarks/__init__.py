"""Benchmarks: ours and the peers', in turns in one process on the same arrays."""
