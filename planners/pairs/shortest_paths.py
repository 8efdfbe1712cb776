"""All-to-all the way libraries do it: everything at once, each pair's data on one shortest path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...schedules.traffic.collective import AnyCollective
from ...support import progress
from ...support.arrays import IntArray
from ...support.seed import current_seed
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace
from .flows import check_pairs_reachable
from .multicommodity import as_pair_collective, bound_pairs, checked_traffic
from .step_orders import best_order

if TYPE_CHECKING:
    from ...solvers.paths.decomposition import Paths


def plan_shortest_paths(topology: Topology, collective: AnyCollective, *, traffic: Any = None) -> Plan:
    """Send everything at once, each part over one path that passes as few ranks as possible, then few switches."""
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic)
    check_pairs_reachable(topology, matrix)
    trace = Trace()
    with trace.stage("paths"):
        schedule = best_order(topology, matrix, 1, _shortest(topology, matrix), "hops")
    return proved_plan(
        topology, collective, schedule, "shortest-paths", {}, trace,
        lambda _: bound_pairs(topology, collective, **schedule.problem(collective)),
    )  # fmt: skip


def _shortest(topology: Topology, traffic: IntArray) -> Paths:
    """Walk back from all destinations at once, link by link, along trees of shortest paths."""
    from ...solvers.paths.decomposition import Paths

    sources, targets = np.nonzero(traffic * ~np.eye(len(traffic), dtype=np.bool_))
    links, hops = _last_links(topology), []
    tails, _, _, _ = topology.arrays
    at = targets
    while (away := at != sources).any():
        taken = np.where(away, links[sources, at], -1)
        hops.append(taken)
        at = np.where(away, tails[taken], at)
    table = np.array(hops[::-1]).T
    used = table >= 0
    starts = np.concatenate([[0], np.cumsum(used.sum(axis=1))]).astype(np.int64)
    return Paths(traffic[sources, targets], starts, table[used])


def _last_links(topology: Topology) -> IntArray:
    """For each rank the last link of a shortest path to each node, -1 for itself and what it cannot reach."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    tails, heads, _, _ = topology.arrays
    size = len(topology.nodes)
    # To pass another rank is dearer than to pass all switches.
    lengths = np.where(heads < topology.num_ranks, float(size), 1.0)
    before = np.empty((topology.num_ranks, size), dtype=np.int64)
    for source in progress.iterate(range(topology.num_ranks), topology.num_ranks):
        # Without a little noise, all ranks would take the same ones of equally short paths.
        noise = np.random.default_rng([source, current_seed()]).random(len(tails)) / (2 * size)
        graph = csr_array((lengths + noise, (tails, heads)), shape=(size, size))
        before[source] = dijkstra(graph, indices=source, return_predecessors=True)[1]
    known = tails * size + heads
    order = np.argsort(known)
    wanted = before * size + np.arange(size)
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    return np.where(before >= 0, order[place], -1)
