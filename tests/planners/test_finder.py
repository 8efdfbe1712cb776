"""The topology finder: its frontiers against the paper's tables, its schedules, its cache."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import pytest
from final_frontiers import most_forced

import collopt
from collopt.errors import CertificateError, ColloptError, UnsupportedError
from collopt.planners import Candidate, Frontier, find_topologies, sweep_topologies
from collopt.planners.direct_connect import costs as finder_costs
from collopt.planners.direct_connect import find as finder
from collopt.planners.direct_connect.bases import best_circulants
from collopt.planners.direct_connect.bfb import bfb_cost
from collopt.planners.direct_connect.constructions import Base
from collopt.planners.direct_connect.costs import Costing
from collopt.planners.direct_connect.find import pareto_efficient
from collopt.planners.direct_connect.table import FinderTable
from collopt.planners.plans.stages import Trace
from collopt.schedules import StepCost, step_cost, verified_loads
from collopt.topologies import Topology, bandwidth_optimum, complete, de_bruijn, kautz, ring
from graph_symmetry import is_reverse_symmetric
from slow_cases import slow_where

F = Fraction
PRINTED = {
    32: [(3, F(1)), (4, F(31, 32))],
    64: [(3, F(21, 16)), (4, F(1)), (6, F(63, 64))],
    128: [(4, F(33, 32)), (5, F(1)), (10, F(127, 128))],
    256: [(4, F(85, 64)), (5, F(65, 64)), (7, F(1)), (10, F(255, 256))],
    512: [(5, F(133, 128)), (6, F(129, 128)), (11, F(1)), (16, F(511, 512))],
    1024: [(5, F(341, 256)), (6, F(261, 256)), (8, F(257, 256)), (11, F(1)), (20, F(1023, 1024))],
}
"""Tables 4 and 7, d = 4."""


def cost_of(found: Frontier) -> list[tuple[int, Fraction]]:
    """T_L and T_B of all candidates."""
    return [tuple(candidate.cost) for candidate in found]


@pytest.fixture
def known_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out metacirculants, which are better than much of what other parts of the search find."""
    monkeypatch.setattr(finder_costs, "_efficient_metacirculants", lambda *_, **__: ())


@pytest.mark.usefixtures("known_families")
@pytest.mark.parametrize("nodes", slow_where(list(PRINTED), lambda nodes: nodes > 128))
def test_every_row_of_the_paper_is_matched_or_beaten(nodes: int) -> None:
    """With costs as fractions."""
    found = cost_of(find_topologies(nodes, 4, all_to_all=False))
    for steps, factor in PRINTED[nodes]:
        assert any(mine[0] <= steps and mine[1] <= factor for mine in found), (steps, factor)


RATES = {
    32: ("5.71e-2", "5.26e-2"),
    64: ("2.17e-2", "2.21e-2", "1.87e-2"),
    128: ("9.89e-3", "9.26e-3", "5.21e-3"),
    256: ("4.04e-3", "4.10e-3", "3.62e-3", "2.94e-3"),
    512: ("1.88e-3", "1.78e-3", "1.12e-3", "5.58e-4"),
    1024: ("8.01e-4", "8.12e-4", "7.34e-4", "6.18e-4", "2.79e-4"),
}
"""The columns MCF of tables 4 and 7, rows as in `PRINTED`."""


@pytest.mark.parametrize("nodes", slow_where(list(RATES), lambda nodes: nodes > 128))
def test_the_pick_for_all_to_all_is_as_good_as_every_row_of_the_paper(nodes: int) -> None:
    """By the rate of a flow, to the three digits that are printed; and each candidate's is within 1 % of its bound."""
    found = find_topologies(nodes, 4)
    best = found.best("all_to_all")
    assert float(f"{float(best.all_to_all[0]):.2e}") >= max(map(float, RATES[nodes]))
    assert best.all_to_all[1] <= found.bounds.all_to_all
    for candidate in found:
        lower, upper = candidate.all_to_all
        assert upper * F(99, 100) <= lower <= upper
    for steps, factor in PRINTED[nodes]:
        assert any(cost.steps <= steps and cost.bandwidth_factor <= factor for cost in (each.cost for each in found))


