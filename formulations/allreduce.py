"""Throughput-optimal allreduce by reduce trees and broadcast trees as a linear program.

Data is reduced along in-trees and broadcast along out-trees with the same roots; both kinds share each link.  The rate
of each root and the division of each link are free; the sum of the root rates is the algorithm bandwidth.

=====================  ==============================================================  =============================
name                   meaning                                                         equation
=====================  ==============================================================  =============================
variables
``root_rate``          GB/s reduced at a rank and broadcast from there                 x(v) of LP (5)
``broadcast_share``    bandwidth from rank to rank given to out-trees                  c(u, v)^BC of LP (5)
``reduce_share``       bandwidth from rank to rank given to in-trees                   c(u, v)^RE of LP (5)
``broadcast_flow``     witness of rank t: how everything reaches t                     f(u, v)^(s,t) of LP (5)
``reduce_flow``        witness of rank t: how its part of everything leaves t          f(u, v)^(t,s) of LP (5)
``transit``            what links carry of the bandwidth from one rank to the others   flows of b'(α, β), appendix G
constraints
``link_bandwidth``     transit fits the link                                           capacities b(u, v), appendix G
``switch_balance``     a switch gives out at most what it takes in, rank by rank       flows of b'(α, β), appendix G
``link_sharing``       both shares fit what reaches one rank from another              c^RE + c^BC <= b'
``broadcast_within``   no witness uses more than the share of out-trees                f^(s,t) <= c^BC
``broadcast_balance``  a rank passes on at most what it receives and roots             f(s, v)^(s,t) <= x(v)
``broadcast_arrival``  a rank receives all that is rooted anywhere                     F(s, t) >= sum of x(v)
``reduce_within``      no witness uses more than the share of in-trees                 f^(t,s) <= c^RE
``reduce_balance``     what a rank takes in goes on or stays at its root               f(v, s)^(t,s) <= x(v)
``reduce_arrival``     all that a rank has arrives at the roots                         F(t, s) >= sum of x(v)
=====================  ==============================================================  =============================

LP (5) is that of ForestColl, appendix G, with bandwidths b'(α, β) between ranks in place of links, as the appendix has
it for switches (docs/formulations/allreduce.md): a link between two ranks carries its own b', and transit passes
switches only. With `relays`, switches take part like ranks without data, which copy and reduce; the objective is then
an upper bound.

Stated in Pyomo: ``root_rate[root]``, ``*_share[tail, head]`` of ranks that a link, or a path through switches, joins,
``*_flow[rank, tail, head]`` of the same pairs, ``transit[origin, tail, head]``.  `allreduce_cuts` has fewer variables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ..errors import UnsupportedError
from ..schedules.collective import Direction
from ..support.validation import shown
from ..topologies import Link, Topology
from ..topologies.network.links import as_root
from ..topologies.network.topology import as_topology
from .pyomo_model import PyomoModel, total

__all__ = ["AllreduceModel", "build"]

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False, repr=False)
class AllreduceModel(PyomoModel):
    """The linear program of an allreduce.

    Attributes
    ----------
    program : ConcreteModel
        ``program.bandwidth[tail, head]`` can be changed between two solves.
    topology : Topology
        The network that it is for.
    roots : tuple of str
        Ranks that may root trees.
    relays : tuple of str
        Switches that take part like ranks.
    """

    topology: Topology
    roots: tuple[str, ...]
    relays: tuple[str, ...]

    @property
    def rate(self) -> Any:
        """Algorithm bandwidth in GB/s, as an expression."""
        return sum(self.variables.root_rate.values())

    @property
    def usage(self) -> Mapping[Pair, Any]:
        """GB/s that the collective takes of each link, as expressions by ``(tail, head)``."""
        users = _grouped((key[1:], key) for key in self.variables.transit)
        return {link: sum(self.variables.transit[key] for key in keys) for link, keys in users.items()}

    @property
    def members(self) -> tuple[str, ...]:
        """Ranks and relays, where trees may branch."""
        return self.topology.compute_nodes + self.relays

    @cached_property
    def pairs_into(self) -> Mapping[str, Sequence[Pair]]:
        """Pairs ``(tail, head)`` that have a share, by head."""
        return _grouped((pair[1], pair) for pair in self.program.pairs)

    @cached_property
    def pairs_out_of(self) -> Mapping[str, Sequence[Pair]]:
        """Pairs ``(tail, head)`` that have a share, by tail."""
        return _grouped((pair[0], pair) for pair in self.program.pairs)


def build(
    topology: Topology, *, roots: Iterable[int | str] | None = None, relays: Iterable[str] = ()
) -> AllreduceModel:
    """State the rate of an allreduce on a topology.

    The objective is the algorithm bandwidth, GB/s as in nccl-tests.

    Parameters
    ----------
    topology : Topology
        Whose links carry the data.
    roots : iterable of int or str, optional
        Ranks that may root trees, at least one, by number or name; all by default.
    relays : iterable of str
        Switches that copy and reduce data, for an upper bound; none by default.

    Examples
    --------
    Three GPUs around a switch; and with in-network reduction and multicast:

    >>> from collopt import solve
    >>> from collopt.topologies import Topology
    >>> star = Topology.from_links([(rank, "s", 30) for rank in "abc"], compute="abc", switches="s", bidirectional=True)
    >>> round(solve(build(star)).objective, 6), round(solve(build(star, relays=["s"])).objective, 6)
    (22.5, 30.0)
    """
    import pyomo.environ as pyo

    root_ranks = _checked_roots(as_topology(topology), roots)
    reducing = _checked_relays(topology, relays)
    program = pyo.ConcreteModel(name=f"allreduce of {topology.name}")
    _add_variables(program, topology, root_ranks, reducing)
    model = AllreduceModel(program, topology, root_ranks, reducing)
    _link_bandwidth(model)
    _switch_balance(model)
    _link_sharing(model)
    kinds: tuple[Direction, ...] = ("broadcast", "reduce")
    for kind in kinds:
        _within(model, kind)
        _balance(model, kind)
        _arrival(model, kind)
    model.maximize(total(model.variables.root_rate.values()))
    return model


def _add_variables(program: Any, topology: Topology, roots: tuple[str, ...], relays: tuple[str, ...]) -> None:
    import pyomo.environ as pyo

    members = topology.compute_nodes + relays
    links = [(link.tail, link.head) for link in topology.links]
    bandwidths = {(link.tail, link.head): float(link.bandwidth) for link in topology.links}
    passed = {member: _passed(topology, member, frozenset(members)) for member in members}
    transit = [(member, link.tail, link.head) for member in members for link in passed[member]]
    pairs = list(dict.fromkeys((origin, head) for origin, _, head in transit if head in passed))
    program.bandwidth = pyo.Param(links, initialize=bandwidths, mutable=True, within=pyo.NonNegativeReals)
    program.pairs = pyo.Set(initialize=pairs, dimen=2)
    program.root_rate = pyo.Var(roots, domain=pyo.NonNegativeReals)
    program.broadcast_share = pyo.Var(pairs, domain=pyo.NonNegativeReals)
    program.reduce_share = pyo.Var(pairs, domain=pyo.NonNegativeReals)
    program.broadcast_flow = pyo.Var(topology.compute_nodes, program.pairs, domain=pyo.NonNegativeReals)
    program.reduce_flow = pyo.Var(topology.compute_nodes, program.pairs, domain=pyo.NonNegativeReals)
    program.transit = pyo.Var(transit, domain=pyo.NonNegativeReals)


def _link_bandwidth(model: AllreduceModel) -> None:
    """Sum over origins α of y(α; u, v) <= b(u, v) for each link."""
    transit, users = model.variables.transit, _grouped((key[1:], key) for key in model.variables.transit)
    model.add_constraints(
        "link_bandwidth",
        list(users),
        rule=lambda *link: total(transit[key] for key in users[link]) <= model.program.bandwidth[link],
    )


def _switch_balance(model: AllreduceModel) -> None:
    """Out of w <= into w in y(α) for each origin α and each switch w that it reaches."""
    transit, members = model.variables.transit, frozenset(model.members)
    arriving = _grouped(((origin, head), (origin, tail, head)) for origin, tail, head in transit)
    leaving = _grouped(((origin, tail), (origin, tail, head)) for origin, tail, head in transit)
    model.add_constraints(
        "switch_balance",
        [place for place in leaving if place[1] not in members],
        rule=lambda *place: (
            total(transit[key] for key in leaving[place]) <= total(transit[key] for key in arriving[place])
        ),
    )


def _link_sharing(model: AllreduceModel) -> None:
    """c^RE(α, β) + c^BC(α, β) <= b'(α, β), the sum of y(α; w, β) over the links (w, β)."""
    shares, transit = model.variables, model.variables.transit
    arriving = _grouped(((origin, head), (origin, tail, head)) for origin, tail, head in transit)
    model.add_constraints(
        "link_sharing",
        model.program.pairs,
        rule=lambda *pair: (
            shares.reduce_share[pair] + shares.broadcast_share[pair] <= total(transit[key] for key in arriving[pair])
        ),
    )


