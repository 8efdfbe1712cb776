"""How close the planners come to the best trees that branch at switches, and these to the bound, on random networks.

`collopt.planners.steiner_bound` is the exact optimum of trees that branch at ranks and at switches that multicast or
aggregate.  Plans of the default planner can be below it, and it can be below their bound.  Run ``python
examples/in_network_optimum.py 200``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
        plan = collopt.plan(topology, "allreduce")
        yield Result(topology, plan.algbw, steiner_bound(topology, "allreduce").algbw, plan.bound.algbw)


def main(count: int) -> None:
    """Print the networks on which they differ, and how often they do."""
    losses: list[Fraction] = []
    excesses: list[Fraction] = []
    for topology, plan, trees, bound in results(count):
        if plan < bound:
            print(
                f"{topology.name}: plan {float(plan):.2f}, best trees {float(trees):.2f}, bound {float(bound):.2f} GB/s"
            )
        losses += [1 - plan / trees] if plan < trees else []
        excesses += [bound / trees - 1] if bound > trees else []
    for what, found in (("plans below", losses), ("bounds above", excesses)):
        print(
            f"{what} the best trees on {len(found)} of {count} networks, by {float(max(found, default=0)):.1%} at most"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
