"""Costs of the runtime on a network, fitted to measured times, and explanations of times that beat the line rate."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...errors import ColloptError, UnsupportedError
from ...planners import plan
from ...schedules import Collective
from ...support.arrays import FloatArray
from ...support.formatting import count_text, percentage_text
from ...support.packages import Viewed
from ...topologies import RuntimeCosts, Topology
from ...topologies.network.link_costs import LinkClass, as_costs, link_classes, matching_classes
from .cost_fit import ALPHA, DECIMALS, LAUNCH, REDUCTION, CostFit, Estimate, Unknown, fit_costs, fit_line
from .measured_times import MeasuredTimes
from .model_times import NS_PER_US, AssumedRun, Group, LinkGroups, PathRun, PlanRun, Terms, assumed_run, naming

TOLERANCE = 1e-9
ALGORITHMS = ("ring", "hierarchical-ring", "double-binary-tree", "nvls", "nvls-tree", "collnet", "auto")
"""What libraries run, and the fastest plan."""

MAX_DIGITS = 4  # Measured times have no more
CALIBRATED = ", calibrated"  # At the end of names
MAX_MEDIAN = 0.5  # Relative error of half of the times, beyond which costs mean nothing


@dataclass(frozen=True)
class _Diagnosis:
    """What a fit says about bandwidths that beat the line rate, and about the runs that were assumed."""

    groups: LinkGroups
    runs: Sequence[AssumedRun]
    measured: Sequence[MeasuredTimes]
    fit: CostFit

    @cached_property
    def at_line_rate(self) -> dict[Group, Estimate]:
        """Inverse efficiencies that are at their bound of 1."""
        inverses = {group: self.fit.estimates.get(Unknown("inverse", group)) for group in self.groups.classes}
        return {group: inverse for group, inverse in inverses.items() if inverse and inverse.value <= 1 + TOLERANCE}

    @cached_property
    def excess(self) -> dict[Group, float]:
        """Groups of links whose times are those of faster links, and how many times as fast."""
        inverses = self.at_line_rate.items()
        return {group: 2 / (inverse.low + inverse.high) for group, inverse in inverses if inverse.high < 1}

    def stated_too_low(self, group: Group) -> str:
        """Name the bandwidths of links by the times."""
        bandwidths = [float(link_class.bandwidth) for link_class in self.groups.classes[group]]
        rates = ", ".join(f"{bandwidth * self.excess[group]:.3g}" for bandwidth in bandwidths)
        stated_rates = ", ".join(f"{bandwidth:g}" for bandwidth in bandwidths)
        return f"the stated bandwidth may be too low: the times give {rates} GB/s instead of {stated_rates}"

    @cached_property
    def other_plans(self) -> str:
        """Whose plans are as fast as times that beat the modelled plan; empty if there are none."""
        for run, times, terms in zip(self.runs, self.measured, self.fit.terms, strict=True):
            beaten = [self.excess[group] for group in terms.loads if group in self.excess]
            if isinstance(run, PlanRun) and beaten:
                reached = float(1 / sum(terms.loads.values()) / NS_PER_US)
                rate = reached * max(beaten)
                if plans := _as_fast(self.groups.topology, times.collective, rate):
                    return (
                        f"{times.source}: its times give an algbw of {rate:.4g} GB/s, and {run.planner} has "
                        f"{reached:.4g} at line rate; others reach that, in GB/s: {plans}"
                    )
        return ""

    def check(self) -> None:
        """Refuse costs that do not describe the times at all."""
        sources = ", ".join(times.source for times in self.measured)
        median = float(np.median(np.abs(np.concatenate(self.fit.residuals))))
        off = percentage_text(median)
        if median > MAX_MEDIAN and self.excess:
            text = self.stated_too_low(next(iter(self.excess)))
            raise UnsupportedError(f"{sources}: {text}; half of them differ by more than {off} from the model")
        if median > MAX_MEDIAN or not any(unknown.kind in ("alpha", "inverse") for unknown in self.fit.estimates):
            raise UnsupportedError(
                f"{sources}: the times determine neither latency nor bandwidth, as half of them differ by more than "
                f"{off} from any line; measure again while nothing else runs"
            )

    def notes(self) -> Iterator[str]:
        """Yield what limits the result."""
        if len(hops := {terms.hops for terms in self.fit.terms}) == 1:
            yield (
                f"launch and alpha cannot be told apart, as every measurement has {count_text(hops.pop(), 'hop')}: "
                "alpha has both, and predicted times are ranges; measure two ranks and all ranks to tell them"
            )
        if (alpha := self.fit.estimates.get(ALPHA)) and alpha.high < 0:
            yield "times are shorter than the stated latencies of links, which may be too high"
        for group in self.at_line_rate:
            text = f"; {self.stated_too_low(group)}" if group in self.excess else ""
            yield f"{', '.join(group)}: line rate reached{text}"
        if self.other_plans:
            yield self.other_plans
        if plans := dict.fromkeys(run.planner for run in self.runs if isinstance(run, PlanRun)):
            yield (
                f"fitted to {' and '.join(plans)} on {self.groups.topology.num_ranks} ranks; other sets of ranks and "
                "other algorithms take measurements of their own"
            )


def _as_fast(topology: Topology, collective: Collective | str | None, rate: float) -> str:
    """Name the pipelined plans that reach an algbw at line rate, the slowest first."""
    assert isinstance(collective, Collective)  # A plan was made for it
    rates = {}
    for name in ALGORITHMS:
        with suppress(ColloptError):
            candidate = plan(topology, collective, planner=name, root=0 if collective.has_one_root else None)
            if candidate.schedule.pipelined and candidate.algbw >= rate * (1 - TOLERANCE):
                rates[candidate.planner] = candidate.algbw
    return ", ".join(f"{name} {float(algbw):.4g}" for name, algbw in sorted(rates.items(), key=lambda entry: entry[1]))


class Measurement(NamedTuple):
    """Measured `times` of one collective, and the link `classes` that data cross between two ranks; none for all."""

    times: MeasuredTimes
    classes: tuple[str, ...] = ()


class FittedCost(NamedTuple):
    """One cost before and after."""

    name: str  # "launch", "alpha" in µs, "reduction" in µs per MB; "efficiency", "latency" in µs, of a link class
    links: LinkClass | None  # That class; None for costs of ranks
    before: Fraction
    value: Fraction  # As before where the times do not tell it
    low: float | None = None  # 95 % confidence interval; None likewise, and where 0 fits best
    high: float | None = None
    together: Group = ()  # Classes that have the efficiency, or the factor of latencies, in common
    reason: str = ""  # Why the times do not tell it; empty where they do

    @property
    def title(self) -> str:
        """Name of the cost, and of its link class."""
        return self.name if self.links is None else f"{self.name} {self.links.name}"


class RunFit(NamedTuple):
    """Relative errors of the times of a measurement by the costs, under the assumptions of `model`."""

    model: str
    num_points: int
    median_residual: float
    worst_residual: float
    sizes: tuple[int, ...]  # Bytes of each time
    residuals: tuple[float, ...]  # Of each time: how much of it the model has in excess


@dataclass(frozen=True)
class Calibration(Viewed):
    """Result of `calibrate`: a network whose costs agree with measured times.

    Attributes
    ----------
    topology : Topology
        With the fitted `Topology.costs`, and bandwidths as they were.
    costs : tuple of FittedCost
        In the order of `RuntimeCosts`; of efficiencies, one for each link class of the network, measured or not.
    runs : tuple of RunFit
        What was assumed of each measurement, in their order.
    notes : tuple of str
        What limits the result.
    """

    topology: Topology
    costs: tuple[FittedCost, ...]
    runs: tuple[RunFit, ...]
    notes: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return plain values, one row per cost."""
        return [
            {
                "cost": cost.name,
                "class": None if cost.links is None else cost.links.name,
                "before": float(cost.before),
                "value": float(cost.value),
                "low": cost.low,
                "high": cost.high,
                "together": list(cost.together),
                "reason": cost.reason or None,
            }
            for cost in self.costs
        ]


