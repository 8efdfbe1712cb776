"""What the topology finder returns: candidates, and the frontier that they form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from ..errors import CertificateError, UnsupportedError
from ..schedules import StepCost, StepSchedule, step_cost, verified_step_loads
from ..topologies import DirectGraph, Topology
from ..topologies.validation import Exact, shown
from .finder_limits import FrontierBounds, Workload
from .recipes import Recipe

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Candidate", "Frontier"]

COLLECTIVES = {"allgather": 1, "reduce_scatter": 1, "allreduce": 2}
"""How often the schedule, or its reverse, runs."""
ALL_TO_ALL = "all_to_all"


@dataclass(frozen=True)
class Candidate:
    """A topology with a schedule of known cost.

    Attributes
    ----------
    nodes, degree : int
        N and d.
    recipe : Recipe
        How the topology is put together.
    cost : StepCost
        T_L and T_B of an allgather, exactly.
    breadth_first : bool
        Whether that is the best breadth-first broadcast's cost; else it is that of the recipe's own schedule.
    all_to_all : tuple of Fraction, or None
        Throughput of an all-to-all per pair of ranks, in bandwidths of one link, as f of the direct-connect paper's
        linear program (3): what shortest paths in equal parts reach, and what nothing can pass.  The optimum lies
        between; it is known where both are equal.  None if it was not asked for.

    See Also
    --------
    find_topologies : Finds them.
    """

    nodes: int
    degree: int
    recipe: Recipe
    cost: StepCost
    breadth_first: bool
    all_to_all: tuple[Fraction, Fraction] | None = None

    @property
    def name(self) -> str:
        """The recipe in the paper's notation."""
        return self.recipe.name

    @cached_property
    def _graph(self) -> DirectGraph:
        return self.recipe.graph()

    def changed(self, **changes: Any) -> Candidate:
        """Return a copy with other attributes, which does not build the graph again."""
        made = replace(self, **changes)
        made.__dict__.update({name: graph for name, graph in self.__dict__.items() if name == "_graph"})
        return made

    def graph(self) -> DirectGraph:
        """Build the graph.

        Returns
        -------
        DirectGraph
        """
        return self._graph

    def topology(self, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
        """Build the network to plan on.

        Parameters
        ----------
        bandwidth : number
            GB/s of each link.
        latency : number
            µs of each link.

        Returns
        -------
        Topology
        """
        return self.graph().topology(bandwidth=bandwidth, latency=latency)

    def schedule(self) -> StepSchedule:
        """Make the allgather that `cost` is about, and check both.

        Returns
        -------
        StepSchedule
            Verified on this graph.

        Raises
        ------
        CertificateError
            If the schedule is wrong or costs anything else, which would be a defect of the finder.
        """
        graph = self.graph()
        if self.breadth_first:
            from .bfb import bfb_schedule

            made = bfb_schedule(graph)
        else:
            made = self.recipe.schedule()
        verified_step_loads(made, graph.topology())
        if (reached := step_cost(graph, made)) != self.cost:
            raise CertificateError(
                f"the schedule of {self.name} takes {reached.steps} steps and {reached.bandwidth_factor} M/B; "
                f"expected {self.cost.steps} and {self.cost.bandwidth_factor}"
            )
        return made

    def runtime(
        self,
        collective: str = "allreduce",
        size: int | str = "1M",
        *,
        alpha: Exact = 10,
        node_bandwidth: Exact = "12.5",
    ) -> Fraction:
        """Predict the time of a collective by the alpha-beta model.

        Parameters
        ----------
        collective : {"allgather", "reduce_scatter", "allreduce", "all_to_all"}
            An allreduce is a reduce-scatter and an allgather.  An all-to-all takes what its lower bound of throughput
            comes to, without latency.
        size : int or str
            M, such as ``"1M"``: bytes of all shards of an allgather together, bytes per rank of the others.
        alpha : number
            µs per step.
        node_bandwidth : number
            B: GB/s of all ports of a node together.

        Returns
        -------
        Fraction
            In µs.

        Raises
        ------
        UnsupportedError
            If the collective is another, or an all-to-all whose throughput was not asked for.
        """
        return self.time_of(collective, Workload.read(size, alpha, node_bandwidth))

    def time_of(self, collective: str, workload: Workload) -> Fraction:
        """Predict as `runtime` does, for a workload that was read before."""
        if collective == ALL_TO_ALL:
            if self.all_to_all is None:
                raise UnsupportedError("all-to-all was left out of this search; search again with all_to_all=True")
            return workload.transfer * Fraction(self.degree, self.nodes) / self.all_to_all[0]
        if collective not in COLLECTIVES:
            expected = ", ".join((*COLLECTIVES, ALL_TO_ALL))
            raise UnsupportedError(f"the collective is {shown(collective)}; expected one of {expected}")
        once = self.cost.steps * workload.alpha + self.cost.bandwidth_factor * workload.transfer
        return COLLECTIVES[collective] * once

    def __repr__(self) -> str:
        """Name and cost in angle brackets."""
        return f"<Candidate {self.name}: {self.cost.steps} steps, {self.cost.bandwidth_factor} M/B>"


@dataclass(frozen=True)
class Frontier(Sequence[Candidate]):
    """The best candidates of one size and degree, by increasing T_L, and so by decreasing T_B.

    Candidates of equal T_L and T_B are in it together where their bounds of all-to-all leave open which is better.

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

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.candidates)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        """Return one candidate, or several."""
        return self.candidates[index]

    def __iter__(self) -> Iterator[Candidate]:
        """Go through the candidates."""
        return iter(self.candidates)

    def best(
        self,
        collective: str = "allreduce",
        *,
        size: int | str | None = None,
        alpha: Exact | None = None,
        node_bandwidth: Exact | None = None,
    ) -> Candidate:
        """Return the candidate that takes least time.

        Parameters
        ----------
        collective : {"allgather", "reduce_scatter", "allreduce", "all_to_all"}
            As for `Candidate.runtime`.
        size, alpha, node_bandwidth : number, optional
            As for `Candidate.runtime`; what the search was for by default.

        Returns
        -------
        Candidate
            The first of those that take equally long, and of these the one with more all-to-all throughput.
        """
        work = Workload.read(
            self.workload.num_bytes if size is None else size,
            self.workload.alpha if alpha is None else alpha,
            self.workload.node_bandwidth if node_bandwidth is None else node_bandwidth,
        )
        return min(self.candidates, key=lambda candidate: (candidate.time_of(collective, work), _slowness(candidate)))

    def to_frame(self) -> pd.DataFrame:
        """List the candidates.

        Returns
        -------
        DataFrame
            One row each: ``nodes``, ``degree``, ``name``, ``steps``, ``bandwidth_factor`` (a float) and
            ``bandwidth_factor_exact`` (a Fraction), ``breadth_first``, ``allreduce_us``; where all-to-all was asked for
            ``all_to_all_lower``, ``all_to_all_upper`` and ``all_to_all_us``; and ``candidate``, the `Candidate`.
        """
        import pandas as pd

        return pd.DataFrame([self._row(candidate) for candidate in self.candidates])

    def _row(self, candidate: Candidate) -> dict[str, object]:
        row: dict[str, object] = {
            "nodes": self.nodes,
            "degree": self.degree,
            "name": candidate.name,
            "steps": candidate.cost.steps,
            "bandwidth_factor": float(candidate.cost.bandwidth_factor),
            "bandwidth_factor_exact": candidate.cost.bandwidth_factor,
            "breadth_first": candidate.breadth_first,
            "allreduce_us": float(candidate.time_of("allreduce", self.workload)),
        }
        if candidate.all_to_all is not None:
            lower, upper = map(float, candidate.all_to_all)
            times = float(candidate.time_of(ALL_TO_ALL, self.workload))
            row |= {"all_to_all_lower": lower, "all_to_all_upper": upper, "all_to_all_us": times}
        return row | {"candidate": candidate}

    def __repr__(self) -> str:
        """Size and number of candidates in angle brackets."""
        return f"<Frontier of {self.nodes} nodes, degree {self.degree}: {len(self)} candidates>"


def _slowness(candidate: Candidate) -> Fraction:
    return -candidate.all_to_all[0] if candidate.all_to_all else Fraction(0)
