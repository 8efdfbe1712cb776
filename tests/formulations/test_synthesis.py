"""The program of an allgather in steps against known optima, a second spelling, and as users extend it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.formulations import synthesis
from collopt.schedules import StepSchedule, verified_loads
from collopt.solvers.lp.session import solve
from collopt.topologies import Topology, dgx_a100, hypercube, ring
from oracles.bfb_subsets import diameter_of
from oracles.synthesis_cvxpy import least_time
from sample_sizes import examples
from strategies import switch_free_topologies


def best(topology: Topology, steps: int, chunks: int) -> tuple[StepSchedule, Fraction]:
    """The schedule that the solved program stands for, checked, with its bandwidth time in ns per byte of shard."""
    model = synthesis.build(topology, steps=steps, chunks=chunks)
    solution = solve(model)
    schedule = synthesis.as_schedule(model, solution.values["send"])
    verified_loads(schedule, topology)
    assert schedule.inverse_rate(topology) == round(solution.objective) * model.tick
    return schedule, schedule.inverse_rate(topology)


def test_a_two_way_ring_needs_halves_to_be_even() -> None:
    """On a ring of 4 the rank across comes both ways, half and half; whole shards take longer."""
    assert best(ring(4), 2, 2)[1] == Fraction(3, 2)
    assert best(ring(4), 2, 1)[1] == 2
    assert best(ring(4), 3, 1)[1] == 2
    assert best(ring(5), 2, 1)[1] == 2


def test_a_hypercube_in_thirds() -> None:
    """Seven shards over three links in three steps."""
    assert best(hypercube(3), 3, 3)[1] == Fraction(7, 3)


def test_a_slow_link_is_left_to_what_must_pass_it() -> None:
    """With links of 3 and 2 GB/s a chunk takes 2 and 3 ticks; the fast way round takes over what it can."""
    topology = Topology.from_links([("a", "b", 3), ("b", "c", 3), ("a", "c", 2)], compute="abc", bidirectional=True)
    model = synthesis.build(topology, steps=2, chunks=1)
    assert model.tick == Fraction(1, 6)
    assert model.program.ticks["a", "c"].value == 3
    assert best(topology, 1, 1)[1] == Fraction(1, 2)
    assert best(topology, 2, 3)[1] < Fraction(1, 2)


@settings(max_examples=examples(30))
@given(
    topology=switch_free_topologies(max_ranks=4, max_bandwidth=3), chunks=st.integers(1, 2), further=st.integers(0, 1)
)
@pytest.mark.slow
def test_a_second_spelling_agrees(topology: Topology, chunks: int, further: int) -> None:
    """CVXPY, by what is held after each step and with all variables; and one step less than the diameter is too few."""
    diameter = diameter_of(topology)
    time = best(topology, diameter + further, chunks)[1]
    assert least_time(topology, diameter + further, chunks) == pytest.approx(float(time), rel=1e-6)
    if diameter > 1 and not further:
        assert least_time(topology, diameter - 1, chunks) == float("inf")
        with pytest.raises(UnsupportedError, match=f"steps is {diameter - 1}; expected at least {diameter}"):
            synthesis.build(topology, steps=diameter - 1, chunks=chunks)


def test_chunks_that_follow_each_other_are_one_send() -> None:
    """As far as link, step and source are the same."""
    schedule, _ = best(ring(3, bidirectional=False), 2, 4)
    assert (schedule.num_sends, schedule.chunks_per_shard) == (6, 4)
    assert {(send.lower, send.upper) for send in schedule.sends()} == {(0, 4)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: synthesis.build(ring(4), steps=1, chunks=1),
            "steps is 1; expected at least 2, the diameter of ring-4",
        ),
        (lambda: synthesis.build(ring(4), steps="2", chunks=1), "steps is '2'; expected a whole number from 1"),
        (lambda: synthesis.build(ring(4), steps=2, chunks=0), "chunks is 0; expected a whole number from 1"),
        (lambda: synthesis.build(dgx_a100(), steps=1, chunks=1), "has switches, such as 'box0/nvswitch'"),
        (lambda: synthesis.build(ring(4), steps=10**4, chunks=10**4), r"give \d+ variables; expected at most 1000000"),
        (
            lambda: synthesis.build(ring(3).derate("gpu0", "gpu1", "1/1234567"), steps=1, chunks=1),
            "a chunk would take 1234567 ticks on the slowest link of .*: round the bandwidths",
        ),
    ],
)
def test_refuses_what_makes_no_sense(make: Callable[[], Any], message: str) -> None:
    """Each message names the value."""
    with pytest.raises(UnsupportedError, match=message):
        make()
