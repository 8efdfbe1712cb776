"""One maximum flow into every sink of a supplied network: which sinks fall short, and the cuts around them."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from .bottleneck import supplied_network
from .max_flow import augment, mark_reaching

__all__ = ["SinkSweep", "sweep_sinks"]

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]


class SinkSweep(NamedTuple):
    """What `sweep_sinks` found.

    Attributes
    ----------
    lacking : ndarray of int64, shape (sinks,)
        By how much each sink falls short of all supplies.
    reaching : ndarray of bool, shape (sinks, nodes)
        The smallest sink side of a minimum cut: the nodes that can still reach the sink.  For a sink that lacks nothing
        it is the smallest *tight* set around the sink, the whole network if there is none.
    """

    lacking: IntArray
    reaching: BoolArray


def sweep_sinks(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, num_sinks: int
) -> SinkSweep:
    """Compute a maximum flow from all supplies into each of the nodes ``0 .. num_sinks - 1``.

    Parameters
    ----------
    num_nodes : int
        Nodes are numbered from 0, sinks first.
    tails, heads, capacities : ndarray of int64, shape (links,)
        Links, not parallel.
    supplies : ndarray of int64, shape (sources,)
        What each of the first nodes has to send; there may be more sources than sinks.
    num_sinks : int
        At most the number of sources.

    Returns
    -------
    SinkSweep

    Raises
    ------
    CapacityOverflowError
        If the capacities add up to 2^62 or more.
    """
    network = supplied_network(num_nodes, tails, heads, capacities)
    offers = network.capacities.copy()
    source_arcs = len(network.heads) - 2 * num_nodes
    offers[source_arcs : source_arcs + 2 * len(supplies) : 2] = supplies
    lacking, reaching = _sweep(network.first, network.following, network.heads, offers, num_sinks, int(supplies.sum()))
    return SinkSweep(lacking, reaching)


@numba.njit(cache=True, nogil=True)
def _sweep(
    first: IntArray, following: IntArray, heads: IntArray, capacities: IntArray, num_sinks: int, needed: int
) -> tuple[IntArray, BoolArray]:
    nodes = len(first)
    scratch = np.empty((4, nodes), dtype=np.int64)
    lacking = np.zeros(num_sinks, dtype=np.int64)
    reaching = np.zeros((num_sinks, nodes - 1), dtype=np.bool_)
    residual = np.empty_like(capacities)
    for sink in range(num_sinks):
        residual[:] = capacities
        lacking[sink] = needed - augment(
            first,
            following,
            heads,
            residual,
            nodes - 1,
            sink,
            needed,
            scratch[0],
            scratch[1],
            scratch[2],
            scratch[3],
        )
        mark_reaching(first, following, heads, residual, sink, -1, scratch[0], scratch[2])
        for node in range(nodes - 1):
            reaching[sink, node] = scratch[0, node] >= 0
    return lacking, reaching
