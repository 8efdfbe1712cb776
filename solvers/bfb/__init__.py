"""Breadth-first broadcast kernels."""
