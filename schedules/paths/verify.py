"""Verification of the paths of a schedule, independent of the code that makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError
from ...support.arrays import BoolArray, IntArray
from ...support.validation import shown
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..traffic.collective import Direction


class Hops(NamedTuple):
    """All hops of all paths: the path and the link of each."""

    paths: IntArray
    links: IntArray


def check_kinds(schedule: object, kind: type, topology: object) -> None:
    """Raise `CertificateError` unless a schedule is of a kind, and a topology is one."""
    if not isinstance(schedule, kind):
        raise CertificateError(f"the schedule is {shown(schedule)}; expected a {kind.__name__}")
    as_topology(topology, CertificateError)


def check_arrays(schedule: object, shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Raise `CertificateError` unless arrays are of int64, those named routes of int32 in trees, and of their shape."""
    for name, shape in shapes.items():
        array = getattr(schedule, name)
        dtype = np.dtype(np.int32 if name == "routes" and len(shape) == 2 else np.int64)
        if array.dtype != dtype or array.shape != shape:
            raise CertificateError(
                f"the {what}'s {name} are {array.dtype} of shape {array.shape}; expected {dtype}, {shape}"
            )


def check_steps_used(steps: IntArray) -> None:
    """Refuse an empty step, which would cost time; `steps` int64 (entries,), none below 0."""
    # With more steps than entries one of the first is empty, so there is no need to look at later ones.
    last = min(int(steps.max()), len(steps))
    unused = np.ones(last + 1, dtype=np.bool_)
    unused[np.minimum(steps, last)] = False
    refuse_if(unused, "nothing is sent in step {}")


def refuse_if(wrong: BoolArray, message: str, offset: int = 0) -> None:
    """Raise with `message`, its ``{}`` filled with the index of the first wrong entry, counted from `offset`."""
    if wrong.any():
        where = [int(place) for place in np.argwhere(wrong)[0]]
        where[0] += offset
        raise CertificateError(message.format(*where))


def verified_hops(
    starts: IntArray,
    nodes: IntArray,
    direction: Direction,
    topology: Topology,
    what: str,
    switches: frozenset[int] = frozenset(),
) -> Hops:
    """Check that every path follows links of the topology from rank to rank, through switches only, none twice.

    Paths may also begin and end at `switches`.  Shapes: `starts` int64 (paths + 1,).
    """
    _check_cuts(starts, nodes, topology, what)
    path = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    at_end, rank = _ends(starts), nodes < topology.num_ranks
    free = ~rank & np.isin(nodes, list(switches))
    if len(misplaced := path[(at_end != rank) & ~free]):
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
