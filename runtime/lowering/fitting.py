"""Looks whether a schedule is for the collective that it is to be lowered for.

How a schedule is to be cut into steps, as all lowerings need to know.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import UnsupportedError
from ...schedules import (
    PAIR_COLLECTIVES,
    Allreduce,
    AllToAllvSchedule,
    AnySchedule,
    Collective,
    FlowSchedule,
    Forest,
    StepAllreduce,
    StepSchedule,
)
from ..programs.layout import Layout

__all__ = ["Lowerable", "LoweringOptions", "fitting"]


Lowerable = AnySchedule | AllToAllvSchedule
"""What there is a lowering for."""


def fitting(schedule: Lowerable, collective: Collective) -> Lowerable:
    """Return the schedule, or refuse one that is not for this collective."""
    if not isinstance(schedule, Lowerable):
        raise UnsupportedError(
            f"the schedule for {collective} is a {type(schedule).__name__}; only those made of trees, of steps or of "
            "paths can be lowered, and those of schedule_all_to_allv"
        )
    if isinstance(schedule, FlowSchedule | AllToAllvSchedule) or collective.in_pairs:
        if not isinstance(schedule, FlowSchedule | AllToAllvSchedule) or not collective.in_pairs:
            raise UnsupportedError(
                f"{collective} was asked for, but the schedule is a {type(schedule).__name__}; a FlowSchedule or an "
                f"AllToAllvSchedule is for {' or '.join(map(str, PAIR_COLLECTIVES))}, and nothing else is"
            )
        return schedule
    in_steps = isinstance(schedule, StepSchedule | StepAllreduce)
    if in_steps and collective.has_one_root:
        raise UnsupportedError(
            f"{collective} was asked for, but a schedule in steps is for shards of all ranks; expected allgather, "
            "reduce_scatter or allreduce, or a schedule made of trees"
        )
    wanted = "both" if collective.has_two_phases else collective.direction
    found = "both" if isinstance(schedule, Allreduce | StepAllreduce) else schedule.direction
    if found != wanted:
        raise UnsupportedError(
            f"{collective} was asked for, but the schedule's {'steps' if in_steps else 'trees'} are for {found}; "
            f"{collective} needs {wanted}"
        )
    if isinstance(schedule, Forest) and collective.has_one_root:
        roots = int((schedule.root_weights > 0).sum())
        if roots != 1:
            raise UnsupportedError(f"{collective} was asked for, but {roots} ranks have data; expected one, the root")
    return schedule


class LoweringOptions(NamedTuple):
    """The options of `collopt.runtime.lowering.lower.lower`, which says what they mean."""

    max_steps: int
    max_count: int
    channels: int
    instances: int

    def borders(self, layout: Layout) -> frozenset[int]:
        """Chunks that no step may reach from below: where a shard begins, if instances are to divide it."""
        return frozenset(layout.blocks) if self.instances > 1 else frozenset()
