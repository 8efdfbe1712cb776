"""Flows as paths: what starts at one node, cut into ways along which it travels.

A flow tells how much crosses each link, and not which way any part of it takes.  It is cut up in four steps:

1. cycles bring nothing to anybody and are taken out, which leaves an acyclic flow;
2. from the far end back, each node gives up what it receives beyond its needs, first over the longest ways;
3. nodes are labelled with the fewest hops that reach them, and with how much such a way carries;
4. from each rank, the farthest first, paths are walked backwards over the shortest and then the widest ways.

Every path uses up what some link carries or what some rank still needs, so there are at most as many paths as links
with flow and ranks together (R. K. Ahuja, T. L. Magnanti and J. B. Orlin, "Network Flows", 1993, theorem 3.5).  Which
paths they are is not unique; the fewest possible are NP-hard to find, and labels are mended only where a walk comes by,
so paths are few and short but not the fewest or shortest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from ...errors import SolverError
from ...support.arrays import IntArray
from ..flow.max_flow import check_capacities
from ..multicommodity.soft_shortest_paths import Adjacent, adjacent

__all__ = ["Paths", "joined", "path_loads", "source_paths"]


class Paths(NamedTuple):
    """Ways through a network, and how much goes along each.

    `weights` (int64 (paths,)): How much, or how many chunks; positive where a flow was cut up.
    `starts` (int64 (paths + 1,)): Where the links of each path begin.
    `links` (int64 (hops in all,)): Numbers of links: path p travels over ``links[starts[p]:starts[p + 1]]``, in this
        order, at least one.
    """

    weights: IntArray
    starts: IntArray
    links: IntArray


def source_paths(
    num_nodes: int, tails: IntArray, heads: IntArray, flow: IntArray, source: int, demands: IntArray
) -> Paths:
    """Cut what one node sends into simple paths that bring each rank exactly what it asks for.

    Shapes: `tails`, `heads` int64 (links,); `flow` int64 (links,); `demands` int64 (nodes,).

    Node 0 sends 2 to node 1 and 3 to node 2, of which 1 travels through node 1:

    >>> tails, heads = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> source_paths(3, tails, heads, np.array([3, 2, 1]), 0, np.array([0, 2, 3]))
    Paths(weights=array([2, 2, 1]), starts=array([0, 1, 2, 4]), links=array([0, 1, 0, 2]))
    """
    _check_arrays(num_nodes, tails, heads, flow, source, demands)
    kept = np.zeros(num_nodes, dtype=np.int64)
    np.add.at(kept, heads, flow)
    np.subtract.at(kept, tails, flow)
    short = kept < demands
    short[source] = False
    if short.any():
        node = int(short.argmax())
        raise SolverError(
            f"the flow from node {source} leaves {kept[node]} at node {node}; expected at least {demands[node]}"
        )
    return Paths(*_paths(adjacent(num_nodes, tails, heads), tails, heads, flow.copy(), source, demands))


def joined(parts: Sequence[Paths]) -> Paths:
    """Put paths one after the other."""
    hops = [np.zeros(1, dtype=np.int64), *(np.diff(part.starts) for part in parts)]
    none = np.empty(0, dtype=np.int64)
    return Paths(
        np.concatenate([none, *(part.weights for part in parts)]),
        np.cumsum(np.concatenate(hops)),
        np.concatenate([none, *(part.links for part in parts)]),
    )


def path_loads(paths: Paths, weights: IntArray, num_links: int) -> IntArray:
    """Add up what paths put on each link.

    Shapes: `weights` int64 (paths,); returns int64 (links,).
    """
    return _loads(paths, weights, np.zeros(num_links, dtype=np.int64))


def _check_arrays(
    num_nodes: int, tails: IntArray, heads: IntArray, flow: IntArray, source: int, demands: IntArray
) -> None:
    columns = {"tails": (tails, len(tails)), "heads": (heads, len(tails)), "flow": (flow, len(tails))}
    columns["demands"] = demands, num_nodes
    for name, (column, length) in columns.items():
        if column.shape != (length,) or column.dtype != np.int64 or column.min(initial=0) < 0:
            raise SolverError(
                f"{name} have shape {column.shape}, type {column.dtype} and minimum {column.min(initial=0)}; expected "
                f"int64, of shape ({length},), none below 0"
            )
    last = max(int(tails.max(initial=0)), int(heads.max(initial=0)), source)
    if not 0 <= source <= last < num_nodes:
        raise SolverError(f"the source is {source} and the last node {last}; expected nodes from 0 to {num_nodes - 1}")
    if demands[source]:
        raise SolverError(f"node {source} has a demand of {demands[source]} for itself; expected 0")
    check_capacities(len(flow) * int(flow.max(initial=0)))


@numba.njit(cache=True, nogil=True)
def _loads(paths: Paths, weights: IntArray, loads: IntArray) -> IntArray:
    for path in range(len(weights)):
        for place in range(paths.starts[path], paths.starts[path + 1]):
            loads[paths.links[place]] += weights[path]
    return loads


@numba.njit(cache=True, nogil=True)
def _paths(
    around: Adjacent, tails: IntArray, heads: IntArray, flow: IntArray, source: int, demands: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Weights, starts and links of the paths; `flow` is used up."""
    num_nodes = len(demands)
    order = _cancel_cycles(around, heads, flow, source)
    hops, widths = np.full(num_nodes, num_nodes, dtype=np.int64), np.zeros(num_nodes, dtype=np.int64)
    hops[source], widths[source] = 0, flow.sum()
    for place in range(len(order) - 2, -1, -1):
        _shortest_way(around, flow, order[place], hops, widths)
    _drop_surplus(around, flow, source, demands, order, hops)
    for place in range(len(order) - 2, -1, -1):
        _shortest_way(around, flow, order[place], hops, widths)
    return _walk_back(around, tails, flow, source, demands, hops, widths)


