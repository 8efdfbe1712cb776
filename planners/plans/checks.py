"""Parts of `Plan.verify`: what a plan is for, and what is said of one that does not keep its word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import CertificateError, TopologyError
from ...schedules import Allreduce, AnySchedule, AnyStepSchedule, FlowSchedule, StepAllreduce
from ...support.arrays import IntArray
from ...support.validation import shown
from ...topologies import Topology

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["check_network", "check_purpose", "refuse_loads"]


def check_network(plan: Plan, topology: Topology) -> None:
    """Raise `TopologyError` unless a plan is for this network; its name does not matter."""
    if not isinstance(topology, Topology):
        raise TopologyError(f"the topology is {shown(topology)}; expected the Topology to use the plan on")
    if topology.digest != plan.topology.digest:
        raise TopologyError(
            f"the plan was made for {plan.topology!r} (digest {plan.topology.digest[:12]}), not for {topology!r} "
            f"(digest {topology.digest[:12]}); plan again for this topology"
        )


def check_purpose(plan: Plan) -> None:
    """Raise `CertificateError` unless the schedule is of the collective's kind, for the shards of the bound."""
    schedule, collective = plan.schedule, plan.collective
    if not isinstance(schedule, AnySchedule):
        raise CertificateError(f"the plan's schedule is {shown(schedule)}; expected trees, steps or a flow")
    if isinstance(schedule, FlowSchedule) or collective.in_pairs:
        _check_flow(plan)
        return
    what = "steps" if isinstance(schedule, AnyStepSchedule) else "trees"
    twofold = isinstance(schedule, (Allreduce, StepAllreduce))
    if twofold != collective.has_two_phases or (
        not isinstance(schedule, (Allreduce, StepAllreduce)) and schedule.direction != collective.direction
    ):
        raise CertificateError(f"the plan's {what} are not of the kind that {collective.name!r} needs")
    if collective.has_two_phases:
        return  # every rank ends with all sums, so any roots will do
    weights = plan.bound.weights or (1,) * plan.topology.num_ranks
    # A schedule in steps does not list its shards: they are equal, and how many there are is yet to be checked.
    stated = [1] * len(weights) if isinstance(schedule, AnyStepSchedule) else schedule.root_weights.tolist()
    if stated != list(weights):
        raise CertificateError("the plan's shards are not those that its bound is about")


def _check_flow(plan: Plan) -> None:
    """Flows are for what pairs of ranks have for each other, and that is the bound's."""
    schedule, collective, weights = plan.schedule, plan.collective, plan.bound.weights
    if not isinstance(schedule, FlowSchedule) or not collective.in_pairs:
        kind = "flow is" if isinstance(schedule, FlowSchedule) else "schedule is"
        raise CertificateError(f"the plan's {kind} not of the kind that {collective.name!r} needs")
    traffic = np.ravel(schedule.traffic)
    alike = list(weights) == traffic.tolist() if weights else bool((traffic == 1).all())
    if not alike:
        raise CertificateError("the plan's traffic is not what its bound is about")


def refuse_loads(plan: Plan, loads: IntArray) -> None:
    """Raise `CertificateError` that tells the first difference between a plan's loads and these, the true ones."""
    stated, what = plan.link_loads, "copies" if plan.has_trees else "chunks"
    if stated.shape != loads.shape:
        raise CertificateError(_other_shape(stated, loads))
    place = tuple(np.argwhere(loads != stated)[0].tolist())
    link = plan.topology.links[place[-1]]
    puts = f"step {place[0]} puts" if plan.has_steps else f"the {'trees' if plan.has_trees else 'paths'} put"
    raise CertificateError(
        f"{puts} {loads[place]} {what} on the link from {link.tail!r} to {link.head!r}; the plan states {stated[place]}"
    )


def _other_shape(stated: IntArray, loads: IntArray) -> str:
    if stated.ndim == loads.ndim == 1:
        return f"the plan states {len(stated)} link loads; its topology has {len(loads)} links"
    return f"the plan states link loads of shape {stated.shape}; its schedule makes them of shape {loads.shape}"
