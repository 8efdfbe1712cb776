"""Load balancing of a breadth-first broadcast (BFB) as linear and integer programs, one per distance.

In step t of a BFB allgather every rank receives the shards of the ranks t hops away, from neighbors one hop nearer to
them, which already have these shards.  The division over the links is free; the step takes as long as the most loaded
link into a rank.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``share``           part of a source's shard that comes over a link       x(v, (w, u), t); y(v, (w, u), t)
``busiest``         time of the busiest link into a rank                  U(u, t); W(u, t)
constraints
``link_load``       no link into a rank takes longer than its busiest     first rows of (1), (13), (14)
``arrival``         a rank gets all of every shard that is due            second rows of (1), (13), (14)
==================  ====================================================  ==================================

The equations are those of the direct-connect paper: linear program (1) in section 6.1 with `build`, (13) in appendix
E.2, where shards consist of chunks that stay whole, with `build_chunked`, and (14) in E.3, where links also have a
latency, with `build_timed`.  The paper counts in shards per link; here loads are divided by bandwidths.  The sum over
the distances of the largest U is the `StepSchedule.inverse_rate` of the schedule: equation (2).

One model holds the programs of all ranks at one distance, which share no variable.  Stated in Pyomo, for up to about
5 * 10^4 shares: ``share[source, tail, head]``, ``busiest[rank]``.  docs/formulations/bfb.md has a formula for more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..support.arrays import IntArray
from ..topologies import Link, Topology
from ..topologies.network.topology import as_topology
from .inputs import as_count, as_ranks, hop_distances
from .pyomo_model import PyomoModel, new_program, total

__all__ = ["BfbModel", "build", "build_chunked", "build_timed"]


NS_PER_US = 1000


@dataclass(frozen=True, eq=False, repr=False)
class BfbModel(PyomoModel):
    """The program of one distance of a breadth-first broadcast.

    Attributes
    ----------
    program : ConcreteModel
        ``program.bandwidth[tail, head]`` (GB/s), ``program.latency[tail, head]`` (µs) and ``program.size`` can be
        changed between two solves.
    topology : Topology
        The network that it is for.
    distance : int
        Hops between the ranks and the sources of what they get: the paper's step t.
    ranks : tuple of str
        The ranks that get something in this program.
    parts : int
        Sum of the shares of a shard: 1, or the chunks per shard.
    """

    topology: Topology
    distance: int
    ranks: tuple[str, ...]
    parts: int


def build(topology: Topology, distance: int, *, ranks: Iterable[str] | None = None) -> BfbModel:
    """State the load balancing of the shards from one distance: linear program (1).

    The objective is the sum of ``busiest`` over the ranks, each in ns per byte of shard: shards over GB/s.

    Parameters
    ----------
    topology : Topology
        Without switches; `BoundError` if some rank does not reach every other.
    distance : int
        1 to the diameter.
    ranks : str or iterable of str, optional
        Names of the ranks to state it for; all by default.
    """
    return _build(topology, distance, ranks, _without_latency(topology), size=Fraction(1))


def build_chunked(topology: Topology, distance: int, chunks: int, *, ranks: Iterable[str] | None = None) -> BfbModel:
    """State the load balancing for shards of indivisible equal chunks: integer program (13).

    Where all links into a rank are equally fast its optimum is ``ceil(chunks * U)`` chunks, with the U of `build`; see
    `collopt.formulations.bfb_rounding`.  The objective is that of `build` per byte of chunk.  Parameters as for
    `build`, with the chunks per shard, the paper's P.
    """
    parts = as_count(chunks, "chunks")
    links = _without_latency(topology)
    return _build(topology, distance, ranks, links, size=Fraction(1), parts=parts, domain="NonNegativeIntegers")


def build_timed(
    topology: Topology,
    distance: int,
    shard_bytes: int,
    *,
    ranks: Iterable[str] | None = None,
    links: Iterable[tuple[str, str]] | None = None,
) -> BfbModel:
    """State the least time for the shards from one distance with link latencies: linear program (14).

    A link that could bring something counts with its latency, whether it does or not.  Where a latency is worse than
    all that the link could take over, state the program without that link, and take the better answer.  The objective
    is the sum of ``busiest`` over the ranks, each in µs.

    Parameters as for `build`, with the size of a shard, the paper's M/N, and the links that may be used: pairs of
    tail and head, some of which can bring each shard that is due.  Distances are in hops, so slow links count like fast
    ones.
    """
    size = Fraction(as_count(shard_bytes, "shard_bytes", high=2**60), NS_PER_US)
    as_topology(topology)
    used = topology.links if links is None else tuple(topology.link(tail, head) for tail, head in links)
    return _build(topology, distance, ranks, used, size=size)


def _build(
    topology: Topology,
    distance: int,
    ranks: Iterable[str] | None,
    links: Sequence[Link],
    *,
    size: Fraction,
    parts: int = 1,
    domain: str = "NonNegativeReals",
) -> BfbModel:
    import pyomo.environ as pyo

    hops, names = hop_distances(topology), topology.compute_nodes
    distance = as_count(distance, "distance", high=int(hops.max()))
    rank_numbers = topology.compute_nodes if ranks is None else as_ranks(ranks, topology, "ranks")
    into = [link for link in links if link.head in set(rank_numbers)]
    offers = [(names[source], *link[:2]) for link in into for source in _offered(topology, hops, distance, link)]
    program = new_program(f"distance {distance} of a breadth-first broadcast on {topology.name}")
    _add_parameters(program, into, size)
    program.share = pyo.Var(offers, domain=getattr(pyo, domain))
    program.busiest = pyo.Var(rank_numbers, domain=pyo.NonNegativeReals)
    model = BfbModel(program, topology, distance, rank_numbers, parts)
    away = {rank: hops[:, topology.node_index[rank]] for rank in rank_numbers}
    due = [(names[source], rank) for rank in rank_numbers for source in np.flatnonzero(away[rank] == distance)]
    _link_load(model, offers)
    _arrival(model, due, offers)
    model.minimize(total(program.busiest.values()))
    return model


def _without_latency(topology: Topology) -> list[Link]:
    return [link._replace(latency=Fraction(0)) for link in as_topology(topology).links]


def _offered(topology: Topology, hops: IntArray, distance: int, link: Link) -> list[int]:
    """Return the sources whose shards a link can carry: d(v, u) = d(v, w) + 1 = t."""
    tail, head = topology.node_index[link.tail], topology.node_index[link.head]
    offers: list[int] = np.flatnonzero((hops[:, tail] == distance - 1) & (hops[:, head] == distance)).tolist()
    return offers


def _add_parameters(program: Any, links: Sequence[Link], size: Fraction) -> None:
    import pyomo.environ as pyo

    ends = [link[:2] for link in links]
    bandwidths = {link[:2]: link.bandwidth for link in links}
    latencies = {link[:2]: link.latency for link in links}
    program.bandwidth = pyo.Param(ends, initialize=bandwidths, mutable=True, within=pyo.PositiveReals)
    program.latency = pyo.Param(ends, initialize=latencies, mutable=True, within=pyo.NonNegativeReals)
    program.size = pyo.Param(initialize=size, mutable=True, within=pyo.PositiveReals)


def _link_load(model: BfbModel, offers: Sequence[tuple[str, str, str]]) -> None:
    """Size * sum over v of x(v, (w, u)) <= (U(u) - alpha(w, u)) b(w, u) for each link with something to bring."""
    program, share, busiest = model.program, model.variables.share, model.variables.busiest
    offered: dict[tuple[str, str], list[str]] = {}
    for source, tail, head in offers:
        offered.setdefault((tail, head), []).append(source)

    def rule(tail: str, head: str) -> Any:
        load = total(share[source, tail, head] for source in offered[tail, head])
        # Times the bandwidth, as a quotient has more digits than a float.
        return program.size * load <= (busiest[head] - program.latency[tail, head]) * program.bandwidth[tail, head]

    model.add_constraints("link_load", list(offered), rule=rule)


def _arrival(model: BfbModel, due: Sequence[tuple[str, str]], offers: Sequence[tuple[str, str, str]]) -> None:
    """Sum over w of x(v, (w, u)) = 1, or P, for each source v that is due at rank u."""
    share = model.variables.share
    tails: dict[tuple[str, str], list[str]] = {}
    for source, tail, head in offers:
        tails.setdefault((source, head), []).append(tail)

    def rule(source: str, rank: str) -> Any:
        if (source, rank) not in tails:
            raise UnsupportedError(f"no link may bring {rank!r} the shard of {source!r}; add one that can to links")
        return total(share[source, tail, rank] for tail in tails[source, rank]) == model.parts

    model.add_constraints("arrival", due, rule=rule)
