"""Network under edge splitting, in which each link records its parts, and trees grown in it.

A table of two columns replaces the nested `routing` of Algorithm 3: joining appends a row, and routes are expanded
once, at the end, for the links that trees use (ForestColl Appendix E.2).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...support.kernels import kernel


class Routes(NamedTuple):
    """Paths in one array: path ``p`` is ``nodes[starts[p]:starts[p + 1]]``."""

    starts: IntArray
    nodes: IntArray


class RoutedGraph:
    """Links with their remaining units and the pair of links that each was joined from.

    `tails`, `heads`, `units` (int64 (links,)): Links without units stay, since others may have been joined from them.
    `before`, `after` (int64 (links,)): The two links that a link follows, -1 for links of the original network.
    """

    def __init__(self, num_nodes: int, tails: IntArray, heads: IntArray, units: IntArray) -> None:
        self.num_nodes = num_nodes
        self.tails, self.heads, self.units = tails.copy(), heads.copy(), units.copy()
        self.before = np.full(len(tails), -1, dtype=np.int64)
        self.after = np.full(len(tails), -1, dtype=np.int64)

    def alive(self) -> IntArray:
        """Numbers of the links that have units."""
        return np.flatnonzero(self.units > 0)

    def join(self, into: IntArray, out: IntArray, units: IntArray) -> None:
        """Replace units of link pairs `into`, `out`, int64 (pairs,), by links that bypass their node; drop loops."""
        np.subtract.at(self.units, into, units)
        np.subtract.at(self.units, out, units)
        kept = (self.tails[into] != self.heads[out]) & (units > 0)
        into, out, units = into[kept], out[kept], units[kept]
        self.tails = np.concatenate([self.tails, self.tails[into]])
        self.heads = np.concatenate([self.heads, self.heads[out]])
        self.units = np.concatenate([self.units, units])
        self.before = np.concatenate([self.before, into])
        self.after = np.concatenate([self.after, out])

    def routes(self, links: IntArray) -> Routes:
        """Expand `links`, int64 (paths,), into the nodes that they pass, both ends included and without loops."""
        return Routes(*_expanded(links, self.tails, self.heads, self.before, self.after, self.num_nodes))


@kernel
def _expanded(
    links: IntArray, tails: IntArray, heads: IntArray, before: IntArray, after: IntArray, num_nodes: int
) -> tuple[IntArray, IntArray]:
    starts = np.zeros(len(links) + 1, dtype=np.int64)
    nodes = np.empty(4 * len(links) + 16, dtype=np.int64)
    place = np.full(num_nodes, -1, dtype=np.int64)  # of a node on the path being written
    pending = np.empty(len(tails) + 1, dtype=np.int64)
    end = 0
    for number in range(len(links)):
        if len(nodes) < end + num_nodes + 1:
            nodes = np.concatenate((nodes, np.empty(len(nodes) + num_nodes + 1, dtype=np.int64)))
        start = end
        nodes[end] = tails[links[number]]
        place[nodes[end]] = end
        end += 1
        pending[0] = links[number]
        waiting = 1
        while waiting > 0:
            waiting -= 1
            link = pending[waiting]
            if before[link] >= 0:
                pending[waiting], pending[waiting + 1] = after[link], before[link]
                waiting += 2
                continue
            node = heads[link]
            if place[node] >= 0:
                # Cut the loop of a path that returns to a switch.
                while end > place[node] + 1:
                    end -= 1
                    place[nodes[end]] = -1
            else:
                nodes[end] = node
                place[node] = end
                end += 1
        for position in range(start, end):
            place[nodes[position]] = -1
        starts[number + 1] = end
    return starts, nodes[:end].copy()


class Arc(NamedTuple):
    """From `tail` to `head`, numbers of nodes."""

    tail: int
    head: int
    cost: int


def cheapest_arborescence(num_nodes: int, root: int, arcs: Sequence[Arc]) -> list[int] | None:
    """Return places in `arcs` of a cheapest set that reaches all nodes from the root; None if there is none."""
    best = [-1] * num_nodes  # place of the cheapest arc into each node
    for place, (tail, head, cost) in enumerate(arcs):
        if head not in (root, tail) and (best[head] < 0 or cost < arcs[best[head]].cost):
            best[head] = place
    if best.count(-1) > 1:
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
