"""Algorithms in steps that depend on the numbers of ranks only: recursive doubling, recursive halving, Bruck, PAT.

In each of them the shard of rank s reaches the rank at offset x from s by one hop for each nonzero digit of x, and so
along the same tree for each s; docs/explanation/algorithms.md has what they take.

- *Recursive doubling* (Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005): the lowest bit first.  An allreduce
  exchanges and adds whole vectors (section 4.4 there), unless ranks have to pass them on.
- *Recursive halving and doubling* in steps (Rabenseifner, ICCS 2004): the highest bit first.
- *Bruck* (Bruck et al., IEEE TPDS 8(11), 1997): digits of any radix, on any number of ranks.
- *PAT*, parallel aggregated trees (Jeaugey, 2025, arXiv 2506.20252; `PatAGAlgorithm` in src/include/collectives.h of
  NCCL at 5067397): the highest bit first, on any number of ranks.

Recursive halving and doubling (Rabenseifner, ICCS 2004): in every step, ranks that differ in one bit exchange all.

An allgather takes the bits from the highest to the lowest, so that much data goes to near ranks; reduce-scatter is the
reverse, and allreduce both.  On a hypercube that leaves all links but one of every rank idle in each step, so the data
can also be cut into as many parts as there are bits, each of which begins with another bit; the better one is taken.
Plans hold the binomial trees of the shards; the rate with steps that wait is noted as ``stepped_algbw``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest, StepExchange, StepSchedule
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...schedules.steps.expansions import DirectSends
from ...support.arrays import IntArray
from ...support.validation import as_whole
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import Hops, LinkLoads, Route, forest_along, plan_baseline
from .step_plans import MAX_RANKS, exchange_along, plan_in_steps, schedule_along


class Hop(NamedTuple):
    """The last hop to the rank at an offset: its step, and the offset that it comes from."""

    step: int
    offset: int
    before: int


Ends = Callable[[IntArray, int], IntArray]
"""The ranks at an offset from others."""


@register_planner("recursive-doubling", EVERY_ROOT)
def plan_doubling(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan exchanges in steps with the rank that differs in one bit, the lowest first."""
    return _plan_bits(topology, collective, "recursive-doubling", lowest_first=True, at_once=_whole_doubling)


