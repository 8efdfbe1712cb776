"""Candidates of the topology finder: topologies with schedules of known cost, and the workload to time them for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import CertificateError, UnsupportedError
from ...schedules import StepAllreduce, StepCost, StepSchedule, as_bytes, step_cost, verified_loads
from ...schedules.collective import ALL_TO_ALL, EVERY_ROOT, AnyCollective, Direction, as_collective
from ...support.packages import Viewed
from ...support.quantities import Exact, as_factor, as_latency
from ...topologies import DirectGraph, Topology, bandwidth_optimum, moore_steps, undirected_moore_steps
from .constructions import Construction

if TYPE_CHECKING:
    from ..plans.plan import Plan

NS_PER_US = 1000
Calls = Mapping[AnyCollective, Mapping[int | str, Exact]]
"""How many calls of a workload there are by collective and size in bytes."""


class Workload(NamedTuple):
    """Workload for which candidates are timed."""

    num_bytes: int  # M: bytes in all of an allgather, bytes per rank of an allreduce, a reduce-scatter or an all-to-all
    alpha: Fraction  # µs per step
    node_bandwidth: Fraction  # B: GB/s of all ports of a node together

    @classmethod
    def read(cls, size: int | str, alpha: Exact, node_bandwidth: Exact) -> Workload:
        """Parse a user's values; raises as `as_bytes`, `as_latency` and `as_factor`."""
        return cls(as_bytes(size), as_latency(alpha, "a step"), as_factor(node_bandwidth, "node_bandwidth"))

    @property
    def transfer(self) -> Fraction:
        """M/B in µs."""
        return self.num_bytes / (self.node_bandwidth * NS_PER_US)


class FrontierBounds(NamedTuple):
    """Bounds for all topologies of a size and degree."""

    steps: int  # T_L in alpha, by the Moore bound, which no network with one-way links meets in two or more steps
    bandwidth_factor: Fraction  # T_B in M/B: (N - 1)/N
    all_to_all: Fraction  # throughput in bandwidths of one link, with as many nodes as near as the Moore bound says

    @classmethod
    def of(cls, nodes: int, degree: int, *, bidirectional: bool) -> FrontierBounds:
        """Compute the bounds of a size and degree, for topologies with opposite links or for any."""
        steps = (undirected_moore_steps if bidirectional else moore_steps)(nodes, degree)
        branching = degree - 1 if bidirectional else degree
        left, layer, distance, hops = nodes - 1, degree, 0, 0
        while left:
            distance += 1
            # Beyond a single two-way link there is nothing; whoever is left is at least one hop further.
            reached = min(layer, left) if layer else left
            hops += distance * reached
            left, layer = left - reached, layer * branching
        # W. G. Bridges and S. Toueg, "On the impossibility of directed Moore graphs", 1980.
        steps += not bidirectional and min(degree, steps) > 1 and moore_steps(nodes + 1, degree) > steps
        return cls(steps, bandwidth_optimum(nodes), Fraction(degree, hops))


