"""The steps of an all-to-all, run on arrays in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.runtime.all_to_all_steps import Exchange, OwnSteps, own_steps
from collopt.runtime.batches import Copy

IntArray = npt.NDArray[np.int64]


def test_refuses_more_bytes_than_can_be_counted() -> None:
    """Though the rows can."""
    rows = np.full((4, 4), 2**57)
    with pytest.raises(UnsupportedError, match=r"adds up to 4611686018427387904 bytes; expected less than 2\^62"):
        own_steps(Exchange(rows.tobytes(), 2, 2, 2, None), 0)


def check(plans: list[OwnSteps], rows: IntArray, width: int) -> None:
    """Run all ranks' steps on memory of our own and compare the outputs with what they should be."""
    ranks, rng = len(rows), np.random.default_rng(0)
    memory = [
        {
            "input": rng.integers(1, 256, int(rows[rank].sum()) * width),
            "output": np.zeros(int(rows[:, rank].sum()) * width, dtype=np.int64),
            "scratch": np.zeros(plans[rank].scratch, dtype=np.int64),
        }
        for rank in range(ranks)
    ]
    inputs = [each["input"].copy() for each in memory]
    _play(plans, memory)
    ends = np.cumsum(rows * width, axis=1)
    for rank in range(ranks):
        parts = [
            inputs[other][ends[other, rank] - rows[other, rank] * width : ends[other, rank]] for other in range(ranks)
        ]
        np.testing.assert_array_equal(memory[rank]["output"], np.concatenate(parts))


def _play(plans: list[OwnSteps], memory: list[dict[str, IntArray]]) -> None:
    """Each rank waits for all messages of a batch before its next; messages of two ranks match in order."""
    queues: dict[tuple[int, int], list[IntArray]] = {}
    programs = [_rank_program(rank, plan, memory[rank], queues) for rank, plan in enumerate(plans)]
    running = set(range(len(plans)))
    idle = 0
    while running:
        for rank in sorted(running):
            state = next(programs[rank], "done")
            idle = idle + 1 if state == "waiting" else 0
            if state == "done":
                running.discard(rank)
        assert idle <= 2 * len(plans), "the ranks wait for each other"
    assert not any(queues.values())


def _copy(own: dict[str, IntArray], copies: Iterable[Copy]) -> None:
    for source, target in copies:
        own[target.memory][target.begin : target.end] = own[source.memory][source.begin : source.end]


def _rank_program(
    rank: int, plan: OwnSteps, own: dict[str, IntArray], queues: dict[tuple[int, int], list[IntArray]]
) -> Iterator[str]:
    """Do one rank's part, saying when it has posted a batch and when it waits."""
    for step in plan.steps:
        _copy(own, step.before)
        for batch in step.batches:
            assert 0 < len(batch) <= 64
            assert all(each.peer != rank for each in batch)
            for each in batch:
                if each.is_send:
                    data = own[each.piece.memory][each.piece.begin : each.piece.end].copy()
                    queues.setdefault((rank, each.peer), []).append(data)
            yield "working"
            for each in batch:
                while not each.is_send and not queues.get((each.peer, rank)):
                    yield "waiting"
                if not each.is_send:
                    data = queues[each.peer, rank].pop(0)
                    assert len(data) == each.piece.end - each.piece.begin > 0
                    own[each.piece.memory][each.piece.begin : each.piece.end] = data
        _copy(own, step.after)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from([1, 3, 8, 768]),
    st.sampled_from([None, 1, 500]),
    st.integers(0, 2**32),
)
def test_steps_of_all_ranks_fit_together(servers: int, gpus: int, width: int, cap: int | None, seed: int) -> None:
    """Messages of equal lengths match in order, nobody waits for ever, and every byte comes to its place."""
    rng = np.random.default_rng(seed)
    ranks = servers * gpus
    rows = rng.integers(0, 6, (ranks, ranks)) * (rng.random((ranks, ranks)) < rng.random())
    exchange = Exchange(rows.tobytes(), servers, gpus, width, cap)
    check([own_steps(exchange, rank) for rank in range(ranks)], rows, width)


def test_batches_of_large_servers_are_cut() -> None:
    """Forty GPUs have more messages in a step than a batch may have."""
    rows = np.ones((80, 80), dtype=np.int64)
    plans = [own_steps(Exchange(rows.tobytes(), 2, 40, 4, None), rank) for rank in range(80)]
    assert max(len(step.batches) for step in plans[0].steps) > 1
    check(plans, rows, 4)
