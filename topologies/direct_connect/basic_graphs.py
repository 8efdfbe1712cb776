"""Rings, tori, hypercubes, Hamming, complete and bipartite graphs, Diamond, double binary trees, graphs of words.

Links have unit bandwidth and no latency by default.  Kautz and de Bruijn graphs are digraphs of words, in which an arc
drops the first letter and appends one; their diameter is close to the Moore bound.
"""

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations, product
from math import prod

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact, as_bandwidth, as_latency
from ...support.validation import as_flag, as_list, as_size, check_links, shown
from ..network.direct_graph import DirectGraph
from ..network.topology import Link, Topology
from ..switched.box_files import even_twists, torus_links
from ..switched.scale_out import FABRIC_LATENCY, PCIE_LATENCY
from .arcs import arcs_to, bidirectional_arcs, check_graph, topology_from_arcs, topology_from_heads

ROUTER_WIDTH = 16  # bandwidth between a node and its router, in multiples of the ports': inside a chip


def ring(n: int, *, bandwidth: Exact = 1, latency: Exact = 0, bidirectional: bool = True) -> Topology:
    """Ring of n compute nodes.

    In a bidirectional ring of two, both ports of a node lead to the same neighbor: the link has twice the bandwidth.

    Parameters
    ----------
    n : int
        2 to 65536; nodes are called ``gpu0``, ``gpu1``, ... along the ring.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.
    bidirectional : bool
        Whether there are links in both directions.

    Examples
    --------
    >>> ring(2, bandwidth=25).link("gpu0", "gpu1").bandwidth
    Fraction(50, 1)
    """
    n = as_size(n, "n", low=2)
    both = as_flag(bidirectional, "bidirectional")
    arcs = [(node, (node + 1) % n) for node in range(n)]
    if both:
        arcs = [arc for tail, head in arcs for arc in ((tail, head), (head, tail))]
    graph = f"BiRing(2, {n})" if both else f"UniRing(1, {n})"
    return _network(np.array(arcs), _numbered(n), f"ring-{n}", graph, bandwidth, latency)


SPARK_PORT = Fraction(25)  # GB/s of 200 Gb/s
SPARK_PCIE = Fraction(2048, 65)  # GB/s of eight lanes of 32 GT/s, of which 128 of 130 bits are data


def dgx_spark(n: int = 2, *, closed: bool = True) -> Topology:
    """DGX Sparks joined by cables of 200 Gb/s without a switch: two on one, more in a ring or a line.

    Both ports of a Spark are on one ConnectX-7, which two PCIe 5.0 links of four lanes join to the chip with 31.5 GB/s
    (https://www.servethehome.com/the-nvidia-gb10-connectx-7-200gbe-networking-is-really-different).  So each cable of a
    ring has half of that, as all collectives of all ranks use both alike; a ring that lost a cable is a line.  NVIDIA
    describes two, with one cable, as a second adds nothing, and rings of three
    (https://build.nvidia.com/spark/connect-multiple-sparks/cable-devices).

    Parameters
    ----------
    n : int
        2 to 64; nodes are called ``gpu0``, ``gpu1``, ... along the cables.
    closed : bool
        Whether a cable joins the last of three or more to the first.

    Examples
    --------
    >>> dgx_spark(3).egress("gpu0")
    Fraction(2048, 65)
    """
    n = as_size(n, "n", low=2, high=64)
    is_ring = as_flag(closed, "closed") and n > 2
    rate = SPARK_PCIE / 2 if is_ring else SPARK_PORT
    cables = [(node, (node + 1) % n) for node in range(n - 1 + is_ring)]
    links = [Link(f"gpu{one}", f"gpu{other}", rate, 2 * PCIE_LATENCY + FABRIC_LATENCY) for one, other in cables]
    name = f"dgx-spark-{n}" + ("-line" if n > 2 and not is_ring else "")
    return Topology.from_links(links, compute=_numbered(n), bidirectional=True, name=name)


