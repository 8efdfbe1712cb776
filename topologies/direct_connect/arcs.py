"""Arc arrays of regular graphs, of shape (arcs, 2), for `DirectGraph.from_arcs`."""

from collections.abc import Iterable, Sequence

import numpy as np

from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import as_size, check_links
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology

Arcs = Iterable[tuple[int, int]] | IntArray


def check_graph(name: str, num_nodes: int, degree: int) -> None:
    """Raise `TopologyError` for too few or too many nodes or arcs, before anything is built."""
    as_size(num_nodes, f"the number of nodes of {name}", least=2)
    check_links(num_nodes * degree, name)


def arcs_to(heads: IntArray) -> IntArray:
    """Return the arcs, int64 (arcs, 2), from each node to those in its row of `heads`, int64 (nodes, degree)."""
    nodes, degree = heads.shape
    return np.column_stack((np.repeat(np.arange(nodes), degree), heads.ravel()))


def topology_from_heads(heads: IntArray, name: str, bandwidth: Exact, latency: Exact) -> Topology:
    """Make the topology with arcs from each node to those in its row of `heads`, int64 (nodes, degree)."""
    return topology_from_arcs(len(heads), arcs_to(heads), name, bandwidth, latency)


def topology_from_arcs(nodes: int, arcs: Arcs, name: str, bandwidth: Exact, latency: Exact) -> Topology:
    """Make the topology of a graph that is given by its arcs."""
    return Topology.from_graph(DirectGraph.from_arcs(nodes, arcs, name), bandwidth=bandwidth, latency=latency)


def bidirectional_arcs(edges: Arcs) -> IntArray:
    """Return both arcs of every edge. Shapes: returns int64 (arcs, 2)."""
    ends = edges if isinstance(edges, np.ndarray) else np.array(list(edges), dtype=np.int64)
    return np.concatenate((ends, ends[:, ::-1]))


def circulant_arcs(num_nodes: int, offsets: Sequence[int]) -> IntArray:
    """Return arcs, int64 (arcs, 2), from each node i to i + offset modulo `num_nodes`; offsets may repeat."""
    return arcs_to((np.arange(num_nodes)[:, None] + np.array(offsets, dtype=np.int64)) % num_nodes)
