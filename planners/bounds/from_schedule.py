"""Plans from given schedules: their loads, rate and bound."""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import partial

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...schedules import COLLECTIVES, Bound, Collective, Cut, Partition, Schedule, Witness, verified_loads
from ...schedules.collective import AnyCollective, as_collective
from ...schedules.schedule import is_verifiable
from ...support.validation import is_int, shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..plans.plan import Plan, proved_plan
from ..plans.stages import Trace

WORD = re.compile(r"[A-Za-z0-9_.+-]{1,100}")  # what plan files take as the name of a planner or an option
MAX_INTEGER = 10**18


def plan_of_schedule(
    topology: Topology,
    collective: AnyCollective,
    schedule: Schedule,
    *,
    planner: str = "given",
    options: Mapping[str, int | str] | None = None,
) -> Plan:
    """Make a plan of a given schedule, and verify both.

    Such a plan can be saved, exported, run and compared like those of the planners.  `Plan.gap` says what the schedule
    misses.  Raises `UnsupportedError` if the schedule is none or not of the collective's kind, or a switch takes in and
    gives out different bandwidths, so that there is no bound to compare with; `CertificateError` if the schedule does
    not do what the collective asks for, or not on this topology.

    Parameters
    ----------
    topology : Topology
        That the schedule is on; its switches, if there are any, take in as much bandwidth as they give out.
    collective : str or Collective
        ``"allgather"``, ``"reduce_scatter"`` or ``"allreduce"``; of trees also ``"broadcast"`` or ``"reduce"``; of
        flows ``"all_to_all"``, ``"all_to_allv"`` or one that was registered.
    schedule : Schedule
        Trusted in nothing: for an allreduce one of those that consist of two parts, for an all-to-all(v) a flow, for
        the others one whose data run their way.
    planner : str
        Says in the plan and its files who made the schedule.
    options : mapping of str to int or str, optional
        What it was made with; kept in the plan and its files, and not used.

    Examples
    --------
    Two ranks that exchange their shards over links of 25 GB/s:

    >>> from collopt.schedules import StepSchedule
    >>> from collopt.topologies import complete
    >>> exchange = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
    >>> print(plan_of_schedule(complete(2, bandwidth=25), "allgather", exchange))
    allgather on complete-2 by given: 50.00 GB/s, optimal; 1 step, 1 chunk per shard
    """
    as_topology(topology)
    collective = as_collective(collective, COLLECTIVES.values(), "no schedule implements")
    _check_kind(collective, schedule)
    _check_words(planner, options)
    trace = Trace()
    with trace.stage("schedule check"):
        # What follows may assume a schedule that makes sense.
        verified_loads(schedule, topology)
    find = partial(bound_of_schedule, topology, collective, schedule)
    return proved_plan(topology, collective, schedule, planner, dict(options or {}), trace, find)


def bound_of_schedule(topology: Topology, collective: Collective, schedule: Schedule, reached: Fraction) -> Bound:
    """Bound by the ingress of single ranks if that is tight, as on most direct networks; else as `bound`."""
    from ..all_to_all.multicommodity import bound_pairs
    from ..trees.forestcoll import bound_trees

    problem = schedule.problem(collective)
    if collective.in_pairs:
        return bound_pairs(topology, collective, **problem)
    if not problem and not topology.switch_nodes:
        try:
            simple = Bound.from_witness(topology, collective, _rank_cut_bound(topology, collective))
        except CertificateError:
            pass
        else:
            if simple.total_weight / simple.inverse_rate == schedule.total_weight / reached:
                return simple
    return bound_trees(topology, collective, **problem)


def _rank_cut_bound(topology: Topology, collective: Collective) -> Witness:
    nodes = topology.compute_nodes
    if collective.has_two_phases:
        return Partition(tuple(frozenset({node}) for node in nodes))
    tails, heads, capacities, _ = topology.arrays
    intake = np.zeros(len(nodes), dtype=np.int64)
    np.add.at(intake, tails if collective.reduces else heads, capacities)
    return Cut(frozenset(nodes) - {nodes[int(intake.argmin())]})


def _check_kind(collective: Collective, schedule: Schedule) -> None:
    """Refuse a schedule of another collective."""
    if not is_verifiable(schedule):
        raise UnsupportedError(
            f"the schedule is {shown(schedule)}; expected a Forest, an Allreduce, a StepSchedule, a StepAllreduce, a "
            "StepExchange or a FlowSchedule"
        )
    phases = schedule.phases
    if not phases or collective.in_pairs:
        _check_pairs(collective, schedule)
    elif len(phases) > 1 and not collective.has_two_phases:
        raise UnsupportedError(f"the schedule is {schedule!r}; for {collective} expected one of its two parts")
    elif len(phases) == 1 and collective.has_two_phases:
        raise UnsupportedError(
            f"the schedule is {schedule!r}; expected an Allreduce or a StepAllreduce, which join one that reduces and "
            "one that broadcasts"
        )
    elif phases != collective.phases:
        raise UnsupportedError(
            f"the schedule's direction is {shown(phases[0])}; expected {collective.direction!r} for {collective}"
        )
    elif collective.has_one_root and not schedule.single_root:
        raise UnsupportedError(f"the schedule is {schedule!r}, in which all ranks have shards; {collective} has one")


def _check_pairs(collective: Collective, schedule: Schedule) -> None:
    if schedule.phases:
        raise UnsupportedError(f"the schedule is {schedule!r}; expected a FlowSchedule for {collective}")
    if not collective.in_pairs:
        raise UnsupportedError(f"the schedule is {schedule!r}, which does not implement {collective}")
    if not collective.parts_differ and not schedule.has_sizes((), schedule.num_ranks):
        raise UnsupportedError(
            f"the schedule is {schedule!r}, whose traffic is not uniform; expected uniform traffic, or all_to_allv"
        )


def _check_words(planner: object, options: object) -> None:
    """Refuse names and options that a plan file cannot hold."""
    if not _is_word(planner):
        raise UnsupportedError(f"planner is {shown(planner)}; expected a name of letters, digits and any of _ . + -")
    if not isinstance(options, Mapping | None):
        raise UnsupportedError(f"options is {shown(options)}; expected a mapping such as {{'chunks': 4}}")
    for name, value in (options or {}).items():
        if not _is_word(name) or not _is_plain(value):
            raise UnsupportedError(
                f"options has the entry {shown(name)}: {shown(value)}; expected a name of letters, digits and any of "
                "_ . + -, and a whole number or text"
            )


def _is_word(value: object) -> bool:
    return isinstance(value, str) and WORD.fullmatch(value) is not None


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value.isprintable()
    return is_int(value) and abs(value) < MAX_INTEGER
