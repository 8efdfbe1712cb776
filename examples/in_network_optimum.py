"""How close planning by strength comes to the best trees that branch at switches, and these to the bound.

`collopt.planners.steiner_bound` is the exact optimum of trees that branch at ranks and at switches that multicast or
aggregate.  Plans of the planner ``strength`` can be below it, and it can be below their bound.  Run ``python
examples/in_network_optimum.py 200``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple

import collopt
from collopt.planners import steiner_bound
from collopt.topologies import SwitchLimits, Topology


class Result(NamedTuple):
    """Algorithm bandwidths of an allreduce, GB/s."""

    topology: Topology
    plan: Fraction
    trees: Fraction
    bound: Fraction


def random_network(seed: int, max_ranks: int = 8, max_switches: int = 4) -> Topology:
    """Join 3 ranks or more and some switches at random; each switch can do what a coin decides."""
    draw = Random(seed)
    ranks = [f"r{number}" for number in range(draw.randint(3, max_ranks))]
    switches = [f"s{number}" for number in range(draw.randint(1, max_switches))]
    nodes = draw.sample(ranks + switches, len(ranks) + len(switches))
    cables = {frozenset({node, draw.choice(nodes[:place])}) for place, node in enumerate(nodes) if place}
    for _ in range(draw.randint(2, 2 * len(nodes))):
        cables.add(frozenset(draw.sample(nodes, 2)))
    for switch in switches:
        while sum(switch in cable for cable in cables) < 2:
            cables.add(frozenset({switch, draw.choice(ranks)}))
    links = [(*sorted(cable), draw.randint(1, 6)) for cable in sorted(cables, key=sorted)]
    multicast, aggregation, looped = ([each for each in switches if draw.random() < 0.5] for _ in range(3))
    limits = [SwitchLimits(switch, loopback=True) for switch in looped]
    return Topology.from_links(
        links,
        compute=ranks,
        switches=switches,
        bidirectional=True,
        multicast=multicast,
        aggregation=aggregation,
        limits=limits,
        name=f"random {seed}",
    )


def results(count: int) -> Iterator[Result]:
    """Compare plans, the optimum of trees, and the bound of the plan on so many networks."""
    for seed in range(count):
        topology = random_network(seed)
        plan = collopt.plan(topology, "allreduce", planner="strength")
        bound = plan.scoped_bound or plan.bound
        yield Result(topology, plan.algbw, steiner_bound(topology, "allreduce").algbw, bound.algbw)


def summary(pairs: Sequence[tuple[Fraction, Fraction]]) -> str:
    """Say how often and how far the first number of a pair is below the second."""
    gaps = [1 - below / above for below, above in pairs if below != above]
    most, mean = max(gaps, default=Fraction(0)), sum(gaps, Fraction(0)) / (len(gaps) or 1)
    return (
        f"{len(pairs) - len(gaps)} of {len(pairs)}, else {float(mean):.1%} below on average, {float(most):.1%} at most"
    )


def main(count: int) -> None:
    """Print the networks on which they differ, and how often they do."""
    found = list(results(count))
    for topology, *rates in found:
        if len(set(rates)) > 1:
            plan, trees, bound = map(float, rates)
            print(f"{topology.name}: plan {plan:.2f}, best trees {trees:.2f}, bound {bound:.2f} GB/s")
    print("plan at the best trees:", summary([(each.plan, each.trees) for each in found]))
    print("best trees at the bound:", summary([(each.trees, each.bound) for each in found]))
    print("plan at the bound:", summary([(each.plan, each.bound) for each in found]))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
