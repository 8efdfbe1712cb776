"""Identification of slow parts from rates of runs: t tests, then a minimum hitting set, proved to be unique."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...formulations import hitting_set
from ...solvers import Termination, solve
from ...support.arrays import BoolArray, FloatArray, IntArray
from ...support.formatting import count_text
from .probe_rounds import Pair, Routes, Run

if TYPE_CHECKING:
    import pandas as pd

RISK = 1e-5
"""Probability that one of the two steps of tests calls anything slow in a healthy network, if noise is normal."""
RESOLUTION = 1e-6
"""Relative standard error of times at best, as printed numbers have few digits."""
REFERENCE = Fraction(1, 2)
"""Share of the bandwidth below which no rate can be called normal: a link at half its width or speed has as much."""
MAX_EXPLANATIONS = 16


class PartState(NamedTuple):
    """What the runs prove about a part of the network.

    Attributes
    ----------
    part : str
        A node, or two nodes joined by ``--`` for the link between them.
    state : str
        ``slow``; ``suspect``, in some explanations; ``healthy``; or ``open``, in no explanation and on no fast run.
    rate, share : float or None
        Of a slow part, in GB/s and of the normal rate: geometric mean of the runs that prove it.
    runs : tuple of Run
        Slow runs that only this part explains, or the fastest one that clears a healthy part.
    """

    part: str
    state: str
    rate: float | None
    share: float | None
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Identification:
    """Slow parts of a network, and what proves them.

    Attributes
    ----------
    faults : int
        How many slow parts were assumed at most.
    normal : float
        Geometric mean of the rates of fast runs, in GB/s.
    threshold : float
        Rate below which a single run counts as slow, by the noise of fast runs; several runs of a NIC tell more.
    explanations : tuple of tuple of str
        Slow parts by explanation, at most `faults` each and none that another one contains; with an empty one alone,
        nothing is slow.  Of more faults than assumed, a smallest explanation.
    parts : tuple of PartState
        Slow and suspect ones first.
    notes : tuple of str
        Runs that the explanations leave out, and rates above the bandwidth.
    next_round : tuple of pairs of str
        Runs that tell the explanations apart, as far as any runs do.
    """

    faults: int
    normal: float
    threshold: float
    explanations: tuple[tuple[str, ...], ...]
    parts: tuple[PartState, ...]
    notes: tuple[str, ...]
    next_round: tuple[Pair, ...]

    @property
    def unique(self) -> bool:
        """Whether one explanation is left, of no more faults than assumed; with none, half of the rate would show."""
        sensitive = bool(self.explanations[0]) or self.threshold >= REFERENCE * self.normal
        return sensitive and len(self.explanations) == 1 and len(self.explanations[0]) <= self.faults

    @property
    def verdict(self) -> str:
        """Say the result in one sentence."""
        first = self.explanations[0]
        if len(first) > self.faults:
            number = f"at least {count_text(len(first), 'part')}"
            return f"{number} are slow, more than the {self.faults} assumed; probe again for more faults"
        if len(self.explanations) > 1:
            lead = "at least " if len(self.explanations) == MAX_EXPLANATIONS else ""
            listing = "; or ".join(" and ".join(parts) for parts in self.explanations)
            return f"{lead}{len(self.explanations)} explanations are left: {listing}"
        if not first:
            limit = (
                f"the normal rate is {self.normal:.4g} GB/s, and a single run counts as slow below {self.threshold:.4g}"
            )
            return f"no part is slow: {limit}" if self.unique else f"too few or too different runs to tell: {limit}"
        proof = f"no other {self.faults} or fewer explain the runs"
        return f"{count_text(len(first), 'part')} slow: {', '.join(first)}; {proof}"

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the parts: a row for each, with the columns of `PartState`."""
        import pandas as pd

        return pd.DataFrame(list(self.parts), columns=PartState._fields)


