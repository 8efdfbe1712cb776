"""Runs the rounds of programs on numpy arrays, as torch.distributed and JAX would run them on tensors."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import pairwise

import numpy as np

from collopt.runtime import Program
from collopt.runtime.execution.jax_function import Rows, row_program
from collopt.runtime.execution.rank_rounds import (
    Operation,
    Piece,
    RankRound,
    RankRounds,
    packed_rounds,
    rank_rounds,
    shard_elements,
)
from collopt.runtime.programs.layout import Layout

Queues = dict[tuple[int, int], deque[np.ndarray]]


class Rank:
    """One rank working through its rounds as torch.distributed would: post a batch, wait for all of it, add, go on."""

    def __init__(self, work: RankRounds, program: Program, rank: int, elements: int, in_place: bool) -> None:
        self.rank = rank
        self.parts = list(work.rounds)
        (begin, end), (first, last) = _spans(program, rank, elements)
        self.mine = np.random.default_rng(rank).integers(-(2**62), 2**62, end - begin)
        self.memory = {
            "input": self.mine.copy(),
            "output": np.full(last - first, -1),
            "scratch": np.full(work.scratch, -2),
            "staging": np.full(work.staging, -3),
        }
        if in_place and end - begin >= last - first:
            self.memory["output"] = self.memory["input"][first - begin : last - begin]
        elif in_place:
            self.memory["output"][begin - first : end - first] = self.mine
            self.memory["input"] = self.memory["output"][begin - first : end - first]
        self.posted: dict[int, deque[Operation]] = defaultdict(deque)  # Receives, by peer
        self.missing: Counter[int] = Counter()  # Of a round; below zero, some of later ones have come
        self.current: RankRound | None = None

    @property
    def awaited(self) -> list[int]:
        """Peers from which some of the round has still to come."""
        return [peer for peer, count in self.missing.items() if count > 0]

    def post(self, queues: Queues) -> None:
        """Send, post receives, and copy what stays."""
        part = self.current = self.parts.pop(0)
        for move in part.packing:
            self.held(move.target)[:] = self.held(move.source)
        for each in part.operations:
            if each.is_send:
                queues[self.rank, each.peer].append(self.held(each.piece).copy())
        for each in part.receives:
            self.posted[each.peer].append(each)
        self.missing.update(each.peer for each in part.operations if not each.is_send)
        for move in part.copies:
            self.held(move.target)[:] = self.held(move.source)

    def held(self, piece: Piece) -> np.ndarray:
        """Memory that a piece names, all of it there."""
        memory = self.memory[piece.memory]
        assert 0 <= piece.begin <= piece.end <= len(memory)
        return memory[piece.begin : piece.end]

    def receive(self, queues: Queues) -> None:
        """Take what has arrived, in order from each peer, also for later rounds; once all is there, add."""
        for peer, posted in self.posted.items():
            while posted and queues[peer, self.rank]:
                self.held(posted.popleft().piece)[:] = queues[peer, self.rank].popleft()
                self.missing[peer] -= 1
        if not self.awaited and self.current is not None:
            for move in self.current.unpacking:
                self.held(move.target)[:] = self.held(move.source)
            for each in self.current.sums:
                self.held(each.target)[:] = self.held(each.one) + self.held(each.other)
            self.current = None


def _span(layout: Layout, chunks: tuple[int, int], rank: int, elements: int) -> tuple[int, int]:
    """Elements of some chunks that are everything, or the shard of a rank."""
    if chunks == (0, layout.chunks):
        return 0, elements
    shares = shard_elements(layout, elements)
    return sum(shares[:rank]), sum(shares[: rank + 1])


def _spans(program: Program, rank: int, elements: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Elements of a rank's input and output, counted in the whole collective, or in themselves for an all-to-all(v)."""
    layout = program.layout
    if layout.in_pairs:
        parts = _parts(program, elements)
        return (0, int(parts[rank].sum())), (0, int(parts[:, rank].sum()))
    ranges = layout.input_range(rank), layout.output_range(rank)
    one, other = (_span(layout, chunks, rank, elements) for chunks in ranges)
    return one, other


def _parts(program: Program, elements: int) -> np.ndarray:
    """Elements from each rank (row) to each."""
    shares = shard_elements(program.layout, elements)
    return np.array(shares).reshape(program.num_ranks, program.num_ranks)


def _wanted(program: Program, rank: int, inputs: list[np.ndarray], elements: int) -> np.ndarray:
    """What the rank's output has to be."""
    if program.layout.in_pairs:
        parts = _parts(program, elements)
        begins = parts[:, :rank].sum(axis=1)
        return np.concatenate(
            [
                mine[begin : begin + size]
                for mine, begin, size in zip(inputs, begins.tolist(), parts[:, rank].tolist(), strict=True)
            ]
        )
    begin, end = _spans(program, rank, elements)[1]
    everything = np.sum(inputs, axis=0) if program.layout.reduces else np.concatenate(inputs)
    return everything[begin:end]


