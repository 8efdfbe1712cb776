"""Robust regression of link bandwidths and latencies on measured times, by relative errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ....errors import UnsupportedError
from ....support.arrays import FloatArray
from ....support.formatting import percentage_text
from ....topologies import Link, Topology
from ....topologies.network.link_classes import LinkClass, link_classes, matching_classes
from .measured_times import MeasuredTimes
from .model_times import Reference, assumed_run, with_latencies

MAX_DIGITS = 4  # Measured times have no more, and plans need the fewer trees the rounder bandwidths are


class Measurement(NamedTuple):
    """Measured times, and the link classes that they determine.

    Attributes
    ----------
    times : MeasuredTimes
        Of one collective, by one who did it.
    classes : tuple of str
        Link classes that the data cross, on their way between two ranks or among all; empty means all.
    """

    times: MeasuredTimes
    classes: tuple[str, ...] = ()


class ClassFit(NamedTuple):
    """Fit of one link class.

    `links`: As they were.
    `bandwidth`, `latency`: GB/s and µs, fitted where the next two are not None, and else as they were; the latency of
        the slowest link.
    `bandwidth_error`, `latency_error`: Half the width of the 95 % confidence interval, relative; None where the times
        do not tell.
    `together`: Names of the classes that the same factor was fitted for.
    `line`: The fit of those; None where nothing was measured.
    """

    links: LinkClass
    bandwidth: Fraction
    latency: Fraction
    bandwidth_error: float | None
    latency_error: float | None
    together: tuple[str, ...]
    line: AlphaBeta | None


@dataclass(frozen=True)
class Calibration:
    """Result of `calibrate`: a network that agrees with measured times.

    Attributes
    ----------
    topology : Topology
        With the fitted bandwidths and latencies.
    fits : tuple of ClassFit
        One for every link class of the network, measured or not.
    models : tuple of str
        What was assumed of each measurement, in their order.
    """

    topology: Topology
    fits: tuple[ClassFit, ...]
    models: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one row per link class."""
        return [
            {
                "class": fit.links.name,
                "links": len(fit.links.links),
                "bandwidth_before": float(fit.links.bandwidth),
                "bandwidth": float(fit.bandwidth),
                "bandwidth_error": fit.bandwidth_error,
                "latency_before_us": float(fit.links.latency),
                "latency_us": float(fit.latency),
                "latency_error": fit.latency_error,
                "together": list(fit.together),
                "points": 0 if fit.line is None else fit.line.num_points,
                "median_residual": None if fit.line is None else fit.line.median_residual,
                "worst_residual": None if fit.line is None else fit.line.worst_residual,
            }
            for fit in self.fits
        ]


def fit_times(times: MeasuredTimes) -> AlphaBeta:
    """Fit ``t = alpha + size / bandwidth`` to measured times alone, without a network.

    Units: result in µs.

    >>> from collopt.runtime.measuring.calibration.measured_times import MeasuredRow
    >>> rows = tuple(MeasuredRow(size, 5 + size / 20_000) for size in (1000, 10_000, 10**6, 10**8))
    >>> line = fit_times(MeasuredTimes("example", "broadcast", 2, rows))
    >>> round(line.latency, 4), round(1 / line.slope, 4)
    (5.0, 20.0)
    """
    return _fit([(times.right(), Reference(Fraction(1), Fraction(1, 1000), frozenset(), "a line"))])