def identify(
    runs: Sequence[Run], rates: FloatArray, routes: Routes, candidates: Iterable[Pair], faults: int
) -> Identification:
    """Find the slow parts that explain the rates of runs in GB/s; `candidates` may be run in the next round."""
    levels = np.log(rates)
    slow = _slow_runs(runs, levels, faults)
    bounds = np.array([float(routes.bandwidth(run.ends)) for run in runs])
    normal, threshold = _reference(rates, slow, bounds)
    crossed = [[frozenset(route) for route in routes.parts(run.ends)] for run in runs]
    clearing: dict[str, int] = {}
    for place in np.argsort(-levels, kind="stable").tolist():
        if not slow[place]:
            for part in frozenset.intersection(*crossed[place]):
                clearing.setdefault(part, place)
    accused = {place: frozenset.union(*crossed[place]) - clearing.keys() for place in np.flatnonzero(slow).tolist()}
    notes = []
    if len(above := np.flatnonzero(rates > bounds)):
        run, rate, bound = runs[above[0]], rates[above[0]], bounds[above[0]]
        excess = f"{run} has {rate:.4g} of {bound:g} GB/s"
        notes = [f"{count_text(len(above), 'run')} above the network's bandwidth, which is too low: {excess}"]
    passing = [runs[place] for place, parts in accused.items() if not parts]
    notes += [f"{run}: slow, although all its parts have fast runs; repeat it" for run in passing]
    accused = {place: parts for place, parts in accused.items() if parts}
    explanations = _explanations([*accused.values()], [crossed[place] for place in np.flatnonzero(~slow)], faults)
    counted = len(explanations) == 1 and len(explanations[0]) == faults  # then no other part can be slow
    states = []
    crossing = frozenset().union(*chain(*crossed))
    for part, state, level, places in _states(levels, accused, clearing, crossing, explanations, counted):
        rate = None if level is None else float(np.exp(level))
        share = None if rate is None else rate / normal
        states.append(PartState(part, state, rate, share, tuple(runs[place] for place in places)))
    following = _separating(explanations, candidates, routes)
    return Identification(faults, normal, threshold, tuple(explanations), tuple(states), tuple(notes), following)


