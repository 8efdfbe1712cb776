"""Replay of Chakra execution traces by the rules of ASTRA-sim's custom collectives, in whole ns (its cycles).

A send is over when its message has come, a receive when it has started and its message has come, a computation after
its duration or 1 ns.  The k-th send and receive of the same tag, ends and size match.  A message of B bytes takes a
path of the fewest links, of each ``floor(l + B / b)``, and keeps it busy for ``floor(B / b)``; links serve in node
order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError, UnsupportedError
from ...support.validation import shown
from ...topologies import Topology
from .matching import Matching
from .trace import NodeKind, Trace, TraceNode

NS_PER_US = 1000
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

    Returns
    -------
    Replay

    Examples
    --------
    Two ranks exchange halves of 64 kB: 1310 ns and a latency of 500 ns.

    >>> import collopt
    >>> pair = collopt.topologies.complete(2, bandwidth=25, latency="0.5")
    >>> traces = collopt.runtime.plan_traces(collopt.plan(pair, "allgather"), "64K")
    >>> replay_traces(traces, pair)
    Replay(nanoseconds=1810, messages=2)
    """
    from ...schedules.timing.event_loop import Network, run_events

    if not isinstance(topology, Topology):
        raise UnsupportedError(f"the topology is {shown(topology)}; expected a Topology")
    if not isinstance(traces, Sequence) or not all(isinstance(each, Trace) for each in traces):
        raise UnsupportedError(f"the traces are {shown(traces)}; expected a list of one Trace for each rank")
    if len(traces) != topology.num_ranks:
        raise UnsupportedError(f"there are {len(traces)} traces; expected one for each of {topology.num_ranks} ranks")
    work = _Network(topology)
    numbers = [work.add_rank(rank, trace) for rank, trace in enumerate(traces)]
    work.match()
    lengths = [len(links) for links in work.links]
    waits = np.array(work.waits, dtype=np.int64).reshape(-1, 2)
    network = Network(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        _flatten(work.links),
        _flatten(work.ticks),
        _flatten(work.delays),
        np.concatenate([np.arange(len(each), dtype=np.int64) for each in numbers]),
        waits[:, 0],
        waits[:, 1],
        work.num_links,
    )
    timeline = run_events(network, 1)
    if timeline.unfinished:
        raise ProgramError(f"{timeline.unfinished} of {len(lengths)} nodes never start, because they wait in a cycle")
    return Replay(timeline.finish, work.num_messages)


def _flatten(columns: Iterable[Sequence[int]]) -> npt.NDArray[np.int64]:
    return np.array([entry for column in columns for entry in column], dtype=np.int64)


class _Network:
    """Nodes of all ranks as transfers with hops; each rank's computations have a link of their own."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._places = {(link.tail, link.head): number for number, link in enumerate(topology.links)}
        self._paths: dict[int, dict[int, list[int]]] = {}
        self._matching = Matching(topology.num_ranks)
        self.num_links = len(topology.links)
        self.num_messages = 0
        self.links: list[list[int]] = []
        self.ticks: list[list[int]] = []
        self.delays: list[list[int]] = []
        self.waits: list[tuple[int, int]] = []

    def add_rank(self, rank: int, trace: Trace) -> list[int]:
        """Add the nodes of a rank; return their numbers."""
        first = len(self.links)
        numbers = {node.number: first + place for place, node in enumerate(trace.nodes)}
        for node in trace.nodes:
            number = numbers[node.number]
            hops = self._hops(rank, node, number)
            for column, entries in zip((self.links, self.ticks, self.delays), hops, strict=True):
                column.append(entries)
            self.waits.extend((numbers[before], number) for before in (*node.waits, *node.controls))
        return list(numbers.values())

    def _hops(self, rank: int, node: TraceNode, number: int) -> tuple[list[int], list[int], list[int]]:
        """Links that a node uses, its time on each, and its latency."""
        if node.kind == NodeKind.COMP:
            self.num_links += 1
            return [self.num_links - 1], [node.duration * NS_PER_US or MIN_COMPUTATION_NS], [0]
        message = self._matching.add(rank, node, number)
        if message is None or node.kind != NodeKind.COMM_SEND:
            return [], [], []
        return self._crossing(message.sender, message.receiver, message.size)

    def _crossing(self, sender: int, receiver: int, size: int) -> tuple[list[int], list[int], list[int]]:
        """Return the time of a message on each link of its path."""
        self.num_messages += 1
        path = self._path(sender, receiver)
        links = [self._topology.links[place] for place in path]
        times = [(NS_PER_US * link.latency, Fraction(size) / link.bandwidth) for link in links]
        busy = [int(needed) for _, needed in times]
        return path, busy, [int(latency + needed) - int(needed) for latency, needed in times]

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

    def match(self) -> None:
        """Add the dependency of every receive on its send."""
        self.waits.extend(self._matching.pairs())
