"""Demands on small networks by a linear program of all trees that there are, without collopt's models and planners."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from scipy.optimize import linprog

from collopt import Demands, Topology


def best_tree_rate(topology: Topology, demands: Demands) -> float:
    """Return GB/s per unit of weight; every switch has to multicast.

    A tree is a link into some nodes, none into sources, so that each of these nodes gets data from a source.
    """
    number = {node: place for place, node in enumerate(topology.nodes)}
    links = [(number[link.tail], number[link.head]) for link in topology.links]
    columns, owners = [], []
    for group, entry in enumerate(demands.groups):
        sources, targets = ({number[rank] for rank in side} for side in (entry.sources, entry.destinations))
        for tree in _trees(links, len(number), sources, targets):
            columns.append(tree)
            owners.append(group)
    loads = np.zeros((len(links), len(columns) + 1))
    for place, tree in enumerate(columns):
        loads[list(tree), place] = 1
    sizes = np.zeros((len(demands.groups), len(columns) + 1))
    sizes[owners, np.arange(len(columns))] = 1
    sizes[:, -1] = [-group.weight for group in demands.groups]
    costs = np.zeros(len(columns) + 1)
    costs[-1] = -1
    widths = [float(link.bandwidth) for link in topology.links]
    answer = linprog(costs, A_ub=loads, b_ub=widths, A_eq=sizes, b_eq=np.zeros(len(sizes)))
    assert answer.status == 0
    return float(-answer.fun)


def _trees(links: Sequence[tuple[int, int]], nodes: int, sources: set[int], targets: set[int]) -> Iterator[list[int]]:
    choices = []
    for node in range(nodes):
        into = [place for place, (_, head) in enumerate(links) if head == node]
        free = [] if node in targets else [-1]
        choices.append([-1] if node in sources else free + into)
    for parents in product(*choices):
        reached = set(sources)
        while (
            new := {node for node in range(nodes) if parents[node] >= 0 and links[parents[node]][0] in reached}
            - reached
        ):
            reached |= new
        if all(parents[node] < 0 or node in reached for node in range(nodes)):
            yield [place for place in parents if place >= 0]
