"""Verification of the paths of a schedule, independent of the code that makes them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..errors import CertificateError, ColloptError
from ..support.arrays import BoolArray, IntArray, rows_with_repeats
from ..support.validation import as_kind, shown
from ..topologies import Topology
from .collective import Direction
from .transfers import hop_ends


class Hops(NamedTuple):
    """All hops of all paths: the path and the link of each."""

    paths: IntArray
    links: IntArray


def check_arrays(schedule: object, shapes: Mapping[str, tuple[int, ...]], what: str) -> None:
    """Raise `CertificateError` unless arrays have their shape and are int64; `adds` bool, routes of trees int32."""
    for name, shape in shapes.items():
        array = getattr(schedule, name)
        in_trees = name == "routes" and len(shape) == 2
        dtype = np.dtype(np.bool_ if name == "adds" else np.int32 if in_trees else np.int64)
        # A masked array would leave entries out of sums.
        if type(array) is not np.ndarray:
            raise CertificateError(f"the {what}'s {name} are {shown(array)}; expected a numpy array")
        if array.dtype != dtype or array.shape != shape:
            raise CertificateError(
                f"the {what}'s {name} are {array.dtype} of shape {array.shape}; expected {dtype}, {shape}"
            )


def check_halves(reduce: Any, broadcast: Any, kind: type, error: type[ColloptError] = CertificateError) -> None:
    """Raise `error` unless schedules of a kind, one that reduces and one that broadcasts, are for the same ranks."""
    for half in (reduce, broadcast):
        as_kind(half, kind, "the schedule", error=error)
    directions = reduce.direction, broadcast.direction
    if directions != ("reduce", "broadcast"):
        raise error(
            f"both parts of the allreduce have the directions {shown(directions)}; expected 'reduce' and 'broadcast'"
        )
    if reduce.num_ranks != broadcast.num_ranks:
        raise error(
            f"both parts of the allreduce are for {reduce.num_ranks} and {broadcast.num_ranks} ranks; "
            "expected the same ranks"
        )


def check_steps_used(steps: IntArray) -> None:
    """Refuse an empty step, which would cost time; `steps` int64 (entries,), none below 0."""
    # With more steps than entries one of the first is empty, so there is no need to look at later ones.
    last = min(int(steps.max()), len(steps))
    unused = np.ones(last + 1, dtype=np.bool_)
    unused[np.minimum(steps, last)] = False
    refuse_if(unused, "nothing is sent in step {}")


def refuse_if(mask: BoolArray, message: str, offset: int = 0) -> None:
    """Raise with `message`, its ``{}`` filled with the index of the first wrong entry, counted from `offset`."""
    if mask.any():
        where = [int(place) for place in np.argwhere(mask)[0]]
        where[0] += offset
        raise CertificateError(message.format(*where))


ANY_NODES = 2**62  # Where no network says how many there are


def verified_hops(
    starts: IntArray,
    nodes: IntArray,
    topology: Topology,
    what: str,
    direction: Direction = "broadcast",
    switches: frozenset[int] = frozenset(),
    *,
    through_ranks: bool = False,
) -> Hops:
    """Check `checked_paths`, and that they follow links of the topology."""
    size = len(topology.nodes)
    path = checked_paths(starts, nodes, topology.num_ranks, what, switches, size, through_ranks=through_ranks)
    tails, heads = hop_ends(starts, nodes, direction)
    paths, places = np.delete(path, starts[1:] - 1), topology.link_places(tails, heads)
    if (places < 0).any():
        hop = int(np.flatnonzero(places < 0)[0])
        tail, head = topology.nodes[tails[hop]], topology.nodes[heads[hop]]
        raise CertificateError(f"path {paths[hop]} uses a link from {tail!r} to {head!r}, which does not exist")
    return Hops(paths, places)


def checked_paths(
    starts: IntArray,
    nodes: IntArray,
    num_ranks: int,
    what: str,
    switches: frozenset[int] = frozenset(),
    num_nodes: int = ANY_NODES,
    *,
    through_ranks: bool = False,
) -> IntArray:
    """Check that every path runs from rank to rank, through switches only, none twice; return the path of each node.

    Paths may also begin and end at `switches`, or pass ranks if `through_ranks`.  Shapes: `starts` int64 (paths + 1,).
    """
    if len(starts) < 2 or starts[0] != 0 or starts[-1] != len(nodes) or (np.diff(starts) < 2).any():
        raise CertificateError(f"the {what}'s path_starts do not cut its path_nodes into paths of two or more nodes")
    refuse_if((nodes < 0) | (nodes >= num_nodes), "path node {} is not a node of the topology")
    path = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    at_end, rank = np.zeros(len(nodes), dtype=np.bool_), nodes < num_ranks
    at_end[starts[:-1]] = at_end[starts[1:] - 1] = True
    misplaced = at_end & ~rank if through_ranks else (at_end != rank) & ~(~rank & np.isin(nodes, list(switches)))
    if misplaced.any():
        through = "" if through_ranks else " through switches only"
        raise CertificateError(f"path {path[misplaced][0]} does not run from a rank to a rank{through}")
    if len(again := rows_with_repeats(starts, nodes)):
        raise CertificateError(f"path {again[0]} passes a node twice")
    return path
