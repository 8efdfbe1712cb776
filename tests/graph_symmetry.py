"""Symmetry of graphs: ``from graph_symmetry import is_reverse_symmetric, orbits``."""

from __future__ import annotations

import numpy as np

from collopt.support.arrays import IntArray, components
from collopt.topologies import DirectGraph, automorphisms, reverse_symmetry

__all__ = ["is_reverse_symmetric", "orbits"]


def orbits(graph: DirectGraph) -> IntArray:
    """The least node of each node's orbit, int64 (nodes,)."""
    found, nodes = automorphisms(graph), np.arange(graph.num_nodes)
    labels = components(graph.num_nodes, np.column_stack((np.tile(nodes, len(found)), found.ravel())))
    _, least = np.unique(labels, return_index=True)
    return np.asarray(least[labels], dtype=np.int64)


def is_reverse_symmetric(graph: DirectGraph) -> bool:
    """Whether a graph is isomorphic to its transpose."""
    return reverse_symmetry(graph) is not None
