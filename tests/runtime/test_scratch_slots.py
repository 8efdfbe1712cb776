"""Places in scratch: never given out twice, and used again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from collopt.runtime.execution.rounds import Message, Round, RoundScratch
from collopt.runtime.lowering.flows import ScratchAllocator
from collopt.runtime.programs.program import ChunkRange


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=60))
def test_places_in_use_do_not_overlap(requests: list[tuple[bool, int]]) -> None:
    """Any places may be given back, and a scratch that is all given back is one gap again."""
    slots, held, total = ScratchAllocator(), [], 0
    for takes, number in requests:
        if takes or not held:
            held.append((slots.allocate(number), number))
            total += number
        else:
            slots.free(*held.pop(number % len(held)))
        used = np.zeros(slots.size, dtype=np.int64)
        for begin, count in held:
            used[begin : begin + count] += 1
        assert used.max(initial=0) <= 1
        assert slots.size <= total
    for place in held:
        slots.free(*place)
    size = slots.size
    if size:
        assert (slots.allocate(size), slots.size) == (0, size)


def message(sender: int, receiver: int, source: ChunkRange, target: ChunkRange, first: int, chunks: int) -> Message:
    """Some chunks from place to place."""
    return Message(sender, receiver, source, target, chunks, 0, first)


def test_scratch_of_rounds_is_given_on_from_the_round_after() -> None:
    """Chunks 0 and 1 of two elements come in round 0 and go in round 1, in which chunk 2 comes, and in 2 chunk 3."""
    output = ChunkRange("output", 0)
    rounds = [
        Round((message(0, 1, output, ChunkRange("scratch", 0), 0, 2),), ()),
        Round(
            (
                message(1, 2, ChunkRange("scratch", 0), output, 0, 1),
                message(1, 2, ChunkRange("scratch", 1), output, 1, 1),
                message(0, 1, output, ChunkRange("scratch", 2), 2, 1),
            ),
            (),
        ),
        Round((message(0, 1, output, ChunkRange("scratch", 3), 3, 1),), ()),
    ]
    scratch = RoundScratch(rounds, 1, 1, lambda _chunk, _slice: 2)
    assert [scratch.start(0, place) for place in range(4)] == [0, 2, 4, 0]
    assert scratch.size == 6
    assert RoundScratch(rounds, 0, 1, lambda _chunk, _slice: 2).size == 0
