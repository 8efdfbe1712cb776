"""The throughput program against the combinatorial bound, against a second spelling, and as users extend it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import collopt
from collopt.errors import UnsupportedError
from collopt.formulations import throughput
from collopt.solvers import solve
from collopt.topologies import Topology, dgx1_v100, dgx_a100, leaf_spine, mi250, ring
from oracles.throughput_cvxpy import best_rate
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

NETWORKS = {
    "ring": ring(4, bandwidth=25),
    "one-way ring": ring(5, bandwidth="200/3", bidirectional=False),
    "dgx1-v100": dgx1_v100(),
    "mi250": mi250(),
    "leaf-spine": leaf_spine(3, 2, 2, 50, oversubscription=2),
}

networks = pytest.mark.parametrize("topology", NETWORKS.values(), ids=NETWORKS.keys())


def algbw(model: throughput.ThroughputModel) -> float:
    """The algorithm bandwidth that the solved model stands for."""
    return float(solve(model).objective * sum(model.weights))


def close(bandwidth: Fraction | float) -> Any:
    """Equal to 1e-7, relatively."""
    return pytest.approx(float(bandwidth), rel=1e-7)


def uneven(topology: Topology) -> list[int]:
    """Weights 0, 1, 2, 3, 0, 1, ... in rank order."""
    return [rank % 4 for rank in range(topology.num_ranks)]


def only(topology: Topology, root: int) -> list[int]:
    """Weights of a broadcast."""
    return [int(rank == root) for rank in range(topology.num_ranks)]


@networks
def test_allgather_reaches_the_bound(topology: Topology) -> None:
    """The program's optimum is the combinatorial bound."""
    assert algbw(throughput.build(topology)) == close(collopt.bound(topology, "allgather").algbw)


@settings(max_examples=examples(20))
@given(data=st.data(), topology=eulerian_topologies(max_ranks=5))
def test_random_networks_reach_their_bounds_in_both_directions(data: st.DataObject, topology: Topology) -> None:
    """Allgather, reduce-scatter, broadcast and reduce on random networks."""
    root = data.draw(st.integers(0, topology.num_ranks - 1))
    for direction, spread, single in (("broadcast", "allgather", "broadcast"), ("reduce", "reduce_scatter", "reduce")):
        model = throughput.build(topology, weights=uneven(topology), direction=direction)
        assert algbw(model) == close(collopt.bound(topology, spread, weights=uneven(topology)).algbw)
        model = throughput.build(topology, weights=only(topology, root), direction=direction)
        assert algbw(model) == close(collopt.bound(topology, single, root=root).algbw)


@pytest.mark.slow
@settings(max_examples=examples(30))
@given(topology=st.one_of(eulerian_topologies(max_ranks=5), switch_free_topologies(max_ranks=5)))
def test_a_second_spelling_agrees_on_random_networks(topology: Topology) -> None:
    """As above, with and without switches and opposites."""
    assert solve(throughput.build(topology)).objective == pytest.approx(best_rate(topology), rel=1e-5)


@networks
def test_prices_of_links_prove_the_rate(topology: Topology) -> None:
    """Strong duality: no price is negative, only full links have one, and bandwidth times price adds up to the rate."""
    solution = solve(throughput.build(topology))
    prices, shares = solution.duals["link_bandwidth"], solution.values["share"]
    assert set(prices) == {(link.tail, link.head) for link in topology.links}
    total = 0.0
    for link in topology.links:
        price = prices[link.tail, link.head]
        assert price >= -1e-9
        assert price * (float(link.bandwidth) - shares[link.tail, link.head]) == pytest.approx(0, abs=1e-6)
        total += price * float(link.bandwidth)
    assert total == close(solution.objective)


def test_the_flow_of_each_rank_is_a_witness() -> None:
    """Each rank's flow stays within the shares and brings it the shards of all others at the rate."""
    topology = NETWORKS["leaf-spine"]
    values = solve(throughput.build(topology)).values
    for rank in topology.compute_nodes:
        flow = {(tail, head): amount for (sink, tail, head), amount in values["flow"].items() if sink == rank}
        assert all(amount <= values["share"][link] + 1e-7 for link, amount in flow.items())
        net = sum(amount * ((head == rank) - (tail == rank)) for (tail, head), amount in flow.items())
        assert net >= values["rate"] * (topology.num_ranks - 1) - 1e-6


