"""Text summary of a plan: its schedule, and what was verified."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from ..schedules import EVERY_SCHEDULE, AnyStepSchedule, FlowSchedule, Schedule, StagedFlow, TreeSchedule
from ..schedules.paths import congestion
from ..schedules.paths.schedule import RoutedSchedule
from ..schedules.steps.allreduce import StepExchange
from ..schedules.trees.symmetric_forest import SymmetricAllreduce, SymmetricForest
from ..support.formatting import count_text, gap_text, percentage_text, rate_text

if TYPE_CHECKING:
    from ..planners import Plan


def check_rows(checked: Plan, origin: str) -> dict[str, str]:
    """List what `Plan.verify` has checked, one line each."""
    network, bound = checked.topology, checked.bound
    return {
        "bound": f"{bound.witness.reason(network, checked.collective)}; algbw at most {rate_text(bound.algbw)}",
        **checks_of(checked.schedule, checked),
        "optimality gap": optimality(checked),
        "network": f"{network.name}, digest {network.digest[:12]}, {origin}",
    }


def optimality(plan: Plan) -> str:
    """Say how far a plan is from its bound, and what an optimum is one of if that is not all schedules."""
    scope = plan.bound.scope
    return gap_text(plan.gap) if plan.gap or scope == EVERY_SCHEDULE else f"0 (optimal of {scope})"


@singledispatch
def checks_of(schedule: Schedule, checked: Plan) -> dict[str, str]:
    """List the checks of a schedule; kinds of schedules register more specific ones."""
    return {schedule.parts: f"{schedule.size_text} do what {checked.collective} needs", "links": _loads(checked)}


@checks_of.register(AnyStepSchedule | StepExchange)
def _step_checks(schedule: AnyStepSchedule | StepExchange, checked: Plan) -> dict[str, str]:
    network = checked.topology
    holds = "have the reduced data" if checked.collective.has_two_phases else "have every shard"
    if checked.collective.output == "shard":
        holds = "have their reduced shard"
    sums = "no vector is added twice; " if isinstance(schedule, StepExchange) else ""
    return {
        "routes": f"{_paths(schedule.schedules)} paths follow existing links and pass through switches only",
        "steps": f"all {network.num_ranks} ranks {holds} after {count_text(schedule.num_steps, 'step')}; "
        + sums
        + f"each of {count_text(schedule.num_sends, 'send')} forwards only data that has arrived",
        "links": f"{len(network.links)} link loads of each step match the stated ones; "
        f"algbw {rate_text(checked.algbw)}",
    }


@checks_of.register(FlowSchedule)
def _flow_checks(schedule: FlowSchedule, checked: Plan) -> dict[str, str]:
    return {
        "routes": f"{schedule.num_paths} paths follow existing links and visit no node twice",
        "traffic": f"all {checked.topology.num_ranks} ranks receive all data meant for them exactly once",
        "links": _loads(checked),
    }


@checks_of.register(StagedFlow)
def _staged_checks(schedule: StagedFlow, checked: Plan) -> dict[str, str]:
    partners = f"in none of {count_text(schedule.num_steps, 'step')} has a rank two partners in other servers"
    return _flow_checks(schedule, checked) | {"stages": partners}


@checks_of.register(TreeSchedule)
def _tree_checks(schedule: TreeSchedule | SymmetricForest, checked: Plan) -> dict[str, str]:
    shard = "share of the data" if checked.collective.has_two_phases else "shard"
    count = len(branching_switches(schedule))
    able = f"; {count} of {count} switches where they branch can copy or add" if count else ""
    return {
        "routes": f"{_paths(schedule.forests)} paths follow existing links and pass through switches only",
        "trees": f"{schedule.num_trees} trees span all {checked.topology.num_ranks} ranks; "
        f"tree weights sum to {schedule.forests[-1].trees_per_root} per unit of each root's {shard}{able}",
        "links": _loads(checked),
    }


@checks_of.register(SymmetricForest | SymmetricAllreduce)
def _symmetric_checks(schedule: SymmetricForest | SymmetricAllreduce, checked: Plan) -> dict[str, str]:
    products = checked.topology.num_ranks // int(np.count_nonzero(schedule.forests[-1].root_weights))
    kept = f"generators commute and keep links and bandwidths; 1 of their {products} products fixes a rank"
    return {"symmetries": kept} | _tree_checks(schedule, checked)


def _loads(checked: Plan) -> str:
    return f"{checked.topology.num_links} link loads match the stated ones; algbw {rate_text(checked.algbw)}"


def _paths(parts: Sequence[RoutedSchedule]) -> int:
    return sum(len(part.path_starts) - 1 for part in parts)


def schedule_rows(made: Plan) -> dict[str, str]:
    """Describe steps, a flow, or trees and what switches could save of their traffic."""
    busiest = f"{busiest_links(made)} of {made.topology.num_links}"
    # What sets the rate of trees and paths is what never rests at it.
    busiest += ", 100 % utilized" if made.schedule.pipelined else ", each in at least one step"
    return rows_of(made.schedule, made, {"busiest links": busiest})


@singledispatch
def rows_of(schedule: Schedule, made: Plan, busiest: dict[str, str]) -> dict[str, str]:  # noqa: ARG001
    """Describe a schedule and its busiest links; kinds of schedules register more specific ones."""
    return {schedule.parts: schedule.size_text, **busiest}


@rows_of.register(TreeSchedule)
def _tree_rows(schedule: TreeSchedule, made: Plan, busiest: dict[str, str]) -> dict[str, str]:
    return {
        "trees per root": _trees_per_root(schedule),
        "trees": f"{_trees(schedule)}, {hop_heights(made)}",
        **busiest,
        **_roots(made),
        **_savings(made),
    }


@rows_of.register(SymmetricForest | SymmetricAllreduce)
def _symmetric_rows(
    schedule: SymmetricForest | SymmetricAllreduce, made: Plan, busiest: dict[str, str]
) -> dict[str, str]:
    roots = count_text(int(np.count_nonzero(schedule.forests[-1].root_weights)), "representative")
    return {
        "trees per root": str(schedule.forests[-1].trees_per_root),
        "trees": f"{schedule.num_trees} distinct, {hop_heights(made)}",
        "written": f"{sum(forest.num_trees for forest in schedule.forests)} of them, of {roots}",
        **busiest,
    }


def busiest_links(plan: Plan) -> int:
    """Count the bottleneck links of a plan, or of each of its steps."""
    busiest = (congestion.busiest_links(loads, plan.topology) for loads in np.atleast_2d(plan.link_loads))
    return len(set().union(*(links.tolist() for links in busiest)))


@rows_of.register(AnyStepSchedule | StepExchange)
def _step_rows(schedule: AnyStepSchedule | StepExchange, made: Plan, busiest: dict[str, str]) -> dict[str, str]:  # noqa: ARG001
    """Count steps, those of both kinds where there are two, chunks and sends."""
    steps = f"{schedule.size_text}, {count_text(schedule.num_sends, 'send')}"
    if len(schedule.schedules) > 1:
        verbs = {"reduce": "reduce-scatter", "broadcast": "allgather"}
        steps += f" ({', '.join(f'{part.num_steps} {verbs[part.direction]}' for part in schedule.schedules)})"
    return {"steps": steps, **busiest}


@rows_of.register(FlowSchedule)
def _flow_rows(schedule: FlowSchedule, made: Plan, busiest: dict[str, str]) -> dict[str, str]:
    """Count paths, transfers and chunks, and the cost of synchronous steps."""
    transfers = schedule.transfers
    slower = schedule.step_rate(made.topology) / made.inverse_rate
    lost = "no slower" if slower == 1 else f"{float(slower):.2f} times as long"
    waiting = f"{lost} with a barrier after each step" if schedule.pipelined else "which wait for each other"
    return {
        "paths": f"{schedule.num_paths}, of {transfers.min()} to {transfers.max()} transfers each",
        "chunks per unit": f"{schedule.chunks_per_unit}",
        "steps": f"{schedule.num_steps}, {waiting}",
        **busiest,
    }


def _trees_per_root(schedule: TreeSchedule) -> str:
    """Count trees by weight, as planners do, unless roots differ: then a root's trees are as many as its part needs."""
    forest = schedule.forests[-1]
    if len(set(forest.root_weights[forest.root_weights > 0].tolist())) == 1:
        return str(forest.trees_per_root)
    different = np.unique(forest.roots, return_counts=True)[1]
    return f"{different.min()} to {different.max()} distinct trees, by the root's share of the data"


