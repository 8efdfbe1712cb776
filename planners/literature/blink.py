"""Blink (Wang et al., MLSys 2020): spanning trees from a single root, packed optimally, also with switches.

The baseline that ForestColl (section 6.2) calls "Blink+Switch".  Broadcast and reduce are optimal.  Allreduce reduces
and broadcasts along the same trees at the same time, which may beat a reduce-scatter followed by an allgather, and may
not (docs/explanation/refutations.md).  Allgather is an allreduce without additions, as Blink suggests, but data is not
sent back to where it came from: a shard climbs the trees from its rank and comes down everywhere else.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...errors import UnsupportedError
from ...formulations.allreduce_cuts import opposite_links
from ...schedules import BROADCAST, TREE_COLLECTIVES, Forest
from ...schedules.collective import AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..plans.stages import Trace
from ..trees.forest import best_forest, bottleneck
from ..trees.problem import TreeProblem, check_request, shard_weights, tree_problem
from .fixed_pattern import plan_baseline


@register_planner("blink", TREE_COLLECTIVES)
def plan_blink(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan optimal trees that all have one root (Blink)."""
    collective = check_request(topology, collective)
    single = collective.has_one_root
    through = shard_weights(topology, BROADCAST, root if single or root is not None else 0, None)
    if collective.is_sharded and opposite_links(topology) is None:
        raise UnsupportedError(
            f"Blink's {collective} needs symmetric bidirectional links, and {topology} has links without a reverse "
            "link of the same bandwidth; use another planner"
        )

    def build(problem: TreeProblem) -> Forest:
        from_root = tree_problem(problem.topology, problem.direction, through)
        packed = best_forest(from_root, bottleneck(from_root), None, Trace())
        return _from_every_rank(packed, problem) if collective.is_sharded else packed

    options: dict[str, int | str] = {} if single or root is None else {"root": through.index(1)}
    return plan_baseline(
        topology, collective, "blink", build, root=root if single else None, weights=weights, options=options
    )


def _from_every_rank(packed: Forest, problem: TreeProblem) -> Forest:
    """Reroot the trees at every rank with a shard: hops towards the old root are reversed."""
    paths = [packed.path(route) for route in range(len(packed.path_starts) - 1)]
    both = [*paths, *(path[::-1] for path in paths)]
    roots = np.flatnonzero(problem.root_weights)
    routes = np.repeat(packed.routes, len(roots), axis=0)
    for row, root in zip(routes, np.tile(roots, packed.num_trees), strict=True):
        rank, route = int(root), int(row[root])
        row[root] = -1
        while route >= 0:
            rank = paths[route][0]
            following = int(row[rank])
            row[rank], route = len(paths) + route, following
    return replace(
        packed,
        roots=np.tile(roots, packed.num_trees),
        weights=np.outer(packed.weights, problem.root_weights[roots]).ravel(),
        routes=routes,
        path_starts=np.cumsum([0, *map(len, both)], dtype=np.int64),
        path_nodes=np.array([node for path in both for node in path], dtype=np.int64),
        root_weights=problem.root_weights,
    )
