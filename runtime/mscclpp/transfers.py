"""Credits, acknowledgements and channels of one-sided puts; see docs/explanation/programs.md.

A *credit* from the receiver says that the target may be overwritten, an *acknowledgement* that the source has been
read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from ...errors import ProgramError
from ...schedules import Schedule
from ..programs.happens_before import Steps
from ..programs.ordering import Order, with_joined_sends
from ..programs.program import Buffer, ChunkRange, Instruction, Program, copies_onto_itself
from . import executor
from .execution_plan import ChannelType, Place

Cell = tuple[int, Buffer, int]


@dataclass(frozen=True)
class Transfers:
    """Arrival, credit and acknowledgement of each receive."""

    arrivals: dict[int, Place]  # Of each receive, by its number in the order
    credits: set[int]  # receives that send a credit
    acknowledgements: set[int]  # receives that send an acknowledgement
    scratch: list[int]  # Scratch chunks of each rank, those of the program included


def transfers_without_flow_control(program: Program, order: Order) -> Transfers:
    """Decide for each transfer where it arrives, without credits and acknowledgements."""
    scratch = [rank.scratch_chunks for rank in program.ranks]
    arrivals: dict[int, Place] = {}
    for number in order.sequence:
        step, rank = order.instructions[number], order.sites[number].rank
        if not step.receives:
            continue
        target = step.target
        assert target is not None  # The checks know that a receive has one.
        arrivals[number] = Place(rank, target.buffer, target.start, step.count)
        if _needs_staging(step, program):
            arrivals[number] = Place(rank, "scratch", scratch[rank], step.count)
            scratch[rank] += step.count
    return Transfers(arrivals, set(), set(), scratch)


def plan_transfers(program: Program, order: Order, on_ports: set[tuple[int, int]]) -> Transfers:
    """Decide for each transfer where it arrives, and whether it needs a credit and an acknowledgement."""
    bare = transfers_without_flow_control(program, order)
    accesses, events = _Accesses(program, order), Steps.of(order).events(order.sequence)

    def unordered(rows: Iterator[tuple[int, int, int]]) -> set[int]:
        """Receives of those (receive, earlier step, later step) whose steps nothing else keeps in order."""
        table = np.fromiter(chain.from_iterable(rows), dtype=np.int64).reshape(-1, 3)
        earlier, later = accesses.position[table[:, 1]], accesses.position[table[:, 2]]
        is_ordered = events.knows(later, events.processes[earlier], events.steps[earlier])
        return set(table[~is_ordered, 0].tolist())

    return replace(
        bare,
        credits=unordered(_credits(program, order, bare.arrivals, accesses)),
        acknowledgements=unordered(_acknowledgements(order, bare.arrivals, accesses, on_ports)),
    )


def stays_in_place(program: Program, rank: int, step: Instruction) -> bool:
    """Whether a step copies a chunk onto itself, input and output being the same memory."""
    return program.in_place and copies_onto_itself(program, rank, step)


def _needs_staging(step: Instruction, program: Program) -> bool:
    """Whether received data cannot be put directly into the step's target."""
    if step.kind != "recv_reduce" or step.source is None or step.target is None:
        return False
    if step.source.buffer == step.target.buffer:
        return abs(step.source.start - step.target.start) < step.count
    return program.in_place and "scratch" not in (step.source.buffer, step.target.buffer)


def cells(program: Program, rank: int, place: ChunkRange | Place | None, count: int) -> Iterator[Cell]:
    """Keys of the chunks of a range; aliased chunks have the same key."""
    if place is None:
        return
    buffer, start = place.buffer, place.start
    if program.in_place and buffer != "scratch":
        layout = program.layout
        start += (layout.input_range(rank) if buffer == "input" else layout.output_range(rank))[0]
        buffer = "output"
    for chunk in range(start, start + count):
        yield rank, buffer, chunk


