"""Recursive halving and doubling (Rabenseifner, ICCS 2004): in every step, ranks that differ in one bit exchange all.

An allgather takes the bits from the highest to the lowest, so that much data goes to near ranks; reduce-scatter is the
reverse, and allreduce both.  On a hypercube that leaves all links but one of every rank idle in each step, so the data
can also be cut into as many parts as there are bits, each of which begins with another bit; the better one is taken.
Plans hold the binomial trees of the shards; the rate with steps that wait is noted as ``stepped_algbw``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Forest
from ...schedules.collective import EVERY_ROOT, AnyCollective
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem
from .fixed_pattern import Hops, LinkLoads, Route, forest_along, plan_baseline


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
