"""Transfers of schedules in steps: whoever follows their waits alone, in any order, moves the right data."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collopt
from collopt.schedules import StepAllreduce, StepSchedule, verified_loads
from collopt.schedules.steps.sends import Sends
from collopt.topologies import Topology, complete, hypercube, ring, torus


def contributions(schedule: StepSchedule | StepAllreduce, network: Topology, seed: int) -> list[list[set[int]]]:
    """For each rank and unit of data the ranks whose data is in it, after all transfers in an order by chance."""
    transfers, rng = schedule.transfers(network), random.Random(seed)
    ranks, units = network.num_ranks, int(1 / transfers.unit)
    owns = schedule.phases[0] == "broadcast"
    held = [
        [{rank} if not owns or unit * ranks // units == rank else set() for unit in range(units)]
        for rank in range(ranks)
    ]
    waits: list[set[int]] = [set() for _ in transfers.senders]
    for before, after in zip(transfers.before.tolist(), transfers.after.tolist(), strict=True):
        waits[after].add(before)
    done: set[int] = set()
    while ready := [number for number, needs in enumerate(waits) if number not in done and needs <= done]:
        number = rng.choice(ready)
        first, amount = int(transfers.firsts[number]), int(transfers.amounts[number])
        source, target = held[transfers.senders[number]], held[transfers.receivers[number]]
        for unit in range(first, first + amount):
            if transfers.adds[number]:
                assert not source[unit] & target[unit]
                target[unit] = source[unit] | target[unit]
            else:
                target[unit] = set(source[unit])
        done.add(number)
    assert len(done) == len(waits)
    return held


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.parametrize(
    ("network", "planner"),
    [
        (ring(5), "bfb"),
        (torus(2, 3), "bfb"),
        (complete(6), "bruck"),
        (hypercube(3), "recursive-halving-doubling-steps"),
    ],
    ids=str,
)
def test_waits_suffice_for_the_right_data(network: Topology, planner: str, collective: str, seed: int) -> None:
    """Every rank ends with every contribution to what the collective gives it."""
    plan = collopt.plan(network, collective, planner=planner)
    held = contributions(plan.schedule, network, seed)  # type: ignore[arg-type]
    ranks, units = network.num_ranks, len(held[0])
    for rank in range(ranks):
        for unit in range(units):
            owner = unit * ranks // units
            if collective == "allgather":
                assert held[rank][unit] == {owner}
            elif collective == "allreduce" or owner == rank:
                assert held[rank][unit] == set(range(ranks))


def test_parts_of_an_allreduce_may_be_cut_differently() -> None:
    """Shards that are reduced whole are handed on in two chunks, in steps after those of the reduction."""
    gather = [(step, source, step, step + 1, (source, 1 - source)) for step in range(2) for source in range(2)]
    allreduce = StepAllreduce(
        StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))], "reduce"),
        StepSchedule.from_sends(2, 2, gather),
    )
    assert contributions(allreduce, ring(2), 0) == [[{0, 1}] * 4] * 2
    transfers = allreduce.transfers(ring(2))
    rows = zip(transfers.levels.tolist(), transfers.firsts.tolist(), transfers.amounts.tolist(), strict=True)
    reduction, turn = [(0, 0, 2), (0, 2, 2)], [(1, 0, 1), (1, 1, 1), (1, 2, 1), (1, 3, 1)]
    assert sorted(rows) == sorted([*reduction, *turn, (1, 0, 1), (1, 2, 1), (2, 1, 1), (2, 3, 1)])


def test_steps_have_no_limit_of_the_check() -> None:
    """A shard that follows chunk by chunk, in 300 steps, is verified."""
    sends = [(step, source, step, step + 1, (source, 1 - source)) for step in range(300) for source in range(2)]
    loads = verified_loads(StepSchedule.from_sends(2, 300, sends), ring(2))
    assert loads.shape[0] == 300
    assert loads.sum() == 600


def pairs_that_wait(sends: list[tuple[int, int, int, int, int, int]]) -> set[tuple[int, int]]:
    """Pairs of sends (step, item, lower, upper, tail, head), by comparing all with all."""
    return {
        (one, two)
        for one, (step, item, low, high, _, head) in enumerate(sends)
        for two, (later, other, begin, end, tail, _) in enumerate(sends)
        if step < later and item == other and head == tail and low < end and begin < high
    }


@given(
    st.lists(st.tuples(*(st.integers(0, 3),) * 2, *(st.integers(0, 12),) * 2, *(st.integers(0, 2),) * 2), max_size=25)
)
def test_sends_wait_for_earlier_ones_that_bring_some_of_the_same(
    rows: list[tuple[int, int, int, int, int, int]],
) -> None:
    """Each pair once, however wide the intervals are."""
    rows = [(step, item % 2, low, low + 1 + width, a, b) for step, item, low, width, a, b in rows if a != b]
    steps, items, lower, upper, tails, heads = np.array(rows, dtype=np.int64).reshape(-1, 6).T
    nodes = np.stack([tails, heads], axis=1).ravel()
    sizes, nobody = np.array([30, 30]), np.zeros(2, dtype=np.int64)
    routes = np.arange(len(rows))
    sends = Sends(3, sizes, nobody, nobody, steps, items, lower, upper, routes, 2 * np.arange(len(rows) + 1), nodes)
    pairs = list(map(tuple, sends.waits.T.tolist()))
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == pairs_that_wait(rows)


def test_waits_of_long_chains_take_no_memory_of_their_square() -> None:
    """A vector of 20,000 chunks that follow each other over three ranks has one wait for each."""
    count = 20_000
    sends = [send for i in range(count) for send in ((i, 0, i, i + 1, (0, 1)), (i + 1, 0, i, i + 1, (1, 2)))]
    assert StepSchedule.from_sends(3, count, sends).columns.waits.shape == (2, count)
