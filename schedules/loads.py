"""Links of paths, and the congestion that follows from their loads."""

from fractions import Fraction
from math import lcm

import numpy as np

from ..errors import CertificateError
from ..support.arrays import IntArray
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .collective import Direction

INT64_LIMIT = 2**63


def hop_ends(starts: IntArray, nodes: IntArray, direction: Direction) -> tuple[IntArray, IntArray]:
    """Tails and heads of the hops of all paths, path by path. Shapes: `starts` int64 (paths + 1,)."""
    goes_on = np.ones(len(nodes), dtype=np.bool_)
    goes_on[starts[1:] - 1] = False
    first = np.flatnonzero(goes_on)
    ends = nodes[first], nodes[first + 1]
    return ends if direction == "broadcast" else ends[::-1]


def path_links(starts: IntArray, nodes: IntArray, topology: Topology, direction: Direction = "broadcast") -> IntArray:
    """Look up the links of all paths. Shapes: `starts` int64 (paths + 1,)."""
    places = as_topology(topology).link_places(*hop_ends(starts, nodes, direction))
    if (places < 0).any():
        raise CertificateError("a path uses a link that the topology does not have")
    return places


def path_latencies(starts: IntArray, links: IntArray, topology: Topology) -> tuple[IntArray, int]:
    """Sum of the link latencies on each path, in units of 1 µs over the number that comes second.

    Python's integers where the common denominator of all latencies leaves no room in int64.  Shapes: `starts` int64
    (paths + 1,) of the nodes; `links` as from `path_links`; returns (paths,).
    """
    latencies = [latency for _, latency in topology.columns.rates]
    scale = lcm(*(latency.denominator for latency in latencies))
    delays = [int(latency * scale) for latency in latencies]
    fits = max(delays, default=0) * (len(links) + 1) < INT64_LIMIT
    passed = np.array(delays, dtype=np.int64 if fits else object)[topology.columns.kinds[links]]
    until = np.concatenate([np.zeros(1, dtype=passed.dtype), np.cumsum(passed)])
    return np.diff(until[starts - np.arange(len(starts))]), scale


def congestion(loads: IntArray, trees_per_root: int, topology: Topology) -> Fraction:
    """Largest ``load / (k * bandwidth)`` over all links, in 1/(GB/s): the schedule's 1/x.

    With shards of m bytes per unit of weight, the bandwidth term of the schedule's time is ``m * congestion`` ns.

    Parameters
    ----------
    loads : ndarray of int64, shape (links,)
        Load of each link, in multiples of ``1 / trees_per_root`` units of data, in the order of
        ``topology.links``.
    trees_per_root : int
        The paper's k.
    topology : Topology
        Whose links carry the loads.

    Examples
    --------
    Three copies on 25 GB/s, two on 10 GB/s:

    >>> topology = Topology.from_links([("a", "b", 25), ("b", "a", 10)], compute="ab")
    >>> congestion(np.array([3, 2]), 2, topology)
    Fraction(1, 10)
    """
    capacities, largest, _ = _by_capacity(loads, topology)
    peak, divisor = 0, 1
    for load, capacity in zip(largest.tolist(), capacities.tolist(), strict=True):
        # Cross-multiplied in Python's integers: exact, and thousands of fractions fewer.
        if load * divisor > peak * capacity:
            peak, divisor = load, capacity
    return Fraction(peak, divisor * trees_per_root) / topology.arrays.unit


def busiest_links(loads: IntArray, topology: Topology) -> IntArray:
    """Bottleneck links: the places in ``topology.links`` of those with the largest load over bandwidth, in order.

    Parameters as for `congestion`.

    Examples
    --------
    >>> topology = Topology.from_links([("a", "b", 25), ("b", "c", 10), ("c", "a", 5)], compute="abc")
    >>> busiest_links(np.array([3, 2, 1]), topology).tolist()
    [1, 2]
    """
    capacities, largest, group = _by_capacity(loads, topology)
    highest = congestion(loads, 1, topology)
    unit = topology.arrays.unit
    at_peak = [
        Fraction(load, capacity) / unit == highest
        for load, capacity in zip(largest.tolist(), capacities.tolist(), strict=True)
    ]
    return np.flatnonzero(np.array(at_peak)[group] & (loads == largest[group]))


def _by_capacity(loads: IntArray, topology: Topology) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct capacities, the largest load on links of each, and the index of each link's capacity."""
    capacities, group = np.unique(topology.arrays.capacities, return_inverse=True)
    largest = np.zeros(len(capacities), dtype=np.int64)
    np.maximum.at(largest, group, loads)
    return capacities, largest, group


def slowest_path(users: IntArray, starts: IntArray, links: IntArray, topology: Topology) -> Fraction:
    """Longest time that a load on one path takes on one of its links, per unit of load, in 1/(GB/s).

    Shapes: `users` int64 (paths,), the load on each path; `starts` int64 (paths + 1,), where each begins in `links`.
    """
    largest = np.zeros(topology.num_links, dtype=np.int64)
    np.maximum.at(largest, links, np.repeat(users, np.diff(starts)))
    return congestion(largest, 1, topology)
