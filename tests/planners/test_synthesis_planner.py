"""Synthesised allgathers and plans by integer programming: known optima, frontiers, and what is said of the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import collopt
from collopt.errors import CertificateError, NoAnswerError, TopologyError, UnsupportedError
from collopt.planners.literature.synthesis import synthesis_frontier, synthesise
from collopt.topologies import Topology, dgx_a100, ring, torus
from oracles.synthesis_cvxpy import least_time

OUT = [(1, 2), (2, 3), (4, 5), (0, 6), (0, 6), (3, 7), (5, 7), (1, 4)]
DIAMOND = Topology.from_links(
    [(tail, head, 1) for tail, heads in enumerate(OUT) for head in heads], compute=range(8), name="diamond"
)
"""8 ranks with 2 links each in and out, diameter 3."""


def test_the_diamond_is_optimal_in_both_with_two_chunks_and_not_with_one() -> None:
    """As table 9 of the direct-connect paper has it: 3 steps and T_B = 7/8, which a breadth-first broadcast misses."""
    found, whole = synthesise(DIAMOND, chunks=2), synthesise(DIAMOND)
    assert found.schedule.num_steps == 3
    assert (found.proved, whole.proved, found.gap) == (True, True, 0)
    assert (found.inverse_rate * Fraction(2, 8), whole.inverse_rate * Fraction(2, 8)) == (Fraction(7, 8), 1)


def de_bruijn_with_cycle(degree: int, length: int, cycle: list[int]) -> Topology:
    """The de Bruijn graph with one cycle in place of its self-loops and 2-cycles."""
    size = degree**length
    arcs = {(tail, (degree * tail + letter) % size) for tail in range(size) for letter in range(degree)}
    kept = {(tail, head) for tail, head in arcs if (head, tail) not in arcs}
    kept |= set(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return Topology.from_links([(*arc, 1) for arc in sorted(kept)], compute=range(size))


@pytest.mark.parametrize(
    ("degree", "length", "cycle", "steps", "chunks"),
    [
        (2, 3, [0, 5, 2, 7], 4, 2),
    ],
)
def test_modified_de_bruijn_graphs_are_bandwidth_optimal(
    degree: int, length: int, cycle: list[int], steps: int, chunks: int
) -> None:
    """As table 9 has them: T_B = (N - 1)/N in that many steps."""
    topology = de_bruijn_with_cycle(degree, length, cycle)
    assert {len(topology.out_links(node)) for node in topology.nodes} == {degree}
    found = synthesise(topology, steps=steps, chunks=chunks)
    assert found.schedule.num_steps == steps
    assert found.inverse_rate == Fraction(topology.num_ranks - 1, degree)
    assert found.gap == 0


def test_a_frontier_trades_steps_for_bandwidth() -> None:
    """On a ring with two slow links a few more steps help; no further ones are tried where the bound is met."""
    frame = synthesis_frontier(ring(5), chunks=[1, 2])
    assert (frame["steps"].tolist(), frame["pareto"].tolist()) == ([2, 2], [True, False])
    topology = ring(6).derate("gpu0", "gpu1", "1/2")
    frame = synthesis_frontier(topology, steps=[3, 4], chunks=[1, 2])
    assert all(isinstance(rate, Fraction) for rate in frame["inverse_rate"])
    assert (frame["steps"] <= [3, 3, 4, 4]).all()
    assert frame["chunks"].tolist() == [1, 2] * 2
    for _, row in frame.iterrows():
        found = row["synthesis"]
        found.verify()
        assert (row["inverse_rate"], row["algbw"], row["gap"]) == (found.inverse_rate, found.algbw, found.gap)
        as_soon = frame[frame["steps"] <= row["steps"]]
        assert not row["pareto"] or row["inverse_rate"] == min(as_soon["inverse_rate"])
    front = frame[frame["pareto"]]
    assert len(front) == 2
    assert front["inverse_rate"].is_monotonic_decreasing
    assert min(front["inverse_rate"]) == min(frame["inverse_rate"])


def test_time_that_runs_out_leaves_no_claim() -> None:
    """No schedule: an error that names the limit."""
    with pytest.raises(NoAnswerError, match="time_limit=0"):
        synthesise(DIAMOND, steps=5, chunks=6, time_limit=0)


def test_nothing_is_called_proved_that_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """If branch and bound ends with a gap, the limit says so, and never less than the cut."""
    whole = synthesise(DIAMOND)
    monkeypatch.setattr("collopt.solvers.lp.solution.Solution.bound", 3.6)
    assert (whole.limit, whole.inverse_rate) == (4, 4)
    assert synthesise(DIAMOND).limit == 4
    monkeypatch.setattr("collopt.solvers.lp.solution.Solution.bound", 2.000_000_1)
    assert synthesise(DIAMOND).limit == whole.bound.inverse_rate == Fraction(7, 2)
    monkeypatch.setattr("collopt.solvers.lp.solution.Solution.bound", float("-inf"))
    found = synthesise(ring(4))
    assert (found.limit, found.bound.inverse_rate, found.inverse_rate) == (Fraction(3, 2), Fraction(3, 2), 2)
    assert not found.proved
    assert "not proved" in str(found)


def test_a_synthesis_claims_only_what_holds() -> None:
    """Another rate, limit, network or bound is refused."""
    found = synthesise(ring(4), chunks=2)
    found.verify()
    for changes, message in (
        ({"inverse_rate": Fraction(1)}, "takes 3/2 ns per byte of shard; 1 is claimed"),
        ({"limit": Fraction(2)}, "takes 3/2 ns per byte of shard; 3/2 is claimed, and a limit of 2"),
        ({"topology": ring(4, bandwidth=2)}, "the bound is for allgather on"),
        ({"bound": collopt.bound(ring(4), "broadcast", root=0)}, "the bound is for broadcast on"),
    ):
        with pytest.raises(CertificateError, match=message):
            replace(found, **changes).verify()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ask", "options", "name"),
    [
        (synthesis_frontier, {"chunks": []}, "chunks is empty"),
        (synthesis_frontier, {"steps": []}, "steps is empty"),
        (synthesis_frontier, {"steps": 5}, "steps are 5"),
        (synthesise, {"steps": 1}, "steps is 1; expected at least 2, the diameter"),
        (synthesise, {"topology": None}, "the topology is None"),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    ask: Callable[..., object], options: dict[str, Any], name: str
) -> None:
    """Each message has the value."""
    with pytest.raises((TopologyError, UnsupportedError), match=name):
        ask(**{"topology": ring(4)} | options)


@pytest.fixture
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found must not depend on how busy the machine is."""
    monkeypatch.setattr("collopt.planners.literature.synthesis.PLAN_SECONDS", 600)


