"""Networks of two-way links for the tests about the strength: ``from two_way_networks import two_way_topologies``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from collopt.topologies import Topology

__all__ = ["TwoWay", "random_regular", "two_way", "two_way_topologies"]

Integers = npt.NDArray[np.int64]


class TwoWay(NamedTuple):
    """A network as the solvers take it, every link once."""

    num_nodes: int
    num_ranks: int
    tails: Integers
    heads: Integers
    capacities: Integers


@st.composite
def two_way_topologies(draw: st.DrawFn, max_ranks: int = 6, max_switches: int = 3, max_bandwidth: int = 9) -> Topology:
    """Connected topologies in which every link has an opposite of the same bandwidth.

    A random tree, in which switches can be leaves, and up to twice as many further links as nodes.
    """
    ranks, switches = draw(st.integers(2, max_ranks)), draw(st.integers(0, max_switches))
    nodes = [f"gpu{number}" for number in range(ranks)] + [f"sw{number}" for number in range(switches)]
    order = draw(st.permutations(nodes))
    pairs = [(node, order[draw(st.integers(0, place))]) for place, node in enumerate(order[1:])]
    for _ in range(draw(st.integers(0, 2 * len(nodes)))):
        start, step = draw(st.integers(0, len(nodes) - 1)), draw(st.integers(1, len(nodes) - 1))
        pairs.append((nodes[start], nodes[(start + step) % len(nodes)]))
    links = [(*pair, draw(st.integers(1, max_bandwidth))) for pair in pairs]
    return Topology.from_links(
        links, compute=nodes[:ranks], switches=nodes[ranks:], bidirectional=True, name="random two-way"
    )


def two_way(topology: Topology) -> TwoWay:
    """Every link of a topology once."""
    tails, heads, capacities, _ = topology.arrays
    once = tails < heads
    return TwoWay(len(topology.nodes), topology.num_ranks, tails[once], heads[once], capacities[once])


def random_regular(ranks: int, degree: int, max_bandwidth: int, seed: int) -> Topology:
    """A union of random rings, `degree` links per rank, of random bandwidths."""
    random = np.random.default_rng(seed)
    links = []
    for _ in range(degree // 2):
        order = random.permutation(ranks)
        widths = random.integers(1, max_bandwidth + 1, ranks)
        links += [
            (str(tail), str(head), int(width))
            for tail, head, width in zip(order, np.roll(order, 1), widths, strict=True)
        ]
    return Topology.from_links(
        links, compute=map(str, range(ranks)), bidirectional=True, name=f"random {degree}-regular, {ranks} ranks"
    )
