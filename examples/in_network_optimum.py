"""How far trees that branch at switches stay below the bound of all schedules, on random small networks.

The bound counts what must enter the parts of a partition; `collopt.planners.steiner_bound` is the exact optimum of
trees that branch at ranks and at switches that multicast or aggregate.  Run ``python examples/in_network_optimum.py
200``.
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
    """Compare the optimum of trees with the bound of all schedules on so many networks."""
    for seed in range(count):
        topology = random_network(seed)
        trees = steiner_bound(topology, "allreduce")
        yield Result(topology, trees.algbw, collopt.bound(topology, "allreduce").algbw)


def main(count: int) -> None:
    """Print the networks on which both differ, and how often they do."""
    gaps = []
    for topology, trees, bound in results(count):
        if trees != bound:
            gaps.append(1 - trees / bound)
            print(f"{topology.name}: {float(trees):.2f} of {float(bound):.2f} GB/s, {float(gaps[-1]):.1%} below")
    print(f"{len(gaps)} of {count} networks, by {float(max(gaps, default=Fraction(0))):.1%} at most")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