def torus(
    *shape: int | Sequence[int], bandwidth: Exact = 1, latency: Exact = 0, routers: bool = False, single: bool = False
) -> Topology:
    """Torus: a grid of compute nodes in which every row is a bidirectional ring.

    Along a dimension of size 2 both ports of a node lead to the same neighbor, so that link has twice the bandwidth.
    Node ``gpu1.0.3`` sits at coordinates (1, 0, 3); ranks count the last coordinate fastest.

    Parameters
    ----------
    *shape : int
        Nodes along each dimension, each 2 or more: ``torus(4, 4, 2)``, or ``torus((4, 4, 2))``.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.
    routers : bool
        Whether each node has a router that passes messages on without it.  It is a switch, linked to the node without
        latency, by 16 times the bandwidth of its ports, so that messages to different ports do not wait for each other.
    single : bool
        Whether a node has one port, and not two, along dimensions of size 2.

    Examples
    --------
    >>> [str(torus(4, 2).link("gpu0.0", node).bandwidth) for node in ("gpu0.1", "gpu1.0")]
    ['2', '1']
    """
    with_routers, one_port = as_flag(routers, "routers"), as_flag(single, "single")
    sizes = _sizes(shape)
    if not sizes:
        raise TopologyError("the shape of the torus is empty; expected one size per dimension, such as torus(4, 4)")
    label = "x".join(map(str, sizes)) + "-single" * one_port
    check_links(2 * len(sizes) * prod(sizes), f"torus {label}")
    links = torus_links(sizes, [True] * len(sizes))
    back = np.array([not one_port or size > 2 for size in sizes])[links[:, 2]]
    arcs = links[:, [[0, 1], [1, 0]]][np.column_stack([back | True, back])]
    names = ["gpu" + ".".join(map(str, place)) for place in product(*map(range, sizes))]
    if with_routers:
        return _with_routers(arcs, names, f"torus-{label}-routers", bandwidth, latency)
    graph = f"Torus({', '.join(map(str, sizes))})"
    return _network(arcs, names, f"torus-{label}", graph, bandwidth, latency)


