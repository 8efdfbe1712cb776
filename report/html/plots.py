"""The data of a page's plots, as plain values for its script; what there is no room for is told in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from ...schedules import Allreduce, FlowSchedule, Forest, Schedule, StepAllreduce, StepSchedule
from ...support.formatting import count_text
from ..layout.link_shapes import link_curves
from ..layout.node_layout import node_layout
from ..tables.busy_times import busiest, busy_times, step_run
from ..tables.plan_tables import link_table
from ..tables.predicted_times import is_predictable, predicted_times
from ..tables.witness_links import witness_view
from .parts import parts

if TYPE_CHECKING:
    from ...planners import Plan
    from ...schedules import AnyStepSchedule, TreeSchedule
    from ...topologies import Topology

CURVE_SIZES = tuple(1024 * 4**power for power in range(12))
"""1K to 4G."""
MOST_DRAWN = 6000
"""Links in the plot of the network."""
MOST_ROWS = 40
"""Links in a time line."""
MOST_BARS = 4000
"""In all rows of a time line together."""
NS_PER_US = 1000
STRAIGHT = 1e-3
"""Bends by less are none."""
MOST_PIECES = 2**17
"""Pieces of data times hops beyond which no time line is simulated for a page."""
SLICES = 8
"""Of data that flows in a time line, or fewer where there would be too many pieces."""


def network_data(topology: Topology) -> dict[str, Any]:
    """Say where nodes are, and how links bend."""
    layout, curves = node_layout(topology), link_curves(topology)
    x, y = layout["x"].to_numpy(), layout["y"].to_numpy()
    tails, heads = topology.arrays.tails, topology.arrays.heads
    across = curves["bend_x"].to_numpy() - (x[tails] + x[heads]) / 2
    up = curves["bend_y"].to_numpy() - (y[tails] + y[heads]) / 2
    bent = np.flatnonzero(np.hypot(across, up) > STRAIGHT)
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
    """Gather what the plots of one plan show."""
    links, taken = link_table(plan), parts(plan)
    order = links.sort_values(["in_cut", "utilisation"], ascending=False, kind="stable").index[:MOST_DRAWN]
    drawn = links.loc[sorted(order)]
    return {
        "links": {
            "word": witness_view(plan.bound).words,
            "tails": plan.topology.arrays.tails[drawn.index].tolist(),
            "heads": plan.topology.arrays.heads[drawn.index].tolist(),
            "bandwidth": drawn["bandwidth_gbps"].tolist(),
            "latency": drawn["latency_us"].tolist(),
            "load": drawn["load"].round(6).tolist(),
            "use": drawn["utilisation"].round(6).tolist(),
            "cut": drawn["in_cut"].tolist(),
            "leftOut": _not_drawn(len(links), len(drawn)),
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


def _not_drawn(links: int, shown: int) -> str:
    if links == shown:
        return ""
    return f"Shown are {shown} of {links} links: those of the bound, then the busiest; {links - shown} are left out."


def sizes_data(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Predict times over sizes for all plans, beside their bounds."""
    times = {name: predicted_times(plan, CURVE_SIZES) if is_predictable(plan) else [] for name, plan in plans.items()}
    return {
        "sizes": list(CURVE_SIZES),
        "leftOut": _left_out([name for name, found in times.items() if not found]),
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


def _left_out(names: Sequence[str]) -> str:
    if not names:
        return ""
    return f"No times of {', '.join(names)}: its trees are too many and too high to sum their latencies here."


def _timeline(plan: Plan, size: int) -> dict[str, Any]:
    """Bars of the busiest links, or the reason why there are none."""
    pieces = _pieces(plan.schedule)
    slices = min(SLICES, MOST_PIECES // max(pieces, 1))
    if not slices:
        return {
            "note": f"No timeline: the plan moves {pieces} pieces, and the limit of this page is {MOST_PIECES}; "
            "collopt.report.step_table returns the table for any plan."
        }
    import pandas as pd

    run = step_run(plan, size, slices if plan.schedule.pipelined else None)
    busy = busiest(run, MOST_ROWS)
    bars = busy_times(run, busy.links)
    ends = [plan.topology.links[link][:2] for link in busy.links.tolist()]
    owners = pd.MultiIndex.from_frame(bars[["tail", "head"]])
    kept = max(int((owners.value_counts().loc[ends].cumsum() <= MOST_BARS).sum()), 1)
    if kept < len(ends):
        busy, bars = busiest(run, kept), bars[owners.isin(ends[:kept])]
    number = plan.topology.node_index
    return {
        "tails": [number[node] for node in bars["tail"]],
        "heads": [number[node] for node in bars["head"]],
        "step": bars["step"].tolist(),
        "start": bars["start_us"].round(4).tolist(),
        "end": bars["end_us"].round(4).tolist(),
        "bytes": bars["bytes"].round(1).tolist(),
        "done": round(run.microseconds, 4),
        "note": f"{_slicing(plan, slices)} {busy.sentence}".strip(),
    }


def _slicing(plan: Plan, slices: int) -> str:
    """Why a time line can end later than the page predicts elsewhere."""
    if not plan.schedule.pipelined:
        return ""
    return f"Simulated with {count_text(slices, 'slice')}; the predicted times of this page assume full pipelining."


@singledispatch
def _pieces(schedule: Schedule) -> int:
    """Estimate how much a simulation of data in one slice has to go through."""
    return schedule.num_ranks * schedule.depth


@_pieces.register(StepSchedule)
@_pieces.register(StepAllreduce)
def _step_pieces(schedule: AnyStepSchedule) -> int:
    return schedule.num_sends


@_pieces.register(FlowSchedule)
def _flow_pieces(schedule: FlowSchedule) -> int:
    return len(schedule.steps)


@_pieces.register(Forest)
@_pieces.register(Allreduce)
def _tree_pieces(schedule: TreeSchedule) -> int:
    links = sum(len(forest.path_nodes) - len(forest.path_starts) + 1 for forest in schedule.forests)
    paths = sum(len(forest.path_starts) - 1 for forest in schedule.forests)
    # Every tree reaches every rank, over paths that are this long on average.
    return schedule.num_trees * schedule.num_ranks * links // max(paths, 1)
