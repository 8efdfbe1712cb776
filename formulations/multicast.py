"""Items for any ranks: a share of every hop for each item, in which each destination has a flow; and trees for them.

===================  ==========================================================  =====================================
name                 meaning                                                     equation
===================  ==========================================================  =====================================
variables
``rate``             GB/s per unit of each item                                  x
``group_rate``       GB/s of a group of items                                    x(d)
``share``            bandwidth of a hop for a group of items                     c(d; u, v)
``flow``             how a destination t of group d gets it                      f(d, t; u, v)
``way``              bandwidth of a link for all hops of a sender                g(u; e)
constraints
``group_size``       all groups take the same time                               x(d) >= w(d) x
``flow_in_share``    copies are free within a share                              f(d, t; u, v) <= c(d; u, v)
``flow_balance``     nobody but sources gives out more than it gets              out of v <= into v, v no source, not t
``flow_arrival``     a destination gets its items                                into t - out of t >= x(d)
``hop_arrival``      links bring what a hop carries                              into v of g(u) >= sum of c(d; u, v)
``way_balance``      a switch that cannot copy gives out what it gets            out of g(u) <= into of g(u)
``link_bandwidth``   all senders together fit a link                             sum of g(u; e) <= b(e)
===================  ==========================================================  =====================================

Groups are those of `Demands.groups`, w(d) their weights.  Hops run between ranks and switches that multicast; other
switches only pass data on, so that a hop is a flow of its own over them.  Without such switches hops are links, there
is no ``way``, and ``link_bandwidth`` is ``sum of c(d; u, v) <= b(u, v)``.  With one group from one rank to all this is
the throughput program of a broadcast, with one destination for each it is a multicommodity flow.

The rate of trees is the program of Jain, Mahdian and Salavatipour (Packing Steiner trees, SODA 2003, section 2), one
variable for each tree that `PackingModel.add_trees` adds:

===================  ==========================================================  =====================================
name                 meaning                                                     equation
===================  ==========================================================  =====================================
``trees_<number>``   GB/s that each tree of one call of `add_trees` carries      λ(T)
``link_bandwidth``   what trees put on a link fits it                            sum of load(T, e) λ(T) + a(e) x <= b(e)
``group_size``       the trees of a group carry it                               sum of λ(T) = w(d) x
===================  ==========================================================  =====================================

a(e) is 0, or what the link has to carry before.  Both are stated in `Blocks`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import UnsupportedError
from ..schedules import Demands
from ..schedules.bounds.item_cuts import hop_ends, hop_lengths
from ..support.arrays import FloatArray, IntArray
from ..support.validation import as_kind
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .blocks import BlockModel, Blocks

__all__ = ["MulticastModel", "PackingModel", "build", "build_packing", "count_flows"]


class Hops(NamedTuple):
    """Hops between ends, by the places of these in `hop_ends`."""

    tails: IntArray
    heads: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class MulticastModel(BlockModel):
    """The linear program of demands.

    Attributes
    ----------
    topology : Topology
        Whose links carry the items.
    demands : Demands
        The items.
    hops : Hops
        Columns of ``share``, shape (groups, hops), and of ``flow``, shape (destinations of all groups, hops).
    targets : ndarray of int64, shape (destinations of all groups, 2)
        Group and rank of each row of ``flow``.
    """

    topology: Topology
    demands: Demands
    hops: Hops
    targets: IntArray


def build(topology: Topology, demands: Demands) -> MulticastModel:
    """State the rate of demands on a topology, by any schedule without network coding.

    Parameters
    ----------
    topology : Topology
        Its `multicast` says which switches can copy.
    demands : Demands
        Groups of items, for which rates are in GB/s per `Demands.unit`.

    Examples
    --------
    Half of the item comes over each side of the ring, and both halves reach both ranks:

    >>> from collopt import solve
    >>> from collopt.topologies import ring
    >>> demands = Demands([("weights", 1, ["gpu0"], ["gpu1", "gpu2"])])
    >>> solve(build(ring(4, bandwidth=10), demands)).exact.objective
    Fraction(20, 1)
    """
    ends = as_kind(demands, Demands, "the demands").ends(as_topology(topology))
    reach = hop_lengths(topology, {})
    hops = Hops(*np.nonzero(np.isfinite(reach) & ~np.eye(len(reach), dtype=np.bool_)))
    targets = np.array([(group, rank) for group, (_, ranks) in enumerate(ends) for rank in ranks], dtype=np.int64)
    blocks = Blocks(f"demands on {topology.name}")
    rate, group_rate = blocks.variables("rate", ()), blocks.variables("group_rate", len(ends))
    sizes = np.array([group.weight for group in demands.groups], dtype=np.float64)
    rows = np.arange(len(ends))
    blocks.constraint("group_size", len(ends), [(rows, group_rate, 1.0), (rows, rate, -sizes)], lower=0.0)
    blocks.variables("share", (len(ends), len(hops.tails)))
    blocks.variables("flow", (len(targets), len(hops.tails)))
    model = MulticastModel(blocks, topology, demands, hops, targets)
    _flow_in_share(model)
    _flow_balance(model, [sources for sources, _ in ends], len(reach))
    _flow_arrival(model)
    if len(reach) == len(topology.nodes):
        _links_as_hops(model)
    else:
        _ways(model, hop_ends(topology))
    model.maximize([(rate, 1.0)])
    return model


def count_flows(topology: Topology, demands: Demands) -> int:
    """Count the variables ``flow`` of `build`, if all hops are possible.

    Parameters
    ----------
    topology, demands
        As for `build`.
    """
    return sum(len(group.destinations) for group in demands.groups) * len(hop_ends(topology)) ** 2


def _flow_in_share(model: MulticastModel) -> None:
    """f(d, t; u, v) <= c(d; u, v)."""
    flow, share = model.variables.flow, model.variables.share
    rows = np.arange(flow.size).reshape(flow.shape)
    terms = [(rows, flow, 1.0), (rows, share[model.targets[:, 0]], -1.0)]
    model.blocks.constraint("flow_in_share", flow.shape, terms, upper=0.0)


def _flow_balance(model: MulticastModel, sources: Sequence[Sequence[int]], ends: int) -> None:
    """Out of v <= into v, for each destination and each end v that is no source of its group, nor itself."""
    flow, (tails, heads) = model.variables.flow, model.hops
    kept = np.ones((len(flow), ends), dtype=np.bool_)
    kept[np.arange(len(flow)), model.targets[:, 1]] = False
    for row, (group, _) in enumerate(model.targets.tolist()):
        kept[row, list(sources[group])] = False
    rows = np.arange(len(flow))[:, None] * ends
    terms = [
        (np.broadcast_to(rows + at, flow.shape)[kept[:, at]], flow[kept[:, at]], sign)
        for at, sign in ((tails, 1.0), (heads, -1.0))
    ]
    model.blocks.constraint("flow_balance", (len(flow), ends), terms, upper=0.0)


def _flow_arrival(model: MulticastModel) -> None:
    """Into t - out of t >= x(d) for each destination."""
    flow, (tails, heads) = model.variables.flow, model.hops
    rates = model.variables.group_rate[model.targets[:, 0]]
    terms: list[tuple[Any, Any, Any]] = [(np.arange(len(flow)), rates, -1.0)]
    for at, sign in ((heads, 1.0), (tails, -1.0)):
        rows, hops = np.nonzero(model.targets[:, 1, None] == at)
        terms.append((rows, flow[rows, hops], sign))
    model.blocks.constraint("flow_arrival", len(flow), terms, lower=0.0)


def _links_as_hops(model: MulticastModel) -> None:
    """Sum of c(d; u, v) <= b(u, v), where every node is the end of hops."""
    share, index = model.variables.share, model.topology.node_index
    numbers = np.array([index[node] for node in hop_ends(model.topology)])
    places = model.topology.link_places(numbers[model.hops.tails], numbers[model.hops.heads])
    _link_bandwidth(model, [(places, share, 1.0)])


def _link_bandwidth(model: MulticastModel, terms: Sequence[tuple[Any, Any, Any]]) -> None:
    bandwidths = [float(link.bandwidth) for link in model.topology.links]
    model.blocks.constraint("link_bandwidth", len(bandwidths), terms, upper=bandwidths)


def _ways(model: MulticastModel, names: Sequence[str]) -> None:
    """Route the hops of every sender over switches that cannot copy, and fit all of them into the links."""
    topology, share, (tails, heads) = model.topology, model.variables.share, model.hops
    link_tails, link_heads, _, _ = topology.arrays
    end_of = np.full(len(topology.nodes), -1)
    end_of[[topology.node_index[name] for name in names]] = np.arange(len(names))
    # A sender uses links out of itself and of switches that are no ends, and none into itself.
    senders = np.arange(len(names))[:, None]
    usable = ((end_of[link_tails] == senders) | (end_of[link_tails] < 0)) & (end_of[link_heads] != senders)
    sender, link = np.nonzero(usable)
    way = model.blocks.variables("way", len(sender))
    at_end = np.flatnonzero(end_of[link_heads[link]] >= 0)
    number = np.full((len(names),) * 2, -1)
    number[tails, heads] = np.arange(len(tails))
    arriving = number[sender[at_end], end_of[link_heads[link[at_end]]]]
    model.blocks.constraint(
        "hop_arrival",
        len(tails),
        [(arriving[arriving >= 0], way[at_end[arriving >= 0]], 1.0), (np.arange(len(tails)), share, -1.0)],
        lower=0.0,
    )
    size = len(topology.nodes)
    out, into = (np.flatnonzero(end_of[ends[link]] < 0) for ends in (link_tails, link_heads))
    terms = [
        (sender[out] * size + link_tails[link[out]], way[out], 1.0),
        (sender[into] * size + link_heads[link[into]], way[into], -1.0),
    ]
    model.blocks.constraint("way_balance", (len(names), size), terms, upper=0.0)
    _link_bandwidth(model, [(link, way, 1.0)])


@dataclass(frozen=True, eq=False, repr=False)
class PackingModel(BlockModel):
    """The linear program of trees for demands, without any tree until `add_trees`.

    Attributes
    ----------
    blocks : Blocks
        Whose variable ``rate`` is in GB/s per unit of weight.
    """

    def add_trees(self, groups: Sequence[int], loads: Sequence[IntArray | FloatArray]) -> None:
        """Add trees, for each the number of its group, and what it puts on each link, shape (links,)."""
        if not len(groups):
            return
        trees = self.blocks.variables(f"trees_{len(self.blocks.columns)}", len(groups))
        number, links = np.nonzero(np.stack(loads))
        self.blocks.extend("link_bandwidth", [(links, trees[number], np.stack(loads)[number, links])])
        self.blocks.extend("group_size", [(np.array(groups), trees, 1.0)])


def build_packing(
    bandwidths: Sequence[float],
    weights: Sequence[float],
    name: str = "trees of demands",
    loads: Sequence[float] | None = None,
) -> PackingModel:
    """State the rate of trees for groups of items.

    Parameters
    ----------
    bandwidths : sequence of float
        Of all links, GB/s.
    weights : sequence of float
        Of the groups.
    name : str
        For messages.
    loads : sequence of float, optional
        What each link also carries per unit of weight, such as for what has to come before.
    """
    if not len(bandwidths) or not len(weights):
        raise UnsupportedError("there are no links, or no groups; expected some of each")
    blocks = Blocks(name)
    rate = blocks.variables("rate", ())
    before = np.zeros(len(bandwidths)) if loads is None else np.array(loads)
    terms = [(np.arange(len(before)), rate, before)]
    blocks.constraint("link_bandwidth", len(before), terms, upper=list(bandwidths))
    sizes = np.array(weights, dtype=np.float64)
    blocks.constraint("group_size", len(sizes), [(np.arange(len(sizes)), rate, -sizes)], lower=0.0, upper=0.0)
    blocks.maximize([(rate, 1.0)])
    return PackingModel(blocks)
