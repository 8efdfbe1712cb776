"""Looks whether a schedule is for the collective that it is to be lowered for.

How a schedule is to be cut into steps, as all lowerings need to know.
"""

from __future__ import annotations

from functools import singledispatch
from typing import NamedTuple

from ...errors import UnsupportedError
from ...schedules import PAIR_COLLECTIVES, Collective, Schedule
from ..programs.layout import Layout
from ..programs.program import Program


class LoweringOptions(NamedTuple):
    """The options of `collopt.runtime.lowering.lower.lower`, which says what they mean."""

    max_steps: int
    max_count: int
    channels: int
    instances: int

    def borders(self, layout: Layout) -> frozenset[int]:
        """Chunks that no step may reach from below: where a shard begins, if instances are to divide it."""
        return frozenset(layout.blocks) if self.instances > 1 else frozenset()


@singledispatch
def lowered(schedule: Schedule, collective: Collective, options: LoweringOptions, name: str) -> Program:  # noqa: ARG001
    """Lower a schedule that is for the collective; every kind registers how, and all others are refused."""
    raise UnsupportedError(
        f"the schedule for {collective} is a {type(schedule).__name__}; only those made of trees, of steps or of "
        "paths can be lowered, and those of schedule_all_to_allv"
    )


def check_fitting(schedule: Schedule, collective: Collective) -> None:
    """Refuse a schedule that is not for this collective; what is none, `lowered` refuses."""
    if not isinstance(schedule, Schedule):
        return
    found = schedule.phases
    if bool(found) == collective.in_pairs:
        raise UnsupportedError(
            f"{collective} was requested, but the schedule is a {type(schedule).__name__}; a FlowSchedule or an "
            f"AllToAllvSchedule is for {' or '.join(map(str, PAIR_COLLECTIVES))}, and nothing else is"
        )
    if collective.has_one_root and not schedule.pipelined:
        raise UnsupportedError(
            f"{collective} was requested, but a schedule in steps is for shards of all ranks; expected allgather, "
            "reduce_scatter or allreduce, or a schedule made of trees"
        )
    if found != collective.phases:
        needs, has = (each[0] if len(each) == 1 else "both" for each in (collective.phases, found))
        raise UnsupportedError(
            f"{collective} was requested, but the schedule's {schedule.parts} are for {has}; {collective} needs {needs}"
        )
