"""Benchmarks of plans as nccl-tests does them, and calibration of costs."""
