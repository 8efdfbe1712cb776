"""Automorphisms of a network with its bandwidths, latencies, switch abilities and traffic, and orbits under them.

Each node gets a color (rank, or switch with its abilities), and each pair of nodes with a link, or with traffic other
than the most common amount, becomes an arc colored by bandwidth, latency and traffic.  Automorphisms that preserve the
colors are found by the search of `isomorphism` and checked arc by arc.

A flow of all sources can be averaged over a group of symmetries: it then has equal loads on the links of an orbit, and
the flow of one source of each orbit determines them.  So one source per orbit of ranks and one capacity per orbit of
links are enough.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import NoAnswerError, UnsupportedError
from ...support.arrays import IntArray, orbits
from ...support.validation import as_integers, shown
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology, as_topology
from .isomorphism import Colors, NodeMatching, orbit_mappings

MAX_WORK = 5 * 10**7  # limit on attempts times the arcs that each looks at: seconds to half a minute
FIXED_COST = 5_000  # cost of an attempt without arcs, in arcs


def symmetries(topology: Topology, traffic: npt.ArrayLike | None = None) -> IntArray:
    """Find automorphisms of a network that generate its orbits of nodes.

    If the search ends before its limit, the group that the rows generate has the same orbits of nodes as the full
    automorphism group, of which it may be a proper subgroup.

    Parameters
    ----------
    topology : Topology
        With or without switches.
    traffic : array_like of int, shape (ranks, ranks), optional
        Data from each rank (row) to each other (column), in any unit, or any numbers that are equal where amounts are;
        the diagonal is ignored.  Equal for all pairs by default.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row has the image of each node of `Topology.nodes`, and is checked: ranks map to ranks, switches to
        switches of the same abilities, links to links of the same bandwidth and latency, and traffic to equal traffic.
        The identity is left out.  Without rows no symmetry is known: there is none, or the search reached its limit.

    Examples
    --------
    Three ranks around a switch form one orbit, unless the first sends more than it receives:

    >>> star = Topology.from_links([(rank, "s", 30) for rank in "abc"], compute="abc", switches="s", bidirectional=True)
    >>> symmetries(star)
    array([[1, 0, 2, 3],
           [2, 0, 1, 3]])
    >>> symmetries(star, [[0, 2, 2], [1, 0, 1], [1, 1, 0]])
    array([[0, 2, 1, 3]])
    """
    as_topology(topology)
    graph, colors = _colored_graph(topology, _as_traffic(traffic, topology.num_ranks))
    attempts = MAX_WORK // (FIXED_COST + graph.num_arcs)
    search = NodeMatching(graph, graph, colors, max_attempts=attempts)
    mappings: list[IntArray] = []
    with suppress(NoAnswerError):  # at the limit: any subgroup is valid
        for mapping in orbit_mappings(search):
            mappings.append(mapping)  # noqa: PERF402 - those before the limit stay
    return np.array(mappings, dtype=np.int64).reshape(-1, graph.num_nodes)


def _colored_graph(topology: Topology, traffic: IntArray | None) -> tuple[DirectGraph, Colors]:
    """Encode everything that a symmetry must preserve in the colors of nodes and arcs."""
    from .refinement import node_kinds

    size, (tails, heads, kinds, _) = len(topology.nodes), topology.columns
    keys, links = tails * size + heads, kinds + 1
    pairs, amounts = _unusual(traffic, size) if traffic is not None else (keys[:0], keys[:0])
    arcs = np.unique(np.concatenate([keys, pairs]))
    arc_colors = np.zeros(len(arcs), dtype=np.int64)
    arc_colors[np.searchsorted(arcs, keys)] = links
    arc_colors[np.searchsorted(arcs, pairs)] += amounts * (len(keys) + 1)
    graph = DirectGraph(size, arcs // size, arcs % size, topology.name)
    return graph, Colors(node_kinds(topology), np.unique(arc_colors, return_inverse=True)[1])


def _unusual(traffic: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Return the pairs of ranks whose traffic is not the most common amount, and the number of their amount, from 1."""
    ranks = len(traffic)
    tails, heads = np.nonzero(~np.eye(ranks, dtype=np.bool_))
    _, numbers, counts = np.unique(traffic[tails, heads], return_inverse=True, return_counts=True)
    rare = numbers != counts.argmax()
    return (tails * size + heads)[rare], numbers[rare] + 1


