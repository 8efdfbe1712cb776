"""Path decomposition of single-source flows (Ahuja, Magnanti and Orlin, 1993, theorem 3.5), and lifting to all sources.

Cancel cycles; remove surpluses, first over the longest paths; extract paths backwards, from the farthest rank
on.  Lifting gives each pair (source, link) of an orbit an equal share.  Proof: docs/formulations/all_to_all.md.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CapacityOverflowError, SolverError
from ...support.arrays import IntArray
from ...support.kernels import kernel, kernel_with
from ...support.validation import shown
from ...topologies.symmetry.isomorphism import link_images
from .max_flow import check_capacities
from .shortest_paths import Adjacency, adjacency


class Paths(NamedTuple):
    """Weighted paths in compressed rows."""

    weights: IntArray  # int64 (paths,): flow or number of chunks
    starts: IntArray  # int64 (paths + 1,): first entry of each path in `links`
    # int64 (total hops,): the links of path p, in order, are ``links[starts[p]:starts[p + 1]]``, at least one
    links: IntArray


def source_paths(
    num_nodes: int, tails: IntArray, heads: IntArray, flow: IntArray, source: int, demands: IntArray
) -> Paths:
    """Decompose the flow of one source into simple paths that meet every demand exactly.

    Shapes: `flow` int64 (links,); `demands` int64 (nodes,).
    """
    check_capacities(len(flow) * int(flow.max(initial=0)))
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
    return Paths(*_paths(adjacency(num_nodes, tails, heads), tails, heads, flow.copy(), source, demands))


def joined(parts: Sequence[Paths]) -> Paths:
    """Concatenate paths."""
    hops = [np.zeros(1, dtype=np.int64), *(np.diff(part.starts) for part in parts)]
    none = np.empty(0, dtype=np.int64)
    return Paths(
        np.concatenate([none, *(part.weights for part in parts)]),
        np.cumsum(np.concatenate(hops)),
        np.concatenate([none, *(part.links for part in parts)]),
    )


def path_loads(paths: Paths, weights: IntArray, num_links: int) -> IntArray:
    """Sum the weights of the paths on each link. Shapes: `weights` int64 (paths,); returns int64 (links,)."""
    loads = np.zeros(num_links, dtype=np.int64)
    np.add.at(loads, paths.links, np.repeat(weights, np.diff(paths.starts)))
    return loads


@kernel
def _paths(
    graph: Adjacency, tails: IntArray, heads: IntArray, flow: IntArray, source: int, demands: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return weights, starts and links of the paths; `flow` is overwritten."""
    num_nodes = len(demands)
    order = _cancel_cycles(graph, heads, flow, source)
    hops, widths = np.full(num_nodes, num_nodes, dtype=np.int64), np.zeros(num_nodes, dtype=np.int64)
    hops[source], widths[source] = 0, flow.sum()
    for place in range(len(order) - 2, -1, -1):
        _relabel(graph, flow, order[place], hops, widths)
    _drop_surplus(graph, flow, source, demands, order, hops)
    for place in range(len(order) - 2, -1, -1):
        _relabel(graph, flow, order[place], hops, widths)
    return _extract_paths(graph, tails, flow, source, demands, hops, widths)


@kernel
def _cancel_cycles(graph: Adjacency, heads: IntArray, flow: IntArray, source: int) -> IntArray:
    """Make the flow acyclic by depth-first search, and return the reached nodes in reverse topological order.

    A node is done once each of its links is empty or leads to a done node, and stays so, as flow only decreases.  A
    link to a node on the stack closes a cycle, which is canceled by its least flow; the search resumes at its first
    link that is empty now.  Unreached nodes only have cycles of their own.
    """
    num_nodes = len(graph.out_starts) - 1
    next_link = graph.out_starts[:-1].copy()
    state = np.zeros(num_nodes, dtype=np.int8)  # 1 on the stack, 2 done
    depths, entered = np.zeros(num_nodes, dtype=np.int64), np.empty(num_nodes, dtype=np.int64)
    stack, order = np.empty(num_nodes, dtype=np.int64), np.empty(num_nodes, dtype=np.int64)
    stack[0], state[source], size, done = source, 1, 1, 0
    while size > 0:
        node = stack[size - 1]
        link = -1
        while next_link[node] < graph.out_starts[node + 1]:
            link = graph.out_links[next_link[node]]
            if flow[link] > 0 and state[heads[link]] < 2:
                break
            next_link[node] += 1
        if next_link[node] == graph.out_starts[node + 1]:
            state[node], order[done] = 2, node
            done += 1
            size -= 1
            continue
        head = heads[link]
        if state[head] == 0:
            state[head], depths[head], entered[size], stack[size] = 1, size, link, head
            size += 1
            continue
        # A cycle: cancel it, and resume at its first empty link.
        narrowest = flow[link]
        for place in range(depths[head] + 1, size):
            narrowest = min(narrowest, flow[entered[place]])
        flow[link] -= narrowest
        kept = size
        for place in range(size - 1, depths[head], -1):
            flow[entered[place]] -= narrowest
            if flow[entered[place]] == 0:
                kept = place
        while size > kept:
            size -= 1
            state[stack[size]] = 0
    return order[:done]


@kernel
def _relabel(graph: Adjacency, flow: IntArray, node: int, hops: IntArray, widths: IntArray) -> int:
    """Set hops and width of a node from its predecessors; return the index of the best link in, -1 for none."""
    best = -1
    hops[node], widths[node] = len(hops), 0
    for place in range(graph.in_starts[node], graph.in_starts[node + 1]):
        here = flow[graph.in_links[place]]
        if here == 0:
            continue
        tail = graph.in_tails[place]
        length, width = hops[tail] + 1, min(here, widths[tail])
        if length < hops[node] or (length == hops[node] and width > widths[node]) or best < 0:
            hops[node], widths[node], best = length, width, place
    return best


