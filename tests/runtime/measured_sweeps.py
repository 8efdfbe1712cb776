"""Measured times that are made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from collopt.runtime.measuring.measured_times import MeasuredRow, MeasuredTimes

SIZES = tuple(2**power for power in range(8, 31))


def measured(
    time: Callable[[int], Any], collective: str | None = "sendrecv", num_ranks: int | None = 2, **options: Any
) -> MeasuredTimes:
    """Times as a function of the size has them, with noise."""
    noise, seed = options.get("noise", 0.0), options.get("seed", 0)
    factors = 1 + noise * np.random.default_rng(seed).uniform(-1, 1, len(SIZES))
    rows = tuple(
        MeasuredRow(size, float(time(size)) * factor) for size, factor in zip(SIZES, factors.tolist(), strict=True)
    )
    return MeasuredTimes(options.get("source", "times.txt"), collective, num_ranks, rows)
