"""Schedules in steps by hand: what their methods say about a few sends, some of them through a switch."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from collopt.schedules.steps.allreduce import StepAllreduce
from collopt.schedules.steps.step_schedule import Send, StepSchedule
from collopt.topologies import Topology, complete, ring

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
