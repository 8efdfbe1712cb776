"""Allreduce linear program with cut constraints in place of witness flows (projection, for cutting planes).

By max-flow min-cut the flows of `collopt.formulations.allreduce`, N times as many as links, are equivalent to one
inequality per set S of ranks; few of these are active, and they are added once they are violated.

===================  ============================================================  =============================
name                 meaning                                                       equation
===================  ============================================================  =============================
variables
``root_rate``        GB/s reduced at a rank and broadcast from there                x(v) of LP (5)
``broadcast``        what links carry of the out-trees' hops that start at a rank  flows of b'(α, β), appendix G
``reduce``           what links carry of the in-trees' hops that end at a rank     the same, reversed
constraints
``link_bandwidth``   both kinds together fit the link                              capacities b(u, v), appendix G
``*_balance``        a switch passes on what it gets, rank by rank                 flows of b'(α, β), appendix G
``broadcast_cuts_*`` c^BC out of S >= the sum of x(v) over S, for sets S of ranks  F(s, t) >= sum of x(v)
``reduce_cuts_*``    c^RE into S >= the sum of x(v) over S                         F(t, s) >= sum of x(v)
===================  ============================================================  =============================

LP (5) is that of ForestColl, appendix G; the two sides of the last lines are equal by max-flow min-cut.  Hops of
in-trees are described from the root outwards, against the direction of their data.  The bandwidth from rank α to rank
β, b' or c, is what reaches β of the flow that starts at α.

Examples
--------
>>> from collopt import solve
>>> from collopt.topologies import ring
>>> model = build(ring(3, bandwidth=10))
>>> round(solve(model).objective, 6)
15.0
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import UnsupportedError
from ..schedules.collective import Direction
from ..support.arrays import BoolArray, IntArray
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .blocks import BlockModel, Blocks

__all__ = ["AllreduceCutModel", "Hops", "build", "build_mirrored"]


class Hops(NamedTuple):
    """Link loads of one kind of trees: flows from each rank to its next ranks, through switches only.

    Attributes
    ----------
    columns : ndarray of int64, shape (entries,)
        Variables, in GB/s: what the link of an entry carries of the hops that start at its rank.
    origins : ndarray of int64, shape (entries,)
        That rank: of the two ends of a hop, the one nearer to the root.
    links : ndarray of int64, shape (entries,)
        Numbers of links as in `Topology.links`.
    tails, heads : ndarray of int64, shape (entries,)
        The nodes that the link joins, away from the root.
    """

    columns: IntArray
    origins: IntArray
    links: IntArray
    tails: IntArray
    heads: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class AllreduceCutModel(BlockModel):
    """The linear program of an allreduce with cut constraints.

    Attributes
    ----------
    topology : Topology
        The network that it is for.
    roots : ndarray of int64, shape (roots,)
        Ranks that may root trees.
    hops : dict
        `Hops` by direction; of a mirrored model, "broadcast" alone.
    """

    topology: Topology
    roots: IntArray
    hops: dict[Direction, Hops]

    def add_cuts(self, name: str, direction: Direction, inside: BoolArray) -> None:
        """Add cut constraints: the shares out of sets of ranks, or into them, carry all that is rooted in them.

        Bandwidth of out-trees must leave the sets, or with "reduce" bandwidth of in-trees enter them.  Each misses some
        rank.  Shapes: `inside` bool (cuts, ranks).
        """
        hops = self.hops[direction]
        ends = hops.heads < self.topology.num_ranks
        columns, origins, heads = hops.columns[ends], hops.origins[ends], hops.heads[ends]
        cuts, leaving = np.nonzero(inside[:, origins] & ~inside[:, heads])
        rooting, rooted = np.nonzero(inside[:, self.roots])
        terms = [(cuts, columns[leaving], 1.0), (rooting, self.variables.root_rate[rooted], -1.0)]
        self.blocks.constraint(name, len(inside), terms, lower=0.0)


def build(topology: Topology, *, num_roots: int | None = None) -> AllreduceCutModel:
    """State the rate of an allreduce on a topology, with the cuts around single ranks and their complements.

    The objective bounds the algorithm bandwidth of all trees, and is theirs once no further cut is violated.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    num_roots : int, optional
        How many ranks, the first ones, may root trees; all by default.
    """
    blocks = Blocks(f"allreduce cuts of {as_topology(topology).name}")
    roots = np.arange(topology.num_ranks if num_roots is None else num_roots)
    blocks.variables("root_rate", len(roots))
    tails, heads = topology.arrays.tails, topology.arrays.heads
    hops: dict[Direction, Hops] = {
        "broadcast": _add_hops(blocks, "broadcast", topology, tails, heads),
        "reduce": _add_hops(blocks, "reduce", topology, heads, tails),
    }
    _add_link_bandwidth(blocks, topology, [(side.links, side.columns) for side in hops.values()])
    return _with_first_cuts(AllreduceCutModel(blocks, topology, roots, hops))


def build_mirrored(topology: Topology) -> AllreduceCutModel:
    """State the same program in half the variables, on symmetric bidirectional links.

    Reversing all communication exchanges in-trees and out-trees, and the average of a solution and its reversal is one,
    for which one root is enough (proof: docs/formulations/allreduce.md).  In-trees are the out-trees with all
    communication reversed, and rank 0 is the only root; the optimum is that of `build`.
    """
    opposites = opposite_links(topology)
    if opposites is None:
        raise UnsupportedError(
            f"{topology} has a link without an opposite of the same bandwidth; build() states the program without it"
        )
    blocks = Blocks(f"mirrored allreduce cuts of {topology.name}")
    blocks.variables("root_rate", 1)
    hops = _add_hops(blocks, "broadcast", topology, topology.arrays.tails, topology.arrays.heads)
    _add_link_bandwidth(blocks, topology, [(hops.links, hops.columns), (opposites[hops.links], hops.columns)])
    roots = np.zeros(1, dtype=np.int64)
    return _with_first_cuts(AllreduceCutModel(blocks, topology, roots, {"broadcast": hops}))


def opposite_links(topology: Topology) -> IntArray | None:
    """Place in ``topology.links`` of each link's opposite, int64 (links,); None if one has none of its bandwidth."""
    tails, heads, capacities, _ = as_topology(topology).arrays
    size = len(topology.nodes)
    order, against = np.argsort(tails * size + heads), np.argsort(heads * size + tails)
    opposites = np.empty(len(tails), dtype=np.int64)
    opposites[against] = order
    matched = (tails[opposites] == heads) & (heads[opposites] == tails) & (capacities[opposites] == capacities)
    return opposites if matched.all() else None


