"""The frontier of Pareto-efficient candidates that the topology finder returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, overload

from ...schedules import ALL_TO_ALL, ALLREDUCE, StepCost
from ...schedules.traffic.collective import AnyCollective
from ...support.quantities import Exact
from .candidate import Candidate, FrontierBounds, Workload, is_no_worse

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
    """The Pareto-optimal candidates of one size and degree, by increasing T_L and then T_B of the allgather.

    Each is Pareto-efficient for an allgather, a reduce-scatter or an allreduce: none of those looked at beats it in T_L
    or T_B of that collective without losing in the other.  Candidates that cost the same in all of them are listed
    together where their bounds of all-to-all leave open which is better.

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

    See Also
    --------
    find_topologies : Finds it.
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

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

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
        work = Workload.read(
            self.workload.num_bytes if size is None else size,
            self.workload.alpha if alpha is None else alpha,
            self.workload.node_bandwidth if node_bandwidth is None else node_bandwidth,
        )
        return min(self.candidates, key=lambda each: (each.time_of(collective, work), -(each.all_to_all or (0,))[0]))

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


def pareto_efficient(candidates: Iterable[Candidate], ties: int) -> list[Candidate]:
    """Keep those that are Pareto-efficient for an allgather, a reduce-scatter or an allreduce."""
    found = sorted(candidates, key=lambda candidate: (candidate.cost, candidate.reduce_scatter_cost))
    fronts = [{cost(each) for each in found} for cost in COSTS]
    kept: list[Candidate] = []
    for candidate in found:
        alike = [other for other in kept if _costs(other) == _costs(candidate)]
        if len(alike) == ties or any(other.name == candidate.name for other in alike):
            continue
        mine = zip((cost(candidate) for cost in COSTS), fronts, strict=True)
        if all(any(cost != own and is_no_worse(cost, own) for cost in costs) for own, costs in mine):
            continue
        theirs = (_costs(other) for other in found if _costs(other) != _costs(candidate))
        if not any(all(map(is_no_worse, costs, _costs(candidate))) for costs in theirs):
            kept.append(candidate)
    return kept


def _costs(candidate: Candidate) -> tuple[StepCost, StepCost]:
    return candidate.cost, candidate.reduce_scatter_cost


def without_dominated(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Of candidates of equal cost, drop those dominated by another in both bounds of all-to-all."""
    kept: list[Candidate] = []
    for candidate in candidates:
        alike = (other for other in candidates if _costs(other) == _costs(candidate) and _dominates(other, candidate))
        if not any(other in kept or not _dominates(candidate, other) for other in alike):
            kept.append(candidate)
    return kept


def _dominates(one: Candidate, other: Candidate) -> bool:
    assert one.all_to_all is not None
    assert other.all_to_all is not None
    return all(mine >= theirs for mine, theirs in zip(one.all_to_all, other.all_to_all, strict=True))