def _trees(schedule: TreeSchedule) -> str:
    """Count the different trees, and those of both kinds where there are two."""
    text = f"{schedule.num_trees} distinct"
    if len(schedule.forests) == 1:
        return text
    kinds = {"reduce": "reduce trees", "broadcast": "broadcast trees"}
    return f"{text} ({', '.join(f'{part.num_trees} {kinds[part.direction]}' for part in schedule.forests)})"


def hop_heights(made: Plan) -> str:
    """Say how many hops the lowest tree of a plan takes, and the highest."""
    heights = made.heights
    if heights.lowest == heights.highest:
        return f"height {count_text(heights.highest, 'hop')}"
    return f"height {heights.lowest} to {heights.highest} hops, mean {heights.mean:.1f}"


def _roots(made: Plan) -> dict[str, str]:
    """Roots of an allreduce, unless all ranks have equal shares."""
    weights, total = made.trees.root_weights.tolist(), made.trees.total_weight
    if not made.collective.has_two_phases or len(set(weights)) == 1:
        return {}
    parts = sorted({Fraction(weight, total) for weight in weights if weight})
    if parts == [1]:
        return {"roots": f"{made.topology.compute_nodes[weights.index(total)]} alone reduces all data"}
    each = " to ".join(f"{percentage_text(part)} ({part})" for part in dict.fromkeys((parts[0], parts[-1])))
    return {"roots": f"{sum(weight > 0 for weight in weights)} of {len(weights)} ranks reduce {each} of the data each"}


def branching_switches(schedule: TreeSchedule | SymmetricForest) -> frozenset[int]:
    """Numbers of the switches where trees branch."""
    return frozenset(node for forest in schedule.forests for node in forest.switches.tolist())


def _savings(made: Plan) -> dict[str, str]:
    """What switches with multicast or aggregation take off the links, if there are any."""
    if not (made.topology.multicast or made.topology.aggregation):
        return {}
    switches = branching_switches(made.trees)
    if not switches:
        # Who sees a gap has to know that it may be to what such switches alone can do.
        bounds = "; the bound assumes that they do" if made.gap and made.topology.aggregation else ""
        return {"in-network": f"no switch copies or adds{bounds}"}
    before = sum(int(forest.unicast.link_loads(made.topology).sum()) for forest in made.trees.forests)
    after = sum(int(forest.link_loads(made.topology).sum()) for forest in made.trees.forests)
    saved = percentage_text(1 - Fraction(after, before))
    who = "1 switch copies or adds" if len(switches) == 1 else f"{len(switches)} switches copy or add"
    return {"in-network": f"{who}, which saves {saved} of the traffic"}
