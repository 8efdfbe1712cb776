"""Costs of a runtime that describe measured times, each only where the times tell it.

They are fitted by bounded robust regression on relative errors, with intervals from resampled points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import FloatArray, IntArray
from .measured_times import MeasuredTimes
from .model_times import AssumedRun, Group, Terms, naming

MIN_POINTS = 3
NORMAL_MAD = 1.4826  # Standard deviation over median absolute deviation of normal errors
HUBER = 1.345  # Standard deviations from which errors count in proportion
LEAST_SCALE = 1e-9  # Of errors that count by their squares, where most errors are zero
REWEIGHTINGS = 60
RESAMPLES, RESAMPLED_REWEIGHTINGS, SEED = 400, 8, 0
PERCENTILES = (2.5, 97.5)
LEAST_FREEDOM = 4  # degrees, below which fewer points would make intervals endless

BYTES_PER_MB = 1_000_000
BYTES_PER_US = 1000  # At 1 GB/s
LINEARISATIONS = 10
DECIMALS = 4  # Of the costs near which the terms are taken
LITTLE = 0.1  # of the latency of the shortest run: what more is launch makes a range of predicted times
SPREAD = 3.0  # standard deviations of single times that extreme costs contain
LEAST_SPREAD, MOST_SPREAD = 0.001, 0.5  # the least and most of that, for the rounding of costs and wild times
NOT_TOLD = "not identifiable from these sizes"
MAY_BE_ZERO = "0 is in its 95 % interval"
CANNOT_SEPARATE = (
    "the measured sizes cannot separate latency from bandwidth; measure at least two that are far apart, such as "
    "-b 1K -e 1G -f 4"
)
SAME_AS = {"launch": "not told apart from alpha", "reduction": "not told apart from the efficiency"}


class RelativeFit(NamedTuple):
    """Values of unknowns that describe measured times."""

    values: FloatArray  # Each at least at its bound
    low: FloatArray  # 95 % confidence intervals; of a value at its bound by the times alone, perhaps below
    high: FloatArray
    residuals: FloatArray  # How much of each time the values have in excess

    @property
    def reach(self) -> FloatArray:
        """How far the intervals reach at most."""
        return np.maximum(self.values - self.low, self.high - self.values)


def independent_columns(columns: FloatArray) -> list[int]:
    """Choose columns from the left, each unless those chosen before it say the same."""
    independent: list[int] = []
    scale = np.linalg.norm(columns, axis=0)
    for column in np.flatnonzero(scale).tolist():
        extended = [*independent, column]
        rank = np.linalg.matrix_rank(columns[:, extended] / scale[extended], tol=1e-6)
        if rank == len(extended) < len(columns):
            independent = extended
    return independent


def fit_relative(
    columns: FloatArray,
    times: FloatArray,
    lower: FloatArray,
    *,
    offsets: FloatArray | None = None,
    runs: IntArray | None = None,
    roundings: FloatArray | None = None,
) -> RelativeFit:
    """Fit ``times = offsets + columns @ values`` with ``values >= lower``, by Huber's weights of relative errors.

    Intervals are percentiles over fits of points resampled in each run, without the bounds.  Rounding is no noise, as
    equal times are rounded alike: its worst effect widens the intervals.

    Shapes: `columns` float64 (points, unknowns), independent; `lower` (unknowns,); all others (points,).
    """
    count, unknowns = columns.shape
    if count < MIN_POINTS:
        raise UnsupportedError(f"there are {count} measured times; expected at least {MIN_POINTS}")
    target = np.ones(count) if offsets is None else 1 - offsets / times
    relative = columns / times[:, None]
    # Every column in units of its own length, for the accuracy of the solutions.
    scale = np.linalg.norm(relative, axis=0)
    relative, bounds = relative / scale, lower * scale
    # Values at least at their bounds, and the error from which errors count in proportion.
    values = _bounded(relative, target, bounds)
    residuals = relative @ values - target
    limit = _limit(np.abs(residuals), unknowns)
    # Intervals without the bounds; those of free values again with the other values at their bounds.
    runs = np.zeros(count, dtype=np.int64) if runs is None else runs
    errors = np.zeros(count) if roundings is None else roundings / times
    low, high = _intervals(relative, target, limit, runs, errors)
    free = values > bounds * (1 + 1e-9) + 1e-12
    if free.any() and not free.all():
        # The others are known to be at their bounds.
        remainder = target - relative[:, ~free] @ bounds[~free]
        low[free], high[free] = _intervals(relative[:, free], remainder, limit, runs, errors)
    low[free], high[free] = np.minimum(low, values)[free], np.maximum(high, values)[free]
    return RelativeFit(values / scale, low / scale, high / scale, residuals)


def _limit(residuals: FloatArray, unknowns: int) -> float:
    spread = float(np.median(residuals)) * float(np.sqrt(len(residuals) / max(1, len(residuals) - unknowns)))
    return max(HUBER * NORMAL_MAD * spread, LEAST_SCALE)


def _weights(residuals: FloatArray, limit: float) -> FloatArray:
    weights: FloatArray = limit / np.maximum(np.abs(residuals), limit)
    return weights


def _bounded(relative: FloatArray, target: FloatArray, bounds: FloatArray) -> FloatArray:
    """Reweight least squares until the weights stay."""
    from scipy.optimize import nnls

    above = target - relative @ bounds
    weights = np.ones(len(target))
    values = bounds
    for _ in range(REWEIGHTINGS):
        roots = np.sqrt(weights)
        values = bounds + nnls(relative * roots[:, None], above * roots)[0]
        residuals = relative @ values - target
        following = _weights(residuals, _limit(np.abs(residuals), len(bounds)))
        if np.allclose(weights, following, rtol=1e-9, atol=0):
            break
        weights = following
    return values


def _intervals(
    relative: FloatArray, target: FloatArray, limit: float, runs: IntArray, errors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return percentiles over resampled points, all solved at once."""
    from scipy.special import ndtri, stdtrit

    count, unknowns = relative.shape
    generator = np.random.default_rng(SEED)
    drawn = np.zeros((RESAMPLES + 1, count))
    drawn[0] = 1  # The points themselves, as the middle
    for run in np.unique(runs):
        members = np.flatnonzero(runs == run)
        drawn[1:, members] = generator.multinomial(len(members), np.full(len(members), 1 / len(members)), RESAMPLES)
    # Reweighted least squares of all draws at once.
    weights, values = drawn, np.zeros((RESAMPLES + 1, unknowns))
    for _ in range(RESAMPLED_REWEIGHTINGS):
        normal = np.einsum("sn,ni,nj->sij", weights, relative, relative, optimize=True)
        right = np.einsum("sn,ni,n->si", weights, relative, target, optimize=True)
        # A draw may lack the points that separate two unknowns.
        values = np.einsum("sij,sj->si", np.linalg.pinv(normal, hermitian=True), right)
        weights = drawn * _weights(values @ relative.T - target, limit)
    # Percentiles around the fit of the points themselves, widened by rounding, and by the degrees of freedom that are
    # lost of the points that tell a value, which are few.
    middle, squares = values[0], relative**2
    telling = squares.sum(axis=0) ** 2 / (squares**2).sum(axis=0)
    freedom = np.maximum(telling - unknowns, LEAST_FREEDOM)
    student = stdtrit(freedom, PERCENTILES[1] / 100) / ndtri(PERCENTILES[1] / 100)
    widened = middle + (values[1:] - middle) * np.sqrt(np.maximum(telling / freedom, 1)) * student
    low, high = np.percentile(widened, PERCENTILES, axis=0)
    rounding = np.abs(np.linalg.pinv(relative)) @ errors
    return low - rounding, high + rounding


