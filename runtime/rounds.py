"""Cuts a program into rounds of messages, for libraries that send and receive in batches.

torch.distributed has no thread blocks: a rank posts a batch of sends and receives, waits for all of it, and posts the
next.  Every rank works out the same rounds from the same program.  A transfer goes into the first round after the
data that it forwards has come in, and after earlier users of the memory that it fills have gone, in which neither end
already has as many operations as fit.  Explicit dependencies need no second look: in a program without races two steps
are ordered wherever their order matters to the data.

With several slices the whole program runs once for each slice of every shard, one round apart, so that a rank forwards
the first slice while it receives the second: a tree of height h takes h + s - 1 rounds of 1 / s of the data each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from .ordering import Order, global_order
from .program import ChunkRange, Program

__all__ = ["MAX_OPERATIONS", "Message", "Round", "rounds_of"]

MAX_OPERATIONS = 64
"""Sends and receives of one rank in one batch; NCCL has been seen to hang with some hundreds (pytorch#174288)."""


class Message(NamedTuple):
    """One slice of `chunks` chunks on its way from `source` at the sender to `target` at the receiver.

    The chunks belong to one shard, so they are one piece of memory at either end.  A message with equal sender and
    receiver is a local copy.
    """

    sender: int
    receiver: int
    source: ChunkRange
    target: ChunkRange
    chunks: int
    slice_number: int


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
        `check_program` accepts it.
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
        For parameters that are not positive, and programs that use scratch memory or that park a chunk where
        another one belongs: shards need not divide evenly, so chunks differ in size.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.runtime.lowering import lower_allgather
    >>> chain = [(0, 1, [(0, 1), (1, 2)]), (1, 1, [(1, 2), (2, 0)]), (2, 1, [(2, 0), (0, 1)])]
    >>> program = lower_allgather(Forest.from_paths(3, 1, chain))
    >>> [len(part.messages) for part in rounds_of(program)]
    [3, 3]
    """
    for name, value in (("slices", slices), ("max_operations", max_operations)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UnsupportedError(f"{name} is {value!r}; expected a whole number of at least 1")
    order = global_order(program)
    shard = program.chunks_per_loop // program.num_ranks
    # A receive is placed together with its send.
    first_slice = [
        message
        for number in order.sequence
        if order.instructions[number].kind != "recv"
        for message in _messages(order, number, shard)
    ]
    planner = _Planner(program, max_operations)
    last = [-1] * len(first_slice)
    for slice_number in range(slices):
        planner.forget_memory()
        for number, message in enumerate(first_slice):
            last[number] = planner.place(message._replace(slice_number=slice_number), at_least=last[number] + 1)
    return planner.rounds(shard)


def _messages(order: Order, number: int, shard: int) -> Iterator[Message]:
    """Yield the message of a send or copy, cut where a new shard begins."""
    step, site = order.instructions[number], order.sites[number]
    partner = order.partners[number] if step.kind == "send" else number
    source, target, count = step.source, order.instructions[partner].target, step.count
    # check_program has made sure that sends have a source, receives a target, and copies both.
    assert source is not None
    assert target is not None
    if "scratch" in (source.buffer, target.buffer) or (source.start - target.start) % shard:
        raise UnsupportedError(
            f"{site} moves {source.buffer} chunk {source.start} to {target.buffer} chunk {target.start}; in rounds a "
            "chunk can only go where the same chunk of a shard belongs"
        )
    done = 0
    while done < count:
        size = min(count - done, shard - (source.start + done) % shard)
        yield Message(
            site.rank,
            order.sites[partner].rank,
            ChunkRange(source.buffer, source.start + done),
            ChunkRange(target.buffer, target.start + done),
            size,
            0,
        )
        done += size


class _Planner:
    """Remembers when each chunk of memory was last written and read, and how full the rounds are."""

    def __init__(self, program: Program, max_operations: int) -> None:
        self.program = program
        self.max_operations = max_operations
        self.operations: Counter[tuple[int, int]] = Counter()
        self.placed: list[list[Message]] = []
        self.forget_memory()

    def forget_memory(self) -> None:
        """Start a new slice, which shares no memory with the ones before."""
        self.written = [self._never(rank) for rank in range(self.program.num_ranks)]
        self.read = [self._never(rank) for rank in range(self.program.num_ranks)]

    def _never(self, rank: int) -> dict[str, npt.NDArray[np.int64]]:
        sizes = self.program.ranks[rank]
        chunks = {"input": sizes.input_chunks, "output": sizes.output_chunks}
        return {buffer: np.full(count, -1, dtype=np.int64) for buffer, count in chunks.items()}

    def place(self, message: Message, at_least: int) -> int:
        """Put a message into the first round that takes it and return that round."""
        sender, receiver, source, target, chunks, _ = message
        reading = slice(source.start, source.start + chunks)
        writing = slice(target.start, target.start + chunks)
        written_here = self.written[sender][source.buffer]
        written_there = self.written[receiver][target.buffer]
        read_there = self.read[receiver][target.buffer]
        after = max(written_here[reading].max(), written_there[writing].max(), read_there[writing].max())
        number = max(at_least, int(after) + 1)
        if sender != receiver:
            while max(self.operations[sender, number], self.operations[receiver, number]) >= self.max_operations:
                number += 1
            self.operations[sender, number] += 1
            self.operations[receiver, number] += 1
        read_here = self.read[sender][source.buffer]
        np.maximum(read_here[reading], number, out=read_here[reading])
        written_there[writing] = number
        self.placed.extend([] for _ in range(number + 1 - len(self.placed)))
        self.placed[number].append(message)
        return number

    def rounds(self, shard: int) -> tuple[Round, ...]:
        """Return all rounds, neighbouring messages joined."""
        return tuple(
            Round(
                tuple(_joined([message for message in messages if message.sender != message.receiver], shard)),
                tuple(_joined([message for message in messages if message.sender == message.receiver], shard)),
            )
            for messages in self.placed
        )


def _joined(messages: Sequence[Message], shard: int) -> list[Message]:
    """Join messages of one pair of ranks that continue each other at both ends, inside one shard."""
    joined: list[Message] = []
    for message in sorted(messages, key=_by_pair_and_place):
        if joined and _continues(joined[-1], message) and message.source.start % shard:
            joined[-1] = joined[-1]._replace(chunks=joined[-1].chunks + message.chunks)
        else:
            joined.append(message)
    return joined


def _by_pair_and_place(message: Message) -> tuple[int, int, int, str, int]:
    return message.sender, message.receiver, message.slice_number, message.source.buffer, message.source.start


def _continues(first: Message, second: Message) -> bool:
    return (
        first[:2] == second[:2]
        and first.slice_number == second.slice_number
        and second.source == ChunkRange(first.source.buffer, first.source.start + first.chunks)
        and second.target == ChunkRange(first.target.buffer, first.target.start + first.chunks)
    )