class _Accesses:
    """Which steps read and write each chunk, by (rank, buffer, chunk), and the position of each step in the order."""

    def __init__(self, program: Program, order: Order) -> None:
        self.program = program
        self.position = np.empty(len(order.sequence), dtype=np.int64)
        self.position[order.sequence] = np.arange(len(order.sequence))
        self._reads: dict[Cell, list[int]] = defaultdict(list)
        self._writes: dict[Cell, list[int]] = defaultdict(list)
        for number in order.sequence:
            step, rank = order.instructions[number], order.sites[number].rank
            if stays_in_place(program, rank, step):
                continue
            for cell in cells(self.program, rank, step.source, step.count):
                self._reads[cell].append(number)
            for cell in cells(self.program, rank, step.target, step.count):
                self._writes[cell].append(number)

    def touching(self, place: Place) -> set[int]:
        """Steps that read or write one of the chunks."""
        touched = list(cells(self.program, place.rank, place, place.count))
        return {number for cell in touched for table in (self._reads, self._writes) for number in table.get(cell, ())}

    def writing(self, rank: int, place: ChunkRange | None, count: int) -> set[int]:
        """Steps that write one of the chunks."""
        return {number for cell in cells(self.program, rank, place, count) for number in self._writes.get(cell, ())}


def _credits(
    program: Program, order: Order, arrivals: Mapping[int, Place], accesses: _Accesses
) -> Iterator[tuple[int, int, int]]:
    """Pairs of a receive that need a credit if unordered: an earlier use of the target, and the send."""
    for number, place in arrivals.items():
        if place.buffer == "scratch" and place.start >= program.ranks[place.rank].scratch_chunks:
            continue  # Scratch of its own.
        for other in accesses.touching(place):
            if accesses.position[other] < accesses.position[number]:
                yield number, other, order.partners[number]


