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

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from .trace import NodeKind, Trace, TraceNode

if TYPE_CHECKING:
    from .message_events import Nodes

NS_PER_US = 1000
KINDS = {kind: place for place, kind in enumerate((NodeKind.COMM_SEND, NodeKind.COMM_RECV, NodeKind.COMP))}
MIN_COMPUTATION_NS = 1  # What ASTRA-sim makes of a duration of 0, in ns


class Replay(NamedTuple):
    """Result of a replay.

    Attributes
    ----------
    nanoseconds : int
        Until the last node was over: what ASTRA-sim calls cycles.
    messages : int
        That were sent.
    """

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
    from .message_events import replay_nodes

    as_topology(topology)
    if not isinstance(traces, Sequence) or not all(isinstance(each, Trace) for each in traces):
        raise UnsupportedError(f"the traces are {shown(traces)}; expected a list of one Trace for each rank")
    if len(traces) != topology.num_ranks:
        raise UnsupportedError(f"there are {len(traces)} traces; expected one for each of {topology.num_ranks} ranks")
    work = _Network(topology)
    for rank, trace in enumerate(traces):
        work.add_rank(rank, trace)
    nodes = work.finish()
    finish, unfinished = replay_nodes(nodes, len(topology.links))
    if unfinished:
        raise ProgramError(f"{unfinished} of {len(nodes.kinds)} nodes never start, because they wait in a cycle")
    return Replay(finish, work.num_messages)


class _Network:
    """Nodes of all ranks, with the hops of sends."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._places = {(link.tail, link.head): number for number, link in enumerate(topology.links)}
        self._paths: dict[int, dict[int, list[int]]] = {}
        self._matching = Matching(topology.num_ranks)
        self._kinds: list[int] = []
        self._durations: list[int] = []
        self._hop_starts = [0]
        self._hops: list[tuple[int, int, int]] = []
        self._waits: list[tuple[int, int]] = []
        self.num_messages = 0

    def add_rank(self, rank: int, trace: Trace) -> None:
        """Add the nodes of a rank, in the order of their ids."""
        first, nodes = len(self._kinds), sorted(trace.nodes, key=lambda node: node.number)
        numbers = {node.number: first + place for place, node in enumerate(nodes)}
        for node in nodes:
            number = numbers[node.number]
            self._kinds.append(KINDS[self._add(rank, node, number)])
            self._durations.append(node.duration * NS_PER_US or MIN_COMPUTATION_NS)
            self._hop_starts.append(len(self._hops))
            self._waits.extend((numbers[before], number) for before in (*node.waits, *node.controls))

    def _add(self, rank: int, node: TraceNode, number: int) -> NodeKind:
        """Add the hops of a node, if it sends; return its kind."""
        message = self._matching.add(rank, node, number)
        if message is None:
            return NodeKind.COMP
        if node.kind == NodeKind.COMM_SEND:
            self.num_messages += 1
            for place in self._path(message.sender, message.receiver):
                link = self._topology.links[place]
                busy = message.size / link.bandwidth
                self._hops.append((place, int(busy), int(NS_PER_US * link.latency + busy)))
        return NodeKind(node.kind)

    def finish(self) -> Nodes:
        """Return all nodes, once those of all ranks were added."""
        from .message_events import Nodes

        count = len(self._kinds)
        partners = np.zeros(count, dtype=np.int64)
        for send, receive in self._matching.pairs():
            partners[send], partners[receive] = receive, send
        waits = np.unique(np.array(self._waits, dtype=np.int64).reshape(-1, 2), axis=0)
        hop_starts = np.array(self._hop_starts, dtype=np.int64)
        links, busy, times = np.array(self._hops, dtype=np.int64).reshape(-1, 3).T.copy()
        return Nodes(
            np.array(self._kinds, dtype=np.int64),
            partners,
            np.array(self._durations, dtype=np.int64),
            hop_starts,
            links,
            busy,
            times,
            np.repeat(np.arange(count), np.diff(hop_starts)),
            np.searchsorted(waits[:, 0], np.arange(count + 1)),
            waits[:, 1].copy(),
        )

    def _path(self, sender: int, receiver: int) -> list[int]:
        """Links of a shortest path; of several, the first in the order of the topology's links."""
        if sender not in self._paths:
            self._paths[sender] = self._paths_from(sender)
        found = self._paths[sender].get(receiver)
        if found is None:
            raise ProgramError(f"rank {sender} sends to rank {receiver}, but no path of the topology leads there")
        return found

    def _paths_from(self, sender: int) -> dict[int, list[int]]:
        """Links of the shortest paths to all nodes, by breadth-first search."""
        topology, start = self._topology, self._topology.nodes[sender]
        paths: dict[str, list[int]] = {start: []}
        queue = deque([start])
        while queue:
            node = queue.popleft()
            for link in topology.out_links(node):
                if link.head not in paths:
                    paths[link.head] = [*paths[node], self._places[node, link.head]]
                    queue.append(link.head)
        return {topology.node_index[node]: path for node, path in paths.items()}


MAX_MESSAGE_BYTES = 2**53
MAX_TAG = 2**31
KIND_NAMES: dict[int, str] = {kind.value: kind.name for kind in NodeKind}


class TraceMessage(NamedTuple):
    """What a node sends or receives."""

    sender: int
    receiver: int
    tag: int
    size: int  # Bytes


class Matching:
    """Collects the nodes of all ranks, and matches sends with receives."""

    def __init__(self, num_ranks: int) -> None:
        self._num_ranks = num_ranks
        self._sends: defaultdict[TraceMessage, list[int]] = defaultdict(list)
        self._receives: defaultdict[TraceMessage, list[int]] = defaultdict(list)

    def add(self, rank: int, node: TraceNode, number: int) -> TraceMessage | None:
        """Add a node, which is known by `number`; return what it sends or receives, None for a computation.

        Raises `UnsupportedError` for other kinds of nodes, and `ProgramError` for missing attributes.
        """
        if node.kind == NodeKind.COMP:
            return None
        if node.kind not in {NodeKind.COMM_SEND, NodeKind.COMM_RECV}:
            kind = KIND_NAMES.get(node.kind, node.kind)
            raise UnsupportedError(
                f"node {node.number} of rank {rank} is of kind {kind}; expected sends, receives and computations"
            )
        sends = node.kind == NodeKind.COMM_SEND
        peer = _count(rank, node, "comm_dst" if sends else "comm_src", self._num_ranks)
        ends = (rank, peer) if sends else (peer, rank)
        size = _count(rank, node, "comm_size", MAX_MESSAGE_BYTES)
        message = TraceMessage(*ends, _count(rank, node, "comm_tag", MAX_TAG), size)
        (self._sends if sends else self._receives)[message].append(number)
        return message

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield each send with its receive; `ProgramError` if their numbers differ."""
        for message in sorted(self._sends.keys() | self._receives.keys()):
            sends, receives = self._sends[message], self._receives[message]
            if len(sends) != len(receives):
                raise ProgramError(
                    f"rank {message.sender} sends {len(sends)} messages of {message.size} bytes with tag {message.tag} "
                    f"to rank {message.receiver}, which receives {len(receives)} of them; expected equally many"
                )
            yield from zip(sends, receives, strict=True)


def _count(rank: int, node: TraceNode, name: str, limit: int) -> int:
    value = node.value(name)
    if not isinstance(value, int) or not 0 <= value < limit:
        raise ProgramError(
            f"node {node.number} of rank {rank} has {name} {shown(value)}; expected a whole number below {limit}"
        )
    return value
