"""Replay of Chakra execution traces by the rules of ASTRA-sim's custom collectives, in whole ns (its cycles).

The rules are those of its congestion-aware analytical network (astra-network-analytical 599a047): a message of B bytes
takes a path of the fewest links, crosses each in ``floor(l + B / b)`` and keeps it busy for ``floor(B / b)``
(congestion_aware/network/Link.cpp, lines 98 and 108); every device, switch or rank, stores it as a whole before it
forwards it (Chunk.cpp, line 29), and links serve messages as they come (Link.cpp, line 57).  And of its custom
collectives (astra-sim 518bd51, astra-sim/system/astraccl/custom_collectives/CustomAlgorithm.cc, lines 48-120): a send
ends when its message has come, a receive when it has started and its message has come, a computation after its
duration or 1 ns.  The k-th send and receive of the same tag, ends and size match.  Nodes that are free at the same time
start in the order of their ids, as in versions of ASTRA-sim before August 2025; later ones start them in no order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from .chakra_trace import NodeKind, Trace, TraceNode

if TYPE_CHECKING:
    from .simulate import Nodes

NS_PER_US = 1000
KINDS = {kind: place for place, kind in enumerate((NodeKind.COMM_SEND, NodeKind.COMM_RECV, NodeKind.COMP))}
MIN_COMPUTATION_NS = 1  # What ASTRA-sim makes of a duration of 0, in ns


class Replay(NamedTuple):
    """Result of a replay: `nanoseconds` until the last node was over, ASTRA-sim's cycles, and `messages` sent."""

    nanoseconds: int
    messages: int

    @property
    def microseconds(self) -> float:
        """Time in µs."""
        return self.nanoseconds / NS_PER_US


def replay_traces(traces: Sequence[Trace], topology: Topology) -> Replay:
    """Run one trace per rank.

    Raises `ProgramError` if sends and receives do not match, an attribute is missing, or nodes wait for each other in a
    cycle.

    Parameters
    ----------
    traces : sequence of Trace
        By rank, of sends, receives and computations.
    topology : Topology
        With as many ranks.  ASTRA-sim's GB/s are 2^30 bytes per second; convert them.

    Examples
    --------
    Two ranks exchange halves of 64 kB: 1310 ns and a latency of 500 ns.

    >>> import collopt
    >>> pair = collopt.topologies.complete(2, bandwidth=25, latency="0.5")
    >>> traces = collopt.runtime.plan_traces(collopt.plan(pair, "allgather"), "64K")
    >>> replay_traces(traces, pair)
    Replay(nanoseconds=1810, messages=2)
    """
    from .simulate import replay_nodes

    as_topology(topology)
    if not isinstance(traces, Sequence) or not all(isinstance(item, Trace) for item in traces):
        raise UnsupportedError(f"the traces are {shown(traces)}; expected a list of one Trace for each rank")
    if len(traces) != topology.num_ranks:
        raise UnsupportedError(f"there are {len(traces)} traces; expected one for each of {topology.num_ranks} ranks")
    # Nodes that are free at the same time start in the order of their places.
    linked = link_nodes([sorted(trace.nodes, key=lambda node: node.number) for trace in traces])
    finish, unfinished = replay_nodes(_routed(linked, topology), topology.num_links)
    if unfinished:
        raise ProgramError(f"{unfinished} of {len(linked.nodes)} nodes never start, because they wait in a cycle")
    return Replay(finish, len(linked.pairs))