@numba.njit(cache=True, nogil=True)
def _cancel_cycles(around: Adjacent, heads: IntArray, flow: IntArray, source: int) -> IntArray:
    """Make the flow acyclic, and return the nodes that it reaches, every one after all that it leads to.

    This is a search in depth.  A node is done once each of its links is empty or leads to a node that is done, and
    stays so, as flow only gets less.  A link back to a node under way closes a cycle; it is emptied by its least link,
    and the search falls back to the first link of it that is empty now.  Nodes that are not reached have no flow but
    cycles of their own: none of them receives less than it passes on, so nothing can leave them.
    """
    num_nodes = len(around.out_starts) - 1
    following = around.out_starts[:-1].copy()
    state = np.zeros(num_nodes, dtype=np.int8)  # 1 under way, 2 done
    depths, entered = np.zeros(num_nodes, dtype=np.int64), np.empty(num_nodes, dtype=np.int64)
    stack, order = np.empty(num_nodes, dtype=np.int64), np.empty(num_nodes, dtype=np.int64)
    stack[0], state[source], size, done = source, 1, 1, 0
    while size > 0:
        node = stack[size - 1]
        link = -1
        while following[node] < around.out_starts[node + 1]:
            link = around.out_links[following[node]]
            if flow[link] > 0 and state[heads[link]] < 2:
                break
            following[node] += 1
        if following[node] == around.out_starts[node + 1]:
            state[node], order[done] = 2, node
            done += 1
            size -= 1
            continue
        head = heads[link]
        if state[head] == 0:
            state[head], depths[head], entered[size], stack[size] = 1, size, link, head
            size += 1
            continue
        least = flow[link]
        for place in range(depths[head] + 1, size):
            least = min(least, flow[entered[place]])
        flow[link] -= least
        kept = size
        for place in range(size - 1, depths[head], -1):
            flow[entered[place]] -= least
            if flow[entered[place]] == 0:
                kept = place
        while size > kept:
            size -= 1
            state[stack[size]] = 0
    return order[:done]


@numba.njit(cache=True, nogil=True)
def _shortest_way(around: Adjacent, flow: IntArray, node: int, hops: IntArray, widths: IntArray) -> int:
    """Label a node by the labels before it; return where the best link into it stands, -1 if none has flow."""
    found = -1
    hops[node], widths[node] = len(hops), 0
    for place in range(around.in_starts[node], around.in_starts[node + 1]):
        here = flow[around.in_links[place]]
        if here == 0:
            continue
        tail = around.in_tails[place]
        more, width = hops[tail] + 1, min(here, widths[tail])
        if more < hops[node] or (more == hops[node] and width > widths[node]) or found < 0:
            hops[node], widths[node], found = more, width, place
    return found


@numba.njit(cache=True, nogil=True)
def _drop_surplus(
    around: Adjacent, flow: IntArray, source: int, demands: IntArray, order: IntArray, hops: IntArray
) -> None:
    """Leave each node what it asks for and passes on: links of the longest ways go first, narrow before wide."""
    for node in order:
        if node == source:
            continue
        surplus = -demands[node]
        for place in range(around.out_starts[node], around.out_starts[node + 1]):
            surplus -= flow[around.out_links[place]]
        for place in range(around.in_starts[node], around.in_starts[node + 1]):
            surplus += flow[around.in_links[place]]
        while surplus > 0:
            worst, farthest = -1, -1
            for place in range(around.in_starts[node], around.in_starts[node + 1]):
                link, far = around.in_links[place], hops[around.in_tails[place]]
                if flow[link] > 0 and (far > farthest or (far == farthest and flow[link] < flow[worst])):
                    worst, farthest = link, far
            part = min(surplus, flow[worst])
            flow[worst] -= part
            surplus -= part


@numba.njit(cache=True, nogil=True)
def _walk_back(
    around: Adjacent,
    tails: IntArray,
    flow: IntArray,
    source: int,
    demands: IntArray,
    hops: IntArray,
    widths: IntArray,
) -> tuple[IntArray, IntArray, IntArray]:
    """Take paths out of an acyclic flow that brings each node exactly what it asks for, until nothing is left."""
    most = np.count_nonzero(flow) + np.count_nonzero(demands)
    weights, starts = np.empty(most, dtype=np.int64), np.zeros(most + 1, dtype=np.int64)
    links, way = np.empty(4 * most + len(demands), dtype=np.int64), np.empty(len(demands), dtype=np.int64)
    count, end = 0, 0
    for rank in np.argsort(-hops, kind="mergesort"):
        left = demands[rank]
        while left > 0:
            node, length, weight = rank, 0, left
            while node != source:
                place = _shortest_way(around, flow, node, hops, widths)
                link = around.in_links[place]
                weight = min(weight, flow[link])
                way[length] = link
                length += 1
                node = tails[link]
            if end + length > len(links):
                more = np.empty(2 * len(links) + length, dtype=np.int64)
                more[:end] = links[:end]
                links = more
            for place in range(length):
                link = way[length - 1 - place]
                links[end + place] = link
                flow[link] -= weight
            left -= weight
            end += length
            weights[count], starts[count + 1] = weight, end
            count += 1
    return weights[:count].copy(), starts[: count + 1].copy(), links[:end].copy()
