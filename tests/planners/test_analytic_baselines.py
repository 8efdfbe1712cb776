"""The baselines' formulas: the four times that the paper prints, and what they were derived from."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import analytic_baselines as baselines
import pytest

from collopt.errors import UnsupportedError
from collopt.formulations import all_to_all
from collopt.planners.direct_connect.bfb import bfb_cost
from collopt.solvers import solve
from collopt.topologies import DirectGraph, Topology, torus

MIB = 2**20
B = "12.5"


def micros(rate: Fraction) -> float:
    """Time of an all-to-all of 1 MiB on 1024 nodes with 4 ports."""
    return float(baselines.all_to_all_us(rate, 1024, 4, MIB, B))


def test_three_of_the_four_printed_times_come_out() -> None:
    """Caption of Table 4: 1434 µs, 10738 µs and 21475 µs."""
    assert round(float(baselines.double_binary_tree_allreduce_us(1024, MIB, alpha=10, node_bandwidth=B))) == 1434
    assert round(micros(baselines.shifted_ring_rate(1024))) == 10738
    assert round(micros(baselines.double_binary_tree_rate(1024))) == 21475


def test_printed_time_of_the_ring_counts_a_step_too_many_and_a_smaller_megabyte() -> None:
    """2 N steps and 10^6 bytes take 20640 µs; 2 (N - 1) steps and 2^20 bytes, as in the table's rows, 20627.6 µs."""
    cost = baselines.shifted_ring_cost(1024)
    assert float(2 * cost.runtime(MIB, alpha=10, node_bandwidth=B)) == pytest.approx(20627.6, abs=0.05)
    one_more = cost._replace(steps=cost.steps + 1)
    assert round(float(2 * one_more.runtime(10**6, alpha=10, node_bandwidth=B))) == 20640


def rings(nodes: int) -> DirectGraph:
    """Two rings, the second from each node to the one N/2 - 1 further on."""
    arcs = [(node, (node + a) % nodes) for node in range(nodes) for a in (1, -1, nodes // 2 - 1, 1 - nodes // 2)]
    return DirectGraph.from_arcs(nodes, arcs, "rings")


def flow_rate(topology: Topology) -> float:
    """f of LP (3), solved."""
    return solve(all_to_all.build(topology)).objective


@pytest.mark.parametrize("nodes", [8, 12, 16, 20])
def test_rate_of_shifted_rings_is_that_of_the_linear_program(nodes: int) -> None:
    """And the distances are as the docstring says."""
    graph = rings(nodes)
    assert graph.distances[0].sum() == nodes**2 // 8 + 2
    assert flow_rate(Topology.from_graph(graph)) == pytest.approx(float(baselines.shifted_ring_rate(nodes)))


@pytest.mark.parametrize("side", [3, 4, 5])
def test_square_torus_is_as_the_formulas_say(side: int) -> None:
    """Breadth-first broadcast by the exact solver, all-to-all by the linear program."""
    network = torus(side, side)
    assert bfb_cost(network.direct_graph()) == baselines.torus_cost(side)
    assert flow_rate(network) == pytest.approx(float(baselines.torus_rate(side)))


@pytest.mark.parametrize(
    "change", [{"alpha": -1}, {"alpha": "x"}, {"node_bandwidth": 0}, {"num_bytes": 0}, {"nodes": 1}]
)
def test_numbers_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    """Each by a sentence of its own."""
    asked = {"nodes": 8, "num_bytes": 8, "alpha": 1, "node_bandwidth": 1, **change}
    with pytest.raises(UnsupportedError, match="expected"):
        baselines.double_binary_tree_allreduce_us(**asked)
    with pytest.raises(UnsupportedError, match="expected a positive number"):
        baselines.all_to_all_us(0, 8, 4, 8, 1)
    with pytest.raises(UnsupportedError, match="expected"):
        baselines.shifted_ring_rate(10)  # only multiples of 4 have the shift
