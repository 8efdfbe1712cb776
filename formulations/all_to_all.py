"""The rate of all-to-all and all-to-allv as a linear program: a multicommodity flow, one commodity per source.

Every rank has something for every other; all of it moves at once, over any paths, in proportion to the traffic.  What
starts at one rank need not be told apart by where it goes, so there is one flow per source, of which each other rank
takes out its part.

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

LP (3) is in appendix A.5 of the direct-connect paper, where links have one unit of bandwidth and every node is a rank.
Here links have their bandwidths, switches are nodes with no part of their own (ForestColl, appendix G, counts flows
through switches in the same way), and f is multiplied by the traffic between s and u over the largest one.

The rate is exact: unlike trees, flows are limited by nothing but the program.  With equal traffic and N ranks the
algorithm bandwidth of nccl-tests is N f.

Blocks, because it is solved at 10^5 to 10^6 columns.

Examples
--------
Four ranks around a switch with 30 GB/s each way; and if the link out of ``a`` must stay half free:

>>> from collopt import solve
>>> star = Topology.from_links([(rank, "s", 30) for rank in "abcd"], compute="abcd", switches="s", bidirectional=True)
>>> model = build(star)
>>> round(solve(model).objective, 6)
10.0
>>> number = star.links.index(star.link("a", "s"))
>>> model.constrain("quiet_uplink", [(model.variables.flow[:, number], 1)], upper=15)
>>> round(solve(model).objective, 6)
5.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ..errors import TopologyError, UnsupportedError
from ..topologies import Topology
from ..topologies.validation import as_amount, shown
from .block_model import BlockModel
from .blocks import Blocks
from .inputs import as_topology

__all__ = ["AllToAllModel", "Variables", "build"]

BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Variables:
    """Columns of the variables, to index when extending the model.

    Attributes
    ----------
    rate : ndarray of int64, shape ()
        GB/s between the two ranks with most traffic.
    flow : ndarray of int64, shape (sources, links)
        GB/s on links, in the order of ``model.sources`` and of `Topology.links`.
    """

    rate: IntArray
    flow: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class AllToAllModel(BlockModel):
    """An all-to-all program.

    Attributes
    ----------
    blocks : Blocks
        As for all models in blocks.
    topology : Topology
        Whose links carry the data.
    shares : ndarray of float64, shape (ranks, ranks)
        Traffic from each rank to each other over the largest one: at `Variables.rate` f a pair gets f times its share.
    largest : Fraction
        The largest traffic, as it was given: it takes ``largest / f``, which is ns for bytes.
    sources : ndarray of int64, shape (sources,)
        Ranks that send.
    variables : Variables
        To index when extending the model.
    """

    topology: Topology
    shares: FloatArray
    largest: Fraction
    sources: IntArray
    variables: Variables


def build(topology: Topology, *, traffic: Sequence[Sequence[object]] | FloatArray | None = None) -> AllToAllModel:
    """State the rate of an all-to-all on a topology.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    traffic : matrix of number, shape (ranks, ranks), optional
        Bytes, or any relative amounts, from each rank (row) to each other (column); what ranks keep for themselves is
        left out.  Equal for all pairs by default.

    Returns
    -------
    AllToAllModel
        Its objective is the rate.

    Raises
    ------
    UnsupportedError
        If `traffic` is not of its form.

    Examples
    --------
    One rank has twice as much for its neighbour in a ring: some of it had better go the other way round.

    >>> from collopt import solve
    >>> from collopt.topologies import ring
    >>> solve(build(ring(3, bandwidth=10), traffic=[[0, 2, 1], [1, 0, 1], [1, 1, 0]])).exact.objective
    Fraction(40, 3)
    """
    shares, largest = _checked_traffic(traffic, as_topology(topology).num_ranks)
    sources = np.flatnonzero(shares.any(axis=1))
    blocks = Blocks(f"all-to-all of {topology.name}")
    rate = blocks.variables("rate", ())
    flow = blocks.variables("flow", (len(sources), len(topology.links)))
    model = AllToAllModel(blocks, topology, shares, largest, sources, Variables(rate, flow))
    _link_bandwidth(model)
    _delivery(model)
    model.maximize([(rate, 1)])
    return model


def _link_bandwidth(model: AllToAllModel) -> None:
    """Sum over sources s of y(s, (u, v)) <= b(u, v) for each link."""
    bandwidths = [float(link.bandwidth) for link in model.topology.links]
    terms = [(np.arange(len(bandwidths)), model.variables.flow, 1)]
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
    # The rows of the sources themselves stay empty, so that prices are found by source and node.
    model.blocks.constraint("delivery", (sources, nodes), terms, lower=0)


def _checked_traffic(
    traffic: Sequence[Sequence[object]] | FloatArray | None, num_ranks: int
) -> tuple[FloatArray, Fraction]:
    """Traffic over the largest one, without what ranks keep; and the largest one."""
    if traffic is None:
        return 1 - np.eye(num_ranks), Fraction(1)
    if isinstance(traffic, (str, bytes)) or not isinstance(traffic, (Sequence, np.ndarray)):
        raise UnsupportedError(f"traffic is {shown(traffic)}; expected a matrix, one row of numbers per rank")
    rows = [list(row) if isinstance(row, (Sequence, np.ndarray)) else [] for row in traffic]
    if len(rows) != num_ranks or any(len(row) != num_ranks for row in rows):
        raise UnsupportedError(
            f"traffic has {len(rows)} rows of {', '.join(sorted({str(len(row)) for row in rows}))} entries; "
            f"expected {num_ranks} of {num_ranks}, one per rank"
        )
    amounts = [
        [Fraction(0) if rank == other else _amount(rank, other, value) for other, value in enumerate(row)]
        for rank, row in enumerate(rows)
    ]
    largest = max(max(row) for row in amounts)
    if not largest:
        raise UnsupportedError("all traffic is 0; expected some rank to have data for another")
    return np.array([[float(amount / largest) for amount in row] for row in amounts]), largest


def _amount(rank: int, other: int, value: object) -> Fraction:
    if isinstance(value, (float, np.floating)) and 0 <= value < np.inf:
        # Measured amounts have more digits than anyone writes.
        return Fraction(float(value))
    try:
        return as_amount(value)
    except TopologyError:
        raise UnsupportedError(
            f"traffic {shown(value)} from rank {rank} to rank {other} is not usable; expected a number of at least 0"
        ) from None