@dataclass(frozen=True)
class Candidate(Viewed):
    """A topology with an allgather and a reduce-scatter of known cost; `find_topologies` finds them.

    Attributes
    ----------
    nodes, degree : int
        N and d.
    construction : Construction
        How the topology is constructed.
    cost, reduce_scatter_cost : StepCost
        T_L and T_B of an allgather, and of a reduce-scatter on the same graph, exactly: the latter is that of an
        allgather on the transposed graph (Corollary 1.1).  An allreduce is both: `allreduce_cost`.
    breadth_first, reduce_scatter_breadth_first : bool
        Whether these are costs of the best breadth-first broadcast, or of the construction's own schedule.
    all_to_all : tuple of Fraction, or None
        Throughput of an all-to-all per pair of ranks, in bandwidths of one link, as f of the direct-connect paper's
        linear program (3): what a flow reaches, and an upper bound.  They are equal on vertex-transitive and on small
        graphs, and 1 % apart at most, or where it would take too long those of shortest paths in equal parts and of
        distances.  None if it was not asked for, or even that would take too long.
    """

    nodes: int
    degree: int
    construction: Construction
    cost: StepCost
    reduce_scatter_cost: StepCost
    breadth_first: bool
    reduce_scatter_breadth_first: bool
    all_to_all: tuple[Fraction, Fraction] | None = None

    @property
    def name(self) -> str:
        """The construction in the paper's notation."""
        return self.construction.name

    @property
    def allreduce_cost(self) -> StepCost:
        """T_L and T_B of the reduce-scatter and the allgather together."""
        one, other = self.reduce_scatter_cost, self.cost
        return StepCost(one.steps + other.steps, one.bandwidth_factor + other.bandwidth_factor)

    @cached_property
    def _graph(self) -> DirectGraph:
        return self.construction.graph()

    def changed(self, **changes: Any) -> Candidate:
        """Return a copy with other attributes, which does not build the graph again."""
        copy = replace(self, **changes)
        copy.__dict__.update({name: graph for name, graph in self.__dict__.items() if name == "_graph"})
        return copy

    def graph(self) -> DirectGraph:
        """Build the graph."""
        return self._graph

    def topology(self, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
        """Build the network to plan on, with links of `bandwidth` GB/s and `latency` µs."""
        return Topology.from_graph(self.graph(), bandwidth=bandwidth, latency=latency)

    def schedule(self) -> StepSchedule:
        """Build the allgather of `cost`, verified on this graph; `CertificateError` would be a defect."""
        return self._checked("broadcast", self.breadth_first, self.cost)

    def reduce_scatter_schedule(self) -> StepSchedule:
        """Build the reduce-scatter of `reduce_scatter_cost`, verified on this graph."""
        return self._checked("reduce", self.reduce_scatter_breadth_first, self.reduce_scatter_cost)

    def allreduce_schedule(self) -> StepAllreduce:
        """Build the allreduce of `allreduce_cost`: the reduce-scatter and then the allgather."""
        return StepAllreduce(self.reduce_scatter_schedule(), self.schedule())

    def plan(self, collective: AnyCollective = "allreduce", *, bandwidth: Exact = 1, latency: Exact = 0) -> Plan:
        """Make a verified plan of the candidate's schedule, to save, export or run.

        The collective is ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, or ``"all_to_all"``, which the planner
        of multicommodity flows plans; links have `bandwidth` GB/s and `latency` µs.

        Examples
        --------
        >>> from collopt.planners import find_topologies
        >>> print(find_topologies(8, 2)[0].plan("allgather", bandwidth=25))
        allgather on Diamond by finder: 57.14 GB/s, optimal; 3 steps, 2 chunks per shard
        """
        from ..all_to_all.multicommodity import plan_pairs
        from ..bounds import plan_of_schedule

        collective = as_collective(collective, (*EVERY_ROOT, ALL_TO_ALL), "a candidate has no schedule for")
        topology = self.topology(bandwidth=bandwidth, latency=latency)
        if collective.in_pairs:
            return plan_pairs(topology, collective)
        build = self.reduce_scatter_schedule if collective.reduces else self.schedule
        schedule = self.allreduce_schedule() if collective.has_two_phases else build()
        return plan_of_schedule(topology, collective, schedule, planner="finder", options={"construction": self.name})

    def bounded(self, gap: Exact = Fraction(1, 100)) -> Candidate:
        """Return a copy whose bounds in `all_to_all` differ by at most `gap`, relative to the larger one."""
        from ..all_to_all.flows import all_to_all_rate_bounds

        return self.changed(
            all_to_all=all_to_all_rate_bounds(self.graph(), gap, symmetries=self.construction.symmetries())
        )

    def _checked(self, direction: Direction, breadth_first: bool, cost: StepCost) -> StepSchedule:
        """Verify the construction's own schedule, or the best breadth-first one, and its cost."""
        from .bfb import bfb_schedule

        graph = self.graph()
        schedule = bfb_schedule(graph, direction=direction) if breadth_first else self.construction.schedule(direction)
        verified_loads(schedule, Topology.from_graph(graph))
        if (reached := step_cost(graph, schedule)) != cost:
            what = "allgather" if direction == "broadcast" else "reduce-scatter"
            raise CertificateError(
                f"the {what} of {self.name} takes {reached.steps} steps and {reached.bandwidth_factor} M/B; "
                f"expected {cost.steps} and {cost.bandwidth_factor}"
            )
        return schedule

    def runtime(
        self,
        collective: AnyCollective = "allreduce",
        size: int | str = "1M",
        *,
        alpha: Exact = 10,
        node_bandwidth: Exact = "12.5",
    ) -> Fraction:
        """Predict the time of a collective by the alpha-beta model, in µs.

        `size` M is in bytes of all shards of an allgather together, or per rank of the others; `alpha` in µs per step;
        `node_bandwidth` B in GB/s of all ports of a node.  An all-to-all takes its lower bound of throughput, without
        latency.
        """
        return self.time_of(collective, Workload.read(size, alpha, node_bandwidth))

    def time_of(self, collective: AnyCollective, workload: Workload) -> Fraction:
        """Predict as `runtime` does, for a `Workload`."""
        collective = as_collective(collective, (*EVERY_ROOT, ALL_TO_ALL), "nothing is known of")
        if collective.in_pairs:
            if self.all_to_all is None:
                raise UnsupportedError("all-to-all was left out of this search; search with all_to_all=True")
            return workload.transfer * Fraction(self.degree, self.nodes) / self.all_to_all[0]
        if collective.has_two_phases:
            steps, factor = self.allreduce_cost
        else:
            steps, factor = self.reduce_scatter_cost if collective.reduces else self.cost
        return steps * workload.alpha + factor * workload.transfer

    def time_of_calls(self, calls: Calls, workload: Workload) -> Fraction:
        """Predict the total time of calls by collective and size, one after the other; sizes as for `runtime`."""
        if not any(calls.values()):
            raise UnsupportedError('there are no calls; expected some, such as {"allreduce": {"1M": 1}}')
        total = Fraction(0)
        for collective, sizes in calls.items():
            for size, count in sizes.items():
                time = self.time_of(collective, workload._replace(num_bytes=as_bytes(size)))
                total += as_factor(count, "the number of calls") * time
        return total

    def figures(self) -> dict[str, object]:
        """Return all figures except those of all-to-all, named as in `Frontier.to_frame`."""
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
