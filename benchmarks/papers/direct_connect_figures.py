"""Direct-connect topologies: figures 3, 7, 9, 11, 13, 15 and 18, as far as models go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import analytic_baselines as baselines
import best_by_size
import kautz_bandwidth
import runtimes_by_size

from collopt import plan
from collopt.planners import bfb_cost, find_topologies, sweep_topologies
from collopt.planners.all_to_all.flows import all_to_all_rate_bounds
from collopt.schedules import StepCost
from collopt.solvers.steps.graph_costs import kautz_figures
from collopt.topologies import (
    bandwidth_optimum,
    complete,
    complete_bipartite,
    directed_circulant,
    generalized_kautz,
    hamming,
    hypercube,
    line_graph,
    low_diameter_circulant,
    torus,
    twisted_hypercube,
)

from .rows import Item, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BASES = {
    "K(4, 4)": complete_bipartite(4),
    "K(5)": complete(5),
    "DirCirc(4, 6)": directed_circulant(4),
    "H(2, 3)": hamming(2, 3),
}
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Of Okabe and Ito."""
FROM, TO = 900, 1000


def figure_3(small: bool) -> Iterator[Row]:
    """T_B over its optimum of line graphs of optimal base graphs."""
    for name, network in BASES.items():
        graph = base = network.direct_graph()
        for times in range(2 if small else 4):
            if times:
                graph = line_graph(graph)
            ratio = bfb_cost(graph).bandwidth_factor / bandwidth_optimum(graph.num_nodes)
            yield Row(f"{graph.num_nodes} nodes: {name}", f"figure 3, curve {name}", "", ratio, "x")
        limit = 1 + Fraction(1, 3 * base.num_nodes)
        yield Row(f"limit: {name}", "Theorem 9", "", limit, "x")


@cache
def _best_us(nodes: int) -> float:
    swept = sweep_topologies([nodes], 4, alpha=10, size=runtimes_by_size.NUM_BYTES, node_bandwidth="12.5")
    return float(swept["allreduce_us"].min())


def figure_7(small: bool) -> Iterator[Row]:
    """Factors near 1000 nodes."""
    ring = runtimes_by_size.allreduce_us(baselines.shifted_ring_cost(1000))
    tree = float(baselines.double_binary_tree_allreduce_us(1000, 2**20, alpha=10, node_bandwidth="12.5"))
    yield Row("1000 nodes: shifted ring", "figure 7, allreduce", "", ring, "µs")
    yield Row("1000 nodes: double binary tree", "figure 7, allreduce", "", tree, "µs")
    if small:
        return
    where, best = "section 8.3, near N = 1000", _best_us(1000)
    why = "56 is the factor at N = 900, of generalized Kautz graphs; it grows with N"
    yield Row("allreduce: shifted ring / best", where, "56", ring / best, "x", why)
    why = "the caption of table 4 has 1434/291 = 4.9 at N = 1024; without a pipeline the tree would give 11"
    yield Row("allreduce: double binary tree / best", where, "10", tree / best, "x", why)
    traditional = StepCost(2 * 30, bandwidth_optimum(961))
    case = "allreduce: 2D torus of 961 nodes / best"
    yield Row(f"{case}, traditional", where, "4", runtimes_by_size.allreduce_us(traditional) / _best_us(961), "x")
    why = "4 is that of the traditional schedule, of twice the steps"
    torus_us = runtimes_by_size.allreduce_us(baselines.torus_cost(31))
    yield Row(f"{case}, breadth-first", where, "4", torus_us / _best_us(961), "x", why)
    yield from _all_to_all_factors()


