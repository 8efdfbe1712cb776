"""Flows cut into paths: every path is walked link by link in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import SolverError
from collopt.solvers.flows.path_decomposition import Paths, source_paths
from sample_sizes import examples

IntArray = np.ndarray


def routes_of(paths: Paths) -> list[list[int]]:
    """Links of each path."""
    return [paths.links[begin:end].tolist() for begin, end in zip(paths.starts, paths.starts[1:], strict=False)]


def check(tails: IntArray, heads: IntArray, flow: IntArray, source: int, demands: IntArray, paths: Paths) -> None:
    """Paths are joined up, simple, within the flow, few, and bring exactly what is asked for."""
    left, asked = flow.tolist(), demands.tolist()
    assert paths.starts[0] == 0
    assert paths.starts[-1] == len(paths.links)
    assert len(paths.starts) == len(paths.weights) + 1
    for weight, route in zip(paths.weights.tolist(), routes_of(paths), strict=True):
        assert weight > 0
        nodes = [source]
        for link in route:
            assert tails[link] == nodes[-1]
            nodes.append(int(heads[link]))
            left[link] -= weight
        assert len(set(nodes)) == len(nodes) > 1
        asked[nodes[-1]] -= weight
    assert min(left) >= 0
    assert not any(asked)
    assert len(paths.weights) <= np.count_nonzero(flow) + np.count_nonzero(demands)


@st.composite
def random_flows(draw: st.DrawFn) -> tuple[int, IntArray, IntArray, IntArray, int, IntArray]:
    """Flows made of random walks from one node, which may cross themselves, and of cycles anywhere.

    Links may be parallel or lead back to their own tail; some of what the walks bring is not asked for.
    """
    num_nodes = draw(st.integers(2, 8))
    node = st.integers(0, num_nodes - 1)
    links = draw(st.lists(st.tuples(node, node), min_size=1, max_size=24))
    flow, demands, source = [0] * len(links), [0] * num_nodes, draw(node)
    for _ in range(draw(st.integers(0, 12))):
        closed = draw(st.booleans())
        begin = at = draw(node) if closed else source
        route = []
        for _ in range(draw(st.integers(1, 10))):
            ways = [number for number, (tail, _) in enumerate(links) if tail == at]
            if not ways:
                break
            route.append(draw(st.sampled_from(ways)))
            at = links[route[-1]][1]
            if at == begin:
                break
        if closed and at != begin:
            continue
        weight = draw(st.sampled_from([1, 2, 3, 10, 10**12]))
        for number in route:
            flow[number] += weight
        if at != begin:
            demands[at] += draw(st.sampled_from([0, weight // 2, weight, weight]))
    demands[source] = 0
    tails, heads = np.array(links, dtype=np.int64).T.copy()
    return num_nodes, tails, heads, np.array(flow), source, np.array(demands)


@given(case=random_flows())
@settings(max_examples=examples(200))
def test_paths_bring_exactly_what_is_asked_for(
    case: tuple[int, IntArray, IntArray, IntArray, int, IntArray],
) -> None:
    """Whatever cycles and surplus the flow has; and the flow itself is left as it was."""
    num_nodes, tails, heads, flow, source, demands = case
    before = flow.copy()
    check(tails, heads, flow, source, demands, source_paths(num_nodes, tails, heads, flow, source, demands))
    assert np.array_equal(flow, before)


@given(case=random_flows(), missing=st.integers(1, 5))
@settings(max_examples=examples(60))
def test_a_flow_that_brings_too_little_is_refused(
    case: tuple[int, IntArray, IntArray, IntArray, int, IntArray], missing: int
) -> None:
    """And the message names the node."""
    num_nodes, tails, heads, flow, source, demands = case
    node = (source + 1) % num_nodes
    kept = int(flow[heads == node].sum() - flow[tails == node].sum())
    demands[node] = kept + missing
    with pytest.raises(SolverError, match=f"at node {node}; expected at least {kept + missing}"):
        source_paths(num_nodes, tails, heads, flow, source, demands)


def test_short_ways_come_before_long_ones() -> None:
    """Two ways lead from 0 to 3 and on to 4, which is served first; what is left for 3 is the long one."""
    tails, heads = np.array([0, 0, 1, 2, 3]), np.array([3, 1, 2, 3, 4])
    paths = source_paths(5, tails, heads, np.array([1, 1, 1, 1, 1]), 0, np.array([0, 0, 0, 1, 1]))
    assert routes_of(paths) == [[0, 4], [1, 2, 3]]
