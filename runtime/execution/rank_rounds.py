"""Messages that one rank posts in each round, in elements of its own tensors.

With C chunks in a shard, chunk c of a slice of m elements has those from ``c * m // C`` to ``(c + 1) * m // C - 1``;
the weights of shards share out all elements likewise.  Data to be added arrives in a staging area.  As a sender waits
for its receiver, a round also posts receives of later rounds on a CPU.  Small data is packed: one message for each
peer and round.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from ...errors import ProgramError
from ..programs.interpret import run_program
from ..programs.layout import Layout
from ..programs.program import ChunkRange, Program
from .rounds import Message, Round, RoundScratch, rounds_of

Memory = Literal["input", "output", "scratch", "staging"]

MAX_ELEMENTS = 2**18  # Up to which copies cost less than messages, by measurement with four processes and Gloo


class Piece(NamedTuple):
    """Elements ``begin .. end - 1`` of one of the rank's memories."""

    memory: Memory
    begin: int
    end: int


class Operation(NamedTuple):
    """A send or receive of this rank."""

    peer: int
    is_send: bool
    piece: Piece


class Copy(NamedTuple):
    """A local copy."""

    source: Piece
    target: Piece


class Sum(NamedTuple):
    """A reduction ``target = one + other``, element by element, by the caller's operation."""

    one: Piece
    other: Piece
    target: Piece


class RankRound(NamedTuple):
    """One rank's part of a round; sums are computed last, in this order."""

    operations: tuple[Operation, ...]
    copies: tuple[Copy, ...]
    sums: tuple[Sum, ...]
    packing: tuple[Copy, ...] = ()  # Before all sends
    unpacking: tuple[Copy, ...] = ()  # After all receives
    receives: tuple[Operation, ...] = ()  # Posted when the round begins, also those of later rounds

    @property
    def pieces(self) -> list[Piece]:
        """All memory that the round reads or writes."""
        moves = (*self.copies, *self.packing, *self.unpacking, *self.sums)
        return [*(piece for _, _, piece in self.operations), *(piece for move in moves for piece in move)]


class RankRounds(NamedTuple):
    """One rank's rounds, and the sizes of its scratch and staging area in elements."""

    rounds: tuple[RankRound, ...]
    scratch: int
    staging: int


