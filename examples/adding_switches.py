"""How far the bound of an allreduce by partitions is above the best trees where switches add and copy.

The network of k has 2^k ranks, a root and the nonzero vectors of k bits, and 2^k - 1 such switches, the same vectors
once more.  Switch a is joined to the root and to the ranks b with an odd inner product a b.  No partition bounds it by
less than 2^(k - 1), but a tree that reaches all ranks needs k switches.  ``docs/explanation/refutations.md`` proves
this, and that on N ranks the bound is at most 2 - 2 / N times what trees reach.

``python examples/adding_switches.py --networks 100`` draws networks and compares.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import networkx as nx
from one_way_allreduce import priced_bound

import collopt
from collopt.planners import plan_of_schedule, steiner_bound
from collopt.schedules import Allreduce, Bound, Forest, LinkValue, TreeDual
from collopt.topologies import Topology

TREE = ("r-s1", "r-s2", "s1-p1", "s1-p5", "s1-p7", "s2-p2", "s2-p3", "s2-p6", "s4-p4", "s4-p5")
"""On the network of k = 3; it and six images of it put the same on every link."""
TURNED_RANKS, TURNED_SWITCHES = (2, 4, 6, 3, 1, 7, 5), (3, 4, 7, 1, 2, 5, 6)
"""Where a symmetry of that network takes p1 to p7 and s1 to s7; after seven times all are back."""


def network(k: int) -> Topology:
    """Join ranks r, p1, p2 ... and switches s1, s2 ... by links of 1 GB/s both ways."""
    vectors = range(1, 2**k)
    cables = [("r", f"s{a}", 1) for a in vectors]
    cables += [(f"s{a}", f"p{b}", 1) for a, b in product(vectors, vectors) if (a & b).bit_count() % 2]
    return _able(cables, ["r", *(f"p{b}" for b in vectors)], [f"s{a}" for a in vectors])


def _able(cables: list[tuple[str, str, int]], ranks: list[str], switches: list[str]) -> Topology:
    return Topology.from_links(
        cables, compute=ranks, switches=switches, bidirectional=True, multicast=switches, aggregation=switches
    )


def closed_form(k: int) -> tuple[Fraction, Fraction]:
    """Bound by partitions and rate of the best trees of the network of k, which have 2^k + k - 1 links each."""
    return Fraction(2 ** (k - 1)), Fraction((2**k - 1) * (2 ** (k - 1) + 1), 2**k + k - 1)


def partition_bound(topology: Topology) -> Fraction:
    """Find the least bound by parts that hold a rank each and together all nodes, GB/s, by trying them all."""
    ends = [(topology.node_index[link.tail], topology.node_index[link.head], link.bandwidth) for link in topology.links]
    bounds = []
    for of_ranks in _partitions(topology.num_ranks):
        parts = range(max(of_ranks) + 1)
        for of_switches in product(parts, repeat=len(topology.nodes) - topology.num_ranks if len(parts) > 1 else 0):
            part = of_ranks + of_switches
            if len(parts) > 1:
                crossing = sum((width for tail, head, width in ends if part[tail] != part[head]), Fraction(0))
                bounds.append(crossing / (2 * (len(parts) - 1)))
    return min(bounds)


def _partitions(count: int) -> Iterator[tuple[int, ...]]:
    """The part of each of so many ranks; a part's number is that of parts before it."""
    if not count:
        yield ()
        return
    for first in _partitions(count - 1):
        for part in range(max(first, default=-1) + 2):
            yield (*first, part)


def links_bound(topology: Topology) -> Bound:
    """Bound trees by the fewest links of one; `Bound.verify` works these out again."""
    prices = TreeDual(tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in topology.links))
    return Bound.from_witness(topology, "allreduce", prices)


def turned_trees() -> collopt.Plan:
    """Plan the network of k = 3 with seven images of one tree, each used in both directions."""
    topology = network(3)
    turned = {f"p{b}": f"p{image}" for b, image in enumerate(TURNED_RANKS, start=1)}
    turned |= {f"s{a}": f"s{image}" for a, image in enumerate(TURNED_SWITCHES, start=1)} | {"r": "r"}
    links = [tuple(link.split("-")) for link in TREE]
    trees = []
    for _ in TURNED_RANKS:
        edges = nx.bfs_edges(nx.Graph(links), "r")
        trees.append((0, 1, [tuple(topology.node_index[node] for node in edge) for edge in edges]))
        links = [(turned[tail], turned[head]) for tail, head in links]
    weights = [1] + [0] * (topology.num_ranks - 1)
    switches = list(range(topology.num_ranks, len(topology.nodes)))
    options = {"root_weights": weights, "switches": switches}
    halves = [
        Forest.from_paths(topology.num_ranks, len(trees), trees, direction=each, **options)
        for each in ("reduce", "broadcast")
    ]
    return plan_of_schedule(topology, "allreduce", Allreduce(*halves))


def drawn(ranks: int, switches: int, count: int, seed: int) -> Iterator[Topology]:
    """Draw connected networks of links of 1 GB/s between ranks and switches."""
    chance = random.Random(seed)
    names = [f"r{number}" for number in range(ranks)], [f"s{number}" for number in range(switches)]
    while count:
        cables = [(rank, switch, 1) for rank, switch in product(*names) if chance.random() < 2 / 3]
        graph = nx.Graph((rank, switch) for rank, switch, _ in cables)
        joined = len(graph) == ranks + switches and nx.is_connected(graph)
        if joined and min(graph.degree[switch] for switch in names[1]) > 1:
            count -= 1
            yield _able(cables, *names)


def show_networks() -> bool:
    """Print bound and rates for k = 2 and 3, with certificates, and in closed form beyond."""
    small = collopt.plan(network(2), "allreduce", planner="steiner")
    large = turned_trees()
    limits = [links_bound(network(k)) for k in (2, 3)]
    for each in (small, large, *limits):
        each.verify()
    everything = priced_bound(small.topology, [Fraction(1)] * small.topology.num_links)
    print(f"k = 2: bound {partition_bound(small.topology)}, trees {small.algbw}, all algorithms {everything} GB/s")
    print(f"k = 3: bound {large.bound.algbw}, trees {large.algbw} GB/s")
    for k in range(2, 7):
        bound, trees = closed_form(k)
        print(f"k = {k}: {2**k} ranks, bound over trees {bound / trees} = {float(bound / trees):.4f}")
    rates = [(plan.algbw, limit.algbw) for plan, limit in zip((small, large), limits, strict=True)]
    return rates == [(closed_form(k)[1],) * 2 for k in (2, 3)] and everything == small.algbw


def main() -> int:
    """Show the networks, and compare on drawn ones; the exit status is 1 if a certificate does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, default=0, help="how many to draw")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--switches", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    proved = show_networks()
    ratios = [
        partition_bound(each) / steiner_bound(each, "allreduce").algbw
        for each in drawn(arguments.ranks, arguments.switches, arguments.networks, arguments.seed)
    ]
    if ratios:
        above = sum(ratio > 1 for ratio in ratios)
        print(f"{len(ratios)} drawn: bound above the best trees on {above}, at most {max(ratios)} times")
    return 0 if proved and min(ratios, default=1) >= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
