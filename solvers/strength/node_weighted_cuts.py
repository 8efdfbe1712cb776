"""Minimum cuts around one rank of a network of bidirectional links, with node weights for the ranks inside.

Without negative weights this is the minimum cut around the rank.  In `collopt.solvers.strength.strength` a rank with
surplus demand has a negative weight, which draws it into the cut.
"""

from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray
from ...support.compiling.kernels import kernel
from ..flow.max_flow import CAPACITY_LIMIT, FlowNetwork, augment, distances_to_sink, flow_network


class NodeWeightedCuts(NamedTuple):
    """A flow network whose arcs are the links, then one arc per node to a sink and one from a source."""

    network: FlowNetwork  # the last nodes are the sink and the source
    num_links: int  # link ``i`` is the arcs ``2 i`` and ``2 i + 1``
    num_ranks: int  # ranks are the first nodes; then come switches
    residual: IntArray  # int64 (arcs,), of the last cut
    scratch: IntArray  # int64 (4, nodes): ``scratch[0] < 0`` on the inside of the last cut


def node_weighted_cuts(
    num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray
) -> NodeWeightedCuts:
    """Build a network for node-weighted cuts."""
    nodes, nothing = np.arange(num_nodes), np.zeros(num_nodes, dtype=np.int64)
    network = flow_network(
        num_nodes + 2,
        np.concatenate([tails, nodes, np.full(num_nodes, num_nodes + 1)]),
        np.concatenate([heads, np.full(num_nodes, num_nodes), nodes]),
        np.concatenate([capacities, nothing, nothing]),
        np.concatenate([capacities, nothing, nothing]),
    )
    scratch = np.empty((4, num_nodes + 2), dtype=np.int64)
    return NodeWeightedCuts(network, len(tails), num_ranks, np.empty_like(network.capacities), scratch)


@kernel
def min_cut_around(cuts: NodeWeightedCuts, factor: int, node_weights: IntArray, rank: int, active: BoolArray) -> int:
    """Minimize ``factor c(S) + weight(S without rank)`` over sets S with `rank` inside and inactive nodes outside.

    The largest minimizer is left where ``cuts.scratch[0] < 0``.  Shapes: `node_weights` int64 (ranks,); `active` bool
    (nodes,).
    """
    heads, capacities, num_links, residual = cuts.network.heads, cuts.network.capacities, cuts.num_links, cuts.residual
    sink = len(cuts.network.first_arc) - 2
    costs = np.zeros(sink, dtype=np.int64)  # of having a node inside
    costs[: cuts.num_ranks] = node_weights
    costs[rank] = 0
    residual[:] = 0
    for arc in range(0, 2 * num_links, 2):
        head, tail = heads[arc], heads[arc + 1]
        amount = factor * capacities[arc]
        if active[tail] and active[head]:
            residual[arc] = residual[arc + 1] = amount
        elif active[tail]:
            costs[tail] += amount
        elif active[head]:
            costs[head] += amount
    value: int = 0
    for node in range(sink):
        out = 2 * (num_links + node)
        if active[node] and costs[node] >= 0:
            residual[out] = costs[node]
        elif active[node]:
            residual[out + 2 * sink] = -costs[node]
            value += costs[node]
    residual[2 * (num_links + rank + sink)] = CAPACITY_LIMIT
    value += augment(cuts.network, residual, sink + 1, sink, CAPACITY_LIMIT, cuts.scratch)
    return value


@kernel
def add_switches(cuts: NodeWeightedCuts, parts: int, sets: IntArray) -> None:
    """Label switches in disjoint `sets`, int64 (nodes,), by the part, from 0, whose smallest minimum cut contains them.

    Of two sets that share switches, neither has a larger cut without them.
    """
    network, residual, scratch = cuts.network, cuts.residual, cuts.scratch
    sink = len(network.first_arc) - 2
    for part in range(parts):
        residual[:] = network.capacities
        # The part is the sink: the nodes that reach it in the residual network are the smallest set.
        for rank in range(cuts.num_ranks):
            out = 2 * (cuts.num_links + rank)
            residual[out if sets[rank] == part else out + 2 * sink] = CAPACITY_LIMIT
        augment(network, residual, sink + 1, sink, CAPACITY_LIMIT, scratch)
        distances_to_sink(network, residual, sink, -1, scratch[0], scratch[2])
        for node in range(cuts.num_ranks, sink):
            if scratch[0, node] >= 0:
                sets[node] = part
