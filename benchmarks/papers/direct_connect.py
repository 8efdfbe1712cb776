"""Direct-connect topologies: tables 4 to 9, from graphs that are built and schedules that are worked out exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction

import analytic_baselines as baselines

from collopt.planners import bfb_cost, find_topologies
from collopt.planners.all_to_all.flows import all_to_all_rate_bounds
from collopt.schedules import StepCost, base_schedule, step_cost
from collopt.topologies import (
    DirectGraph,
    bandwidth_optimum,
    circulant,
    complete,
    complete_bipartite,
    de_bruijn,
    diamond,
    directed_circulant,
    distance_regular,
    generalized_kautz,
    hamming,
    hypercube,
    kautz,
    modified_de_bruijn,
    moore_steps,
    reverse_symmetry,
    torus,
    undirected_moore_steps,
)
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names

from .direct_connect_figures import FIGURES
from .direct_connect_tables import TABLE_8, TABLES_4_AND_7, Printed
from .rows import Item, Row

DEGREE, ALPHA, NUM_BYTES, BANDWIDTH = 4, 10, 2**20, "12.5"
TABLE_4 = {
    "Π(4, 1024)": ("323.5", "409.1"),
    "L^3(C(16, {3, 4}))": ("291.0", "403.5"),
    "L^2(Diamond^□2)": ("328.4", "446.6"),
    "L(DBJMod(2, 4)^□2)": ("387.8", "529.9"),
    "UniRing(1, 4)^□2 □ UniRing(1, 8)^□2": ("567.6", "1174.4"),
}
"""Construction, and µs of an allreduce and of an all-to-all."""
SMALL_NODES = 32
OTHER_GRAPHS = "the paper does not print its modified de Bruijn graphs; ours have the same T_L and T_B"


def allreduce_us(cost: StepCost) -> float:
    """2 (T_L + T_B), for 1 MiB."""
    return float(2 * cost.runtime(NUM_BYTES, alpha=ALPHA, node_bandwidth=BANDWIDTH))


def cost_of(row: Printed) -> StepCost:
    """What the construction's own schedule costs, recomputed from the loads of its links."""
    return step_cost(row.construction.graph(), row.construction.schedule())


def certified(case: str, where: str, printed: str, low: float, high: float, unit: str, why: str) -> Row:
    """A value that lies between two certified ones: both at the printed digits if they agree there."""
    plain = Row(case, where, printed, (low + high) / 2, unit, "-")
    ends = Row(case, where, printed, low, unit, "-").text, Row(case, where, printed, high, unit, "-").text
    if ends[0] == ends[1]:
        return Row(case, where, printed, low, unit, why if plain.differs else "")
    held = low <= float(printed) <= high
    return Row(case, where, printed, " to ".join(ends), unit, "certified range, which holds it" if held else why)


def _why_rate(name: str) -> str:
    if name == "L^3(C(16, {3, 4}))":
        return "impossible on this graph: no rate is above the links over the sum of distances, 8.09e-4"
    return OTHER_GRAPHS if "DBJMod" in name else ""


def table_4(small: bool) -> Iterator[Row]:
    """Pareto-efficient topologies of 1024 nodes."""
    where = "table 4"
    ring = baselines.shifted_ring_cost(1024)
    tree = baselines.double_binary_tree_allreduce_us(1024, NUM_BYTES, alpha=ALPHA, node_bandwidth=BANDWIDTH)
    why = "2N steps and a megabyte of 10^6 bytes give 20640; 2 (N - 1) steps of 2^20 bytes suffice"
    yield Row("shifted ring: allreduce", f"{where}, caption", "20640", allreduce_us(ring), "µs", why)
    yield Row("double binary tree: allreduce", f"{where}, caption", "1434", tree, "µs")
    for name, rate, printed in (
        ("shifted ring", baselines.shifted_ring_rate(1024), "10738"),
        ("double binary tree", baselines.double_binary_tree_rate(1024), "21475"),
    ):
        yield Row(f"{name}: all-to-all", f"{where}, caption", printed, _all_to_all_us(rate), "µs")
    bound = StepCost(moore_steps(1024, DEGREE), bandwidth_optimum(1024))
    yield Row("bound: 2 (T_L + T_B)", f"{where}, last row", "267.6", allreduce_us(bound), "µs")
    least = _all_to_all_us(baselines.rate_limit(1024, DEGREE))
    yield Row("bound: all-to-all", f"{where}, last row", "382.3", least, "µs")
    for row in () if small else TABLES_4_AND_7:
        if row.nodes == 1024:
            name = row.construction.name
            printed = TABLE_4[name]
            place = f"{where}, row {name}, column"
            yield Row(f"{name}: 2 (T_L + T_B)", f"{place} 2 (T_L + T_B)", printed[0], allreduce_us(cost_of(row)), "µs")
            low, high = (_all_to_all_us(rate) for rate in reversed(all_to_all_rate_bounds(row.construction.graph())))
            case = f"{name}: all-to-all"
            yield certified(case, f"{place} All-to-All", printed[1], low, high, "µs", _why_rate(name))


