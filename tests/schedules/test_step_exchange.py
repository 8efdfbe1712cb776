"""Allreduces in one phase: the check against a slow one, by counting, and files, loads and times."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError
from collopt.planners.bounds import plan_of_schedule
from collopt.planners.by_size.families import families
from collopt.schedules import StepExchange, rate_of_loads, schedule_time, verified_loads
from collopt.schedules.steps import verify as step_verify
from collopt.schedules.steps.sends import EVERYONE, Sends
from collopt.schedules.steps.verify import check_contents
from collopt.topologies import RuntimeCosts, Topology, complete, dgx_a100, hypercube
from sample_sizes import examples

Row = tuple[int, int, int, int, tuple[int, ...]]

FOUR = complete(4, bandwidth=25, latency=1)
DOUBLING: list[Row] = [(bit, 1, 0, 3, (rank, rank ^ 1 << bit)) for bit in range(2) for rank in range(4)]
SCATTERED: list[Row] = [(0, 1, b, b + 1, (a, b)) for a in range(4) for b in range(4) if a != b]
SCATTERED += [(1, 0, a, a + 1, (a, b)) for a in range(4) for b in range(4) if a != b]


KINDS = {"complete": complete(6), "cube": hypercube(3), "boxes": dgx_a100(boxes=2)}


def made(sends: list[Row], chunks: int = 4, **changes: Any) -> StepExchange:
    """A schedule on four ranks."""
    return replace(StepExchange.from_sends(4, chunks, sends), **changes)  # type: ignore[arg-type]


def is_allreduce(sends: list[Row], ranks: int, chunks: int) -> bool:
    """Whether all ranks end with all vectors once, none of them being there twice at any time: by counting."""
    for chunk in range(chunks):
        held = [Counter({rank: 1}) for rank in range(ranks)]
        for step in range(1 + max(send[0] for send in sends)):
            come = [send for send in sends if send[0] == step and send[2] <= chunk < send[3]]
            after = [Counter(each) for each in held]
            for rank in range(ranks):
                mine = [send for send in come if send[4][-1] == rank]
                if len(mine) > 1 and not all(send[1] for send in mine):
                    return False
                if mine and not mine[0][1]:
                    after[rank] = Counter()
                for send in mine:
                    after[rank].update(held[send[4][0]])
            held = after
            if any(count > 1 for each in held for count in each.values()):
                return False
        if any(len(each) < ranks for each in held):
            return False
    return True


@cache
def generated(topology: Topology) -> list[StepExchange]:
    """All families in one phase."""
    found = [family.schedule for family in families(topology, "allreduce")]
    return [schedule for schedule in found if isinstance(schedule, StepExchange)]


@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False), st.integers(0, 3), st.sampled_from(["complete", "cube", "boxes"]))
def test_the_check_agrees_with_counting(rng: random.Random, changes: int, kind: str) -> None:
    """Generated schedules, and such with sends removed, doubled, moved or changed, are judged as by a slow count."""
    topology = KINDS[kind]
    schedule = rng.choice(generated(topology))
    columns = (schedule.steps, schedule.adds, schedule.lower, schedule.upper)
    rows: list[Row] = [
        (*map(int, row), schedule.path(route)) for *row, route in zip(*columns, schedule.routes, strict=True)
    ]
    for _ in range(changes):
        place = rng.randrange(len(rows))
        step, adds, lower, upper, path = rows[place]
        rows[place : place + 1] = rng.choice(
            [
                [],
                [rows[place]] * 2,
                [(step, 1 - adds, lower, upper, path)],
                [(rng.randrange(schedule.num_steps), adds, lower, upper, path)],
                [(step, adds, 0, schedule.chunks, path)],
            ]
        )
    changed = StepExchange.from_sends(schedule.num_ranks, schedule.chunks, rows)
    expected = is_allreduce(rows, schedule.num_ranks, schedule.chunks)
    assert expected or changes
    if set(changed.steps.tolist()) != set(range(changed.num_steps)):
        expected = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_verify, "BLOCK_BITS", rng.choice([1, 2**28]))
        try:
            loads = verified_loads(changed, topology)
        except CertificateError:
            assert not expected
        else:
            assert expected
            assert np.array_equal(loads, changed.link_loads(topology))


def sums_arrive(sends: list[tuple[int, int, int, int, int, int]], ranks: int, chunks: int) -> bool:
    """Whether each rank ends with the sum of its shard, no vector being twice in any sum: by counting."""
    for item in range(ranks):
        for chunk in range(chunks):
            held = [Counter({rank: 1}) for rank in range(ranks)]
            for step in range(1 + max(send[0] for send in sends)):
                before = [Counter(each) for each in held]
                for at, of, lower, upper, sender, receiver in sends:
                    if at == step and of == item and lower <= chunk < upper:
                        held[receiver].update(before[sender])
            if any(count > 1 for each in held for count in each.values()) or len(held[item]) < ranks:
                return False
    return True


@settings(max_examples=examples(100))
@given(st.randoms(use_true_random=False), st.integers(2, 4), st.integers(1, 3), st.integers(0, 2))
def test_sums_of_shards_are_judged_as_by_counting(rng: random.Random, ranks: int, chunks: int, changes: int) -> None:
    """Each chunk of each shard along a tree of its own, with sends left out, doubled or moved."""
    sends = []
    for item in range(ranks):
        for chunk in range(chunks):
            order = [item, *rng.sample([rank for rank in range(ranks) if rank != item], ranks - 1)]
            sends += [
                (ranks - place, item, chunk, chunk + 1, order[place], order[rng.randrange(place)])
                for place in range(1, ranks)
            ]
    for _ in range(changes):
        place = rng.randrange(len(sends))
        step, item, lower, upper, sender, receiver = sends[place]
        sends[place : place + 1] = rng.choice(
            [[], [sends[place]] * 2, [(step + 1, item, lower, upper, sender, receiver)],
             [(step, item, 0, upper, sender, receiver)], [(step, (item + 1) % ranks, lower, upper, sender, receiver)]]
        )  # fmt: skip
        if not sends:
            return
    steps, items, lower, upper, senders, receivers = np.array(sends).T
    paths, routes = np.unique(senders * ranks + receivers, return_inverse=True)
    nodes = np.stack(np.divmod(paths, ranks), axis=1).reshape(-1)
    own, everyone, starts = np.arange(ranks), np.full(ranks, EVERYONE), np.arange(len(paths) + 1) * 2
    columns = (steps, items, lower, upper, routes, starts, nodes)
    shards = Sends(ranks, np.full(ranks, chunks), everyone, own, *columns, adds=np.ones(len(steps), dtype=np.bool_))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_verify, "BLOCK_BITS", rng.choice([1, 40, 2**28]))
        if sums_arrive(sends, ranks, chunks):
            check_contents(shards)
        else:
            with pytest.raises(CertificateError):
                check_contents(shards)


@pytest.mark.parametrize(("schedule", "message"), [
    (made(DOUBLING[1:], 3), "rank 1 never adds chunk 0 of rank 0|in step 1 "),
    (made([*DOUBLING, (1, 1, 0, 3, (0, 1))], 3), "in step 1 rank 1 adds a vector twice to its sum of chunk 0$"),
    (made([*DOUBLING, (1, 0, 0, 3, (0, 1))], 3), "in step 1 rank 1 is sent two values of chunk 0 to keep$"),
    (made(DOUBLING), "rank 0 never adds chunk 3 of rank 1$"),
    (made(SCATTERED[:-1]), "rank 2 never adds chunk 3 of rank 0$"),
    (made([(0, 0, *send[2:]) for send in SCATTERED[:1]] + SCATTERED[1:]), "rank 1 is sent two values of chunk 1"),
    (made(SCATTERED, num_ranks=5), "the schedule is for 5 ranks; the topology has 4"),
    (made(SCATTERED, chunks=0), "the schedule has 0 chunks; expected at least 1"),
    (made(SCATTERED, chunks=2**60), "expected at least 1, and fewer than"),
    (made(SCATTERED[:3]), "the schedule has 3 sends; 4 ranks need at least 4"),
    (made(SCATTERED, adds=np.ones(24, dtype=np.int64)), "the schedule's adds are int64 of shape .24,.; expected bool"),
    (made(SCATTERED, lower=np.zeros(3, dtype=np.int64)), "the schedule's lower are int64 of shape .3,."),
    (made([*SCATTERED, (3, 1, 0, 1, (0, 1))]), "nothing is sent in step 2"),
    (made([*SCATTERED, (1, 1, 3, 5, (0, 1))]), "send 24 carries chunks 3 to 4 of the vector"),
    (made([*SCATTERED, (1, 1, 3, 4, (0, 1, 2))]), "path 12 does not run from a rank to a rank"),
])  # fmt: skip
def test_what_is_wrong_is_named(schedule: StepExchange, message: str) -> None:
    """The first thing that is."""
    with pytest.raises(CertificateError, match=message):
        verified_loads(schedule, FOUR)


def test_loads_and_times_of_both_ways() -> None:
    """Two steps with the whole vector, or with a quarter of it over each of three links."""
    whole, parts = made(DOUBLING, 3), made(SCATTERED)
    for schedule, gbps in ((whole, Fraction(25, 2)), (parts, 50)):
        loads = verified_loads(schedule, FOUR)
        assert 1 / rate_of_loads(loads, schedule, FOUR) == gbps
        time = 2 + 10**6 / (1000 * Fraction(gbps))
        assert schedule_time(schedule, FOUR, 10**6) == time
        plan = plan_of_schedule(FOUR, "allreduce", schedule)
        assert plan.simulate(10**6) == float(time)
        assert plan.algbw == gbps
    assert (whole.most_added, parts.most_added) == (2, Fraction(3, 4))
    assert whole.messages.tolist() == [2] * 4
    assert str(parts) == "<StepExchange: allreduce of 4 ranks, 2 steps, 4 chunks, 24 sends>"


def test_sums_wait_for_all_that_is_added() -> None:
    """Alpha once for each step, and one message after the other."""
    costs = RuntimeCosts(alpha=10, send=1, reduction=5)
    plan = plan_of_schedule(FOUR, "allreduce", made(SCATTERED))
    # Three messages are started, the last arrives, and is added; 10 kB take 0.4 µs, and 0.05 µs to add.
    assert plan.simulate(40_000, costs=costs) == pytest.approx(2 * (3 + 10 + 1 + 0.4) + 0.05)


def test_switches_are_passed() -> None:
    """A path passes a switch, and neither begins nor ends at one."""
    star = Topology.from_links(
        [("a", "s", 10), ("b", "s", 10)], compute=["a", "b"], switches=["s"], bidirectional=True, name="star"
    )
    sends: list[Row] = [(0, 1, 0, 1, (0, 2, 1)), (0, 1, 0, 1, (1, 2, 0))]
    pair = StepExchange.from_sends(2, 1, sends)  # type: ignore[arg-type]
    assert verified_loads(pair, star).tolist() == [[1, 1, 1, 1]]
    assert plan_of_schedule(star, "allreduce", pair).gap == 0
