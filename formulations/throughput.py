"""Throughput of allgather, broadcast, reduce-scatter and reduce as a linear program.

Every rank roots broadcast trees for its shard; `rate` is their bandwidth per unit of weight.  Trees at that rate exist
if and only if every rank can receive all shards at that rate on its own, so each rank has a witness flow.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``rate``            GB/s that each root sends per unit of its weight      x
``share``           bandwidth of a link that the collective uses          c(u, v)
``flow``            witness of rank t: how all shards reach t             f(u, v) of F(s, t)
constraints
``link_bandwidth``  a link's share fits the link                          c(u, v) <= b(u, v)
``flow_in_share``   no witness uses more of a link than its share         f(u, v) <= c(u, v)
``flow_balance``    a node passes on at most what it receives and roots   capacity w(v) x of the edge (s, v)
``flow_arrival``    a rank receives all shards                            F(s, t) >= x times the sum of w
==================  ====================================================  ==================================

With all weights 1 these are the flow conditions of ForestColl, Theorem 1 in appendix E.1; splitting them into shares
and flows is as in LP (5) of its appendix G.  Unequal shards change the capacities of the source's edges (section 5.7);
a weight of 1 for the root and 0 for the others makes it broadcast (pipeline paper, appendix A, equation (5)).
Reduce-scatter and reduce are the same with all communication reversed.  The rate is an upper bound on any network;
trees attain it if the ingress of every switch equals its egress, which further constraints on shares can break.

A fixed number of trees per root makes it an integer program, in which everything is counted in trees.  What changes:

=====================  =================================================  ============================================
name                   meaning                                            equation
=====================  =================================================  ============================================
``inverse_bandwidth``  of one tree, to be minimized; 1 is that of the     U of Theorems 11 and 12, 1 / y of Algorithm 5
                       fastest link                                       in other units
``share``              whole number of trees that a link carries          edge-disjoint trees
``link_bandwidth``     a link's trees fit the link                        c(u, v) <= floor(U b(u, v))
``switch_balance``     as many trees enter a switch as leave it           Eulerian, as edge splitting requires
the other constraints  as above, with k, the trees per root, in place of  F(s, v) >= the sum of w times k
                       the rate
=====================  =================================================  ============================================

These are in ForestColl, appendix E.4, with floors; here the best balanced numbers are found.

An all-to-all has the same flows, of everything that each rank receives, but nothing is sent for several ranks at once:

=====================  =================================================  ============================================
name                   meaning                                            equation
=====================  =================================================  ============================================
``flows_in_share``     all flows together fit the share                   sum of f(u, v) over all ranks <= c(u, v)
=====================  =================================================  ============================================

stands in place of ``flow_in_share``, and the rate is that from each rank to each other (LP (3) in appendix A.5 of the
direct-connect paper, by destination).  Stated in Pyomo: ``rate``, ``share[tail, head]`` and ``flow[rank, tail, head]``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any

from ..errors import UnsupportedError
from ..schedules.collective import Direction, as_weights
from ..support.validation import shown
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .inputs import as_count
from .pyomo_model import PyomoModel, new_program, total

__all__ = ["FixedCountModel", "ThroughputModel", "build", "build_all_to_all", "build_fixed_count"]


@dataclass(frozen=True, eq=False, repr=False)
class ThroughputModel(PyomoModel):
    """The throughput linear program.

    Attributes
    ----------
    program : ConcreteModel
        ``program.bandwidth[tail, head]`` can be changed between two solves.
    topology : Topology
        The network that it is for.
    weights : tuple of Fraction
        Sizes of the shards in rank order; the algorithm bandwidth is their sum times the rate.
    direction : {"broadcast", "reduce"}
        Whether data runs from roots to ranks or from ranks to roots.
    """

    topology: Topology
    weights: tuple[Fraction, ...]
    direction: Direction

    @property
    def rate(self) -> Any:
        """GB/s per unit of weight, as an expression."""
        return self.variables.rate

    @property
    def usage(self) -> Mapping[tuple[str, str], Any]:
        """GB/s that the collective takes of each link, as expressions by ``(tail, head)``."""
        return dict(self.variables.share.items())

    def balance_switches(self) -> None:
        """Require that the ingress of every switch equals its egress.

        Without it the rate is a bound; with it there are trees at this rate in these shares, of which
        ``topology.with_bandwidths`` makes a network to plan on.  Where switches are balanced it changes nothing before
        other constraints narrow some share.  The block is named ``switch_balance``.
        """
        if not hasattr(self.program, "switch_balance"):
            add_switch_balance(self, "switch_balance", self.usage)


@dataclass(frozen=True, eq=False, repr=False)
class FixedCountModel(ThroughputModel):
    """A throughput program with a fixed number of trees per root, which ``variables.rate`` is.

    Attributes
    ----------
    weights : tuple of Fraction
        Whole numbers without a common divisor; shares and flows are in trees.
    inverse_bandwidth : Var
        Of one tree: U, in which ``U / unit`` is in 1/(GB/s).
    unit : Fraction
        GB/s of the fastest link, which keeps U where solvers' tolerances are small next to it.
    """

    inverse_bandwidth: Any
    unit: Fraction

    @property
    def rate(self) -> Any:
        """Not linear: the number of trees over `inverse_bandwidth`."""
        raise UnsupportedError("a model with a fixed number of trees has no linear rate; use throughput.build")

    @property
    def usage(self) -> Mapping[tuple[str, str], Any]:
        """Not linear: shares are counted in trees."""
        raise UnsupportedError("a model with a fixed number of trees counts shares in trees; use throughput.build")


def build(
    topology: Topology, *, weights: Sequence[object] | None = None, direction: Direction = "broadcast"
) -> ThroughputModel:
    """State the throughput of a collective on a topology.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    weights : sequence of number, optional
        Sizes of the shards in rank order, not negative, not all zero; 1 each by default.  A single 1 is broadcast (or
        reduce) with that root.
    direction : {"broadcast", "reduce"}
        Whether data runs from roots to ranks or from ranks to roots, as in `collopt.schedules.Forest`.
    """
    import pyomo.environ as pyo

    shards = as_weights(weights, as_topology(topology).num_ranks)
    _check_direction(direction)
    program = new_program(f"throughput of {topology.name}")
    program.rate = pyo.Var(domain=pyo.NonNegativeReals)
    _add_variables(program, topology, pyo.NonNegativeReals)
    model = ThroughputModel(program, topology, shards, direction)
    _link_bandwidth(model, 1, Fraction(1))
    _flow_in_share(model)
    _flow_balance(model)
    _flow_arrival(model)
    model.maximize(model.variables.rate)
    return model


def build_all_to_all(topology: Topology) -> ThroughputModel:
    """State the rate of an all-to-all of equal parts, from each rank to each other; it has no trees.

    Examples
    --------
    >>> from collopt import solve
    >>> from collopt.topologies import ring
    >>> solve(build_all_to_all(ring(4, bandwidth=10))).exact.objective
    Fraction(5, 1)
    """
    model = build(topology)
    share, flow = model.variables.share, model.variables.flow
    model.program.del_component("flow_in_share")
    model.add_constraints(
        "flows_in_share",
        [(link.tail, link.head) for link in topology.links],
        rule=lambda *link: total(flow[(rank, *link)] for rank in topology.compute_nodes) <= share[link],
    )
    return model


def build_fixed_count(
    topology: Topology,
    trees_per_root: int,
    *,
    weights: Sequence[object] | None = None,
    direction: Direction = "broadcast",
) -> FixedCountModel:
    """State the time that a collective takes with a given number of trees per root.

    The objective U is the inverse bandwidth of one tree next to that of the fastest link; the rate per unit of weight
    is ``trees_per_root * unit / U``.  Parameters as for `build`, with the trees per root and unit of weight, the
    paper's k; units of weight are as large as makes all weights whole.

    Examples
    --------
    Four ranks in a ring of 10 GB/s: three shards arrive over two links, so one tree each leaves one of them half idle.

    >>> from collopt import solve
    >>> from collopt.topologies import ring
    >>> fabric = ring(4, bandwidth=10)
    >>> [round(10 * trees / solve(build_fixed_count(fabric, trees)).objective, 6) for trees in (1, 2)]
    [5.0, 6.666667]
    """
    import pyomo.environ as pyo

    shards = as_weights(weights, as_topology(topology).num_ranks)
    _check_direction(direction)
    trees_per_root = as_count(trees_per_root, "trees_per_root")
    unit = Fraction(gcd(*(shard.numerator for shard in shards)), lcm(*(shard.denominator for shard in shards)))
    program = new_program(f"throughput of {topology.name} with {trees_per_root} trees per root")
    program.inverse_bandwidth = pyo.Var(domain=pyo.NonNegativeReals)
    program.rate = float(trees_per_root)
    _add_variables(program, topology, pyo.NonNegativeIntegers)
    integral = tuple(shard / unit for shard in shards)
    fastest = max((link.bandwidth for link in topology.links), default=Fraction(1))
    model = FixedCountModel(program, topology, integral, direction, program.inverse_bandwidth, fastest)
    _link_bandwidth(model, model.inverse_bandwidth, fastest)
    add_switch_balance(model, "switch_balance", dict(model.variables.share.items()))
    _flow_in_share(model)
    _flow_balance(model)
    _flow_arrival(model)
    model.minimize(model.inverse_bandwidth)
    return model


def _add_variables(program: Any, topology: Topology, domain: Any) -> None:
    import pyomo.environ as pyo

    links = [(link.tail, link.head) for link in topology.links]
    bandwidths = {(link.tail, link.head): link.bandwidth for link in topology.links}
    program.bandwidth = pyo.Param(links, initialize=bandwidths, mutable=True, within=pyo.NonNegativeReals)
    program.share = pyo.Var(links, domain=domain)
    program.flow = pyo.Var(topology.compute_nodes, links, domain=pyo.NonNegativeReals)


def _link_bandwidth(model: ThroughputModel, scale: Any, unit: Fraction) -> None:
    """c(u, v) <= U b(u, v) / unit for each link, with U = unit = 1 where shares are bandwidths."""
    share, bandwidth = model.variables.share, model.program.bandwidth
    model.add_constraints(
        "link_bandwidth",
        [(link.tail, link.head) for link in model.topology.links],
        rule=lambda tail, head: share[tail, head] <= scale * (bandwidth[tail, head] / unit),
    )


def add_switch_balance(model: Any, name: str, usage: Mapping[tuple[str, str], Any]) -> None:
    """Sum of c(u, w) = sum of c(w, v) for each switch w, in what a model takes of links, where it can use them."""
    topology = model.topology
    sides = {
        switch: [
            [usage[link[:2]] for link in links if link[:2] in usage]
            for links in (topology.in_links(switch), topology.out_links(switch))
        ]
        for switch in topology.switch_nodes
    }
    used = [switch for switch, links in sides.items() if any(links)]
    model.add_constraints(name, used, rule=lambda switch: total(sides[switch][0]) == total(sides[switch][1]))


def _flow_in_share(model: ThroughputModel) -> None:
    """f(t; u, v) <= c(u, v) for each rank t and link."""
    share, flow = model.variables.share, model.variables.flow
    model.add_constraints(
        "flow_in_share",
        model.topology.compute_nodes,
        [(link.tail, link.head) for link in model.topology.links],
        rule=lambda rank, tail, head: flow[rank, tail, head] <= share[tail, head],
    )


def _flow_balance(model: ThroughputModel) -> None:
    """Out of v - into v <= w(v) x for each rank t and node v other than t; in the direction of the data."""
    topology, rate = model.topology, model.variables.rate
    weight = dict(zip(topology.compute_nodes, map(float, model.weights), strict=True))
    pairs = [(rank, node) for rank in topology.compute_nodes for node in topology.nodes if node != rank]
    model.add_constraints(
        "flow_balance", pairs, rule=lambda rank, node: -_net_arrival(model, rank, node) <= weight.get(node, 0.0) * rate
    )


def _flow_arrival(model: ThroughputModel) -> None:
    """Into t - out of t >= (sum of w - w(t)) x for each rank t: with its own shard that is everything."""
    ranks, rate = model.topology.compute_nodes, model.variables.rate
    neighbors = {rank: float(sum(model.weights) - own) for rank, own in zip(ranks, model.weights, strict=True)}
    model.add_constraints(
        "flow_arrival", ranks, rule=lambda rank: _net_arrival(model, rank, rank) >= neighbors[rank] * rate
    )


def _net_arrival(model: ThroughputModel, rank: str, node: str) -> Any:
    """Into `node` minus out of it, in the witness of `rank`; reversed where data runs from ranks to roots."""
    topology, flow = model.topology, model.variables.flow
    arriving = total(flow[rank, link.tail, link.head] for link in topology.in_links(node))
    leaving = total(flow[rank, link.tail, link.head] for link in topology.out_links(node))
    return arriving - leaving if model.direction == "broadcast" else leaving - arriving


def _check_direction(direction: object) -> None:
    if direction not in ("broadcast", "reduce"):
        raise UnsupportedError(f"direction is {shown(direction)}; expected 'broadcast' or 'reduce'")