def test_graphs_of_equal_costs_and_bounds_are_told_apart_by_their_rates() -> None:
    """Two circulants of 10 nodes cost the same, and shortest paths and distances say the same of both."""
    (best,) = find_topologies(10, 6, bidirectional=True)
    assert best.cost == best.reduce_scatter_cost == StepCost(2, F(9, 10))
    assert best.all_to_all == (F(12, 25), F(12, 25))  # of C(10, {1, 2, 4}) they are 2/5


@pytest.mark.parametrize(("nodes", "degree", "steps"), [(7, 2, 3), (6, 2, 2), (21, 4, 3), (5, 1, 4), (5, 4, 1)])
def test_no_directed_moore_graph_is_hoped_for(nodes: int, degree: int, steps: int) -> None:
    """Of 1 + d + ... + d^k nodes none has diameter k, but cycles and complete graphs."""
    found = find_topologies(nodes, degree, all_to_all=False)
    assert found.bounds.steps == found[0].cost.steps == steps
    assert found.room()[steps] == 1 - bandwidth_optimum(nodes) / found[0].cost.bandwidth_factor
    # One node below the Moore bound, some link brings d shards that no other can bring in two steps.
    assert find_topologies(12, 3, all_to_all=False).room() == {2: 0, 3: 0}


def made(name: str, *costs: tuple[int, int], rates: tuple[int, int] | None = None) -> Candidate:
    """A candidate of a name with costs of an allgather and a reduce-scatter, whatever its graph costs."""
    both = [StepCost(steps, F(factor)) for steps, factor in costs * (3 - len(costs))]
    limits = None if rates is None else (F(rates[0]), F(rates[1]))
    return Candidate(3, 2, Base("complete", (3,), name), *both, True, True, all_to_all=limits)


def test_candidates_are_efficient_for_one_of_four_collectives() -> None:
    """None is listed that another beats in everything, and none is lost that may be best at something."""
    rated = [("near", 4, (8, 9)), ("quick", 3, (5, 6)), ("open", 3, (4, 7)), ("none", 4, (5, 6))]
    listed = [made(name, (steps, 1), rates=rates) for name, steps, rates in rated]
    assert [each.name for each in pareto_efficient(listed)] == ["quick", "open", "near"]
    factors = {"gathers": (2, 9), "reduces": (9, 2), "both": (4, 4), "none": (5, 5), "worse": (2, 10)}
    listed = [made(name, (2, one), (2, other)) for name, (one, other) in factors.items()]
    assert [each.name for each in pareto_efficient(listed)] == ["gathers", "both", "reduces"]
    assert [each.name for each in pareto_efficient([*listed, made("all", (2, 2))])] == ["all"]


@pytest.mark.parametrize("nodes", range(5, 13))
def test_small_topologies_are_optimal(nodes: int) -> None:
    """Table 5 says so of 5 to 12 nodes with 4 links each."""
    (found,) = find_topologies(nodes, 4)
    assert found.cost == (1 if nodes == 5 else 2, F(nodes - 1, nodes))