Kind = Literal["inverse", "alpha", "launch", "extra", "reduction"]


class Unknown(NamedTuple):
    """A fitted cost: ``"inverse"`` of efficiency, ``"extra"`` multiples of latencies, or a time of `RuntimeCosts`."""

    kind: Kind
    group: Group = ()


ALPHA, LAUNCH, REDUCTION = Unknown("alpha"), Unknown("launch"), Unknown("reduction")


class Estimate(NamedTuple):
    """A cost by the times; `low` and `high` are the 95 % interval, from which a bound may cut off the value."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Half the width of the interval, relative."""
        return (self.high - self.low) / 2 / self.value if self.value else 0.0


@dataclass
class CostFit:
    """Estimates of costs, reasons for missing ones, and for each run its terms near these costs and relative errors."""

    estimates: dict[Unknown, Estimate] = field(default_factory=dict)
    untold: dict[Unknown, str] = field(default_factory=dict)
    terms: list[Terms] = field(default_factory=list)
    residuals: list[FloatArray] = field(default_factory=list)
    ends: tuple[tuple[float, float], ...] = ()  # extreme alpha and launch, where the times do not tell them apart


def fit_line(times: MeasuredTimes) -> RelativeFit:
    """Fit latency in µs, and µs per kB, to the right times of one measurement, without a network."""
    rows = times.right().rows
    measured = np.array([row.microseconds for row in rows])
    columns = np.array([(1.0, row.size / BYTES_PER_US) for row in rows])
    with naming(times.source):
        if len(rows) > 2 and len(independent_columns(columns / measured[:, None])) < 2:
            raise UnsupportedError(CANNOT_SEPARATE)
        return fit_relative(columns, measured, np.zeros(2), roundings=np.array([row.rounding for row in rows]))