def calibrate(
    topology: Topology, measurements: Iterable[Measurement | MeasuredTimes], *, planner: str | None = None
) -> Calibration:
    """Fit the costs of the runtime so that modelled times agree with measured ones.

    Raises `UnsupportedError` if a measurement does not go with the network, or its times do not tell latency from
    bandwidth; `TopologyError` if there is no such link class.

    Parameters
    ----------
    topology : Topology
        The network at line rate: left alone.  Where times do not tell a cost, its `costs` stay, by default none.
    measurements : iterable of Measurement or MeasuredTimes
        Classes of two measurements are either the same or have none in common.  Measurements of two ranks are about
        the shortest path over links of their classes, others about all ranks.
    planner : str, optional
        Planner of the schedule that all ranks are assumed to have run; by default ``ring``, and ``shortest-paths``
        for an all-to-all.

    Notes
    -----
    docs/how-to/calibrate.md has the model and the fitted costs.  Figures have as few decimal digits, four at most, as
    change them by no more than a tenth of the uncertainty.
    """
    pairs = [entry if isinstance(entry, Measurement) else Measurement(entry) for entry in measurements]
    if not pairs:
        raise UnsupportedError("there are no measurements to calibrate with; give at least one")
    # Groups of link classes, and the assumed run of each measurement.
    classes = link_classes(topology)
    about = [matching_classes(classes, measurement.classes) for measurement in pairs]
    groups = LinkGroups(topology, _grouped(classes, pairs, about))
    measured = [measurement.times.right() for measurement in pairs]
    runs = [assumed_run(groups, times, group, planner) for times, group in zip(measured, about, strict=True)]
    # Fit, and refuse times that no cost describes.
    start = as_costs(None, topology)
    unknowns = _unknowns(groups, start, runs, measured)
    with naming(", ".join(times.source for times in measured)):
        fit = fit_costs(runs, measured, unknowns, start.send)
    diagnosis = _Diagnosis(groups, runs, measured, fit)
    if diagnosis.other_plans and planner is None:
        raise UnsupportedError(
            f"{diagnosis.other_plans}; name the planner of the measured runs, ring too if links are faster"
        )
    diagnosis.check()
    costs = _fitted_costs(classes, groups, start, fit)
    fits = zip(runs, measured, fit.terms, fit.residuals, strict=True)
    return Calibration(
        _calibrated(topology, groups, start, costs, fit),
        costs,
        tuple(_run_fit(*run, groups) for run in fits),
        tuple(diagnosis.notes()),
    )