def _within(model: AllreduceModel, kind: Direction) -> None:
    """f(t; u, v) <= c(u, v) for each rank t and pair."""
    share, flow = (getattr(model.variables, f"{kind}_{name}") for name in ("share", "flow"))
    index = model.topology.compute_nodes, model.program.pairs
    model.add_constraints(f"{kind}_within", *index, rule=lambda rank, *pair: flow[(rank, *pair)] <= share[pair])


def _balance(model: AllreduceModel, kind: Direction) -> None:
    """Out of v - into v <= x(v) in f(t) for each rank t and member v other than t; of reduce, into v - out of v."""
    # A relay without links has nothing to balance.
    linked = [node for node in model.members if node not in model.relays or node in model.pairs_out_of]
    neighbors = [(rank, node) for rank in model.topology.compute_nodes for node in linked if node != rank]
    model.add_constraints(
        f"{kind}_balance",
        neighbors,
        rule=lambda rank, node: -_net_arrival(model, kind, rank, node) <= _rooted(model, node),
    )


def _arrival(model: AllreduceModel, kind: Direction) -> None:
    """Into t - out of t >= sum of x(v) - x(t), which is at t already, for each rank t; of reduce, out of t - into t."""
    rooted = total(model.variables.root_rate.values())
    model.add_constraints(
        f"{kind}_arrival",
        model.topology.compute_nodes,
        rule=lambda rank: _net_arrival(model, kind, rank, rank) >= rooted - _rooted(model, rank),
    )


