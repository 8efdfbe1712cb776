"""What was checked of a plan, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...schedules import AnyStepSchedule, FlowSchedule
from ...support.formatting import count_text
from ...support.wording_part import gap, rate

if TYPE_CHECKING:
    from ...planners import Plan
    from ...schedules import Forest, StepSchedule

__all__ = ["check_rows"]


def check_rows(checked: Plan, origin: str) -> dict[str, str]:
    """Say what `Plan.verify` has checked, one line each.

    Parameters
    ----------
    checked : Plan
        One that has been verified.
    origin : str
        Where the network comes from, as the end of a sentence about it.

    Returns
    -------
    dict
        By a word for what each line is about.
    """
    network, bound = checked.topology, checked.bound
    return {
        "bound": f"{bound.witness.reason(network, checked.collective)}, so {rate(bound.algbw)} at most",
        **_schedule_checks(checked),
        "gap": gap(checked.gap),
        "network": f"{network.name}, digest {network.digest[:12]}, {origin}",
    }


def _schedule_checks(checked: Plan) -> dict[str, str]:
    schedule, network = checked.schedule, checked.topology
    speed = rate(checked.algbw)
    if isinstance(schedule, AnyStepSchedule):
        done = {"allgather": "have every shard", "reduce_scatter": "have their sums"}
        holds = done.get(checked.collective, "have all sums")
        return {
            "routes": f"{_paths(schedule.schedules)} paths follow links and pass only switches",
            "steps": f"after {count_text(schedule.num_steps, 'step')} all {network.num_ranks} ranks {holds}; "
            f"none of {count_text(schedule.num_sends, 'send')} comes before what it passes on",
            "links": f"{len(network.links)} loads of each step are as stated, which makes {speed}",
        }
    if isinstance(schedule, FlowSchedule):
        return {
            "routes": f"{schedule.num_paths} paths follow links and pass no node twice",
            "traffic": f"all {network.num_ranks} ranks get their parts of what each other has, whole and once",
            "links": f"{len(network.links)} loads are as stated, which makes {speed}",
        }
    shard = "the part that it adds up" if checked.collective == "allreduce" else "its shard"
    return {
        "routes": f"{_paths(schedule.forests)} paths follow links and pass only switches",
        "trees": f"{schedule.num_trees} trees reach all {network.num_ranks} ranks; "
        f"those of each root weigh {schedule.forests[-1].trees_per_root} per unit of {shard}",
        "links": f"{len(network.links)} loads are as stated, which makes {speed}",
    }


def _paths(parts: Sequence[Forest | StepSchedule]) -> int:
    return sum(len(part.path_starts) - 1 for part in parts)