def hypercube(dimension: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Hypercube of 2**dimension compute nodes; neighbors differ in one bit of their rank.

    Parameters as for `ring`, with the dimension, 1 to 15, for n.
    """
    dimension = as_size(dimension, "dimension", high=15)
    size = 2**dimension
    heads = np.arange(size)[:, None] ^ (1 << np.arange(dimension))
    names = f"hypercube-{dimension}", f"Q({dimension})"
    return _network(arcs_to(heads), _numbered(size), *names, bandwidth, latency)


def complete(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Complete graph: a link between every two of n compute nodes.

    Parameters as for `ring`, but n is at most 1024.
    """
    n = as_size(n, "n", low=2, high=1024)
    return _network(
        np.array(list(permutations(range(n), 2))), _numbered(n), f"complete-{n}", f"K({n})", bandwidth, latency
    )


def _numbered(count: int) -> list[str]:
    return [f"gpu{rank}" for rank in range(count)]


def _network(
    arcs: IntArray, names: list[str], name: str, graph_name: str, bandwidth: Exact, latency: Exact
) -> Topology:
    """Make the topology with its links in the order of the arcs, unlike `Topology.from_graph`."""
    _, first, counts = np.unique(arcs[:, 0] * len(names) + arcs[:, 1], return_index=True, return_counts=True)
    order, speed, delay = np.argsort(first), as_bandwidth(bandwidth, name), as_latency(latency, name)
    rates = [(speed * count, delay) for count in range(1, int(counts.max()) + 1)]
    tails, heads = arcs[first[order]].T
    topology = Topology.from_arrays(tails, heads, counts[order] - 1, rates, compute=names, name=name)
    object.__setattr__(topology, "graph", DirectGraph.from_arcs(len(names), arcs, graph_name))
    return topology


def _with_routers(arcs: IntArray, names: list[str], name: str, bandwidth: Exact, latency: Exact) -> Topology:
    """Make the topology in which arcs join routers, each with a wide link to a node of its own."""
    routers = [name.replace("gpu", "router") for name in names]
    ports, speed = len(arcs) // len(names), as_bandwidth(bandwidth, "every link")
    links = [(routers[tail], routers[head], speed, latency) for tail, head in arcs.tolist()]
    for ends in zip(names, routers, strict=True):
        links += [(*pair, ROUTER_WIDTH * ports * speed, 0) for pair in (ends, ends[::-1])]
    return Topology.from_links(links, compute=names, switches=routers, name=name)


def twisted_torus(
    *shape: int | Sequence[int], twist: int | None = None, bandwidth: Exact = 1, latency: Exact = 0
) -> Topology:
    """Torus whose wraparound links are shifted along other dimensions.

    Twisted tori of Cámara et al. (IEEE Transactions on Parallel and Distributed Systems 21, 2010), which the
    direct-connect paper cites as [26]; TPU v4 has the shapes k x k x 2k and k x 2k x 2k.

    Parameters
    ----------
    *shape : int
        Nodes along each of at least two dimensions: some k and the others 2 k, such as 4 x 4 x 8, 4 x 8 x 8 or 4 x 8.
        With `twist`, any two sizes; at most 2**16 nodes and 2**20 links.
    twist : int, optional
        For two dimensions: shift of the wraparound links of the first along the second, less than its size.  By default
        the wraparound links of a dimension of size k are shifted by k along all those of size 2 k.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Examples
    --------
    >>> twisted_torus(4, 4, 8).graph.diameter, torus(4, 4, 8).graph.diameter
    (6, 8)
    """
    sizes = _sizes(shape)
    name = f"TwistedTorus({', '.join(map(str, sizes))}{'' if twist is None else f', twist {shown(twist)}'})"
    twists = _twists(sizes, twist)
    check_graph(name, prod(sizes), 2 * len(sizes))
    edges = torus_links(sizes, [True] * len(sizes), twists)[:, :2]
    return topology_from_arcs(prod(sizes), bidirectional_arcs(edges), name, bandwidth, latency)


def twisted_hypercube(dimension: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Hypercube with two opposite links of one square crossed, which reduces its diameter by one.

    The twisted cube of Esfahanian, Ni and Sagan (IEEE Transactions on Computers 40, 1991), which the direct-connect
    paper compares with the hypercube in section A.1.  Parameters as for `hypercube`, but the dimension is at least 3.

    Examples
    --------
    >>> hypercube(4).graph.diameter, twisted_hypercube(4).graph.diameter
    (4, 3)
    """
    dimension = as_size(dimension, "dimension", low=3, high=15)
    heads = np.arange(2**dimension)[:, None] ^ (1 << np.arange(dimension))
    heads[:4, 0] = 3, 2, 1, 0
    return topology_from_heads(heads, f"TwistedQ({dimension})", bandwidth, latency)


def _sizes(shape: tuple[object, ...]) -> list[int]:
    """Read the sizes of dimensions, or one sequence of them, as numpy's functions of shapes do."""
    listed = (
        as_list(shape[0], "the shape of the torus") if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    )
    return [as_size(size, f"dimension {number} of the torus", low=2) for number, size in enumerate(listed)]


def _twists(sizes: list[int], twist: int | None) -> list[list[int]]:
    if twist is not None:
        if len(sizes) != 2:
            raise TopologyError(f"twist goes with two dimensions; expected a shape of two sizes, not {shown(sizes)}")
        return [[0, as_size(twist, "twist", low=0, high=sizes[1] - 1)], [0, 0]]
    if (twists := even_twists(sizes)) is None:
        raise TopologyError(
            f"the shape of the twisted torus is {shown(sizes)}; expected sizes k and 2 k, both of them, such as "
            "4, 4, 8, or two sizes and a twist"
        )
    return twists


DIAMOND = ((1, 2), (2, 3), (4, 5), (0, 6), (0, 6), (3, 7), (5, 7), (1, 4))  # heads of the two arcs out of each node


def complete_bipartite(degree: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Complete bipartite graph K_{d,d}: a link between each of d compute nodes and each of d others.

    Direct-connect paper, Figure 1 and Table 9.  Nodes 0 to d - 1 are on one side, d to 2 d - 1 on the other.
    Parameters as for `ring`, with the degree, the paper's d, from 1 to 724, for n.
    """
    degree = as_size(degree, "degree", high=724)
    sides = np.repeat([[1], [0]], degree, axis=0) * degree
    return topology_from_heads(sides + np.arange(degree), f"K({degree}, {degree})", bandwidth, latency)


def hamming(dimension: int, size: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Hamming graph H(n, q): words of n letters out of q, linked if they differ in one place.

    The Cartesian power of a complete graph (direct-connect paper, Table 9).  Nodes are numbered in the order of their
    words.  Parameters as for `ring`, with the dimension, the paper's n, and the size, the paper's q, of at least 2, for
    n.
    """
    dimension, size = as_size(dimension, "dimension", high=16), as_size(size, "size", low=2)
    name = f"H({dimension}, {size})"
    check_graph(name, size**dimension, dimension * (size - 1))
    nodes, places = np.arange(size**dimension)[:, None], size ** np.arange(dimension)[::-1]
    letters = nodes // places % size
    changed = (letters[:, :, None] + np.arange(1, size)) % size
    heads = nodes[:, :, None] + (changed - letters[:, :, None]) * places[:, None]
    return topology_from_heads(heads.reshape(len(nodes), -1), name, bandwidth, latency)


def diamond(*, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Diamond: 8 compute nodes of degree 2 with a bandwidth-optimal allgather in 3 steps.

    Direct-connect paper, Figure 19 and Table 9.  The schedule, in `base_schedule_rows`, is not breadth-first.  The arcs
    agree with everything that the paper prints of Diamond, and so does the transpose.  Parameters as for `ring`, but
    for the size.
    """
    return topology_from_heads(np.array(DIAMOND, dtype=np.int64), "Diamond", bandwidth, latency)


def double_binary_tree(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Two binary trees of bidirectional links in which no compute node but the root is an inner node of both.

    A baseline of the direct-connect paper, section 8.2, after the two-tree algorithms of Sanders, Speck and Träff.  It
    is not regular: nodes have up to 4 links; a link of both trees counts twice.  Parameters as for `ring`.
    """
    n = as_size(n, "n", low=2)
    edges = [(parent, node) for parents in double_binary_tree_parents(n) for node, parent in enumerate(parents) if node]
    return topology_from_arcs(n, bidirectional_arcs(edges), f"DoubleBinaryTree({n})", bandwidth, latency)


def double_binary_tree_parents(count: int) -> tuple[list[int], list[int]]:
    """Return the parents of nodes in two trees with root 0, whose parent is -1, and no other common inner node."""
    below_root = count - 1
    first = [-1, *(_parent_in_order(node, below_root) for node in range(1, count))]
    moved = [0, *(below_root + 1 - node if below_root % 2 == 0 else node % below_root + 1 for node in range(1, count))]
    second = [-1] * count
    for node in range(1, count):
        second[moved[node]] = moved[first[node]]
    return first, second


def _parent_in_order(node: int, count: int) -> int:
    """Return a node's parent in the in-order numbered binary tree of nodes 1 to `count`; 0 for its top."""
    lowest = node & -node
    above = (node ^ lowest) | (lowest << 1)
    return above if above <= count else node ^ lowest


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

    K(d, n) is the line graph L^n(K_{d+1}) of a complete graph.  Always Moore-optimal (direct-connect paper, appendix
    F.2 and Table 9); its links run one way.  Nodes are numbered in the order of their words.

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
    breadth-first broadcast takes at most one step more than the Moore bound allows.  Unless d + 1 divides n, some arcs
    are self-loops.  Parameters as for `kautz`, but the degree is at least 2, and n, at least degree + 1, is the number
    of nodes.

    Examples
    --------
    >>> generalized_kautz(4, 1000).graph.diameter
    5
    """
    degree = as_size(degree, "degree", low=2, high=MAX_DEGREE)
    n = as_size(n, "n", low=degree + 1)
    name = f"Π({degree}, {n})"
    check_graph(name, n, degree)
    heads = (-degree * np.arange(n)[:, None] - np.arange(1, degree + 1)) % n
    return topology_from_heads(heads, name, bandwidth, latency)


def de_bruijn(degree: int, length: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """De Bruijn graph DBJ(d, n): words of n letters out of d, with self-loops at the words of one letter.

    Direct-connect paper, Table 9.  Nodes are numbered in the order of their words.  Parameters as for `kautz`, but the
    degree is at least 2, and the length at least 1; there are d**n nodes.

    Examples
    --------
    >>> de_bruijn(2, 3).out_links("gpu3")[0].head, de_bruijn(2, 3).graph.diameter
    ('gpu6', 3)
    """
    degree = as_size(degree, "degree", low=2, high=MAX_DEGREE)
    length = as_size(length, "length", high=MAX_LENGTH)
    name = f"DBJ({degree}, {length})"
    check_graph(name, degree**length, degree)
    return topology_from_heads(_shifts(degree, length), name, bandwidth, latency)


def modified_de_bruijn(degree: int, length: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """De Bruijn graph whose self-loops and 2-cycles are replaced by one long cycle.

    Direct-connect paper, Table 9 and Figure 20; the cycles are those of `REWIRED_CYCLES`.  Breadth-first broadcasts are
    not bandwidth-optimal here; `base_schedule_rows` has schedules that are.  Parameters as for `de_bruijn`, where
    degree and length are (2, 3), (2, 4), (3, 2) or (4, 2).
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
