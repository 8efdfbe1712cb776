"""The steps of an all-to-all, run on arrays in one process."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.planners.all_to_all.fast import STAGES, schedule_all_to_allv
from collopt.runtime.all_to_allv.steps import INPUT, OUTPUT, SCRATCH, Exchange, RankSteps, rank_steps
from sample_sizes import examples

IntArray = npt.NDArray[np.int64]
Memory = tuple[IntArray, IntArray, IntArray]


def test_refuses_more_bytes_than_can_be_counted() -> None:
    """The number of rows fits an int64, the number of bytes does not."""
    rows = np.full((4, 4), 2**57)
    with pytest.raises(UnsupportedError, match=r"adds up to 4611686018427387904 bytes; expected less than 2\^62"):
        rank_steps(Exchange(rows.tobytes(), 2, 2, 2), 0)


def check(plans: list[RankSteps], rows: IntArray, width: int) -> None:
    """Run all ranks' steps on memory of our own and compare the outputs with what they should be."""
    ranks, rng = len(rows), np.random.default_rng(0)
    memory = [
        (
            rng.integers(1, 256, int(rows[rank].sum()) * width),
            np.zeros(int(rows[:, rank].sum()) * width, dtype=np.int64),
            np.zeros(plans[rank].scratch, dtype=np.int64),
        )
        for rank in range(ranks)
    ]
    inputs = [each[INPUT].copy() for each in memory]
    _play(plans, memory)
    ends = np.cumsum(rows * width, axis=1)
    for rank in range(ranks):
        parts = [
            inputs[other][ends[other, rank] - rows[other, rank] * width : ends[other, rank]] for other in range(ranks)
        ]
        np.testing.assert_array_equal(memory[rank][OUTPUT], np.concatenate(parts))


def _play(plans: list[RankSteps], memory: list[Memory]) -> None:
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


def _rank_program(
    rank: int, plan: RankSteps, own: Memory, queues: dict[tuple[int, int], list[IntArray]]
) -> Iterator[str]:
    """Do one rank's part, saying when it has posted or received something and when it waits."""
    source, target, length = plan.own
    own[OUTPUT][target : target + length] = own[INPUT][source : source + length]
    for number, step in enumerate(plan.steps.tolist()):
        batch = plan.batch(number)
        assert 0 < len(batch) <= 64
        assert 0 <= step < plan.num_steps
        assert all(peer != rank for peer, *_ in batch)
        # All of them are under way at once, so none may touch what another does.
        spans = sorted((memory, place, place + length) for _, _, memory, place, length in batch)
        assert all(one[0] != two[0] or one[2] <= two[1] for one, two in pairwise(spans))
        sent = [
            (peer, own[memory][place:][:length].copy()) for peer, is_send, memory, place, length in batch if is_send
        ]
        for peer, data in sent:
            queues.setdefault((rank, peer), []).append(data)
        yield "working"
        for peer, is_send, memory, place, length in batch:
            while not is_send and not queues.get((peer, rank)):
                yield "waiting"
            if not is_send:
                data = queues[peer, rank].pop(0)
                assert len(data) == length > 0
                own[memory][place : place + length] = data
                yield "working"
        # As NCCL does, a send goes on until the other end has posted its receive.
        while any(data is other for peer, data in sent for other in queues[rank, peer]):
            yield "waiting"
        for _, is_send, memory, place, length in batch:  # What has been handed on is not needed again.
            if is_send and memory == SCRATCH:
                own[SCRATCH][place : place + length] = -1


@settings(max_examples=examples(40))
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5) | st.tuples(st.integers(1, 4)).map(lambda one: [*one] * 5),
    st.sampled_from([1, 3, 8, 768]),
    st.sampled_from([None, *STAGES]),
    st.sampled_from([None, 1, 500]),
    st.sampled_from([1, 2, 4]),
    st.integers(0, 2**32),
)
def test_steps_of_all_ranks_fit_together(
    sizes: list[int], width: int, stages: str | None, cap: int | None, rates: int, seed: int
) -> None:
    """Messages of equal lengths match in order, nobody waits for ever, and every byte comes to its place.

    What has a NIC without a rate sends and receives between servers is nothing.
    """
    rng = np.random.default_rng(seed)
    ranks, servers = sum(sizes), len(sizes)
    gpus: Any = tuple(sizes) if min(sizes) < max(sizes) else sizes[0]
    homes = np.repeat(np.arange(servers), sizes)
    rows = rng.integers(0, 6, (ranks, ranks)) * (rng.random((ranks, ranks)) < rng.random())
    nics = [rng.integers(0, rates, size) for size in sizes]
    for row in nics:
        row[rng.integers(len(row))] += 1
    speeds = tuple(tuple(Fraction(rate, 4) for rate in row.tolist()) for row in nics) if rates > 1 else ()
    exchange = Exchange(rows.tobytes(), servers, gpus, width, stages, cap, nics=speeds)
    plans = [rank_steps(exchange, rank) for rank in range(ranks)]
    check(plans, rows, width)
    for rank in np.flatnonzero(np.concatenate(nics) == 0) if rates > 1 else ():
        assert (homes[plans[rank].messages[:, 0]] == homes[rank]).all()
    options = {
        "servers": servers,
        "gpus_per_server": gpus,
        "stages": stages,
        "max_stage_bytes": cap,
        "nics": speeds or None,
    }
    unit = gcd(width, 512)
    wanted = schedule_all_to_allv(rows * (width // unit), unit_bytes=unit, **options).scratch_bytes * unit
    assert [plan.scratch for plan in plans] == wanted.tolist()


def test_batches_of_large_servers_are_cut() -> None:
    """Forty GPUs have more messages in a step than a batch may have."""
    rows = np.ones((80, 80), dtype=np.int64)
    plans = [rank_steps(Exchange(rows.tobytes(), 2, 40, 4), rank) for rank in range(80)]
    assert len(plans[0].steps) > len(set(plans[0].steps.tolist()))
    check(plans, rows, 4)


def test_nothing_is_packed() -> None:
    """Contiguous bytes are one message, own bytes leave from the input, and final bytes land in the output."""
    rows = np.zeros((4, 4), dtype=np.int64)
    rows[0, 2:] = 6, 4
    giver, proxy, first, second = (rank_steps(Exchange(rows.tobytes(), 2, 2, 1), rank) for rank in range(4))
    assert giver.messages.tolist() == [[1, 1, INPUT, 5, 5], [2, 1, INPUT, 0, 5]]
    assert proxy.messages.tolist() == [[0, 0, SCRATCH, 0, 5], [3, 1, SCRATCH, 0, 1], [3, 1, SCRATCH, 1, 4]]
    assert first.messages.tolist() == [[0, 0, OUTPUT, 0, 5], [3, 0, OUTPUT, 5, 1]]
    assert second.messages.tolist() == [[1, 0, SCRATCH, 0, 1], [1, 0, OUTPUT, 0, 4], [2, 1, SCRATCH, 0, 1]]
    assert [plan.steps.tolist() for plan in (giver, proxy, first, second)] == [[0, 1], [0, 1], [1, 2], [1, 2]]


def test_steps_of_large_transfers_are_single_batches() -> None:
    """Stages of 4 servers of 8 GPUs have a few messages each, far fewer than a batch may have."""
    rows = np.random.default_rng(0).integers(0, 10**8, (32, 32))
    plan = rank_steps(Exchange(rows.tobytes(), 4, 8, 1), 5)
    assert len(plan.steps) <= 1.1 * plan.num_steps
    assert np.diff(plan.batches).max() <= 64