def _grouped(
    classes: Sequence[LinkClass], measurements: Sequence[Measurement], about: Sequence[Sequence[LinkClass]]
) -> list[Sequence[LinkClass]]:
    """Group classes that are named together, and those that are not named; groups must not share a class."""
    groups: dict[Group, tuple[str, Sequence[LinkClass]]] = {}
    for measurement, named in zip(measurements, about, strict=True):
        names = tuple(link_class.name for link_class in named)
        for other, (source, _) in groups.items():
            if other != names and (shared := [name for name in names if name in other]):
                raise UnsupportedError(
                    f"{source} and {measurement.times.source} are both about {shared[0]}, but not about the same "
                    "classes; leave one out, or name the same classes for both"
                )
        if named:
            groups.setdefault(names, (measurement.times.source, named))
    ungrouped = [link_class for link_class in classes if not any(link_class.name in names for names in groups)]
    return [*(group for _, group in groups.values()), *([ungrouped] if ungrouped else [])]


def _unknowns(
    groups: LinkGroups, start: RuntimeCosts, runs: Sequence[AssumedRun], measured: Sequence[MeasuredTimes]
) -> dict[Unknown, Fraction]:
    """Return all costs that may be fitted, in the order of `fit_costs`, and their values so far."""
    inverse = {
        Unknown("inverse", group): 1 / min(_share(link_class, start) for link_class in members)
        for group, members in groups.classes.items()
    }
    latencies: dict[Group, float] = {}
    for run, times in zip(runs, measured, strict=True):
        if isinstance(run, PathRun) and len(crossed := {groups.of[link[:2]] for link in run.path}) == 1:
            latencies.setdefault(crossed.pop(), float(fit_line(times).values[0]) / run.messages)
    # The fastest last, as it cannot be told from alpha.
    slowest = sorted(latencies, key=lambda group: -latencies[group])
    extra = {Unknown("extra", group): Fraction(0) for group in slowest} if len(slowest) > 1 else {}
    reduction = {REDUCTION: start.reduction} if any(run.added for run in runs) else {}
    return {**inverse, ALPHA: start.alpha, LAUNCH: start.launch, **extra, **reduction}


def _share(links: LinkClass, costs: RuntimeCosts) -> Fraction:
    shares = dict(costs.efficiency)
    return shares.get(links.name, shares.get(links.kinds, Fraction(1)))


