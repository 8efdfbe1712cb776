"""Costs of breadth-first broadcast on circulant digraphs."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import gcd

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.planners.direct_connect.bfb import bfb_cost
from collopt.solvers.steps.graph_costs import circulant_costs
from collopt.topologies import circulant_digraph
from sample_sizes import examples


@settings(max_examples=examples(80))
@given(st.data())
def test_costs_are_those_of_the_solver_for_all_graphs(data: st.DataObject) -> None:
    """Which looks at every node; a graph that is not connected has no cost."""
    n = data.draw(st.integers(2, 40))
    offsets = sorted(data.draw(st.sets(st.integers(1, n - 1), min_size=1, max_size=min(n - 1, 8))))
    found = circulant_costs(n, np.array([offsets]))
    if gcd(n, *offsets) > 1:
        assert found.steps.tolist() == [0]
        return
    graph = circulant_digraph(n, offsets).graph
    assert graph is not None
    factor = Fraction(int(found.loads[0]) * len(offsets), found.unit * n)
    assert bfb_cost(graph) == (found.steps[0], factor)
    assert graph.distances[0].sum() == found.hops[0]


@pytest.mark.parametrize(("n", "degree"), [(11, 3), (12, 4), (13, 5), (14, 2)])
def test_the_best_sets_are_those_of_a_search_that_leaves_none_out(n: int, degree: int) -> None:
    """Pareto-efficient costs, and every set that reaches one of them."""
    rows = np.array(list(combinations(range(1, n), degree)))
    each = [circulant_costs(n, row[None]) for row in rows]
    costs = [(int(one.steps[0]), int(one.loads[0])) for one in each]
    connected = {cost for cost in costs if cost[0]}
    best = {
        cost
        for cost in connected
        if not any(other != cost and other[0] <= cost[0] and other[1] <= cost[1] for other in connected)
    }
    found = circulant_costs(n, rows)
    listed = list(zip(found.steps.tolist(), found.loads.tolist(), strict=True))
    assert [cost for cost in listed if cost in best] == [cost for cost in costs if cost in best]
