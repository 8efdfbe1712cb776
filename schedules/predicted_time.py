"""Predicted run time of a schedule."""

from __future__ import annotations

from fractions import Fraction

from ..errors import UnsupportedError
from ..support.validation import as_whole, shown
from ..topologies import Topology
from .paths.schedule import Schedule, is_verifiable


def schedule_time(
    schedule: Schedule,
    topology: Topology,
    num_bytes: int | str,
    slices: int | None = None,
    *,
    inverse_rate: Fraction | None = None,
) -> Fraction:
    """Time of a collective of `num_bytes` in all, in µs, by the alpha-beta model.

    Trees and the paths of flows are pipelined: the latency of the deepest path, and the bandwidth time, bytes over
    algbw.  With `slices`, data follows in that many pieces, so the last piece leaves the deepest of h hops
    ``(h - 1) / slices`` bandwidth times later; without, pieces are infinitely small.  Steps wait for each other; see
    `collopt.schedules.steps.cost.step_schedule_time`.

    Parameters
    ----------
    schedule : Schedule
        What is run.
    topology : Topology
        Where.
    num_bytes : int or str
        As nccl-tests counts them, such as ``"1M"``.
    slices : int, optional
        Pieces that the data of each tree or path is cut into; none for a schedule in steps.
    inverse_rate : Fraction, optional
        The congestion of trees or a flow, where it is known already.

    Returns
    -------
    Fraction

    Raises
    ------
    UnsupportedError
        If `slices` is not a whole number of at least 1, or the schedule has steps, whose data does not flow; if it is
        no schedule, or the bytes are not a positive whole number.

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.topologies import ring
    >>> two_way = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> schedule_time(two_way, ring(2, bandwidth=25, latency=3), 100_000)
    Fraction(4, 1)
    """
    if slices is not None:
        slices = as_whole(slices, "slices")
    if not is_verifiable(schedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected trees, steps or a flow")
    if slices is not None and not schedule.pipelined:
        raise UnsupportedError(
            f"slices is {shown(slices)}, but the schedule has steps that wait for each other; leave slices out"
        )
    return schedule.time(topology, num_bytes, slices, inverse_rate)