def calibrate(
    topology: Topology, measurements: Iterable[Measurement | MeasuredTimes], *, planner: str | None = None
) -> Calibration:
    """Scale latencies and bandwidths of link classes so that modelled times agree with measured ones.

    Parameters
    ----------
    topology : Topology
        The network as it is described: left alone.
    measurements : iterable of Measurement or MeasuredTimes
        Classes of two measurements are either the same, which are then fitted together, or have none in common.
        Measurements of two ranks are about the shortest path over links of their classes, others about all ranks.
    planner : str, optional
        Whose plan stands for what all ranks did; if left out, ``ring``, and ``shortest-paths`` for an all-to-all.

    Returns
    -------
    Calibration

    Raises
    ------
    UnsupportedError
        If a measurement does not go with the network, or its times do not tell latency from bandwidth.
    TopologyError
        If there is no such link class.

    Notes
    -----
    What NCCL did is not in its output, so a run is assumed: ``t = L + size * B``, where L is the latency of the links
    that the last byte waits for and B the time per byte on the busiest link.  One factor for the latencies and one for
    the bandwidths of a measurement's classes are then fitted by `fit_alpha_beta`; two unknowns is what one curve over
    sizes can tell.  Classes that are always crossed together cannot be told apart, and share their factors.
    Where a network states no latencies, the links of a measurement's classes share alpha evenly.

    Figures have as few decimal digits, four at most, as their 95 % confidence interval allows.
    """
    given = [each if isinstance(each, Measurement) else Measurement(each) for each in measurements]
    if not given:
        raise UnsupportedError("there are no measurements to calibrate with; give at least one")
    classes = link_classes(topology)
    fits = {each.name: ClassFit(each, each.bandwidth, each.latency, None, None, (), None) for each in classes}
    links = {link[:2]: link for link in topology.links}
    models: dict[int, str] = {}
    for names, members in _groups(classes, given).items():
        group = [each for each in classes if each.name in names]
        prepared = with_latencies(topology, group)
        pairs = []
        for number in members:
            times = given[number].times.right()
            reference = assumed_run(prepared, times, group, planner, named=bool(given[number].classes))
            pairs.append((times, reference))
            models[number] = f"{times.source}: {times.collective}, {reference.text}"
        line = _fit(pairs)
        if not line.has_slope and not line.has_latency:
            sources, off = ", ".join(times.source for times, _ in pairs), percentage_text(line.median_residual)
            raise UnsupportedError(
                f"{sources}: the times determine neither latency nor bandwidth, as half of them differ by more than "
                f"{off} from any line; measure again while nothing else runs"
            )
        for each in group:
            fits[each.name] = fit = _class_fit(each, names, line, prepared)
            links |= {link[:2]: _fitted(link, fit, line, prepared) for link in each.links}
    calibrated = replace(topology, links=tuple(links.values()), name=f"{topology.name}, calibrated")
    return Calibration(calibrated, tuple(fits.values()), tuple(models[number] for number in sorted(models)))


