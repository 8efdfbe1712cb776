"""Data of the plots of an HTML report, as plain values for its script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...schedules import Allreduce, FlowSchedule, Forest, Schedule
from ...schedules.trees.symmetric_forest import expanding
from ...support.arrays import IntArray
from ...support.formatting import count_text, percentage_text
from ..layout import link_curves, node_layout
from ..tables.busy_times import (
    BRANCHES,
    HOPS,
    REDUCE_FIRST,
    STEPS,
    busiest,
    busy_times,
    count_hops,
    hops_before,
    step_run,
    tree_hops,
)
from ..tables.plan_tables import is_predictable, link_table, predicted_times, witness_view
from ..tables.summary import branching_switches

if TYPE_CHECKING:
    from ...planners import Plan
    from ...schedules import TreeSchedule
    from ...topologies import Topology


CURVE_SIZES = tuple(1024 * 4**power for power in range(12))  # 1K to 4G
MAX_DRAWN = 6000  # Links in the plot of the network
MAX_ROWS = 40  # Links in a time line
MAX_BARS = 4000  # In all rows of a time line together
NS_PER_US = 1000
MIN_BEND = 1e-3  # Bends by less are none
MAX_PIECES = 2**17  # Pieces of data times hops beyond which no time line is simulated for a page
SLICES = 8  # Of data that flows in a time line, or fewer where there would be too many pieces


def network_data(topology: Topology) -> dict[str, Any]:
    """Positions of nodes, and curves of links."""
    layout, curves = node_layout(topology), link_curves(topology)
    x, y = layout["x"].to_numpy(), layout["y"].to_numpy()
    tails, heads = topology.arrays.tails, topology.arrays.heads
    across = curves["bend_x"].to_numpy() - (x[tails] + x[heads]) / 2
    up = curves["bend_y"].to_numpy() - (y[tails] + y[heads]) / 2
    bent = np.flatnonzero(np.hypot(across, up) > MIN_BEND)
    return {
        "nodes": layout["node"].tolist(),
        "switch": (layout["kind"] == "switch").tolist(),
        "box": layout["box"].tolist(),
        "x": layout["x"].round(4).tolist(),
        "y": layout["y"].round(4).tolist(),
        # Most links are straight, and say nothing.
        "tails": tails[bent].tolist(),
        "heads": heads[bent].tolist(),
        "bendX": curves["bend_x"].to_numpy()[bent].round(4).tolist(),
        "bendY": curves["bend_y"].to_numpy()[bent].round(4).tolist(),
    }


def plan_data(plan: Plan, sizes: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """Data of the plots of one plan."""
    links, taken = link_table(plan), parts(plan)
    order = links.sort_values(["in_cut", "utilization"], ascending=False, kind="stable").index[:MAX_DRAWN]
    drawn, left = links.loc[sorted(order)], len(links) - len(order)
    shown = f"Shown are {len(order)} of {len(links)} links: those of the bound, then the busiest"
    return {
        "links": {
            "word": witness_view(plan.bound).words,
            "tails": plan.topology.arrays.tails[drawn.index].tolist(),
            "heads": plan.topology.arrays.heads[drawn.index].tolist(),
            "bandwidth": drawn["bandwidth_gbps"].tolist(),
            "latency": drawn["latency_us"].tolist(),
            "load": drawn["load"].round(6).tolist(),
            "use": drawn["utilization"].round(6).tolist(),
            "cut": drawn["in_cut"].tolist(),
            "leftOut": f"{shown}; {left} are left out." if left else "",
        },
        "parts": {
            "labels": [part.label for part in taken.shown],
            "ends": [part.ends for part in taken.shown],
            "ranks": [part.ranks for part in taken.shown],
            "rankWord": taken.rank_word,
            "explained": taken.explained,
            "leftOut": taken.left_out,
        },
        "timelines": [_timeline(plan, size) for _, size in sizes],
    }


def sizes_data(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Predict times over sizes for all plans, beside their bounds."""
    times = {name: predicted_times(plan, CURVE_SIZES) if is_predictable(plan) else [] for name, plan in plans.items()}
    missing = ", ".join(name for name, found in times.items() if not found)
    left_out = f"No times of {missing}: its trees are too many and too high to sum their latencies here."
    return {
        "sizes": list(CURVE_SIZES),
        "leftOut": left_out if missing else "",
        "plans": [
            {
                "name": name,
                "time": times[name],
                "algbw": [size / time / NS_PER_US for size, time in zip(CURVE_SIZES, times[name], strict=False)],
                "boundAlgbw": [float(plan.bound.algbw)] * len(CURVE_SIZES),
                "boundTime": [float(size / plan.bound.algbw / NS_PER_US) for size in CURVE_SIZES],
            }
            for name, plan in plans.items()
        ],
    }


