"""Bounds of all schedules of a collective, for endless data and at a size, and plans of given schedules with theirs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import Any, overload

from ..errors import CertificateError, UnsupportedError
from ..schedules import COLLECTIVES, Bound, Collective, Demands, Partition, Schedule, SizeBound, Witness, verified_loads
from ..schedules.bounds.cuts import rank_cut
from ..schedules.collective import DEMANDS, AnyCollective, as_collective
from ..schedules.schedule import is_verifiable
from ..support.quantities import as_several_bytes
from ..support.validation import is_int, shown
from ..topologies import RuntimeCosts, Topology, reached_network
from ..topologies.builders import NetworkLike, refuse_options
from ..topologies.builders import topology as as_network
from ..topologies.network.link_costs import CostsName, as_costs
from ..topologies.network.topology import as_topology
from .plans.plan import Plan, proved_plan
from .plans.stages import Trace
from .trees.problem import shard_weights

MANY_RANKS = 1024  # above which symmetries are looked for first


@overload
def bound(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    size: None = None,
    costs: None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> Bound: ...


@overload
def bound(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    size: int | str,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> SizeBound: ...


def bound(
    topology: NetworkLike,
    collective: AnyCollective,
    *,
    size: int | str | None = None,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> Bound | SizeBound:
    """Bound the rate of any schedule of a collective on a topology, or its time for some amount of data.

    Raises `UnsupportedError` for a collective without a bound here, an unbalanced switch, or a root or weights that do
    not fit; `BoundError` if some rank cannot reach another.

    Parameters
    ----------
    topology : Topology, networkx.Graph, str or path
        A string is a name of the catalogue, such as ``"dgx-a100"``, or else a path.  Every rank must reach every other,
        and switches give out what they take in; for an all-to-all only ranks with traffic must, and switches are free.
    collective : str, Collective or Demands
        ``"allgather"``, ``"reduce_scatter"``, ``"allreduce"``, ``"broadcast"``, ``"reduce"``, ``"all_to_all"``,
        ``"all_to_allv"``, or one that was registered; or any items, as `collopt.Demands`.
    size : int or str, optional
        Bytes in all as nccl-tests counts them, such as ``"64K"``; by default the bound is for endless data.
    costs : RuntimeCosts or {"links", "generic", "fused"}, optional
        What the software adds at a size; by default what the topology says, or nothing.
    root : int or str, optional
        Rank that broadcast starts from and reduce ends at, by number or name.
    weights : sequence of number, optional
        Relative sizes of the shards in rank order, for allgather and reduce_scatter.
    traffic : matrix of number, shape (ranks, ranks), optional
        What each rank (row) has for each other (column), for all_to_allv.
    **unknown
        Refused; options of a network belong to `collopt.topology`.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100, mi250
    >>> bound(mi250(boxes=2), "allgather").inverse_rate
    Fraction(15, 166)
    >>> print(bound(dgx_a100(boxes=2), "allgather", size="1M", costs="fused"))
    allgather of 1048576 bytes: at least 8.98 µs (not calibrated), by its flow
    """
    refuse_options(bound, topology, unknown)
    topology = as_network(topology)
    if size is not None:
        return bound_sizes(topology, collective, [size], costs=costs, root=root, weights=weights, traffic=traffic)[0]
    if costs is not None:
        raise UnsupportedError("costs of the software matter at a size; give size too, such as '64K'")
    return _rate_bound(topology, collective, root, weights, traffic)


def bound_sizes(
    topology: NetworkLike,
    collective: AnyCollective,
    sizes: Iterable[int | str],
    *,
    costs: RuntimeCosts | CostsName | None = None,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    traffic: Any = None,
    **unknown: Any,
) -> list[SizeBound]:
    """Bound the time of a collective for each of several amounts of data, in their order.

    Parameters as for `bound`, with several sizes.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> network = ring(4, bandwidth=10, latency=1)
    >>> [float(found.time) for found in bound_sizes(network, "allgather", [40, 40_000, 40_000_000])]
    [2.0005, 2.5, 1501.0]
    """
    from .timed_cuts import bounds_at_sizes

    refuse_options(bound_sizes, topology, unknown)
    topology = as_network(topology)
    amounts = as_several_bytes(sizes)
    cost_model = as_costs(costs, topology)
    rate = _rate_bound(reached_network(topology, cost_model), collective, root, weights, traffic)
    # Where measured times do not tell costs apart, no time that they allow may be less.
    bounds = [bounds_at_sizes(topology, rate, amounts, model) for model in (cost_model, *cost_model.extremes)]
    return [min(limits, key=lambda limit: limit.time) for limits in zip(*bounds, strict=True)]


def _rate_bound(
    topology: Topology,
    collective: AnyCollective,
    root: int | str | None,
    weights: Sequence[object] | None,
    traffic: Any,
) -> Bound:
    """Bound the rate for endless data; see `bound`."""
    from .all_to_all.multicommodity import bound_pairs
    from .trees.forestcoll import bound_trees

    planned = as_collective(collective, (*COLLECTIVES.values(), DEMANDS), "the bound does not cover")
    if isinstance(planned, Demands):
        from .demands.cuts import bound_demands

        shard_weights(topology, planned, root, weights)  # there are none
        if traffic is not None:
            raise UnsupportedError(f"{planned} take no traffic; their items have sizes")
        return bound_demands(topology, planned)
    if planned.in_pairs:
        shard_weights(topology, planned, root, weights)  # there are none
        return bound_pairs(topology, planned, root=root, traffic=traffic)
    if traffic is not None:
        raise UnsupportedError(f"{planned} takes no traffic; all_to_allv does")
    if topology.num_ranks > MANY_RANKS and root is None and weights is None:
        from .trees.symmetric import bound_symmetric

        with suppress(UnsupportedError):
            return bound_symmetric(topology, planned)
    return bound_trees(topology, planned, root=root, weights=weights)


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
        That the schedule is on.
    collective : str or Collective
        That it implements.
    schedule : Schedule
        Trusted in nothing: for an allreduce one that consists of two parts, for an all-to-all(v) a flow, for the others
        one whose data run their way.
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
    collective = as_collective(collective, (*COLLECTIVES.values(), DEMANDS), "no schedule implements")
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
    from .all_to_all.multicommodity import bound_pairs
    from .trees.forestcoll import bound_trees

    if isinstance(collective, Demands):
        from .demands.cuts import bound_demands

        return bound_demands(topology, collective)
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
    if collective.has_two_phases:
        return Partition(tuple(frozenset({node}) for node in topology.compute_nodes))
    return rank_cut(topology, collective)


def _check_kind(collective: Collective, schedule: Schedule) -> None:
    """Refuse a schedule of another collective."""
    if not is_verifiable(schedule):
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected a Forest, a StepSchedule or another kind")
    expected = ""
    if schedule.demands != (collective if collective.has_items else None):
        expected = "trees for these items" if collective.has_items else "one without demands"
    elif collective.in_pairs:
        if schedule.phases:
            expected = "a FlowSchedule"
        elif not collective.parts_differ and not schedule.has_sizes((), schedule.num_ranks):
            expected = "uniform traffic, or all_to_allv,"
    elif schedule.phases != collective.phases and collective.has_two_phases:
        expected = "an Allreduce or a StepAllreduce, which join one that reduces and one that broadcasts,"
    elif schedule.phases != collective.phases:
        expected = f"one of direction {collective.direction!r}"
    elif collective.has_one_root and not schedule.single_root:
        expected = "one whose root alone has a shard"
    if expected:
        raise UnsupportedError(f"the schedule is {shown(schedule)}; expected {expected} for {collective}")


def _check_words(planner: object, options: object) -> None:
    """Refuse names and options that a plan file cannot hold."""
    if not isinstance(planner, str) or not WORD.fullmatch(planner):
        raise UnsupportedError(f"planner is {shown(planner)}; expected a name of letters, digits and any of _ . + -")
    if not isinstance(options, Mapping | None):
        raise UnsupportedError(f"options is {shown(options)}; expected a mapping such as {{'chunks': 4}}")
    for name, value in (options or {}).items():
        is_plain = value.isprintable() if isinstance(value, str) else is_int(value) and abs(value) < MAX_INTEGER
        if not is_plain or not isinstance(name, str) or not WORD.fullmatch(name):
            expected = "a name of letters, digits and any of _ . + -, and a whole number or text"
            raise UnsupportedError(f"options has the entry {shown(name)}: {shown(value)}; expected {expected}")
