"""What the topology finder puts forward: topologies with schedules of known cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...errors import CertificateError, UnsupportedError
from ...schedules import AnyStepSchedule, StepAllreduce, StepCost, StepSchedule, step_cost, verified_step_loads
from ...schedules.traffic.collective import ALL_TO_ALL, EVERY_ROOT, AnyCollective, Direction, as_collective
from ...support.quantities import Exact
from ...topologies import DirectGraph, Topology
from .constructions import Construction
from .workload import Workload

if TYPE_CHECKING:
    from ..plans.plan import Plan


@dataclass(frozen=True)
class Candidate:
    """A topology with an allgather and a reduce-scatter of known cost.

    Attributes
    ----------
    nodes, degree : int
        N and d.
    recipe : Construction
        How the topology is put together.
    cost : StepCost
        T_L and T_B of an allgather, exactly.
    reduce_scatter_cost : StepCost
        T_L and T_B of a reduce-scatter on the same graph, exactly: an allgather on the transposed graph takes as long
        (Corollary 1.1).  An allreduce is both, one after the other: `allreduce_cost`.
    breadth_first : bool
        Whether `cost` is the best breadth-first broadcast's; else it is that of the recipe's own schedule.
    reduce_scatter_breadth_first : bool
        The same of `reduce_scatter_cost`.
    all_to_all : tuple of Fraction, or None
        Throughput of an all-to-all per pair of ranks, in bandwidths of one link, as f of the direct-connect paper's
        linear program (3): what shortest paths in equal parts reach, and what nothing can pass.  The optimum lies
        between; it is known where both are equal.  None if it was not asked for, or would take too long.

    See Also
    --------
    find_topologies : Finds them.
    """

    nodes: int
    degree: int
    recipe: Construction
    cost: StepCost
    reduce_scatter_cost: StepCost
    breadth_first: bool
    reduce_scatter_breadth_first: bool
    all_to_all: tuple[Fraction, Fraction] | None = None

    @property
    def name(self) -> str:
        """The recipe in the paper's notation."""
        return self.recipe.name

    @property
    def allreduce_cost(self) -> StepCost:
        """T_L and T_B of the reduce-scatter and the allgather together."""
        one, other = self.reduce_scatter_cost, self.cost
        return StepCost(one.steps + other.steps, one.bandwidth_factor + other.bandwidth_factor)

    @cached_property
    def _graph(self) -> DirectGraph:
        return self.recipe.graph()

    def changed(self, **changes: Any) -> Candidate:
        """Return a copy with other attributes, which does not build the graph again."""
        made = replace(self, **changes)
        made.__dict__.update({name: graph for name, graph in self.__dict__.items() if name == "_graph"})
        return made

    def graph(self) -> DirectGraph:
        """Build the graph."""
        return self._graph

    def topology(self, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
        """Build the network to plan on.

        Parameters
        ----------
        bandwidth, latency : number
            GB/s and µs of each link.
        """
        return Topology.from_graph(self.graph(), bandwidth=bandwidth, latency=latency)

    def schedule(self) -> StepSchedule:
        """Make the allgather that `cost` is about, and check both.

        Raises `CertificateError` if the schedule is wrong or costs anything else, which would be a defect of the
        finder.

        Returns
        -------
        StepSchedule
            Verified on this graph.
        """
        own = None if self.breadth_first else self.recipe.schedule
        return self._checked("broadcast", own, self.cost)

    def reduce_scatter_schedule(self) -> StepSchedule:
        """Make the reduce-scatter that `reduce_scatter_cost` is about, and check both.

        Returns
        -------
        StepSchedule
            Verified on this graph; of direction "reduce".
        """
        own = None if self.reduce_scatter_breadth_first else self.recipe.reduce_scatter
        return self._checked("reduce", own, self.reduce_scatter_cost)

    def allreduce_schedule(self) -> StepAllreduce:
        """Make the reduce-scatter and then the allgather, and check both.

        Returns
        -------
        StepAllreduce
            Of cost `allreduce_cost`.
        """
        return StepAllreduce(self.reduce_scatter_schedule(), self.schedule())

    def plan(self, collective: AnyCollective = "allreduce", *, bandwidth: Exact = 1, latency: Exact = 0) -> Plan:
        """Make a plan of the schedule that the candidate's cost is about, to save, export or run.

        Raises `UnsupportedError` if the collective is another.

        Parameters
        ----------
        collective : {"allgather", "reduce_scatter", "allreduce"}
            What to plan.
        bandwidth, latency : number
            GB/s and µs of each link.

        Returns
        -------
        Plan
            Verified; its bound is that of the network.

        Examples
        --------
        >>> from collopt.planners import find_topologies
        >>> print(find_topologies(8, 2)[0].plan("allgather", bandwidth=25))
        allgather on Diamond by finder: 57.14 GB/s, optimal; 3 steps, 2 chunks per shard
        """
        from ..from_schedule import plan_of_schedule

        collective = as_collective(collective, EVERY_ROOT, "a candidate has no schedule for")
        topology = self.topology(bandwidth=bandwidth, latency=latency)
        made: AnyStepSchedule
        if collective.has_two_phases:
            made = self.allreduce_schedule()
        else:
            made = self.reduce_scatter_schedule() if collective.reduces else self.schedule()
        return plan_of_schedule(topology, collective, made, planner="finder", options={"recipe": self.name})

    def bounded(self, gap: Exact = Fraction(1, 100)) -> Candidate:
        """Return a copy that knows its all-to-all better; `find_topologies` knows only what shortest paths reach.

        Parameters
        ----------
        gap : number
            How far apart the two numbers of `all_to_all` may be, as a part of the larger one.

        Returns
        -------
        Candidate
            Within seconds for 1024 nodes with 4 links each, where many are alike; see `all_to_all_rate_bounds`.
        """
        from ..pairs.direct_connect_rate import all_to_all_rate_bounds

        return self.changed(all_to_all=all_to_all_rate_bounds(self.graph(), gap))

    def _checked(self, direction: Direction, own: Callable[[], StepSchedule] | None, cost: StepCost) -> StepSchedule:
        """Verify the recipe's own schedule, or the best breadth-first one, and what it costs."""
        from ..bfb.bfb import bfb_schedule

        graph = self.graph()
        made = bfb_schedule(graph, direction=direction) if own is None else own()
        verified_step_loads(made, Topology.from_graph(graph))
        if (reached := step_cost(graph, made)) != cost:
            what = "allgather" if direction == "broadcast" else "reduce-scatter"
            raise CertificateError(
                f"the {what} of {self.name} takes {reached.steps} steps and {reached.bandwidth_factor} M/B; "
                f"expected {cost.steps} and {cost.bandwidth_factor}"
            )
        return made

    def runtime(
        self,
        collective: AnyCollective = "allreduce",
        size: int | str = "1M",
        *,
        alpha: Exact = 10,
        node_bandwidth: Exact = "12.5",
    ) -> Fraction:
        """Predict the time of a collective by the alpha-beta model.

        Raises `UnsupportedError` if the collective is another, or an all-to-all whose throughput was not asked for.

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
        """
        return self.time_of(collective, Workload.read(size, alpha, node_bandwidth))

    def time_of(self, collective: AnyCollective, workload: Workload) -> Fraction:
        """Predict as `runtime` does, for a workload that was read before."""
        collective = as_collective(collective, (*EVERY_ROOT, ALL_TO_ALL), "nothing is known of")
        if collective.in_pairs:
            if self.all_to_all is None:
                raise UnsupportedError(
                    "all-to-all was left out of this search; search again with all_to_all=True, or for fewer nodes"
                )
            return workload.transfer * Fraction(self.degree, self.nodes) / self.all_to_all[0]
        if collective.has_two_phases:
            steps, factor = self.allreduce_cost
        else:
            steps, factor = self.reduce_scatter_cost if collective.reduces else self.cost
        return steps * workload.alpha + factor * workload.transfer

    def figures(self) -> dict[str, object]:
        """List what is known but for all-to-all, under the names that tables of candidates have for it.

        Returns
        -------
        dict of str to object
            See `Frontier.to_frame`.
        """
        gathered, reduced = self.cost, self.reduce_scatter_cost
        return {
            "nodes": self.nodes,
            "degree": self.degree,
            "name": self.name,
            "steps": gathered.steps,
            "bandwidth_factor": float(gathered.bandwidth_factor),
            "bandwidth_factor_exact": gathered.bandwidth_factor,
            "reduce_scatter_steps": reduced.steps,
            "reduce_scatter_factor": float(reduced.bandwidth_factor),
            "reduce_scatter_factor_exact": reduced.bandwidth_factor,
            "breadth_first": self.breadth_first,
            "reduce_scatter_breadth_first": self.reduce_scatter_breadth_first,
        }

    def __repr__(self) -> str:
        """Name and cost in angle brackets; that of a reduce-scatter if it is another."""
        text = _text(self.cost)
        if self.reduce_scatter_cost != self.cost:
            text += f"; reduce-scatter {_text(self.reduce_scatter_cost)}"
        return f"<Candidate {self.name}: {text}>"


def is_no_worse(one: StepCost, other: StepCost) -> bool:
    """Whether a schedule takes no more steps and no more data per link than another."""
    return one.steps <= other.steps and one.bandwidth_factor <= other.bandwidth_factor


def _text(cost: StepCost) -> str:
    return f"{cost.steps} steps, {cost.bandwidth_factor} M/B"
