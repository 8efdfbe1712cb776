"""ForestColl planner: throughput-optimal spanning trees for every collective, on any topology with switches.

Allgather and broadcast are forests of out-trees; reduce-scatter and reduce are the same on the transposed network with
all communication reversed; allreduce is a reduce-scatter whose sums an allgather broadcasts (ForestColl section 5.7;
pipeline paper, appendices A and B).
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from ...errors import SolverError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import (
    ALLGATHER,
    REDUCE_SCATTER,
    TREE_COLLECTIVES,
    Allreduce,
    Bound,
    Collective,
    Cut,
    Forest,
    TreeSchedule,
)
from ...schedules import in_network as branched_at_switches
from ...schedules.collective import AnyCollective
from ...solvers.flows.bottleneck import Bottleneck
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from .forest import best_forest, bottleneck
from .problem import TreeProblem, check_request, checked_count, cut_problem, shard_weights, tree_options, tree_problem
from .strength import allreduce_bound, node_names, unchecked_bound


def bound_trees(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Bound:
    """Bound the rate of any schedule of a collective, with the cut that proves it."""
    collective = check_request(topology, collective)
    shards = shard_weights(topology, collective, root, weights)
    tree_problem(topology, collective.phases[-1], shards)  # refuses ranks out of reach, and unbalanced switches
    return bound_cuts(topology, collective, shards)


def bound_cuts(topology: Topology, collective: Collective, shards: tuple[int, ...]) -> Bound:
    """Bound the rate as `bound_trees` does, also where switches are unbalanced; integer weights of the shards."""
    if collective.has_two_phases:
        return unchecked_bound(topology)
    (direction,) = collective.phases
    problem = cut_problem(topology, direction, shards)
    return _tree_bound(problem, collective, shards, bottleneck(problem))


@register_planner("forestcoll", TREE_COLLECTIVES)
def plan_trees(
    topology: Topology,
    collective: AnyCollective,
    *,
    trees_per_root: int | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    in_network: bool = True,
) -> Plan:
    """Plan throughput-optimal spanning trees, one set per rank (ForestColl).

    With `in_network`, trees branch at switches that can, which takes traffic off the links to them.
    """
    collective = check_request(topology, collective)
    shards = shard_weights(topology, collective, root, weights)
    count = None if trees_per_root is None else checked_count(trees_per_root)
    trace = Trace()
    schedule: TreeSchedule
    if collective.has_two_phases:
        schedule, bound = _allreduce(topology, count, trace)
    else:
        schedule, bound = _directed_plan(topology, collective, shards, count, trace)
    if in_network and topology.multicast | topology.aggregation:
        with trace.stage("switches"):
            schedule = _branched(schedule, topology)
    options = tree_options(in_network, count)
    plan = proved_plan(topology, collective, schedule, "forestcoll", options, trace, bound)
    if count is None and not collective.has_two_phases and plan.gap != 0:
        raise SolverError(f"the plan misses its bound by {plan.gap}, which Theorems 6 and 10 rule out")
    return plan


def _branched(schedule: TreeSchedule, topology: Topology) -> TreeSchedule:
    """Let trees branch at switches that can, unless what these loop back makes the schedule slower."""
    if not isinstance(schedule, Allreduce):
        return branched_at_switches(schedule, topology)
    broadcast = branched_at_switches(schedule.broadcast, topology)
    if schedule.reduce.routes is schedule.broadcast.routes and topology.multicast == topology.aggregation:
        reduction = replace(broadcast, direction="reduce")
    else:
        reduction = branched_at_switches(schedule.reduce, topology)
    branched = Allreduce(reduction, broadcast)
    return branched if branched.inverse_rate(topology) <= schedule.inverse_rate(topology) else schedule


def _directed_plan(
    topology: Topology, collective: Collective, shards: tuple[int, ...], count: int | None, trace: Trace
) -> tuple[Forest, Bound]:
    with trace.stage("bottleneck"):
        (direction,) = collective.phases
        problem = tree_problem(topology, direction, shards)
        best = bottleneck(problem)
    return best_forest(problem, best, count, trace), _tree_bound(problem, collective, shards, best)


def _tree_bound(problem: TreeProblem, collective: Collective, shards: tuple[int, ...], best: Bottleneck) -> Bound:
    rate = Fraction(best.supply, best.capacity) / problem.topology.arrays.unit
    return Bound(problem.topology, collective, rate, Cut(node_names(problem.topology, best.source_side)), shards)


def _allreduce(topology: Topology, count: int | None, trace: Trace) -> tuple[Allreduce, Bound]:
    """Plan an allreduce as reduce-scatter and allgather; on a symmetric network, along the same trees."""
    with trace.stage("bottleneck"):
        bound = allreduce_bound(topology)
    broadcast, _ = _directed_plan(topology, ALLGATHER, (), count, trace)
    if opposite_links(topology) is not None:
        return Allreduce(replace(broadcast, direction="reduce"), broadcast), bound
    reduction, _ = _directed_plan(topology, REDUCE_SCATTER, (), count, trace)
    return Allreduce(reduction, broadcast), bound
