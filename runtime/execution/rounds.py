"""Division of a program into rounds of messages, for libraries that send and receive in batches.

Every rank derives the same rounds.  A transfer goes into the first round after the data that it forwards has come in
and after earlier users of the memory that it fills; in a program without races that keeps all dependencies.  A round
begins with sends and local copies and ends with sums, stage by stage: moments are ordered like ``round * STAGES +
stage``.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ..lowering.flows import ScratchAllocator
from ..programs.ordering import Order, Site, global_order
from ..programs.program import ChunkRange, Program

MAX_OPERATIONS = 64
"""Sends and receives of one rank in one batch; NCCL has been seen to hang with some hundreds (pytorch#174288)."""

STAGES = 2**20  # More than the contributions to one chunk, which are at most as many as ranks


class Message(NamedTuple):
    """One slice of `chunks` chunks, from number `first` on, that belong to one shard, so are one piece at either end.

    Places in scratch are numbered so that none is ever used for another chunk.  With an `operand` the receiver, maybe
    the sender itself, adds that to the data at the end of the round, in the order of `stage`, from 1 on.
    """

    sender: int
    receiver: int
    source: ChunkRange
    target: ChunkRange
    chunks: int
    slice_number: int
    first: int
    operand: ChunkRange | None = None
    stage: int = 0


@dataclass(frozen=True)
class Round:
    """Messages that can be in flight at the same time; the k-th of all ranks come before the (k + 1)-th ones."""

    messages: tuple[Message, ...]  # Between ranks; both ends post them in this order
    copies: tuple[Message, ...]  # Inside ranks


def rounds_of(program: Program, *, slices: int = 1, max_operations: int = MAX_OPERATIONS) -> tuple[Round, ...]:
    """Cut a checked program into rounds."""
    order = global_order(program)
    contents = _ChunkTracker(program)
    # A receive is placed together with its send.
    first_slice = [
        message
        for number in order.sequence
        if not order.instructions[number].receives
        for message in contents.messages(order, number)
    ]
    planner = RoundPlanner(program, contents.scratch_sizes, max_operations)
    last = [-1] * len(first_slice)
    placed: list[list[Message]] = []
    for slice_number in range(slices):
        planner.start_slice()
        for number, message in enumerate(first_slice):
            last[number], stage = planner.place(message, at_least=last[number] + 1)
            placed.extend([] for _ in range(last[number] + 1 - len(placed)))
            placed[last[number]].append(message._replace(slice_number=slice_number, stage=stage))
    rounds = []
    for messages in placed:
        sent, kept = (
            _joined([message for message in messages if (message.sender == message.receiver) is stays], program)
            for stays in (False, True)
        )
        rounds.append(Round(tuple(_in_turn(sent)), tuple(kept)))
    return tuple(rounds)


class _ChunkTracker:
    """Tracks the chunk of the collective in each chunk of memory; scratch that is used again gets another number."""

    def __init__(self, program: Program) -> None:
        self.layout = program.layout
        self.borders = frozenset(self.layout.blocks)
        self.outputs = [self.layout.output_chunks(rank) for rank in range(program.num_ranks)]
        self.scratch = [[-1] * rank.scratch_chunks for rank in program.ranks]
        self.places = [list(range(rank.scratch_chunks)) for rank in program.ranks]
        self.scratch_sizes = [rank.scratch_chunks for rank in program.ranks]

    def messages(self, order: Order, number: int) -> Iterator[Message]:
        """Yield the messages of a send, copy or reduce, cut where the chunks are not contiguous in memory."""
        step, site = order.instructions[number], order.sites[number]
        partner = order.partners[number] if step.kind == "send" else number
        end, there = order.instructions[partner], order.sites[partner]
        assert step.source is not None  # As `check_program` has made sure, like the next one.
        assert end.target is not None
        operand = {"recv_reduce": end.source, "reduce": end.target}.get(end.kind)
        chunks = self._chunks(site.rank, step.source, step.count)
        sources = self._locations(site.rank, step.source, step.count)
        operands: Sequence[int] = range(0)
        if operand is not None:
            self._check_placement(there, operand, chunks)
            operands = self._locations(there.rank, operand, step.count)
        self._write(there, end.target, chunks)
        targets = self._locations(there.rank, end.target, step.count)
        for begin, after in self._contiguous(chunks, sources, targets, operands):
            source, target = (
                ChunkRange(place.buffer, locations[begin])
                for place, locations in ((step.source, sources), (end.target, targets))
            )
            summand = ChunkRange(operand.buffer, operands[begin]) if operand else None
            yield Message(site.rank, there.rank, source, target, after - begin, 0, chunks[begin], summand)

    def _chunks(self, rank: int, place: ChunkRange, count: int) -> Sequence[int]:
        """Numbers in the collective of a range of chunks in memory."""
        if place.buffer == "scratch":
            return self.scratch[rank][place.start : place.start + count]
        if place.buffer == "output":
            return self.outputs[rank][place.start : place.start + count]
        first = self.layout.input_range(rank)[0] + place.start
        return range(first, first + count)

    def _locations(self, rank: int, place: ChunkRange, count: int) -> Sequence[int]:
        """Locations of a range of chunks, with reused scratch renumbered."""
        if place.buffer == "scratch":
            return self.places[rank][place.start : place.start + count]
        return range(place.start, place.start + count)

    def _write(self, site: Site, place: ChunkRange, chunks: Sequence[int]) -> None:
        """Record a write to scratch; in other buffers check that each chunk belongs there."""
        if place.buffer != "scratch":
            self._check_placement(site, place, chunks)
            return
        contents, inside = self.scratch[site.rank], slice(place.start, place.start + len(chunks))
        if any(there not in (-1, chunk) for there, chunk in zip(contents[inside], chunks, strict=True)):
            size = self.scratch_sizes[site.rank]
            self.scratch_sizes[site.rank] = size + len(chunks)
            self.places[site.rank][inside] = range(size, size + len(chunks))
        contents[inside] = chunks

    def _check_placement(self, site: Site, place: ChunkRange, chunks: Sequence[int]) -> None:
        """Refuse chunks that are written or added to where other chunks belong."""
        residents = self._chunks(site.rank, place, len(chunks))
        if residents == chunks:
            return
        for offset, (resident, chunk) in enumerate(zip(residents, chunks, strict=True)):
            if resident != chunk:
                raise UnsupportedError(
                    f"{site} puts chunk {chunk} of the collective into {place.buffer} chunk {place.start + offset}, "
                    f"where chunk {resident} belongs; in rounds a chunk can only go where it belongs"
                )

    def _contiguous(self, chunks: Sequence[int], *places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield begin and end of each contiguous piece of some chunks."""
        cuts = {after for place in places for after in _breaks(place)}
        if isinstance(chunks, range):
            blocks = self.layout.blocks
            inner = blocks[bisect_right(blocks, chunks.start) : bisect_left(blocks, chunks.stop)]
            cuts.update(border - chunks.start for border in inner)
        else:
            cuts.update(_breaks(chunks))
            cuts.update(after for after in range(1, len(chunks)) if chunks[after] in self.borders)
        return pairwise([0, *sorted(cuts), len(chunks)])


def _breaks(numbers: Sequence[int]) -> Iterable[int]:
    """Return the positions at which numbers are not consecutive."""
    if isinstance(numbers, range):
        return ()
    return (after for after, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1)


def _shifted(place: ChunkRange, chunks: int) -> ChunkRange:
    return ChunkRange(place.buffer, place.start + chunks)


def _in_turn(messages: Sequence[Message]) -> list[Message]:
    """Order messages by how many their sender sends before."""
    sent: Counter[int] = Counter()
    turns: dict[int, tuple[int, int]] = {}
    for place, message in enumerate(messages):
        turns[place] = sent[message.sender], message.sender
        sent[message.sender] += 1
    return [messages[place] for place in sorted(turns, key=turns.__getitem__)]


def _joined(messages: Sequence[Message], program: Program) -> list[Message]:
    """Merge messages that are adjacent at both ends in one shard; pairs of ranks stay in the order of first ones."""
    joined: list[Message] = []
    blocks = program.layout.blocks
    places: dict[tuple[int, int], int] = {}
    for message in messages:
        places.setdefault((message.sender, message.receiver), len(places))

    def key(message: Message) -> tuple[int, int, int, str, int]:
        pair, source = places[message.sender, message.receiver], message.source
        return pair, message.slice_number, message.stage, source.buffer, source.start

    for message in sorted(messages, key=key):
        inside = blocks[bisect_right(blocks, message.first) - 1] < message.first
        if joined and inside and _continues(joined[-1], message):
            joined[-1] = joined[-1]._replace(chunks=joined[-1].chunks + message.chunks)
        else:
            joined.append(message)
    return joined


def _continues(one: Message, other: Message) -> bool:
    return (
        one[:2] == other[:2]
        and (one.slice_number, one.stage, one.first + one.chunks) == (other.slice_number, other.stage, other.first)
        and other.source == _shifted(one.source, one.chunks)
        and other.target == _shifted(one.target, one.chunks)
        and other.operand == (_shifted(one.operand, one.chunks) if one.operand else None)
    )


class RoundPlanner:
    """Assigns messages to rounds by the last write and read of each chunk of memory, and the operations per round."""

    def __init__(self, program: Program, scratch: Sequence[int], max_operations: int) -> None:
        self.program = program
        self.scratch = scratch
        self.max_operations = max_operations
        self.operations: Counter[tuple[int, int]] = Counter()
        self.start_slice()

    def start_slice(self) -> None:
        """Start a new slice, which shares no memory with earlier ones."""
        self.written = [self._empty_times(rank) for rank in range(self.program.num_ranks)]
        self.read = [self._empty_times(rank) for rank in range(self.program.num_ranks)]

    def _empty_times(self, rank: int) -> dict[str, IntArray]:
        sizes = self.program.ranks[rank]
        chunks = {"input": sizes.input_chunks, "output": sizes.output_chunks, "scratch": self.scratch[rank]}
        if self.program.in_place:
            chunks["both"] = self.program.layout.chunks
        return {buffer: np.full(count, -1, dtype=np.int64) for buffer, count in chunks.items()}

    def place(self, message: Message, at_least: int) -> tuple[int, int]:
        """Assign a message to the first round possible; return the round and the stage."""
        # Times of the latest earlier accesses to the memory that the message reads, and that it fills.
        adds, stays = message.operand is not None, message.sender == message.receiver
        read = _latest(self._access_times(self.written, message.sender, message.source, message))
        filled = max(
            _latest(self._access_times(times, message.receiver, message.target, message))
            for times in (self.written, self.read)
        )
        if message.operand is not None:
            filled = max(filled, _latest(self._access_times(self.written, message.receiver, message.operand, message)))
        # Copies and sends come in a later round than earlier accesses, sums in a later stage.
        soonest = max(filled, read if stays else -1) + 1 if adds else 0
        if not adds:
            at_least = max(at_least, max(read, filled) // STAGES + 1)
        elif not stays:
            at_least = max(at_least, read // STAGES + 1)
        number = self._free_round(message, max(at_least, soonest // STAGES))
        stage = int(adds)
        if adds and number == soonest // STAGES:
            stage = max(1, soonest % STAGES)
        self._record(message, number, stage)
        return number, stage

    def _free_round(self, message: Message, number: int) -> int:
        """Return the first round from `number` on in which both ends are below the limit, and reserve it."""
        sender, receiver = message.sender, message.receiver
        if sender == receiver:
            return number
        while max(self.operations[sender, number], self.operations[receiver, number]) >= self.max_operations:
            number += 1
        self.operations[sender, number] += 1
        self.operations[receiver, number] += 1
        return number

    def _record(self, message: Message, number: int, stage: int) -> None:
        time = number * STAGES + stage
        reading = time if message.sender == message.receiver else number * STAGES
        for times in self._access_times(self.read, message.sender, message.source, message):
            np.maximum(times, reading, out=times)
        if message.operand is not None:
            for times in self._access_times(self.read, message.receiver, message.operand, message):
                np.maximum(times, time, out=times)
        for times in self._access_times(self.written, message.receiver, message.target, message):
            times[...] = time

    def _access_times(
        self, times: list[dict[str, IntArray]], rank: int, place: ChunkRange, message: Message
    ) -> Iterator[IntArray]:
        """Yield the access times of a range: of its buffer, and of the memory that input and output share in place."""
        yield times[rank][place.buffer][place.start : place.start + message.chunks]
        ends = message.source.buffer, message.target.buffer
        # In place, a local copy from input to output does nothing.
        stays = message.sender == message.receiver and ends == ("input", "output")
        if self.program.in_place and place.buffer != "scratch" and not stays:
            yield times[rank]["both"][message.first : message.first + message.chunks]


def _latest(times: Iterable[IntArray]) -> int:
    return max(int(access_times.max()) for access_times in times)


class RoundScratch:
    """The scratch of one rank, of `size` elements; pieces of memory of messages stay in one piece."""

    def __init__(self, rounds: Sequence[Round], rank: int, slices: int, elements: Callable[[int, int], int]) -> None:
        places = list(_locations(rounds, rank))
        chunks = max((place.start + message.chunks for _, message, place in places), default=0)
        self.held = np.full(chunks, -1, dtype=np.int64)
        self.is_continued = np.zeros(chunks, dtype=np.bool_)
        self.first = np.full((slices, chunks), len(rounds), dtype=np.int64)
        self.last = np.full((slices, chunks), -1, dtype=np.int64)
        for number, message, place in places:
            self._record(number, message, place.start)
        self.starts = np.zeros((slices, chunks), dtype=np.int64)
        self.size = self._find_places(elements)

    def start(self, slice_number: int, chunk: int) -> int:
        """Where a slice of a chunk of scratch begins."""
        return int(self.starts[slice_number, chunk])

    def _record(self, number: int, message: Message, start: int) -> None:
        """Record the lifetime of the chunks that a message reads or writes."""
        touched = slice(start, start + message.chunks)
        self.held[touched] = np.arange(message.first, message.first + message.chunks)
        self.is_continued[start : start + message.chunks - 1] = True
        first, last = self.first[message.slice_number], self.last[message.slice_number]
        np.minimum(first[touched], number, out=first[touched])
        np.maximum(last[touched], number, out=last[touched])

    def _find_places(self, elements: Callable[[int, int], int]) -> int:
        pieces = []
        for slice_number in range(len(self.starts)):
            for begin, end in self._pieces():
                sizes = [elements(chunk, slice_number) for chunk in self.held[begin:end].tolist()]
                self.starts[slice_number, begin:end] = np.cumsum([0, *sizes[:-1]])
                first, last = self.first[slice_number, begin:end].min(), self.last[slice_number, begin:end].max()
                pieces.append((int(first), int(last), slice_number, begin, end, sum(sizes)))
        slots = ScratchAllocator()
        allocations: list[tuple[int, int, int]] = []
        for first, last, slice_number, begin, end, size in sorted(pieces):
            if not size:
                continue
            for over in [allocation for allocation in allocations if allocation[0] < first]:
                slots.free(*over[1:])
                allocations.remove(over)
            place = slots.allocate(size)
            allocations.append((last, place, size))
            self.starts[slice_number, begin:end] += place
        return slots.size

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Yield contiguous ranges of chunks in use."""
        begin = 0
        for end in (np.flatnonzero(~self.is_continued) + 1).tolist():
            if self.held[begin] >= 0:
                yield begin, end
            begin = end


def _locations(rounds: Sequence[Round], rank: int) -> Iterator[tuple[int, Message, ChunkRange]]:
    """Yield the ranges of a rank's scratch that messages read or write, with the number of the round."""
    for number, part in enumerate(rounds):
        for message in (*part.messages, *part.copies):
            places: list[ChunkRange | None] = [message.source] if message.sender == rank else []
            places += [message.target, message.operand] if message.receiver == rank else []
            yield from ((number, message, place) for place in places if place and place.buffer == "scratch")
