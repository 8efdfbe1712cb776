"""Algorithms that depend on the numbers of ranks only: recursive doubling and halving, Bruck, PAT.

The shard of rank s reaches the rank at offset x from s by one hop for each nonzero digit of x, and so along the same
tree for each s; docs/explanation/algorithms.md has what that takes.
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
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import MAX_RANKS, exchange_along, forest_along, plan_in_steps, plan_pattern, schedule_along
from .routes import Hops, LinkLoads, Route


class Hop(NamedTuple):
    """The last hop to the rank at an offset: its step, and the offset that it comes from."""

    step: int
    offset: int
    before: int


@register_planner("recursive-doubling", EVERY_ROOT)
def plan_doubling(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan exchanges in steps with the rank that differs in one bit, the lowest first."""
    highest_bit = (offset.bit_length() - 1 for offset in range(1, topology.num_ranks))
    hops = [Hop(bit, offset, offset ^ 1 << bit) for offset, bit in enumerate(highest_bit, 1)]
    return _plan_bits(topology, collective, "recursive-doubling", hops, at_once=_whole_doubling)


@register_planner("recursive-halving-doubling-steps", EVERY_ROOT)
def plan_halving_doubling(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan recursive halving and doubling by one port, in steps, the highest bit first."""
    last = topology.num_ranks.bit_length() - 2
    lowest_bit = map(_lowest_bit, range(1, topology.num_ranks))
    hops = [Hop(last - bit, offset, offset ^ 1 << bit) for offset, bit in enumerate(lowest_bit, 1)]
    return _plan_bits(topology, collective, "recursive-halving-doubling-steps", hops)


@register_planner("bruck", EVERY_ROOT)
def plan_bruck(topology: Topology, collective: AnyCollective, *, radix: int | None = None) -> Plan:
    """Plan sends at distances of one digit in any radix, the lowest first (Bruck)."""
    base = 2 if radix is None else as_whole(radix, "radix", low=2, high=MAX_RANKS)
    ranks, hops, power = topology.num_ranks, list[Hop](), 1
    while power < ranks:
        step = hops[-1].step + 1 if hops else 0
        hops += [Hop(step, offset, offset % power) for offset in range(power, min(power * base, ranks))]
        power *= base
    options = {} if radix is None else {"radix": base}
    return plan_in_steps(topology, collective, "bruck", lambda problem: _schedule(problem, hops, _below), options)


@register_planner("pat", EVERY_ROOT)
def plan_pat(topology: Topology, collective: AnyCollective, *, aggregation: int | None = None) -> Plan:
    """Plan parallel aggregated trees, the farthest ranks first, as NCCL's PAT."""
    power = 1 << (topology.num_ranks - 1).bit_length()  # the least that is not less
    limit = max(1, power // 2)
    trees = limit if aggregation is None else as_whole(aggregation, "aggregation", high=limit)
    if trees & (trees - 1):
        raise UnsupportedError(f"aggregation is {trees}; expected a power of two up to {limit}")
    hops = _pat_hops(topology.num_ranks, trees, power // trees)
    options = {} if aggregation is None else {"aggregation": trees}
    return plan_in_steps(topology, collective, "pat", lambda problem: _schedule(problem, hops, _below), options)


def _pat_hops(ranks: int, trees: int, spacing: int) -> list[Hop]:
    """Hops of PAT, as `PatAGAlgorithm` of NCCL at 5067397: to the roots of the trees, then through all depth first."""
    bits, first = spacing.bit_length() - 1, trees.bit_length() - 1
    order, waiting = dict[int, int](), [1 << bit for bit in range(bits)]
    while waiting:
        inside = waiting.pop()
        order[inside] = len(order)
        waiting += [inside + (1 << bit) for bit in range(_lowest_bit(inside))]
    hops = list[Hop]()
    for offset in range(1, ranks):
        bit, inside = _lowest_bit(offset), offset % spacing
        step = first + order[inside] if inside else first - 1 - (bit - bits)
        hops.append(Hop(step, offset, offset - (1 << bit)))
    return hops


def _lowest_bit(number: int) -> int:
    return (number & -number).bit_length() - 1


def _whole_doubling(problem: TreeProblem) -> StepExchange | None:
    """Exchange whole vectors with ranks that differ in one bit."""
    ranks = np.arange(problem.topology.num_ranks)
    zeros, bits = np.zeros_like(ranks), range(len(ranks).bit_length() - 1)
    parts = [DirectSends(zeros + bit, ranks, zeros, zeros + 1, ranks, ranks ^ (1 << bit)) for bit in bits]
    return exchange_along(problem, DirectSends.joined(parts))


def _check_power(topology: Topology, planner: str) -> None:
    if topology.num_ranks & (topology.num_ranks - 1):
        raise UnsupportedError(f"{planner} needs a power of two ranks; {topology} has {topology.num_ranks}")


def _plan_bits(topology: Topology, collective: AnyCollective, planner: str, hops: list[Hop], **options: Any) -> Plan:
    _check_power(topology, planner)
    return plan_in_steps(
        topology, collective, planner, lambda problem: _schedule(problem, hops, np.bitwise_xor), **options
    )


def _below(ranks: IntArray, offset: int) -> IntArray:
    """Ranks that are `offset` lower, as in the papers."""
    return (ranks - offset) % len(ranks)


def _schedule(problem: TreeProblem, hops: list[Hop], ends: Callable[[IntArray, int], IntArray]) -> StepSchedule:
    """Let each shard take the hops, between the `ends` at their offsets."""
    sources = np.arange(problem.topology.num_ranks)
    zeros = np.zeros_like(sources)
    parts = [
        DirectSends(zeros + hop.step, sources, zeros, zeros + 1, ends(sources, hop.before), ends(sources, hop.offset))
        for hop in hops
    ]
    return schedule_along(problem, 1, DirectSends.joined(parts))


@register_planner("recursive-halving-doubling", EVERY_ROOT)
def plan_recursive_doubling(topology: Topology, collective: AnyCollective) -> Plan:
    """Plan recursive halving and doubling among ranks that differ in one bit.

    The data is one part, whose ranks exchange the highest bit first, or has one for each bit to begin with, so that all
    links of a hypercube are busy.  Plans hold binomial trees; ``stepped_algbw`` is the rate with steps that wait.
    """
    _check_power(topology, "recursive-halving-doubling")
    stepped: list[Fraction] = []

    def build(problem: TreeProblem) -> Forest:
        bits = range(topology.num_ranks.bit_length() - 1)
        hops = Hops(problem)
        routes = {
            (rank, bit): hops.find_routes(rank, rank ^ 1 << bit) for rank in range(topology.num_ranks) for bit in bits
        }
        falling = list(bits)[::-1]
        turned = [falling[turn:] + falling[:turn] for turn in bits]
        choices = (_routed(problem, routes, orders) for orders in ([falling], turned))
        _, time, orders, widest = min(choices, key=lambda choice: choice[0])
        stepped.append(time)
        return _binomial_trees(problem, orders, widest)

    plan = plan_pattern(topology, collective, "recursive-halving-doubling", build)
    # On a symmetric network an allreduce takes its trees twice, once in each direction, and so the time of one.
    time = sum(stepped) * (2 if plan.collective.has_two_phases and len(stepped) == 1 else 1)
    note = {"stepped_algbw": str(topology.num_ranks / (time / topology.arrays.unit))}
    return replace(plan, provenance={**plan.provenance, **note})


Orders = Sequence[Sequence[int]]
"""For each part of the data, the bits from the first step to the last."""


def _routed(
    problem: TreeProblem, routes: Mapping[tuple[int, int], tuple[Route, ...]], orders: Orders
) -> tuple[Fraction, Fraction, Orders, list[Route]]:
    """Choose routes into every rank, step by step; times per shard of the busiest link, at once and step by step."""
    total, chosen_routes = LinkLoads(problem.capacities), list[Route]()
    steps = [LinkLoads(problem.capacities) for _ in orders[0]]
    for order in orders:
        for step, bit in enumerate(order):
            for rank in range(problem.topology.num_ranks):
                route = total.take(routes[rank ^ (1 << bit), bit], 1 << step)
                steps[step].add(route.links, 1 << step)
                chosen_routes.append(route)
    unit = total.common * len(orders)
    times = Fraction(total.peak(), unit), Fraction(sum(step.peak() for step in steps), unit)
    return *times, orders, chosen_routes


def _binomial_trees(problem: TreeProblem, orders: Orders, routes: Sequence[Route]) -> Forest:
    """Make trees from every rank: a rank receives in the last step in which it differs from the root."""
    numbers = np.arange(problem.topology.num_ranks)
    rows = []
    for part, order in enumerate(orders):
        differing = numbers[:, None] ^ numbers
        step = np.zeros_like(differing)
        for place, bit in enumerate(order):
            step[differing >> bit & 1 == 1] = place
        rows.append((part * len(order) + step) * len(numbers) + numbers)
    units = np.ones(len(numbers) * len(orders), dtype=np.int64)
    return forest_along(problem, len(orders), np.tile(numbers, len(orders)), units, np.concatenate(rows), routes)