def _routed(linked: LinkedNodes, topology: Topology) -> Nodes:
    """Nodes as arrays, with the links that each send takes."""
    import networkx as nx

    from .simulate import Nodes

    places = {link[:2]: place for place, link in enumerate(topology.links)}
    graph = nx.DiGraph(places.keys())
    graph.add_nodes_from(topology.nodes)
    paths = cache(partial(nx.single_source_shortest_path, graph))
    hops: list[tuple[int, int, int]] = []
    starts = [0]
    for (_, node), message in zip(linked.nodes, linked.messages, strict=True):
        if message is not None and node.kind == NodeKind.COMM_SEND:
            path = paths(topology.nodes[message.sender]).get(topology.nodes[message.receiver])
            if path is None:
                raise ProgramError(
                    f"rank {message.sender} sends to rank {message.receiver}, but no path of the topology leads there"
                )
            for place in (places[ends] for ends in pairwise(path)):
                link = topology.links[place]
                busy = message.size / link.bandwidth
                hops.append((place, int(busy), int(NS_PER_US * link.latency + busy)))
        starts.append(len(hops))
    count = len(linked.nodes)
    partners = np.zeros(count, dtype=np.int64)
    for send, receive in linked.pairs:
        partners[send], partners[receive] = receive, send
    waits = np.unique(np.array(linked.waits, dtype=np.int64).reshape(-1, 2), axis=0)
    links, busy_times, times = np.array(hops, dtype=np.int64).reshape(-1, 3).T.copy()
    return Nodes(
        np.array([KINDS[NodeKind(node.kind)] for _, node in linked.nodes], dtype=np.int64),
        partners,
        np.array([node.duration * NS_PER_US or MIN_COMPUTATION_NS for _, node in linked.nodes], dtype=np.int64),
        np.array(starts, dtype=np.int64),
        links,
        busy_times,
        times,
        np.repeat(np.arange(count), np.diff(starts)),
        np.searchsorted(waits[:, 0], np.arange(count + 1)),
        waits[:, 1].copy(),
    )


MAX_MESSAGE_BYTES = 2**53
MAX_TAG = 2**31
KIND_NAMES: dict[int, str] = {kind.value: kind.name for kind in NodeKind}


class TraceMessage(NamedTuple):
    """Message of a node that sends or receives."""

    sender: int
    receiver: int
    tag: int
    size: int  # Bytes


class LinkedNodes(NamedTuple):
    """Nodes of all ranks, one rank after the other; others name them by their places here."""

    nodes: list[tuple[int, TraceNode]]  # Each with its rank
    messages: list[TraceMessage | None]  # What each sends or receives; None for computations
    waits: list[tuple[int, int]]  # (before, after)
    pairs: list[tuple[int, int]]  # Each send with its receive


def link_nodes(ranks: Sequence[Iterable[TraceNode]]) -> LinkedNodes:
    """Match the k-th send and receive of the same ends, tag and size, and resolve ids, given the nodes of each rank."""
    nodes = [(rank, node) for rank, own in enumerate(ranks) for node in own]
    places = {(rank, node.number): place for place, (rank, node) in enumerate(nodes)}
    messages = [_message(rank, node, len(ranks)) for rank, node in nodes]
    ends: defaultdict[TraceMessage, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for place, ((_, node), message) in enumerate(zip(nodes, messages, strict=True)):
        if message is not None:
            ends[message][node.kind == NodeKind.COMM_RECV].append(place)
    for message, (sends, receives) in sorted(ends.items()):
        if len(sends) != len(receives):
            raise ProgramError(
                f"rank {message.sender} sends {len(sends)} messages of {message.size} bytes with tag {message.tag} "
                f"to rank {message.receiver}, which receives {len(receives)} of them; expected equally many"
            )
    waits = [
        (places[rank, before], place)
        for place, (rank, node) in enumerate(nodes)
        for before in (*node.waits, *node.controls)
    ]
    pairs = [pair for _, both in sorted(ends.items()) for pair in zip(*both, strict=True)]
    return LinkedNodes(nodes, messages, waits, pairs)


def _message(rank: int, node: TraceNode, num_ranks: int) -> TraceMessage | None:
    if node.kind == NodeKind.COMP:
        return None
    if node.kind not in {NodeKind.COMM_SEND, NodeKind.COMM_RECV}:
        kind = KIND_NAMES.get(node.kind, node.kind)
        raise UnsupportedError(
            f"node {node.number} of rank {rank} is of kind {kind}; expected sends, receives and computations"
        )
    sends = node.kind == NodeKind.COMM_SEND
    peer = _count(rank, node, "comm_dst" if sends else "comm_src", num_ranks)
    size = _count(rank, node, "comm_size", MAX_MESSAGE_BYTES)
    return TraceMessage(*((rank, peer) if sends else (peer, rank)), _count(rank, node, "comm_tag", MAX_TAG), size)


def _count(rank: int, node: TraceNode, name: str, limit: int) -> int:
    value = node.value(name)
    if not isinstance(value, int) or not 0 <= value < limit:
        raise ProgramError(
            f"node {node.number} of rank {rank} has {name} {shown(value)}; expected a whole number below {limit}"
        )
    return value
