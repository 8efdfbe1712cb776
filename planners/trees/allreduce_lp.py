"""Allreduce by the linear program of ForestColl, appendix G: any roots, and links divided as suits both kinds of trees.

The program says how much each rank roots and what in-trees and out-trees take of every link.  Each kind is then packed
into its part of the network, as for a reduce-scatter and an allgather whose shards are the root rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm

from ...errors import NoAnswerError, SolverError
from ...schedules import ALLREDUCE, Allreduce, Forest, congestion
from ...schedules.traffic.collective import Direction
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.stages import Trace
from .allreduce_bound import allreduce_bound
from .cutting_planes import BestRates, best_rates
from .forest import best_forest, bottleneck
from .problem import checked_count, tree_problem


def plan_allreduce_lp(topology: Topology, *, trees_per_root: int | None = None) -> Plan:
    """Plan an allreduce with trees at the optimum of the allreduce program, the best rate of all trees."""
    count = None if trees_per_root is None else checked_count(trees_per_root)
    trace = Trace()
    with trace.stage("linear program"):
        bound, rates = allreduce_bound(topology), best_rates(topology)
        if not any(rates.root_rates):
            raise NoAnswerError(
                f"the allreduce program of {topology!r} has no answer in floats, whose best rate is above 0: its "
                "bandwidths differ too much; use planner 'forestcoll'"
            )
        trace.note("tree_algbw", str(rates.rate))
        trace.note("cuts", rates.cuts)
    spread = _forest(topology, "broadcast", rates, count, trace)
    if "reduce" in rates.shares:
        added = _forest(topology, "reduce", rates, count, trace)
    else:
        added = replace(spread, direction="reduce")
    schedule = Allreduce(added, spread)
    with trace.stage("verification"):
        loads = schedule.link_loads(topology)
        rate = congestion(loads, schedule.trees_per_root, topology)
        options: dict[str, int | str] = {} if count is None else {"trees_per_root": count}
        plan = Plan(topology, ALLREDUCE, schedule, bound, rate, loads, "allreduce-lp", options, trace.provenance)
        plan.verify()
    if rates.exact and count is None and plan.algbw != rates.rate:
        raise SolverError(f"trees reach {plan.algbw} GB/s where the program proves that they can reach {rates.rate}")
    return plan


def _forest(topology: Topology, direction: Direction, rates: BestRates, count: int | None, trace: Trace) -> Forest:
    """Pack trees of one kind into the network of their shares."""
    shares = zip(topology.links, rates.shares[direction], strict=True)
    links = tuple(link._replace(bandwidth=share) for link, share in shares if share > 0)
    problem = tree_problem(replace(topology, links=links), direction, _whole(rates.root_rates))
    return best_forest(problem, bottleneck(problem), count, trace)


def _whole(amounts: Sequence[Fraction]) -> tuple[int, ...]:
    """Scale fractions to integers without a common divisor."""
    scale = lcm(*(amount.denominator for amount in amounts))
    scaled = [int(amount * scale) for amount in amounts]
    common = gcd(*scaled)
    return tuple(amount // common for amount in scaled)