def _timeline(plan: Plan, size: int) -> dict[str, Any]:
    """Bars of the busiest links, or the reason why there are none."""
    pieces = count_hops(plan.schedule)
    slices = min(SLICES, MAX_PIECES // max(pieces, 1))
    if not slices:
        return {
            "note": f"No timeline: the plan moves {pieces} pieces, and the limit of this page is {MAX_PIECES}; "
            "collopt.report.step_table returns the table for any plan."
        }
    import pandas as pd

    run = step_run(plan, size, slices if plan.schedule.pipelined else None)
    busy = busiest(run, MAX_ROWS)
    bars = busy_times(run, busy.links)
    ends = [plan.topology.links[link][:2] for link in busy.links.tolist()]
    owners = pd.MultiIndex.from_frame(bars[["tail", "head"]])
    kept = max(int((owners.value_counts().loc[ends].cumsum() <= MAX_BARS).sum()), 1)
    if kept < len(ends):
        busy, bars = busiest(run, kept), bars[owners.isin(ends[:kept])]
    number = plan.topology.node_index
    slicing = f"Simulated with {count_text(slices, 'slice')}; the predicted times of this page assume full pipelining."
    return {
        "tails": [number[node] for node in bars["tail"]],
        "heads": [number[node] for node in bars["head"]],
        "step": bars["step"].tolist(),
        "start": bars["start_us"].round(4).tolist(),
        "end": bars["end_us"].round(4).tolist(),
        "bytes": bars["bytes"].round(1).tolist(),
        "done": round(run.microseconds, 4),
        "note": f"{slicing if plan.schedule.pipelined else ''} {busy.sentence}".strip(),
    }


MAX_PARTS = 512
MAX_SEGMENTS = 40_000  # Of all parts together: about a megabyte of the page


class Part(NamedTuple):
    """Links of one tree, step or source."""

    label: str  # What this part is
    ends: list[int]  # Numbers of tail and head, link by link
    ranks: list[int]  # For each link its hop or step, from 1


class Parts(NamedTuple):
    """The parts of a schedule that fit a page."""

    title: str  # Such as "Trees, one at a time"
    word: str  # What one part is called
    rank_word: str  # What `Part.ranks` count, here and in time lines
    explained: str  # What these numbers mean
    shown: list[Part]  # The first ones
    left_out: str  # A sentence on those that are not shown, empty if there are none


def parts(plan: Plan) -> Parts:
    """Divide a plan's schedule into parts for display."""
    return _parts(plan.schedule, plan)


@singledispatch
def _parts(schedule: Schedule, plan: Plan) -> Parts:  # noqa: ARG001
    """Show each row of loads: the steps, or everything at once."""
    rows = len(np.atleast_2d(plan.link_loads))
    return _limited(Parts("Steps, one at a time", "Step", "step", STEPS, [], ""), _steps(plan), rows, "steps")


expanding(_parts)


@_parts.register(Forest)
@_parts.register(Allreduce)
def _tree_parts(schedule: TreeSchedule, plan: Plan) -> Parts:
    forests = schedule.forests
    total = sum(forest.num_trees for forest in forests)
    counted = zip(forests, hops_before(schedule), strict=True)
    found = (part for forest, before in counted for part in _trees(forest, plan, before, len(forests) > 1))
    further = (len(forests) > 1, REDUCE_FIRST), (bool(branching_switches(schedule)), BRANCHES)
    explained = " ".join([HOPS, *(text for applies, text in further if applies)])
    return _limited(Parts("Trees, one at a time", "Tree", "hop", explained, [], ""), found, total, "trees")


@_parts.register(FlowSchedule)
def _flow_parts(schedule: FlowSchedule, plan: Plan) -> Parts:
    return _limited(
        Parts("Senders, one at a time", "Sender", "step", STEPS, [], ""),
        _senders(schedule, plan), plan.topology.num_ranks, "senders",
    )  # fmt: skip


def _limited(about: Parts, found: Iterator[Part], total: int, word: str) -> Parts:
    """Keep the parts within the limits; the first one is truncated if needed."""
    capacity = MAX_SEGMENTS
    for part in found:
        if len(about.shown) == MAX_PARTS or (about.shown and len(part.ranks) > capacity):
            break
        if len(part.ranks) > capacity:
            label = f"{part.label}; the first {capacity} of {len(part.ranks)} links"
            part = Part(label, part.ends[: 2 * capacity], part.ranks[:capacity])  # noqa: PLW2901 - what fits
        about.shown.append(part)
        capacity -= len(part.ranks)
    left = total - len(about.shown)
    sentence = f"Shown are the first {len(about.shown)} of {total} {word}; {left} are left out." if left else ""
    return about._replace(left_out=sentence)


def _trees(forest: Forest, plan: Plan, before: IntArray, is_twofold: bool) -> Iterator[Part]:
    names, whole = plan.topology.nodes, forest.trees_per_root * forest.total_weight
    verb = {"reduce": "reduce tree,", "broadcast": "broadcast tree,"}[forest.direction]
    looped = forest.looped(plan.topology)
    for tree, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        ends: list[int] = []
        ranks: list[int] = []
        for hop in tree_hops(forest, tree, int(before[tree]), looped):
            for path in (hop.path, hop.path[::-1])[: 1 + hop.looped]:
                for tail, head in pairwise(path):
                    ends += (int(tail), int(head))
                    ranks.append(hop.number)
        share = percentage_text(weight / whole)
        hops, first = count_text(max(ranks), "hop"), int(before[tree]) + 1
        last = int(before[tree] + forest.heights[tree])
        if is_twofold:
            hops = f"hop {first}" if first == last else f"hops {first} to {last}"
        yield Part(f"root {names[root]}{f', {verb}' if is_twofold else ','} {share} of all data, {hops}", ends, ranks)


def _steps(plan: Plan) -> Iterator[Part]:
    tails, heads, _, _ = plan.topology.arrays
    for step, loads in enumerate(np.atleast_2d(plan.link_loads), start=1):
        used = np.flatnonzero(loads)
        ends = np.stack([tails[used], heads[used]], axis=1).ravel().tolist()
        yield Part(f"step {step}, {count_text(len(used), 'link')} busy", ends, [step] * len(used))


def _senders(schedule: FlowSchedule, plan: Plan) -> Iterator[Part]:
    starts = schedule.path_starts
    sources = schedule.path_nodes[starts[:-1]]
    for rank, name in enumerate(plan.topology.compute_nodes):
        own = np.flatnonzero(sources == rank).tolist()
        # A link that several paths share is drawn once, when the first of them passes it.
        first: dict[tuple[int, int], int] = {}
        for path in own:
            nodes = schedule.path_nodes[starts[path] : starts[path + 1]].tolist()
            steps = schedule.steps[starts[path] - path : starts[path + 1] - path - 1].tolist()
            for step, pair in zip(steps, pairwise(nodes), strict=True):
                first[pair] = min(step + 1, first.get(pair, step + 1))
        yield Part(
            f"from {name}, {count_text(len(own), 'path')} over {count_text(len(first), 'link')}",
            [node for pair in first for node in pair], list(first.values()),
        )  # fmt: skip
