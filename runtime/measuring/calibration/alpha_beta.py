"""A line through measured times, without a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....errors import UnsupportedError
from .measured_times import MeasuredTimes
from .relative_fit import fit_relative, independent_columns

BYTES_PER_US = 1000  # At 1 GB/s
CANNOT_SEPARATE = (
    "the measured sizes cannot separate latency from bandwidth; measure at least two that are far apart, such as "
    "-b 1K -e 1G -f 4"
)


@dataclass(frozen=True)
class AlphaBeta:
    """A line ``t = latency + slope * size``, times in µs and sizes in kB.

    `latency`, `slope`: At least 0.
    `latency_error`, `slope_error`: How far their 95 % confidence intervals reach at most.
    `median_residual`, `worst_residual`: Of the relative errors of the times that the line gives.
    """

    latency: float
    slope: float
    latency_error: float
    slope_error: float
    median_residual: float
    worst_residual: float
    num_points: int

    @property
    def has_latency(self) -> bool:
        """Whether the latency differs significantly from zero."""
        return self.latency > self.latency_error

    @property
    def has_slope(self) -> bool:
        """Whether the slope differs significantly from zero."""
        return self.slope > self.slope_error


def fit_times(times: MeasuredTimes) -> AlphaBeta:
    """Fit ``t = alpha + size / bandwidth`` to measured times alone, without a network.

    Units: result in µs.

    >>> from collopt.runtime.measuring.calibration.measured_times import MeasuredRow
    >>> rows = tuple(MeasuredRow(size, 5 + size / 20_000) for size in (1000, 10_000, 10**6, 10**8))
    >>> line = fit_times(MeasuredTimes("example", "broadcast", 2, rows))
    >>> round(line.latency, 4), round(1 / line.slope, 4)
    (5.0, 20.0)
    """
    rows = times.right().rows
    measured = np.array([row.microseconds for row in rows])
    columns = np.array([(1.0, row.size / BYTES_PER_US) for row in rows])
    if len(rows) > 2 and len(independent_columns(columns / measured[:, None])) < 2:
        raise UnsupportedError(f"{times.source}: {CANNOT_SEPARATE}")
    try:
        fit = fit_relative(columns, measured, np.zeros(2), roundings=np.array([row.rounding for row in rows]))
    except UnsupportedError as error:
        raise UnsupportedError(f"{times.source}: {error}") from None
    errors = np.maximum(fit.values - fit.low, fit.high - fit.values)
    median, worst = float(np.median(fit.residuals)), float(fit.residuals.max())
    (latency, slope), (latency_error, slope_error) = fit.values.tolist(), errors.tolist()
    return AlphaBeta(latency, slope, latency_error, slope_error, median, worst, len(rows))
