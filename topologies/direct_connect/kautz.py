"""Kautz and de Bruijn graphs: digraphs of words, in which an arc drops the first letter and appends one.

Their diameter, about log N to the base of the degree, is close to the Moore bound.
"""

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import as_size, shown
from ..network.topology import Topology
from .arcs import arcs_to, check_graph, topology_from_arcs, topology_from_heads

MAX_DEGREE = 1023
MAX_LENGTH = 16

REWIRED_CYCLES = {
    (2, 3): (0, 5, 2, 7),
    (2, 4): (0, 15, 5, 10),
    (3, 2): (0, 7, 5, 4, 2, 6, 3, 1, 8),
    (4, 2): (0, 13, 7, 8, 12, 10, 14, 4, 11, 9, 15, 6, 1, 3, 2, 5),
}
"""By degree and length, the cycle with which `modified_de_bruijn` replaces self-loops and 2-cycles.

The paper shows one example in a figure.  These were chosen for small diameter and for bandwidth-optimal schedules of
few chunks.
"""


def kautz(degree: int, length: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Kautz graph K(d, n): words of n + 1 letters out of d + 1 in which neighboring letters differ.

    An arc leads from the word s0 s1 ... sn to every s1 ... sn t, so K(d, n) is the line graph L^n(K_{d+1}) of a
    complete graph.  Always Moore-optimal (direct-connect paper, appendix F.2 and Table 9); its links run one way.
    Nodes are numbered in the order of their words.

    Parameters
    ----------
    degree : int
        The paper's d: links out of, and into, every node; at least 1.
    length : int
        The paper's n, at least 0; there are d**n (d + 1) nodes.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link.

    Examples
    --------
    >>> kautz(2, 1).graph, kautz(4, 3).graph.diameter
    (<DirectGraph Kautz(2, 1): 6 nodes, 12 arcs>, 4)
    """
    degree = as_size(degree, "degree", high=MAX_DEGREE)
    length = as_size(length, "length", low=0, high=MAX_LENGTH)
    name = f"Kautz({degree}, {length})"
    check_graph(name, degree**length * (degree + 1), degree)
    letters = np.arange(degree + 1)
    heads = np.array([letters[letters != first] for first in letters])
    for _ in range(length):
        # In the order of tails, then heads, arc number e is node e of the line graph, and arcs from node v are
        # those from number v * degree on.
        heads = heads.reshape(-1, 1) * degree + np.arange(degree)
    return topology_from_heads(heads, name, bandwidth, latency)


def generalized_kautz(degree: int, n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Generalized Kautz graph: node x has arcs to -d x - a modulo n for a from 1 to d.

    Direct-connect paper, Definition 16: the digraph of Imase and Itoh.  There is one for every n; by Theorem 21 a
    breadth-first broadcast takes at most one step more than the Moore bound allows.  Of n = d**k (d + 1) nodes it is
    the Kautz graph K(d, k), numbered differently.  Unless d + 1 divides n, some arcs are self-loops.

    Parameters as for `kautz`, but the degree is at least 2, and n, at least degree + 1, is the number of nodes, the
    paper's m.

    Examples
    --------
    >>> generalized_kautz(4, 1024).graph.diameter, generalized_kautz(2, 5).graph.num_self_loops
    (5, 2)
    """
    degree = as_size(degree, "degree", low=2, high=MAX_DEGREE)
    n = as_size(n, "n", low=degree + 1)
    name = f"Π({degree}, {n})"
    check_graph(name, n, degree)
    heads = (-degree * np.arange(n)[:, None] - np.arange(1, degree + 1)) % n
    return topology_from_heads(heads, name, bandwidth, latency)


def de_bruijn(degree: int, length: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """De Bruijn graph DBJ(d, n): words of n letters out of d, with self-loops at the words of one letter.

    Direct-connect paper, Table 9.  The d self-loops take up ports but carry nothing.  Nodes are numbered in the order
    of their words: node x has arcs to d x, ..., d x + d - 1 modulo d**n.  Parameters as for `kautz`, but the degree is
    at least 2, and the length at least 1; there are d**n nodes.
    """
    degree = as_size(degree, "degree", low=2, high=MAX_DEGREE)
    length = as_size(length, "length", high=MAX_LENGTH)
    name = f"DBJ({degree}, {length})"
    check_graph(name, degree**length, degree)
    return topology_from_heads(_shifts(degree, length), name, bandwidth, latency)


def modified_de_bruijn(degree: int, length: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """De Bruijn graph whose self-loops and 2-cycles are replaced by one long cycle.

    Direct-connect paper, Table 9 and Figure 20; the cycles are those of `REWIRED_CYCLES`.  Every node on a self-loop
    or a 2-cycle loses one arc out and one arc in, and gains one of each.  Breadth-first broadcasts are not
    bandwidth-optimal here; `base_schedule_rows` has schedules that are.

    Parameters as for `de_bruijn`, where degree and length are (2, 3), (2, 4), (3, 2) or (4, 2).
    """
    degree = as_size(degree, "degree", low=2, high=MAX_DEGREE)
    length = as_size(length, "length", high=MAX_LENGTH)
    cycle = REWIRED_CYCLES.get((degree, length))
    if cycle is None:
        raise TopologyError(
            f"there is no modified de Bruijn graph of (degree, length) {shown((degree, length))}; "
            f"expected one of {', '.join(map(str, REWIRED_CYCLES))}"
        )
    arcs = arcs_to(_shifts(degree, length))
    present = set(map(tuple, arcs.tolist()))
    kept = [(tail, head) for tail, head in present if (head, tail) not in present]
    added = list(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    return topology_from_arcs(degree**length, kept + added, f"DBJMod({degree}, {length})", bandwidth, latency)


def _shifts(degree: int, length: int) -> IntArray:
    """Return the heads of the de Bruijn graph's arcs, shape (nodes, degree)."""
    nodes = degree**length
    heads: IntArray = (np.arange(nodes)[:, None] * degree + np.arange(degree)) % nodes
    return heads
