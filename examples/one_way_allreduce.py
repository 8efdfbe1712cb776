"""The best allreduce of all algorithms on a few ranks with one-way links, and whether trees reach it.

Each element of the data takes some way through the network, after which every rank depends on every rank's value.  If
links have prices and no way costs less than 1, then no allreduce is faster than the bandwidths times the prices: a
bound that anyone can check, here by shortest paths through what the ranks know.  Prices come from the linear program
over such ways, in floats; the check is exact.  ``docs/explanation/refutations.md`` has one by hand.

``python examples/one_way_allreduce.py --networks 100`` draws networks and compares.
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import permutations
from math import lcm

import networkx as nx
import numpy as np
from scipy.optimize import linprog

import collopt
from collopt.planners.trees.allreduce_lp import best_rates
from collopt.topologies import Topology

LINKS = [("0", "2", 4), ("1", "0", 4), ("2", "0", 6), ("2", "3", 6), ("3", "0", 2), ("3", "1", 4)]
PRICES = [Fraction(price, 3) for price in (1, 0, 0, 0, 1, 1)]
"""Of the links above: 10/3 altogether, and no way costs less than 1."""

LARGEST_DENOMINATOR = 1000


def example() -> Topology:
    """Four ranks whose allreduce is bound by 4 GB/s by cuts and partitions, and by 10/3 in truth."""
    return Topology.from_links(LINKS, compute="0123")


def cheapest_way(topology: Topology, prices: Sequence[Fraction]) -> tuple[Fraction, list[int]]:
    """Find the cheapest sequence of links after which all ranks know of all: its price and the links.

    Switches add and copy; a bound for these holds for others too.  This is a search in the order of what is paid and
    what is at least left to pay: a rank that does not know of all pays for a link into it.
    """
    ends = list(zip(*(column.tolist() for column in topology.arrays[:2]), strict=True))
    scale = lcm(*(Fraction(price).denominator for price in prices))
    whole = [int(price * scale) for price in prices]
    ranks = range(topology.num_ranks)
    entering = [min((whole[link] for link, (_, head) in enumerate(ends) if head == rank), default=0) for rank in ranks]
    start = tuple(1 << node if node in ranks else 0 for node in range(len(topology.nodes)))
    everything = sum(start)
    best, before = {start: 0}, {start: (start, -1)}
    waiting = [(sum(entering), 0, start)]
    while waiting:
        least, minus_paid, known = heapq.heappop(waiting)
        paid, left = -minus_paid, least + minus_paid
        if paid > best[known]:
            continue
        if all(known[rank] == everything for rank in ranks):
            return Fraction(paid, scale), _links_to(known, before)
        for link, (tail, head) in enumerate(ends):
            told = known[head] | known[tail]
            after = (*known[:head], told, *known[head + 1 :])
            total = paid + whole[link]
            if told != known[head] and (after not in best or total < best[after]):
                best[after], before[after] = total, (known, link)
                saved = entering[head] if head in ranks and told == everything else 0
                heapq.heappush(waiting, (total + left - saved, -total, after))
    raise ValueError("some ranks cannot reach others")


def _links_to(known: tuple[int, ...], before: dict[tuple[int, ...], tuple[tuple[int, ...], int]]) -> list[int]:
    links = []
    while before[known][1] >= 0:
        known, link = before[known]
        links.append(link)
    return links[::-1]


def priced_bound(topology: Topology, prices: Sequence[Fraction]) -> Fraction:
    """What no allreduce exceeds, GB/s: bandwidths times prices, over the price of the cheapest way."""
    value = sum((link.bandwidth * price for link, price in zip(topology.links, prices, strict=True)), Fraction(0))
    return value / cheapest_way(topology, prices)[0]


def best_prices(topology: Topology) -> list[Fraction]:
    """Find prices of the least bound, by columns that are added to a linear program until none is missing."""
    widths = [float(link.bandwidth) for link in topology.links]
    prices: list[Fraction] = [Fraction(1)] * len(widths)
    ways: list[list[int]] = []
    while True:
        price, way = cheapest_way(topology, prices)
        if ways and (price >= 1 or way in ways):
            return prices
        ways.append(way)
        counts = np.column_stack([np.bincount(links, minlength=len(widths)) for links in ways])
        found = linprog(-np.ones(len(ways)), counts, widths, method="highs")
        prices = [Fraction(float(-dual)).limit_denominator(LARGEST_DENOMINATOR) for dual in found.ineqlin.marginals]


def drawn(ranks: int, count: int, seed: int) -> Iterator[Topology]:
    """Draw networks on which every rank reaches every other."""
    chance = random.Random(seed)
    while count:
        pairs = [pair for pair in permutations("0123456789"[:ranks], 2) if chance.random() < 1 / 2]
        links = [(*pair, chance.randint(1, 6)) for pair in pairs]
        topology = Topology.from_links(links, compute=map(str, range(ranks)))
        graph = nx.DiGraph((tail, head) for tail, head, _ in links)
        if len(graph) == ranks and nx.is_strongly_connected(graph):
            count -= 1
            yield topology


def main() -> int:
    """Show the example, and compare on drawn networks; the exit status is 1 where trees may not suffice."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", type=int, default=20, help="how many to draw")
    parser.add_argument("--ranks", type=int, default=4, help="at most 5")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    topology = example()
    plan = collopt.plan(topology, "allreduce", planner="allreduce-lp")
    plan.verify()
    print(
        f"example: bound {plan.bound.algbw}, trees {plan.algbw}, all algorithms {priced_bound(topology, PRICES)} GB/s"
    )
    gaps = reached = 0
    for network in drawn(arguments.ranks, arguments.networks, arguments.seed):
        trees = best_rates(network).rate
        gaps += trees < collopt.bound(network, "allreduce").algbw
        reached += trees == priced_bound(network, best_prices(network))
    print(f"{arguments.networks} drawn: {gaps} with trees below the bound; trees proved best on {reached}")
    return 0 if reached == arguments.networks else 1


if __name__ == "__main__":
    sys.exit(main())
