"""Fractional packing of Steiner trees: the best schedule of trees that branch at ranks and at switches.

One variable per tree, far too many to state; `SteinerModel.add_trees` adds those that column generation finds.

===================  ==============================================================  =================================
name                 meaning                                                         equation
===================  ==============================================================  =================================
variables
``root_rate``        allreduce: GB/s reduced at a rank and broadcast from there      x(r)
``rate``             other collectives: GB/s of a shard of weight 1                  x
``trees_<number>``   GB/s that each tree of one call of `add_trees` carries          λ(T)
constraints
``link_bandwidth``   what trees put on a link fits it                                sum of load(T, e) λ(T) <= b(e)
``broadcast_rooted`` the out-trees of a rank carry what it broadcasts                sum of λ(T) at r = x(r), or w(r) x
``reduce_rooted``    the in-trees of a rank carry what it reduces                    the same
===================  ==============================================================  =================================

The objective is the sum of x(r), or x.  This is the linear program of Jain, Mahdian and Salavatipour (Packing Steiner
trees, SODA 2003, section 2) with roots and directions.  A tree spans all ranks.  It branches at ranks and, if data runs
away from its root, at switches that multicast, else at those that aggregate; load(T, e) counts its paths over e, and
what switches with loopback send back (`Forest.link_loads`).  Group limits are not part of it.  Stated in `Blocks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..errors import UnsupportedError
from ..schedules import Forest
from ..schedules.collective import TREE_COLLECTIVES, AnyCollective, Collective, Direction, as_collective
from ..support.arrays import IntArray
from ..support.validation import shown
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .blocks import BlockModel, Blocks

__all__ = ["SteinerModel", "SteinerTree", "build"]


class SteinerTree(NamedTuple):
    """A tree from a `root` to all ranks, and switches at which it branches, by its `paths`, with its `direction`.

    Paths have node numbers from the root outwards: from a rank or a switch of the tree, past switches, to another one.
    """

    root: int
    direction: Direction
    paths: tuple[tuple[int, ...], ...]

    def forest(self, num_ranks: int) -> Forest:
        """Return the tree as a schedule of one tree."""
        ends = {node for path in self.paths for node in (path[0], path[-1])}
        switches = sorted(node for node in ends if node >= num_ranks)
        trees = [(self.root, 1, self.paths)]
        return Forest.from_paths(num_ranks, 1, trees, direction=self.direction, switches=switches)

    def loads(self, topology: Topology) -> IntArray:
        """Count what the tree puts on each link, shape (links,)."""
        return self.forest(topology.num_ranks).link_loads(topology)


@dataclass(frozen=True, eq=False, repr=False)
class SteinerModel(BlockModel):
    """The linear program of trees that branch at switches.

    Attributes
    ----------
    topology : Topology
        The network that it is for.
    collective : Collective
        What the trees are for.
    weights : tuple of int
        Sizes of the shards in rank order; equal in an allreduce, where they do not count.
    rate : ndarray of int64
        Variables in GB/s: one per rank in an allreduce, else a single one.
    trees : list of SteinerTree
        Added so far, in the order of their variables.
    """

    topology: Topology
    collective: Collective
    weights: tuple[int, ...]
    rate: IntArray
    trees: list[SteinerTree] = field(default_factory=list)

    def add_trees(self, trees: Sequence[SteinerTree]) -> None:
        """Add a variable for each tree; raises `CertificateError` if one uses a link that there is not."""
        if not trees:
            return
        loads = np.stack([tree.loads(self.topology) for tree in trees])
        columns = self.blocks.variables(f"trees_{len(self.trees)}", len(trees))
        number, links = np.nonzero(loads)
        self.blocks.extend("link_bandwidth", [(links, columns[number], loads[number, links])])
        for tree, column in zip(trees, columns.tolist(), strict=True):
            self.blocks.extend(f"{tree.direction}_rooted", [(tree.root, column, 1.0)])
        self.trees.extend(trees)


def build(
    topology: Topology, collective: AnyCollective = "allreduce", *, weights: Sequence[int] | None = None
) -> SteinerModel:
    """State the rate of a collective by trees that branch at switches, without any tree yet.

    The objective is 0 until trees are added.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    collective : str or Collective
        ``"allreduce"``, ``"allgather"``, ``"reduce_scatter"``, ``"broadcast"`` or ``"reduce"``.
    weights : sequence of int, optional
        Relative sizes of the shards in rank order; 1 for the root and 0 for others in a broadcast or reduce.
    """
    collective = as_collective(collective, TREE_COLLECTIVES, "trees do not implement")
    ranks = as_topology(topology).num_ranks
    sizes = (1,) * ranks if weights is None else tuple(weights)
    if len(sizes) != ranks or any(type(size) is not int or size < 0 for size in sizes) or not any(sizes):
        raise UnsupportedError(f"the weights are {shown(sizes)}; expected a whole number for each of {ranks} ranks")
    blocks = Blocks(f"Steiner trees of {topology.name}")
    rate = blocks.variables("root_rate", ranks) if collective.has_two_phases else blocks.variables("rate", ())
    blocks.constraint(
        "link_bandwidth", topology.num_links, [], upper=[float(link.bandwidth) for link in topology.links]
    )
    for direction in collective.phases:
        terms = [(np.arange(ranks), rate, -np.array(sizes, dtype=np.float64))]
        blocks.constraint(f"{direction}_rooted", ranks, terms, lower=0.0, upper=0.0)
    blocks.maximize([(rate, 1.0)])
    return SteinerModel(blocks, topology, collective, sizes, rate)
