"""Replay of Chakra execution traces by the rules of ASTRA-sim's custom collectives, in whole ns (its cycles).

Of its congestion-aware network (astra-network-analytical 599a047, Link.cpp 57-108, Chunk.cpp 29): a message of B bytes
crosses each link of a shortest path in ``floor(l + B / b)``, keeps it busy for ``floor(B / b)``, and is stored as a
whole by every device.  Of its collectives (astra-sim 518bd51, CustomAlgorithm.cc 48-120): a send ends when its message
has come, a receive when it has started and its message has come, a computation after its duration or 1 ns.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import NamedTuple

from ...errors import ProgramError, UnsupportedError
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from .chakra_trace import NodeKind, Trace, TraceNode

NS_PER_US = 1000
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
    as_topology(topology)
    if not isinstance(traces, Sequence) or not all(isinstance(item, Trace) for item in traces):
        raise UnsupportedError(f"the traces are {shown(traces)}; expected a list of one Trace for each rank")
    if len(traces) != topology.num_ranks:
        raise UnsupportedError(f"there are {len(traces)} traces; expected one for each of {topology.num_ranks} ranks")
    # Nodes that are free at the same time start in the order of their places.
    linked = link_nodes([sorted(trace.nodes, key=lambda node: node.number) for trace in traces])
    events = _Events(linked, _routes(linked, topology))
    events.run()
    if unfinished := len(linked.nodes) - events.num_ended:
        raise ProgramError(f"{unfinished} of {len(linked.nodes)} nodes never start, because they wait in a cycle")
    return Replay(events.finish, len(linked.pairs))


Hop = tuple[int, int, int]  # A link, how long a message keeps it busy, and how long it takes to the link's end, in ns


def _routes(linked: LinkedNodes, topology: Topology) -> list[list[Hop]]:
    """Hops of the message that each node sends; none of other nodes."""
    links_between = replayed_paths(topology)
    routes: list[list[Hop]] = []
    for (_, node), message in zip(linked.nodes, linked.messages, strict=True):
        routes.append([])
        if message is None or node.kind != NodeKind.COMM_SEND:
            continue
        path = links_between(message.sender, message.receiver)
        if path is None:
            raise ProgramError(
                f"rank {message.sender} sends to rank {message.receiver}, but no path of the topology leads there"
            )
        for place in path:
            link = topology.links[place]
            busy = message.size / link.bandwidth
            routes[-1].append((place, int(busy), int(NS_PER_US * link.latency + busy)))
    return routes


def replayed_paths(topology: Topology) -> Callable[[int, int], list[int] | None]:
    """Return a function that lists the links of the path from rank to rank that replays take; None if there is none."""
    import networkx as nx

    places = {link[:2]: place for place, link in enumerate(topology.links)}
    graph = nx.DiGraph(places.keys())
    graph.add_nodes_from(topology.nodes)
    paths = cache(partial(nx.single_source_shortest_path, graph))

    @cache
    def links_between(sender: int, receiver: int) -> list[int] | None:
        path = paths(topology.nodes[sender]).get(topology.nodes[receiver])
        return None if path is None else [places[ends] for ends in pairwise(path)]

    return links_between


class _Events:
    """Events of a replay by time, and at one time in the order in which they were scheduled, as in ASTRA-sim's queue.

    So a message arrives before its link is free again.  Links serve messages as they come.
    """

    def __init__(self, linked: LinkedNodes, routes: Sequence[Sequence[Hop]]) -> None:
        self.nodes, self.routes = [node for _, node in linked.nodes], routes
        self.receive_of = dict(linked.pairs)
        self.send_of = {receive: send for send, receive in linked.pairs}
        self.followers: list[list[int]] = [[] for _ in self.nodes]
        self.waits = [0] * len(self.nodes)
        for before, after in sorted(set(linked.waits)):
            self.followers[before].append(after)
            self.waits[after] += 1
        self.posted: set[int] = set()  # Receives that have started
        self.arrived: set[int] = set()  # Sends whose message has come
        self.queues: dict[int, deque[tuple[int, int]]] = {}  # Messages that wait for each busy link
        self.heap: list[tuple[int, int, Callable[..., None], tuple[int, ...]]] = []
        self.numbers = count()
        self.finish = 0
        self.num_ended = 0

    def run(self) -> None:
        """Run until nothing is scheduled."""
        for node, waits in enumerate(list(self.waits)):
            if not waits:
                self._issue(node, 0)
        while self.heap:
            now, _, happen, arguments = heappop(self.heap)
            happen(*arguments, now)

    def _schedule(self, time: int, happen: Callable[..., None], *arguments: int) -> None:
        heappush(self.heap, (time, next(self.numbers), happen, arguments))

    def _issue(self, node: int, now: int) -> None:
        """Start a node that waits for nothing more."""
        kind = self.nodes[node].kind
        if kind == NodeKind.COMM_SEND:
            self._enter(node, 0, now)
        elif kind == NodeKind.COMP:
            duration = self.nodes[node].duration * NS_PER_US or MIN_COMPUTATION_NS
            self._schedule(now + duration, self._end, node)
        elif self.send_of[node] in self.arrived:
            self._schedule(now, self._end, node)
        else:
            self.posted.add(node)

    def _enter(self, node: int, hop: int, now: int) -> None:
        """Send a message over its next link, or let it wait for those that came before."""
        if not self.routes[node]:  # A rank sends to itself.
            self._schedule(now, self._arrive, node, hop)
            return
        link = self.routes[node][hop][0]
        if link in self.queues:
            self.queues[link].append((node, hop))
        else:
            self.queues[link] = deque()
            self._transmit(node, hop, now)

    def _transmit(self, node: int, hop: int, now: int) -> None:
        link, busy, duration = self.routes[node][hop]
        self._schedule(now + duration, self._arrive, node, hop)
        self._schedule(now + busy, self._release, link)

    def _release(self, link: int, now: int) -> None:
        """Serve the message that waits first."""
        if self.queues[link]:
            self._transmit(*self.queues[link].popleft(), now)
        else:
            del self.queues[link]

    def _arrive(self, node: int, hop: int, now: int) -> None:
        """Forward a message that arrived as a whole; at its end, end its send, and its receive if that started."""
        if hop + 1 < len(self.routes[node]):
            self._enter(node, hop + 1, now)
            return
        self.arrived.add(node)
        self._end(node, now)
        if self.receive_of[node] in self.posted:
            self._end(self.receive_of[node], now)

    def _end(self, node: int, now: int) -> None:
        """End a node, and start those that waited for nothing else."""
        self.num_ended += 1
        self.finish = now
        for follower in self.followers[node]:
            self.waits[follower] -= 1
            if not self.waits[follower]:
                self._issue(follower, now)


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