def shard_elements(layout: Layout, elements: int) -> tuple[int, ...]:
    """Divide `elements` in all into those of each shard, or of each pair of ranks."""
    ends = [elements * offset // layout.chunks for offset in layout.offsets]
    return tuple(end - begin for begin, end in pairwise(ends))


@lru_cache(maxsize=32)
def checked_rounds(program: Program, slices: int) -> tuple[Round, ...]:
    """Check a program and cut it into rounds, once; also for in-place calls if it supports them."""
    run_program(program, interleavings=1)
    return rounds_of(replace(program, in_place=works_in_place(program)), slices=slices)


@lru_cache(maxsize=32)
def works_in_place(program: Program) -> bool:
    """Whether a program is correct if input and output are the same memory."""
    try:
        run_program(replace(program, in_place=True), interleavings=1)
    except ProgramError:
        return False
    return True


@lru_cache(maxsize=128)
def rank_rounds(program: Program, slices: int, rank: int, elements: int, areas: int = 2) -> RankRounds:
    """Return one rank's rounds of a collective on `elements` in all; a second staging area serves early receives."""
    work = _translated(program, slices, rank, elements, checked_rounds(program, slices), areas=areas)
    layout, begins = program.layout, {}
    if not layout.in_pairs:
        # Input and output may be one memory.
        ranges = {"input": layout.input_range(rank), "output": layout.output_range(rank)}
        begins = {name: elements * chunks[0] // layout.chunks for name, chunks in ranges.items()}
    return work._replace(rounds=_posting_early([part for part in work.rounds if any(part)], begins))


def _posting_early(rounds: Sequence[RankRound], begins: Mapping[str, int]) -> tuple[RankRound, ...]:
    """Post each receive when its memory is free, but in order; memories with `begins` are parts of one."""

    def located(piece: Piece) -> tuple[str, int, int]:
        begin = begins.get(piece.memory, 0)
        return "both" if piece.memory in begins else piece.memory, begin + piece.begin, begin + piece.end

    def uses(number: int, memory: str, begin: int, end: int) -> bool:
        return any(name == memory and first < end and begin < last for name, first, last in places[number])

    places = [[located(piece) for piece in part.pieces] for part in rounds]
    receives: list[list[Operation]] = [[] for _ in rounds]
    posted: dict[int, int] = defaultdict(int)
    for number, part in enumerate(rounds):
        for operation in part.operations:
            if not operation.is_send:
                place, peer = located(operation.piece), operation.peer
                later = range(number - 1, posted[peer] - 1, -1)
                posted[peer] = next((at + 1 for at in later if uses(at, *place)), posted[peer])
                receives[posted[peer]].append(operation)
    return tuple(part._replace(receives=tuple(own)) for part, own in zip(rounds, receives, strict=True))


def aligned_rounds(program: Program, slices: int, elements: int) -> list[RankRounds]:
    """Return the rounds of every rank, with those in which it does nothing."""
    rounds = checked_rounds(program, slices)
    own: list[list[tuple[list[Message], list[Message]]]] = [[([], []) for _ in rounds] for _ in program.ranks]
    for number, part in enumerate(rounds):
        for kind, messages in enumerate((part.messages, part.copies)):
            for message in messages:
                for rank in {message.sender, message.receiver}:
                    own[rank][number][kind].append(message)
    return [
        _translated(program, slices, rank, elements, [Round(tuple(sent), tuple(kept)) for sent, kept in parts])
        for rank, parts in enumerate(own)
    ]


def _translated(
    program: Program, slices: int, rank: int, elements: int, rounds: Sequence[Round], *, areas: int = 1
) -> RankRounds:
    """Translate the rounds to those of one rank, which take turns with one or two staging areas."""
    map_ = _RankTranslator(program, rank, elements, slices, rounds, areas)
    parts = tuple(map_.rank_round(part) for part in rounds)
    staging = [summation.one.end for part in parts for summation in part.sums if summation.one.memory == "staging"]
    return RankRounds(parts, map_.scratch.size, max(staging, default=0))


class _RankTranslator:
    """Translates the messages of rounds to elements of one rank's memories."""

    def __init__(
        self, program: Program, rank: int, elements: int, slices: int, rounds: Sequence[Round], areas: int
    ) -> None:
        self.layout = program.layout
        self.rank = rank
        self.slices = slices
        self.ends = [elements * block // self.layout.chunks for block in self.layout.blocks]
        self.input_start = elements * self.layout.input_range(rank)[0] // self.layout.chunks
        # Outputs may have several pieces: where they begin in the row of chunks, and how far they are moved from there.
        pieces = self.layout.output_ranges(rank)
        self.output_pieces = [begin for begin, _ in pieces]
        bounds = [[elements * chunk // self.layout.chunks for chunk in piece] for piece in pieces]
        places = accumulate((end - begin for begin, end in bounds), initial=0)
        self.output_shifts = [begin - place for (begin, _), place in zip(bounds, places, strict=False)]
        self.scratch = RoundScratch(rounds, rank, slices, self._elements)
        self.areas = areas
        self.staged = 0, 0  # Where the last round's staging begins and ends

    def rank_round(self, part: Round) -> RankRound:
        """Return this rank's part of a round."""
        operations, sums = [], []
        first = staged = 0 if self.areas == 1 or self.staged[0] else self.staged[1]
        # Messages between ranks; data that is to be added arrives in the staging area.
        for message in part.messages:
            begin, end = self._extent(message.first, message.chunks, message.slice_number)
            if begin == end:
                continue
            if message.sender == self.rank:
                operations.append(Operation(message.receiver, True, self._piece(message, message.source)))
            elif message.receiver == self.rank and message.operand is None:
                operations.append(Operation(message.sender, False, self._piece(message, message.target)))
            elif message.receiver == self.rank:
                arrival = Piece("staging", staged, staged + end - begin)
                staged = arrival.end
                operations.append(Operation(message.sender, False, arrival))
                sums.append((message.stage, self._sum(message, arrival)))
        # Copies and sums inside the rank.
        copies = []
        for message in part.copies:
            if message.sender == self.rank and message.operand is None:
                copies.append(Copy(self._piece(message, message.source), self._piece(message, message.target)))
            elif message.sender == self.rank:
                sums.append((message.stage, self._sum(message, self._piece(message, message.source))))
        self.staged = first, staged
        in_order = sorted(sums, key=lambda entry: entry[0])
        return RankRound(tuple(operations), tuple(copies), tuple(entry for _, entry in in_order))

    def _sum(self, message: Message, arrival: Piece) -> Sum:
        assert message.operand is not None  # Or it would not be a sum.
        return Sum(arrival, self._piece(message, message.operand), self._piece(message, message.target))

    def _piece(self, message: Message, place: ChunkRange) -> Piece:
        begin, end = self._extent(message.first, message.chunks, message.slice_number)
        if place.buffer == "scratch":
            start = self.scratch.start(message.slice_number, place.start)
            return Piece("scratch", start, start + end - begin)
        if place.buffer == "input":
            return Piece("input", begin - self.input_start, end - self.input_start)
        shift = self.output_shifts[bisect_right(self.output_pieces, message.first) - 1]
        return Piece("output", begin - shift, end - shift)

    def _elements(self, chunk: int, slice_number: int) -> int:
        """Elements of one chunk of the collective in a slice."""
        begin, end = self._extent(chunk, 1, slice_number)
        return end - begin

    def _extent(self, first: int, chunks: int, slice_number: int) -> tuple[int, int]:
        """Elements of a chunk range of one shard, counted over the whole collective."""
        blocks = self.layout.blocks
        block = bisect_right(blocks, first) - 1
        base, elements = self.ends[block], self.ends[block + 1] - self.ends[block]
        start = elements * slice_number // self.slices
        size = elements * (slice_number + 1) // self.slices - start
        inside, of = first - blocks[block], blocks[block + 1] - blocks[block]
        return base + start + inside * size // of, base + start + (inside + chunks) * size // of


@lru_cache(maxsize=128)
def packed_rounds(program: Program, slices: int, rank: int, elements: int) -> RankRounds:
    """Return one rank's rounds, packed."""
    plain = rank_rounds(program, slices, rank, elements)
    packer = _Packer()
    rounds = [packer.packed(part)._replace(receives=()) for part in plain.rounds]
    receives = tuple(operation for part in rounds for operation in part.operations if not operation.is_send)
    rounds[:1] = [part._replace(receives=receives) for part in rounds[:1]]
    return RankRounds(tuple(rounds), plain.scratch, packer.size)


class _Packer:
    """Gives every message a place in the staging area, whose `size` grows with them."""

    def __init__(self) -> None:
        self.size = 0

    def packed(self, part: RankRound) -> RankRound:
        """Join the messages of a round to and from each peer."""
        operations, before, after = [], [], []
        arrivals: dict[Piece, Piece] = {}
        for peer in sorted({peer for peer, _, _ in part.operations}):
            for is_send in (True, False):
                pieces = [piece for *end, piece in part.operations if end == [peer, is_send]]
                if is_send and len(pieces) == 1:
                    operations.append(Operation(peer, True, pieces[0]))
                elif pieces:
                    begin, places = self.size, self._places(pieces)
                    operations.append(Operation(peer, is_send, Piece("staging", begin, self.size)))
                    if is_send:
                        before += [Copy(piece, place) for piece, place in zip(pieces, places, strict=True)]
                        continue
                    arrivals |= zip(pieces, places, strict=True)
        after = [Copy(place, piece) for piece, place in arrivals.items() if piece.memory != "staging"]
        sums = (summation._replace(one=arrivals.get(summation.one, summation.one)) for summation in part.sums)
        return RankRound(tuple(operations), part.copies, tuple(sums), tuple(before), tuple(after))

    def _places(self, pieces: Iterable[Piece]) -> list[Piece]:
        places = []
        for piece in pieces:
            begin, self.size = self.size, self.size + piece.end - piece.begin
            places.append(Piece("staging", begin, self.size))
        return places
