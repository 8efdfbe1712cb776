"""Rate of all-to-all and all-to-allv as a maximum concurrent flow linear program, with one commodity per source.

All ranks send to all others concurrently, over any paths, in proportion to the traffic.  Data of one source need not be
distinguished by destination, so there is one flow per source, from which each other rank takes its part.

==================  ===================================================  =============================================
name                meaning                                              equation
==================  ===================================================  =============================================
variables
``rate``            GB/s between the two ranks with most traffic         f of LP (3)
``flow``            GB/s that a link carries of what starts at a source  y(s, (u, v)) of LP (3)
constraints
``link_bandwidth``  all flows together fit the link                      sum of y(s, (u, v)) <= 1, here b(u, v)
``delivery``        a rank keeps its part of what reaches it, and passes f + sum of y(s, (u, v)) <= sum of y(s, (w, u))
                    on the rest; a switch keeps nothing
==================  ===================================================  =============================================

LP (3) is in appendix A.5 of the direct-connect paper, where links have one unit of bandwidth and every node is a rank;
switches are counted as in ForestColl, appendix G.  The rate is exact: flows need no further condition, unlike
trees.  With equal traffic and N ranks the algorithm bandwidth of nccl-tests is N f.

Stated in `Blocks`; ``flow`` is indexed by places in ``model.sources`` and `Topology.links`.  Symmetries reduce it to
one source s(i) of each orbit O(i) and one row of each orbit Q of links, with the same optimum
(docs/formulations/all_to_all.md). User constraints and objectives on ``flow`` then apply to s(i), for all of O(i) on
average.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError, UnsupportedError
from ..schedules.collective import pair_amounts
from ..support.arrays import FloatArray, IntArray
from ..support.validation import as_integers
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from ..topologies.symmetry.isomorphism import LinkOrbits, link_orbits, trivial_link_orbits
from .blocks import BlockModel, Blocks

__all__ = ["AllToAllModel", "build"]

NOTHING = "all traffic is 0; expected some rank to have data for another"


@dataclass(frozen=True, eq=False, repr=False)
class AllToAllModel(BlockModel):
    """An all-to-all program.

    Attributes
    ----------
    topology : Topology
        The network that it is for.
    shares : ndarray of float64, shape (ranks, ranks)
        Traffic from each rank to each other over the largest one: at the ``rate`` f a pair gets f times its share.
    largest : Fraction
        The largest traffic, as it was given: it takes ``largest / f``, which is ns for bytes.
    orbits : LinkOrbits
        The ranks that send, one of each orbit, how many each stands for, and each link's orbit, its row of
        ``link_bandwidth``; without symmetries, each for itself.
    """

    topology: Topology
    shares: FloatArray
    largest: Fraction
    orbits: LinkOrbits

    @property
    def sources(self) -> IntArray:
        """Ranks whose flows are variables, shape (sources,): all that send, or one of each orbit."""
        return self.orbits.sources

    def link_duals(self, duals: FloatArray) -> FloatArray:
        """Divide the dual values of rows among their links, as in the program of all sources.

        Shapes: `duals` (classes,), ``solution.duals["link_bandwidth"]`` or the exact ones; returns (links,).
        """
        divided: FloatArray = np.asarray(duals / self.orbits.sizes)[self.orbits.classes]
        return divided


def build(
    topology: Topology,
    *,
    traffic: Sequence[Sequence[object]] | npt.NDArray[Any] | None = None,
    symmetries: npt.ArrayLike | None = None,
) -> AllToAllModel:
    """State the rate of an all-to-all on a topology.

    The objective is the rate, with symmetries and without.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    traffic : matrix of number, shape (ranks, ranks), optional
        Bytes, or any relative amounts, from each rank (row) to each other (column); what ranks keep for themselves is
        left out.  Equal for all pairs by default.
    symmetries : array_like of int, shape (generators, nodes), optional
        Permutations of the nodes that keep ranks, links with their bandwidths, and traffic, as
        `collopt.topologies.symmetries` finds them; they are checked.  There is then one source of each orbit of ranks,
        and one ``link_bandwidth`` of each orbit of links.

    Examples
    --------
    One rank has twice as much for its neighbor in a ring; part of it takes the other direction.

    >>> from collopt import solve
    >>> from collopt.topologies import ring
    >>> solve(build(ring(3, bandwidth=10), traffic=[[0, 2, 1], [1, 0, 1], [1, 1, 0]])).exact.objective
    Fraction(40, 3)
    """
    amounts = _checked_traffic(traffic, as_topology(topology))
    orbits = _orbits(topology, amounts, symmetries)
    blocks = Blocks(f"all-to-all of {topology.name}")
    rate = blocks.variables("rate", ())
    blocks.variables("flow", (len(orbits.sources), topology.num_links))
    model = AllToAllModel(blocks, topology, amounts.shares, amounts.largest, orbits)
    _link_bandwidth(model)
    _delivery(model)
    model.maximize([(rate, 1)])
    return model


def _link_bandwidth(model: AllToAllModel) -> None:
    """Sum over i of |O(i)| / |Q| y(s(i), e) over all links e of Q <= b(Q) for each orbit Q of links."""
    orbits = model.orbits
    bandwidths = np.empty(len(orbits.sizes))
    bandwidths[orbits.classes] = [float(link.bandwidth) for link in model.topology.links]
    parts = orbits.counts[:, None] / orbits.sizes[orbits.classes]
    terms = [(orbits.classes, model.variables.flow, parts)]
    model.blocks.constraint("link_bandwidth", len(bandwidths), terms, upper=bandwidths)


def _delivery(model: AllToAllModel) -> None:
    """Into u - out of u in y(s) >= f T(s, u) for each source s and node u other than s; T is 0 for switches."""
    topology, flow = model.topology, model.variables.flow
    tails, heads, _, _ = topology.arrays
    nodes, sources = len(topology.nodes), len(model.sources)
    places = np.arange(sources * nodes).reshape(sources, nodes)
    into, out = heads != model.sources[:, None], tails != model.sources[:, None]
    source, rank = np.nonzero(model.shares[model.sources])
    terms: list[tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]] = [
        (places[:, heads][into], flow[into], 1),
        (places[:, tails][out], flow[out], -1),
        (places[source, rank], model.variables.rate, -model.shares[model.sources[source], rank]),
    ]
    # The rows of the sources themselves stay empty, so that dual values are indexed by source and node.
    model.blocks.constraint("delivery", (sources, nodes), terms, lower=0)


class _Amounts(NamedTuple):
    """Traffic without what ranks keep: over the largest, the largest, and numbered, equal amounts alike and 0 as 0."""

    shares: FloatArray
    largest: Fraction
    numbers: IntArray


def _orbits(topology: Topology, amounts: _Amounts, symmetries: npt.ArrayLike | None) -> LinkOrbits:
    if symmetries is None:
        return trivial_link_orbits(topology.num_links, amounts.numbers)
    expected = f"rows with the image of each of {len(topology.nodes)} nodes, as collopt.topologies.symmetries returns"
    try:
        rows = as_integers(symmetries, "the symmetries", expected)
    except TopologyError as error:
        raise UnsupportedError(str(error)) from None
    if rows.ndim != 2 or rows.shape[1] != len(topology.nodes):
        raise UnsupportedError(f"the symmetries have shape {rows.shape}; expected {expected}")
    tails, heads, capacities, _ = topology.arrays
    return link_orbits(tails, heads, capacities, amounts.numbers, rows)


def _checked_traffic(traffic: Any, topology: Topology) -> _Amounts:
    size = topology.num_ranks
    if traffic is None:
        return _Amounts(1 - np.eye(size), Fraction(1), 1 - np.eye(size, dtype=np.int64))
    if isinstance(traffic, np.ndarray) and traffic.dtype == np.int64 and traffic.shape == (size, size):
        return _whole_traffic(traffic)
    amounts = pair_amounts(traffic, topology.compute_nodes)
    for rank, row in enumerate(amounts):
        row[rank] = Fraction(0)
    largest = max(max(row) for row in amounts)
    if not largest:
        raise UnsupportedError(NOTHING)
    shares = np.array([[float(amount / largest) for amount in row] for row in amounts])
    numbers = {amount: number for number, amount in enumerate(sorted({Fraction(0)}.union(*amounts)))}
    return _Amounts(shares, largest, np.array([[numbers[amount] for amount in row] for row in amounts]))


def _whole_traffic(traffic: IntArray) -> _Amounts:
    """Read whole numbers at once."""
    if (traffic < 0).any():
        source, destination = np.argwhere(traffic < 0)[0]
        raise UnsupportedError(
            f"the traffic from rank {source} to rank {destination} is {traffic[source, destination]}; expected a "
            "number of at least 0"
        )
    amounts = traffic.copy()
    np.fill_diagonal(amounts, 0)
    if not amounts.any():
        raise UnsupportedError(NOTHING)
    largest = int(amounts.max())
    numbers = np.unique(np.append(0, amounts), return_inverse=True)[1][1:].reshape(amounts.shape)
    return _Amounts(amounts / largest, Fraction(largest), numbers)
