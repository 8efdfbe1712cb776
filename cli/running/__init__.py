"""Run, bench, calibrate, doctor."""