@pytest.mark.usefixtures("enough_time")
def test_two_boxes_exchange_over_their_nics_and_then_inside() -> None:
    """One shard over each NIC, then each GPU hands 7 of the 8 that came on; no two steps do better."""
    plan = collopt.plan(dgx_a100(boxes=2), "allgather", planner="milp", chunks=1)
    assert plan.inverse_rate == Fraction(1, 25) + Fraction(7, 300)
    assert plan.provenance["search"] == "branch and bound: at most 252.63 GB/s in 2 steps, 1 chunk per shard"


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "allreduce"])
@pytest.mark.usefixtures("enough_time")
def test_one_way_links_are_used_in_their_direction(collective: str) -> None:
    """A reduce-scatter runs against the links of the transposed network."""
    links = [("a", "b", 2), ("b", "c", 1), ("c", "a", 1), ("a", "c", 1)]
    plan = collopt.plan(Topology.from_links(links, compute="abc"), collective, planner="milp")
    plan.verify()
    assert plan.schedule.num_steps == (4 if collective == "allreduce" else 2)


@pytest.mark.usefixtures("enough_time")
def test_the_bound_of_the_search_is_shown_by_compare() -> None:
    """Beside the gap to the bound of all schedules, which three steps of two chunks reach here."""
    network = ring(4).derate("gpu0", "gpu1", "1/2")
    table = collopt.compare(network, "allgather", planners=["milp"], bounds=["forestcoll"]).set_index("planner")
    assert table.loc["milp", "reason"] == "branch and bound: at most 2.00 GB/s in 3 steps, 2 chunks per shard"
    assert table.loc["milp", "gap"] == 0


def test_a_start_is_there_before_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that has run out leaves the schedule that the search started from."""
    monkeypatch.setattr("collopt.planners.literature.synthesis.PLAN_SECONDS", 0)
    plan = collopt.plan(torus(3, 3), "allgather", planner="milp")
    plan.verify()
    assert plan.schedule.num_steps == 2


@pytest.mark.usefixtures("enough_time")
def test_a_second_statement_has_the_same_optimum() -> None:
    """Which leaves nothing out because of distances."""
    network = ring(4).derate("gpu0", "gpu1", "1/2")
    plan = collopt.plan(network, "allgather", planner="milp", chunks=2)
    assert plan.inverse_rate == least_time(network, steps=3, chunks=2)


@pytest.mark.usefixtures("enough_time")
def test_the_bound_of_an_allreduce_is_of_equally_many_steps_in_both_phases() -> None:
    """Of the search nothing is known with fewer steps in one and more in the other."""
    plan = collopt.plan(ring(4), "allreduce", planner="milp", chunks=1)
    assert plan.provenance["search"] == "branch and bound: at most 1.00 GB/s in 3 + 3 steps, 1 chunk per shard"
