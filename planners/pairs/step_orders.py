"""Assignment of the hops of an all-to-all's paths to steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CapacityOverflowError, UnsupportedError
from ...schedules import FlowSchedule
from ...support.arrays import IntArray
from ...topologies import Topology

if TYPE_CHECKING:
    from ...solvers.paths.decomposition import Paths

ROWS = 16  # parts at most that the chunks of a path are cut into, so that they can pass one after the other
MAX_HOPS = 2**22  # hops, after cutting, beyond which rounds are not looked at by themselves

Order = Callable[["Paths", Topology], tuple["Paths", IntArray]]


def order_by_hops(paths: Paths, topology: Topology) -> tuple[Paths, IntArray]:
    """Assign the h-th hop of every path to step h."""
    _, heads, _, _ = topology.arrays
    at_rank = (heads[paths.links] < topology.num_ranks).astype(np.int64)
    before = np.cumsum(at_rank) - at_rank
    return paths, before - np.repeat(before[paths.starts[:-1]], np.diff(paths.starts))


def order_by_rounds(paths: Paths, topology: Topology) -> tuple[Paths, IntArray]:
    """Assign hops to many steps with few chunks per link, those with the longest remaining path first."""
    from ...solvers.paths.list_scheduling import list_schedule, split

    if topology.switch_nodes:
        raise UnsupportedError(
            f"order is 'rounds', but {topology} has switches, at which data does not wait; expected order 'hops', or "
            "direct links"
        )
    grain = _chunk_group(paths)
    parts, _ = split(paths, grain)
    return parts, list_schedule(parts, topology.arrays.capacities, batch=grain)


ORDERS: Mapping[str, Order] = {"hops": order_by_hops, "rounds": order_by_rounds}  # by name


def best_order(
    topology: Topology, traffic: IntArray, chunks_per_unit: int, paths: Paths, order: str | None
) -> FlowSchedule:
    """Choose the order with the least time, and build the schedule; `traffic` int64 (ranks, ranks)."""
    used = _nonempty(paths)

    def ordered(name: str) -> FlowSchedule:
        parts, steps = ORDERS[name](used, topology)
        return FlowSchedule(len(traffic), chunks_per_unit, traffic, parts.weights, *_nodes(parts, topology), steps)

    if order is not None:
        return ordered(order)
    large = int((-(-used.weights // _chunk_group(used)) * np.diff(used.starts)).sum()) > MAX_HOPS
    by_hop = ordered("hops")
    rate = by_hop.step_rate(topology)
    if topology.switch_nodes or large or rate == by_hop.inverse_rate(topology):
        return by_hop
    try:
        by_round = ordered("rounds")
    except CapacityOverflowError:
        return by_hop
    return by_round if by_round.step_rate(topology) < rate else by_hop


def _nonempty(paths: Paths) -> Paths:
    """Drop paths without chunks."""
    lengths = np.diff(paths.starts)
    keep = paths.weights > 0
    starts = np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64)
    return type(paths)(paths.weights[keep], starts, paths.links[np.repeat(keep, lengths)])


def _chunk_group(paths: Paths) -> int:
    """Number of chunks that are scheduled together."""
    return -(-int(paths.weights.max()) // ROWS)


def _nodes(paths: Paths, topology: Topology) -> tuple[IntArray, IntArray]:
    """List the nodes of paths: the tail of the first link, and the heads of all."""
    tails, heads, _, _ = topology.arrays
    starts = paths.starts + np.arange(len(paths.starts))
    nodes = np.empty(len(paths.links) + len(paths.weights), dtype=np.int64)
    firsts = np.zeros(len(nodes), dtype=np.bool_)
    firsts[starts[:-1]] = True
    nodes[firsts] = tails[paths.links[paths.starts[:-1]]]
    nodes[~firsts] = heads[paths.links]
    return starts, nodes
