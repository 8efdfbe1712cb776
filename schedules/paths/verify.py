"""The check of the paths that a schedule names: it trusts no array, and shares no code with what makes them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError
from ...support.arrays import IntArray
from ...topologies import Topology
from ..traffic.collective import Direction


class Hops(NamedTuple):
    """All hops of all paths: which path each belongs to, and which link of the topology it is."""

    paths: IntArray
    links: IntArray


def verified_hops(starts: IntArray, nodes: IntArray, direction: Direction, topology: Topology, what: str) -> Hops:
    """Check that every path follows links of the topology from rank to rank, through switches only, none twice.

    Shapes: `starts` int64 (paths + 1,).
    """
    _check_cuts(starts, nodes, topology, what)
    path = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if len(misplaced := path[_ends(starts) != (nodes < topology.num_ranks)]):
        raise CertificateError(f"path {misplaced[0]} does not run from a rank to a rank through switches only")
    return _checked_hops(path, starts, nodes, direction, topology)


def verified_routes(starts: IntArray, nodes: IntArray, topology: Topology, what: str) -> Hops:
    """Check that every path follows links of the topology from rank to rank, through any nodes, none twice."""
    _check_cuts(starts, nodes, topology, what)
    path = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if len(misplaced := path[_ends(starts) & (nodes >= topology.num_ranks)]):
        raise CertificateError(f"path {misplaced[0]} does not run from a rank to a rank")
    return _checked_hops(path, starts, nodes, "broadcast", topology)


def _check_cuts(starts: IntArray, nodes: IntArray, topology: Topology, what: str) -> None:
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(nodes) or (np.diff(starts) < 2).any():
        raise CertificateError(f"the {what}'s path_starts do not cut its path_nodes into paths of two or more nodes")
    if ((nodes < 0) | (nodes >= len(topology.nodes))).any():
        first = int(np.flatnonzero((nodes < 0) | (nodes >= len(topology.nodes)))[0])
        raise CertificateError(f"path node {first} is not a node of the topology")


def _ends(starts: IntArray) -> npt.NDArray[np.bool_]:
    at_end = np.zeros(int(starts[-1]), dtype=np.bool_)
    at_end[starts[:-1]] = at_end[starts[1:] - 1] = True
    return at_end


def _checked_hops(path: IntArray, starts: IntArray, nodes: IntArray, direction: Direction, topology: Topology) -> Hops:
    order = np.lexsort((nodes, path))
    if len(again := path[order[1:]][(np.diff(path[order]) == 0) & (np.diff(nodes[order]) == 0)]):
        raise CertificateError(f"path {again[0]} passes a node twice")
    goes_on = np.ones(len(nodes), dtype=np.bool_)
    goes_on[starts[1:] - 1] = False
    tails = np.flatnonzero(goes_on)
    ends = (nodes[tails], nodes[tails + 1])
    if direction == "reduce":
        ends = ends[::-1]
    return Hops(path[tails], _links_between(*ends, path[tails], topology))


def _links_between(tails: IntArray, heads: IntArray, paths: IntArray, topology: Topology) -> IntArray:
    size = len(topology.nodes)
    known = topology.arrays.tails * size + topology.arrays.heads
    order = np.argsort(known)
    wanted = tails * size + heads
    place = np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)
    missing = known[order][place] != wanted
    if missing.any():
        hop = int(np.flatnonzero(missing)[0])
        tail, head = topology.nodes[tails[hop]], topology.nodes[heads[hop]]
        raise CertificateError(f"path {paths[hop]} uses a link from {tail!r} to {head!r}, which does not exist")
    return order[place]