@register_planner("recursive-halving-doubling-steps", EVERY_ROOT)
def plan_halving_doubling(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan recursive halving and doubling by one port, in steps, the highest bit first."""
    return _plan_bits(topology, collective, "recursive-halving-doubling-steps", lowest_first=False)


@register_planner("bruck", EVERY_ROOT)
def plan_bruck(topology: Topology, collective: AnyCollective, *, radix: int | None = None) -> Plan:
    """Plan sends at distances of one digit in any radix, the lowest first (Bruck).

    The radix is 2 by default.
    """
    base = 2 if radix is None else as_whole(radix, "radix", low=2, high=MAX_RANKS)
    hops = bruck_hops(_ranks(topology), base)
    options = {} if radix is None else {"radix": base}
    return plan_in_steps(topology, collective, "bruck", lambda problem: _schedule(problem, hops, _below), options)


@register_planner("pat", EVERY_ROOT)
def plan_pat(topology: Topology, collective: AnyCollective, *, aggregation: int | None = None) -> Plan:
    """Plan parallel aggregated trees, the farthest ranks first, as NCCL's PAT.

    `aggregation` is the number of its trees, a power of two, at most half of the ranks rounded up.
    """
    ranks = _ranks(topology)
    limit = max(1, _power_of_two(ranks) // 2)
    trees = limit if aggregation is None else as_whole(aggregation, "aggregation", high=limit)
    if trees & (trees - 1):
        raise UnsupportedError(f"aggregation is {trees}; expected a power of two up to {limit}")
    hops = pat_hops(ranks, trees)
    options = {} if aggregation is None else {"aggregation": trees}
    return plan_in_steps(topology, collective, "pat", lambda problem: _schedule(problem, hops, _below), options)


def bit_hops(ranks: int, lowest_first: bool) -> list[Hop]:
    """Hops of recursive doubling, by offsets that are combined by exclusive or."""
    bits = ranks.bit_length() - 1
    hops = list[Hop]()
    for offset in range(1, ranks):
        bit = offset.bit_length() - 1 if lowest_first else _lowest_bit(offset)
        hops.append(Hop(bit if lowest_first else bits - 1 - bit, offset, offset ^ (1 << bit)))
    return hops


def bruck_hops(ranks: int, radix: int) -> list[Hop]:
    """Hops of Bruck's algorithm: the highest digit last."""
    hops, step, power = list[Hop](), 0, 1
    while power < ranks:
        hops += [Hop(step, offset, offset % power) for offset in range(power, min(power * radix, ranks))]
        step, power = step + 1, power * radix
    return hops


def pat_hops(ranks: int, trees: int) -> list[Hop]:
    """Hops of PAT: to the roots of the trees, and then through all of them depth first."""
    spacing = _power_of_two(ranks) // trees
    bits, first = spacing.bit_length() - 1, trees.bit_length() - 1
    order = _depth_first(bits)
    hops = list[Hop]()
    for offset in range(1, ranks):
        bit, inside = _lowest_bit(offset), offset % spacing
        step = first + order[inside] if inside else first - 1 - (bit - bits)
        hops.append(Hop(step, offset, offset - (1 << bit)))
    return hops


def _depth_first(bits: int) -> dict[int, int]:
    """Order 1, ..., 2^bits - 1 depth first, large subtrees first; the parent of a number lacks its lowest bit."""
    places, waiting = dict[int, int](), [1 << bit for bit in range(bits)]
    while waiting:
        offset = waiting.pop()
        places[offset] = len(places)
        waiting += [offset + (1 << bit) for bit in range(_lowest_bit(offset))]
    return places


def _lowest_bit(number: int) -> int:
    return (number & -number).bit_length() - 1


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << (number - 1).bit_length()


def _whole_doubling(problem: TreeProblem) -> StepExchange | None:
    """Exchange whole vectors with ranks that differ in one bit."""
    ranks = np.arange(problem.topology.num_ranks)
    zeros, bits = np.zeros_like(ranks), range(len(ranks).bit_length() - 1)
    parts = [DirectSends(zeros + bit, ranks, zeros, zeros + 1, ranks, ranks ^ (1 << bit)) for bit in bits]
    return exchange_along(problem, DirectSends.joined(parts))


def _plan_bits(topology: Topology, collective: AnyCollective, planner: str, lowest_first: bool, **options: Any) -> Plan:
    ranks = _ranks(topology)
    if ranks & (ranks - 1):
        raise UnsupportedError(f"{planner} needs a power of two ranks; {topology} has {ranks}")
    hops = bit_hops(ranks, lowest_first)
    return plan_in_steps(
        topology, collective, planner, lambda problem: _schedule(problem, hops, np.bitwise_xor), **options
    )


def _ranks(topology: Topology) -> int:
    as_topology(topology)
    return topology.num_ranks


def _below(ranks: IntArray, offset: int) -> IntArray:
    """Ranks that are `offset` lower, as in the papers."""
    return (ranks - offset) % len(ranks)


def _schedule(problem: TreeProblem, hops: list[Hop], ends: Ends) -> StepSchedule:
    """Let each shard take the hops."""
    sources = np.arange(problem.topology.num_ranks)
    zeros = np.zeros_like(sources)
    parts = [
        DirectSends(zeros + hop.step, sources, zeros, zeros + 1, ends(sources, hop.before), ends(sources, hop.offset))
        for hop in hops
    ]
    return schedule_along(problem, 1, DirectSends.joined(parts))


@register_planner("recursive-halving-doubling", EVERY_ROOT)
def plan_recursive_doubling(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan recursive halving and doubling among ranks that differ in one bit."""
    stepped: list[Fraction] = []

    def build(problem: TreeProblem) -> Forest:
        best = min(_route_choices(problem), key=lambda choice: choice.congestion)
        stepped.append(best.stepped)
        return best.forest()

    plan = plan_baseline(topology, collective, "recursive-halving-doubling", build)
    # On a symmetric network an allreduce takes its trees twice, once in each direction, and so the time of one.
    time = sum(stepped) * (2 if plan.collective.has_two_phases and len(stepped) == 1 else 1)
    note = {"stepped_algbw": str(topology.num_ranks / (time / topology.arrays.unit))}
    return replace(plan, provenance={**plan.provenance, **note})


def _route_choices(problem: TreeProblem) -> list[_RouteChoice]:
    ranks = problem.topology.num_ranks
    bits = ranks.bit_length() - 1
    if ranks != 1 << bits:
        raise UnsupportedError(
            f"recursive halving and doubling needs a power of two ranks; {problem.topology} has {ranks}"
        )
    hops = Hops(problem)
    routes = {(tail, bit): hops.find_routes(tail, tail ^ (1 << bit)) for tail in range(ranks) for bit in range(bits)}
    falling = list(range(bits))[::-1]
    turned = [falling[turn:] + falling[:turn] for turn in range(bits)]
    return [_widest_route(problem, routes, orders) for orders in ([falling], turned)]


class _RouteChoice(NamedTuple):
    """Routes of one choice of orders, and time per shard of the busiest link, at once or step by step."""

    problem: TreeProblem
    orders: Sequence[Sequence[int]]  # per part of the data, the bits from the first step to the last
    routes: list[Route]  # into every rank, step by step of every part
    congestion: Fraction
    stepped: Fraction

    def forest(self) -> Forest:
        """Binomial trees from every rank: a rank receives in the last step in which it differs from the root."""
        ranks, parts = self.problem.topology.num_ranks, len(self.orders)
        numbers = np.arange(ranks)
        rows = []
        for part, order in enumerate(self.orders):
            differing = numbers[:, None] ^ numbers
            step = np.zeros_like(differing)
            for place, bit in enumerate(order):
                step[differing >> bit & 1 == 1] = place
            rows.append((part * len(order) + step) * ranks + numbers)
        units = np.ones(ranks * parts, dtype=np.int64)
        return forest_along(self.problem, parts, np.tile(numbers, parts), units, np.concatenate(rows), self.routes)


def _widest_route(
    problem: TreeProblem, known_routes: Mapping[tuple[int, int], tuple[Route, ...]], orders: Sequence[Sequence[int]]
) -> _RouteChoice:
    """Choose routes, and sum their loads in every step."""
    ranks, bits = problem.topology.num_ranks, len(orders[0])
    total, routes = LinkLoads(problem.capacities), list[Route]()
    steps = [LinkLoads(problem.capacities) for _ in range(bits)]
    for order in orders:
        for step, bit in enumerate(order):
            for rank in range(ranks):
                route = total.take(known_routes[rank ^ (1 << bit), bit], 1 << step)
                steps[step].add(route.links, 1 << step)
                routes.append(route)
    unit = total.common * len(orders)
    return _RouteChoice(
        problem, orders, routes, Fraction(total.peak(), unit), Fraction(sum(step.peak() for step in steps), unit)
    )