def _rooted(model: AllreduceModel, node: str) -> Any:
    return model.variables.root_rate[node] if node in model.roots else 0.0


def _net_arrival(model: AllreduceModel, kind: Direction, rank: str, node: str) -> Any:
    """Into `node` minus out of it, in the witness of `rank`; of reduce, against the direction of the data."""
    flow = getattr(model.variables, f"{kind}_flow")
    arriving = total(flow[(rank, *pair)] for pair in model.pairs_into.get(node, ()))
    leaving = total(flow[(rank, *pair)] for pair in model.pairs_out_of.get(node, ()))
    return arriving - leaving if kind == "broadcast" else leaving - arriving


def _passed(topology: Topology, origin: str, members: frozenset[str]) -> list[Link]:
    """Links on the ways from `origin` past switches alone to other members."""
    passed: list[Link] = []
    reached, waiting = {origin}, [origin]
    while waiting:
        for link in topology.out_links(waiting.pop()):
            if link.head == origin:
                continue
            passed.append(link)
            if link.head not in members and link.head not in reached:
                reached.add(link.head)
                waiting.append(link.head)
    return passed


def _grouped(entries: Iterable[tuple[Any, Any]]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for key, entry in entries:
        groups.setdefault(key, []).append(entry)
    return groups


def _checked_roots(topology: Topology, roots: Iterable[int | str] | None) -> tuple[str, ...]:
    if roots is None:
        return topology.compute_nodes
    if isinstance(roots, str) or not isinstance(roots, Iterable):
        raise UnsupportedError(f"roots is {shown(roots)}; expected a list of ranks, by number or name")
    root_ranks = tuple(dict.fromkeys(topology.compute_nodes[as_root(topology.compute_nodes, root)] for root in roots))
    if not root_ranks:
        raise UnsupportedError("roots is empty; expected at least one rank")
    return root_ranks


def _checked_relays(topology: Topology, relays: Iterable[str]) -> tuple[str, ...]:
    if isinstance(relays, str) or not isinstance(relays, Iterable):
        raise UnsupportedError(f"relays is {shown(relays)}; expected a list of switches")
    relay_nodes = tuple(dict.fromkeys(relays))
    for relay in relay_nodes:
        if relay not in topology.switch_nodes:
            raise UnsupportedError(f"relay {shown(relay)} is not a switch of {topology}")
    return relay_nodes
