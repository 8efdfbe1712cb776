"""Fits latency and bandwidth to measured times: t = a x + b y, by robust regression of relative errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....errors import UnsupportedError
from ....support.arrays import FloatArray

LEAST_POINTS = 3
USUAL_ERROR = 0.05
"""Relative errors up to here count in full, larger ones in proportion: one stray time must not tilt the line."""
NORMAL_MAD = 1.4826
"""Standard deviation over median absolute deviation of normal errors."""
CONFIDENCE = 1.96
"""Standard errors on either side of 95 %."""


@dataclass(frozen=True)
class AlphaBeta:
    """A line through measured times.

    `latency`, `slope`: a and b, both at least 0.
    `latency_error`, `slope_error`: Half the width of their 95 % confidence intervals.
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
        """Whether the times tell a latency from none at all."""
        return self.latency > self.latency_error

    @property
    def has_slope(self) -> bool:
        """Whether the times tell a bandwidth from an unlimited one."""
        return self.slope > self.slope_error


def fit_alpha_beta(
    latencies: FloatArray, loads: FloatArray, times: FloatArray, roundings: FloatArray | None = None
) -> AlphaBeta:
    """Fit ``times = a latencies + b loads``.

    Least squares of relative errors, under the loss ``2 (sqrt(1 + z) - 1)`` of `scipy.optimize.least_squares`, which
    grows with the square of small errors and in proportion to large ones; a and b are at least 0.  The covariance is
    that of linear least squares with the spread of the residuals taken from their median.  Rounding is no noise, as
    equal times are rounded alike: what it does to a and b at worst is added to their errors.

    Shapes: `latencies` float64 (points,); `loads` float64 (points,); `times` float64 (points,); `roundings` float64
    (points,).

    >>> sizes = np.array([1e3, 1e5, 1e7])
    >>> line = fit_alpha_beta(np.ones(3), sizes / 25e3, 4 + sizes / 25e3)
    >>> round(line.latency, 6), round(line.slope, 6)
    (4.0, 1.0)
    """
    from scipy.optimize import least_squares, nnls

    if len(times) < LEAST_POINTS:
        raise UnsupportedError(f"there are {len(times)} measured times; expected at least {LEAST_POINTS}")
    # Every column in multiples of the time itself, so that residuals are relative.
    relative = np.column_stack((latencies, loads)) / times[:, None]
    scale = np.linalg.norm(relative, axis=0)
    if not scale.all() or np.linalg.matrix_rank(relative / scale, tol=1e-6) < 2:
        raise UnsupportedError(
            "the measured sizes cannot separate latency from bandwidth; measure at least two that are far apart, "
            "such as "
            "-b 1K -e 1G -f 4"
        )
    columns, ones = relative / scale, np.ones(len(times))
    start, _ = nnls(columns, ones)
    found = least_squares(
        lambda weights: columns @ weights - ones,
        np.maximum(start, 1e-12),
        jac=lambda _: columns,
        bounds=(0, np.inf),
        loss="soft_l1",
        f_scale=USUAL_ERROR,
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    residuals = np.abs(columns @ found.x - ones)
    spread = NORMAL_MAD * float(np.median(residuals)) * np.sqrt(len(times) / (len(times) - 2))
    covariance = np.linalg.inv(columns.T @ columns)
    errors = CONFIDENCE * spread * np.sqrt(np.diag(covariance))
    if roundings is not None:
        errors += np.abs(covariance @ columns.T) @ (roundings / times)
    latency, slope = (found.x / scale).tolist()
    latency_error, slope_error = (errors / scale).tolist()
    return AlphaBeta(
        latency,
        slope,
        latency_error,
        slope_error,
        float(np.median(residuals)),
        float(residuals.max()),
        len(times),
    )
