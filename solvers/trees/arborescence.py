"""Minimum spanning arborescence by the algorithm of Chu and Liu, and Edmonds.

Every node takes its cheapest arc; a cycle of these is contracted, and the arcs into it cost what they cost more than
the arc that they replace.  Numbers of any kind that can be compared and subtracted will do.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Arc(NamedTuple):
    """From `tail` to `head`, numbers of nodes."""

    tail: int
    head: int
    cost: int


def cheapest_arborescence(num_nodes: int, root: int, arcs: Sequence[Arc]) -> list[int] | None:
    """Return places in `arcs` of a cheapest set that reaches all nodes from the root; None if there is none."""
    best = _cheapest_into(num_nodes, root, arcs)
    if best is None:
        return None
    labels, groups = _cycles(num_nodes, root, [arcs[place].tail if place >= 0 else root for place in best])
    if groups == num_nodes:
        return [place for place in best if place >= 0]
    inner = [
        (place, Arc(labels[arc.tail], labels[arc.head], arc.cost - arcs[best[arc.head]].cost))
        for place, arc in enumerate(arcs)
        if labels[arc.tail] != labels[arc.head] and arc.head != root
    ]
    places = cheapest_arborescence(groups, labels[root], [arc for _, arc in inner])
    if places is None:
        return None
    entering = {arcs[inner[place][0]].head: inner[place][0] for place in places}
    kept = [place for node, place in enumerate(best) if place >= 0 and node not in entering]
    return [*entering.values(), *kept]


def _cheapest_into(num_nodes: int, root: int, arcs: Sequence[Arc]) -> list[int] | None:
    """Place of the cheapest arc into each node, -1 at the root; None if some node has none."""
    best = [-1] * num_nodes
    for place, (tail, head, cost) in enumerate(arcs):
        if head not in (root, tail) and (best[head] < 0 or cost < arcs[best[head]].cost):
            best[head] = place
    return None if best.count(-1) > 1 else best


def _cycles(num_nodes: int, root: int, parents: Sequence[int]) -> tuple[list[int], int]:
    """Label nodes so that those of one cycle, and only those, share a label; also return how many labels there are."""
    labels, marks = [-1] * num_nodes, [-1] * num_nodes
    groups = 0
    for start in range(num_nodes):
        node = start
        while marks[node] < 0 and node != root:
            marks[node] = start
            node = parents[node]
        if node != root and marks[node] == start and labels[node] < 0:
            while labels[node] < 0:
                labels[node] = groups
                node = parents[node]
            groups += 1
    for node in range(num_nodes):
        if labels[node] < 0:
            labels[node] = groups
            groups += 1
    return labels, groups
