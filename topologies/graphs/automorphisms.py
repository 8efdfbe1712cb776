"""The symmetries of a network: renumberings of its nodes that change nothing.

Each node gets a colour (rank, or switch with its abilities), and each pair of nodes that is joined by a link, or has
unusual traffic, becomes an arc whose colour is bandwidth, latency and traffic.  What keeps these colours is looked for
as `collopt.topologies.isomorphism` looks for the automorphisms of a graph, and checked arc by arc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from ...errors import NoAnswerError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_integers, shown
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology
from .isomorphism import Colours, NodeMatching, orbit_mappings

__all__ = ["symmetries"]


MOST_ARCS = 5 * 10**7
"""What all attempts to pair two nodes may come to, times the arcs that each looks at: seconds to half a minute."""
FIXED_COST = 5_000
"""Arcs that take as long as an attempt does without any."""


def symmetries(topology: Topology, traffic: npt.ArrayLike | None = None) -> IntArray:
    """Find symmetries of a network, enough to see which ranks are alike.

    Parameters
    ----------
    topology : Topology
        With or without switches.
    traffic : array_like of int, shape (ranks, ranks), optional
        What each rank (row) has for each other (column), in any unit or as numbers that are equal where amounts are;
        the diagonal does not matter.  Equal for all pairs by default.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row tells to which node each node of `Topology.nodes` goes, and is checked: ranks go to ranks, switches to
        switches of the same abilities, links to links of the same bandwidth and latency, and traffic to equal traffic.
        The identity is left out.  No row at all means that no symmetry is known: there is none, or the search took
        too long to find one.

    Raises
    ------
    UnsupportedError
        If `topology` is none, or `traffic` is not of its form.

    Notes
    -----
    If the search ends before its limit, the group that the rows generate has the same orbits of nodes as the group of
    all symmetries, of which it may be a proper subgroup.  What is found is right in any case.

    Examples
    --------
    Three ranks around a switch are alike, until the first has more for the others than they have for it:

    >>> star = Topology.from_links([(rank, "s", 30) for rank in "abc"], compute="abc", switches="s", bidirectional=True)
    >>> symmetries(star)
    array([[1, 0, 2, 3],
           [2, 0, 1, 3]])
    >>> symmetries(star, [[0, 2, 2], [1, 0, 1], [1, 1, 0]])
    array([[0, 2, 1, 3]])
    """
    if not isinstance(topology, Topology):
        raise UnsupportedError(f"the topology is {shown(topology)}; expected a Topology")
    graph, colours = _coloured(topology, _as_traffic(traffic, topology.num_ranks))
    attempts = MOST_ARCS // (FIXED_COST + graph.num_arcs)
    search = NodeMatching(graph, graph, (colours, colours), most_attempts=attempts)
    found = list(_until_given_up(orbit_mappings(search)))
    return np.array(found, dtype=np.int64).reshape(-1, graph.num_nodes)


def _until_given_up(mappings: Iterator[IntArray]) -> Iterator[IntArray]:
    """Pass on what is found before the search has made all attempts that it may: any subgroup will do."""
    try:
        yield from mappings
    except NoAnswerError:
        return


def _coloured(topology: Topology, traffic: IntArray | None) -> tuple[DirectGraph, Colours]:
    """Put all that a symmetry must keep into the colours of nodes and arcs."""
    nodes, index = topology.nodes, topology.node_index
    size = len(nodes)
    keys = np.array([index[link.tail] * size + index[link.head] for link in topology.links], dtype=np.int64)
    links = _numbered((link.bandwidth, link.latency) for link in topology.links)
    pairs, amounts = _unusual(traffic, size) if traffic is not None else (keys[:0], keys[:0])
    arcs = np.unique(np.concatenate([keys, pairs]))
    arc_colours = np.zeros(len(arcs), dtype=np.int64)
    arc_colours[np.searchsorted(arcs, keys)] = links
    arc_colours[np.searchsorted(arcs, pairs)] += amounts * (len(keys) + 1)
    node_colours = _numbered(
        (node in topology.switch_nodes, node in topology.multicast, node in topology.aggregation) for node in nodes
    )
    graph = DirectGraph(size, arcs // size, arcs % size, topology.name)
    return graph, Colours(node_colours, np.unique(arc_colours, return_inverse=True)[1])


def _numbered(values: Iterable[object]) -> IntArray:
    """Number values from 1, equal ones alike."""
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers) + 1) for value in values], dtype=np.int64)


def _unusual(traffic: IntArray, size: int) -> tuple[IntArray, IntArray]:
    """Pairs of ranks whose traffic is not the commonest, and the number of their amount, from 1."""
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
    return np.asarray(amounts)  # a matrix of numpy's own kind stays two-dimensional whatever is taken of it
