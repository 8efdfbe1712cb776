"""What stands beside plans on a page: times over sizes, common planners, other bandwidths, and failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from ...errors import ColloptError
from ...planners import Plan, bound, plan, survive
from ...support.formatting import percentage_text
from ...topologies import link_classes
from ..tables.plan_tables import NS_PER_US, is_predictable, predicted_times

if TYPE_CHECKING:
    from ...planners.registry import PlannerName
    from ...schedules import Bound, Collective
    from ...topologies import Topology

CURVE_SIZES = tuple(1024 * 4**power for power in range(12))  # 1K to 4G
BASELINES: tuple[PlannerName, ...] = ("ring", "nccl")
MOST_RANKS = 512  # Of networks that are planned again for a page
FACTORS = {"× 1/2": Fraction(1, 2), "× 1.1": Fraction(11, 10), "× 2": Fraction(2)}

Found = TypeVar("Found")


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
    def most(self) -> float:
        """End of the scale."""
        return max((bar.value for bar in self.bars), default=0) or 1.0


def baselines(named: Mapping[str, Plan]) -> dict[str, Plan]:
    """Plan with the planners that people know, those that are not among the plans and have an answer."""
    first = next(iter(named.values()))
    if first.topology.num_ranks > MOST_RANKS:
        return {}
    known = {made.planner for made in named.values()}
    request = request_of(first.bound)
    made = {
        name: _unless_refused(partial(plan, first.topology, first.collective, planner=name, **request))
        for name in BASELINES
        if name not in known
    }
    if (nccl := made.get("nccl")) is not None and nccl.provenance["algorithm"] == "ring":
        made.pop("ring", None)
    return {
        f"NCCL ({each.provenance['algorithm']})" if name == "nccl" else name: each
        for name, each in made.items()
        if each is not None
    }


def rates_chart(named: Mapping[str, Plan], beside: Mapping[str, Plan]) -> Chart:
    """Compare the algorithm bandwidths of plans, of baselines and of the bound."""
    best = min((made.bound for made in named.values()), key=lambda each: each.algbw)
    bars = [Bar("bound", float(best.algbw), f"{float(best.algbw):.2f}", "bound")]
    for kind, plans in (("plan", named), ("baseline", beside)):
        for name, made in plans.items():
            share = percentage_text(made.algbw / best.algbw)
            bars.append(Bar(name, float(made.algbw), f"{float(made.algbw):.2f}", kind, f"{share} of the bound"))
    explained = "Algorithm bandwidth for large data. "
    if beside:
        explained += "NCCL's is that of the algorithm which its own model of times picks, as planned here."
    return Chart("Bandwidth", explained, ("plan", "GB/s"), bars)


def class_table(first: Plan, loads: Any) -> list[dict[str, Any]]:
    """Tabulate classes of links: use, share of the bound, and the bound if all their bandwidths were others.

    `loads` is a link table with ``share``.  Rates are None where there is no bound.
    """
    network, rows = first.topology, []
    places = network.node_index
    for each in link_classes(network):
        ends = np.array([[places[link.tail], places[link.head]] for link in each.links])
        mine = loads.iloc[network.link_places(ends[:, 0], ends[:, 1])]
        rates = {}
        for name, factor in FACTORS.items() if network.num_ranks <= MOST_RANKS else ():
            widths = {link[:2]: link.bandwidth * factor for link in each.links}
            other = _unless_refused(
                partial(_bound_of, network, widths, first.bound.collective, request_of(first.bound))
            )
            rates[name] = None if other is None else other.algbw
        speeds = sorted({link.bandwidth for link in each.links})
        rows.append(
            {
                "name": each.name,
                "links": len(each.links),
                "bandwidth": " to ".join(str(speed) for speed in dict.fromkeys((speeds[0], speeds[-1]))),
                "use": float(mine["utilization"].mean()),
                "share": float(mine["share"].sum()),
                "rates": rates,
            }
        )
    return rows


def class_chart(now: Bound, rows: Iterable[Mapping[str, Any]]) -> Chart:
    """Compare the bound with what it would be with other bandwidths of each class of links."""
    bars = [Bar("as it is", float(now.algbw), f"{float(now.algbw):.2f}", "bound")]
    for row in rows:
        for name, rate in row["rates"].items():
            if rate is not None:
                kind = "less" if rate < now.algbw else "more" if rate > now.algbw else "same"
                change = rate / now.algbw - 1
                note = f"{'+' if change > 0 else '−'}{percentage_text(abs(change))}" if change else "no change"
                bars.append(Bar(f"{row['name']} {name}", float(rate), f"{float(rate):.2f}", kind, note))
    explained = "The bound if the bandwidth of all links of a class were half, 10 % more, or double."
    return Chart("What if links were slower or faster", explained, ("links", "GB/s"), bars if len(bars) > 1 else [])


def failure_chart(first: Plan) -> Chart:
    """Plan for every failure of a link, NIC, GPU and switch, and compare."""
    root = request_of(first.bound).get("root")
    frame = survive(first.topology, first.collective, root=root, baselines=(), jobs=1)
    bars = []
    for row in frame.to_dict("records"):
        alike = f" ({row['count']} alike)" if row["count"] > 1 else ""
        lost = row["loss_exact"]
        if row["status"] != "ok":
            bars.append(Bar(f"{row['failure']}{alike}", 0.0, row["status"], "less"))
            continue
        kind = "bound" if row["kind"] == "intact" else "less" if lost > 0 else "more" if lost < 0 else "same"
        note = f"{percentage_text(lost)} lost" if lost > 0 else "" if row["kind"] == "intact" else "nothing lost"
        bars.append(Bar(f"{row['failure']}{alike}", row["algbw"], f"{row['algbw']:.2f}", kind, note))
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


def _bound_of(
    network: Topology, widths: Mapping[tuple[str, str], Fraction], collective: Collective, request: Mapping[str, Any]
) -> Bound:
    changed: Bound = bound(network.with_bandwidths(widths), collective, **request)
    return changed


def _unless_refused(answer: Callable[[], Found]) -> Found | None:
    """Return an answer, or None where there is none."""
    try:
        return answer()
    except ColloptError:
        return None
