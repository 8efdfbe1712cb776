"""Bounded robust regression on times by relative errors, with intervals from resampled points."""

from typing import NamedTuple

import numpy as np

from ....errors import UnsupportedError
from ....support.arrays import FloatArray, IntArray

MIN_POINTS = 3
NORMAL_MAD = 1.4826  # Standard deviation over median absolute deviation of normal errors
HUBER = 1.345  # Standard deviations from which errors count in proportion
LEAST_SCALE = 1e-9  # Of errors that count by their squares, where most errors are zero
REWEIGHTINGS = 60
RESAMPLES, RESAMPLED_REWEIGHTINGS, SEED = 400, 8, 0
PERCENTILES = (2.5, 97.5)


class RelativeFit(NamedTuple):
    """Values of unknowns that describe measured times."""

    values: FloatArray  # Each at least at its bound
    low: FloatArray  # 95 % confidence intervals; of a value at its bound what the times alone say, which may be below
    high: FloatArray
    residuals: FloatArray  # How much of each time the values have in excess

    @property
    def reach(self) -> FloatArray:
        """How far the intervals reach at most."""
        return np.maximum(self.values - self.low, self.high - self.values)


def independent_columns(columns: FloatArray) -> list[int]:
    """Choose columns from the left, each unless those chosen before it say the same."""
    chosen: list[int] = []
    scale = np.linalg.norm(columns, axis=0)
    for column in np.flatnonzero(scale).tolist():
        wanted = [*chosen, column]
        if len(wanted) < len(columns) and np.linalg.matrix_rank(
            columns[:, wanted] / scale[wanted], tol=1e-6
        ) == len(wanted):  # fmt: skip
            chosen = wanted
    return chosen


def fit_relative(
    columns: FloatArray,
    times: FloatArray,
    lower: FloatArray,
    *,
    offsets: FloatArray | None = None,
    runs: IntArray | None = None,
    roundings: FloatArray | None = None,
) -> RelativeFit:
    """Fit ``times = offsets + columns @ values`` with ``values >= lower``.

    Minimises the sum of w r^2 over the relative errors r, where w is Huber's weight.  Intervals are percentiles over
    fits of resampled points, without the bounds; a point is only replaced by one of its own run.  Rounding is no noise,
    as equal times are rounded alike: what it does at worst widens the intervals.

    Shapes: `columns` float64 (points, unknowns), independent; `lower` (unknowns,); all others (points,).
    """
    count, unknowns = columns.shape
    if count < MIN_POINTS:
        raise UnsupportedError(f"there are {count} measured times; expected at least {MIN_POINTS}")
    wanted = np.ones(count) if offsets is None else 1 - offsets / times
    relative = columns / times[:, None]
    # Every column in units of its own length, for the accuracy of the solutions.
    scale = np.linalg.norm(relative, axis=0)
    relative, bounds = relative / scale, lower * scale
    values = _bounded(relative, wanted, bounds)
    residuals = relative @ values - wanted
    limit = _limit(np.abs(residuals), unknowns)
    runs = np.zeros(count, dtype=np.int64) if runs is None else runs
    errors = np.zeros(count) if roundings is None else roundings / times
    low, high = _intervals(relative, wanted, limit, runs, errors)
    free = values > bounds * (1 + 1e-9) + 1e-12
    if free.any() and not free.all():
        # The others are known to be at their bounds.
        rest = wanted - relative[:, ~free] @ bounds[~free]
        low[free], high[free] = _intervals(relative[:, free], rest, limit, runs, errors)
    low[free], high[free] = np.minimum(low, values)[free], np.maximum(high, values)[free]
    return RelativeFit(values / scale, low / scale, high / scale, residuals)


def _limit(residuals: FloatArray, unknowns: int) -> float:
    spread = float(np.median(residuals)) * float(np.sqrt(len(residuals) / max(1, len(residuals) - unknowns)))
    return max(HUBER * NORMAL_MAD * spread, LEAST_SCALE)


def _weights(residuals: FloatArray, limit: float) -> FloatArray:
    weights: FloatArray = limit / np.maximum(np.abs(residuals), limit)
    return weights


def _bounded(relative: FloatArray, wanted: FloatArray, bounds: FloatArray) -> FloatArray:
    """Reweight least squares until the weights stay."""
    from scipy.optimize import nnls

    above = wanted - relative @ bounds
    weights = np.ones(len(wanted))
    values = bounds
    for _ in range(REWEIGHTINGS):
        roots = np.sqrt(weights)
        values = bounds + nnls(relative * roots[:, None], above * roots)[0]
        residuals = relative @ values - wanted
        following = _weights(residuals, _limit(np.abs(residuals), len(bounds)))
        if np.allclose(weights, following, rtol=1e-9, atol=0):
            break
        weights = following
    return values


def _intervals(
    relative: FloatArray, wanted: FloatArray, limit: float, runs: IntArray, errors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return percentiles over resampled points, all solved at once."""
    count, unknowns = relative.shape
    generator = np.random.default_rng(SEED)
    drawn = np.zeros((RESAMPLES + 1, count))
    drawn[0] = 1  # The points themselves, as the middle
    for run in np.unique(runs):
        members = np.flatnonzero(runs == run)
        drawn[1:, members] = generator.multinomial(len(members), np.full(len(members), 1 / len(members)), RESAMPLES)
    weights, values = drawn, np.zeros((RESAMPLES + 1, unknowns))
    for _ in range(RESAMPLED_REWEIGHTINGS):
        normal = np.einsum("sn,ni,nj->sij", weights, relative, relative, optimize=True)
        right = np.einsum("sn,ni,n->si", weights, relative, wanted, optimize=True)
        # Draws may lack what tells two unknowns apart.
        values = np.einsum("sij,sj->si", np.linalg.pinv(normal, hermitian=True), right)
        weights = drawn * _weights(values @ relative.T - wanted, limit)
    middle = values[0]
    widened = middle + (values[1:] - middle) * np.sqrt(count / max(1, count - unknowns))
    low, high = np.percentile(widened, PERCENTILES, axis=0)
    rounding = np.abs(np.linalg.pinv(relative)) @ errors
    return low - rounding, high + rounding
