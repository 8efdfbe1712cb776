"""Demands on small networks by a linear program of all trees that there are, without collopt's models and planners."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from collopt import Demands, Topology

MAX_TREES = 20_000
Links = Sequence[tuple[str, str]]


def best_tree_rate(topology: Topology, demands: Demands) -> float | None:
    """Return GB/s per unit of weight; None where there are too many trees to list.

    A tree is a hop into some ends, none into sources, so that each of these ends gets data from a source.  Ends are
    ranks and switches that multicast.  All hops of a sender are routed together past other switches.  A switch with
    loopback, which no other switch is next to, is fed by ranks there and back, unless data only passes it.
    """
    ends = [*topology.compute_nodes, *(node for node in topology.switch_nodes if node in topology.multicast)]
    links = [(link.tail, link.head) for link in topology.links]
    stops = set(ends) - topology.loopback
    reach = {end: _reached(links, end, stops) for end in ends}
    # What is to be at least 0: trees over what their groups need, and flow over what trees need at an end.
    rows: dict[object, int] = {}
    balance: list[tuple[int, int, float]] = []
    columns = 1  # The first is the rate.
    for group, entry in enumerate(demands.groups):
        size = rows.setdefault(group, len(rows))
        balance.append((size, 0, -entry.weight))
        choices = {end: [sender for sender in ends if end in reach[sender] and end != sender] for end in ends}
        for end in ends:
            if end in topology.loopback:
                choices[end] = [sender for sender in choices[end] if sender in topology.compute_nodes]
            choices[end] = [""] if end in entry.sources else choices[end] + [""] * (end not in entry.destinations)
        if prod(map(len, choices.values())) > MAX_TREES:
            return None
        for tree in _trees(choices, entry.sources, entry.destinations):
            balance.append((size, columns, 1))
            for end, sender in tree.items():
                loop = end if end in topology.loopback else ""
                balance.append((rows.setdefault((sender, loop, end), len(rows)), columns, -1))
            columns += 1
    loads = []
    for sender, loop in product(ends, ["", *topology.loopback]):
        for place, (tail, head) in enumerate(links):
            if tail != sender and (tail not in reach[sender] or tail in stops):
                continue
            if loop and (head, tail) not in links:
                continue
            loads += [(at, columns, 1) for at in ([place, links.index((head, tail))] if loop else [place])]
            balance.append((rows.setdefault((sender, loop, head), len(rows)), columns, 1))
            if tail != sender:
                balance.append((rows.setdefault((sender, loop, tail), len(rows)), columns, -1))
            columns += 1
    costs = np.zeros(columns)
    costs[0] = -1
    table = vstack([-_matrix(balance, len(rows), columns), _matrix(loads, len(links), columns)])
    answer = linprog(costs, table, [0.0] * len(rows) + [float(link.bandwidth) for link in topology.links])
    assert answer.status == 0
    return float(-answer.fun)


def _matrix(entries: list[tuple[int, int, float]], rows: int, columns: int) -> coo_array:
    at, places, values = zip(*entries, strict=True)
    return coo_array((values, (at, places)), shape=(rows, columns))


def _reached(links: Links, start: str, ends: Collection[str]) -> set[str]:
    """Nodes to which links lead from one, past no end."""
    reached, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        new = {head for tail, head in links if tail == node} - reached
        reached |= new
        waiting += new.difference(ends)
    return reached


def _trees(
    choices: Mapping[str, Sequence[str]], sources: Collection[str], targets: Collection[str]
) -> Iterator[dict[str, str]]:
    """Senders of the ends of each tree, whose leaves are all destinations."""
    for senders in product(*choices.values()):
        tree = {end: sender for end, sender in zip(choices, senders, strict=True) if sender}
        if not set(tree).issubset({*tree.values(), *targets}):
            continue
        reached = set(sources)
        while new := {end for end, sender in tree.items() if sender in reached} - reached:
            reached |= new
        if reached.issuperset(tree):
            yield tree
