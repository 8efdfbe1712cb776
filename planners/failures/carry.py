"""Plans carried to another network by a renaming of nodes, under which both networks are equal."""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import singledispatch
from typing import Any, cast

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Allreduce, Bound, FlowSchedule, Forest, Schedule
from ...schedules.trees.symmetric_forest import SymmetricForest
from ...support.arrays import IntArray
from ...topologies import Topology
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace


def carried_plan(plan: Plan, topology: Topology, names: Mapping[str, str]) -> Plan:
    """Carry a plan to a network, and verify it there; `names` has the new name of every node that the plan has."""
    image = np.array([topology.node_index[names[node]] for node in plan.topology.nodes])
    ranks = image[: topology.num_ranks]
    old = plan.bound
    # Of an all-to-all(v) weights are about pairs.
    weights = old.weights if len(old.weights) != len(ranks) else tuple(_by_rank(old.weights, ranks))
    witness: Any = old.witness
    renamed = {each.name: _renamed(getattr(witness, each.name), names) for each in fields(witness)}
    renamed |= {name: tuple(_by_rank(renamed[name], ranks)) for name in witness.by_rank if renamed[name]}
    bound = Bound(topology, plan.collective, old.inverse_rate, replace(witness, **renamed), weights)
    schedule = _carried(plan.schedule, image)
    return proved_plan(topology, plan.collective, schedule, plan.planner, plan.options, Trace(), bound)


def _by_rank(values: Any, ranks: IntArray) -> list[Any]:
    """Sort what is given for every rank by their new numbers."""
    return [values[rank] for rank in np.argsort(ranks).tolist()]


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Rename nodes wherever they are in a witness, whose only texts they are."""
    if isinstance(value, str):
        return names[value]
    if isinstance(value, frozenset | tuple):
        parts = [_renamed(each, names) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if hasattr(value, "__dataclass_fields__"):
        return replace(value, **{each.name: _renamed(getattr(value, each.name), names) for each in fields(value)})
    return value


@singledispatch
def _carried(schedule: Schedule, image: IntArray) -> Schedule:  # noqa: ARG001
    """Number the nodes of a schedule anew; `image`, int64 (nodes,), has the new number of each."""
    raise UnsupportedError(
        f"a schedule of {schedule.parts} cannot be carried to failures that are alike; plan for each"
    )


@_carried.register
def _forest(schedule: Forest, image: IntArray) -> Forest:
    count, ranks = schedule.num_ranks, image[: schedule.num_ranks]
    routes, weights = schedule.routes.copy(), schedule.root_weights.copy()
    routes[:, ranks] = schedule.routes[:, :count]
    weights[ranks] = schedule.root_weights
    return replace(
        schedule,
        roots=ranks[schedule.roots],
        routes=routes,
        path_nodes=image[schedule.path_nodes],
        root_weights=weights,
        switches=image[schedule.switches],
    )


@_carried.register
def _allreduce(schedule: Allreduce, image: IntArray) -> Allreduce:
    reduce, broadcast = (cast("Forest", _carried(half, image)) for half in schedule.halves)
    return type(schedule)(reduce, broadcast)


@_carried.register
def _symmetric(schedule: SymmetricForest, image: IntArray) -> SymmetricForest:
    generators = schedule.generators.copy()
    generators[:, image] = image[schedule.generators]
    return replace(schedule, base=_forest(schedule.base, image), generators=generators)


@_carried.register
def _flow(schedule: FlowSchedule, image: IntArray) -> FlowSchedule:
    traffic, ranks = schedule.traffic.copy(), image[: schedule.num_ranks]
    traffic[np.ix_(ranks, ranks)] = schedule.traffic
    return replace(schedule, path_nodes=image[schedule.path_nodes], traffic=traffic)
