"""Whole chunks from shares: sums, the bound of Theorem 20, what (13) says exactly, and schedules that hold."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import UnsupportedError
from collopt.formulations import bfb
from collopt.formulations.bfb_rounding import as_sends, excess_bound, round_shares
from collopt.schedules import StepSchedule, verified_loads
from collopt.solvers.lp.session import solve
from collopt.topologies import Topology, complete, hypercube, ring, torus
from oracles.bfb_subsets import diameter_of, least_load
from sample_sizes import examples
from strategies import switch_free_topologies

FAMILIES = [(ring(5), 2), (ring(4, bidirectional=False), 1), (torus(3, 3), 4), (hypercube(4), 4), (complete(4), 3)]


def rounded_schedule(topology: Topology, chunks: int) -> StepSchedule:
    """Solve linear program (1) at every distance and round the shares."""
    sends = []
    for distance in range(1, diameter_of(topology) + 1):
        shares = solve(bfb.build(topology, distance)).values["share"]
        sends += as_sends(round_shares(shares, chunks), distance, topology)
    return StepSchedule.from_sends(topology.num_ranks, chunks, sends)


def least_loads(topology: Topology) -> list[Fraction]:
    """The largest U of every distance, exactly."""
    return [
        max(least_load(topology, distance, rank) for rank in topology.compute_nodes)
        for distance in range(1, diameter_of(topology) + 1)
    ]


@given(
    weights=st.dictionaries(
        st.tuples(*[st.sampled_from("abcd")] * 3), st.fractions(0, 1, max_denominator=30), min_size=1
    ),
    chunks=st.integers(1, 50),
    as_float=st.booleans(),
)
def test_rounded_shares_add_up_and_are_close(
    weights: dict[tuple[str, str, str], Fraction], chunks: int, as_float: bool
) -> None:
    """To all chunks of every source at every rank, and less than one chunk away from each share."""
    totals: dict[tuple[str, str], Fraction] = {}
    for (source, _, head), weight in weights.items():
        totals[source, head] = totals.get((source, head), Fraction(0)) + weight + Fraction(1, 9)
    shares = {offer: (weight + Fraction(1, 9)) / totals[offer[0], offer[2]] for offer, weight in weights.items()}
    given_shares: Any = {offer: float(share) for offer, share in shares.items()} if as_float else shares
    counts = round_shares(given_shares, chunks)
    assert list(counts) == list(shares)
    for source, head in totals:
        assert sum(count for offer, count in counts.items() if (offer[0], offer[2]) == (source, head)) == chunks
    slack = 1e-9 if as_float else 0
    assert all(abs(count - chunks * shares[offer]) < 1 + slack for offer, count in counts.items())


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
@pytest.mark.parametrize(("topology", "degree"), FAMILIES, ids=lambda value: getattr(value, "name", ""))
def test_rounded_schedules_keep_the_bound_of_theorem_20(topology: Topology, degree: int, chunks: int) -> None:
    """The schedule holds; against whole chunks at their best, ceil(P U), and against parts it loses little."""
    schedule = rounded_schedule(topology, chunks)
    verified_loads(schedule, topology)
    parts = least_loads(topology)
    assert schedule.num_steps == len(parts)
    unit = Fraction(degree, topology.num_ranks)
    best = unit * sum((Fraction(ceil(chunks * load), chunks) for load in parts), Fraction(0))
    reached = unit * schedule.inverse_rate(topology)
    allowed = excess_bound(degree, len(parts), chunks, topology.num_ranks)
    assert unit * sum(parts) <= best <= reached <= best + allowed
    assert best < unit * (sum(parts) + Fraction(len(parts), chunks))


@settings(max_examples=examples(25))
@given(topology=switch_free_topologies(max_ranks=6), chunks=st.integers(1, 5))
def test_rounded_schedules_hold_on_random_networks(topology: Topology, chunks: int) -> None:
    """No link gets as much as a chunk more per source than its share of the linear program."""
    schedule = rounded_schedule(topology, chunks)
    loads = verified_loads(schedule, topology)
    for distance, row in enumerate(loads.tolist(), start=1):
        shares = solve(bfb.build(topology, distance)).values["share"]
        for link, load in zip(topology.links, row, strict=True):
            own = [share for offer, share in shares.items() if offer[1:] == link[:2]]
            assert load < chunks * sum(own) + len(own) + 1e-6


def test_the_bound_in_closed_form() -> None:
    """As the theorem prints it; for rings, where the closed form divides by zero, as its proof adds it up."""
    for degree, diameter in ((2, 3), (3, 2), (4, 5)):
        closed = Fraction(degree * (degree**diameter - 1), (degree - 1) * 6 * 100)
        assert excess_bound(degree, diameter, 6, 100) == closed
    assert excess_bound(1, 5, 2, 6) == Fraction(5, 12)


@pytest.mark.parametrize(
    ("shares", "chunks", "message"),
    [
        ({("a", "b", "c"): 1}, 0, "chunks is 0; expected a whole number from 1"),
        ({("a", "b", "c"): 0.9}, 2, "the shares of 'a' that reach 'c' add up to 0.9; expected 1"),
        ({("a", "b", "c"): float("nan")}, 2, r"the share \('a', 'b', 'c'\) is nan; expected a number of at least 0"),
        ({("a", "b", "c"): 1.5, ("a", "d", "c"): -0.5}, 2, r"the share \('a', 'd', 'c'\) is -0.5; expected a number"),
    ],
)
def test_refuses_shares_that_are_none(shares: dict[tuple[str, str, str], float], chunks: int, message: str) -> None:
    """Each message names the source and the rank, or the share."""
    with pytest.raises(UnsupportedError, match=message):
        round_shares(shares, chunks)
