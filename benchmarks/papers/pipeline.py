"""The pipeline paper: its example, broadcast (appendix A), and the bounds of an allreduce (appendix B)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from allreduce_claims import PATH, UNEVEN_RING, at_once, half_of_each_box, in_turn
from allreduce_theorems import allreduce_bounds
from saturation import two_boxes

from collopt import bound, plan
from collopt.topologies import Topology, dgx1_v100, dgx_a100, hypercube, mi250, ring, torus

from .forestcoll import example_network, worked_example
from .rows import Item, Row

NETWORKS: dict[str, Topology] = {
    "figure 1(a), b = 1": two_boxes(),
    "path of 3": PATH,
    "ring of 8": ring(8),
    "torus 4 x 4": torus(4, 4),
    "hypercube of 16": hypercube(4),
    "DGX-1 V100": dgx1_v100(),
    "one MI250": mi250(),
    "two DGX A100": dgx_a100(boxes=2),
    "two MI250, 8+8": half_of_each_box(),
}
SMALL = ("figure 1(a), b = 1", "path of 3", "ring of 8")


PLACES = {
    "figure 5(a)": "figure 1(b)",
    "appendix D": "section 1.3",
    "section 4": "inequality (1)",
    "figure 15(d)": "figure 1(d)",
    "figure 7(d)": "figure 2(b)",
    "figure 16(b)": "figure 2(b)",
    "figure 16(d)": "figure 2(d)",
}
"""Where this paper has what ForestColl repeats."""


def figure_1(small: bool) -> Iterator[Row]:
    """The bottleneck cut, and what rings in place of switches cost."""
    return (replace(row, where=PLACES[row.where]) for row in example_network(small))


def figure_2(small: bool) -> Iterator[Row]:
    """From switches to logical links, and back."""
    return (replace(row, where=PLACES[row.where]) for row in worked_example(small))


def broadcast(_: bool) -> Iterator[Row]:
    """Appendix A on the switches of figure 1."""
    topology = two_boxes()
    root = topology.compute_nodes[0]
    found = plan(topology, "broadcast", root=root)
    allgather = plan(topology, "allgather")
    yield Row("time of a broadcast", "appendix B", "M/4b", f"M/{found.algbw}b")
    yield Row("its plan's gap", "inequality (5)", "", found.gap)
    yield Row("over that of an allgather", "appendix B", "2", found.inverse_rate / (allgather.inverse_rate / 8), "x")


def busiest_rank(topology: Topology) -> Fraction:
    """The most that a rank sends in our best allreduce, or passes on, in units of all data."""
    found = plan(topology, "allreduce")
    shares = dict.fromkeys(topology.compute_nodes, Fraction(0))
    for link, load in zip(topology.links, found.link_loads.tolist(), strict=True):
        if link.tail in shares:
            shares[link.tail] += Fraction(load)
    units = max(Fraction(load) / link.bandwidth for link, load in zip(topology.links, found.link_loads, strict=True))
    return max(shares.values()) / units / found.algbw


def theorems(small: bool) -> Iterator[Row]:
    """Theorems 16 to 19: bounds, what reduce-scatter and allgather reach in turn, and the best allreduce of trees."""
    for name, topology in NETWORKS.items():
        if small and name not in SMALL:
            continue
        bounds = allreduce_bounds(topology)
        assert bounds.rank_cuts is not None
        yield Row(f"{name}: Theorem 16", "inequality (6)", "", bounds.any_cut.algbw, "GB/s")
        yield Row(f"{name}: Corollary 18", "inequality (7)", "", bounds.rank_cuts.algbw, "GB/s")
        least, most = Fraction(2 * topology.num_ranks - 2, topology.num_ranks), busiest_rank(topology)
        case = f"{name}: Theorem 17, what some rank sends of the data"
        yield Row(case, "Theorem 17", f"at least {least}", str(most), "M", "same" if most == least else "in the range")
        both = bounds.reduce_scatter_allgather
        yield Row(f"{name}: RS+AG in turn", "appendix B", "", both, "GB/s")
        yield Row(f"{name}: trees, LP (5)", "question 3", "", bounds.trees, "GB/s")
        yield Row(f"{name}: by all partitions", "question 3", "", bound(topology, "allreduce").algbw, "GB/s")
        yield Row(f"{name}: condition", "Theorem 19", "", bounds.theorem_19 or "neither")


def against_broadcast(_: bool) -> Iterator[Row]:
    """Appendix B's comparison of RS+AG with RE+BC."""
    for topology in (PATH, UNEVEN_RING):
        root = topology.compute_nodes[0]
        turn = in_turn(topology, "reduce_scatter", "allgather"), in_turn(topology, "reduce", "broadcast", root)
        once = at_once(topology), at_once(topology, [root])
        for how, (shards, rooted) in {"in turn": turn, "at once": once}.items():
            text = f"{shards} and {rooted}"
            why = "" if shards > rooted else "not strictly better"
            yield Row(
                f"{topology.name}: RS+AG and RE+BC, {how}",
                "appendix B",
                "always strictly better",
                text,
                "GB/s",
                why or "strictly better here",
            )
        text = f"{turn[0]} and {once[1]}"
        why = "a pipeline runs reduce and broadcast at the same time (section 1.2)"
        case = f"{topology.name}: RS+AG in turn and RE+BC at once"
        yield Row(case, "appendix B", "always strictly better", text, "GB/s", why)


ITEMS = (
    Item("figure-1", "two clusters of four", "Section 1", figure_1),
    Item("figure-2", "the logical topology", "Section 2.2", figure_2),
    Item("broadcast", "broadcast on the example", "Appendices A and B", broadcast),
    Item(
        "theorems-16-19",
        "bounds of an allreduce",
        "Appendix B",
        theorems,
        "Algorithm bandwidths. Question 3 of the appendix, the best allreduce, is [settled on symmetric"
        " links](../explanation/allreduce.md): there the last two rates of a network are equal.",
    ),
    Item(
        "re-bc",
        "reduce-scatter and allgather, or reduce and broadcast",
        "Appendix B",
        against_broadcast,
        "Proofs are in [refutations and open questions](../explanation/refutations.md).",
    ),
)
