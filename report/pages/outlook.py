"""What stands beside plans on a page: times over sizes, common planners, other bandwidths, and failures."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import ColloptError
from ...planners import Plan, bound, plan, survive
from ...schedules import Bound
from ...support.formatting import exact, percentage_text
from ...topologies import link_classes
from ..tables import NS_PER_US, is_predictable, predicted_times

if TYPE_CHECKING:
    import pandas as pd

    from ...topologies import Topology

CURVE_SIZES = tuple(1024 * 4**power for power in range(12))  # 1K to 4G
BASELINES: tuple[str, ...] = ("ring", "nccl")
MOST_RANKS = 512  # Of networks that are planned again for a page
FACTORS = {"× 1/2": Fraction(1, 2), "× 1.1": Fraction(11, 10), "× 2": Fraction(2)}


def sizes_data(plans: Mapping[str, Plan]) -> dict[str, Any]:
    """Predict times over sizes for all plans, beside their bounds."""
    times = {name: predicted_times(plan, CURVE_SIZES) if is_predictable(plan) else [] for name, plan in plans.items()}
    missing = ", ".join(name for name, row in times.items() if not row)
    left_out = f"No times of {missing}: its trees are too many and too high to sum their latencies here."
    return {
        "sizes": list(CURVE_SIZES),
        "leftOut": left_out if missing else "",
        "plans": [
            {
                "name": name,
                "time": times[name],
                "algbw": [size / time / NS_PER_US for size, time in zip(CURVE_SIZES, times[name], strict=False)],
                "bound": float(plan.bound.algbw),
            }
            for name, plan in plans.items()
        ],
    }


class Bar(NamedTuple):
    """A row of a chart of bars."""

    label: str
    value: float
    text: str  # The value in words
    kind: str  # Bound, plan, baseline, or less and more than now
    note: str = ""


class Chart(NamedTuple):
    """Bars on one scale from 0."""

    title: str
    explained: str
    columns: tuple[str, str]  # Headings of labels and values
    bars: list[Bar]

    @property
    def largest(self) -> float:
        """End of the scale."""
        return max((bar.value for bar in self.bars), default=0) or 1.0


def baselines(named: Mapping[str, Plan]) -> dict[str, Plan]:
    """Plan with the planners that people know, those that are not among the plans and have an answer; verified."""
    first, plans = next(iter(named.values())), dict[str, Plan]()
    for name in BASELINES if first.topology.num_ranks <= MOST_RANKS else ():
        if name not in {shown.planner for shown in named.values()}:
            with suppress(ColloptError):
                plans[name] = plan(first.topology, first.collective, planner=name, **request_of(first.bound))
                plans[name].verify()
    if (nccl := plans.pop("nccl", None)) is None:
        return plans
    algorithm = nccl.provenance["algorithm"]
    done = {} if algorithm == "ring" else plans
    return done | {f"NCCL ({algorithm})": nccl}


def rates_chart(named: Mapping[str, Plan], references: Mapping[str, Plan]) -> Chart:
    """Compare the algorithm bandwidths of plans, of baselines and of the bound."""
    best = min((drawn.bound for drawn in named.values()), key=lambda bound: bound.algbw)
    bars = [Bar("bound", float(best.algbw), f"{float(best.algbw):.2f}", "bound", "")]
    for kind, plans in (("plan", named), ("baseline", references)):
        for name, drawn in plans.items():
            share = percentage_text(drawn.algbw / best.algbw)
            bars.append(Bar(name, float(drawn.algbw), f"{float(drawn.algbw):.2f}", kind, f"{share} of the bound"))
    explained = "Algorithm bandwidth for large data."
    if references:
        explained += " NCCL's is that of the algorithm which its own model of times picks, as planned here."
    return Chart("Bandwidth", explained, ("plan", "GB/s"), bars)


def class_rows(first: Plan, loads: pd.DataFrame) -> list[dict[str, Any]]:
    """Tabulate the use of each class of links, and its share of the bound; `loads` is a link table with ``share``."""
    network, rows = first.topology, []
    for link_class in link_classes(network):
        ends = np.array([[network.node_index[node] for node in link[:2]] for link in link_class.links])
        mine = loads.iloc[network.link_places(ends[:, 0], ends[:, 1])]
        speeds = sorted({link.bandwidth for link in link_class.links})
        rows.append(
            {
                "name": link_class.name,
                "links": len(link_class.links),
                "bandwidth": " to ".join(exact(speed) for speed in dict.fromkeys((speeds[0], speeds[-1]))),
                "use": float(mine["utilization"].mean()),
                "share": float(mine["share"].sum()),
            }
        )
    return rows


def class_chart(first: Plan) -> Chart:
    """Compare the bound with what it would be with other bandwidths of each class of links."""
    network, bounds = first.topology, dict[str, Bound]()
    with suppress(ColloptError):
        for link_class in link_classes(network) if network.num_ranks <= MOST_RANKS else ():
            bounds.setdefault("as it is", _bound_with(network, {}, first.bound))
            for name, factor in FACTORS.items():
                widths = {link[:2]: link.bandwidth * factor for link in link_class.links}
                bounds[f"{link_class.name} {name}"] = _bound_with(network, widths, first.bound)
    bars = []
    for name, limit in bounds.items():
        change = limit.algbw / bounds["as it is"].algbw - 1
        kind = "less" if change < 0 else "more" if change > 0 else "same"
        note = f"{'+' if change > 0 else '−'}{percentage_text(abs(change))}" if change else "no change"
        bars.append(Bar(name, float(limit.algbw), f"{float(limit.algbw):.2f}", kind, note))
    if bars:
        bars[0] = bars[0]._replace(kind="bound", note="")
    explained = "The bound if the bandwidth of all links of a class were half, 10 % more, or double."
    return Chart("What if links were slower or faster", explained, ("links", "GB/s"), bars)


def failure_chart(first: Plan) -> Chart:
    """Plan for every failure of a link, NIC, GPU and switch, and compare."""
    root = request_of(first.bound).get("root")
    frame = survive(first.topology, first.collective, root=root, baselines=(), jobs=1)
    bars = []
    for row in frame.to_dict("records"):
        count = f" ({row['count']} alike)" if row["count"] > 1 else ""
        lost = row["loss_exact"]
        if row["status"] != "ok":
            bars.append(Bar(f"{row['failure']}{count}", 0.0, row["status"], "less"))
            continue
        kind = "bound" if row["kind"] == "intact" else "less" if lost > 0 else "more" if lost < 0 else "same"
        note = f"{percentage_text(lost)} lost" if lost > 0 else "" if row["kind"] == "intact" else "nothing lost"
        bars.append(Bar(f"{row['failure']}{count}", row["algbw"], f"{row['algbw']:.2f}", kind, note))
    explained = "A new plan after each failure, among the ranks that are left; failures alike by symmetry are one."
    return Chart("What if something fails", explained, ("failed", "GB/s"), bars)


def request_of(limit: Bound) -> dict[str, Any]:
    """Options that ask for the same shards as a bound."""
    if not limit.weights:
        return {}
    if limit.collective.in_pairs:
        ranks = limit.topology.num_ranks
        return {"traffic": [limit.weights[start : start + ranks] for start in range(0, ranks * ranks, ranks)]}
    if limit.collective.has_one_root:
        return {"root": int(np.argmax(limit.weights))}
    return {"weights": list(limit.weights)}


def _bound_with(network: Topology, widths: Mapping[tuple[str, str], Fraction], like: Bound) -> Bound:
    """Bound a collective as `like` does, with other bandwidths."""
    changed: Bound = bound(network.with_bandwidths(widths), like.collective, **request_of(like))
    changed.verify()
    return changed