def run_in_rounds(program: Program, elements: int, slices: int, in_place: bool = False) -> None:
    """Run the rounds of all ranks, packed and not, each at its own pace, and check the outputs."""
    for rounds_of_rank in (rank_rounds, packed_rounds):
        works = [rounds_of_rank(program, slices, rank, elements) for rank in range(program.num_ranks)]
        ranks = [Rank(work, program, rank, elements, in_place) for rank, work in enumerate(works)]
        for rank in ranks:
            _check_posted(rank)
        _run(ranks, program, elements)
        for work in works if rounds_of_rank is packed_rounds else ():
            _check_packed(work)


def _check_posted(rank: Rank) -> None:
    """Each receive is posted once, in its round or earlier, and until then nobody uses its memory."""
    posted: dict[int, deque[tuple[int, Operation]]] = defaultdict(deque)
    for at, part in enumerate(rank.parts):
        for each in part.receives:
            posted[each.peer].append((at, each))
    for at, part in enumerate(rank.parts):
        for each in part.operations:
            if not each.is_send:
                first, found = posted[each.peer].popleft()
                assert found == each
                assert first <= at
                for piece in (piece for before in rank.parts[first:at] for piece in before.pieces):
                    assert not np.shares_memory(rank.held(each.piece), rank.held(piece))
    assert not any(posted.values())


def _check_packed(work: RankRounds) -> None:
    """Each peer gets and sends at most one message in a round, and no two are received at one place."""
    for part in work.rounds:
        ends = [(each.peer, each.is_send) for each in part.operations]
        assert len(set(ends)) == len(ends)
    arrivals = [each.piece for part in work.rounds for each in part.operations if not each.is_send]
    assert {each.memory for each in arrivals} <= {"staging"}
    assert all(one.end <= other.begin for one, other in pairwise(sorted(arrivals)))
    assert all(not part.receives for part in work.rounds[1:])


def _run(ranks: list[Rank], program: Program, elements: int) -> None:
    in_place = any(np.shares_memory(rank.memory["input"], rank.memory["output"]) for rank in ranks)
    queues: Queues = defaultdict(deque)
    # Every pass takes some rank further, or nothing ever will.
    for _ in range(1 + sum(len(rank.parts) for rank in ranks)):
        for rank in ranks:
            rank.receive(queues)
            if not rank.awaited and rank.parts:
                rank.post(queues)
    for rank in ranks:
        rank.receive(queues)
        assert not rank.parts
        assert not rank.awaited
        wanted = _wanted(program, rank.rank, [other.mine for other in ranks], elements)
        np.testing.assert_array_equal(rank.memory["output"], wanted)
        assert in_place or np.array_equal(rank.memory["input"], rank.mine)
    assert not any(queues.values())


def run_as_rows(program: Program, elements: int, slices: int) -> None:
    """Run the tables that JAX would, one element per row, and check the outputs."""
    spans = [_spans(program, rank, elements) for rank in range(program.num_ranks)]
    inputs, outputs = (max(end - begin for begin, end in each) for each in zip(*spans, strict=True))
    work = row_program(program, slices, elements, inputs, outputs)
    memories = np.full((program.num_ranks, work.size), -5)
    mine = [
        np.random.default_rng(rank).integers(-(2**62), 2**62, end - begin)
        for rank, ((begin, end), _) in enumerate(spans)
    ]
    for memory, given in zip(memories, mine, strict=True):
        memory[: len(given)] = given
    for step in work.steps:
        before = memories.copy()
        for pairs, source, target in step.permutations:
            _check_permutation(pairs)
            for sender, receiver in pairs or [(rank, rank) for rank in range(program.num_ranks)]:
                sent, kept = _rows(work.numbers[sender], source), _rows(work.numbers[receiver], target)
                assert len(sent) == len(kept)
                memories[receiver][kept] = before[sender][sent]
        for addition in step.additions:
            for numbers, memory in zip(work.numbers, memories, strict=True):
                one, other, target = (_rows(numbers, rows) for rows in addition)
                assert len(set(target)) == len(target) == len(one) == len(other)
                memory[target] = memory[one] + memory[other]
    for rank, (memory, (_, (begin, end))) in enumerate(zip(memories, spans, strict=True)):
        wanted = _wanted(program, rank, mine, elements)
        np.testing.assert_array_equal(memory[work.output : work.output + end - begin], wanted)


def _check_permutation(pairs: tuple[tuple[int, int], ...]) -> None:
    for ends in zip(*pairs, strict=True):
        assert len(set(ends)) == len(ends)


def _rows(numbers: np.ndarray, rows: Rows) -> list[int]:
    """Rows of a rank by a table."""
    if not rows.consecutive:
        return [row for row in numbers[rows.place : rows.place + rows.width].tolist() if row < 2**31 - 1]
    first = int(numbers[rows.place])
    length = rows.width if rows.lengths is None else int(numbers[rows.lengths])
    return list(range(first, first + length))