@kernel
def _drop_surplus(
    graph: Adjacency, flow: IntArray, source: int, demands: IntArray, order: IntArray, hops: IntArray
) -> None:
    """Remove the surplus of every node, first from links of the longest paths, narrow before wide."""
    for node in order:
        if node == source:
            continue
        surplus = -demands[node]
        for place in range(graph.out_starts[node], graph.out_starts[node + 1]):
            surplus -= flow[graph.out_links[place]]
        for place in range(graph.in_starts[node], graph.in_starts[node + 1]):
            surplus += flow[graph.in_links[place]]
        while surplus > 0:
            worst, farthest = -1, -1
            for place in range(graph.in_starts[node], graph.in_starts[node + 1]):
                link, far = graph.in_links[place], hops[graph.in_tails[place]]
                if flow[link] > 0 and (far > farthest or (far == farthest and flow[link] < flow[worst])):
                    worst, farthest = link, far
            part = min(surplus, flow[worst])
            flow[worst] -= part
            surplus -= part


@kernel
def _extract_paths(
    graph: Adjacency, tails: IntArray, flow: IntArray, source: int, demands: IntArray, hops: IntArray, widths: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Decompose an acyclic flow that meets every demand exactly."""
    limit = np.count_nonzero(flow) + np.count_nonzero(demands)
    weights, starts = np.empty(limit, dtype=np.int64), np.zeros(limit + 1, dtype=np.int64)
    links, path = np.empty(4 * limit + len(demands), dtype=np.int64), np.empty(len(demands), dtype=np.int64)
    count, end = 0, 0
    for rank in np.argsort(-hops, kind="mergesort"):
        left = demands[rank]
        while left > 0:
            node, length, weight = rank, 0, left
            while node != source:
                place = _relabel(graph, flow, node, hops, widths)
                link = graph.in_links[place]
                weight = min(weight, flow[link])
                path[length] = link
                length += 1
                node = tails[link]
            if end + length > len(links):
                wider = np.empty(2 * len(links) + length, dtype=np.int64)
                wider[:end] = links[:end]
                links = wider
            for place in range(length):
                link = path[length - 1 - place]
                links[end + place] = link
                flow[link] -= weight
            left -= weight
            end += length
            weights[count], starts[count + 1] = weight, end
            count += 1
    return weights[:count].copy(), starts[: count + 1].copy(), links[:end].copy()


LabelArray = npt.NDArray[np.int32]

MAX_INT64 = 2**63 - 1
MAX_PAIRS = 2**31 - 1  # pairs of a source and a link; their orbits are numbered in 32 bits


class LiftedFlows(NamedTuple):
    """Integral flows of all sources."""

    # int64 (ranks, links): flow of each source on each link, times `scale`; 0 for ranks that send nothing
    flows: IntArray
    scale: int  # at least 1


def lift_flows(
    num_ranks: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    symmetries: IntArray,
    sources: IntArray,
    flows: npt.NDArray[np.int64] | npt.NDArray[np.object_],
) -> LiftedFlows:
    """Compute flows of all sources that put equal loads on all links of an orbit.

    Memory is O(ranks * links), time O(ranks * links * generators).  Shapes: `symmetries` int64 (generators, nodes);
    `sources` int64 (sources,); `flows` int64 (sources, links).
    """
    if num_ranks * len(tails) > MAX_PAIRS:
        raise CapacityOverflowError(
            f"there are {num_ranks} ranks and {len(tails)} links; expected at most {MAX_PAIRS} pairs of them"
        )
    images = link_images(tails, heads, capacities, symmetries)
    labels = np.full((num_ranks, len(tails)), -1, dtype=np.int32)
    queue = np.empty(labels.size, dtype=np.int64)
    shares: list[Fraction] = []
    for source, flow in zip(sources.tolist(), flows, strict=True):
        before = len(shares)
        _label(source, symmetries, images, labels, queue, before)
        # The average over each orbit of its links.
        orbits = labels[source] - before
        sums = np.zeros(int(orbits.max()) + 1, dtype=np.object_)
        np.add.at(sums, orbits, flow.astype(np.object_))
        shares += [Fraction(total) / size for total, size in zip(sums, np.bincount(orbits).tolist(), strict=True)]
    scale = lcm(*(share.denominator for share in shares))
    integers = [share.numerator * (scale // share.denominator) for share in shares]
    if max(integers) <= MAX_INT64:
        # The last entry is for the label -1, of ranks that send nothing.
        lifted = np.array([*integers, 0], dtype=np.int64)[labels]
        if lifted.sum(axis=0, dtype=np.float64).max() <= MAX_INT64 / 2:
            return LiftedFlows(lifted, scale)
    raise CapacityOverflowError(
        f"equal parts of the flows are whole numbers only {shown(scale)} times as large, which overflows int64; "
        "state the flows in larger units"
    )


@kernel_with(lambda _, symmetries, __, labels, *___: len(symmetries) * labels.shape[1])
def _label(
    source: int, symmetries: IntArray, images: IntArray, labels: LabelArray, queue: IntArray, count: int
) -> None:
    """Number the orbits of the pairs of a source from `count` on, by BFS."""
    links = labels.shape[1]
    for link in range(links):
        if labels[source, link] >= 0:
            continue
        labels[source, link] = count
        queue[0], first, last = source * links + link, 0, 1
        while first < last:
            at, over = queue[first] // links, queue[first] % links
            first += 1
            for row in range(len(symmetries)):
                node, image = symmetries[row, at], images[row, over]
                if labels[node, image] < 0:
                    labels[node, image] = count
                    queue[last] = node * links + image
                    last += 1
        count += 1
