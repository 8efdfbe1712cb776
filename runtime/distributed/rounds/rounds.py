"""Cuts a program into rounds of messages, for libraries that send and receive in batches.

torch.distributed has no thread blocks: a rank posts a batch of sends and receives, waits for all of it, adds up what
has to be added, and posts the next.  Every rank works out the same rounds from the same program.  A transfer goes into
the first round after the data that it forwards has come in, and after earlier users of the memory that it fills have
gone, in which neither end already has as many operations as fit.  Explicit dependencies need no second look: in a
program without races two steps are ordered wherever their order matters to the data.

With several slices the whole program runs once for each slice of the data, one round apart, so that a rank forwards
the first slice while it receives the second: a tree of height h takes h + s - 1 rounds of 1 / s of the data each.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ....errors import UnsupportedError
from ...programs.checks import check_counts
from ...programs.ordering import Order, Site, global_order
from ...programs.program import ChunkRange, Program
from .planner import RoundPlanner

__all__ = ["MAX_OPERATIONS", "Message", "Round", "rounds_of"]

MAX_OPERATIONS = 64
"""Sends and receives of one rank in one batch; NCCL has been seen to hang with some hundreds (pytorch#174288)."""


class Message(NamedTuple):
    """One slice of `chunks` chunks on its way from `source` at the sender to `target` at the receiver.

    The chunks are consecutive ones of the collective, from number `first` on, and belong to one shard, so they are one
    piece of memory at either end.  Places in scratch are numbered so that none is ever used for another chunk.  A
    message with equal sender and receiver stays on its rank.  With an `operand` the receiver adds that to what comes,
    at the end of the round; those of lower `stage` first, from 1 on.
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
    """What can be in flight at the same time.

    Attributes
    ----------
    messages : tuple of Message
        Between ranks.  Both ends post them in this order.
    copies : tuple of Message
        Inside ranks.
    """

    messages: tuple[Message, ...]
    copies: tuple[Message, ...]


def rounds_of(program: Program, *, slices: int = 1, max_operations: int = MAX_OPERATIONS) -> tuple[Round, ...]:
    """Cut a checked program into rounds.

    Parameters
    ----------
    program : Program
        `check_program` accepts it.  With `in_place`, the rounds are right whether or not input and output are the same
        memory.
    slices : int
        Slices of each shard.
    max_operations : int
        Sends and receives that a rank may have in one round.

    Returns
    -------
    tuple of Round

    Raises
    ------
    ProgramError
        If the program has no order at all.
    UnsupportedError
        For parameters that are not positive, and programs that park a chunk of the output where another one belongs:
        shards need not divide evenly, so chunks differ in size.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.runtime.lowering.lower import lower_allgather
    >>> chain = [(0, 1, [(0, 1), (1, 2)]), (1, 1, [(1, 2), (2, 0)]), (2, 1, [(2, 0), (0, 1)])]
    >>> program = lower_allgather(Forest.from_paths(3, 1, chain))
    >>> [len(part.messages) for part in rounds_of(program)]
    [3, 3]
    """
    check_counts({"slices": slices, "max_operations": max_operations})
    order = global_order(program)
    contents = _Contents(program)
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
        planner.forget_memory()
        for number, message in enumerate(first_slice):
            last[number], stage = planner.place(message, at_least=last[number] + 1)
            placed.extend([] for _ in range(last[number] + 1 - len(placed)))
            placed[last[number]].append(message._replace(slice_number=slice_number, stage=stage))
    return tuple(
        Round(
            tuple(_joined([message for message in messages if message.sender != message.receiver], program)),
            tuple(_joined([message for message in messages if message.sender == message.receiver], program)),
        )
        for messages in placed
    )


class _Contents:
    """Knows which chunk of the collective each chunk of memory stands for.

    A chunk of scratch that is used again is another one from then on: numbers from the program's own on up.
    """

    def __init__(self, program: Program) -> None:
        self.layout = program.layout
        self.borders = frozenset(self.layout.blocks)
        self.outputs = [self.layout.output_chunks(rank) for rank in range(program.num_ranks)]
        self.scratch = [[-1] * rank.scratch_chunks for rank in program.ranks]
        self.places = [list(range(rank.scratch_chunks)) for rank in program.ranks]
        self.scratch_sizes = [rank.scratch_chunks for rank in program.ranks]

    def messages(self, order: Order, number: int) -> Iterator[Message]:
        """Yield the messages of a step that is no receive, cut where the chunks are not one piece of memory."""
        step, site = order.instructions[number], order.sites[number]
        partner = order.partners[number] if step.kind == "send" else number
        end, there = order.instructions[partner], order.sites[partner]
        # check_program has made sure that sends have a source, receives a target, and everything else both.
        assert step.source is not None
        assert end.target is not None
        operand = {"recv_reduce": end.source, "reduce": end.target}.get(end.kind)
        chunks = self._chunks(site.rank, step.source, step.count)
        sources = self._places(site.rank, step.source, step.count)
        operands: Sequence[int] = range(0)
        if operand is not None:
            self._expect(there, operand, chunks)
            operands = self._places(there.rank, operand, step.count)
        self._arrive(there, end.target, chunks)
        targets = self._places(there.rank, end.target, step.count)
        for begin, after in self._runs(chunks, sources, targets, operands):
            source, target = (
                ChunkRange(place.buffer, found[begin])
                for place, found in ((step.source, sources), (end.target, targets))
            )
            added = ChunkRange(operand.buffer, operands[begin]) if operand else None
            yield Message(site.rank, there.rank, source, target, after - begin, 0, chunks[begin], added)

    def _chunks(self, rank: int, place: ChunkRange, count: int) -> Sequence[int]:
        """Numbers in the collective of some chunks of memory."""
        if place.buffer == "scratch":
            return self.scratch[rank][place.start : place.start + count]
        if place.buffer == "output":
            return self.outputs[rank][place.start : place.start + count]
        first = self.layout.input_range(rank)[0] + place.start
        return range(first, first + count)

    def _places(self, rank: int, place: ChunkRange, count: int) -> Sequence[int]:
        """Where some chunks of memory are once those of scratch are told apart."""
        if place.buffer == "scratch":
            return self.places[rank][place.start : place.start + count]
        return range(place.start, place.start + count)

    def _arrive(self, site: Site, place: ChunkRange, chunks: Sequence[int]) -> None:
        """Take note of what scratch holds from now on; everything else has to stand where it belongs."""
        if place.buffer != "scratch":
            self._expect(site, place, chunks)
            return
        held, inside = self.scratch[site.rank], slice(place.start, place.start + len(chunks))
        if any(there not in (-1, chunk) for there, chunk in zip(held[inside], chunks, strict=True)):
            size = self.scratch_sizes[site.rank]
            self.scratch_sizes[site.rank] = size + len(chunks)
            self.places[site.rank][inside] = range(size, size + len(chunks))
        held[inside] = chunks

    def _expect(self, site: Site, place: ChunkRange, chunks: Sequence[int]) -> None:
        """Refuse to put chunks, or to add them, where others belong."""
        held = self._chunks(site.rank, place, len(chunks))
        if held == chunks:
            return
        for offset, (there, chunk) in enumerate(zip(held, chunks, strict=True)):
            if there != chunk:
                raise UnsupportedError(
                    f"{site} puts chunk {chunk} of the collective into {place.buffer} chunk {place.start + offset}, "
                    f"where chunk {there} belongs; in rounds a chunk can only go where the same chunk of a shard "
                    "belongs"
                )

    def _runs(self, chunks: Sequence[int], *places: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Yield where the pieces of memory begin and end that some chunks consist of."""
        cuts = {after for place in places for after in _gaps(place)}
        if isinstance(chunks, range):
            blocks = self.layout.blocks
            inner = blocks[bisect_right(blocks, chunks.start) : bisect_left(blocks, chunks.stop)]
            cuts.update(border - chunks.start for border in inner)
        else:
            cuts.update(_gaps(chunks))
            cuts.update(after for after in range(1, len(chunks)) if chunks[after] in self.borders)
        return pairwise([0, *sorted(cuts), len(chunks)])


def _gaps(numbers: Sequence[int]) -> Iterator[int]:
    """Yield where numbers do not go on by one."""
    if not isinstance(numbers, range):
        for after, (one, other) in enumerate(pairwise(numbers), 1):
            if other != one + 1:
                yield after


def _moved(place: ChunkRange, chunks: int) -> ChunkRange:
    return ChunkRange(place.buffer, place.start + chunks)


def _joined(messages: Sequence[Message], program: Program) -> list[Message]:
    """Join messages of one pair of ranks that continue each other everywhere, inside one shard."""
    joined: list[Message] = []
    blocks = program.layout.blocks
    for message in sorted(messages, key=_by_pair_and_place):
        if (
            joined
            and _continues(joined[-1], message)
            and blocks[bisect_right(blocks, message.first) - 1] < message.first
        ):
            joined[-1] = joined[-1]._replace(chunks=joined[-1].chunks + message.chunks)
        else:
            joined.append(message)
    return joined


def _by_pair_and_place(message: Message) -> tuple[int, int, int, int, str, int]:
    return (
        message.sender,
        message.receiver,
        message.slice_number,
        message.stage,
        message.source.buffer,
        message.source.start,
    )


def _continues(one: Message, other: Message) -> bool:
    return (
        one[:2] == other[:2]
        and (one.slice_number, one.stage, one.first + one.chunks) == (other.slice_number, other.stage, other.first)
        and other.source == _moved(one.source, one.chunks)
        and other.target == _moved(one.target, one.chunks)
        and other.operand == (_moved(one.operand, one.chunks) if one.operand else None)
    )
