"""All-to-all(v) plans: optimal where that is known, proved everywhere, and clear about what they refuse."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt import plan, solve
from collopt.errors import CertificateError, NoAnswerError, UnsupportedError
from collopt.formulations import all_to_all
from collopt.planners import plan_of_schedule
from collopt.planners.all_to_all import flows as pair_flows_module
from collopt.planners.all_to_all.multicommodity import lengths_bound
from collopt.schedules import ALL_TO_ALL, Cut, FlowSchedule, LengthDual
from collopt.solvers.lp.exact_optimum import ExactAnswer
from collopt.solvers.lp.solution import Solution
from collopt.topologies import (
    Topology,
    complete,
    dgx_a100,
    fat_tree,
    generalized_kautz,
    hypercube,
    mi250,
    ring,
    torus,
)
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies


@pytest.mark.parametrize(
    ("topology", "algbw"),
    [
        (ring(5, bandwidth=3), Fraction(5)),
        (torus(4, 4), Fraction(2)),
        (hypercube(4), Fraction(2)),
        (complete(5, bandwidth=10), Fraction(50)),
        (mi250(), Fraction(75)),
        (mi250(boxes=2), Fraction(32)),
        (dgx_a100(boxes=2), Fraction(50)),
        (fat_tree(4), None),
        (generalized_kautz(2, 7), None),
    ],
    ids=lambda value: value.name if isinstance(value, Topology) else "",
)
def test_equal_parts_reach_the_bound(topology: Topology, algbw: Fraction | None) -> None:
    """On networks with and without switches, whose figures follow from cuts or sums of distances by hand."""
    made = plan(topology, "all_to_all")
    made.verify(topology)
    assert made.gap == 0
    assert made.planner == "multicommodity"
    assert algbw is None or made.algbw == algbw
    best = solve(all_to_all.build(topology)).exact.objective
    assert made.algbw == made.bound.algbw == topology.num_ranks * best


@given(st.one_of(eulerian_topologies(max_ranks=4, max_switches=2), switch_free_topologies()), st.data())
@settings(max_examples=examples(30))
def test_any_traffic_is_proved_within_its_chunks(topology: Topology, data: st.DataObject) -> None:
    """The bound is what the linear program reaches; finer chunks come nearer to it, and 4096 as near as one expects."""
    size = topology.num_ranks
    rows = data.draw(st.lists(st.lists(st.integers(0, 6), min_size=size, max_size=size), min_size=size, max_size=size))
    rows[0][1] += 1
    made = plan(topology, "all_to_allv", traffic=rows, chunks=4096)
    schedule = made.schedule
    assert isinstance(schedule, FlowSchedule)
    best = solve(all_to_all.build(topology, traffic=rows)).exact.objective
    largest = max(entry for i, row in enumerate(rows) for j, entry in enumerate(row) if i != j)
    common = int(np.gcd.reduce(np.array(rows), axis=None))
    assert made.bound.inverse_rate == largest / best / common
    assert made.gap < Fraction(1, 200)


def test_traffic_may_be_a_table_or_fractions() -> None:
    """The same amounts in other units make the same plan."""
    traffic = np.arange(9).reshape(3, 3)
    forms = (traffic, (traffic / 2).tolist(), pd.DataFrame(traffic), traffic.astype(str).tolist(), 6 * traffic)
    plans = [plan(ring(3), "all_to_allv", traffic=form) for form in forms]
    assert len({(made.inverse_rate, made.bound.weights) for made in plans}) == 1


def test_each_order_makes_a_schedule() -> None:
    """Rounds are many, and together hardly longer than the busiest link works."""
    network = torus(4, 4)
    by_hops, by_rounds = (plan(network, "all_to_all", order=order).schedule for order in ("hops", "rounds"))
    assert isinstance(by_hops, FlowSchedule)
    assert isinstance(by_rounds, FlowSchedule)
    assert by_hops.num_steps == 4 < by_rounds.num_steps
    assert by_rounds.step_rate(network) < by_hops.step_rate(network)
    assert plan(network, "all_to_all").schedule.step_rate(network) == by_rounds.step_rate(network)  # type: ignore[union-attr]
    through_switch = plan(dgx_a100(), "all_to_all").schedule
    assert isinstance(through_switch, FlowSchedule)
    assert through_switch.num_steps == 1


def test_large_networks_are_proved_within_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded flows and multiplicative weights are within their certificates, with bytes as with small numbers."""
    monkeypatch.setattr(pair_flows_module, "MAX_SCALE", 1)
    assert plan(mi250(), "all_to_all", chunks=3).gap == 0
    monkeypatch.setattr(pair_flows_module, "MAX_COLUMNS", 1)
    network = generalized_kautz(3, 20)
    made = plan(network, "all_to_all", chunks=64)
    assert str(made.provenance["flows"]).startswith("concurrent flow")
    assert made.gap < Fraction(3, 100)
    assert made.algbw <= network.num_ranks * solve(all_to_all.build(network)).exact.objective <= made.bound.algbw
    traffic = np.random.default_rng(5).integers(2**40, 2**47, (8, 8))
    traffic[0, 1], traffic[3] = 1, 0
    made = plan(hypercube(3, bandwidth=10), "all_to_allv", traffic=traffic)
    assert made.gap < Fraction(1, 100)


