"""Ring algorithm (Patarasuk and Yuan, JPDC 69(2), 2009), as NCCL and RCCL run it.

In an allgather each shard follows each ring from its root to the rank before it; reduce-scatter is the reverse,
allreduce both, and broadcast one shard alone.  Nearly all shards cross every cut, wherever they come from: that is what
a ring loses where a few boxes have fast networks inside (ForestColl, Figure 2).
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ...errors import TopologyError, UnsupportedError
from ...schedules import Forest
from ...schedules.traffic.collective import AnyCollective
from ...support.validation import as_whole, shown
from ...topologies import Topology
from ..plans.plan import Plan
from ..trees.forest import bottleneck
from ..trees.problem import TreeProblem, tree_problem
from .fixed_pattern import Hops, LinkLoads, find_boxes, forest_along, plan_baseline
from .ring_search import MAX_CHANNELS, find_rings, ring_along, sharing_time
from .ring_walk import Ring


def plan_ring(
    topology: Topology,
    collective: AnyCollective,
    *,
    channels: int | None = None,
    order: str | Sequence[int | str] | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
) -> Plan:
    """Plan a collective with rings."""
    options: dict[str, int | str] = {}
    ranks: list[int] = []
    if order is not None:
        if channels is not None:
            raise UnsupportedError("order describes one ring; leave channels out")
        ranks = _checked_order(topology, order)
        options["order"] = ",".join(map(str, ranks))
    if channels is not None:
        options["channels"] = as_whole(channels, "channels", most=MAX_CHANNELS)

    def build(problem: TreeProblem) -> Forest:
        return _forest(problem, _along(problem, ranks) if ranks else _search(problem, channels))

    return plan_baseline(topology, collective, "ring", build, root=root, weights=weights, options=options)


def _search(problem: TreeProblem, channels: int | None) -> list[Ring]:
    """Search for rings box by box; as rings cross every cut, the bottleneck cut bounds their rate."""
    hops, ranks = Hops(problem), problem.topology.num_ranks
    narrowest = bottleneck(tree_problem(problem.topology, problem.direction, (1, *[0] * (ranks - 1))))
    return find_rings(hops, find_boxes(hops), channels, Fraction(narrowest.supply, narrowest.capacity))


def _along(problem: TreeProblem, ranks: list[int]) -> list[Ring]:
    """The ring of a given order, and its reverse if that is possible and better."""
    hops, uses = Hops(problem), LinkLoads(problem.capacities)
    # With reductions the network is turned around, and data still runs in the order given.
    ring = ring_along(hops, ranks if problem.direction == "broadcast" else ranks[::-1], uses)
    try:
        both = [ring, ring_along(hops, ring.ranks[::-1], uses)]
    except UnsupportedError:
        return [ring]
    return min([ring], both, key=lambda rings: sharing_time(hops, rings))


def _forest(problem: TreeProblem, rings: list[Ring]) -> Forest:
    """One path per shard and ring, from the shard's root all the way round."""
    count, ranks = len(rings), problem.topology.num_ranks
    hops = np.empty((count, ranks), dtype=np.int32)
    for number, ring in enumerate(rings):
        hops[number, np.roll(ring.ranks, -1)] = number * ranks + np.arange(ranks)
    roots = np.flatnonzero(problem.root_weights)
    return forest_along(
        problem,
        count,
        np.repeat(roots, count),
        np.repeat(problem.root_weights[roots], count),
        np.tile(hops, (len(roots), 1)),
        [route for ring in rings for route in ring.routes],
    )


def _checked_order(topology: Topology, order: str | Sequence[int | str]) -> list[int]:
    entries: Any = [part.strip() for part in order.split(",")] if isinstance(order, str) else order
    if isinstance(entries, np.ndarray) and entries.ndim == 1:
        entries = entries.tolist()
    if not isinstance(entries, (list, tuple)):
        raise UnsupportedError(f"order is {shown(order)}; expected the ranks one after the other, such as '0,2,1,3'")
    numbers = [int(entry) if isinstance(entry, str) and entry.isdecimal() else entry for entry in entries]
    try:
        chosen = topology.restrict(numbers).compute_nodes
    except TopologyError as error:
        raise UnsupportedError(f"order does not name ranks: {error}") from None
    if len(chosen) != topology.num_ranks:
        raise UnsupportedError(f"order has {len(chosen)} ranks; expected all {topology.num_ranks}, each once")
    return [topology.node_index[name] for name in chosen]
