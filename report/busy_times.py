"""When links are busy with what, in a run that figures and tables show."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ..errors import UnsupportedError
from ..planners import Plan
from ..runtime import Simulation, simulate
from ..schedules import AnyStepSchedule, FlowSchedule
from ..topologies.validation import shown

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["busiest_first", "busy_times", "step_run"]

DEFAULT_SLICES = 8
"""Enough to see a pipeline, and few enough to draw."""
MOST_EVENTS = 2**23
"""Of a run with slices that nobody chose: seconds of work."""


def step_run(plan: Plan, size: int | str, slices: int | None = None) -> Simulation:
    """Run a plan as figures show it: steps wait for each other, and other data flows in a few slices.

    Parameters
    ----------
    plan : Plan
        With any schedule.
    size : int or str
        Bytes in all.
    slices : int, optional
        By default 8, or fewer for plans of very many transfers; steps take none.

    Returns
    -------
    Simulation

    Raises
    ------
    UnsupportedError
        If an argument is not understood.
    """
    if not isinstance(plan, Plan):
        raise UnsupportedError(f"the plan is {shown(plan)}; expected a Plan")
    if plan.has_steps:
        return simulate(plan, size, slices, steps="wait")
    return simulate(plan, size, _few_slices(plan) if slices is None else slices)


def busiest_first(run: Simulation) -> npt.NDArray[np.int64]:
    """Return the numbers of the links that are used, by the time for which they are busy."""
    busy = run.link_busy
    order = busy["busy_us"].sort_values(ascending=False, kind="stable").index.to_numpy()
    used: npt.NDArray[np.int64] = order[busy["pieces"].to_numpy()[order] > 0].astype(np.int64)
    return used


def busy_times(run: Simulation, links: npt.NDArray[np.int64] | None = None) -> pd.DataFrame:
    """List when links carry what.

    Parameters
    ----------
    run : Simulation
        From `step_run`.
    links : ndarray of int64, shape (links,), optional
        Numbers of those that are wanted; all of them if left out.

    Returns
    -------
    DataFrame
        As of `collopt.report.step_table`.
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
            "step": sent.levels[owners],
            "tail": names[topology.arrays.tails[used]],
            "head": names[topology.arrays.heads[used]],
            "start_us": starts.astype(np.float64) * tick,
            "end_us": (starts + run.times.ticks[hops]).astype(np.float64) * tick,
            "bytes": amounts,
        }
    )
    return _without_seams(pieces)


def _few_slices(plan: Plan) -> int:
    """How many slices a run has time for."""
    schedule = plan.schedule
    assert not isinstance(schedule, AnyStepSchedule)  # These take none.
    if isinstance(schedule, FlowSchedule):
        hops = len(schedule.steps)
    else:
        hops = 0
        for forest in schedule.forests:
            lengths = np.diff(forest.path_starts) - 1
            hops += int(lengths[forest.routes[forest.routes >= 0]].sum())
    return max(1, min(DEFAULT_SLICES, MOST_EVENTS // max(hops, 1)))


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
