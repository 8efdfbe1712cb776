"""Credits, acknowledgements and channels of one-sided puts; see docs/explanation/programs.md.

A *credit* from the receiver says that the target may be overwritten, an *acknowledgement* that the source has been
read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from ....support.arrays import IntArray, ShortArray, SmallArray
from ...programs.ordering import Order
from ...programs.program import Buffer, ChunkRange, Instruction, Program, copies_onto_itself
from ..format.execution_plan import ChannelType, Place

MAX_CLOCKS = 2**25  # Of all steps, held at a time where one rank has no more: 64 or 128 megabytes

Cell = tuple[int, Buffer, int]


@dataclass(frozen=True)
class Transfers:
    """Where each receive gets its data, and which credits and acknowledgements it returns."""

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
    accesses = _Accesses(program, order)
    needed = replace(bare, credits=set(), acknowledgements=set())
    by_rank: list[dict[int, Place]] = [{} for _ in program.ranks]
    for number, place in bare.arrivals.items():
        by_rank[place.rank][number] = place
    for clocks in _clocks_of_all(program, order):
        here = {number: place for rank in clocks.ranks for number, place in by_rank[rank].items()}
        needed.credits.update(_credits(program, order, here, accesses, clocks))
        needed.acknowledgements.update(_acknowledgements(order, here, accesses, clocks, on_ports))
    return needed


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


class _Links:
    """What each step comes after, as arrays: the steps before it and, of a receive, the send."""

    def __init__(self, order: Order) -> None:
        rows = zip(order.before, order.instructions, order.partners, strict=True)
        before = [(*earlier, partner) if step.receives else earlier for earlier, step, partner in rows]
        self.sequence, self.sites = np.array(order.sequence), np.array(order.sites).reshape(-1, 3)
        self.starts = np.cumsum([0, *map(len, before)])
        self.before = np.array([other for earlier in before for other in earlier], dtype=np.int64)


class _Clocks:
    """Vector clocks over the steps of some ranks."""

    def __init__(self, program: Program, links: _Links, ranks: range) -> None:
        self.ranks = ranks
        self._links = links
        self._ends = list(accumulate((len(program.ranks[rank].thread_blocks) for rank in ranks), initial=0))

    def happens_before(self, earlier: int, later: int) -> bool:
        """Whether a step of these ranks happens before another one."""
        return bool(self._clocks[later, self._columns[earlier]] >= self._links.sites[earlier, 2])

    @cached_property
    def _columns(self) -> IntArray:
        """Column of the thread block of each step, -1 for those of other ranks."""
        ranks, blocks = self._links.sites[:, 0] - self.ranks.start, self._links.sites[:, 1]
        own = (ranks >= 0) & (ranks < len(self.ranks))
        return np.where(own, np.array(self._ends)[np.where(own, ranks, 0)] + blocks, -1)

    @cached_property
    def _clocks(self) -> ShortArray | SmallArray:
        """Last step of each thread block of these ranks that is known to have finished at the end of each step."""
        from .step_clocks import step_clocks

        links, steps = self._links, self._links.sites[:, 2]
        narrow = np.int16 if steps.max(initial=0) <= np.iinfo(np.int16).max else np.int32
        clocks = np.empty((len(steps), self._ends[-1]), dtype=narrow)
        step_clocks(clocks, links.sequence, links.starts, links.before, self._columns, steps)
        return clocks


def _clocks_of_all(program: Program, order: Order) -> Iterator[_Clocks]:
    """Yield clocks of blocks of ranks, to limit memory."""
    first, width, links = 0, 0, _Links(order)
    for rank in program.ranks:
        width += len(rank.thread_blocks)
        if width * len(order.sequence) > MAX_CLOCKS and rank.rank > first:
            yield _Clocks(program, links, range(first, rank.rank))
            first, width = rank.rank, len(rank.thread_blocks)
    yield _Clocks(program, links, range(first, program.num_ranks))


def _credits(
    program: Program, order: Order, arrivals: Mapping[int, Place], accesses: _Accesses, clocks: _Clocks
) -> Iterator[int]:
    """Receives that need a credit: an earlier step may still use the target when the sender writes."""
    for number, place in arrivals.items():
        if place.buffer == "scratch" and place.start >= program.ranks[place.rank].scratch_chunks:
            continue  # Scratch of its own.
        touching, send = accesses.touching(place), order.partners[number]
        earlier = [other for other in touching if accesses.position[other] < accesses.position[number]]
        if not all(clocks.happens_before(other, send) for other in earlier):
            yield number


def _acknowledgements(
    order: Order, arrivals: Mapping[int, Place], accesses: _Accesses, clocks: _Clocks, on_ports: set[tuple[int, int]]
) -> Iterator[int]:
    """Receives that need an acknowledgement: a later step may overwrite the source before it is read."""
    for number in arrivals:
        send = order.partners[number]
        sender, receiver = order.sites[send].rank, order.sites[number].rank
        if (sender, receiver) not in on_ports:
            continue
        step = order.instructions[send]
        writing = accesses.writing(sender, step.source, step.count)
        later = [other for other in writing if accesses.position[other] > accesses.position[send]]
        if not all(clocks.happens_before(number, other) for other in later):
            yield number


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
        found = [
            (rank.rank, block.send_peer, block.channel)
            for rank in program.ranks
            for block in rank.thread_blocks
            if block.send_peer is not None
        ]
        connections = cls({}, {}, [{"memory": [], "port": []} for _ in program.ranks])
        for connection in sorted(found, key=lambda each: (sorted(each[:2]), each)):
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
