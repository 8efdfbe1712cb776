"""Arcs of graphs that are much alike at all nodes, as arrays of shape (arcs, 2) for `DirectGraph.from_arcs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from ...support.arrays import IntArray
from ...support.validation import as_size, check_links

__all__ = ["arcs_to", "both_ways", "check_graph", "translates"]


def check_graph(name: str, num_nodes: int, degree: int) -> None:
    """Refuse, before anything is built, a graph with too few or too many nodes or arcs."""
    as_size(num_nodes, f"the number of nodes of {name}", least=2)
    check_links(num_nodes * degree, name)


def arcs_to(heads: IntArray) -> IntArray:
    """Return the arcs from each node to the nodes in its row of `heads`, whose shape is (nodes, degree).

    >>> arcs_to(np.array([[1, 2], [2, 0], [0, 1]])).tolist()
    [[0, 1], [0, 2], [1, 2], [1, 0], [2, 0], [2, 1]]
    """
    nodes, degree = heads.shape
    return np.column_stack((np.repeat(np.arange(nodes), degree), heads.ravel()))


def both_ways(edges: Iterable[tuple[int, int]] | IntArray) -> IntArray:
    """Return every edge as an arc in either direction.

    >>> both_ways([(0, 1), (1, 2)]).tolist()
    [[0, 1], [1, 2], [1, 0], [2, 1]]
    """
    ends = edges if isinstance(edges, np.ndarray) else np.array(list(edges), dtype=np.int64)
    return np.concatenate((ends, ends[:, ::-1]))


def translates(num_nodes: int, offsets: Sequence[int]) -> IntArray:
    """Return the arcs from each node i to the nodes i + offset, modulo `num_nodes`; offsets may repeat.

    >>> translates(3, [1, 1]).tolist()
    [[0, 1], [0, 1], [1, 2], [1, 2], [2, 0], [2, 0]]
    """
    return arcs_to((np.arange(num_nodes)[:, None] + np.array(offsets, dtype=np.int64)) % num_nodes)
