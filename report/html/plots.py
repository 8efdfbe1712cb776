"""Data of the plots of an HTML report, as plain values for its script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...support.formatting import count_text
from ..layout import link_curves, node_layout
from ..tables.busy_times import (
    busiest,
    busy_times,
    count_hops,
    step_run,
)
from ..tables.plan_tables import is_predictable, link_table, predicted_times, witness_view
from .parts import parts

if TYPE_CHECKING:
    from ...planners import Plan
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
