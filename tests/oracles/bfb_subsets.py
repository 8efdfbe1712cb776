"""How long a rank needs for what comes from a distance, exactly: the worst of all sets of links into it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

import networkx as nx

from collopt.topologies import Link, Topology

__all__ = ["diameter_of", "least_load", "least_time", "offered_links"]


def diameter_of(topology: Topology) -> int:
    """Largest distance in hops."""
    return int(nx.diameter(topology.to_networkx()))


def offered_links(topology: Topology, distance: int, rank: str) -> list[frozenset[Link]]:
    """For each source at this distance, the links into the rank that can bring its shard."""
    hops = dict(nx.all_pairs_shortest_path_length(topology.to_networkx()))
    sources = [source for source in topology.compute_nodes if hops[source][rank] == distance]
    return [
        frozenset(link for link in topology.in_links(rank) if hops[source][link.tail] == distance - 1)
        for source in sources
    ]


def least_load(topology: Topology, distance: int, rank: str) -> Fraction:
    """max over sets S of links of c(S) / B(S), where c(S) sources have links in S only: ns per byte of shard."""
    masks = offered_links(topology, distance, rank)
    return max((Fraction(count) / sum(link.bandwidth for link in chosen) for chosen, count in _sets(masks)), default=0)


def least_time(topology: Topology, distance: int, rank: str, shard_bytes: int) -> Fraction:
    """Least U in µs such that c(S) shards fit B(w) max(0, U - alpha(w)), summed over S, for every set S of links.

    A link whose latency is too long takes nothing and costs nothing: this is linear program (14) over the best set of
    links to use.
    """
    masks = offered_links(topology, distance, rank)
    size = Fraction(shard_bytes, 1000)
    return max((_filling_time(count * size, chosen) for chosen, count in _sets(masks)), default=Fraction(0))


def _sets(masks: list[frozenset[Link]]) -> Iterator[tuple[frozenset[Link], int]]:
    """Every set of links, with how many sources have links in it only, if there are any."""
    every = sorted(frozenset().union(*masks))
    for size in range(1, len(every) + 1):
        for chosen in map(frozenset, combinations(every, size)):
            if count := sum(mask <= chosen for mask in masks):
                yield chosen, count


def _filling_time(amount: Fraction, links: frozenset[Link]) -> Fraction:
    """When links that start after their latencies have taken an amount together."""
    order = sorted(links, key=lambda link: link.latency)
    for used in range(1, len(order) + 1):
        fast = order[:used]
        started = sum(link.bandwidth * link.latency for link in fast)
        time = (amount + started) / sum(link.bandwidth for link in fast)
        if used == len(order) or time <= order[used].latency:
            return time
    raise AssertionError("there is always a last link")