def test_floats_do_where_the_program_has_no_exact_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """CutDual in floats have no common unit, and prove next to as much."""

    def none(self: Solution) -> ExactAnswer:
        raise NoAnswerError("too much for exact arithmetic")

    monkeypatch.setattr(Solution, "exact", property(none))
    ways = [(rank, (turn * rank + 2 * turn - 1) % 11) for rank in range(11) for turn in (1, 3, 5)]
    links = [(f"g{tail}", f"g{head}", 10 + 7 * tail * head % 13) for tail, head in ways if tail != head]
    network = Topology.from_links(links, compute=[f"g{rank}" for rank in range(11)])
    made = plan(network, "all_to_all", chunks=64)
    assert made.provenance["flows"] == "linear program, in floats"
    assert made.gap < Fraction(2, 100)
    monkeypatch.undo()
    assert 0 <= made.bound.algbw / collopt.bound(network, "all_to_all").algbw - 1 < Fraction(1, 10**5)


@pytest.mark.parametrize(
    "traffic",
    [
        [[0, 10**12, 1, 0], [1, 0, 3, 10**12], [0, 1, 0, 0], [10**12, 7, 1, 0]],
        [[0, 2**51 - 129, 10**9 + 7, 5], [1, 0, 2**50 - 27, 0], [998_244_353, 1, 0, 3], [11, 10**15 + 37, 2, 0]],
    ],
    ids=["ratio of 10^12", "large coprime numbers"],
)
@pytest.mark.parametrize("unit", [Fraction(1, 10**9), Fraction(1), Fraction("1.00003")])
def test_amounts_may_differ_as_they_like(traffic: list[list[int]], unit: Fraction) -> None:
    """What is next to nothing, and what is slow, is planned for like all else; next to nothing is lost."""
    ways = ((0, 1, 3), (1, 2, 7), (2, 3, 5), (3, 0, 4), (0, 2, 2), (3, 1, 6))
    links = [(f"g{tail}", f"g{head}", width * unit) for tail, head, width in ways]
    made = plan(Topology.from_links(links, compute=[f"g{rank}" for rank in range(4)]), "all_to_allv", traffic=traffic)
    assert isinstance(made.schedule, FlowSchedule)
    assert made.schedule.traffic.tolist() == traffic
    assert made.gap < Fraction(1, 10**5)


@pytest.mark.parametrize("exact", [True, False])
def test_prices_without_a_fair_common_unit_are_rounded(exact: bool) -> None:
    """Any lengths prove something, so those that a witness cannot add up give way to others near them."""
    network = ring(3, bandwidth=10, bidirectional=False)
    ones = np.ones((3, 3), dtype=np.int64)
    primes = (10**9 + 7, 10**9 + 9, 998_244_353)
    lengths = [Fraction(1, prime) if exact else Fraction(1 + 1 / prime) for prime in primes]
    bound = lengths_bound(network, ALL_TO_ALL, ones, lengths)
    bound.verify()
    assert abs(bound.inverse_rate - Fraction(3, 10)) < Fraction(1, 10**2)


def test_the_bound_is_a_cut_where_one_is_as_tight() -> None:
    """So that people see where the bottleneck is."""
    found = collopt.bound(dgx_a100(boxes=2), "all_to_all")
    found.verify()
    assert isinstance(found.witness, Cut)
    assert found.witness.supply(dgx_a100(boxes=2)) == 8
    assert isinstance(collopt.bound(torus(4, 4), "all_to_all").witness, LengthDual)


def test_plans_come_back_from_files(tmp_path: Path) -> None:
    """With traffic, paths and lengths."""
    made = plan(torus(3, 3), "all_to_allv", traffic=np.arange(81).reshape(9, 9))
    path = tmp_path / "plan.json"
    made.save(path)
    again = collopt.load_plan(path, torus(3, 3))
    assert (again.algbw, again.gap, str(again)) == (made.algbw, made.gap, str(made))
    text = path.read_text()
    path.write_text(text.replace('"traffic": [\n[0, 1,', '"traffic": [\n[0, 2,'))
    with pytest.raises(CertificateError, match="traffic differ"):
        collopt.load_plan(path)


def test_a_flow_that_is_there_becomes_a_plan() -> None:
    """Proved like any other; those of other kinds are refused."""
    network = ring(3, bandwidth=10, bidirectional=False)
    near = [(1, (rank, (rank + 1) % 3), (0,)) for rank in range(3)]
    far = [(1, (rank, (rank + 1) % 3, (rank + 2) % 3), (1, 2)) for rank in range(3)]
    flow = FlowSchedule.from_paths(np.ones((3, 3), dtype=np.int64), 1, near + far)
    made = plan_of_schedule(network, "all_to_all", flow)
    assert made.gap == 0
    assert plan_of_schedule(network, "all_to_allv", flow).gap == 0
    with pytest.raises(UnsupportedError, match="expected one of direction 'broadcast' for allgather"):
        plan_of_schedule(network, "allgather", flow)
    with pytest.raises(UnsupportedError, match="expected a FlowSchedule for all_to_all"):
        plan_of_schedule(network, "all_to_all", plan(network, "allgather").schedule)
    uneven = FlowSchedule.from_paths(np.array([[0, 1, 0], [0, 0, 0], [0, 0, 0]]), 1, near[:1])
    with pytest.raises(UnsupportedError, match="expected uniform traffic, or all_to_allv, for all_to_all"):
        plan_of_schedule(network, "all_to_all", uneven)


def test_shortest_paths_pass_as_few_ranks_as_possible() -> None:
    """And switches rather than ranks."""
    made = plan(mi250(boxes=2), "all_to_all", planner="shortest-paths")
    assert isinstance(made.schedule, FlowSchedule)
    assert made.schedule.num_transfers.max() <= 3
    across = made.schedule.to_frame(made.topology)
    between = across[(across["source"] < 16) != (across["destination"] < 16)]
    assert not between.empty
    assert plan(dgx_a100(boxes=2), "all_to_all", planner="shortest-paths").schedule.num_steps == 1  # type: ignore[union-attr]