def _with_first_cuts(model: AllreduceCutModel) -> AllreduceCutModel:
    alone = np.eye(model.topology.num_ranks, dtype=np.bool_)
    for direction in model.hops:
        sets = np.concatenate([~alone, alone[model.roots]]) if len(alone) > 2 else ~alone
        model.add_cuts(f"{direction}_cuts_0", direction, sets)
    model.maximize([(model.variables.root_rate, 1.0)])
    return model


def _add_hops(blocks: Blocks, name: str, topology: Topology, tails: IntArray, heads: IntArray) -> Hops:
    """Into w = out of w for each rank where hops start and each switch w on their paths."""
    origins, links = _passed(topology.num_ranks, len(topology.nodes), tails, heads)
    columns = blocks.variables(name, len(links))
    hops = Hops(columns, origins, links, tails[links], heads[links])
    size, ranks = len(topology.nodes), topology.num_ranks
    arriving, leaving = hops.heads >= ranks, hops.tails >= ranks
    places, place = np.unique(
        np.concatenate(
            [origins[arriving] * size + hops.heads[arriving], origins[leaving] * size + hops.tails[leaving]]
        ),
        return_inverse=True,
    )
    count = int(arriving.sum())
    terms = [(place[:count], columns[arriving], 1.0), (place[count:], columns[leaving], -1.0)]
    blocks.constraint(f"{name}_balance", len(places), terms, lower=0.0, upper=0.0)
    return hops


def _add_link_bandwidth(blocks: Blocks, topology: Topology, uses: list[tuple[IntArray, IntArray]]) -> None:
    """The sum over ranks of what links carry of their hops <= b(u, v) for each link."""
    bandwidths = [float(link.bandwidth) for link in topology.links]
    terms = [(links, columns, 1.0) for links, columns in uses]
    blocks.constraint("link_bandwidth", len(bandwidths), terms, upper=bandwidths)


def _passed(num_ranks: int, num_nodes: int, tails: IntArray, heads: IntArray) -> tuple[IntArray, IntArray]:
    """Return origin and link of every entry: the links on paths from each rank through switches to other ranks."""
    numbers: list[list[int]] = [[] for _ in range(num_nodes)]
    for link, tail in enumerate(tails.tolist()):
        numbers[tail].append(link)
    ends = heads.tolist()
    origins, links = [], []
    for origin in range(num_ranks):
        reached, waiting = {origin}, [origin]
        while waiting:
            for link in numbers[waiting.pop()]:
                head = ends[link]
                if head == origin:
                    continue
                origins.append(origin)
                links.append(link)
                if head >= num_ranks and head not in reached:
                    reached.add(head)
                    waiting.append(head)
    return np.array(origins, dtype=np.int64), np.array(links, dtype=np.int64)