def _as_traffic(traffic: npt.ArrayLike | None, ranks: int) -> IntArray | None:
    if traffic is None:
        return None
    expected = f"a row and a column of whole numbers for each of {ranks} ranks"
    try:
        amounts = as_integers(traffic, "the amounts of traffic", expected)
    except ValueError as error:
        raise UnsupportedError(str(error)) from None
    except RuntimeError:  # numpy's, of lists without end
        raise UnsupportedError(f"the amounts of traffic are {shown(traffic)}; expected {expected}") from None
    if amounts.shape != (ranks, ranks):
        raise UnsupportedError(f"the traffic has shape {amounts.shape}; expected {expected}")
    return np.asarray(amounts)  # every slice of an np.matrix is two-dimensional


class LinkOrbits(NamedTuple):
    """Orbits of a group of symmetries."""

    sources: IntArray  # int64 (orbits,): the least rank of each orbit of ranks with demands
    counts: IntArray  # int64 (orbits,): ranks in the orbit
    classes: IntArray  # int64 (links,): the number of each link's orbit, from 0
    sizes: IntArray  # int64 (classes,): links in each orbit


def trivial_link_orbits(num_links: int, demands: IntArray) -> LinkOrbits:
    """Return the orbits of the identity: every rank with demands, and every link, by itself."""
    sources = np.flatnonzero(_sends(demands))
    return LinkOrbits(sources, np.ones_like(sources), np.arange(num_links), np.ones(num_links, dtype=np.int64))


def link_orbits(
    tails: IntArray, heads: IntArray, capacities: IntArray, demands: IntArray, symmetries: IntArray
) -> LinkOrbits:
    """Return the orbits that symmetries, (generators, nodes), generate; `UnsupportedError` if one is none."""
    num_ranks = len(demands)
    off_diagonal = ~np.eye(num_ranks, dtype=np.bool_)
    different = bool((demands != demands[0, -1]).any(where=off_diagonal))
    images = link_images(tails, heads, capacities, symmetries)
    for row, mapping in enumerate(symmetries):
        if (mapping[:num_ranks] >= num_ranks).any():
            raise UnsupportedError(
                f"row {row} of the symmetries takes a rank to a switch; expected ranks to go to ranks"
            )
        if different and (demands[np.ix_(mapping[:num_ranks], mapping[:num_ranks])] != demands).any(where=off_diagonal):
            raise UnsupportedError(f"row {row} of the symmetries does not take every demand to an equal one")
    kinds, classes = orbits(symmetries[:, :num_ranks]), orbits(images)
    _, first, counts = np.unique(kinds, return_index=True, return_counts=True)
    sending = _sends(demands)[first]
    return LinkOrbits(first[sending], counts[sending], classes, np.bincount(classes))


def link_images(tails: IntArray, heads: IntArray, capacities: IntArray, symmetries: IntArray) -> IntArray:
    """Return the image of each link under each symmetry, int64 (generators, links), after checking that it exists."""
    order = np.lexsort((capacities, heads, tails))
    links = [side[order] for side in (tails, heads, capacities)]
    images = np.empty((len(symmetries), len(tails)), dtype=np.int64)
    for row, mapping in enumerate(symmetries):
        if not (np.sort(mapping) == np.arange(symmetries.shape[1])).all():
            raise UnsupportedError(f"row {row} of the symmetries is no permutation of the nodes")
        image = np.lexsort((capacities, mapping[heads], mapping[tails]))
        mapped = mapping[tails][image], mapping[heads][image], capacities[image]
        if any((side != image_side).any() for side, image_side in zip(links, mapped, strict=True)):
            raise UnsupportedError(f"row {row} of the symmetries does not take every link to one of the same capacity")
        images[row, image] = order
    return images


def _sends(demands: IntArray) -> npt.NDArray[np.bool_]:
    return np.asarray(np.count_nonzero(demands, axis=1) > (np.diagonal(demands) != 0))
