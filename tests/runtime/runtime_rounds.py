"""Runs the rounds of programs on numpy arrays, as torch.distributed would run them on tensors."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np

from collopt.runtime import Program
from collopt.runtime.batches import Operation, Piece, Sum, own_rounds, shard_elements
from collopt.runtime.layout import Layout

Queues = dict[tuple[int, int], deque[np.ndarray]]


class Rank:
    """One rank working through its rounds as torch.distributed would: post a batch, wait for all of it, add, go on."""

    def __init__(self, program: Program, rank: int, elements: int, slices: int, in_place: bool) -> None:
        work = own_rounds(program, slices, rank, elements)
        self.rank = rank
        self.parts = list(work.rounds)
        begin, end = _span(program.layout, program.layout.input_range(rank), rank, elements)
        first, last = _span(program.layout, program.layout.output_range(rank), rank, elements)
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
        self.awaited: list[Operation] = []
        self.sums: tuple[Sum, ...] = ()

    def post(self, queues: Queues) -> None:
        """Send, remember what to receive and to add, and copy what stays."""
        part = self.parts.pop(0)
        for each in part.operations:
            if each.is_send:
                queues[self.rank, each.peer].append(self.held(each.piece).copy())
        self.awaited = [each for each in part.operations if not each.is_send]
        self.sums = part.sums
        for move in part.copies:
            self.held(move.target)[:] = self.held(move.source)

    def held(self, piece: Piece) -> np.ndarray:
        """Memory that a piece names, all of it there."""
        memory = self.memory[piece.memory]
        assert 0 <= piece.begin <= piece.end <= len(memory)
        return memory[piece.begin : piece.end]

    def receive(self, queues: Queues) -> None:
        """Take what has arrived, in order from each peer; once all is there, add."""
        still = []
        for each in self.awaited:
            if queues[each.peer, self.rank]:
                self.held(each.piece)[:] = queues[each.peer, self.rank].popleft()
            else:
                still.append(each)
        self.awaited = still
        if not still:
            for each in self.sums:
                self.held(each.target)[:] = self.held(each.one) + self.held(each.other)
            self.sums = ()


def _span(layout: Layout, chunks: tuple[int, int], rank: int, elements: int) -> tuple[int, int]:
    """Elements of some chunks that are everything, or the shard of a rank."""
    if chunks == (0, layout.chunks):
        return 0, elements
    shares = shard_elements(layout, elements)
    return sum(shares[:rank]), sum(shares[: rank + 1])


def run_in_rounds(program: Program, elements: int, slices: int, in_place: bool = False) -> None:
    """Run the rounds of all ranks, each at its own pace, and check the outputs."""
    ranks = [Rank(program, rank, elements, slices, in_place) for rank in range(program.num_ranks)]
    queues: Queues = defaultdict(deque)
    # Every pass takes some rank further, or nothing ever will.
    for _ in range(1 + sum(len(rank.parts) for rank in ranks)):
        for rank in ranks:
            rank.receive(queues)
            if not rank.awaited and rank.parts:
                rank.post(queues)
    together = np.sum([rank.mine for rank in ranks], axis=0) if program.layout.reduces else None
    for rank in ranks:
        rank.receive(queues)
        assert not rank.parts
        assert not rank.awaited
        begin, end = _span(program.layout, program.layout.output_range(rank.rank), rank.rank, elements)
        everything = np.concatenate([other.mine for other in ranks]) if together is None else together
        np.testing.assert_array_equal(rank.memory["output"], everything[begin:end])
        assert in_place or np.array_equal(rank.memory["input"], rank.mine)
    assert not any(queues.values())