def test_a_quiet_uplink_lowers_the_rate_and_gets_a_price() -> None:
    """A share that a user bounds acts as a narrower link, as re-planning that link confirms."""
    topology = ring(4, bandwidth=30)
    model = throughput.build(topology)
    model.constrain("quiet_uplink", model.variables.share["gpu0", "gpu1"] <= 15)
    solution = solve(model)
    narrow = topology.derate("gpu0", "gpu1", "1/2", bidirectional=False)
    assert solution.objective == close(1 / collopt.bound(narrow, "allgather").inverse_rate)
    assert solution.values["share"]["gpu0", "gpu1"] <= 15 + 1e-7
    assert solution.duals["quiet_uplink"] > 1e-3


def test_ranges_fixed_and_unused_variables_are_compiled() -> None:
    """What users may do with Pyomo: a range is one row with one price, fixed and unused variables have values."""
    import pyomo.environ as pyo

    model = throughput.build(ring(3, bandwidth=10))
    model.constrain("band", pyo.inequality(2, model.variables.rate, 5))
    model.program.spare = pyo.Var(bounds=(7, 7))
    model.variables.share["gpu0", "gpu1"].fix(6)
    solution = solve(model)
    assert solution.objective == close(5)
    assert solution.duals["band"] == close(1)
    assert solution.values["spare"] == 7
    assert solution.values["share"]["gpu0", "gpu1"] == 6
    model.minimize(model.variables.rate)
    solution = solve(model)
    assert solution.objective == close(2)
    assert solution.duals["band"] == close(1)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 1], "weights has 2 entries; expected one per rank, 3"),
        ([0, 0, 0], "all weights are 0"),
        ([1, -1, 1], "weight -1 of rank 1"),
        ([1, float("nan"), 1], "weight nan of rank 1"),
        ([1, True, 1], "weight True of rank 1"),
        ([1, "many", 1], "weight 'many' of rank 1"),
    ],
)
def test_refuses_weights_that_are_none(weights: Sequence[object], message: str) -> None:
    """Each message names the weight."""
    with pytest.raises(UnsupportedError, match=message):
        throughput.build(ring(3), weights=weights)


@networks
@pytest.mark.parametrize("trees", [1, 2, 3])
def test_fixed_counts_reach_what_the_planner_reaches(topology: Topology, trees: int) -> None:
    """The integer program is as fast as the plan with the same number of trees, which rounds by other means."""
    model = throughput.build_fixed_count(topology, trees)
    plan = collopt.plan(topology, "allgather", trees_per_root=trees)
    assert topology.num_ranks * trees * float(model.unit) / solve(model).objective == close(plan.algbw)


@settings(max_examples=examples(15))
@given(data=st.data(), topology=eulerian_topologies(max_ranks=4, max_bandwidth=5))
def test_plans_reach_fixed_counts_on_random_networks(data: st.DataObject, topology: Topology) -> None:
    """Not above the rate of any number of trees; plans as good also where rounding leaves switches unbalanced."""
    trees = data.draw(st.integers(1, 3))
    for direction, collective in (("broadcast", "allgather"), ("reduce", "reduce_scatter")):
        model = throughput.build_fixed_count(topology, trees, direction=direction)
        algbw = topology.num_ranks * trees * float(model.unit) / solve(model).objective
        assert algbw <= float(collopt.bound(topology, collective).algbw) * (1 + 1e-7)
        # HiGHS takes numbers within 1e-6 of whole ones for whole, so its rate may be that much too high.
        made = collopt.plan(topology, collective, trees_per_root=trees)
        assert algbw == pytest.approx(float(made.algbw), rel=2e-6)


