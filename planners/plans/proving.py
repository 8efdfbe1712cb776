"""Plans of schedules and bounds: their loads, their rate, and the verification of the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction

from ...schedules import Bound, Collective, Schedule, rate_of_loads
from ...topologies import Topology
from .plan import Plan
from .stages import Trace


def proved_plan(
    topology: Topology,
    collective: Collective,
    schedule: Schedule,
    planner: str,
    options: Mapping[str, int | str],
    trace: Trace,
    bound: Bound | Callable[[Fraction], Bound],
) -> Plan:
    """Add to a schedule its loads, its rate and a bound, which may be looked for given the rate; verify the whole."""
    with trace.stage("loads"):
        loads = schedule.link_loads(topology)
        rate = rate_of_loads(loads, schedule, topology)
    if not isinstance(bound, Bound):
        with trace.stage("bound"):
            bound = bound(rate)
    plan = Plan(topology, collective, schedule, bound, rate, loads, planner, options, trace.provenance)
    with trace.stage("verification"):
        plan.verify()
    return plan


def verified_plan(
    topology: Topology,
    collective: Collective,
    schedule: Schedule,
    planner: str,
    options: Mapping[str, int | str],
    trace: Trace,
    bound: Bound,
) -> Plan:
    """Do the same in one stage, where the bound is known."""
    with trace.stage("verification"):
        loads = schedule.link_loads(topology)
        rate = rate_of_loads(loads, schedule, topology)
        plan = Plan(topology, collective, schedule, bound, rate, loads, planner, options, trace.provenance)
        plan.verify()
    return plan