def _slow_runs(runs: Sequence[Run], levels: FloatArray, faults: int) -> BoolArray:
    """Label runs of NICs that are slow as a whole, and then single runs between the others, half of them at most."""
    numbers: dict[str, int] = {}
    ends = np.array([[numbers.setdefault(end, len(numbers)) for end in run.ends] for run in runs])
    slow = _outliers(levels, ends, faults + 1)
    count = int(np.count_nonzero(~slow))
    slow[~slow] = _outliers(levels[~slow], np.arange(count)[:, None], count // 2)
    return slow


def _outliers(levels: FloatArray, members: IntArray, limit: int) -> BoolArray:
    """Label the slow runs of at most `limit` members.

    Generalized extreme Studentized deviates (Rosner, Technometrics 25(2), 1983): members are suspected in the order of
    their fastest runs, as many as the runs of the last one, without other suspects, are slower by a t test whose
    variance is within members, and nearer to their own mean than to the normal one.  Bonferroni's correction for the
    number of members keeps the risk of all tests.  `levels` are logarithms of rates, and `members` has the members of
    each run, from 0, in its rows.
    """
    from scipy.special import stdtrit

    count = int(members.max(initial=-1)) + 1
    fastest = np.full(count, -np.inf)
    np.maximum.at(fastest, members, levels[:, None])
    order = np.argsort(fastest, kind="stable")
    rank = np.argsort(order)[members]
    for size in range(min(limit, count - 1), 0, -1):
        suspected = rank < size
        single = suspected.sum(axis=1) <= 1
        # Group 0 is of normal runs, and group i of those with the suspect of rank i - 1 alone.
        groups = np.where(suspected, rank + 1, 0).sum(axis=1)[single]
        values = levels[single]
        sizes = np.bincount(groups, minlength=size + 1)
        means = np.bincount(groups, values, size + 1) / np.maximum(sizes, 1)
        free = len(values) - np.count_nonzero(sizes)
        if not sizes[0] or not sizes[size] or free < 1:
            continue
        variance = ((values - means[groups]) ** 2).sum() / free
        error = np.sqrt(max(variance, RESOLUTION**2) * (1 / sizes[size] + 1 / sizes[0]))
        low = means[0] + stdtrit(free, RISK / count) * error
        between = (means[0] + means[size]) / 2
        if means[size] < low and values[groups == size].max() < between:
            slow: BoolArray = suspected.any(axis=1) & (levels < between)
            return slow
    return np.zeros(len(levels), dtype=np.bool_)


def _reference(rates: FloatArray, slow: BoolArray, bounds: FloatArray) -> tuple[float, float]:
    """Return the normal rate, and the one below which a single run counts as slow."""
    from scipy.special import stdtrit

    if rates.max() < REFERENCE * (bandwidth := np.median(bounds)):
        raise UnsupportedError(
            f"no run is fast: {rates.max():.4g} GB/s are below half of the network's {bandwidth:g}, as if all links "
            "had half their width or speed; correct the bandwidth, or find first what slows all runs"
        )
    levels = np.log(rates[~slow])
    count = len(levels)
    error = max(levels.std(ddof=1) if count > 1 else np.inf, RESOLUTION) * np.sqrt(1 + 1 / count)
    normal = levels.mean()
    return float(np.exp(normal)), float(np.exp(normal + stdtrit(max(count - 1, 1), RISK / len(rates)) * error))


def _explanations(
    accused: Sequence[frozenset[str]], fast: Sequence[Sequence[frozenset[str]]], faults: int
) -> list[tuple[str, ...]]:
    """Enumerate minimal explanations by `faults` parts, or as few as there can be, until a solve has no answer."""
    if not accused:
        return [()]
    numbers = {part: number for number, part in enumerate(sorted(frozenset().union(*accused)))}
    names = list(numbers)
    # A route without accused parts is free, and then its run says nothing about them.
    choices = [[[numbers[part] for part in route if part in numbers] for route in run] for run in fast]
    slow = [[[numbers[part] for part in parts]] for parts in accused]
    model = hitting_set.build(len(names), slow, [run for run in choices if all(run)])
    faulty = model.variables.faulty
    explanations: list[tuple[str, ...]] = []
    while len(explanations) < MAX_EXPLANATIONS:
        solution = solve(model)
        if solution.status.termination is not Termination.OPTIMAL:
            break
        parts = np.flatnonzero(solution.values["faulty"] > 0.5)
        explanations.append(tuple(names[part] for part in parts))
        if len(explanations) == 1:
            model.constrain("assumed", [(faulty, 1.0)], upper=max(faults, len(parts)))
        model.constrain(f"other than {len(explanations)}", [(faulty[parts], 1.0)], upper=len(parts) - 1)
    if not explanations:
        raise UnsupportedError(
            "no set of slow parts explains the runs; repeat those that are slow, without other traffic"
        )
    return explanations


def _states(
    levels: FloatArray,
    accused: Mapping[int, frozenset[str]],
    clearing: Mapping[str, int],
    parts: Collection[str],
    explanations: Sequence[tuple[str, ...]],
    counted: bool,
) -> Iterator[tuple[str, str, float | None, list[int]]]:
    """Yield part, state, level and runs: parts of all explanations, of some, those without a fast run, the others."""
    counts = Counter(chain.from_iterable(explanations))
    for part, count in counts.most_common():
        proofs = [place for place, names in accused.items() if names & counts.keys() == {part}]
        level = float(levels[proofs].mean()) if proofs else None
        yield part, "slow" if count == len(explanations) else "suspect", level, proofs
    for part in sorted(set(parts) - counts.keys(), key=lambda part: (part in clearing, part)):
        evidence = [clearing[part]] if part in clearing else []
        yield part, "healthy" if evidence or counted else "open", None, evidence


def _separating(
    explanations: Sequence[tuple[str, ...]], candidates: Iterable[Pair], routes: Routes
) -> tuple[Pair, ...]:
    """Choose disjoint pairs, greedily: two explanations differ where one slows all routes of a run, the other none."""
    pending = set(combinations(range(len(explanations)), 2))
    suspects = [frozenset(parts) for parts in explanations]
    outcomes: dict[Pair, list[float]] = {}
    for pair in candidates if pending else ():
        crossed = [frozenset(route) for route in routes.parts(pair)]
        if frozenset().union(*suspects) & frozenset().union(*crossed):
            outcomes[pair] = [
                sum(not route.isdisjoint(parts) for route in crossed) / len(crossed) for parts in suspects
            ]
    pairs: list[Pair] = []
    while pending and outcomes:
        separated = {
            pair: {(one, other) for one, other in pending if {slowed[one], slowed[other]} == {0.0, 1.0}}
            for pair, slowed in outcomes.items()
        }
        best = max(separated, key=lambda pair: len(separated[pair]))
        if not separated[best]:
            break
        pairs.append(best)
        pending -= separated[best]
        outcomes = {pair: slowed for pair, slowed in outcomes.items() if not {*pair} & {*best}}
    return tuple(pairs)