def _all_to_all_us(rate: Fraction) -> float:
    return float(baselines.all_to_all_us(rate, 1024, DEGREE, NUM_BYTES, BANDWIDTH))


def table_5(small: bool) -> Iterator[Row]:
    """The best topologies for the testbed's sizes."""
    for nodes in (5, 6) if small else range(5, 13):
        best = find_topologies(nodes, DEGREE, bidirectional=True, all_to_all=False)[0]
        optimal = "BW-optimal" if best.cost.bandwidth_factor == bandwidth_optimum(nodes) else str(best.cost)
        text = f"{best.name}, {optimal}, {best.cost.steps} steps"
        yield Row(f"N = {nodes}", "table 5, caption", "BW-optimal", text, "", "the table is lost in the text we have")


SECONDS = {
    "hypercube": {4: "<0.01", 8: "<0.01", 16: "<0.01", 32: "0.03", 64: "0.17", 1024: "52.7"},
    "torus": {4: "<0.01", 9: "<0.01", 16: "<0.01", 25: "0.01", 36: "0.03", 2500: "61.1"},
}
"""Table 6, the column of BFB."""


def _networks(small: bool) -> Iterator[tuple[str, DirectGraph, str]]:
    for name, sizes in SECONDS.items():
        for nodes, printed in sizes.items():
            if not small or nodes <= SMALL_NODES:
                network = hypercube(nodes.bit_length() - 1) if name == "hypercube" else torus(*[round(nodes**0.5)] * 2)
                yield f"{name} of {nodes} nodes", network.direct_graph(), printed


def table_6(small: bool) -> Iterator[Row]:
    """CPU times of breadth-first broadcasts: the loads of all nodes in all steps."""
    bfb_cost(hypercube(2).direct_graph())
    for case, graph, printed in _networks(small):
        start = time.process_time()
        bfb_cost(graph)
        taken = time.process_time() - start
        why = "largest sums over sets of links, instead of a linear program for each node and step"
        yield Row(case, f"table 6, row {case}, column BFB", printed, f"{taken:.4f}", "s", why, measured=True)


def figure_10(small: bool) -> Iterator[Row]:
    """T_L and T_B of the same broadcasts."""
    for case, graph, _ in _networks(small):
        cost = bfb_cost(graph)
        gap = cost.bandwidth_factor - bandwidth_optimum(graph.num_nodes)
        text = f"T_L {cost.steps}, T_B {cost.bandwidth_factor}, {'optimal' if gap == 0 else f'{gap} above'}"
        yield Row(case, "figure 10, curve BFB", "", text)


def table_7(small: bool) -> Iterator[Row]:
    """Pareto-efficient topologies of 32 to 1024 nodes: T_L, T_B, diameter, all-to-all rate."""
    for nodes in sorted({row.nodes for row in TABLES_4_AND_7}):
        rates = {32: "5.80e-2", 64: "2.42e-2", 128: "1.00e-2", 256: "4.39e-3", 512: "1.90e-3", 1024: "8.57e-4"}
        where = f"table 7, N = {nodes}, row Theoretical Bound, column"
        decimals = {32: "0.969", 64: "0.984", 128: "0.992", 256: "0.996", 512: "0.998", 1024: "0.999"}
        moore = str({32: 3, 64: 3, 128: 4, 256: 4, 512: 5, 1024: 5}[nodes])
        yield Row(f"bound of {nodes} nodes: T_L", f"{where} T_L", moore, moore_steps(nodes, DEGREE), "α")
        yield Row(f"bound of {nodes} nodes: T_B", f"{where} T_B", decimals[nodes], bandwidth_optimum(nodes), "M/B")
        yield Row(f"bound of {nodes} nodes: f", f"{where} MCF", rates[nodes], baselines.rate_limit(nodes, DEGREE))
    for row in TABLES_4_AND_7:
        if small and row.nodes > SMALL_NODES:
            continue
        name, graph, cost = row.construction.name, row.construction.graph(), cost_of(row)
        where = f"table 7, N = {row.nodes}, row {name}, column"
        yield Row(f"{name}: T_L", f"{where} T_L", str(row.steps), cost.steps, "α")
        why = "21/16 = 1.3125 is rounded up here, to even there"
        found = f"{float(cost.bandwidth_factor):.3f}"
        yield Row(f"{name}: T_B", f"{where} T_B", row.decimals, found, "M/B", why if found != row.decimals else "")
        yield Row(f"{name}: D(G)", f"{where} D(G)", str(row.diameter), graph.diameter)
        low, high = all_to_all_rate_bounds(graph)
        yield certified(f"{name}: f", f"{where} MCF", row.rate, float(low), float(high), "", _why_rate(name))


