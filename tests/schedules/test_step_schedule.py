"""Schedules in steps by hand: what their methods say about a few sends, some of them through a switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.schedules import Send, StepAllreduce, StepSchedule, schedule_time
from collopt.topologies import Topology, complete, ring
from sample_sizes import examples

STAR = Topology.from_links(
    [("a", "s", 4), ("s", "a", 5), ("b", "s", 4), ("s", "b", 5), ("c", "s", 4), ("s", "c", 5), ("a", "b", "1/2")],
    compute=["a", "b", "c"],
    switches=["s"],
)
"""Ranks 0, 1 and 2 around a switch, node 3, and a slow direct link."""
SENDS = [
    Send(0, 0, 0, 3, (0, 1)),
    Send(0, 0, 3, 4, (0, 3, 1)),
    Send(1, 0, 0, 4, (1, 3, 2)),
    Send(1, 1, 0, 4, (1, 3, 2)),
]
"""Rank 0 tells rank 1, who passes it on to rank 2 with its own shard: not a whole allgather."""
IN, OUT, DIRECT = 4, 5, Fraction(1, 2)


def made(**changes: object) -> StepSchedule:
    """The four sends as a schedule, with some fields replaced."""
    return replace(StepSchedule.from_sends(3, 4, SENDS), **changes)  # type: ignore[arg-type]


def test_sends_come_back_as_they_were_given() -> None:
    """Sends are returned in order, and equal paths are stored once."""
    assert list(made().sends()) == SENDS
    assert made().routes.tolist() == [0, 1, 2, 2]
    assert [made().path(route) for route in range(3)] == [(0, 1), (0, 3, 1), (1, 3, 2)]


def test_loads_are_counted_in_each_step_on_each_link_of_a_path() -> None:
    """Both hops through the switch carry what passes it."""
    loads = made().link_loads(STAR)
    names = [link[:2] for link in STAR.links]
    assert loads.shape == (2, len(names))
    assert dict(zip(names, loads[0].tolist(), strict=True)) == {
        ("a", "s"): 1, ("s", "a"): 0, ("b", "s"): 0, ("s", "b"): 1, ("c", "s"): 0, ("s", "c"): 0, ("a", "b"): 3,
    }  # fmt: skip
    assert loads[1].tolist() == [0, 0, 8, 0, 0, 8, 0]


def test_the_slowest_link_of_each_step_counts() -> None:
    """The slow link decides the first step, the link into the switch the second."""
    assert made().inverse_rate(STAR) == Fraction(3, 4) / DIRECT + Fraction(8, 4) / IN


def test_rates_of_known_schedules() -> None:
    """One step on a complete graph; N - 1 steps one way round a ring."""
    direct = StepSchedule.from_sends(
        4, 1, [(0, rank, 0, 1, (rank, peer)) for rank in range(4) for peer in range(4) if rank != peer]
    )
    assert direct.inverse_rate(complete(4, bandwidth="50/3")) == Fraction(3, 50)
    around = StepSchedule.from_sends(
        4, 2, [(hop, rank, 0, 2, ((rank + hop) % 4, (rank + hop + 1) % 4)) for rank in range(4) for hop in range(3)]
    )
    assert around.inverse_rate(ring(4, bandwidth=25, bidirectional=False)) == Fraction(3, 25)


def test_a_reduction_loads_the_opposite_links() -> None:
    """The same paths, passed from their ends."""
    links = [link for link in STAR.links if link[:2] != ("a", "b")]
    back = Topology.from_links([*links, ("b", "a", 2)], compute=["a", "b", "c"], switches=["s"])
    loads = dict(
        zip([link[:2] for link in back.links], made(direction="reduce").link_loads(back).T.tolist(), strict=True)
    )
    assert loads["b", "a"] == [3, 0]
    assert loads["s", "b"] == loads["c", "s"] == [0, 8]
    assert loads["b", "s"] == loads["s", "a"] == [1, 0]
    assert made(direction="reduce").inverse_rate(back) == Fraction(3, 4) / 2 + Fraction(8, 4) / IN


def test_an_allreduce_adds_up_both_halves() -> None:
    """Steps, sends and times."""
    topology = ring(2, bandwidth=5)
    spread = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    halves = StepSchedule.from_sends(
        2, 2, [(part, rank, part, part + 1, (rank, 1 - rank)) for rank in (0, 1) for part in (0, 1)], "reduce"
    )
    both = StepAllreduce(halves, spread)
    assert both.schedules == (halves, spread)
    assert (both.num_ranks, both.num_steps, both.num_sends) == (2, 3, 6)
    assert both.inverse_rate(topology) == Fraction(1, 10) + 2 * Fraction(1, 2) / 10


MIXED = Topology.from_links(
    [("a", "b", 10, 1), ("b", "c", 10, 1), ("c", "a", 5, 7), ("a", "c", 2, 100)], compute=["a", "b", "c"]
)
"""A one-way ring with one slow link, and a shortcut with a long way round."""
AROUND = StepSchedule.from_sends(
    3,
    2,
    [
        *(Send(0, rank, 0, 2, (rank, (rank + 1) % 3)) for rank in range(3)),
        *(Send(1, rank, 0, 2, ((rank + 1) % 3, (rank + 2) % 3)) for rank in range(3)),
    ],
)
SHARD = 10_000
BYTES = 3 * SHARD


def slow_time(schedule: StepSchedule, topology: Topology, num_bytes: int) -> Fraction:
    """The definition, send by send."""
    unit = Fraction(num_bytes, schedule.num_ranks * schedule.chunks_per_shard) / 1000
    total = Fraction(0)
    for step in {send.step for send in schedule.sends()}:
        now = [send for send in schedule.sends() if send.step == step]
        carried: dict[tuple[str, str], int] = {}
        for send in now:
            for hop in hops(send.path, schedule, topology):
                carried[hop] = carried.get(hop, 0) + send.upper - send.lower
        total += max(
            sum(topology.link(*hop).latency for hop in hops(send.path, schedule, topology))
            + max(unit * carried[hop] / topology.link(*hop).bandwidth for hop in hops(send.path, schedule, topology))
            for send in now
        )
    return total


def hops(path: tuple[int, ...], schedule: StepSchedule, topology: Topology) -> list[tuple[str, str]]:
    """Links that a path passes, by the names of their ends."""
    names = [topology.nodes[node] for node in path]
    return list(pairwise(names)) if schedule.direction == "broadcast" else [hop[::-1] for hop in pairwise(names)]


def test_a_step_takes_as_long_as_its_slowest_link() -> None:
    """10 kB take 2 µs and 7 µs of latency on the slow link; an unused link costs nothing."""
    assert schedule_time(AROUND, MIXED, BYTES) == 2 * (7 + 2)
    assert schedule_time(AROUND, MIXED, 3) == 2 * (7 + Fraction(1, 5000))


def test_the_slowest_link_changes_with_the_size() -> None:
    """Linear program (14) counts alpha + M / (N B) times the load: small data wait for alpha, large ones for B."""
    topology = Topology.from_links([("a", "b", 1, 3), ("b", "a", 100, 5)], compute=["a", "b"])
    exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    assert schedule_time(exchange, topology, 2) == 5 + Fraction(1, 100_000)
    assert schedule_time(exchange, topology, 20_000) == 3 + 10


def test_sends_that_share_a_link_wait_for_each_other() -> None:
    """Half of one shard and a third of another in one step make five sixths."""
    topology = complete(2, bandwidth=1, latency="1/2")
    halves = StepSchedule.from_sends(2, 6, [(0, 0, 0, 3, (0, 1)), (0, 0, 3, 5, (0, 1))])
    assert schedule_time(halves, topology, 12_000) == Fraction(1, 2) + 5


def test_latencies_along_a_path_add_up_and_its_busiest_link_counts() -> None:
    """Two sends leave rank a, so a's link to the switch carries both; each path has latency 1/3 + 1/5."""
    star = Topology.from_links(
        [(name, "s", 2, "1/3") for name in "abc"] + [("s", name, 1, "1/5") for name in "abc"],
        compute=["a", "b", "c"],
        switches=["s"],
    )
    sends = [(0, 0, 0, 1, (0, 3, 1)), (0, 0, 0, 1, (0, 3, 2)), (0, 1, 0, 1, (1, 3, 2))]
    assert schedule_time(StepSchedule.from_sends(3, 1, sends), star, 3000) == Fraction(8, 15) + 2
    assert schedule_time(StepSchedule.from_sends(3, 1, sends[:2]), star, 3000) == Fraction(8, 15) + 1


