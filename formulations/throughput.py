"""The rate of allgather, broadcast, reduce-scatter and reduce as a linear program.

Every rank roots out-trees that carry its shard; `rate` is what flows down them per unit of weight.  Trees at that rate
exist if and only if every rank can receive all shards at that rate on its own, so each rank gets a flow as witness.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``rate``            GB/s that each root spreads per unit of its weight    x
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
Reduce-scatter and reduce are the same with all communication reversed (ForestColl, section 5.7): every flow then starts
at its rank and ends at the roots.

The rate is an upper bound on any network.  Trees reach it where no switch takes in more, or less, than it gives out;
that is a matter of shares where a further constraint narrows one (the warning of ForestColl, appendix G).

Pyomo, because it is read and extended.

Examples
--------
A ring of 4 whose uplink from ``gpu0`` must stay half free:

>>> from collopt import solve
>>> from collopt.topologies import ring
>>> model = build(ring(4, bandwidth=30))
>>> round(solve(model).objective, 6)
20.0
>>> model.constrain("quiet_uplink", model.variables.share["gpu0", "gpu1"] <= 15)
>>> round(solve(model).objective, 6)
15.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

from ..errors import UnsupportedError
from ..schedules.forest import Direction
from ..topologies import Topology
from ..topologies.validation import shown
from .pyomo_model import PyomoModel

__all__ = ["ThroughputModel", "Variables", "build"]


@dataclass(frozen=True)
class Variables:
    """Handles of the variables, to index when extending the model.

    Attributes
    ----------
    rate : Var
        GB/s per unit of weight: x.
    share : Var
        ``[tail, head]``: GB/s of a link that the collective may use.
    flow : Var
        ``[rank, tail, head]``: the witness of a rank, by names of nodes.
    """

    rate: Any
    share: Any
    flow: Any


@dataclass(frozen=True, eq=False)
class ThroughputModel(PyomoModel):
    """A throughput program.

    Attributes
    ----------
    program : ConcreteModel
        ``program.bandwidth[tail, head]`` can be changed between two solves.
    topology : Topology
        Whose links carry the data.
    weights : tuple of Fraction
        Sizes of the shards in rank order; the algorithm bandwidth is their sum times the rate.
    direction : {"broadcast", "reduce"}
        Whether data runs from roots to ranks or from ranks to roots.
    variables : Variables
        To index when extending the model.
    """

    topology: Topology
    weights: tuple[Fraction, ...]
    direction: Direction
    variables: Variables


def build(
    topology: Topology, *, weights: Sequence[object] | None = None, direction: Direction = "broadcast"
) -> ThroughputModel:
    """State the rate of a collective on a topology.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    weights : sequence of number, optional
        Sizes of the shards in rank order, not negative, not all zero; 1 each by default.  A single 1 is broadcast (or
        reduce) with that root.
    direction : {"broadcast", "reduce"}
        Whether data runs from roots to ranks or from ranks to roots, as in `collopt.schedules.Forest`.

    Returns
    -------
    ThroughputModel
        Its objective is the rate.

    Raises
    ------
    UnsupportedError
        If `weights` or `direction` are not of their form.

    Examples
    --------
    >>> from collopt.topologies import dgx_a100
    >>> sorted(component.name for component in build(dgx_a100()).program.component_objects())[:4]
    ['bandwidth', 'flow', 'flow_arrival', 'flow_balance']
    """
    import pyomo.environ as pyo

    shards = _checked_weights(topology, weights)
    if direction not in ("broadcast", "reduce"):
        raise UnsupportedError(f"direction is {shown(direction)}; expected 'broadcast' or 'reduce'")
    program = pyo.ConcreteModel(name=f"throughput of {topology.name}")
    model = ThroughputModel(program, topology, shards, direction, _add_variables(program, topology))
    _link_bandwidth(model)
    _flow_in_share(model)
    _flow_balance(model)
    _flow_arrival(model)
    model.maximize(model.variables.rate)
    return model


def _add_variables(program: Any, topology: Topology) -> Variables:
    import pyomo.environ as pyo

    links = [(link.tail, link.head) for link in topology.links]
    bandwidths = {(link.tail, link.head): float(link.bandwidth) for link in topology.links}
    program.bandwidth = pyo.Param(links, initialize=bandwidths, mutable=True, within=pyo.NonNegativeReals)
    program.rate = pyo.Var(domain=pyo.NonNegativeReals)
    program.share = pyo.Var(links, domain=pyo.NonNegativeReals)
    program.flow = pyo.Var(topology.compute_nodes, links, domain=pyo.NonNegativeReals)
    return Variables(program.rate, program.share, program.flow)


def _link_bandwidth(model: ThroughputModel) -> None:
    """c(u, v) <= b(u, v) for each link."""
    import pyomo.environ as pyo

    share, bandwidth = model.variables.share, model.program.bandwidth
    model.program.link_bandwidth = pyo.Constraint(
        [(link.tail, link.head) for link in model.topology.links],
        rule=lambda _, tail, head: share[tail, head] <= bandwidth[tail, head],
    )


def _flow_in_share(model: ThroughputModel) -> None:
    """f(t; u, v) <= c(u, v) for each rank t and link."""
    import pyomo.environ as pyo

    share, flow = model.variables.share, model.variables.flow
    model.program.flow_in_share = pyo.Constraint(
        model.topology.compute_nodes,
        [(link.tail, link.head) for link in model.topology.links],
        rule=lambda _, rank, tail, head: flow[rank, tail, head] <= share[tail, head],
    )


def _flow_balance(model: ThroughputModel) -> None:
    """Out of v - into v <= w(v) x for each rank t and node v other than t; in the direction of the data."""
    import pyomo.environ as pyo

    topology, rate = model.topology, model.variables.rate
    weight = dict(zip(topology.compute_nodes, map(float, model.weights), strict=True))
    pairs = [(rank, node) for rank in topology.compute_nodes for node in topology.nodes if node != rank]
    model.program.flow_balance = pyo.Constraint(
        pairs, rule=lambda _, rank, node: -_net_arrival(model, rank, node) <= weight.get(node, 0.0) * rate
    )


def _flow_arrival(model: ThroughputModel) -> None:
    """Into t - out of t >= (sum of w - w(t)) x for each rank t: with its own shard that is everything."""
    import pyomo.environ as pyo

    ranks, rate = model.topology.compute_nodes, model.variables.rate
    others = {rank: float(sum(model.weights) - own) for rank, own in zip(ranks, model.weights, strict=True)}
    model.program.flow_arrival = pyo.Constraint(
        ranks, rule=lambda _, rank: _net_arrival(model, rank, rank) >= others[rank] * rate
    )


def _net_arrival(model: ThroughputModel, rank: str, node: str) -> Any:
    """Into `node` minus out of it, in the witness of `rank`; reversed where data runs from ranks to roots."""
    import pyomo.environ as pyo

    topology, flow = model.topology, model.variables.flow
    arriving = pyo.quicksum(flow[rank, link.tail, link.head] for link in topology.in_links(node))
    leaving = pyo.quicksum(flow[rank, link.tail, link.head] for link in topology.out_links(node))
    return arriving - leaving if model.direction == "broadcast" else leaving - arriving


def _checked_weights(topology: Topology, weights: Sequence[object] | None) -> tuple[Fraction, ...]:
    if weights is None:
        return (Fraction(1),) * topology.num_ranks
    exact = tuple(_as_weight(rank, value) for rank, value in enumerate(weights))
    if len(exact) != topology.num_ranks:
        raise UnsupportedError(f"weights has {len(exact)} entries; expected one per rank, {topology.num_ranks}")
    if not any(exact):
        raise UnsupportedError("all weights are 0; expected some rank to have data")
    return exact


def _as_weight(rank: int, value: object) -> Fraction:
    try:
        if isinstance(value, (int, float, str, Decimal, Rational)) and not isinstance(value, bool):
            # A float means what it is written as.
            exact = Fraction(repr(float(value)) if isinstance(value, float) else value)
            if exact >= 0:
                return exact
    except (ValueError, OverflowError, ZeroDivisionError):
        pass
    raise UnsupportedError(f"weight {shown(value)} of rank {rank} is not usable; expected a number of at least 0")