class _Points(NamedTuple):
    sizes: FloatArray
    times: FloatArray
    roundings: FloatArray
    runs: IntArray


def fit_costs(
    runs: Sequence[AssumedRun],
    measured: Sequence[MeasuredTimes],
    defaults: Mapping[Unknown, Fraction],
    send: Fraction = Fraction(0),
) -> CostFit:
    """Fit costs to the right times of runs, taking their terms near the costs of the last fit until these stay.

    `defaults`: unknowns with their values where the times do not tell them, the first to be told first; `send`: µs that
    starting a message adds to each hop.
    """
    rows = [(number, row) for number, times in enumerate(measured) for row in times.rows]
    points = _Points(
        np.array([row.size for _, row in rows], dtype=float),
        np.array([row.microseconds for _, row in rows]),
        np.array([row.rounding for _, row in rows]),
        np.array([number for number, _ in rows]),
    )
    values = dict(defaults)
    fit = CostFit()
    for _ in range(LINEARISATIONS):
        terms = [_near(run, values, send) for run in runs]
        if terms == fit.terms:
            break
        fit = _fit(points, terms, defaults)
        estimates = {unknown: round(Fraction(estimate.value), DECIMALS) for unknown, estimate in fit.estimates.items()}
        values = {**defaults, **estimates}
    return fit


def _near(run: AssumedRun, values: Mapping[Unknown, Fraction], send: Fraction) -> Terms:
    extra = {unknown.group: value for unknown, value in values.items() if unknown.kind == "extra"}
    shares = {unknown.group: 1 / value for unknown, value in values.items() if unknown.kind == "inverse"}
    terms = run.terms(values[ALPHA] + send, extra, shares)
    return terms._replace(stated=terms.stated + terms.hops * send)


def _column(unknown: Unknown, terms: Sequence[Terms], points: _Points) -> FloatArray:
    """Return what an unknown is multiplied by at each point."""
    factors = {
        "inverse": [run_terms.loads.get(unknown.group, 0) for run_terms in terms],
        "reduction": [run_terms.added / BYTES_PER_MB for run_terms in terms],
        "launch": [1] * len(terms),
        "alpha": [run_terms.hops for run_terms in terms],
        "extra": [run_terms.waits.get(unknown.group, 0) for run_terms in terms],
    }
    column: FloatArray = np.array(factors[unknown.kind], dtype=float)[points.runs]
    return column * points.sizes if unknown.kind in ("inverse", "reduction") else column