def _fitted_costs(
    classes: Sequence[LinkClass], groups: LinkGroups, start: RuntimeCosts, fit: CostFit
) -> tuple[FittedCost, ...]:
    fitted = []
    for name, unknown in (("launch", LAUNCH), ("alpha", ALPHA), ("reduction", REDUCTION)):
        if unknown in fit.estimates or unknown in fit.untold:
            cost = _fitted(name, None, getattr(start, name), unknown, fit)
            if fit.ends and unknown in (ALPHA, LAUNCH):
                column = [end[unknown == LAUNCH] for end in fit.ends]
                cost = cost._replace(low=min(column), high=max(column))
            fitted.append(cost)
    for link_class in classes:
        group = groups.of[link_class.links[0][:2]]
        fitted.append(_fitted("efficiency", link_class, _share(link_class, start), Unknown("inverse", group), fit))
    for link_class in classes:
        unknown = Unknown("extra", groups.of[link_class.links[0][:2]])
        if unknown in fit.estimates:
            fitted.append(_fitted("latency", link_class, link_class.latency, unknown, fit))
    return tuple(fitted)


def _fitted(name: str, links: LinkClass | None, before: Fraction, unknown: Unknown, fit: CostFit) -> FittedCost:
    """Round a cost to the digits that its interval justifies."""
    if (estimate := fit.estimates.get(unknown)) is None:
        crossed = any(unknown.group in terms.waits for terms in fit.terms)
        reason = fit.untold[unknown] or ("never the busiest links" if crossed else "not measured")
        return FittedCost(name, links, before, before, together=unknown.group, reason=reason)
    value, low, high = estimate.value, estimate.low, estimate.high
    if unknown.kind == "inverse":
        value, low, high = 1 / value, 1 / max(high, value), 1 / max(low, 1)
    elif unknown.kind == "extra":
        # A group that states no latencies has 1 µs in their place.
        unit = before or Fraction(1)
        value, low, high = (float(before + unit * Fraction(bound)) for bound in estimate[:3])
    if not value:
        return FittedCost(name, links, before, Fraction(0), together=unknown.group, reason="0 fits best")
    low, high = min(max(low, 0), value), max(high, value)
    error = (high - low) / 2 / value
    return FittedCost(name, links, before, _rounded(Fraction(value), error), low, high, unknown.group)


def _rounded(value: Fraction, error: float) -> Fraction:
    """Round by a tenth of the relative error at most, or to four digits."""
    rounded = Fraction(0)
    for digits in range(MAX_DIGITS):
        rounded = Fraction(f"{float(value):.{digits}e}")
        if abs(rounded - value) <= value * Fraction(error / 10):
            break
    return rounded


def _calibrated(
    topology: Topology, groups: LinkGroups, start: RuntimeCosts, costs: Sequence[FittedCost], fit: CostFit
) -> Topology:
    fitted = {cost.name: cost.value for cost in costs if cost.links is None}
    shares = {
        cost.links.name: cost.value for cost in costs if cost.links and cost.name == "efficiency" and not cost.reason
    }
    fitted_costs = RuntimeCosts(
        **{name: fitted.get(name, getattr(start, name)) for name in ("alpha", "launch", "reduction")},
        send=start.send,
        efficiency={**dict(start.efficiency), **shares},
        calibrated=True,
        ends=[(round(Fraction(alpha), DECIMALS), round(Fraction(launch), DECIMALS)) for alpha, launch in fit.ends],
    )
    extra = {unknown.group: estimate for unknown, estimate in fit.estimates.items() if unknown.kind == "extra"}
    links = []
    for link in topology.links:
        if estimate := extra.get(groups.of[link[:2]]):
            latency = link.latency + groups.waits[link[:2]] * Fraction(estimate.value)
            link = link._replace(latency=_rounded(latency, estimate.error))  # noqa: PLW2901 - others stay.
        links.append(link)
    name = f"{topology.name.removesuffix(CALIBRATED)}{CALIBRATED}"
    return replace(topology, links=tuple(links), costs=fitted_costs, name=name)


def _run_fit(run: AssumedRun, times: MeasuredTimes, terms: Terms, residuals: FloatArray, groups: LinkGroups) -> RunFit:
    ranks = times.num_ranks or (2 if isinstance(run, PathRun) else groups.topology.num_ranks)
    text = f"{times.source}: {times.collective} of {ranks} ranks, {run.text}, {count_text(terms.hops, 'hop')}"
    off = np.abs(residuals)
    sizes = tuple(row.size for row in times.rows)
    return RunFit(text, len(off), float(np.median(off)), float(off.max()), sizes, tuple(residuals.tolist()))
