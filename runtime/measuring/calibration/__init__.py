"""Calibration: costs of the runtime from measured times."""
