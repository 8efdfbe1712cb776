"""`Program`: instructions of every rank, by thread blocks and steps, and checks of its counts.

The shape is that of MSCCL's interpreter (Cowan et al., "MSCCLang: Microsoft Collective Communication Language", ASPLOS
2023).  The steps of one thread block run in order; a step starts once every step in its `depends` has finished; the
k-th receive of a connection takes the data of its k-th send.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from ...errors import ProgramError, UnsupportedError
from ...schedules import Collective
from ...schedules.collective import collective_or_given
from ...support.validation import as_kind, is_int, shown
from .layout import Layout

Buffer = Literal["input", "output", "scratch"]
Kind = Literal["send", "recv", "copy", "reduce", "recv_reduce"]


@dataclass(frozen=True, slots=True)
class ChunkRange:
    """The first of consecutive chunks: `start` in a `buffer` of the rank; the instruction has their count."""

    buffer: Buffer
    start: int


@dataclass(frozen=True, slots=True)
class Dependency:
    """A step that has to finish first: `step` of another `thread_block` of the same rank."""

    thread_block: int
    step: int


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of a thread block.

    Attributes
    ----------
    kind : {"send", "recv", "copy", "reduce", "recv_reduce"}
        A send reads `source`, a recv writes `target`, a copy does both locally.  A reduce adds `source` to `target`.  A
        recv_reduce adds `source` to what comes from the receive peer and writes the sum to `target`, which may be
        `source`. Adding stands for the reduction operation of the call.
    source, target : ChunkRange or None
        None on the side that the kind does not use.
    count : int
        Number of chunks, the same at both ends of a transfer.
    depends : tuple of Dependency
    """

    kind: Kind
    source: ChunkRange | None
    target: ChunkRange | None
    count: int
    depends: tuple[Dependency, ...] = ()

    @property
    def receives(self) -> bool:
        """Whether the step takes a transfer from the receive peer."""
        return self.kind in ("recv", "recv_reduce")


@dataclass(frozen=True, slots=True)
class ThreadBlock:
    """Steps, `instructions`, that run in order and share one `send_peer`, one `recv_peer` and one `channel`."""

    send_peer: int | None  # A rank; None for no step in that direction
    recv_peer: int | None
    channel: int  # Of a rank, one block sends to (peer, channel) and one receives from it
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class RankProgram:
    """Program of one rank: `rank`, `input_chunks`, `output_chunks` and `scratch_chunks`, and its `thread_blocks`."""

    rank: int
    input_chunks: int
    output_chunks: int
    scratch_chunks: int
    thread_blocks: tuple[ThreadBlock, ...]


@dataclass(frozen=True)
class Program:
    """A collective as one list of steps per thread block per rank.

    Attributes
    ----------
    name : str
        Not part of a program's identity.
    collective : Collective
        Such as `ALLGATHER`, or its name.
    num_ranks : int
    chunks_per_loop : int
        Chunks of the whole collective: for allgather and reduce_scatter, those of all shards; for all_to_all and
        all_to_allv, those of all ranks for all ranks.
    ranks : tuple of RankProgram
        In rank order.
    in_place : bool
        Whether input and output are the same memory: the smaller of the two is its own part of the larger.
    shards : tuple of int
        Chunks of each rank's shard, if they are not equal.  Broadcast and reduce have one shard, that of the root;
        allreduce has none; all_to_allv has one from each rank for each, row by row.
    """

    name: str = field(compare=False)
    collective: Collective
    num_ranks: int
    chunks_per_loop: int
    ranks: tuple[RankProgram, ...]
    in_place: bool = False
    shards: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Look up the collective by its name."""
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @cached_property
    def layout(self) -> Layout:
        """Position of each chunk of the collective on each rank."""
        return Layout.of(self.collective, self.num_ranks, self.chunks_per_loop, self.shards)

    @property
    def num_instructions(self) -> int:
        """Steps of all thread blocks of all ranks."""
        return sum(len(block.instructions) for rank in self.ranks for block in rank.thread_blocks)

    @property
    def scratch_chunks(self) -> int:
        """Chunks of scratch on the rank that needs most."""
        return max((rank.scratch_chunks for rank in self.ranks), default=0)

    @property
    def num_channels(self) -> int:
        """One more than the largest channel in use."""
        return 1 + max((block.channel for rank in self.ranks for block in rank.thread_blocks), default=0)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything but the name: equal digests mean equal programs."""
        state = hashlib.sha256()
        for line in self._lines():
            state.update(line.encode())
        return state.hexdigest()

    def __hash__(self) -> int:
        """Hash the cached digest, so that programs can be keys of caches."""
        return hash(self.digest)

    def _lines(self) -> Iterator[str]:
        yield f"{self.collective} {self.num_ranks} {self.chunks_per_loop} {self.in_place} {self.shards}\n"
        for rank in self.ranks:
            yield f"rank {rank.rank} {rank.input_chunks} {rank.output_chunks} {rank.scratch_chunks}\n"
            for block in rank.thread_blocks:
                yield f"block {block.send_peer} {block.recv_peer} {block.channel}\n"
                for step in block.instructions:
                    ends = [f"{end.buffer}{end.start}" if end else "-" for end in (step.source, step.target)]
                    waits = [f"{wait.thread_block}.{wait.step}" for wait in step.depends]
                    yield " ".join([step.kind, *ends, str(step.count), *waits, "\n"])

    def __str__(self) -> str:
        """Name and size; scratch is that of the rank that needs most."""
        scratch = f", {self.scratch_chunks} scratch chunks" if self.scratch_chunks else ""
        return (
            f"{self.name}: {self.collective} on {self.num_ranks} ranks, {self.chunks_per_loop} chunks, "
            f"{self.num_instructions} steps, {self.num_channels} channels{scratch}"
        )


