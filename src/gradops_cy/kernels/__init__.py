"""Compiled kernels, one extension module per family and instruction-set tier."""