def _all_to_all_factors() -> Iterator[Row]:
    """Certified rates, in the middle of their bounds, which are within 1 % of each other."""
    where = f"section 8.3, mean of N = {FROM} to {TO}"
    unknown = "unknown; our baselines take the times that the caption of table 4 prints for N = 1024"
    sizes = (FROM, (FROM + TO) // 2 - 10, TO)
    found: dict[str, list[float]] = {}
    for nodes in sizes:
        others = baselines.shifted_ring_rate(nodes), baselines.double_binary_tree_rate(nodes)
        for name, graph in (("circulant", low_diameter_circulant(nodes, 4)), ("Kautz", generalized_kautz(4, nodes))):
            low, high = all_to_all_rate_bounds(graph.direct_graph())
            for other, rate in zip(("shifted rings", "double binary tree"), others, strict=True):
                found.setdefault(f"{other} / {name}", []).append(float((low + high) / 2 / rate))
            found.setdefault(f"bound / {name}", []).append(float(baselines.rate_limit(nodes, 4) * 2 / (low + high)))
    for pair, printed in (
        ("shifted rings / circulant", "9"),
        ("double binary tree / circulant", "14"),
        ("shifted rings / Kautz", "28"),
        ("double binary tree / Kautz", "42"),
    ):
        yield _maybe(f"all-to-all: {pair}", where, printed, sum(found[pair]) / len(sizes), "x", unknown)
    above = 100 * (sum(found["bound / Kautz"]) / len(sizes) - 1)
    yield _maybe(
        "all-to-all: Kautz above the bound", where, "5.2", above, "%", "the paper says within; certified to 1 %"
    )


def _maybe(case: str, where: str, printed: str, found: float, unit: str, why: str) -> Row:
    """With the reason only if there is a difference."""
    return Row(case, where, printed, found, unit, why if Row(case, where, printed, found, unit, why).differs else "")


def figure_9(small: bool) -> Iterator[Row]:
    """Total all-to-all times of training, as ratios: those of f, since all-to-alls are alike on all topologies."""
    for nodes, printed in {256: ("8", "2"), 1024: ("27", "3.3")}.items():
        if small:
            continue
        best = max(each.all_to_all[0] for each in find_topologies(nodes, 4) if each.all_to_all)
        side = round(nodes**0.5)
        why = "a topology of greater f than the paper's is found"
        where = f"section 8.4, {nodes} nodes"
        ring, grid = best / baselines.shifted_ring_rate(nodes), best / baselines.torus_rate(side)
        yield _maybe(f"{nodes} nodes: all-to-all of shifted rings / best", where, printed[0], float(ring), "x", why)
        yield _maybe(f"{nodes} nodes: all-to-all of 2D torus / best", where, printed[1], float(grid), "x", why)
    for nodes, f, printed in ((256, "4.10e-3", "8"), (1024, "8.12e-4", "27")):
        ratio = Fraction(f) / baselines.shifted_ring_rate(nodes)
        case = f"{nodes} nodes: shifted rings / the f of table 7"
        yield _maybe(case, f"section 8.4, {nodes} nodes", printed, float(ratio), "x", "by the paper's own f")


MEASURED_GAINS = {"3x3x2": "29", "3x3x3": "matches", "3x3x3x2": "42"}
"""Percent of algbw that BFB has more than the traditional schedule, section 8.5.2."""


def figure_11(small: bool) -> Iterator[Row]:
    """Tori of the supercomputer: steps, and the bandwidth factor with one link along a dimension of 2, and with two."""
    del small
    for shape in ((3, 3, 2), (3, 3, 3), (3, 3, 3, 2)):
        name = "x".join(map(str, shape))
        traditional = sum(side - 1 for side in shape)
        for single in (False, True) if 2 in shape else (False,):
            graph = torus(*shape, single=single).direct_graph()
            cost, least = bfb_cost(graph), bandwidth_optimum(graph.num_nodes)
            kind = "one link along a side of 2" if single else "two links along a side of 2" if 2 in shape else "all"
            why = "the two links bring one neighbor's shard in two halves; Theorem 13 asks for simple graphs"
            text = "optimal" if cost.bandwidth_factor == least else f"{cost.bandwidth_factor - least} above the optimum"
            case = f"{name}, {kind}: T_B"
            yield Row(case, "section 8.5.2", "optimal", text, "M/B", why if text != "optimal" else "")
            network = torus(*shape, single=single)
            rates = [plan(network, "allreduce", planner=each).algbw for each in ("bfb", "torus-2-phase")]
            why = "measured, for 100 MB and more, on ports whose host has bandwidth for four"
            gain = "matches" if rates[0] == rates[1] else f"{float(100 * (rates[0] / rates[1] - 1)):.0f}"
            case, printed = f"{name}, {kind}: BFB faster than rings by", MEASURED_GAINS[name]
            yield Row(case, "section 8.5.2", printed, gain, "%", why if gain != printed else "")
        steps = f"{cost.steps} against {traditional}"
        yield Row(f"{name}: T_L of BFB and of rings", "section 6.2", "", steps, "α")


def figure_13(small: bool) -> Iterator[Row]:
    """Hypercube and twisted hypercube of eight nodes, with the α and ε that the paper fits in section A.2."""
    del small
    plain, twisted = bfb_cost(hypercube(3).direct_graph()), bfb_cost(twisted_hypercube(3).direct_graph())
    for name, cost in (("hypercube", plain), ("twisted hypercube", twisted)):
        text = "optimal" if cost.bandwidth_factor == bandwidth_optimum(8) else str(cost.bandwidth_factor)
        yield Row(f"{name}: T_B", "section A.1", "optimal", text)
        yield Row(f"{name}: T_L", "section A.1", "", cost.steps, "α")
    alpha, constant = Fraction("13.33"), Fraction("21.60")
    less = 1 - (constant + 2 * twisted.steps * alpha) / (constant + 2 * plain.steps * alpha)
    why = "by the fitted α and ε: 2 against 3 steps, each way"
    yield _maybe("small data: BFB on the twisted one is faster by", "section A.1", "20", float(100 * less), "%", why)
    # Halving and doubling sends 1/2 + 1/4 + 1/8 of the data over one of three links.
    halving = StepCost(3, 3 * Fraction(7, 8))
    gain = 100 * (1 - plain.bandwidth_factor / halving.bandwidth_factor)
    why = "one link of three at a time takes three times as long in the model; measured there"
    yield _maybe("large data: BFB is faster than RH&D by", "section A.1", "60", float(gain), "%", why)


def figure_15(small: bool) -> Iterator[Row]:
    """How often a construction is the best."""
    for size, leader in (("1M", "generalized Kautz"), ("100M", "circulant")):
        counts = best_by_size.best(range(5, 33), size)["construction"].value_counts().sort_index()
        text = ", ".join(f"{kind} {count}" for kind, count in counts.items())
        yield Row(f"{size}iB, 5 to 32 nodes", "figure 15", "", text, "sizes")
        if small:
            continue
        counts = best_by_size.best(range(5, 2001), size)["construction"].value_counts()
        first = str(counts.index[0])
        why = "circulants with links one way are in this search, and line graphs of them"
        where = f"section A.3, {size[:-1]} MB, most popular"
        yield Row(f"{size}iB: most often", where, leader, first, "", why if first != leader else "")
        for kind, count in counts.sort_values(ascending=False).items():
            yield Row(f"{size}iB: {kind}", "figure 15", "", int(count), "sizes")


def figure_18(small: bool) -> Iterator[Row]:
    """The most that T_B of generalized Kautz graphs takes over its optimum."""
    for degree, rows in kautz_bandwidth.table(100).groupby("degree"):
        text = "at most 2" if rows["relative_bandwidth_factor"].max() <= 2 else "more"
        yield Row(f"degree {degree}, up to 100 nodes", "figure 18, caption", "at most 2", text, "x")
    if small:
        return
    for degree, rows in kautz_bandwidth.table(2000).groupby("degree"):
        worst = rows["relative_bandwidth_factor"].max()
        first = rows.loc[rows["relative_bandwidth_factor"] == worst, "nodes"].iloc[0]
        why = f"at N = {first}, which is in the range"
        yield Row(
            f"degree {degree}, up to 2000 nodes", "figure 18, caption", "at most 2", f"{float(worst):.4f}", "x", why
        )
        above = int(rows["steps_above_bound"].max())
        yield Row(
            f"degree {degree}: T_L above the Moore bound",
            "Theorem 21",
            "at most 1",
            f"at most {above}",
            "α",
            "" if above == 1 else "in the range",
        )


def _axes(width: float = 6.0) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.4), layout="constrained")
    return figure, figure.subplots()