def _groups(classes: Sequence[LinkClass], given: Sequence[Measurement]) -> dict[tuple[str, ...], list[int]]:
    """Group measurements by their classes; different groups must not share a class."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, each in enumerate(given):
        names = tuple(found.name for found in matching_classes(classes, each.classes)) if each.classes else ()
        names = names or tuple(found.name for found in classes)
        for other, members in groups.items():
            if other != names and (shared := [name for name in names if name in other]):
                raise UnsupportedError(
                    f"{given[members[0]].times.source} and {each.times.source} are both about {shared[0]}, but not "
                    "about the same classes; leave one out, or name the same classes for both"
                )
        groups.setdefault(names, []).append(number)
    return groups


def _fit(pairs: Sequence[tuple[MeasuredTimes, Reference]]) -> AlphaBeta:
    points = np.array(
        [
            (float(reference.latency), float(reference.per_byte * row.size), row.microseconds, row.rounding)
            for times, reference in pairs
            for row in times.rows
        ]
    )
    try:
        return fit_alpha_beta(*points.T)
    except UnsupportedError as error:
        raise UnsupportedError(f"{', '.join(times.source for times, _ in pairs)}: {error}") from None


def _class_fit(links: LinkClass, together: tuple[str, ...], line: AlphaBeta, prepared: Topology) -> ClassFit:
    bandwidth, latency = links.bandwidth, links.latency
    if line.has_slope:
        bandwidth = _rounded(bandwidth / Fraction(line.slope), line.slope_error / line.slope)
    if line.has_latency:
        slowest = max(prepared.link(link.tail, link.head).latency for link in links.links)
        latency = _rounded(slowest * Fraction(line.latency), line.latency_error / line.latency)
    slope_error = line.slope_error / line.slope if line.has_slope else None
    latency_error = line.latency_error / line.latency if line.has_latency else None
    return ClassFit(links, bandwidth, latency, slope_error, latency_error, together, line)


def _fitted(link: Link, fit: ClassFit, line: AlphaBeta, prepared: Topology) -> Link:
    if not line.has_latency:
        return link._replace(bandwidth=fit.bandwidth)
    waits = prepared.link(link.tail, link.head).latency * Fraction(line.latency)
    return link._replace(bandwidth=fit.bandwidth, latency=_rounded(waits, line.latency_error / line.latency))


def _rounded(value: Fraction, error: float) -> Fraction:
    """Round to the digits that a relative error justifies, at most four."""
    rounded = Fraction(0)
    for digits in range(MAX_DIGITS):
        rounded = Fraction(f"{float(value):.{digits}e}")
        if abs(rounded - value) <= value * Fraction(error):
            break
    return rounded


MIN_POINTS = 3
LOSS_SCALE = 0.05
"""Scale of the soft L1 loss: larger relative errors count about linearly, so that outliers do not dominate."""
NORMAL_MAD = 1.4826  # Standard deviation over median absolute deviation of normal errors
CONFIDENCE = 1.96  # Standard errors on either side of 95 %


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
        """Whether the latency differs significantly from zero."""
        return self.latency > self.latency_error

    @property
    def has_slope(self) -> bool:
        """Whether the slope differs significantly from zero."""
        return self.slope > self.slope_error


def fit_alpha_beta(
    latencies: FloatArray, loads: FloatArray, times: FloatArray, roundings: FloatArray | None = None
) -> AlphaBeta:
    """Fit ``times = a latencies + b loads``.

    Least squares of relative errors, under the loss ``2 (sqrt(1 + z) - 1)`` of `scipy.optimize.least_squares`, which
    grows with the square of small errors and in proportion to large ones; a and b are at least 0.  The covariance is
    that of linear least squares with the spread of the residuals taken from their median.  Rounding is no noise, as
    equal times are rounded alike: what it does to a and b at worst is added to their errors.

    Shapes: all arrays float64 (points,).

    >>> sizes = np.array([1e3, 1e5, 1e7])
    >>> line = fit_alpha_beta(np.ones(3), sizes / 25e3, 4 + sizes / 25e3)
    >>> round(line.latency, 6), round(line.slope, 6)
    (4.0, 1.0)
    """
    from scipy.optimize import least_squares, nnls

    if len(times) < MIN_POINTS:
        raise UnsupportedError(f"there are {len(times)} measured times; expected at least {MIN_POINTS}")
    # Every column in multiples of the time itself, so that residuals are relative.
    relative = np.column_stack((latencies, loads)) / times[:, None]
    scale = np.linalg.norm(relative, axis=0)
    if not scale.all() or np.linalg.matrix_rank(relative / scale, tol=1e-6) < 2:
        raise UnsupportedError(
            "the measured sizes cannot separate latency from bandwidth; measure at least two that are far apart, "
            "such as -b 1K -e 1G -f 4"
        )
    columns, ones = relative / scale, np.ones(len(times))
    start, _ = nnls(columns, ones)
    tolerances = dict.fromkeys(("xtol", "ftol", "gtol"), 1e-12)
    found = least_squares(
        lambda weights: columns @ weights - ones, np.maximum(start, 1e-12), jac=lambda _: columns, bounds=(0, np.inf),
        loss="soft_l1", f_scale=LOSS_SCALE, **tolerances,
    )  # fmt: skip
    residuals = np.abs(columns @ found.x - ones)
    spread = NORMAL_MAD * float(np.median(residuals)) * np.sqrt(len(times) / (len(times) - 2))
    covariance = np.linalg.inv(columns.T @ columns)
    errors = CONFIDENCE * spread * np.sqrt(np.diag(covariance))
    if roundings is not None:
        errors += np.abs(covariance @ columns.T) @ (roundings / times)
    latency, slope = (found.x / scale).tolist()
    latency_error, slope_error = (errors / scale).tolist()
    median, worst = float(np.median(residuals)), float(residuals.max())
    return AlphaBeta(latency, slope, latency_error, slope_error, median, worst, len(times))
