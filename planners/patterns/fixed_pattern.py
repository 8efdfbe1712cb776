"""What the planners share that fix their own pattern: from trees and routes to a plan with its bound, verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...formulations.allreduce_cuts import opposite_links
from ...schedules import Allreduce, Collective, Forest, TreeSchedule
from ...schedules.traffic.collective import AnyCollective
from ...support.arrays import IntArray
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.proving import verified_plan
from ..plans.stages import Trace
from ..trees.forestcoll import bound_trees
from ..trees.problem import TreeProblem, check_request, shard_weights, tree_problem
from .shortest_routes import Route


def plan_baseline(
    topology: Topology,
    collective: AnyCollective,
    planner: str,
    build: Callable[[TreeProblem], Forest],
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    options: Mapping[str, int | str] | None = None,
) -> Plan:
    """Plan a collective with trees of a planner's own making."""
    collective = check_request(topology, collective)
    trace = Trace()
    shards = shard_weights(topology, collective, root, weights)
    with trace.stage("bottleneck"):
        bound = bound_trees(topology, collective, root=root, weights=weights)
    with trace.stage("trees"):
        schedule = _schedule(topology, collective, shards, build)
    return verified_plan(topology, collective, schedule, planner, options or {}, trace, bound)


def forest_along(
    problem: TreeProblem,
    trees_per_root: int,
    roots: IntArray,
    weights: IntArray,
    hops: npt.NDArray[np.integer],
    routes: Sequence[Route],
) -> Forest:
    """Build a forest whose hops take given routes.

    Shapes: `roots`, `weights` int64 (trees,); `hops` (trees, ranks).
    """
    numbers = hops.astype(np.int32)
    numbers[np.arange(len(roots)), roots] = -1
    shards = np.zeros(problem.topology.num_ranks, dtype=np.int64)
    np.add.at(shards, roots, weights)
    return Forest(
        problem.topology.num_ranks,
        trees_per_root,
        np.asarray(roots, dtype=np.int64),
        np.asarray(weights, dtype=np.int64),
        numbers,
        np.cumsum([0, *(len(route.nodes) for route in routes)], dtype=np.int64),
        np.array([node for route in routes for node in route.nodes], dtype=np.int64),
        shards // trees_per_root,
        problem.direction,
    )


def _schedule(
    topology: Topology, collective: Collective, shards: tuple[int, ...], build: Callable[[TreeProblem], Forest]
) -> TreeSchedule:
    if not collective.has_two_phases:
        (direction,) = collective.phases
        return build(tree_problem(topology, direction, shards))
    broadcast = build(tree_problem(topology, "broadcast", shards))
    if opposite_links(topology) is not None:
        # Sums come in on the links that they go out on, turned around: as fast as any other trees of the kind.
        return Allreduce(replace(broadcast, direction="reduce"), broadcast)
    return Allreduce(build(tree_problem(topology, "reduce", shards)), broadcast)