def _plot_3(rows: Sequence[Row]) -> Figure:
    figure, axes = _axes()
    for name, color in zip(BASES, COLORS, strict=False):
        points = [row for row in rows if row.case.endswith(f"nodes: {name}")]
        xs, ys = [int(row.case.split()[0]) for row in points], [float(row.ours) for row in points]  # type: ignore[arg-type]
        axes.plot(xs, ys, "o-", color=color, label=name)
    axes.set(xscale="log", xlabel="nodes", ylabel="T_B over its optimum")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _plot_7(rows: Sequence[Row]) -> Figure:
    del rows
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    times = runtimes_by_size.table(range(64, 1025, 96))
    colors = dict(zip(sorted(set(times["topology"])), COLORS, strict=True))
    for axes, column in zip(panels, ("allreduce_us", "all_to_all_us"), strict=True):
        for name, part in times.dropna(subset=[column]).groupby("topology"):
            axes.plot(part["nodes"], part[column], color=colors[name])
        axes.set(yscale="log", xlabel="nodes", ylabel=column.replace("_us", ", µs").replace("_", "-"))
        axes.grid(alpha=0.3)
    handles = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    figure.legend(handles=handles, loc="outside right upper", fontsize=7)
    return figure


def _plot_18(rows: Sequence[Row]) -> Figure:
    del rows
    figure, axes = _axes()
    for degree, color in zip(kautz_bandwidth.DEGREES, COLORS, strict=False):
        sizes = range(degree + 2, 2001, 18)
        costs = [kautz_figures(degree, nodes).bandwidth_factor / bandwidth_optimum(nodes) for nodes in sizes]
        axes.plot(sizes, [float(cost) for cost in costs], lw=1, color=color, label=f"d = {degree}")
    axes.set(xlabel="nodes, every 18th size", ylabel="T_B over its optimum")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


FIGURES = (
    Item("figure-3", "line graphs of optimal base graphs", "Section 5.1", figure_3, plot=_plot_3),
    Item("figure-7", "allreduce and all-to-all by the number of nodes", "Section 8.3", figure_7,
         "The plot has all-to-alls over shortest paths in equal parts, the table certified rates.", _plot_7),
    Item("figure-9", "all-to-all in training", "Section 8.4", figure_9,
         "The compute times of the paper's GPU are not printed, so only ratios of all-to-all times can be recomputed."),
    Item("figure-11", "tori of a supercomputer", "Section 8.5.2", figure_11,
         "Measured bandwidths are of machines; what a model has are T_L and T_B."),
    Item("figure-13", "hypercube and twisted hypercube", "Appendix A.1", figure_13),
    Item("figure-15", "the best construction by the number of nodes", "Appendix A.3", figure_15),
    Item("figure-18", "generalized Kautz graphs", "Appendix F.2", figure_18, plot=_plot_18),
)  # fmt: skip
