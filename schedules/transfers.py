"""Transfers between ranks with dependencies and routes, the links of paths, and the congestion of loads."""

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from math import lcm
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import CertificateError
from ..support.arrays import IntArray
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .collective import Direction

INT64_LIMIT = 2**63


@dataclass(frozen=True, eq=False)
class Transfers:
    """All transfers of a schedule."""

    senders: IntArray  # int64 (transfers,): ranks; the receiver itself where a sum turns at its root
    receivers: IntArray  # int64 (transfers,)
    firsts: IntArray  # int64 (transfers,): data in units; in an all-to-all(v), of the path's source
    amounts: IntArray  # int64 (transfers,): how many units from the first on
    unit: Fraction  # One unit as a share of all the data, as nccl-tests counts it
    levels: IntArray  # int64 (transfers,): The step, or hops between ranks that have to come before
    adds: npt.NDArray[np.bool_]  # bool (transfers,): Whether the receiver adds the data to its own
    hop_starts: IntArray  # int64 (transfers + 1,): transfer t has hop_links[hop_starts[t]:hop_starts[t + 1]]
    hop_links: IntArray  # Places in ``topology.links``
    before: IntArray  # int64 (waits,): Transfer ``after[i]`` waits for transfer ``before[i]``
    after: IntArray  # int64 (waits,)

    @property
    def hop_owners(self) -> IntArray:
        """Transfer of each hop."""
        return np.repeat(np.arange(len(self.senders)), np.diff(self.hop_starts))

    def link_loads(self, num_links: int) -> IntArray:
        """Units of data on each link, shape (links,)."""
        loads = np.zeros(num_links, dtype=np.int64)
        np.add.at(loads, self.hop_links, self.amounts[self.hop_owners])
        return loads


class Part(NamedTuple):
    """Transfers in one direction: columns of `Transfers`, and their paths."""

    senders: IntArray
    receivers: IntArray
    firsts: IntArray
    amounts: IntArray
    levels: IntArray
    adds: bool
    paths: IntArray  # int64 (transfers,): number of the path that each takes, -1 for none
    routes: tuple[IntArray, IntArray]  # links of all paths, and where each path begins there


def in_direction(links: IntArray, starts: IntArray, reverse: bool) -> tuple[IntArray, IntArray]:
    """Links of paths in the order of data, reversed if `reverse`."""
    if not reverse:
        return links, starts
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return links[starts[owners] + starts[owners + 1] - 1 - np.arange(len(links))], starts


def root_transfers(roots: IntArray, firsts: IntArray, amounts: IntArray, levels: IntArray) -> Part:
    """One transfer per range from its root to itself, over no link."""
    no_paths = (np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return Part(roots, roots, firsts, amounts, levels, False, np.full_like(roots, -1), no_paths)


def concatenate(parts: list[Part], unit: Fraction, waits: list[IntArray]) -> Transfers:
    """Concatenate transfers; `waits`: int64 (2, waits) each."""
    hops = [gather_paths(*part.routes, part.paths) for part in parts]
    lengths = np.concatenate([length for length, _ in hops])
    pairs = np.concatenate(waits, axis=1)
    columns = ("senders", "receivers", "firsts", "amounts", "levels")
    columns_of_all = {
        name: np.concatenate([getattr(part, name) for part in parts]).astype(np.int64, copy=False) for name in columns
    }
    return Transfers(
        **columns_of_all,
        unit=unit,
        adds=np.concatenate([np.full(len(part.senders), part.adds) for part in parts]),
        hop_starts=np.array(list(accumulate(lengths.tolist(), initial=0)), dtype=np.int64),
        hop_links=np.concatenate([links for _, links in hops]),
        before=pairs[0],
        after=pairs[1],
    )


def gather_paths(links: IntArray, starts: IntArray, paths: IntArray) -> tuple[IntArray, IntArray]:
    """Lengths and links of the paths with these numbers, concatenated; -1 is a path without links."""
    counts = np.where(paths >= 0, np.append(np.diff(starts), 0)[paths], 0)
    firsts = np.repeat(np.append(starts[:-1], 0)[paths] - (np.cumsum(counts) - counts), counts)
    return counts, links[firsts + np.arange(len(firsts))]


def add_step_gates(transfers: Transfers) -> Transfers:
    """Keep the transfers on a link in the order of steps, by a transfer without links (a gate) per link and step.

    A gate waits for all that the sends over its link in its step wait for, and for the gate of the link's step before;
    the sends wait for the latter.
    """
    count = len(transfers.senders)
    sends = np.flatnonzero(np.diff(transfers.hop_starts))
    first_links = transfers.hop_links[transfers.hop_starts[sends]]
    span = int(transfers.levels.max()) + 1
    gates, gate_of_send = np.unique(first_links * span + transfers.levels[sends], return_inverse=True)
    gate_of = np.full(count, -1, dtype=np.int64)
    gate_of[sends] = gate_of_send
    # Gates of one link are next to each other, by step.
    follows = np.flatnonzero(gates[1:] // span == gates[:-1] // span) + 1
    gated = sends[np.isin(gate_of_send, follows)]
    opens = gate_of[transfers.after] >= 0
    owner = np.empty(len(gates), dtype=np.int64)
    owner[gate_of_send] = transfers.senders[sends]
    nothing = np.zeros(len(gates), dtype=np.int64)
    added = {
        "senders": owner,
        "receivers": owner,
        "firsts": nothing,
        "amounts": nothing,
        "levels": gates % span,
        "adds": nothing.astype(np.bool_),
        "hop_starts": nothing + transfers.hop_starts[-1],
        "before": np.concatenate([transfers.before[opens], follows - 1 + count, gate_of[gated] - 1 + count]),
        "after": np.concatenate([gate_of[transfers.after[opens]] + count, follows + count, gated]),
    }
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(transfers, name), column]) for name, column in added.items()
    }
    return replace(transfers, **columns)


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
        Load of each link, in multiples of ``1 / trees_per_root`` units of data, in the order of ``topology.links``.
    trees_per_root : int
        The paper's k.
    topology : Topology
        Whose links carry the loads.
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
