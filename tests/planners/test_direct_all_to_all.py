"""All-to-all on direct-connect networks: the direct-connect paper's columns, and two ways to find a rate."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from analytic_baselines import all_to_all_us
from hypothesis import given, settings

from collopt.errors import NoAnswerError
from collopt.planners import all_to_all_rate_bounds
from collopt.planners.all_to_all import flows as direct_connect_rate
from collopt.solvers.flows.concurrent_flow import concurrent_flow
from collopt.topologies import (
    DirectGraph,
    automorphisms,
    cartesian_power,
    circulant,
    diamond,
    generalized_kautz,
    line_graph,
    modified_de_bruijn,
    torus,
)
from regular_graphs import BASES, regular_graphs
from sample_sizes import examples

MIB, B = 2**20, Fraction(25, 2)


def of(topology: Any) -> DirectGraph:
    """The graph that a family keeps."""
    return topology.direct_graph()


Made = Callable[[], DirectGraph]


def test_the_rate_of_a_power_follows_from_its_base() -> None:
    """Table 7 prints 2.94e-3 for DBJMod(2, 4)^2, whose rate is that of the base over the number of its nodes."""
    base = all_to_all_rate_bounds(of(modified_de_bruijn(2, 4)))
    assert base == (Fraction(7, 149), Fraction(7, 149))
    assert f"{7 / 149 / 16:.2e}" == "2.94e-03"
    assert all_to_all_rate_bounds(of(diamond()))[0] == 8 * all_to_all_rate_bounds(cartesian_power(of(diamond()), 2))[0]


LARGE: dict[str, tuple[Made, str, float | None]] = {
    "torus": (lambda: of(torus(32, 32)), "0.01", None),
    "Π(4, 1024)": (lambda: of(generalized_kautz(4, 1024)), "0.01", 409.1),
    "L(DBJMod(2, 4)^2)": (lambda: line_graph(cartesian_power(of(modified_de_bruijn(2, 4)), 2)), "0.01", 529.9),
    # Tables 4 and 7 print 403.5 us or 8.12e-4, where the hops between nodes allow 8.095e-4; the optimum is 7.850e-4.
    "L3(C(16, {3, 4}))": (lambda: line_graph(of(circulant(16, (3, 4))), 3), "0.001", None),
}


@pytest.mark.slow
@pytest.mark.parametrize(("made", "gap", "printed"), LARGE.values(), ids=LARGE.keys())
def test_the_largest_networks_are_certified_within_their_gap(made: Made, gap: str, printed: float | None) -> None:
    """Between the bounds is the time that Table 4 prints, of 1 MiB per node at 100 Gb/s."""
    graph = made()
    lower, upper = all_to_all_rate_bounds(graph, gap)
    assert upper * (1 - Fraction(gap)) <= lower <= upper
    assert upper <= Fraction(len(graph.adjacency.tails), int(graph.distances.sum(dtype=np.int64)))
    if printed is not None:
        least, most = (float(all_to_all_us(rate, 1024, 4, MIB, B)) for rate in (upper, lower))
        assert least <= printed <= most
    if gap == "0.001":
        assert Fraction("7.8503e-4") < lower <= upper < Fraction("7.8504e-4")


@pytest.mark.parametrize("graph", BASES, ids=lambda graph: graph.name)
def test_program_and_concurrent_flow_agree_within_their_certificates(graph: DirectGraph) -> None:
    """The exact rate is between the bounds of either."""
    alike = automorphisms(graph)
    exact = direct_connect_rate.exact_rate(graph, alike)
    assert all_to_all_rate_bounds(graph) == (exact, exact)
    lower, upper = direct_connect_rate.certified_rate(graph, alike)
    assert lower <= exact <= upper
    assert 1 - lower / upper < Fraction(1, 10**4)
    demands = np.ones((graph.num_nodes, graph.num_nodes), dtype=np.int64)
    for symmetries in (alike, None):
        found = concurrent_flow(graph.num_nodes, *graph.adjacency, demands, gap=0.02, automorphisms=symmetries)
        assert found.lower <= exact <= found.upper
        assert found.gap <= Fraction(2, 100)


@given(regular_graphs())
@settings(max_examples=examples(40))
def test_small_programs_are_solved_exactly_on_random_graphs(graph: DirectGraph) -> None:
    """With parallel links and self-loops; no symmetries are known to the second spelling."""
    lower, upper = all_to_all_rate_bounds(graph)
    assert lower == upper == direct_connect_rate.exact_rate(graph, np.empty((0, graph.num_nodes), dtype=np.int64))


@pytest.mark.parametrize(("gap", "least"), [("0.01", 1e-4), ("0.0001", 0)])
def test_the_way_follows_size_and_gap(gap: str, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that count as large go to the concurrent flow, unless the gap is small; too large ones always."""
    graph = of(generalized_kautz(4, 40))
    exact = all_to_all_rate_bounds(graph)[0]
    lower, upper = all_to_all_rate_bounds(graph, gap, exact_columns=10)
    assert upper * (1 - Fraction(gap)) <= lower <= exact <= upper
    assert 1 - lower / upper > least
    monkeypatch.setattr(direct_connect_rate, "MAX_CERTIFIED_COLUMNS", 10)
    assert all_to_all_rate_bounds(graph, "0.02", exact_columns=10) != (exact, exact)


def test_a_gap_that_the_rounds_do_not_reach_is_left_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """With few rounds the concurrent flow stops early."""
    graph, rounds = of(generalized_kautz(4, 40)), []

    def hasty(*network: Any, **options: Any) -> Any:
        rounds.append(found := concurrent_flow(*network, **options, max_rounds=1))
        return found

    exact = all_to_all_rate_bounds(graph)[0]
    monkeypatch.setattr("collopt.solvers.flows.concurrent_flow.concurrent_flow", hasty)
    lower, upper = all_to_all_rate_bounds(graph, "0.0021", exact_columns=10)
    assert rounds[0].gap > Fraction(21, 10_000)
    assert upper * (1 - Fraction(21, 10_000)) <= lower <= exact <= upper


def test_without_an_exact_optimum_or_symmetries_there_are_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for symmetries may give up, and so may the solver."""
    graph = of(generalized_kautz(4, 20))
    exact = all_to_all_rate_bounds(graph)[0]

    def give_up(*_: object) -> Any:
        raise NoAnswerError("too long")

    for name in ("automorphisms", "exact_rate", "certified_rate"):
        monkeypatch.setattr(direct_connect_rate, name, give_up)
        lower, upper = all_to_all_rate_bounds(graph, "0.001")
        assert upper * Fraction(999, 1000) <= lower <= exact <= upper
