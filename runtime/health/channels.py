"""Rings and trees that NCCL lists, as schedules on a network: loads of links, and bandwidth beside the bound."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...planners.literature.routes import Hops, LinkLoads
from ...planners.trees.problem import TreeProblem
from ...schedules import Bound
from ...support.formatting import abbreviated_names, count_text, percentage_text
from ...topologies import Topology
from ...topologies.network.links import node_kind
from .nccl_log import Hop


class ChannelScore(NamedTuple):
    """What rings or trees are worth on a network.

    Attributes
    ----------
    kind : {"ring", "tree"}
    channels : int
    algbw : Fraction
        GB/s, if the busiest link is never idle and latency is left out.
    share : Fraction
        Of the bound.
    busiest : tuple of str
        Links that are busy for longest, ``A -> B``.
    nics, idle_nics : tuple of str
        NICs of the network, and those that no channel uses.
    """

    kind: str
    channels: int
    algbw: Fraction
    share: Fraction
    busiest: tuple[str, ...]
    nics: tuple[str, ...]
    idle_nics: tuple[str, ...]

    def __str__(self) -> str:
        """In one sentence."""
        listing = f"{abbreviated_names(list(self.busiest[:4]))}{', ...' if len(self.busiest) > 4 else ''}"
        text = f"its {count_text(self.channels, self.kind)} reach {percentage_text(self.share)} of the bound"
        text += "" if self.share == 1 else f", limited by {count_text(len(self.busiest), 'link')}: {listing}"
        if self.idle_nics:
            idle = abbreviated_names(list(self.idle_nics))
            text += f"; {len(self.idle_nics)} of {len(self.nics)} NICs are not used: {idle}"
        return text


def score_rings(rings: Mapping[int, Sequence[int]], hops: Iterable[Hop], bound: Bound) -> ChannelScore:
    """Score rings for the collective and the network of a bound; `hops` say which NICs they use.

    Raises `UnsupportedError` where a ring does not pass each rank once, or leads where no route does.
    """
    ranks, collective = bound.topology.num_ranks, bound.collective
    for channel, ring in rings.items():
        check_ring(ring, channel, bound.topology)
    share = Fraction(1) if collective.has_one_root else collective.bus_factor(ranks)
    edges = [
        (channel, tail, head, share)
        for channel, ring in rings.items()
        for tail, head in zip(ring, (*ring[1:], ring[0]), strict=True)
    ]
    return _score("ring", len(rings), edges, hops, bound)


def check_ring(ring: Sequence[int], channel: int, topology: Topology) -> None:
    """Refuse a ring that does not pass each rank once."""
    ranks = topology.num_ranks
    if sorted(ring) != list(range(ranks)):
        raise UnsupportedError(
            f"the ring of channel {channel} passes {count_text(len(set(ring)), 'rank')}; {topology} has "
            f"{count_text(ranks, 'rank')}, each of which it has to pass once"
        )


def check_tree(parents: Sequence[int], channel: int, topology: Topology) -> None:
    """Refuse a tree, by the parent of each rank, that does not join all ranks."""
    ranks, reached = len(parents), {rank for rank, parent in enumerate(parents) if parent < 0}
    for _ in range(ranks):
        reached |= {rank for rank, parent in enumerate(parents) if parent in reached}
    if ranks != topology.num_ranks or list(parents).count(-1) != 1 or len(reached) != ranks:
        raise UnsupportedError(
            f"the tree of channel {channel} does not join the {topology.num_ranks} ranks of {topology}"
        )


def score_trees(trees: Mapping[int, Sequence[int]], hops: Iterable[Hop], bound: Bound) -> ChannelScore:
    """Score trees, by the parent of each rank, for an allreduce; otherwise as `score_rings`."""
    edges = []
    for channel, parents in trees.items():
        check_tree(parents, channel, bound.topology)
        pairs = [(rank, parent) for rank, parent in enumerate(parents) if parent >= 0]
        edges += [(channel, *ends, Fraction(1)) for pair in pairs for ends in (pair, pair[::-1])]
    return _score("tree", len(trees), edges, hops, bound)


def _score(
    kind: str, channels: int, edges: Sequence[tuple[int, int, int, Fraction]], hops: Iterable[Hop], bound: Bound
) -> ChannelScore:
    topology = bound.topology
    routes, loads = Routes(topology, hops), defaultdict[int, Fraction](Fraction)
    for channel, tail, head, share in edges:
        for link in routes.links(channel, tail, head):
            loads[link] += share / channels
    times = {link: load / topology.link_at(link).bandwidth for link, load in sorted(loads.items())}
    longest = max(times.values())
    busiest = tuple(" -> ".join(topology.link_at(link)[:2]) for link, time in times.items() if time == longest)
    used = {node for link in loads for node in topology.link_at(link)[:2]}
    nics = nics_of(topology)
    idle = tuple(nic for nic in nics if nic not in used)
    return ChannelScore(kind, channels, 1 / longest, 1 / longest / bound.algbw, busiest, nics, idle)


def nics_of(topology: Topology) -> tuple[str, ...]:
    """NICs of a network, by their names."""
    return tuple(node for node in topology.switch_nodes if node_kind(node) == "nic")


class Routes:
    """Routes of the hops of channels: over the NICs that a log names, and otherwise the shortest."""

    def __init__(self, topology: Topology, hops: Iterable[Hop]) -> None:
        import networkx as nx

        tails, heads, capacities, _ = topology.arrays
        shards = np.ones(topology.num_ranks, dtype=np.int64)
        self._topology = topology
        self._hops = Hops(TreeProblem(topology, "broadcast", tails, heads, capacities, shards))
        self._loads = LinkLoads(capacities)
        self._devices = {(*hop[:3], hop.end): hop.nic for hop in hops if hop.nic is not None}
        self._places = {link[:2]: place for place, link in enumerate(topology.links)}
        self._graph = nx.DiGraph(list(self._places))
        self._over_nics = cache(self._find_over_nics)

    def links(self, channel: int, tail: int, head: int) -> tuple[int, ...]:
        """Return the links from rank to rank of a channel."""
        ends = [self._devices.get((channel, tail, head, end)) for end in ("send", "receive")]
        named = [device for device in ends if device is not None]
        if named:
            return self._over_nics(tail, head, named[0], named[-1])
        return self._loads.take(self._hops.find_routes(tail, head)).links

    def path(self, channel: int, tail: int, head: int) -> tuple[int, ...]:
        """Return the nodes from rank to rank of a channel; `UnsupportedError` for a path past another rank."""
        nodes = (tail, *self._topology.arrays.heads[list(self.links(channel, tail, head))].tolist())
        if passed := [node for node in nodes[1:-1] if node < self._topology.num_ranks]:
            raise UnsupportedError(
                f"channel {channel} leads from rank {tail} to rank {head} through rank {passed[0]}, next to the NIC "
                "(PXN); paths of plans pass switches only"
            )
        return nodes

    def _find_over_nics(self, tail: int, head: int, sent: int, received: int) -> tuple[int, ...]:
        """Search in the box of each end past its GPUs, but no other NIC, and in the fabric past switches alone."""
        import networkx as nx

        ranks, nics = set(self._topology.compute_nodes), set(nics_of(self._topology))
        first, last = self._topology.compute_nodes[tail], self._topology.compute_nodes[head]
        out, into = f"{_box(first)}/nic{sent}", f"{_box(last)}/nic{received}"
        if lacking := [nic for nic in (out, into) if nic not in nics]:
            raise UnsupportedError(
                f"NCCL uses {lacking[0]}, which {self._topology} lacks; describe the network of the log"
            )
        links: list[int] = []
        for start, end in ((first, out), (out, into), (into, last)):
            box = {} if start == out else {_box(start)}
            nodes = [
                node for node in self._graph if node not in nics and (_box(node) in box if box else node not in ranks)
            ]
            try:
                way = nx.shortest_path(self._graph.subgraph([*nodes, start, end]), start, end)
            except nx.NetworkXNoPath:
                raise UnsupportedError(f"no way leads from {start} to {end}; describe the network of the log") from None
            links += [self._places[pair] for pair in pairwise(way)]
        return tuple(links)


def _box(node: str) -> str:
    return node.rpartition("/")[0]
