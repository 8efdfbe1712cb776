"""Bounds from linear programs, with their dual values as a witness that is checked without a program."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import floor
from typing import Any

from ...errors import BoundError, CapacityOverflowError, NoAnswerError
from ...formulations.allreduce import AllreduceModel
from ...formulations.throughput import ThroughputModel
from ...schedules import Bound
from ...schedules.bounds.length_duals import CutDual, hop_limits
from ...schedules.bounds.witness import LinkValue
from ...schedules.collective import AnyCollective, Collective
from ...solvers import HighsOptions, Solution, solve
from ...support.quantities import MAX_BANDWIDTH
from ...topologies import Topology
from .problem import check_request, shard_weights

Model = AllreduceModel | ThroughputModel
Duals = Mapping[str, Mapping[Any, Fraction]]

COARSEST = 10**6
"""Where links are not counted in whole units, the fastest has this many at least, as far above HiGHS's tolerances."""
GRAINS = 2**30  # dual values in floats are read in multiples of the largest of them over this


def lp_bound(
    topology: Topology,
    collective: AnyCollective,
    *,
    root: int | str | None = None,
    weights: Sequence[object] | None = None,
    options: HighsOptions | None = None,
) -> Bound:
    """Bound the speed of a collective by the dual of its linear program.

    Unlike `collopt.bound` this takes unbalanced switches, and for allreduce it is about trees alone: see
    `CutDual.scope`. The witness is a `CutDual`.  Raises `UnsupportedError` if the request is not of its form;
    `BoundError` if some rank is out of reach; `NoAnswerError` if the program was not solved in time.

    Parameters as for `collopt.bound`, with options of the solver: the dual values of any algorithm are made to prove a
    bound, but only those of a basis prove the optimum itself.

    Examples
    --------
    Twice three bytes into and out of each rank of a ring of four, which has 60 GB/s either way:

    >>> from collopt.topologies import ring
    >>> lp_bound(ring(4, bandwidth=30), "allreduce").algbw
    Fraction(40, 1)
    """
    collective = check_request(topology, collective)
    sizes = shard_weights(topology, collective, root, weights)
    # Dual values are GB/s per GB/s, the same in any unit.
    model = build_program(counted(topology)[0], collective, sizes)
    solution = solve(model, options)
    if solution.objective <= 0:
        raise BoundError(f"some rank cannot reach another in {topology}; add links or leave ranks out")
    return Bound.from_witness(topology, collective, program_duals(model, solution), sizes)


def counted(topology: Topology) -> tuple[Topology, Fraction]:
    """Count bandwidths in a unit, GB/s, that suits HiGHS, whose tolerances are absolute."""
    try:
        _, _, capacities, unit = topology.arrays
        is_whole = len(capacities) > 0 and int(capacities.max()) <= MAX_BANDWIDTH
    except CapacityOverflowError:
        unit, is_whole = Fraction(1), False
    if not is_whole:
        largest = max((bandwidth for bandwidth, _ in topology.columns.rates), default=Fraction(1))
        # Only ever finer, since numbers must not get more digits than a topology may have.
        unit = min(Fraction(1), Fraction(1, floor(COARSEST / largest) or 1))
    links = tuple(link._replace(bandwidth=link.bandwidth / unit) for link in topology.links)
    return replace(topology, links=links), unit


def build_program(topology: Topology, collective: Collective, weights: tuple[int, ...] = ()) -> Model:
    """State the linear program of a collective; an allreduce gets a relay at every switch that copies or reduces."""
    from ...formulations import allreduce, throughput

    if collective.has_two_phases:
        return allreduce.build(topology, relays=sorted(topology.multicast | topology.aggregation))
    (direction,) = collective.phases
    return throughput.build(topology, weights=weights or None, direction=direction)


def program_duals(model: Model, solution: Solution) -> CutDual:
    """Turn the duals of a program into a witness."""
    blocks = ("broadcast_within", "reduce_within") if isinstance(model, AllreduceModel) else ("flow_in_share",)
    return cut_dual(model, _duals(solution, ("link_bandwidth", *blocks)))


def cut_dual(model: Model, duals: Duals) -> CutDual:
    """Turn dual values of the links and of ranks' shares of hops into a witness."""
    if isinstance(model, AllreduceModel):
        relays = frozenset(model.relays)
        shares = {name: _shared(model.topology, duals, f"{name}_within", relays) for name in ("broadcast", "reduce")}
    else:
        relays = frozenset(model.topology.switch_nodes)
        shares = {model.direction: _shared(model.topology, duals, "flow_in_share", relays)}
    links = tuple(LinkValue(tail, head, dual) for (tail, head), dual in duals["link_bandwidth"].items() if dual)
    return CutDual(links, shares.get("broadcast", ()), shares.get("reduce", ()), relays)


def _duals(solution: Solution, names: Sequence[str]) -> Duals:
    """Exact dual values by name, or floats in one grain, none of them below zero."""
    try:
        exact = solution.exact.duals
        return {name: exact[name] for name in names}
    except NoAnswerError:
        floats = {name: solution.duals[name] for name in names}
    largest = max(value for duals in floats.values() for value in duals.values())
    return {
        name: {key: Fraction(round(max(value, 0.0) / largest * GRAINS), GRAINS) for key, value in duals.items()}
        for name, duals in floats.items()
    }


def _shared(topology: Topology, duals: Duals, name: str, relays: frozenset[str]) -> tuple[tuple[LinkValue, ...], ...]:
    """Duals of hops by rank, lowered in proportion wherever they add up to more than the hop's links are worth."""
    limits = hop_limits(topology, duals["link_bandwidth"], relays)
    sums: dict[tuple[str, str], Fraction] = {}
    for (_, tail, head), dual in duals[name].items():
        sums[tail, head] = sums.get((tail, head), Fraction(0)) + dual
    own: dict[str, list[LinkValue]] = {rank: [] for rank in topology.compute_nodes}
    for (rank, tail, head), dual in duals[name].items():
        if dual:
            fitting = min(Fraction(1), limits[tail, head] / sums[tail, head])
            own[rank].append(LinkValue(tail, head, dual * fitting))
    return tuple(tuple(duals) for duals in own.values())
