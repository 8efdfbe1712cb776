"""One maximum flow of all supplies into every sink: which sinks fall short, and the cuts around them."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray
from .max_flow import FlowNetwork, mark_reaching, paired_network
from .push_relabel import lacking_at, workspace

__all__ = ["SinkSweep", "sweep_sinks"]


class SinkSweep(NamedTuple):
    """What `sweep_sinks` found.

    `lacking` (int64 (sinks,)): By how much each sink falls short of all supplies.
    `reaching` (bool (sinks, nodes)): The smallest sink side of a minimum cut: the nodes that can still reach the sink.
        For a sink that lacks nothing it is the smallest *tight* set around the sink, the whole network if there is
        none.
    """

    lacking: IntArray
    reaching: BoolArray


def sweep_sinks(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, num_sinks: int
) -> SinkSweep:
    """Compute a maximum flow from all supplies into each of the nodes ``0 .. num_sinks - 1``.

    Shapes: `tails`, `heads`, `capacities` int64 (links,); `supplies` int64 (sources,).
    """
    network = paired_network(num_nodes, tails, heads, capacities)
    sweep = SinkSweep(np.zeros(num_sinks, dtype=np.int64), np.zeros((num_sinks, num_nodes), dtype=np.bool_))
    for begin, end in progress.batches(num_sinks):
        _sweep(network, supplies, begin, end, *sweep)
    return sweep


@numba.njit(cache=True, nogil=True)
def _sweep(
    network: FlowNetwork, supplies: IntArray, begin: int, end: int, lacking: IntArray, reaching: BoolArray
) -> None:
    """Fill in the rows of some sinks."""
    space = workspace(len(network.first))
    for sink in range(begin, end):
        residual = network.capacities.copy()
        lacking[sink] = lacking_at(network, residual, supplies, sink, space)
        if lacking[sink] == 0:
            labels, queue = space.labels, space.queue
            mark_reaching(network.first, network.following, network.heads, residual, sink, -1, labels, queue)
        reaching[sink] = space.labels >= 0