def test_reductions_pass_the_opposite_links() -> None:
    """One chunk per step towards the source, over the links that lead there."""
    topology = Topology.from_links([("a", "b", 10), ("b", "a", 5)], compute=["a", "b"])
    sends = [(0, 0, 0, 1, (0, 1))]
    assert schedule_time(StepSchedule.from_sends(2, 1, sends), topology, 2000) == Fraction(1, 10)
    assert schedule_time(StepSchedule.from_sends(2, 1, sends, "reduce"), topology, 2000) == Fraction(1, 5)


def test_an_allreduce_takes_both_parts_one_after_the_other() -> None:
    """The allgather begins after the last step of the reduction; both are cut in their own way."""
    topology = ring(3, bandwidth=10, latency=1)
    whole = replace(AROUND, chunks_per_shard=1, upper=np.ones(6, dtype=np.int64), direction="reduce")
    assert schedule_time(StepAllreduce(whole, AROUND), topology, BYTES) == 2 * (1 + 1) + 2 * (1 + 1)


@pytest.mark.parametrize("schedule", [AROUND, StepAllreduce(replace(AROUND, direction="reduce"), AROUND)])
def test_slices_are_refused(schedule: StepSchedule | StepAllreduce) -> None:
    """Data does not flow through steps."""
    with pytest.raises(UnsupportedError, match=r"^slices is 4, but the schedule has steps .*; leave slices out$"):
        schedule_time(schedule, MIXED, BYTES, 4)
    with pytest.raises(UnsupportedError, match="slices is 0; expected a whole number"):
        schedule_time(schedule, MIXED, BYTES, 0)


@given(st.data())
@settings(max_examples=examples(60))
def test_times_are_those_of_the_definition(data: st.DataObject) -> None:
    """Random sends on random links through a switch, most of them no schedule of anything."""
    amounts = st.fractions(Fraction(1, 9), 9, max_denominator=9)
    names = ["a", "b", "c", "s"]
    links = [(tail, head, data.draw(amounts), data.draw(amounts)) for tail in names for head in names if tail != head]
    topology = Topology.from_links(links, compute=names[:3], switches=["s"])
    paths = st.permutations(range(3)).flatmap(
        lambda order: st.sampled_from([tuple(order[:2]), (order[0], 3, order[1])])
    )
    sends = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2), st.integers(3, 5), paths)
    rows = data.draw(st.lists(sends, min_size=1, max_size=12))
    schedule = StepSchedule.from_sends(3, 5, rows, data.draw(st.sampled_from(["broadcast", "reduce"])))
    num_bytes = data.draw(st.integers(1, 10**6))
    assert schedule_time(schedule, topology, num_bytes) == slow_time(schedule, topology, num_bytes)
