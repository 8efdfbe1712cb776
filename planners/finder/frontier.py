"""The frontier of Pareto-efficient candidates that the topology finder returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import attrgetter
from typing import TYPE_CHECKING, overload

from ...schedules import ALL_TO_ALL, ALLREDUCE, StepCost
from ...schedules.traffic.collective import AnyCollective
from ...support.quantities import Exact, as_factor, as_latency
from .candidate import Calls, Candidate, FrontierBounds, Workload, is_no_worse

if TYPE_CHECKING:
    import pandas as pd

COSTS: tuple[Callable[[Candidate], StepCost], ...] = (
    attrgetter("cost"),
    attrgetter("reduce_scatter_cost"),
    attrgetter("allreduce_cost"),
)
"""By which a candidate may be worth having."""


@dataclass(frozen=True)
class Frontier(Sequence[Candidate]):
    """The Pareto-optimal candidates that `find_topologies` finds, by increasing T_L and then T_B of the allgather.

    Each is Pareto-efficient for an allgather, a reduce-scatter or an allreduce: none of those looked at beats it in T_L
    or T_B of that collective, or in the rate of an all-to-all, without losing in another of these three.  Bounds of
    rates, which are 1 % apart at most where there was time, may leave open which of two is better: then both are there.

    Attributes
    ----------
    nodes, degree : int
        N and d.
    bidirectional : bool
        Whether only topologies with opposite links were looked for.
    candidates : tuple of Candidate
        In order.
    bounds : FrontierBounds
        What no topology can beat.
    workload : Workload
        What `best` and `to_frame` assume where nothing else is said.
    unmeasured : int
        Topologies too large for the exact best breadth-first broadcast to be worked out: these are listed with what
        theorems say, which may be more than they take, or are left out where no theorem says anything.
    """

    nodes: int
    degree: int
    bidirectional: bool
    candidates: tuple[Candidate, ...]
    bounds: FrontierBounds
    workload: Workload
    unmeasured: int = 0

    def __len__(self) -> int:
        return len(self.candidates)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]

    def best(
        self,
        collective: AnyCollective = "allreduce",
        *,
        size: int | str | None = None,
        alpha: Exact | None = None,
        node_bandwidth: Exact | None = None,
    ) -> Candidate:
        """Return the candidate with the least time; of equals, the one with more all-to-all throughput.

        Parameters are as for `Candidate.runtime`; by default they are what the search was for.
        """
        sizes = {self.workload.num_bytes if size is None else size: 1}
        return self.best_mix({collective: sizes}, alpha=alpha, node_bandwidth=node_bandwidth)

    def best_mix(self, calls: Calls, *, alpha: Exact | None = None, node_bandwidth: Exact | None = None) -> Candidate:
        """Return the candidate with the least total time of several calls; see `Candidate.time_of_calls`.

        The direct-connect paper's choice for a workload, section 5.4, where that has several collectives and sizes.
        Calls are by collective and size in bytes how many there are, or which share of all; the others as for `best`.

        Examples
        --------
        >>> from collopt.planners import find_topologies
        >>> found = find_topologies(32, 4)
        >>> found.best("all_to_all", size="64M").name
        'L(MetaCirc(4, 2, 3; {1, 2, 3, 4}))'
        >>> found.best_mix({"allreduce": {"64K": 40, "16M": 4}, "all_to_all": {"64M": 1}}).name
        'MetaCirc(8, 4, 7; {9, 10, 21, 28})'
        """
        work = self.workload._replace(
            alpha=self.workload.alpha if alpha is None else as_latency(alpha, "a step"),
            node_bandwidth=self.workload.node_bandwidth
            if node_bandwidth is None
            else as_factor(node_bandwidth, "node_bandwidth"),
        )
        return min(self.candidates, key=lambda each: (each.time_of_calls(calls, work), -(each.all_to_all or (0,))[0]))

    def room(self) -> dict[int, Fraction]:
        """By T_L, the part by which the least T_B of an allgather in so many steps could be lower at most.

        Where it is 0 nothing better exists, as ``docs/explanation/refutations.md`` proves next to the Moore bound.
        """
        best: dict[int, Fraction] = {}
        for steps, factor in (each.cost for each in self):
            others = sum(self.degree**hops for hops in range(1, steps + 1))
            shards = Fraction(others if 2 * (others + 1 - self.nodes) < self.degree else self.nodes - 1)
            if steps == 1:  # every neighbor's shard comes whole, over one link where there are fewest
                shards = Fraction(self.degree, self.degree // (self.nodes - 1))
            best.setdefault(steps, 1 - shards / self.nodes / factor)
        return best

    def to_frame(self) -> pd.DataFrame:
        """List the candidates, one row each.

        Columns are ``nodes``, ``degree``, ``name``; ``steps``, ``bandwidth_factor`` (a float) and
        ``bandwidth_factor_exact`` (a Fraction) of the allgather; ``reduce_scatter_steps``, ``reduce_scatter_factor``
        and ``reduce_scatter_factor_exact`` likewise; ``breadth_first``, ``reduce_scatter_breadth_first``,
        ``allreduce_us``; where all-to-all was bounded ``all_to_all_lower``, ``all_to_all_upper`` and ``all_to_all_us``;
        and ``candidate``, the `Candidate`.
        """
        import pandas as pd

        return pd.DataFrame([self._row(candidate) for candidate in self.candidates])

    def _row(self, candidate: Candidate) -> dict[str, object]:
        row: dict[str, object] = candidate.figures()
        row["allreduce_us"] = float(candidate.time_of(ALLREDUCE, self.workload))
        if candidate.all_to_all is not None:
            lower, upper = map(float, candidate.all_to_all)
            times = float(candidate.time_of(ALL_TO_ALL, self.workload))
            row |= {"all_to_all_lower": lower, "all_to_all_upper": upper, "all_to_all_us": times}
        return row | {"candidate": candidate}

    def __repr__(self) -> str:
        return f"<Frontier of {self.nodes} nodes, degree {self.degree}: {len(self)} candidates>"


def pareto_efficient(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Keep those that are Pareto-efficient for an allgather, a reduce-scatter or an allreduce, and an all-to-all."""
    found = sorted(candidates, key=lambda each: (each.cost, each.reduce_scatter_cost))
    return [candidate for place, candidate in enumerate(found) if _is_efficient(place, candidate, found)]


def _is_efficient(place: int, candidate: Candidate, found: Sequence[Candidate]) -> bool:
    """Whether none is as good in all collectives, and none is better in each; of equals the first is."""
    for number, other in enumerate(found):
        if is_as_good(other, candidate) and (number < place or not is_as_good(candidate, other)):
            return False
    return not all(
        any(is_as_good(other, candidate, only) and not is_as_good(candidate, other, only) for other in found)
        for only in ((cost,) for cost in COSTS)
    )


def is_as_good(one: Candidate, other: Candidate, costs: Iterable[Callable[[Candidate], StepCost]] = COSTS) -> bool:
    """Whether these costs are no worse, and both bounds of all-to-all, where both have them, no less."""
    rates = zip(one.all_to_all or (), other.all_to_all or (), strict=False)
    return all(mine >= theirs for mine, theirs in rates) and all(is_no_worse(cost(one), cost(other)) for cost in costs)