def test_fixed_counts_are_whole_and_balanced() -> None:
    """Links carry whole trees, as many into a switch as out of it, and weights count in units that make them whole."""
    topology = NETWORKS["leaf-spine"]
    model = throughput.build_fixed_count(topology, 2, weights=["0.5", 1, 0, 1, 0, 0])
    assert model.weights == (1, 2, 0, 2, 0, 0)
    shares = solve(model).values["share"]
    assert all(share == pytest.approx(round(share), abs=1e-6) for share in shares.values())
    for switch in topology.switch_nodes:
        net = sum(share * ((head == switch) - (tail == switch)) for (tail, head), share in shares.items())
        assert net == pytest.approx(0, abs=1e-6)


def test_refuses_expressions_that_are_not_linear_in_this_model() -> None:
    """Another model's variables, no variables, products, truth values and text."""
    model, other = throughput.build(ring(3)), throughput.build(ring(3))
    rate = model.variables.rate
    for expression, message in [
        (other.variables.rate <= 1, "'wish' has variable 'rate' of another model"),
        (rate * rate <= 1, "'wish' is not linear"),
        (True, "'wish' is True; expected an expression"),
        (rate, "expected an expression with <="),
        ("rate <= 1", "expected an expression with <="),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            model.constrain("wish", expression)
    for expression, message in [
        (other.variables.rate, "the objective has variable 'rate' of another model"),
        (rate * rate, "the objective is not linear"),
        (3, "the objective has no variable"),
        ("rate", "the objective is 'rate'; expected an expression"),
        (None, "the objective is None; expected an expression"),
    ]:
        with pytest.raises(UnsupportedError, match=message):
            model.maximize(expression)
    assert solve(model).objective == close(1)


def test_refuses_a_program_without_one_objective() -> None:
    """What a user does to the program itself is checked when it is solved."""
    import pyomo.environ as pyo

    model = throughput.build(ring(3))
    model.program.second = pyo.Objective(expr=model.variables.rate)
    with pytest.raises(UnsupportedError, match="has 2 active objectives; expected 1"):
        solve(model)
    model.program.second.deactivate()
    model.program.bent = pyo.Constraint(expr=model.variables.rate**2 <= 1)
    with pytest.raises(UnsupportedError, match=r"throughput of ring-3 cannot be solved: .*bent"):
        solve(model)


def test_balanced_shares_are_a_network_to_plan_on() -> None:
    """At most 50 GB/s into the cards of one box: the program divides them, and trees reach its rate in the shares."""
    topology = dgx_a100(boxes=2)
    model = throughput.build(topology)
    into_cards = [model.variables.share[f"box0/gpu{card}", f"box0/nic{card}"] for card in range(8)]
    model.constrain("cards", sum(into_cards) <= 50)
    loose = collopt.solve(model).exact
    with pytest.raises(UnsupportedError, match="25 GB/s ingress and 50 GB/s egress"):
        collopt.plan(topology.with_bandwidths(loose.values["share"]), "allgather")
    model.balance_switches()
    model.balance_switches()
    exact = collopt.solve(model).exact
    plan = collopt.plan(topology.with_bandwidths(exact.values["share"]), "allgather")
    assert plan.algbw == topology.num_ranks * exact.objective
    assert plan.gap == 0


@pytest.mark.parametrize("scale", [Fraction(1, 10**6), Fraction(1), Fraction(10**6)], ids=str)
@pytest.mark.parametrize("trees", [1, 2])
def test_fixed_counts_do_not_depend_on_the_unit_of_bandwidth(scale: Fraction, trees: int) -> None:
    """A million times as fast or as slow: solvers' tolerances are absolute, and U is not small next to them."""
    speeds = {"ca": "31/3", "ab": "40/3", "bc": "40/3", "ba": 2, "cb": 3, "ac": 1}
    links = [(tail, head, Fraction(speed) * scale) for (tail, head), speed in speeds.items()]
    topology = Topology.from_links(links, compute="abc")
    model = throughput.build_fixed_count(topology, trees)
    plan = collopt.plan(topology, "allgather", trees_per_root=trees)
    assert model.unit == scale * Fraction(40, 3)
    assert 3 * trees * float(model.unit) / solve(model).objective == close(plan.algbw)