@pytest.mark.parametrize(
    ("network", "forced"),
    [
        (kautz(3, 1), F(1)),
        (kautz(2, 2), F(7, 6)),
        (complete(4), F(3, 4)),
        (ring(5), F(4, 5)),
        (ring(6), F(2, 3)),  # the opposite node comes either way
        (ring(7, bidirectional=False), F(6, 7)),
        (de_bruijn(2, 3), F(7, 4)),  # nodes with a self-loop have one link for all
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_links_without_an_alternative_bound_schedules_of_as_many_steps(network: Topology, forced: F) -> None:
    """Shards that only one link can bring in time, counted in the example, at what a link has of the bandwidth."""
    graph = network.direct_graph()
    found = most_forced(graph, graph.diameter)
    assert found.factor == forced <= bfb_cost(graph).bandwidth_factor
    if graph.diameter > 1:
        with pytest.raises(ValueError, match="do not reach node"):
            most_forced(graph, graph.diameter - 1)


@pytest.mark.parametrize(
    ("nodes", "degree", "name", "cost"),
    [
        (27, 3, "L(UniRing(1, 3)*3)", (4, F(26, 27))),
        (48, 4, "L(UniRing(1, 3)*4)", (4, F(47, 48))),
        (64, 2, "L^2(UniRing(1, 8)*2)", (10, F(63, 64))),
        (64, 2, "L^3(UniRing(1, 4)*2)", (7, F(1))),
    ],
)
def test_line_graphs_are_measured_where_they_may_beat_what_is_known(
    nodes: int, degree: int, name: str, cost: tuple[int, Fraction]
) -> None:
    """Also of graphs that others beat; here nothing else is known."""
    made = Costing(nodes, degree, two_way=False, trace=Trace()).of_line_graphs([FinderTable(4, 0)], [])
    assert {candidate.name: candidate.cost for candidate in made}[name] == cost


@pytest.mark.parametrize(
    ("nodes", "degree", "steps", "factor", "back"),
    [(9, 2, 3, F(10, 9), F(14, 9)), (15, 2, 4, F(4, 3), F(26, 15)), (36, 2, 5, F(23, 18), F(31, 18))],
)
def test_transposes_of_generalized_kautz_graphs_are_candidates(
    nodes: int, degree: int, steps: int, factor: Fraction, back: Fraction
) -> None:
    """The one is better for allgather, the other for reduce-scatter; an allreduce takes as long on both."""
    turned, straight = (each for each in find_topologies(nodes, degree) if each.cost.steps == steps)
    assert (turned.name, straight.name) == (f"Π({degree}, {nodes})^T", f"Π({degree}, {nodes})")
    assert turned.cost == straight.reduce_scatter_cost == (steps, factor)
    assert turned.reduce_scatter_cost == straight.cost == (steps, back)
    assert turned.allreduce_cost == straight.allreduce_cost == (2 * steps, factor + back)
    for candidate in turned, straight:
        candidate.allreduce_schedule()
    found = find_topologies(nodes, degree)
    assert found.best("allgather", alpha=10**6).name == turned.name
    assert found.best("reduce_scatter", alpha=10**6).name == straight.name


def test_graphs_that_take_too_long_are_left_to_theorems(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the frontier says how many."""
    known = find_topologies(64, 4)
    assert known.unmeasured == 0
    monkeypatch.setattr(finder_costs, "MAX_WORK", 64**2 * 4)
    monkeypatch.setattr(finder, "MAX_DISTANCE_WORK", 1)
    found = find_topologies(64, 4)
    assert found.unmeasured > 3
    assert found[0].all_to_all is None
    assert found[0].cost.steps == known[0].cost.steps
    for candidate in found:
        candidate.allreduce_schedule()


@pytest.mark.parametrize("nodes", range(4, 41, 3))
@pytest.mark.parametrize("degree", [2, 3, 5, 6, 10])
def test_searched_circulants_cost_what_they_are_said_to(nodes: int, degree: int) -> None:
    """By the solver that looks at all nodes, and by the checker of a schedule."""
    for base in best_circulants(nodes, degree, 10**5):
        steps, factor, hops, construction, *_ = base.entry
        graph = construction.graph()
        assert (graph.num_nodes, graph.degree, graph.is_simple) == (nodes, degree, True)
        assert graph.is_bidirectional == base.two_way
        assert is_reverse_symmetric(graph)
        assert graph.distances.sum() == hops
        cost = StepCost(steps, factor)
        assert bfb_cost(graph) == cost
        Candidate(nodes, degree, construction, cost, cost, True, True).allreduce_schedule()


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize("degree", slow_where([1, 2, 3, 4, 6, 8], lambda degree: degree > 4))
def test_schedules_of_small_candidates_are_right_and_cost_what_they_should(degree: int, two_way: bool) -> None:
    """Whatever the finder returns, and what its theorems predict before anything is built."""
    for nodes in (2, 3, 4, 6, 8, 9, 12, 15, 16, 18, 24, 27, 32, 36, 64):
        try:
            found = find_topologies(nodes, degree, bidirectional=two_way)
        except UnsupportedError:
            assert two_way
            continue
        kind = "two-way" if two_way else "any"
        for entry in FinderTable().best(nodes, degree, kind):
            graph = entry.construction.graph()
            assert (graph.is_simple, graph.num_self_loops == 0) == (entry.simple, entry.loop_free) or not entry.simple
            if entry.breadth_first:
                assert bfb_cost(graph) == entry[:2]
                back = entry.factor if entry.reduce_factor is None else entry.reduce_factor
                assert bfb_cost(graph.transpose()) == (entry.steps, back)
            assert any(each.cost.steps <= entry.steps and each.cost[1] <= entry.factor for each in found)
        for candidate in found:
            graph = candidate.graph()
            assert (graph.num_nodes, graph.degree, graph.is_bidirectional or not two_way) == (nodes, degree, True)
            assert step_cost(graph, candidate.allreduce_schedule()) == candidate.allreduce_cost
            lower, upper = candidate.all_to_all
            assert 0 < lower <= upper
            if not two_way:
                assert upper <= found.bounds.all_to_all
        assert all(each.cost.steps >= found.bounds.steps for each in found)


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(("nodes", "degree"), [(3, 5), (4, 5), (4, 10), (5, 6), (6, 7), (6, 13), (8, 11), (8, 15)])
def test_links_left_over_by_the_complete_graph_are_parallel(nodes: int, degree: int, two_way: bool) -> None:
    """One step takes what the fewest links to a neighbor allow, and the schedules of all candidates are verified."""
    if two_way and nodes * degree % 2:
        with pytest.raises(UnsupportedError, match="expected an even degree"):
            find_topologies(nodes, degree, bidirectional=True)
        return
    found = find_topologies(nodes, degree, bidirectional=two_way)
    first = found[0]
    assert first.cost == first.reduce_scatter_cost == (1, F(degree, nodes * (degree // (nodes - 1))))
    # Eleven ports are five offsets twice and one more, where rings of eleven parallel links take seven steps.
    assert (nodes, degree) != (8, 11) or two_way or found[1].cost == (2, F(15, 16))
    assert found.room()[1] == 0
    for candidate in found:
        graph = candidate.graph()
        arcs = Counter(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))
        assert (graph.degree, graph.num_nodes) == (degree, nodes)
        assert not two_way or all(arcs[head, tail] == count for (tail, head), count in arcs.items())
        candidate.schedule()
        candidate.reduce_scatter_schedule()


@pytest.mark.usefixtures("known_families")
def test_costs_that_a_schedule_does_not_reach_are_refused() -> None:
    """No candidate is taken at its word."""
    good = find_topologies(32, 4)[0]
    with pytest.raises(CertificateError, match=r"allgather of .* takes 3 steps and 1 M/B; expected 3 and 31/32"):
        replace(good, cost=StepCost(3, F(31, 32))).schedule()
    with pytest.raises(CertificateError, match=r"reduce-scatter of .* takes 3 steps and 1 M/B; expected 2 and 1"):
        replace(good, reduce_scatter_cost=StepCost(2, F(1))).allreduce_schedule()


def test_the_best_depends_on_the_workload() -> None:
    """Few steps for little data, and balanced loads for much."""
    found = collopt.find_topologies(64, 4)
    assert found.best(size="1K").cost.steps == 3
    assert found.best(size="10G").cost == (4, F(63, 64))
    assert found.best("allgather", size="10G", alpha=10**6).cost.steps == 3
    assert found.best("all_to_all") in found
    assert found[0].runtime("allreduce") == 2 * found[0].runtime("allgather") == 2 * found[0].runtime("reduce_scatter")
    with pytest.raises(UnsupportedError, match="expected one of allgather"):
        found.best("gossip")
    with pytest.raises(UnsupportedError, match="all-to-all was left out"):
        find_topologies(64, 4, all_to_all=False).best("all_to_all")


def test_frames_list_every_candidate() -> None:
    """With exact numbers beside floats."""
    found = find_topologies(64, 4)
    frame = found.to_frame()
    assert frame["candidate"].tolist() == list(found)
    assert frame["bandwidth_factor_exact"].tolist() == [each.cost.bandwidth_factor for each in found]
    reduced = [each.reduce_scatter_cost for each in found]
    columns = frame[["reduce_scatter_steps", "reduce_scatter_factor_exact"]]
    assert list(columns.itertuples(index=False, name=None)) == reduced
    assert (frame["all_to_all_lower"] <= frame["all_to_all_upper"]).all()
    assert "all_to_all_us" not in find_topologies(64, 4, all_to_all=False).to_frame()
    assert (len(found[:2]), repr(found)) == (2, f"<Frontier of 64 nodes, degree 4: {len(found)} candidates>")
    topology = found[0].topology(bandwidth=25, latency=2)
    assert {(link.bandwidth, link.latency) for link in topology.links} == {(25, 2)}
    assert topology.name == found[0].name


def test_a_sweep_lists_what_theorems_say_of_many_sizes() -> None:
    """The same with several threads."""
    frame = sweep_topologies(range(2, 130), 4)
    rows = frame[frame["nodes"] == 128]
    assert rows[["steps", "bandwidth_factor_exact"]].to_numpy().tolist() == [
        [4, F(33, 32)],
        [5, F(1)],
        [8, F(127, 128)],
    ]
    assert (frame.groupby("nodes")["best"].sum() == 1).all()
    with ThreadPoolExecutor(2) as executor:
        assert sweep_topologies(range(2, 130), 4, executor=executor).equals(frame)
    assert sweep_topologies([5], 3, bidirectional=True).empty


def test_a_sweep_counts_both_directions() -> None:
    """Every topology in it can be built, and its allreduce takes what the sweep says or less."""
    frame = sweep_topologies([7, 9, 15, 16, 18, 20, 36, 45], 3)
    assert (frame["reduce_scatter_factor_exact"] > frame["bandwidth_factor_exact"]).any()
    assert (frame["reduce_scatter_factor_exact"] >= frame["bandwidth_factor_exact"]).all()
    for nodes, rows in frame.groupby("nodes"):
        for entry, (_, row) in zip(FinderTable(1).best(nodes, 3), rows.iterrows(), strict=True):
            graph = entry.construction.graph()
            assert (row["name"], row["steps"], row["reduce_scatter_steps"]) == (graph.name, entry.steps, entry.steps)
            for schedule, factor in (
                (entry.construction.schedule(), row["bandwidth_factor_exact"]),
                (entry.construction.schedule("reduce"), row["reduce_scatter_factor_exact"]),
            ):
                verified_loads(schedule, Topology.from_graph(graph))
                assert step_cost(graph, schedule) == (entry.steps, factor)
            both = 2 * entry.steps * 10 + entry.both_factors * F(2**20, 12500)
            assert row["allreduce_us"] == pytest.approx(float(both))


@pytest.mark.parametrize(
    ("nodes", "degree", "options", "message"),
    [
        (1, 4, {}, "nodes is 1; expected a whole number from 2"),
        (16, 0, {}, "degree is 0"),
        (5, 3, {"bidirectional": True}, "no topology of 5 nodes with 3 two-way links each is known"),
        (16, 4, {"size": "much"}, "size 'much' is not understood"),
        (16, 4, {"alpha": -1}, "latency of a step is -1"),
        (16, 4, {"node_bandwidth": 0}, "node_bandwidth is 0"),
        (16, 4, {"bidirectional": 1}, "bidirectional is 1; expected True or False"),
    ],
)
def test_bad_requests_are_refused(nodes: int, degree: int, options: dict[str, object], message: str) -> None:
    """In one sentence each."""
    with pytest.raises(ColloptError, match=f"^{message}"):
        find_topologies(nodes, degree, **options)


@pytest.mark.usefixtures("known_families")
@pytest.mark.parametrize(("nodes", "rate"), [(64, 2.17077e-2), (32, 5.71429e-2)])
def test_all_to_all_is_bounded_as_closely_as_asked(nodes: int, rate: float) -> None:
    """The rates of linear program (3); Table 7 prints the first as 2.17e-2 and the second as 5.71e-2."""
    candidate = find_topologies(nodes, 4)[0]
    lower, upper = candidate.bounded("0.005").all_to_all
    assert upper * Fraction(995, 1000) <= lower <= upper
    assert lower <= Fraction(rate) * Fraction(1001, 1000)
    assert Fraction(rate) * Fraction(999, 1000) <= upper
    assert candidate.all_to_all[0] <= upper
    assert lower <= candidate.all_to_all[1]
