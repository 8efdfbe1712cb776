"""When links are busy with what, in a run that figures and tables show."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...planners import Plan
from ...runtime import Simulation, simulate
from ...schedules import Allreduce, FlowSchedule, Forest, Schedule, TreeSchedule
from ...support.arrays import IntArray
from ...support.validation import shown
from .tree_hops import numbered

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_SLICES = 8
"""Enough to see a pipeline, and few enough to draw."""
MOST_EVENTS = 2**22
"""Of a run with slices that nobody chose: seconds of work."""
ALIKE = 1e-9
"""Links that are busy for times this close, as shares of the longest, are equally busy."""


class Busiest(NamedTuple):
    """Links that are busy for the longest time, and how many more there are.

    `links`: Their numbers: the busiest first, and of equally busy ones the first of the network.
    `as_busy`, `less_busy`: Links that are left out: as busy as the last of these, and less busy.
    """

    links: IntArray
    as_busy: int
    less_busy: int

    @property
    def sentence(self) -> str:
        """What is shown and what is not; empty if everything is shown."""
        left = self.as_busy + self.less_busy
        if not left:
            return ""
        rule = "the busiest first, ties in the order of the network"
        counts = {"equally busy": self.as_busy, "less busy": self.less_busy}
        rest = ", ".join(f"{count} {words}" for words, count in counts.items() if count)
        return f"Shown are {len(self.links)} of {len(self.links) + left} links: {rule}. Left out: {rest}."


def step_run(plan: Plan, size: int | str, slices: int | None = None) -> Simulation:
    """Run a plan as figures show it: steps wait for each other, and other data flows in a few slices."""
    if not isinstance(plan, Plan):
        raise UnsupportedError(f"the plan is {shown(plan)}; expected a Plan")
    if not plan.schedule.pipelined:
        return simulate(plan, size, slices, steps="wait")
    if slices is None:
        slices = max(1, min(DEFAULT_SLICES, MOST_EVENTS // max(_hops(plan.schedule), 1)))
    return numbered(plan.schedule, simulate(plan, size, slices))


def busiest(run: Simulation, most: int) -> Busiest:
    """Choose at most so many of the links that a run uses."""
    table = run.link_busy
    used = np.flatnonzero(table["pieces"].to_numpy() > 0)
    busy = table["busy_us"].to_numpy()[used]
    # Sums of floats differ in their last digits where the times that they stand for are the same.
    levels = np.round(busy / busy.max() / ALIKE)
    order = np.argsort(-levels, kind="stable")
    chosen, left = order[:most], levels[order[most:]]
    as_busy = int((left == levels[chosen[-1]]).sum())
    return Busiest(used[chosen], as_busy, len(left) - as_busy)


def busy_times(run: Simulation, links: IntArray | None = None) -> pd.DataFrame:
    """List when links carry what.

    Shapes: `links` int64 (links,).
    """
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
    return _without_seams(pieces)


@singledispatch
def _hops(schedule: Schedule) -> int:
    """Links that data passes, one by one: the events of a run in one slice, as far as that is known without one."""
    return schedule.num_ranks * schedule.depth


@_hops.register(FlowSchedule)
def _flow_hops(schedule: FlowSchedule) -> int:
    return len(schedule.steps)


@_hops.register(Forest)
@_hops.register(Allreduce)
def _tree_hops(schedule: TreeSchedule) -> int:
    hops = 0
    for forest in schedule.forests:
        lengths = np.diff(forest.path_starts) - 1
        hops += int(lengths[forest.routes[forest.routes >= 0]].sum())
    return hops


def _without_seams(pieces: pd.DataFrame) -> pd.DataFrame:
    """Join pieces that follow each other on a link without a pause and belong to the same step."""
    ordered = pieces.sort_values(["tail", "head", "start_us"], kind="stable", ignore_index=True)
    before = ordered.shift()
    # Times are multiples of one tick, apart from what rounding does to their last digits.
    pause = (ordered["start_us"] - before["end_us"]).abs() > 1e-9 * ordered["end_us"].max()
    same = (ordered[["tail", "head", "step"]] == before[["tail", "head", "step"]]).all(axis=1)
    joined = ordered.groupby((pause | ~same).cumsum(), sort=False).agg(
        step=("step", "first"), tail=("tail", "first"), head=("head", "first"),
        start_us=("start_us", "first"), end_us=("end_us", "last"), bytes=("bytes", "sum"),
    )  # fmt: skip
    return joined.sort_values(["start_us", "tail", "head"], kind="stable", ignore_index=True)