def _fit(points: _Points, terms: list[Terms], defaults: Mapping[Unknown, Fraction]) -> CostFit:
    """Fit, and leave out one by one the costs that the times do not determine."""
    if len(points.times) < MIN_POINTS:
        raise UnsupportedError(f"there are {len(points.times)} measured times; expected at least {MIN_POINTS}")
    # Columns of all unknowns, of which linearly dependent ones are left out.
    unknowns = list(defaults)
    columns = np.column_stack([_column(name, terms, points) for name in unknowns])
    start = np.array([float(value) for value in defaults.values()])
    stated = np.array([float(run_terms.stated) for run_terms in terms])[points.runs]
    fitted = independent_columns(columns / points.times[:, None])
    if unknowns.index(ALPHA) not in fitted:
        raise UnsupportedError(CANNOT_SEPARATE)
    result, most_launch = CostFit(terms=terms), float("inf")
    for place, name in enumerate(unknowns):
        if place not in fitted:
            result.untold[name] = SAME_AS.get(name.kind, NOT_TOLD) if columns[:, place].any() else ""
    # Fit, and leave out the least determined unknown, until every interval determines its value.
    while True:
        fixed = [place for place in range(len(unknowns)) if place not in fitted]
        lower = np.array([float(unknowns[place].kind == "inverse") for place in fitted])
        offsets = stated + columns[:, fixed] @ start[fixed]
        fit = fit_relative(
            columns[:, fitted], points.times, lower, offsets=offsets, runs=points.runs, roundings=points.roundings
        )
        worst = _least_told([unknowns[place] for place in fitted], fit, defaults)
        if worst is None:
            break
        unknown = unknowns[fitted[worst]]
        reason = NOT_TOLD if unknown.kind == "inverse" else MAY_BE_ZERO
        if unknown == ALPHA and unknowns.index(LAUNCH) in fitted:
            # Of the two, hops explain times that hardly tell them apart.
            unknown, reason = LAUNCH, SAME_AS["launch"]
        if unknown == LAUNCH:
            most_launch = float(fit.high[fitted.index(unknowns.index(LAUNCH))])
        fitted.remove(unknowns.index(unknown))
        result.untold[unknown] = reason
        if not fitted:
            result.residuals = [fit.residuals]
            return result
    result.estimates = {
        unknowns[place]: Estimate(*map(float, ends))
        for place, ends in zip(fitted, zip(*fit[:3], strict=True), strict=True)
    }
    result.residuals = [fit.residuals[points.runs == run] for run in range(len(terms))]
    if unknowns.index(LAUNCH) not in fitted and ALPHA in result.estimates:
        result.ends = _ends(result, most_launch, float(defaults[LAUNCH]))
    return result


def _ends(fit: CostFit, most_launch: float, stated: float) -> tuple[tuple[float, float], ...]:
    """Extreme costs that describe the times about as well: all is alpha, or as much launch as the times allow.

    Both for the least and the largest latency of the run with the fewest hops, by the interval of alpha and the spread
    of single times.
    """
    shortest, alpha = min(fit.terms, key=lambda terms: terms.hops), fit.estimates[ALPHA]
    hops = shortest.hops
    off = np.abs(np.concatenate(fit.residuals))
    spread = max(min(SPREAD * NORMAL_MAD * float(np.median(off)), float(off.max()), MOST_SPREAD), LEAST_SPREAD)
    reach = spread * (alpha.value + float(shortest.stated) / hops)
    alphas = max(alpha.low - reach, 0), max(alpha.high + reach, 0)
    launches = [min(end * hops, most_launch) for end in alphas]
    if launches[1] <= LITTLE * alpha.value * hops:
        return ()
    mixed = ((max(end - launch / hops, 0), stated + launch) for end, launch in zip(alphas, launches, strict=True))
    return (*((end, stated) for end in alphas), *mixed)


def _least_told(unknowns: Sequence[Unknown], fit: RelativeFit, defaults: Mapping[Unknown, Fraction]) -> int | None:
    """Find the last unknown whose interval does not tell it: those that come later are the first to go."""
    for place in reversed(range(len(unknowns))):
        unknown, value, low, high = unknowns[place], *(float(column[place]) for column in fit[:3])
        is_inverse = unknown.kind == "inverse"
        if (high - low) / 2 >= value if is_inverse else low <= 0 and low <= defaults[unknown] <= high:
            return place
    return None
