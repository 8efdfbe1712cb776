"""Arcs of regular graphs, int64 (arcs, 2), their networks, and names in the direct-connect paper's notation."""

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import as_size, check_links
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology

Arcs = Iterable[tuple[int, int]] | IntArray


def check_graph(name: str, num_nodes: int, degree: int) -> None:
    """Raise `TopologyError` for too few or too many nodes or arcs, before anything is built."""
    as_size(num_nodes, f"the number of nodes of {name}", low=2)
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


MAX_OFFSETS = 32  # offsets that a name lists


def operand(name: str, inside: str = "") -> str:
    """Put a name in parentheses if it has an operator outside of parentheses."""
    outside = name
    while (stripped := re.sub(r"\([^()]*\)", "", outside)) != outside:
        outside = stripped
    outside = re.sub(r"^L\^\d+$", "L", outside)  # the ^2 of L^2(...) is not an operator on the result
    return f"({name})" if re.search("[∪]" if inside == "□" else "[□∪*^·]", outside) else name


def line_graph_name(name: str, times: int) -> str:
    """Name the iterated line graph of a graph."""
    match = re.fullmatch(r"L(?:\^(\d+))?\((.*)\)", name)
    if match and _is_balanced(match[2]):
        name, times = match[2], times + int(match[1] or 1)
    return f"L({name})" if times == 1 else f"L^{times}({name})"


def offset_names(offsets: Sequence[int]) -> str:
    """Format the offsets of a circulant graph for its name; of many, the first three and their number."""
    listed = ", ".join(map(str, offsets if len(offsets) <= MAX_OFFSETS else offsets[:3]))
    return f"{{{listed}}}" if len(offsets) <= MAX_OFFSETS else f"{{{listed}, ... {len(offsets)} offsets}}"


def _is_balanced(text: str) -> bool:
    """Return whether the parentheses of a text are balanced."""
    depths = list(accumulate((char == "(") - (char == ")") for char in text))
    return min(depths, default=0) >= 0 and (not depths or depths[-1] == 0)
