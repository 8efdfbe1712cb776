"""Messages between ranks, of programs, MSCCL++ plans or other files, and their routes through a network.

A file says which rank sends to which.  Each message takes a route with the fewest links; of these, the widest; and of
these, where a fabric has several, the one used least so far, as planners with a fixed pattern choose them.

In programs every step is an event that waits for the step above it and for those that it depends on; a send is a
message that waits for its step, and a receive waits for the message too.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from math import lcm
from typing import NamedTuple

import numpy as np

from ...errors import ProgramError, UnsupportedError
from ...planners.literature.routes import Hops, LinkLoads
from ...planners.trees.problem import TreeProblem
from ...schedules.transfers import Transfers
from ...support.arrays import IntArray
from ...support.formatting import count_text
from ...topologies import Topology
from ..mscclpp import executor
from ..mscclpp.code import SymbolicMemory, layout_of
from ..mscclpp.execution_plan import ExecutionPlan, Operation, Place, Signal, flat
from ..programs.interpret import Contents, Data, symbolic_machine
from ..programs.layout import Layout
from ..programs.ordering import Order
from ..programs.program import Program


@dataclass
class Messages:
    """Messages that wait for others, and events: messages from a rank to itself, the begin or end of a step."""

    unit: Fraction  # What one unit of `amounts` is of all the data, as nccl-tests counts it
    senders: list[int] = field(default_factory=list)
    receivers: list[int] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)  # Of messages that wait for one link, the least goes first
    adds: list[bool] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)  # (before, after)
    contents: dict[int, list[Contents]] = field(default_factory=dict)  # Chunks of each message, if they are traced

    @classmethod
    def of(cls, layout: Layout) -> Messages:
        """Begin without messages, in chunks; between pairs, all data is the average of a rank."""
        return cls(Fraction(layout.num_ranks if layout.in_pairs else 1, layout.chunks))

    def send(
        self,
        sender: int,
        receiver: int,
        amount: int,
        before: Iterable[int],
        *,
        adds: bool = False,
        data: Data | None = None,
    ) -> int:
        """Add a message that waits for others, one level above them; `data`: contents; return its number."""
        number = self._add(sender, receiver, amount, before, adds, 1)
        if data is not None:
            self.contents[number] = data.tolist()
        return number

    def event(self, rank: int, before: Iterable[int]) -> int:
        """Add an event that waits for messages and events; return its number."""
        return self._add(rank, rank, 0, before, False, 0)

    def _add(self, sender: int, receiver: int, amount: int, before: Iterable[int], adds: bool, above: int) -> int:
        number, earlier = len(self.senders), list(dict.fromkeys(before))
        self.senders.append(sender)
        self.receivers.append(receiver)
        self.amounts.append(amount)
        self.levels.append(max((self.levels[earlier_number] for earlier_number in earlier), default=-above) + above)
        self.adds.append(adds)
        self.waits.extend((earlier_number, number) for earlier_number in earlier)
        return number


class Routed(NamedTuple):
    """Messages with their routes."""

    transfers: Transfers
    pairs: int  # Pairs of ranks that send
    ambiguous: int  # Those with several routes that are as short and as wide
    switched: bool  # Whether switches add up or copy

    @property
    def text(self) -> str:
        """How routes were chosen, in words."""
        pairs = f"{count_text(self.pairs, 'pair')} of ranks"
        if self.switched:
            pairs = f"switches that add up or copy{f', and {pairs}' if self.pairs else ''}"
        if not self.ambiguous:
            return f"{pairs}, each with one shortest route" if self.pairs else pairs
        return (
            f"{pairs}, of which {self.ambiguous} have several shortest routes that are equally wide; each message "
            "takes the one used least so far"
        )


def routed(messages: Messages, topology: Topology) -> Routed:
    """Give each message a route; `UnsupportedError` for ranks without one that passes no other rank."""
    pairs = list(zip(messages.senders, messages.receivers, strict=True))
    tails, heads, capacities, _ = topology.arrays
    shards = np.ones(topology.num_ranks, dtype=np.int64)
    hops, loads = Hops(TreeProblem(topology, "broadcast", tails, heads, capacities, shards)), LinkLoads(capacities)
    # Shortest and widest routes of each pair.
    choices = {pair: hops.find_routes(*pair) for pair in sorted(set(pairs)) if pair[0] != pair[1]}
    links: list[tuple[int, ...]] = [()] * len(pairs)
    # Those without a choice come first, so that the others know of them.
    order = sorted(range(len(pairs)), key=lambda number: len(choices.get(pairs[number], ())) > 1)
    for number in order:
        if routes := choices.get(pairs[number]):
            links[number] = loads.take(routes, messages.amounts[number]).links
    between = [routes for pair, routes in choices.items() if max(pair) < topology.num_ranks]
    ambiguous = sum(len(routes) > 1 for routes in between)
    return Routed(_transfers(messages, links), len(between), ambiguous, len(between) < len(choices))


def _transfers(messages: Messages, links: list[tuple[int, ...]]) -> Transfers:
    """Messages with the links of each."""
    waits = np.array(messages.waits, dtype=np.int64).reshape(-1, 2)
    return Transfers(
        senders=_column(messages.senders),
        receivers=_column(messages.receivers),
        firsts=np.zeros(len(messages.senders), dtype=np.int64),
        amounts=_column(messages.amounts),
        unit=messages.unit,
        levels=_column(messages.levels),
        adds=np.array(messages.adds, dtype=np.bool_),
        hop_starts=_column(accumulate(map(len, links), initial=0)),
        hop_links=_column(link for route in links for link in route),
        before=waits[:, 0],
        after=waits[:, 1],
    )


def _column(values: Iterable[int]) -> IntArray:
    return np.array(list(values), dtype=np.int64)


def program_messages(program: Program, order: Order, *, traced: bool = False) -> Messages:
    """List the messages of a program whose steps are in `order`; `traced`: with their contents."""
    messages, machine = Messages.of(program.layout), symbolic_machine(program) if traced else None
    steps: dict[int, int] = {}
    sends: dict[int, int] = {}
    for number in order.sequence:
        site, step, partner = order.sites[number], order.instructions[number], order.partners[number]
        before = [steps[earlier] for earlier in order.before[number]]
        if step.receives:
            before.append(sends[partner])
        steps[number] = messages.event(site.rank, before)
        data = None if machine is None else machine.execute(site)
        if step.kind == "send":
            peer = order.sites[partner].rank
            adds = order.instructions[partner].kind == "recv_reduce"
            sends[number] = messages.send(site.rank, peer, step.count, [steps[number]], adds=adds, data=data)
    return messages


def plan_messages(plan: ExecutionPlan, topology: Topology, *, traced: bool = False) -> Messages:
    """List the messages of an MSCCL++ plan: its writes, reads and sums of switches; `traced`: with contents."""
    layout, parts = layout_of(plan), lcm(*(operation.part[1] for operation in plan.operations()))
    first = plan.gpus[0]
    chunks = max(first.input_chunks, first.output_chunks)
    unit = Fraction(1, chunks) if layout is None else Messages.of(layout).unit
    return _Signals(plan, topology, Messages(unit / parts), parts, traced).run()


class _Signals:
    """Runs thread blocks in turn, each as far as signals allow; the k-th wait takes the k-th signal of a channel.

    Packets are waited for as their first writes arrive; a chunk has so many `parts`.
    """

    def __init__(self, plan: ExecutionPlan, topology: Topology, messages: Messages, parts: int, traced: bool) -> None:
        self._plan = plan
        self._topology = topology
        self._messages = messages
        self._parts = parts
        self._others = plan.channel_pairs()
        self._last: dict[tuple[int, int], int] = {}  # The last event of each thread block
        # What a signal to a rank comes after: the writes and signals to it before, by block and type of channel.
        self._pending: defaultdict[tuple[int, int, str, int], list[int]] = defaultdict(list)
        self._stores: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # Copies from switches, by block
        self._tokens: defaultdict[Signal, deque[int | None]] = defaultdict(deque)
        self._packets: dict[tuple[int, int], int] = {}  # The message with each part of scratch, by rank
        self._arrived: defaultdict[tuple[int, int], list[int]] = defaultdict(list)  # At each barrier, so far
        self._at: dict[tuple[int, int], int] = {}  # Arrivals for which a block waits there
        for rank, gpu in enumerate(plan.gpus):
            for number, value in enumerate(gpu.semaphores):
                self._tokens["semaphore", rank, number].extend([None] * value)
        self._memory = SymbolicMemory(plan) if traced else None

    def run(self) -> Messages:
        """Run all thread blocks to their ends."""
        left = {
            (rank, number): deque(operation for operation in flat(block) if operation.name != "pipeline")
            for rank, gpu in enumerate(self._plan.gpus)
            for number, block in enumerate(gpu.thread_blocks)
        }
        while left:
            moved = False
            for block, operations in list(left.items()):
                while operations and self._goes_on(block, operations[0]):
                    self._run_operation(block, operations.popleft())
                    moved = True
                if not operations:
                    del left[block]
            if left and not moved:
                rank, number = next(iter(left))
                raise ProgramError(f"the plan deadlocks: rank {rank} thread block {number} waits for a signal")
        return self._messages

    def _goes_on(self, block: tuple[int, int], operation: Operation) -> bool:
        """Whether all that an operation waits for is there."""
        if operation.name == "barrier":
            arrived = self._arrived[block[0], operation.barrier[0]]
            if block not in self._at:
                arrived.append(self._last.get(block, -1))
                self._at[block] = -(-len(arrived) // operation.barrier[1]) * operation.barrier[1]
            return len(arrived) >= self._at[block]
        is_there = all(self._tokens[token] for token in operation.awaited(block[0]))
        return is_there and all(cell in self._packets for cell in self._cells(operation, operation.sources))

    def _cells(self, operation: Operation, places: Iterable[Place]) -> list[tuple[int, int]]:
        """Parts of scratch that an operation has as packets."""
        number, parts = operation.part
        cells = []
        for place in places:
            if place.packed:
                share = place.count * self._parts // parts
                begin = place.start * self._parts + number * share
                cells += [(place.rank, cell) for cell in range(begin, begin + share)]
        return cells

    def _run_operation(self, block: tuple[int, int], operation: Operation) -> None:
        rank, messages = block[0], self._messages
        signals = [self._tokens[token].popleft() for token in operation.awaited(rank)]
        if operation.name == "barrier":
            meeting = self._at.pop(block)
            signals += self._arrived[rank, operation.barrier[0]][meeting - operation.barrier[1] : meeting]
        before = [token for token in (self._last.get(block), *signals) if token is not None and token >= 0]
        before += [self._packets[cell] for cell in self._cells(operation, operation.sources)]
        sources, targets = operation.copies(self._plan.gpus[rank])
        data = None if self._memory is None else self._memory.run(rank, operation)
        contents: list[Data | None] = [None] * len(targets)
        if data:
            is_copy = operation.name in executor.PAIRED
            contents = [data[at] if is_copy else sum(data[1:], data[0]) for at in range(len(targets))]
        if operation.name in ("get", "rre", "rres"):
            before = self._reads(rank, operation, sources, data, messages.event(rank, before))
        here = self._last[block] = messages.event(rank, before)
        kind, peers = operation.channel_type or "memory", self._plan.gpus[rank].peers
        if operation.name in executor.SWITCH_OPERATIONS:
            self._stores[block] += self._switch(rank, operation, here, data)
            for cell in self._cells(operation, targets):
                self._packets.setdefault(cell, self._stores[block][-1])
        else:
            self._write(block, operation, targets, contents, here)
        if operation.signals:
            for channel in operation.channels:
                self._signal(block, (str(kind), rank, channel), peers[kind][channel], here)
        if operation.name == "sem_release":
            for number in operation.semaphores:
                self._tokens["semaphore", rank, number].append(here)

    def _reads(
        self, rank: int, operation: Operation, sources: Iterable[Place], data: list[Data] | None, begun: int
    ) -> list[int]:
        """Add what an operation reads from other ranks before it writes; return all that comes before that."""
        before = [begun]
        for at, place in enumerate(sources):
            if place.rank != rank:
                amount, own = self._amount(operation, place), None if data is None else data[at]
                adds = operation.name != "get"
                before.append(self._messages.send(place.rank, rank, amount, [begun], adds=adds, data=own))
        return before

    def _write(
        self,
        block: tuple[int, int],
        operation: Operation,
        targets: Iterable[Place],
        contents: Iterable[Data | None],
        here: int,
    ) -> None:
        """Add what an operation writes to other ranks."""
        for target, own in zip(targets, contents, strict=True):
            message = here
            if target.rank != block[0]:
                amount = self._amount(operation, target)
                message = self._messages.send(block[0], target.rank, amount, [here], data=own)
                self._pending[(*block, operation.channel_type or "memory", target.rank)].append(message)
            for cell in self._cells(operation, [target]):
                self._packets.setdefault(cell, message)

    def _amount(self, operation: Operation, place: Place) -> int:
        """Units that an operation moves to or from a place."""
        return place.count * self._parts // operation.part[1]

    def _signal(self, block: tuple[int, int], channel: Signal, peer: int, here: int) -> None:
        kind, rank, position = channel
        other = self._others.get((rank, "port" if kind == "port" else "memory", position))
        if other is None:
            raise ProgramError(f"rank {rank} signals on {kind} channel {position}, which has no other end")
        pending = (*block, kind, peer)
        arrival = self._messages.event(rank, [here, *self._pending[pending], *self._stores[block]])
        self._pending[pending] = [arrival]
        self._tokens[other[1], other[0], other[2]].append(arrival)

    def _switch(self, rank: int, operation: Operation, here: int, data: list[Data] | None) -> list[int]:
        """Add the sums of a switch for a rank, and copies from it; return the copies."""
        gpu, messages = self._plan.gpus[rank], self._messages
        count = self._amount(operation, operation.sources[0])
        group = gpu.switches[operation.channels[-1]].ranks
        switch = self._switch_of(group, adds=operation.name == "glres")
        # Where switches send copies back, a rank's own data goes to the switch too.
        reached = [peer for peer in group if peer != rank or self._topology.nodes[switch] in self._topology.loopback]
        before, result = [here], None if data is None else sum(data[1:], data[0])
        if operation.name == "glres":
            own = {} if data is None else dict(zip(gpu.switches[operation.channels[0]].ranks, data, strict=True))
            parts = [messages.send(peer, switch, count, before, adds=True, data=own.get(peer)) for peer in reached]
            added = None if data is None else sum((own[peer] for peer in reached[1:]), own[reached[0]])
            before = [messages.send(switch, rank, count, parts, adds=rank not in reached, data=added)]
        stored = messages.send(rank, switch, count, before, data=result)
        return [messages.send(switch, peer, count, [stored], data=result) for peer in reached]

    def _switch_of(self, group: Sequence[int], *, adds: bool) -> int:
        """Find the switch that copies, and adds if need be, between all ranks of a group; its node's number."""
        topology = self._topology
        linked = {(link.tail, link.head) for link in topology.links}
        capable = topology.multicast & topology.aggregation if adds else topology.multicast
        ends = [topology.nodes[member] for member in group]
        candidates = [
            switch
            for switch in topology.switch_nodes
            if switch in capable and all((end, switch) in linked and (switch, end) in linked for end in ends)
        ]
        if len(candidates) != 1:
            raise UnsupportedError(
                f"the plan uses a switch channel of {len(ends)} ranks, and {len(candidates)} switches of "
                f"{topology.name} are linked to all of them and able to do it; expected one"
            )
        return topology.node_index[candidates[0]]
