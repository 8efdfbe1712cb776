"""Benchmark of plans beside the backend's own collectives."""
