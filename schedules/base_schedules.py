"""The stored schedules of Diamond and the modified de Bruijn graphs as `StepSchedule`."""

from __future__ import annotations

from ..topologies.base_schedules import base_schedule_rows
from .step_schedule import StepSchedule

__all__ = ["base_schedule"]


def base_schedule(name: str) -> StepSchedule:
    """Return the bandwidth-optimal allgather that comes with a graph whose breadth-first ones are not.

    Parameters
    ----------
    name : str
        One of `collopt.topologies.base_schedule_names`.

    Returns
    -------
    StepSchedule

    Raises
    ------
    UnsupportedError
        If there is none.

    Examples
    --------
    >>> base_schedule("Diamond")
    <StepSchedule: allgather of 8 ranks, 3 steps, 2 chunks per shard, 112 sends>
    """
    stored = base_schedule_rows(name)
    # Steps are counted from 1 there.
    sends = (
        (step - 1, source, chunk, chunk + 1, (tail, head)) for source, chunk, tail, head, step in stored.rows.tolist()
    )
    return StepSchedule.from_sends(stored.graph.num_nodes, stored.chunks, sends)
