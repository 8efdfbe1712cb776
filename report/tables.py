"""Tables of a plan: what was verified, its trees or steps, and how long its links are busy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..planners import Plan
from ..schedules import Bound, Forest, Witness, as_bytes, schedule_time
from ..schedules import busiest_links as bottleneck_links
from ..schedules.bounds.witness import WitnessView
from ..schedules.trees.tree_arrays import TreeArrays
from ..schedules.trees.tree_schedule import NO_SWITCH
from ..support.arrays import BoolArray, IntArray
from ..support.formatting import gap_text, percentage_text, rate_text
from ..support.validation import as_kind, as_several, shown
from ..topologies import Topology
from ..topologies.network.link_costs import as_costs

if TYPE_CHECKING:
    import pandas as pd

    from ..runtime import Simulation

DEFAULT_SLICES = 8  # Enough to see a pipeline, and few enough to draw
MAX_EVENTS = 2**20  # Of a run with slices that nobody chose: a few seconds of work
TIE_TOLERANCE = 1e-9  # Links that are busy for times this close, as shares of the longest, are equally busy
HOPS = "Hop 1 is sent first; each further hop waits for the ones before it."
REDUCE_FIRST = "Broadcast trees continue the hop numbers of the reduce trees."
BRANCHES = "Where a tree branches at a switch, the ways to the switch and from it are parts of one hop."
STEPS = "Step 1 is sent first."  # What pages say of these numbers, and of those of steps
Model = Literal["estimate", "simulate"]
NS_PER_US = 1000
MAX_WORK = 2**30  # Ranks, times trees, times hops of the highest: adding up latencies takes about a nanosecond for each


def check_rows(checked: Plan, origin: str) -> dict[str, str]:
    """List what `Plan.verify` has checked, one line each."""
    network, bound = checked.topology, checked.bound
    return {
        "bound": f"{bound.witness.reason(network, checked.collective)}; {bound_text(checked)}",
        **checked.schedule.checks(),
        "links": f"{network.num_links} link loads{'' if checked.schedule.pipelined else ' of each step'} match the "
        f"stated ones; algbw {rate_text(checked.algbw)}",
        "optimality gap": optimality(checked),
        "network": f"{network.name}, digest {network.digest[:12]}, {origin}",
    }


def bound_text(plan: Plan) -> str:
    """State the bound of all schedules, and beside it the one of some, if there is one."""
    scoped = plan.scoped_bound
    return f"algbw at most {rate_text(plan.bound.algbw)}" + (
        f"; {rate_text(scoped.algbw)} for {scoped.scope}" if scoped else ""
    )


def optimality(plan: Plan) -> str:
    """Say how far a plan is from the bound of all schedules, and from that of some."""
    scoped = plan.scoped_bound
    missed = percentage_text(plan.scoped_gap) if plan.scoped_gap else "0"
    return gap_text(plan.gap) + (f"; {missed} for {scoped.scope}" if scoped else "")


def schedule_rows(plan: Plan) -> dict[str, str]:
    """Describe steps, a flow, or trees and what switches could save of their traffic."""
    busiest = f"{busiest_links(plan)} of {plan.topology.num_links}"
    # What sets the rate of trees and paths is what never rests at it.
    busiest += ", 100 % utilized" if plan.schedule.pipelined else ", each in at least one step"
    rows = plan.schedule.rows(plan.topology, {"busiest links": busiest})
    if rows.get("in-network") == NO_SWITCH and plan.gap and plan.topology.aggregation:
        # Whoever sees a gap has to know that it may be to what such switches alone can do.
        rows["in-network"] += "; the bound assumes that they do"
    return rows


def busiest_links(plan: Plan) -> int:
    """Count the bottleneck links of a plan, or of each of its steps."""
    busiest = (bottleneck_links(loads, plan.topology) for loads in np.atleast_2d(plan.link_loads))
    return len(set().union(*(links.tolist() for links in busiest)))


class Busiest(NamedTuple):
    """The busiest links by number, the first of equally busy ones, and how many others are as busy, or less."""

    links: IntArray
    as_busy: int
    less_busy: int

    @property
    def sentence(self) -> str:
        """Describe which links are shown; empty if all are."""
        left = self.as_busy + self.less_busy
        if not left:
            return ""
        rule = "the busiest first, ties in the order of the network"
        counts = {"equally busy": self.as_busy, "less busy": self.less_busy}
        counted = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        return f"Shown are {len(self.links)} of {len(self.links) + left} links: {rule}. Left out: {counted}."


def step_run(plan: Plan, size: int | str, slices: int | None = None) -> Simulation:
    """Simulate a plan for figures: steps are synchronous, other schedules use a few slices."""
    from ..runtime import simulate

    as_kind(plan, Plan, "the plan")
    if not plan.schedule.pipelined:
        return simulate(plan, size, slices, steps="wait")
    if slices is None:
        slices = max(1, min(DEFAULT_SLICES, MAX_EVENTS // max(plan.schedule.num_hops, 1)))
    run = simulate(plan, size, slices)
    return replace(run, transfers=replace(run.transfers, levels=plan.schedule.hop_numbers(run.transfers)))


def busiest(run: Simulation, limit: int) -> Busiest:
    """Choose at most so many of the links that a run uses."""
    table = run.link_busy
    used = np.flatnonzero(table["pieces"].to_numpy() > 0)
    busy = table["busy_us"].to_numpy()[used]
    # Sums of floats differ in their last digits where the times that they stand for are the same.
    levels = np.round(busy / busy.max() / TIE_TOLERANCE)
    order = np.argsort(-levels, kind="stable")
    links, left = order[:limit], levels[order[limit:]]
    as_busy = int((left == levels[links[-1]]).sum())
    return Busiest(used[links], as_busy, len(left) - as_busy)


def busy_times(run: Simulation, links: IntArray | None = None) -> pd.DataFrame:
    """Tabulate the busy times of links, int64 (links,)."""
    import pandas as pd

    sent, topology = run.transfers, run.topology
    hops = np.arange(len(sent.hop_links)) if links is None else np.flatnonzero(np.isin(sent.hop_links, links))
    hops = np.repeat(hops, run.slices)
    starts = run.starts[hops[:: run.slices]].ravel()
    owners, used = sent.hop_owners[hops], sent.hop_links[hops]
    names, tick = np.array(topology.nodes, dtype=object), float(run.times.tick)
    amounts = sent.amounts[owners].astype(np.float64) * float(run.num_bytes * sent.unit / run.slices)
    pieces = pd.DataFrame(
        {
            "step": sent.levels[owners] + 1,
            "tail": names[topology.arrays.tails[used]],
            "head": names[topology.arrays.heads[used]],
            "start_us": starts.astype(np.float64) * tick,
            "end_us": (starts + run.times.ticks[hops]).astype(np.float64) * tick,
            "bytes": amounts,
        }
    )
    return _merge_adjacent(pieces)


def _merge_adjacent(pieces: pd.DataFrame) -> pd.DataFrame:
    """Join pieces that follow each other on a link without a pause and belong to the same step."""
    ordered = pieces.sort_values(["tail", "head", "start_us"], kind="stable", ignore_index=True)
    before = ordered.shift()
    # Times are multiples of one tick, apart from what rounding does to their last digits.
    pause = (ordered["start_us"] - before["end_us"]).abs() > 1e-9 * ordered["end_us"].max()
    equal = (ordered[["tail", "head", "step"]] == before[["tail", "head", "step"]]).all(axis=1)
    joined = ordered.groupby((pause | ~equal).cumsum(), sort=False).agg(
        step=("step", "first"), tail=("tail", "first"), head=("head", "first"),
        start_us=("start_us", "first"), end_us=("end_us", "last"), bytes=("bytes", "sum"),
    )  # fmt: skip
    return joined.sort_values(["start_us", "tail", "head"], kind="stable", ignore_index=True)


class TreeHop(NamedTuple):
    """A hop of a tree from rank to rank, or the part of one to or from a switch where the tree branches."""

    number: int  # From 1
    path: tuple[int, ...]  # Node numbers in the order in which data passes them
    depth: int  # Hops between the root and the farther one of the two ends
    looped: bool  # Whether a switch also loops a copy back, over the same nodes the other way


def tree_hops(forest: TreeArrays, tree: int, before: int = 0, looped: BoolArray | None = None) -> Iterator[TreeHop]:
    """Yield the hops of a tree, each after those that it waits for; `looped` is as of `Forest.looped`."""
    ranks, edges, outwards = forest.num_ranks, list(forest.edges(tree)), forest.direction == "broadcast"
    depths = {int(forest.roots[tree]): 0}
    for edge in edges:
        depths[edge.head] = depths.get(edge.tail, 0) + (edge.tail < ranks)
    copied = set() if looped is None else set(forest.switches[looped[tree, ranks:]].tolist())
    # The hop that brings a vertex the last of what it waits for; a switch sends in that same hop.
    came: dict[int, int] = {}
    for edge in edges if outwards else reversed(edges):
        sender, receiver = (edge.tail, edge.head) if outwards else (edge.head, edge.tail)
        number = came.get(sender, before) + (sender < ranks)
        came[receiver] = max(came.get(receiver, before), number)
        yield TreeHop(number, edge.path if outwards else edge.path[::-1], depths[edge.head], edge.head in copied)


def link_table(plan: Plan) -> pd.DataFrame:
    """Tabulate the load of a plan on each link.

    Returns
    -------
    DataFrame
        One row per link: ``tail``, ``head``, ``bandwidth_gbps``, ``latency_us``; ``in_cut``, as in `bound_links`;
        ``load``, the bytes that it carries as a share of all data, which can be more than 1; ``utilization``, the share
        of the time at `Plan.algbw` for which it is busy, 0 to 1.

    Examples
    --------
    Three of the four shards pass every link of a ring that goes one way, all the time:

    >>> import collopt
    >>> ring = collopt.topologies.ring(4, bandwidth=10, bidirectional=False)
    >>> link_table(collopt.plan(ring, "allgather")).iloc[0].to_dict()
    {'tail': 'gpu0', 'head': 'gpu1', 'bandwidth_gbps': 10.0, 'latency_us': 0.0, 'in_cut': False, 'load': 0.75, \
'utilization': 1.0}
    """
    as_kind(plan, Plan, "the plan")
    table = bound_links(plan.bound)
    schedule = plan.schedule
    loads = [Fraction(0)] * plan.topology.num_links
    for row, unit in zip(np.atleast_2d(plan.link_loads), schedule.load_units, strict=True):
        for link in np.flatnonzero(row).tolist():
            loads[link] += Fraction(int(row[link]), unit * schedule.total_weight)
    rates = [float(load * plan.algbw / link.bandwidth) for load, link in zip(loads, plan.topology.links, strict=True)]
    return table.assign(load=[float(load) for load in loads], utilization=rates)


def tree_table(plan: Plan, root: int | str | None = None) -> pd.DataFrame:
    """List the hops of a plan's trees.

    Raises `UnsupportedError` if the plan is not of trees, or has none of this root.

    Parameters
    ----------
    plan : Plan
        Of trees.
    root : int or str, optional
        Only the trees of this rank, which is given by number or name.

    Returns
    -------
    DataFrame
        One row per hop, or part of one to or from a switch, each after those that it waits for: ``phase``, reduce or
        broadcast; ``root``; ``tree``, its number among those of the root in this phase, from 1; ``weight``, its share
        of all data; ``tail`` and ``head``, which send and receive; ``via``, the switches between them, separated by
        blanks; ``hop``, 1 for what is sent first and one more than the last hop that it waits for otherwise; ``depth``,
        hops between the root and the farther one of the two, both counted from rank to rank; ``looped``, whether the
        switch also loops a copy back.

    Examples
    --------
    >>> import collopt
    >>> trees = tree_table(collopt.plan(collopt.topologies.ring(3, bidirectional=False), "allgather"), root=0)
    >>> print(trees.drop(columns=["via", "looped"]).round(2).to_string(index=False))
        phase root  tree  weight tail head  hop  depth
    broadcast gpu0     1    0.33 gpu0 gpu1    1      1
    broadcast gpu0     1    0.33 gpu1 gpu2    2      2
    """
    import pandas as pd

    as_kind(plan, Plan, "the plan")
    rank = None if root is None else _root(plan, root)
    counted = zip(plan.trees.forests, plan.trees.hops_before, strict=True)
    rows = [row for forest, before in counted for row in _forest_rows(forest, before, plan.topology, rank)]
    columns = ["phase", "root", "tree", "weight", "tail", "head", "via", "hop", "depth", "looped"]
    return pd.DataFrame(rows, columns=columns)


def step_table(plan: Plan, size: int | str, slices: int | None = None) -> pd.DataFrame:
    """Tabulate the busy times of links, from a simulation with synchronous steps.

    Parameters
    ----------
    plan : Plan
        With any schedule.
    size : int or str
        Bytes in all, such as ``2**30`` or ``"1G"``.
    slices : int, optional
        Pieces that the data of each tree or path of a flow is cut into, by default 8 or fewer; steps take none.

    Returns
    -------
    DataFrame
        One row for each time that a link is busy with one step without a pause, by time: ``step``, from 1, which for
        trees is the hop as `tree_table` numbers it; ``tail``, ``head``; ``start_us``, ``end_us``; ``bytes``.

    Examples
    --------
    >>> import collopt
    >>> kautz = collopt.topologies.kautz(2, 1, bandwidth=10)
    >>> print(step_table(collopt.plan(kautz, "allgather", planner="bfb"), "600K").head(2).to_string(index=False))
     step tail head  start_us  end_us    bytes
        1 gpu0 gpu2       0.0   10.24 102400.0
        1 gpu0 gpu3       0.0   10.24 102400.0
    """
    return busy_times(step_run(plan, size, slices))


def curve_table(
    plans: Iterable[Plan] | Mapping[str, Plan], sizes: Iterable[int | str], *, model: Model = "estimate"
) -> pd.DataFrame:
    """Predict the times of plans for several amounts of data.

    Parameters
    ----------
    plans : iterable of Plan, or mapping of str to Plan
        The names of a mapping stand in the table in the place of the planners'.
    sizes : iterable of int or str
        Bytes in all, such as ``["1M", "1G"]``.
    model : {"estimate", "simulate"}
        `Plan.estimate`, or `collopt.runtime.simulate`.

    Returns
    -------
    DataFrame
        One row per plan and size: ``planner``; ``size`` in bytes; ``time_us``; ``algbw_gbps`` and ``busbw_gbps``, as in
        nccl-tests; ``bound_gbps``, the algbw that no schedule exceeds.

    Examples
    --------
    >>> import collopt
    >>> plan = collopt.plan(collopt.topologies.ring(4, bandwidth=25, latency=1), "allgather")
    >>> print(curve_table([plan], ["64K", "64M"]).round(1).to_string(index=False))
       planner     size  time_us  algbw_gbps  busbw_gbps  bound_gbps
    forestcoll    65536      3.0        22.0        16.5        66.7
    forestcoll 67108864   1008.6        66.5        49.9        66.7
    """
    import pandas as pd

    if model not in ("estimate", "simulate"):
        raise UnsupportedError(f"the model is {shown(model)}; expected 'estimate' or 'simulate'")
    named = _named(plans)
    amounts = [as_bytes(size) for size in as_several(sizes, "sizes")]
    if not amounts:
        raise UnsupportedError("sizes is empty; expected several, such as ['1M', '1G']")
    rows = []
    for name, plan in named:
        if model == "estimate":
            times = predicted_times(plan, amounts)
        else:
            from ..runtime import simulate

            times = [simulate(plan, size).microseconds for size in amounts]
        for size, time in zip(amounts, times, strict=True):
            rate = size / time / NS_PER_US
            bus = rate * float(plan.busbw / plan.algbw)
            rows.append((name, size, time, rate, bus, float(plan.bound.algbw)))
    return pd.DataFrame(rows, columns=["planner", "size", "time_us", "algbw_gbps", "busbw_gbps", "bound_gbps"])


def _named(plans: Any) -> list[tuple[str, Plan]]:
    """Pair plans with names."""
    if isinstance(plans, Mapping):
        named = [(str(name), plan) for name, plan in plans.items()]
    else:
        named = [(getattr(plan, "planner", ""), plan) for plan in as_several(plans, "plans")]
    for _, plan in named:
        as_kind(plan, Plan, "the plan")
    if not named:
        raise UnsupportedError("plans is empty; expected at least one plan")
    return named


def _root(plan: Plan, root: object) -> int:
    """Find the number of a rank that has trees."""
    ranks = plan.topology.compute_nodes
    roots = set(np.concatenate([forest.roots for forest in plan.trees.forests]).tolist())
    number = plan.topology.node_index.get(root) if isinstance(root, str) else root
    if isinstance(number, int) and not isinstance(number, bool) and number in roots:
        return number
    raise UnsupportedError(
        f"root is {shown(root)}, which has no trees; expected the number or name of a rank, such as {ranks[min(roots)]}"
    )


def _forest_rows(
    forest: Forest, before: npt.NDArray[np.int64], topology: Topology, rank: int | None
) -> Iterable[tuple[str, str, int, float, str, str, str, int, int, bool]]:
    """Rows of `tree_table` for one forest, or only for one root in it."""
    names, total = topology.nodes, forest.trees_per_root * forest.total_weight
    looped = forest.looped(topology)
    numbers: dict[int, int] = {}
    trees = np.arange(forest.num_trees) if rank is None else np.flatnonzero(forest.roots == rank)
    for tree in trees.tolist():
        root, weight = int(forest.roots[tree]), int(forest.weights[tree])
        number = numbers[root] = numbers.get(root, 0) + 1
        for hop in tree_hops(forest, tree, int(before[tree]), looped):
            path = [names[node] for node in hop.path]
            yield (
                forest.direction, names[root], number, weight / total, path[0], path[-1], " ".join(path[1:-1]),
                hop.number, hop.depth, hop.looped,
            )  # fmt: skip


def predicted_times(plan: Plan, sizes: Sequence[int | str]) -> list[float]:
    """Predict times as `Plan.estimate` does, in µs."""
    costs = as_costs(None, plan.topology)
    if not plan.schedule.pipelined or costs.send:
        return [plan.estimate(size) for size in sizes]
    # Latency does not depend on the size, and the rest is proportional to it.
    amounts = list(map(as_bytes, sizes))
    first = min(amounts)
    start, double = (
        schedule_time(plan.schedule, plan.topology, size, inverse_rate=plan.inverse_rate, costs=costs)
        for size in (first, 2 * first)
    )
    return [float(start + (double - start) * Fraction(size - first, first)) for size in amounts]


def is_predictable(plan: Plan) -> bool:
    """Whether `predicted_times` takes seconds; with very many trees it would take minutes."""
    trees = plan.schedule.num_trees
    return not trees or plan.topology.num_ranks * trees * plan.heights.highest <= MAX_WORK


def bound_links(bound: Bound) -> pd.DataFrame:
    """Tabulate the links of a bound's topology, and which of them limit the collective.

    Returns
    -------
    DataFrame
        One row per link: ``tail``, ``head``, ``bandwidth_gbps``, ``latency_us``, and ``in_cut``, whether the bound's
        witness adds up its bandwidth.

    Examples
    --------
    >>> import collopt
    >>> bound = collopt.bound(collopt.topologies.dgx_a100(boxes=4), "allgather")
    >>> links = bound_links(bound)
    >>> int(links["in_cut"].sum()), float(links[links["in_cut"]]["bandwidth_gbps"].sum())
    (8, 200.0)
    """
    import pandas as pd

    counted = witness_view(bound).links
    links = bound.topology.links
    return pd.DataFrame(
        {
            "tail": [link.tail for link in links],
            "head": [link.head for link in links],
            "bandwidth_gbps": [float(link.bandwidth) for link in links],
            "latency_us": [float(link.latency) for link in links],
            "in_cut": [(link.tail, link.head) in counted for link in links],
        }
    )


def witness_view(bound: Bound) -> WitnessView:
    """Return the `WitnessView` of a bound; raises as `bound_links`."""
    as_kind(bound, Bound, "the bound")
    if not isinstance(bound.witness, Witness):
        raise UnsupportedError(
            f"the bound's witness is {shown(bound.witness)}; expected a cut, a partition, dual values or dual lengths"
        )
    return bound.witness.view(bound.topology, bound.collective)
