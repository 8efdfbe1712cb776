"""``collopt verify``: check a plan file and say what was checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import CertificateError
from ..schedules import AnyStepSchedule, FlowSchedule
from ..schedules.units import count_text
from .figures import plan_figures, witness_text
from .output import emit_json, emit_rows
from .parameters import (
    BoxesOption,
    JsonOption,
    NetworkOptions,
    NodesOption,
    PlanArgument,
    RanksOption,
    SetOption,
    ShapeOption,
    UsageError,
    WithoutOption,
)
from .progress import working
from .wording import gap, rate

if TYPE_CHECKING:
    from ..planners import Plan
    from ..schedules import Forest, StepSchedule

__all__ = ["verify"]

TopologyOption = Annotated[
    str | None,
    typer.Option(
        "--topology",
        metavar="TOPOLOGY",
        help="The network that the plan is to be used on: a name from `collopt topologies`, or the path of a file.",
        rich_help_panel="Network",
    ),
]


def verify(
    plan: PlanArgument,
    topology: TopologyOption = None,
    boxes: BoxesOption = None,
    nodes: NodesOption = None,
    shape: ShapeOption = None,
    ranks: RanksOption = None,
    settings: SetOption = None,
    without: WithoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check everything that a plan file claims, trusting nothing in it."""
    from ..planners import load_plan
    from .networks import find_network

    options = NetworkOptions(boxes, nodes, shape, ranks, settings, without)
    if topology is None and options.given():
        raise UsageError(f"{options.given()[0]} describes a network; give --topology too, or leave it out")
    network = None if topology is None else find_network(topology, options)
    try:
        with working(f"verifying {plan}"):
            checked = load_plan(plan, network)
    except CertificateError as error:
        if as_json:
            emit_json({"plan": str(plan), "verified": False, "reason": str(error)})
        raise
    if as_json:
        emit_json({"plan": str(plan), "verified": True, "compared": network is not None} | plan_figures(checked))
    else:
        title = f"{plan}: {checked.collective} on {checked.topology.name} by {checked.planner}, verified"
        emit_rows(title, _checks(checked, network is not None))


def _checks(checked: Plan, given: bool) -> dict[str, str]:
    """Say what has been checked, one line each."""
    network = checked.topology
    origin = "is the one given" if given else "comes from the file; --topology compares it with yours"
    return {
        "bound": f"{witness_text(checked.bound)}, so {rate(checked.bound.algbw)} at most",
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