def table_8(small: bool) -> Iterator[Row]:
    """Distance-regular graphs of degree 4."""
    for nodes, steps, moore, undirected in TABLE_8:
        if small and nodes > SMALL_NODES:
            continue
        graph = distance_regular(nodes).direct_graph()
        cost = bfb_cost(graph)
        found = cost.steps, moore_steps(nodes, DEGREE), undirected_moore_steps(nodes, DEGREE)
        printed = ", ".join(map(str, (steps, moore, undirected)))
        where = f"table 8, row of {nodes} nodes"
        yield Row(f"N = {nodes}: T_L, T_L*, T_L**", where, printed, ", ".join(map(str, found)), "α")
        optimal = "yes" if cost.bandwidth_factor == bandwidth_optimum(nodes) else "no"
        yield Row(f"N = {nodes}: BW-optimal", "section F.3", "yes", optimal)


def _flags(graph: DirectGraph) -> tuple[str, str]:
    symmetric = reverse_symmetry(graph) is not None
    stored = graph.name in base_schedule_names()
    cost = step_cost(graph, base_schedule(graph.name)) if stored else bfb_cost(graph)
    optimal = cost.bandwidth_factor == bandwidth_optimum(graph.num_nodes)
    return "yes" if symmetric else "no", "yes" if optimal else "no"


TABLE_9 = {
    "K(5)": (complete(5), "yes", "yes", ""),
    "K(4, 4)": (complete_bipartite(4), "yes", "yes", ""),
    "H(2, 3)": (hamming(2, 3), "yes", "yes", ""),
    "K(2, 1)": (kautz(2, 1), "yes", "no", ""),
    "Π(4, 7)": (generalized_kautz(4, 7), "no", "no", ""),
    "Π(4, 8)": (
        generalized_kautz(4, 8),
        "no",
        "no",
        "an isomorphism to its transpose is found and checked",
    ),
    "C(16, {3, 4})": (circulant(16, (3, 4)), "yes", "yes", ""),
    "C(15, {1, 4, 5})": (circulant(15, (1, 4, 5)), "yes", "yes", "Conjecture 1 is false: six sources have four links"),
    "DirCirc(4, 6)": (directed_circulant(4), "yes", "yes", ""),
    "Diamond": (diamond(), "no", "yes", ""),
    "DBJ(3, 2)": (de_bruijn(3, 2), "yes", "no", ""),
    "DBJ(3, 1)": (de_bruijn(3, 1), "yes", "yes", "a port of each node is lost to its self-loop: T_B = 1 > 2/3"),
    "DBJMod(2, 3)": (modified_de_bruijn(2, 3), "yes", "yes", ""),
    "DBJMod(2, 4)": (modified_de_bruijn(2, 4), "no", "yes", ""),
    "DistReg(4, 14)": (distance_regular(14), "yes", "yes", ""),
}
"""One member of each family, and of those whose entry does not hold another: reverse-symmetric, bandwidth-optimal."""


def table_9(small: bool) -> Iterator[Row]:
    """Reverse symmetry, and whether breadth-first broadcasts, or stored schedules, are bandwidth-optimal."""
    del small
    for name, (network, symmetric, optimal, why) in TABLE_9.items():
        found = _flags(network.direct_graph())
        yield Row(
            f"{name}: reverse-symmetric",
            f"table 9, row of {name}",
            symmetric,
            found[0],
            "",
            why if found[0] != symmetric else "",
        )
        reason = why if found[1] != optimal else ""
        yield Row(f"{name}: BW-optimal", f"table 9, row of {name}", optimal, found[1], "", reason)


ITEMS = (
    Item("table-4", "1024 nodes with four links, 10 µs a step, 1 MiB at 100 Gb/s", "Section 5.3", table_4),
    Item("table-5", "the best topologies of 5 to 12 nodes, with links both ways", "Section 8.3", table_5),
    Item("table-6", "times of breadth-first schedules", "Section 8.5.1", table_6),
    Item("table-7", "Pareto-efficient topologies with four links", "Appendix A.3", table_7,
         "Rates of all-to-all are exact, or certified within 1 %."),
    Item("table-8", "distance-regular graphs", "Appendix F.3", table_8),
    Item("table-9", "families of base topologies, by members", "Appendix H", table_9,
         "Schedules are breadth-first; those of Diamond and DBJMod are stored. The tests look at more members."),
    Item("figure-10", "costs of breadth-first schedules", "Section 8.5.1", figure_10),
    *FIGURES,
)  # fmt: skip
