"""Calibration: link latencies and bandwidths from measured times."""