def copies_onto_itself(program: Program, rank: int, step: Instruction) -> bool:
    """Whether a step copies a chunk onto itself if input and output are the same memory."""
    if step.kind != "copy" or step.source is None or step.target is None:
        return False
    first, other = program.layout.input_range(rank)[0], program.layout.output_range(rank)[0]
    buffers = step.source.buffer, step.target.buffer
    return buffers == ("input", "output") and first + step.source.start == other + step.target.start


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of `choices`."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        raise UnsupportedError(f"{name} is {shown(value)}; expected one of {', '.join(names)}")


def check_counts(values: Mapping[str, object], minimum: int = 1) -> None:
    """Refuse values, by name, that are not integers of at least `minimum`; numpy integers are refused too."""
    for name, value in values.items():
        if not is_int(value) or value < minimum:
            raise UnsupportedError(f"{name} is {shown(value)}; expected a whole number of at least {minimum}")


def check_seconds(name: str, value: object) -> None:
    """Refuse a value that is not a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise UnsupportedError(f"{name} is {shown(value)}; expected a positive number of seconds")


def require_program(program: object) -> None:
    """Refuse a value that is not a program."""
    as_kind(program, Program, "the program", hint=", such as lower makes of a plan's schedule")


NUMBERS: dict[type[Any], tuple[str, ...]] = {
    Program: ("num_ranks", "chunks_per_loop"),
    RankProgram: ("rank", "input_chunks", "output_chunks", "scratch_chunks"),
    ThreadBlock: ("channel",),
    Instruction: ("count",),
    ChunkRange: ("start",),
    Dependency: ("thread_block", "step"),
}
"""Fields that are whole numbers."""


def check_structure(program: Program) -> None:
    """Refuse a program with a field of the wrong type."""
    require_program(program)
    _check_kind(program, Program, "the program")
    if not isinstance(program.name, str):
        raise _refusal("the program's name", program.name, "text")
    if not isinstance(program.collective, Collective | str):  # `Program.layout` refuses names that are no collective's
        raise _refusal("the program's collective", program.collective, "text")
    if not isinstance(program.in_place, bool):
        raise _refusal("the program's in_place", program.in_place, "True or False")
    for shard in _tuple(program.shards, "the program's shards"):
        _check_number(shard, "a shard of the program")
    for rank_number, rank in enumerate(_tuple(program.ranks, "the program's ranks")):
        where = f"rank {rank_number}"
        _check_kind(rank, RankProgram, where)
        for number, block in enumerate(_tuple(rank.thread_blocks, f"the thread blocks of {where}")):
            _check_block(block, f"{where} thread block {number}")


def _check_block(block: object, where: str) -> None:
    _check_kind(block, ThreadBlock, where)
    assert isinstance(block, ThreadBlock)  # That was checked.
    for peer in (block.send_peer, block.recv_peer):
        if peer is not None:
            _check_number(peer, f"a peer of {where}")
    for number, step in enumerate(_tuple(block.instructions, f"the instructions of {where}")):
        # The common case without a call, because programs have millions of steps.
        if type(step) is not Instruction or type(step.count) is not int or type(step.kind) is not str:
            _check_kind(step, Instruction, f"{where} step {number}")
            if not isinstance(step.kind, str):
                raise _refusal(f"the kind of {where} step {number}", step.kind, "text")
        for end in (step.source, step.target):
            if end is not None and (type(end) is not ChunkRange or type(end.start) is not int):
                _check_kind(end, ChunkRange, f"a source or target of {where} step {number}")
        for wait in step.depends if type(step.depends) is tuple else _tuple(step.depends, f"the waits of {where}"):
            if type(wait) is not Dependency or type(wait.step) is not int or type(wait.thread_block) is not int:
                _check_kind(wait, Dependency, f"a wait of {where} step {number}")


def _check_kind(thing: object, kind: type[Any], where: str) -> None:
    as_kind(thing, kind, where, error=ProgramError)
    for name in NUMBERS[kind]:
        _check_number(getattr(thing, name), f"{name} of {where}")


def _check_number(value: object, where: str) -> None:
    if not is_int(value):
        raise _refusal(where, value, "a whole number")


def _tuple(value: object, where: str) -> tuple[Any, ...]:
    return as_kind(value, tuple, where, error=ProgramError)


def _refusal(where: str, value: object, expected: str) -> ProgramError:
    return ProgramError(f"{where} is {shown(value)}; expected {expected}")
