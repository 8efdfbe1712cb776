"""Maximum flows from all supplies into every sink: deficits and minimum cuts."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray
from .max_flow import FlowNetwork, distances_to_sink, paired_network
from .push_relabel import unmet_demand, workspace


class SinkSweep(NamedTuple):
    """Deficits and minimum cuts of all sinks."""

    deficit: IntArray  # int64 (sinks,): supplies minus maximum flow into each sink
    # bool (sinks, nodes): the smallest sink side of a minimum cut: the nodes that reach the sink in the residual
    # network.  At deficit 0 it is the smallest *tight* set around the sink, the whole network if there is none.
    sink_sides: BoolArray


def sweep_sinks(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, num_sinks: int
) -> SinkSweep:
    """Compute a maximum flow from all supplies into each of the nodes ``0 .. num_sinks - 1``."""
    network = paired_network(num_nodes, tails, heads, capacities)
    sweep = SinkSweep(np.zeros(num_sinks, dtype=np.int64), np.zeros((num_sinks, num_nodes), dtype=np.bool_))
    for begin, end in progress.batches(num_sinks):
        _sweep(network, supplies, begin, end, *sweep)
    return sweep


@numba.njit(cache=True, nogil=True)
def _sweep(
    network: FlowNetwork, supplies: IntArray, begin: int, end: int, deficit: IntArray, sink_sides: BoolArray
) -> None:
    """Fill in the rows of sinks ``begin .. end - 1``."""
    space = workspace(len(network.first_arc))
    for sink in range(begin, end):
        residual = network.capacities.copy()
        deficit[sink] = unmet_demand(network, residual, supplies, sink, space)
        if deficit[sink] == 0:
            labels, queue = space.labels, space.queue
            distances_to_sink(network.first_arc, network.next_arc, network.heads, residual, sink, -1, labels, queue)
        sink_sides[sink] = space.labels >= 0
