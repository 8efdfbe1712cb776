"""Commands that run plans or check the machine: run, bench, calibrate, doctor."""