def _acknowledgements(
    order: Order, arrivals: Mapping[int, Place], accesses: _Accesses, on_ports: set[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """Pairs of a receive that need an acknowledgement if unordered: the receive, and a later write to the source."""
    for number in arrivals:
        send = order.partners[number]
        sender, receiver = order.sites[send].rank, order.sites[number].rank
        if (sender, receiver) in on_ports:
            step = order.instructions[send]
            for other in accesses.writing(sender, step.source, step.count):
                if accesses.position[other] > accesses.position[send]:
                    yield number, number, other


End = tuple[ChannelType, int]  # A channel of a GPU: its type, and its position among those of that type


@dataclass(frozen=True)
class Connections:
    """Channels of a plan: both ends of each connection, and the other end of each channel of each rank."""

    senders: dict[tuple[int, int, int], End]
    receivers: dict[tuple[int, int, int], End]
    peers: list[dict[ChannelType, list[int]]]

    @classmethod
    def of(cls, program: Program, on_ports: set[tuple[int, int]]) -> Connections:
        """Assign every connection a pair of channels: one for data and signals, one for credits."""
        keys = [
            (rank.rank, block.send_peer, block.channel)
            for rank in program.ranks
            for block in rank.thread_blocks
            if block.send_peer is not None
        ]
        connections = cls({}, {}, [{"memory": [], "port": []} for _ in program.ranks])
        for connection in sorted(keys, key=lambda key: (sorted(key[:2]), key)):
            sender, receiver, _ = connection
            kind: ChannelType = "port" if (sender, receiver) in on_ports else "memory"
            for ends, here, there in (
                (connections.senders, sender, receiver),
                (connections.receivers, receiver, sender),
            ):
                peers = connections.peers[here][kind]
                ends[connection] = kind, len(peers)
                peers.append(there)
        return connections


Group = tuple[int, ...]


@dataclass(frozen=True)
class Multicast:
    """Sends of one rank that become one store to a switch channel; `target` is where, on every GPU of the group."""

    sends: tuple[int, ...]  # In the order of the program
    target: Place


@dataclass(frozen=True)
class Multicasts:
    """Multicasts of a program, in whose order their sends follow one another."""

    order: Order
    by_send: Mapping[int, Multicast]
    dropped: frozenset[int]  # Copies that they make too
    groups: tuple[Group, ...]  # Those that they use


def switch_groups(schedule: Schedule, boxes: Sequence[int]) -> tuple[Group, ...]:
    """Ranks beside each switch that multicasts: disjoint groups of one box, to which one thread block can signal."""
    neighbors: dict[int, set[int]] = defaultdict(set)
    for forest in getattr(schedule, "forests", ()):
        if forest.direction == "broadcast" and len(forest.switches):
            switches = set(forest.switches.tolist())
            for number in range(len(forest.path_starts) - 1):
                path = forest.path(number)
                if len(path) == 2 and (on := switches & set(path)):
                    neighbors[min(on)].update(set(path) - on)
    groups: list[Group] = []
    for ranks in sorted({tuple(sorted(group)) for group in neighbors.values()}, key=lambda group: (-len(group), group)):
        alone = not any(set(ranks) & set(other) for other in groups)
        signalled = 1 <= len(ranks) - 1 <= executor.MAX_CHANNELS  # All by the thread block that stores
        if alone and signalled and len({boxes[rank] for rank in ranks}) == 1:
            groups.append(ranks)
    return tuple(sorted(groups))


def plan_multicasts(program: Program, order: Order, groups: Sequence[Group]) -> Multicasts:
    """Find the sends that one store can make; `groups` share no rank."""
    multicasts = _suited(program, order, groups)
    dropped: set[int] = set()
    while multicasts:
        covered = {
            cell
            for multicast in multicasts
            for cell in cells(program, multicast.target.rank, multicast.target, multicast.target.count)
        }
        split: set[Cell] = set()
        dropped = set()
        for number, step in enumerate(order.instructions):
            rank = order.sites[number].rank
            if step.kind == "copy" and step.target is not None and step.source is not None:
                own = set(cells(program, rank, step.target, step.count))
                if own <= covered:
                    dropped.add(number)
                else:
                    split |= own & covered
        if not split:
            break
        multicasts = [
            multicast
            for multicast in multicasts
            if not split & set(cells(program, multicast.target.rank, multicast.target, multicast.target.count))
        ]
    joined = order
    try:
        if multicasts:
            joined = with_joined_sends(order, [multicast.sends for multicast in multicasts])
    except ProgramError:
        # Programs of other origin may send in an order in which no rank can store for all.
        multicasts, dropped = [], set()
    used = {multicast.target.rank for multicast in multicasts}
    by_send = {send: multicast for multicast in multicasts for send in multicast.sends}
    # What stays in place is no copy, so nothing of it is dropped.
    return Multicasts(joined, by_send, frozenset(dropped), tuple(group for group in groups if used & set(group)))


def _suited(program: Program, order: Order, groups: Sequence[Group]) -> list[Multicast]:
    """Multicasts whose data is to be in the same place on all ranks, and their own."""
    group_of = {rank: frozenset(group) for group in groups for rank in group}
    sends: dict[tuple[int, ChunkRange, ChunkRange, int], dict[int, int]] = defaultdict(dict)
    writers: dict[Cell, set[int]] = defaultdict(set)
    for number, step in enumerate(order.instructions):
        rank = order.sites[number].rank
        if step.target is not None and rank in group_of:
            for cell in cells(program, rank, step.target, step.count):
                writers[cell].add(number)
        if step.kind != "send" or step.source is None:
            continue
        receive = order.instructions[order.partners[number]]
        peer = order.sites[order.partners[number]].rank
        if receive.kind == "recv" and receive.target is not None and receive.target.buffer == "output":
            sends[rank, step.source, receive.target, step.count].setdefault(peer, number)
    multicasts = []
    for (rank, source, target, count), numbers in sends.items():
        own = {peer: number for peer, number in numbers.items() if peer in group_of.get(rank, ())}
        if len(own) + 1 != len(group_of.get(rank, ())):
            continue
        pairs = zip(*(cells(program, rank, end, count) for end in (source, target)), strict=True)
        if all(here == there or _only_copied(program, order, writers[there], here, there) for here, there in pairs):
            place = Place(rank, target.buffer, target.start, count)
            multicasts.append(Multicast(tuple(sorted(own.values())), place))
    return _within_channels(order, multicasts)


def _only_copied(program: Program, order: Order, writers: Iterable[int], source: Cell, target: Cell) -> bool:
    """Whether all that is written to a chunk of the rank is a copy of another one of it."""
    steps = [order.instructions[number] for number in writers]
    return bool(steps) and all(
        step.kind == "copy"
        and step.source is not None
        and step.target is not None
        and (source, target)
        in zip(*(cells(program, source[0], end, step.count) for end in (step.source, step.target)), strict=True)
        for step in steps
    )


def _within_channels(order: Order, multicasts: Sequence[Multicast]) -> list[Multicast]:
    """Leave out multicasts by thread blocks that would need too many channels together."""
    component: dict[tuple[int, int], set[tuple[int, int]]] = {}
    kept = []
    for multicast in multicasts:
        blocks = {(order.sites[send].rank, order.sites[send].thread_block) for send in multicast.sends}
        merged = blocks.union(*(component.get(block, ()) for block in blocks))
        if len(merged) <= executor.MAX_CHANNELS:
            component.update(dict.fromkeys(merged, merged))
            kept.append(multicast)
    return kept
