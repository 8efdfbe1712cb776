"""What rings, double binary trees and square tori take on networks with four ports per node, in formulas.

These are the baselines of section 8 and of Table 4 in the direct-connect paper (*Efficient Direct-Connect Topologies
for Collective Communications*).  The paper prints their times at N = 1024, but not how they were worked out; the
formulas here are ours.  With alpha = 10 µs, B = 100 Gb/s and M = 2^20 bytes, three of four times come out as printed:

==================  ==========  ==========  ====================================================================
figure              printed     here        formula
==================  ==========  ==========  ====================================================================
ring, all-to-all    10738 µs    10737.6 µs  the second ring joins nodes N/2 - 1 apart
tree, allreduce     1434 µs     1434.0 µs   2 (2 log2 N + k - 1) steps with 1/k of half the data, k a power of 2
tree, all-to-all    21475 µs    21474.8 µs  four links join the two halves of the nodes
ring, allreduce     20640 µs    20627.6 µs  2 (N - 1) steps; 2 N steps and M = 10^6 give what is printed
==================  ==========  ==========  ====================================================================
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from compute_trace import as_exact

from collopt.errors import TopologyError, UnsupportedError
from collopt.schedules import as_bytes
from collopt.schedules.steps.allreduce import NS_PER_US, StepCost
from collopt.support.quantities import Exact
from collopt.support.validation import as_size
from collopt.topologies.direct_connect.basic_graphs import double_binary_tree_parents

__all__ = [
    "DEGREE",
    "all_to_all_us",
    "double_binary_tree_allreduce_us",
    "double_binary_tree_rate",
    "rate_limit",
    "shifted_bfb_ring_cost",
    "shifted_ring_cost",
    "shifted_ring_rate",
    "torus_cost",
    "torus_rate",
]

DEGREE = 4
"""Ports of a node in all baselines."""


def shifted_ring_cost(nodes: int) -> StepCost:
    """Two rings over the same nodes, each both ways: N - 1 steps, and as little data as there can be.

    >>> cost = shifted_ring_cost(1024)
    >>> float(2 * cost.runtime(2**20, alpha=10, node_bandwidth="12.5")).__round__(1)
    20627.6
    """
    nodes = _size(nodes, 3)
    return StepCost(nodes - 1, Fraction(nodes - 1, nodes))


def shifted_bfb_ring_cost(nodes: int) -> StepCost:
    """The same rings with breadth-first broadcast, which goes both ways at once: half as many steps.

    >>> shifted_bfb_ring_cost(12)
    StepCost(steps=6, bandwidth_factor=Fraction(11, 12))
    """
    nodes = _size(nodes, 3)
    return StepCost(nodes // 2, Fraction(nodes - 1, nodes))


def shifted_ring_rate(nodes: int) -> Fraction:
    """Rate f of all-to-all on the circulant graph C(N, {1, N/2 - 1}), the second ring shifted by N/2 - 1.

    That shift times itself is 1 modulo N, so multiplying by it swaps the two rings: all links are alike, and shortest
    paths load them evenly.  Hence f = 4 / (sum of the distances from a node), which is N^2/8 + 2.

    >>> round(float(all_to_all_us(shifted_ring_rate(1024), 1024, 4, 2**20, 12.5)))
    10738
    """
    nodes = _size(nodes, 8)
    if nodes % 4:
        raise UnsupportedError(f"the number of nodes is {nodes}; expected a multiple of 4 for rings shifted by N/2 - 1")
    return Fraction(DEGREE, nodes**2 // 8 + 2)


def torus_cost(side: int) -> StepCost:
    """A square torus with breadth-first broadcast: steps as its diameter, and as little data as there can be.

    >>> torus_cost(32)
    StepCost(steps=32, bandwidth_factor=Fraction(1023, 1024))
    """
    side = _size(side, 3)
    nodes = side**2
    return StepCost(2 * (side // 2), Fraction(nodes - 1, nodes))


def torus_rate(side: int) -> Fraction:
    """Rate f of all-to-all on a square torus, whose links are all alike: 4 / (sum of the distances from a node).

    >>> torus_rate(32)
    Fraction(1, 4096)
    """
    side = _size(side, 3)
    return Fraction(DEGREE, 2 * side * (side**2 // 4))


def double_binary_tree_allreduce_us(nodes: int, num_bytes: int, *, alpha: Exact, node_bandwidth: Exact) -> Fraction:
    """Time of an allreduce along two binary trees, pipelined as well as powers of two allow, in µs.

    Reduction and broadcast follow each other.  Each takes 2 h + k - 1 steps for k blocks, as an inner node of a tree
    of height h = ceil(log2 N) serves its children in turn (Sanders, Speck and Träff, Parallel Computing 35(12), 2009).
    Each tree has half of the data and links of B/4, so a block takes alpha + 2 M/B / k.

    Units: `alpha` in µs.

    >>> round(float(double_binary_tree_allreduce_us(1024, 2**20, alpha=10, node_bandwidth=12.5)))
    1434
    """
    height = (_size(nodes, 2) - 1).bit_length()
    step = as_exact(alpha, "alpha")
    halves = 2 * as_bytes(num_bytes) / (_positive(node_bandwidth, "the bandwidth of a node") * NS_PER_US)
    if step == 0:
        return 2 * halves

    def total(blocks: int) -> Fraction:
        return 2 * (2 * height + blocks - 1) * (step + halves / blocks)

    blocks = 1
    while total(2 * blocks) < total(blocks):  # convex in the number of blocks
        blocks *= 2
    return total(blocks)


def double_binary_tree_rate(nodes: int) -> Fraction:
    """Rate of all-to-all on two binary trees, or more: the sparsest cut around consecutive nodes.

    No flow beats a cut, and LP (3) meets this one for all N up to 29.  For powers of two, f = 16 / N^2.

    >>> round(float(all_to_all_us(double_binary_tree_rate(1024), 1024, 4, 2**20, 12.5)))
    21475
    """
    nodes = _size(nodes, 3)
    ends = np.array(
        [(parent, node) for tree in double_binary_tree_parents(nodes) for node, parent in enumerate(tree) if node]
    )
    inside = np.arange(1, nodes)
    pairs = inside * (nodes - inside)
    sparsest = Fraction(nodes)
    for start in range(nodes):
        # Going round from `start` on, a link crosses the cut wherever that ends between its two ends.
        places = np.sort((ends - start) % nodes, axis=1)
        opened, closed = (np.bincount(places[:, end], minlength=nodes) for end in (0, 1))
        crossing = np.cumsum(opened - closed)[:-1]
        # Fractions of numbers below 2^31 that differ do so in more digits than a float has lost.
        best = int((crossing / pairs).argmin())
        sparsest = min(sparsest, Fraction(int(crossing[best]), int(pairs[best])))
    return sparsest


def rate_limit(nodes: int, degree: int) -> Fraction:
    """Bound on the rate f of all-to-all on any network: all links carry data, over paths as short as can be.

    At most d^i nodes are i hops away from a node, so f is at most d over the sum of the distances that follow.

    >>> rate_limit(1024, 4)
    Fraction(4, 4667)
    """
    left, degree = _size(nodes, 2) - 1, _size(degree, 1)
    hops = total = 0
    while left:
        hops += 1
        reached = min(left, degree**hops)
        total += hops * reached
        left -= reached
    return Fraction(degree, total)


def all_to_all_us(rate: Exact, nodes: int, degree: int, num_bytes: int, node_bandwidth: Exact) -> Fraction:
    """Time of an all-to-all at the rate f, in which every node sends M bytes in all: (M/B) d / (N f), in µs.

    >>> all_to_all_us(Fraction(1), 2, 1, 1000, 1)
    Fraction(1, 2)
    """
    nodes, degree = _size(nodes, 2), _size(degree, 1)
    speed = _positive(rate, "the rate of all-to-all") * _positive(node_bandwidth, "the bandwidth of a node")
    return as_bytes(num_bytes) * degree / (nodes * speed * NS_PER_US)


def _positive(value: object, what: str) -> Fraction:
    exact = as_exact(value, what)
    if exact == 0:
        raise UnsupportedError(f"{what} is 0; expected a positive number")
    return exact


def _size(value: object, least: int) -> int:
    try:
        return as_size(value, "the size of the network", low=least)
    except TopologyError as error:
        raise UnsupportedError(str(error)) from None
