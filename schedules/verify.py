"""The check of a forest that every plan's certificate rests on.

It shares no code with the planners, the solvers or the methods of `Forest`: it reads the arrays and the topology's
links and nothing else.  Every step is linear in the size of the forest but one, which takes ``log2(N)`` rounds.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ..errors import CertificateError
from ..topologies import Topology
from .forest import Forest

__all__ = ["verified_link_loads"]

IntArray = npt.NDArray[np.int64]

LOAD_LIMIT = 2**62


def verified_link_loads(forest: Forest, topology: Topology) -> IntArray:
    """Check that a forest is what it should be on a topology, and add up what it puts on every link.

    Checked: the arrays fit together; every route follows links of the topology, passes only switches and no node
    twice; every tree reaches every rank from its root; the weights of each root's trees add up to `trees_per_root`.

    Parameters
    ----------
    forest : Forest
        Trusted in nothing.
    topology : Topology
        Trusted: it was checked when it was made.

    Returns
    -------
    ndarray of int64, shape (links,)
        Tree copies on each link, in the order of ``topology.links``.

    Raises
    ------
    CertificateError
        Naming the first thing that is wrong.
    """
    _check_shapes(forest, topology)
    hops = _checked_paths(forest, topology)
    parents = _checked_parents(forest)
    _check_spanning(forest, parents)
    _check_weights(forest)
    return _added_loads(forest, hops, len(topology.links))


def _refuse_if(wrong: npt.NDArray[np.bool_], message: str) -> None:
    """Raise with `message`, whose ``{}`` is filled with the index of the first wrong entry."""
    if wrong.any():
        where = tuple(int(place) for place in np.argwhere(wrong)[0])
        raise CertificateError(message.format(*where))


def _check_shapes(forest: Forest, topology: Topology) -> None:
    ranks, trees = topology.num_ranks, len(forest.roots)
    arrays = {
        "roots": (forest.roots, (trees,)),
        "weights": (forest.weights, (trees,)),
        "routes": (forest.routes, (trees, ranks)),
        "path_starts": (forest.path_starts, (len(forest.path_starts),)),
        "path_nodes": (forest.path_nodes, (len(forest.path_nodes),)),
    }
    if forest.num_ranks != ranks:
        raise CertificateError(f"the forest is for {forest.num_ranks} ranks; the topology has {ranks}")
    if forest.trees_per_root < 1 or trees < 1:
        raise CertificateError(
            f"the forest has {trees} trees and {forest.trees_per_root} per root; expected at least 1"
        )
    for name, (array, shape) in arrays.items():
        if array.dtype != np.int64 or array.shape != shape:
            raise CertificateError(
                f"the forest's {name} are {array.dtype} of shape {array.shape}; expected int64, {shape}"
            )
    _refuse_if((forest.roots < 0) | (forest.roots >= ranks), "tree {} has a root that is not a rank")
    _refuse_if(forest.weights < 1, "tree {} has a weight below 1")


def _checked_paths(forest: Forest, topology: Topology) -> list[IntArray]:
    """Check every path and return, per path, the numbers of its links."""
    starts, nodes = forest.path_starts, forest.path_nodes
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(nodes) or (np.diff(starts) < 2).any():
        raise CertificateError("the forest's path_starts do not cut its path_nodes into paths of two or more nodes")
    _refuse_if((nodes < 0) | (nodes >= len(topology.nodes)), "path node {} is not a node of the topology")
    index = {
        (topology.node_index[link.tail], topology.node_index[link.head]): i for i, link in enumerate(topology.links)
    }
    names, ranks = topology.nodes, topology.num_ranks
    hops = []
    for path, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        stations = nodes[start:stop].tolist()
        if stations[0] >= ranks or stations[-1] >= ranks or min(stations[1:-1], default=ranks) < ranks:
            raise CertificateError(f"path {path} does not run from a rank to a rank through switches only")
        if len(set(stations)) < len(stations):
            raise CertificateError(f"path {path} passes a node twice")
        links = [index.get(hop, -1) for hop in pairwise(stations)]
        if -1 in links:
            tail, head = (names[node] for node in stations[links.index(-1) :][:2])
            raise CertificateError(f"path {path} uses a link from {tail!r} to {head!r}, which is not there")
        hops.append(np.array(links, dtype=np.int64))
    return hops


def _checked_parents(forest: Forest) -> IntArray:
    """Check that every rank but the root receives on a path that ends there; return the senders, the root its own."""
    trees, ranks = forest.routes.shape
    at_root = np.zeros((trees, ranks), dtype=np.bool_)
    at_root[np.arange(trees), forest.roots] = True
    _refuse_if(at_root & (forest.routes != -1), "the root of tree {} receives: rank {}")
    unrouted = (forest.routes < 0) | (forest.routes >= len(forest.path_starts) - 1)
    _refuse_if(~at_root & unrouted, "tree {} brings nothing to rank {}")
    routes = np.where(at_root, 0, forest.routes)
    receivers = forest.path_nodes[forest.path_starts[1:] - 1][routes]
    _refuse_if(~at_root & (receivers != np.arange(ranks)), "in tree {} the path to rank {} ends elsewhere")
    return np.where(at_root, np.arange(ranks), forest.path_nodes[forest.path_starts[:-1]][routes])


def _check_spanning(forest: Forest, parents: IntArray) -> None:
    """Follow the senders by doubling: after ``ceil(log2 N)`` rounds everyone has arrived at the root, or never will."""
    ancestors = parents
    for _ in range(int(forest.num_ranks).bit_length()):
        ancestors = np.take_along_axis(ancestors, ancestors, axis=1)
    _refuse_if(ancestors != forest.roots[:, None], "tree {} does not reach rank {} from its root")


def _check_weights(forest: Forest) -> None:
    totals = [0] * forest.num_ranks
    for root, weight in zip(forest.roots.tolist(), forest.weights.tolist(), strict=True):
        totals[root] += weight
    for root, total in enumerate(totals):
        if total != forest.trees_per_root:
            raise CertificateError(f"the trees of root {root} weigh {total} together; expected {forest.trees_per_root}")


def _added_loads(forest: Forest, hops: list[IntArray], num_links: int) -> IntArray:
    total = forest.trees_per_root * forest.num_ranks * forest.num_ranks
    if total * max(map(len, hops)) >= LOAD_LIMIT:
        raise CertificateError(f"{forest.trees_per_root} trees per root could overflow the 64-bit sums of this check")
    used = forest.routes >= 0
    copies = np.zeros(len(hops), dtype=np.int64)
    np.add.at(copies, forest.routes[used], np.broadcast_to(forest.weights[:, None], used.shape)[used])
    loads = np.zeros(num_links, dtype=np.int64)
    np.add.at(loads, np.concatenate(hops), np.repeat(copies, [len(links) for links in hops]))
    return loads
