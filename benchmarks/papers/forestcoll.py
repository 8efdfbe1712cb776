"""ForestColl: tables and figures as theory and simulation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import log
from typing import TYPE_CHECKING
from unittest.mock import patch

import numpy as np
from saturation import BETWEEN, INSIDE, least_factor, two_boxes

from collopt import bound, plan
from collopt.errors import UnsupportedError
from collopt.planners import logical_topology
from collopt.planners.literature import grown_trees as multitree
from collopt.schedules import Cut
from collopt.topologies import Topology, circulant, dgx1_v100, dgx_a100, mi250, torus

from .forestcoll_measured import COLORS, MEASURED
from .rows import Item, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OPTIMAL_TREES = 83
MACHINES: dict[str, tuple[Callable[..., Topology], int]] = {"A100": (dgx_a100, 8), "MI250": (mi250, 16)}
SIZES = (16, 32, 64, 128, 256, 512, 1024)
PEERS = ("multitree", "ring", "hierarchical-ring")
LARGEST_PEER = {"multitree": 256, "ring": 512, "hierarchical-ring": 1024}
COLUMNS = ("Optimality Binary Search", "Switch Node Removal", "Spanning Tree Construction", "Total Time")
STAGES = ("switch_removal_s", "tree_packing_s")
"""Ours that stand for the columns in the middle."""
BREAKDOWN = {"A100": ("2.2 s", "979 s", "1209 s", "36.5 min"), "MI250": ("3.8 s", "550 s", "1708 s", "37.7 min")}
MINUTES = {("A100", 512): "4 min", ("A100", 1024): "37 min", ("MI250", 1024): "38 min", ("A100", 32): "below 1 s"}
OTHER_MACHINE = "one core here and 128 there; boxes are tight sets, which are planned once"


def fixed_counts(small: bool) -> Iterator[Row]:
    """Table 1: algbw of allgather on two MI250 boxes by the number of trees per root."""
    topology = mi250(boxes=2)
    for count, printed in {1: "320", 2: "341", 3: "343", 4: "341", 5: "348", OPTIMAL_TREES: "354"}.items():
        if count == OPTIMAL_TREES:
            found = plan(topology, "allgather")
        elif not small or count <= 2:
            found = plan(topology, "allgather", trees_per_root=count)
        else:
            continue
        yield Row(f"k = {count}", f"table 1, column {count}", printed, found.algbw, "GB/s")


METHODS = {
    "forestcoll": ("ForestColl", "Yes", "Yes"),
    "multitree": ("MultiTree", "Greedy", "Yes"),
    "blink": ("Blink", "Single-Root", "Non-Switch"),
    "bfb": ("BFB", "Conditional", "Non-Switch"),
}
"""Planners that stand for rows of table 2: their names, optimality and generality."""
SAID = {
    "multitree": ("below the optimum where greedy choices do not suffice", "same"),
    "blink": ("one root limits an allgather", "with ForestColl's removal of switches, as its section 6.2 evaluates it"),
    "bfb": ("missed where links cannot be loaded evenly", "same"),
}
"""How what is found compares with the table."""


def related_work(_: bool) -> Iterator[Row]:
    """Table 2: allgathers of each method on direct links and on switches, as shares of the optimum."""
    direct = {"DGX-1": dgx1_v100(), "torus 4 x 4": torus(4, 4), "C(15, {1, 4, 5})": circulant(15, (1, 4, 5))}
    switched = {"figure 5(a)": two_boxes(), "2 x A100": dgx_a100(boxes=2), "2 x MI250": mi250(boxes=2)}
    for planner, (name, optimality, generality) in METHODS.items():
        where, why = f"table 2, row {name}, column", SAID.get(planner, ("same", "same"))
        for column, printed, networks, reason in zip(
            ("Optimality", "Generality"), (optimality, generality), (direct, switched), why, strict=True
        ):
            text = _shares(planner, networks)
            yield Row(f"{name}: {column}", f"{where} {column}", printed, text, "", reason)


def _shares(planner: str, networks: dict[str, Topology]) -> str:
    """Of the optimum, as far as the planner takes the networks."""
    try:
        plans = {name: plan(topology, "allgather", planner=planner) for name, topology in networks.items()}
    except UnsupportedError:
        return "refuses switches"
    shares = {name: float(found.algbw / found.bound.algbw) for name, found in plans.items()}
    return ", ".join(f"{share:.4g} on {name}" for name, share in shares.items())


def generation_times(small: bool) -> Iterator[Row]:
    """Table 3, and how times grow."""
    for name, (build, gpus) in MACHINES.items():
        plan(build(boxes=4), "allgather")  # loads the kernels
        seconds = []
        for size in SIZES[2:3] if small else SIZES[2:]:
            topology = build(boxes=size // gpus)
            start = time.process_time()
            found = bound(topology, "allgather")
            middle = time.process_time()
            with patch.object(time, "perf_counter", time.process_time):  # which times the stages
                made = plan(topology, "allgather")
            seconds.append((size, time.process_time() - middle, middle - start))
            assert (made.bound, made.gap) == (found, 0)
        where = f"table 3, row 1024-GPU {name}"
        yield Row(f"{name}, 64 GPUs, total", where, "", f"{seconds[0][1]:.2f} s", "", "", measured=True)
        if small:
            continue
        spent = (seconds[-1][2], *(float(made.provenance[stage]) for stage in STAGES), seconds[-1][1])
        for column, printed, found in zip(COLUMNS, BREAKDOWN[name], spent, strict=True):
            row = f"{name}, {column}", f"{where}, column {column}", printed, f"{found:.2f} s"
            yield Row(*row, "", OTHER_MACHINE, measured=True)
        slope = np.polyfit([log(size) for size, *_ in seconds], [log(each) for _, each, _ in seconds], 1)[0]
        yield Row(f"{name}, growth from 64 GPUs", where, "", f"N^{slope:.1f}", "", "", measured=True)


def large_networks(small: bool) -> Iterator[Row]:
    """Figure 14: theoretical algbw, and time, of our planners by the number of GPUs."""
    for name, (build, gpus) in MACHINES.items():
        for size in SIZES[:2] if small else SIZES:
            topology = build(boxes=size // gpus)
            where = f"figure 14, {name}"
            seconds = {}
            for planner in ("forestcoll", *PEERS):
                if size > LARGEST_PEER.get(planner, size) or (planner == "hierarchical-ring" and size == gpus):
                    continue
                start = time.process_time()
                found = plan(topology, "allgather", planner=planner)
                seconds[planner] = time.process_time() - start
                yield Row(f"{name}, {size} GPUs, {planner}", where, "", found.algbw, "GB/s")
            for planner, spent in {} if small else seconds.items():
                printed = MINUTES.get((name, size), "") if planner == "forestcoll" else ""
                case, text = f"{name}, {size} GPUs, {planner}: time", f"{spent:.2f} s"
                why = OTHER_MACHINE if printed else ""
                yield Row(case, f"{where}, section 6.5", printed, text, "", why, measured=True)
    if not small:
        yield from multitree_claims()


def multitree_claims() -> Iterator[Row]:
    """What the text says of MultiTree."""
    shares = {}
    for name, (build, gpus) in MACHINES.items():
        for size in (size for size in SIZES if max(16, 2 * gpus) <= size <= LARGEST_PEER["multitree"]):
            topology = build(boxes=size // gpus)
            tree = plan(topology, "allgather", planner="multitree")
            shares[name, size] = tree.algbw / tree.bound.algbw
    low = shares["A100", 16]
    with patch.object(multitree._Tree, "start_step", _by_senders):
        other = plan(dgx_a100(boxes=2), "allgather", planner="multitree")
    assert [share for (name, size), share in shares.items() if name == "A100" and size > 16] == [1] * 4
    where, printed = "figure 14, section 6.5", "considerably lower at first, then equal"
    why = "hops of fewer links go first in ours, which the description leaves open"
    text = f"{float(low):.1%} at 16 GPUs, 100% from 32 on"
    yield Row("A100, MultiTree of the optimum", where, printed, text, "", f"{why}; see the next row")
    share = f"{float(other.algbw / other.bound.algbw):.1%} at 16 GPUs"
    yield Row("A100, the same, one sender after the other, not short hops first", where, "", share)
    gains = sorted(float(1 / share) - 1 for (name, _), share in shares.items() if name == "MI250")
    text = f"{gains[0]:.0%} to {gains[-1]:.0%}"
    yield Row("MI250, over MultiTree", "section 6.5", "50%+", text, "", "in the range")


def _by_senders(tree: multitree._Tree, lengths: Sequence[int]) -> None:
    tree._choices = [(length, sender) for sender in tree.members for length in lengths][::-1]


def example_network(small: bool) -> Iterator[Row]:
    """Figures 5 and 15: the bottleneck, and what rings in place of switches cost."""
    topology = two_boxes()
    found = plan(topology, "allgather")
    assert isinstance(found.bound.witness, Cut)
    inside = len(found.bound.witness.nodes & set(topology.compute_nodes))
    across = found.bound.witness.crossing(topology, found.collective).bandwidth
    yield Row("GPUs in the bottleneck cut", "figure 5(a)", "4", inside)
    yield Row("bound of an allgather", "appendix D", "(M/N)(4/4b)", f"(M/N)({inside}/{across}b)")
    yield Row("its plan's gap", "section 4", "", found.gap)
    single = Fraction(1, INSIDE + BETWEEN)
    yield Row("bound of a cut around one GPU", "appendix D", "(M/N)(1/11b)", f"(M/N)({single}b)")
    yield Row("trees per root", "figure 7(d)", "1", found.bound.trees_per_root)
    unwound = plan(topology, "allgather", planner="ring-unwinding")
    yield Row("rings in place of switches", "figure 15(d)", "4", unwound.inverse_rate / found.inverse_rate, "x time")
    for chunks in (1, 16) if small else (1, 4, 16, 64, 256):
        ratio = found.simulate(8 * 10**6, slices=chunks) / 1000
        text = f"{ratio:.5f}, at least {float(least_factor(chunks)):.5f}"
        yield Row(f"time over the bound, {chunks} chunks per shard", "appendix D", "", text, "x")


def worked_example(_: bool) -> Iterator[Row]:
    """Figures 7 and 16: from switches to logical links, and the tree that goes back."""
    topology = two_boxes()
    left = logical_topology(bound(topology, "allgather")).multiplicities
    logical = Topology.from_links([(*pair, units) for pair, units in left.items()], compute=topology.compute_nodes)
    across = sum(units for (tail, head), units in left.items() if tail[1] != head[1])
    yield Row("units between boxes, one way", "figure 7(d)", "4", across // 2)
    out = {rank: sum(units for (tail, _), units in left.items() if tail == rank) for rank in topology.compute_nodes}
    why = "any split that keeps every cut will do; ours gives each pair in a box what it needs"
    text = ", ".join(map(str, sorted(set(out.values()))))
    yield Row("units out of a GPU", "figure 16(b)", "11", text, "", "" if text == "11" else why)
    yield Row("1/x* of the logical topology, in 1/b", "figure 16(b)", "1", bound(logical, "allgather").inverse_rate)
    forest = plan(topology, "allgather").schedule
    crossing = {sum(1 for edge in forest.edges(tree) if "w0" in _names(topology, edge.path)) for tree in range(8)}
    yield Row("edges between boxes of each tree", "figure 16(d)", "1", "-".join(map(str, sorted(crossing))))


def _names(topology: Topology, path: tuple[int, ...]) -> list[str]:
    return [topology.nodes[node] for node in path]


def _scale_plot(rows: list[Row]) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, name in zip(panels, MACHINES, strict=True):
        for planner, color in zip(("forestcoll", *PEERS), COLORS, strict=False):
            cases = {f"{name}, {size} GPUs, {planner}": size for size in SIZES}
            points = [(cases[row.case], float(row.ours)) for row in rows if row.case in cases]  # type: ignore[arg-type]
            axes.plot(*zip(*points, strict=True), "o-", color=color, label=planner, ms=4)
        axes.set(xscale="log", xlabel="GPUs", ylabel="algbw, GB/s", title=name, ylim=(0, None))
        axes.grid(alpha=0.3)
    panels[1].legend(fontsize=7)
    return figure


ITEMS = (
    Item("table-1", "algbw by the number of trees per root, 2 x MI250", "Section 5.5", fixed_counts),
    Item(
        "table-2",
        "related work, as far as we plan as others do",
        "Between appendices A and B",
        related_work,
        "Ours are rates of allgathers over the optimum: on direct links for the column of optimality, on switches for"
        " that of generality. For scalability see table 3 and figure 14. SCCL, TACCL, TE-CCL, TACOS, TTO and SyCCL"
        " are programs of others. arXiv's table 1 says the same of fewer methods; its columns are lost in the text.",
    ),
    Item(
        "table-3",
        "time of planning for 1024 GPUs",
        "Appendix C",
        generation_times,
        "Times of ours are CPU seconds of one process; the total includes verification.",
    ),
    *MEASURED,
    Item(
        "figure-14",
        "planning at scale",
        "Section 6.5",
        large_networks,
        "The figure's TACCL, TE-CCL and SyCCL are programs of others, which are not rerun.",
        _scale_plot,
    ),
    Item(
        "figure-15",
        "two boxes of four GPUs: figures 5 and 15",
        "Section 4, appendix D",
        example_network,
        "Proofs of the last rows are in [refutations and open questions](../explanation/refutations.md).",
    ),
    Item("figure-16", "edge splitting: figures 7 and 16", "Section 5.3, appendix E.2", worked_example),
)
