"""Least time in which a given amount of data can flow to a rank, as a linear program: a quickest flow.

Data flows from sources, in any proportion, over links with bandwidths and transit times.  By Ford and Fulkerson
("Constructing maximal dynamic flows from static flows", Operations Research 6(3), 1958) at most ``T |x| - sum of
tau(e) x(e)`` of it arrives within T, for the best static flow x.  Divided by ``|x|`` that is a linear program in the
shares ``y = x / |x|`` and ``t = 1 / |x|``; `docs/explanation/every-size.md` derives it.

==================  ====================================================  ==================================
name                meaning                                               equation
==================  ====================================================  ==================================
variables
``period``          time for each kB of data, µs                          t
``flow``            share of the data that takes a link                   y(e)
``supply``          share of the data that starts at a source             s(a)
objective           time of all data and of its way, µs                   (1) least D t + sum of tau(e) y(e)
constraints
``link_bandwidth``  a link has time for its share of each kB              (2) y(e) <= b(e) t
``flow_balance``    what leaves a node came in, or starts there           (3) out of i - into i = s(i)
``all_supplied``    all data starts somewhere                             (4) sum of s(a) = 1
==================  ====================================================  ==================================

The amount D is in kB, which GB/s carry in so many µs, and tau is the latency of a link, with ``alpha`` added where it
leaves a rank.  Sinks have no balance.  The optimum is concave in D.  Dual values of ``flow_balance`` are potentials pi,
µs from a node to the sinks, which `collopt.schedules.TimedCut` checks as a bound.  Stated in blocks of arrays; ``flow``
is in the order of `Topology.links`, ``supply`` in that of ``model.sources``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..schedules.collective import Direction
from ..support.arrays import FloatArray, IntArray
from ..support.quantities import Exact, as_latency
from ..support.validation import shown
from ..topologies import Topology
from ..topologies.network.topology import as_topology
from .blocks import BlockModel, Blocks, Numbers
from .inputs import as_ranks

__all__ = ["FlowOverTimeModel", "build"]

BYTES_PER_KB = 1000


@dataclass(frozen=True, eq=False, repr=False)
class FlowOverTimeModel(BlockModel):
    """A program of the least time for an amount of data.

    Attributes
    ----------
    topology : Topology
        The network that it is for.
    sources, sinks : tuple of str
        Ranks that data starts from, and nodes at which it has arrived.
    tails, heads : ndarray of int64, shape (links,)
        Ends of the links as data passes them; with the direction "reduce", links are turned around.
    delays : ndarray of float64, shape (links,)
        Transit times in µs.
    """

    topology: Topology
    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    tails: IntArray
    heads: IntArray
    delays: FloatArray

    def carry(self, num_bytes: int | Fraction) -> None:
        """Set the amount of data."""
        if isinstance(num_bytes, bool) or not isinstance(num_bytes, int | Fraction) or num_bytes <= 0:
            raise UnsupportedError(f"num_bytes is {shown(num_bytes)}; expected a positive whole number or Fraction")
        amount = float(Fraction(num_bytes) / BYTES_PER_KB)
        self.minimize([(self.variables.period, amount), (self.variables.flow, self.delays)])

    def potentials(self, duals: Any) -> FloatArray:
        """Return the potentials of all nodes in µs, 0 at sinks, in the order of `Topology.nodes`.

        `duals` is ``solution.duals["flow_balance"]``, of the inner nodes.
        """
        answers = np.zeros(len(self.topology.nodes))
        answers[_inner_nodes(self)] = duals
        return answers


def build(
    topology: Topology,
    sources: str | Iterable[str],
    sinks: str | Iterable[str],
    num_bytes: int | Fraction,
    *,
    alpha: Exact = 0,
    direction: Direction = "broadcast",
) -> FlowOverTimeModel:
    """State the least time, in µs, in which data flows from sources to sinks.

    Parameters
    ----------
    topology : Topology
        With the bandwidths that data reaches; see `collopt.topologies.reached_network`.
    sources : str or iterable of str
        Names of ranks.
    sinks : str or iterable of str
        Names of other ranks, in most cases of one.
    num_bytes : int or Fraction
        What flows in all.
    alpha : int, float, str or Fraction
        µs of software for each hop between ranks.
    direction : {"broadcast", "reduce"}
        With "reduce", data flows from sinks to sources, along the links.
    """
    as_topology(topology)
    starts, ends = as_ranks(sources, topology, "sources"), as_ranks(sinks, topology, "sinks")
    if both := sorted(set(starts) & set(ends)):
        raise UnsupportedError(f"{both[0]!r} is a source and a sink; expected different ranks")
    if direction not in ("broadcast", "reduce"):
        raise UnsupportedError(f"direction is {shown(direction)}; expected 'broadcast' or 'reduce'")
    tails, heads, _, _ = topology.arrays
    if direction == "reduce":
        tails, heads = heads, tails
    delays = np.array([float(link.latency) for link in topology.links])
    delays += np.where(tails < topology.num_ranks, float(as_latency(alpha, "alpha")), 0.0)
    blocks = Blocks(f"flow over time on {topology.name}")
    blocks.variables("period", ())
    blocks.variables("flow", topology.num_links)
    blocks.variables("supply", len(starts))
    model = FlowOverTimeModel(blocks, topology, starts, ends, tails, heads, delays)
    _link_bandwidth(model)
    _flow_balance(model)
    _all_supplied(model)
    model.carry(num_bytes)
    return model


def _link_bandwidth(model: FlowOverTimeModel) -> None:
    """y(e) - b(e) t <= 0 for each link: equation (2)."""
    rows = np.arange(len(model.tails))
    bandwidths = np.array([float(link.bandwidth) for link in model.topology.links])
    terms: list[tuple[IntArray, IntArray, Numbers]] = [
        (rows, model.variables.flow, 1),
        (rows, model.variables.period, -bandwidths),
    ]
    model.blocks.constraint("link_bandwidth", len(rows), terms, upper=0)


def _flow_balance(model: FlowOverTimeModel) -> None:
    """Out of i - into i - s(i) = 0 for each node i that is no sink: equation (3)."""
    inner = _inner_nodes(model)
    row = np.full(len(model.topology.nodes), -1)
    row[inner] = np.arange(len(inner))
    leaving, entering = row[model.tails] >= 0, row[model.heads] >= 0
    starts = row[[model.topology.node_index[name] for name in model.sources]]
    terms = [
        (row[model.tails[leaving]], model.variables.flow[leaving], 1),
        (row[model.heads[entering]], model.variables.flow[entering], -1),
        (starts, model.variables.supply, -1),
    ]
    model.blocks.constraint("flow_balance", len(inner), terms, lower=0, upper=0)


def _all_supplied(model: FlowOverTimeModel) -> None:
    """Sum of s(a) = 1: equation (4)."""
    model.constrain("all_supplied", [(model.variables.supply, 1)], lower=1, upper=1)


def _inner_nodes(model: FlowOverTimeModel) -> IntArray:
    """Places of the nodes that are no sinks, in the order of their balances."""
    is_inner = np.ones(len(model.topology.nodes), dtype=np.bool_)
    is_inner[[model.topology.node_index[name] for name in model.sinks]] = False
    return np.flatnonzero(is_inner)
