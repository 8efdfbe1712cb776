"""Key figures of a plan, as several commands report them."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from ...schedules import EVERY_SCHEDULE, AnyStepSchedule, Cut, FlowSchedule, Schedule, TreeSchedule
from ...schedules.bounds.bound import witness_to_json
from ...schedules.steps.allreduce import StepExchange

if TYPE_CHECKING:
    from ...planners import Plan
    from ...schedules import Bound, SizeBound


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Return the key figures of a plan for JSON; exact numbers are strings such as ``"15/166"``."""
    from ...report.summary import busiest_links

    return {
        **request_figures(plan),
        "planner": plan.planner,
        "options": dict(plan.options),
        **rates(plan),
        "busbw": float(plan.busbw),
        "bound": rates(plan.bound),
        "gap": str(plan.gap),
        "optimal": plan.gap == 0 and plan.bound.scope == EVERY_SCHEDULE,
        **_schedule_figures(plan.schedule, plan),
        "num_links": plan.topology.num_links,
        "busiest_links": busiest_links(plan),
    }


def request_figures(of: Plan | Bound | SizeBound) -> dict[str, Any]:
    """Return what was asked for, for JSON."""
    network = of.topology
    return {
        "topology": network.name,
        "digest": network.digest,
        "collective": str(of.collective),
        "num_ranks": network.num_ranks,
    }


def rates(of: Plan | Bound) -> dict[str, Any]:
    """Return the rate of a plan, or its bound, for JSON."""
    return {"inverse_rate": str(of.inverse_rate), "algbw": float(of.algbw), "algbw_exact": str(of.algbw)}


@singledispatch
def _schedule_figures(schedule: Schedule, plan: Plan) -> dict[str, Any]:  # noqa: ARG001
    """Return the figures of a schedule, by its kind."""
    return {"size": schedule.size_text}


@_schedule_figures.register(AnyStepSchedule)
def _step_figures(schedule: AnyStepSchedule, plan: Plan) -> dict[str, Any]:  # noqa: ARG001
    return {
        "num_steps": schedule.num_steps,
        "chunks_per_shard": [part.chunks_per_shard for part in schedule.schedules],
        "num_sends": schedule.num_sends,
    }


@_schedule_figures.register(StepExchange)
def _exchange_figures(schedule: StepExchange, plan: Plan) -> dict[str, Any]:  # noqa: ARG001
    return {"num_steps": schedule.num_steps, "chunks": schedule.chunks, "num_sends": schedule.num_sends}


@_schedule_figures.register(FlowSchedule)
def _flow_figures(schedule: FlowSchedule, plan: Plan) -> dict[str, Any]:
    return {
        "num_steps": schedule.num_steps,
        "chunks_per_unit": schedule.chunks_per_unit,
        "num_paths": schedule.num_paths,
        "max_transfers": schedule.depth,
        "step_rate": str(schedule.step_rate(plan.topology)),
    }


@_schedule_figures.register(TreeSchedule)
def _tree_figures(schedule: TreeSchedule, plan: Plan) -> dict[str, Any]:
    from ...report.summary import branching_switches

    return {
        "trees_per_root": schedule.forests[-1].trees_per_root,
        "root_weights": schedule.root_weights.tolist(),
        "num_trees": schedule.num_trees,
        "branching_switches": len(branching_switches(schedule)),
        "min_height": plan.heights.lowest,
        "mean_height": plan.heights.mean,
        "max_height": plan.heights.highest,
    }


def witness_text(bound: Bound) -> str:
    """Describe the witness of a bound in one line."""
    return bound.witness.reason(bound.topology, bound.collective)


def witness_figures(bound: Bound) -> dict[str, Any]:
    """Return the witness of a bound for JSON."""
    witness = bound.witness
    bandwidth = witness.crossing(bound.topology, bound.collective, bound.weights).bandwidth
    ranks = {"cut_ranks": witness.supply(bound.topology)} if isinstance(witness, Cut) else {}
    return {"cut_bandwidth": str(bandwidth), **witness_to_json(witness), **ranks}
