"""Flows of an all-to-all(v) at the best rate, or nearly, by source, and length duals that bound the rate.

The linear program has one source of each orbit of ranks under the symmetries of the network, see
`collopt.formulations.all_to_all`; where it is too large even so, a maximum concurrent flow takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError, NoAnswerError
from ...support import progress
from ...support.arrays import IntArray
from ...topologies import Topology, symmetries
from ...topologies.network.direct_graph import partial_hop_distances
from ...topologies.symmetry.isomorphism import link_orbits
from ..plans.stages import Trace

if TYPE_CHECKING:
    from ...formulations.all_to_all import AllToAllModel
    from ...solvers.flows.concurrent_flow import ConcurrentFlow

ObjectArray = npt.NDArray[np.object_]

MAX_COLUMNS = 25_000
"""Columns of a linear program that is solved to the end; beyond, a maximum concurrent flow comes within `LOOSE_GAP`."""
LOOSE_GAP = Fraction(1, 200)
ROW_BITS = 32  # bits that what a rank has for all others is rounded up to, for a concurrent flow
MAX_SCALE = 2**40  # whole numbers beyond which exact flows are rounded
MAX_RATIO = 10**7  # of two parts in a linear program, whose solver has tolerances
GRAIN = 2**24  # whole units that the largest part is cut into, where a flow is rounded


class PairFlows(NamedTuple):
    """Flow of each source on each link."""

    flows: IntArray  # int64 (ranks, links); flows that bring ``amount`` times its traffic, or more, to each rank
    amount: int  # what a traffic of 1 gets


def solve_pairs(topology: Topology, traffic: IntArray, trace: Trace) -> PairAnswer:
    """Find flows that minimize the time of the busiest link; `traffic` int64 (ranks, ranks)."""
    check_pairs_reachable(topology, traffic)
    with trace.stage("symmetries"):
        generators = symmetries(topology, traffic)
    demands = traffic.copy()
    np.fill_diagonal(demands, 0)
    tails, heads, capacities, _ = topology.arrays
    sources = link_orbits(tails, heads, capacities, demands, generators).sources
    if len(sources) * topology.num_links <= MAX_COLUMNS:
        with trace.stage("linear program"):
            return _solve_program(topology, demands, generators, trace)
    with trace.stage("concurrent flow"):
        return _solve_approximately(topology, demands, generators, trace)


def check_pairs_reachable(topology: Topology, traffic: IntArray) -> None:
    """Raise `BoundError` if a rank cannot reach another one that it has traffic for."""
    tails, heads, _, _ = topology.arrays
    hops = partial_hop_distances(len(topology.nodes), tails, heads)[: topology.num_ranks, : topology.num_ranks]
    missing = np.argwhere((traffic > 0) & (hops < 0))
    if len(missing):
        source, rank = (topology.nodes[node] for node in missing[0])
        raise BoundError(
            f"there is no path from rank {source!r} to rank {rank!r} in {topology}; add links or leave ranks out"
        )


def node_demands(topology: Topology, traffic: IntArray, source: int) -> IntArray:
    """Demand of every node for data of one rank; zero for switches and the rank itself."""
    demands = np.zeros(len(topology.nodes), dtype=np.int64)
    demands[: topology.num_ranks] = traffic[source]
    demands[source] = 0
    return demands


@dataclass(frozen=True)
class _ExactAnswer:
    """Answer by linear programming: exact or float flows of one source per orbit."""

    model: AllToAllModel
    demands: IntArray
    generators: IntArray
    lengths: tuple[Fraction, ...]
    rows: ObjectArray
    rate: Fraction
    is_exact: bool

    def flows(self) -> PairFlows:
        """Lift integer flows to all sources."""
        lifted = self._exact() if self.is_exact else None
        if lifted is None:
            rows, amount = _integer_flows(self.model.topology, self.demands, self.model.sources, self.rows, self.rate)
            lifted = self._lifted(rows.astype(object), Fraction(amount))
        return lifted

    def _exact(self) -> PairFlows | None:
        """Use the exact flows; None if their integers are too large.

        Also if they bring too little: the program knows a ratio of two amounts of traffic only as the simplest fraction
        near it.
        """
        try:
            flows = self._lifted(self.rows, self.rate)
        except CapacityOverflowError:
            return None
        topology, short = self.model.topology, False
        tails, heads, _, _ = topology.arrays
        for source in range(topology.num_ranks):
            kept = np.zeros(len(topology.nodes), dtype=np.int64)
            np.add.at(kept, heads, flows.flows[source])
            np.subtract.at(kept, tails, flows.flows[source])
            kept[source] = 0
            short |= bool((kept < flows.amount * node_demands(topology, self.demands, source)).any())
        return None if short or flows.flows.max() >= MAX_SCALE else flows

    def _lifted(self, rows: ObjectArray, rate: Fraction) -> PairFlows:
        """Lift flows of one source per orbit, with `rate` per unit of traffic, to all sources."""
        from ...solvers.flows.path_decomposition import lift_flows

        topology = self.model.topology
        tails, heads, capacities, _ = topology.arrays
        network = (topology.num_ranks, tails, heads, capacities)
        scaled = rows * rate.denominator
        lifted = lift_flows(*network, self.generators, self.model.sources, scaled)
        amount = rate.numerator * lifted.scale
        common = gcd(amount, int(np.gcd.reduce(lifted.flows, axis=None)))
        return PairFlows(lifted.flows // common, amount // common)


def _integer_flows(
    topology: Topology, demands: IntArray, sources: IntArray, rows: npt.NDArray[Any], rate: Fraction
) -> tuple[IntArray, int]:
    """Round the flows of some sources, with `rate` per unit of traffic, to integers; also return their rate."""
    from ...solvers.flows.rounding import rounded_flow

    tails, heads, _, _ = topology.arrays
    amount = max(1, GRAIN // int(demands.max()))
    floats = np.maximum(rows.astype(np.float64) * float(amount / rate), 0.0)
    integers = np.zeros(rows.shape, dtype=np.int64)
    for row, source in enumerate(progress.iterate(sources.tolist(), len(sources))):
        demand = node_demands(topology, demands, source) * amount
        integers[row] = rounded_flow(len(topology.nodes), tails, heads, floats[row], source, demand)
    return integers, amount


def _solve_program(topology: Topology, demands: IntArray, generators: IntArray, trace: Trace) -> _ExactAnswer:
    from ...formulations import all_to_all
    from ...solvers import solve

    # What is next to nothing is raised, as floats cannot tell it from nothing.  Flows then bring enough, and any
    # lengths prove something.
    floor = -(-int(demands.max()) // MAX_RATIO)
    raised = np.where(demands > 0, np.maximum(demands, floor), 0)
    model = all_to_all.build(_rescaled(topology), traffic=raised, symmetries=generators)
    solution = solve(model)
    try:
        answer = solution.exact
    except NoAnswerError:
        trace.note("flows", "linear program, in floats")
        duals = model.link_duals(solution.duals["link_bandwidth"])
        largest = max(float(duals.max()), 1e-300)
        lengths = tuple(Fraction(max(dual, 0.0) / largest).limit_denominator(10**9) for dual in duals.tolist())
        rows, rate = solution.values["flow"].astype(object), Fraction(solution.objective)
        return _ExactAnswer(model, demands, generators, lengths, rows, rate / int(model.largest), False)
    trace.note("flows", "linear program, exact")
    lengths = tuple(map(Fraction, model.link_duals(answer.duals["link_bandwidth"]).tolist()))
    rate = answer.objective / int(model.largest)
    return _ExactAnswer(model, demands, generators, lengths, answer.values["flow"], rate, True)


def _rescaled(topology: Topology) -> Topology:
    """Express the bandwidths of slow networks in a smaller unit, above the solver's tolerances."""
    widest = max(link.bandwidth for link in topology.links)
    if widest >= 1:
        return topology
    unit = 10 ** len(str(int(1 / widest)))
    return replace(topology, links=tuple(link._replace(bandwidth=link.bandwidth * unit) for link in topology.links))


@dataclass(frozen=True)
class _ApproximateAnswer:
    """Answer by approximate maximum concurrent flow, which delivers at least `amount` per unit of traffic."""

    topology: Topology
    demands: IntArray
    coarse: IntArray
    amount: Fraction
    flow: ConcurrentFlow
    is_exact: ClassVar[bool] = False

    @property
    def lengths(self) -> tuple[Fraction, ...]:
        """Length duals of the concurrent flow."""
        return tuple(map(Fraction, self.flow.lengths.tolist()))

    def flows(self) -> PairFlows:
        """Compute the flow of each source."""
        from ...solvers.flows.concurrent_flow import source_flows

        tails, heads, capacities, _ = self.topology.arrays
        sources = np.arange(self.topology.num_ranks)
        network = (len(self.topology.nodes), tails, heads, capacities, self.coarse)
        flows = source_flows(*network, self.flow, sources)
        return PairFlows(*_integer_flows(self.topology, self.demands, sources, flows, self.amount))


PairAnswer = _ExactAnswer | _ApproximateAnswer
"""Flows of all pairs, and length duals of links, which bound their gap."""


def _solve_approximately(
    topology: Topology, demands: IntArray, generators: IntArray, trace: Trace
) -> _ApproximateAnswer:
    from ...solvers.flows.concurrent_flow import concurrent_flow

    trace.note("flows", f"concurrent flow within {LOOSE_GAP}")
    tails, heads, capacities, _ = topology.arrays
    # Small numbers leave room for lengths of many digits.
    shift = max(0, int(demands.sum(axis=1).max()).bit_length() - ROW_BITS)
    coarse = -(-demands >> shift)
    network = (len(topology.nodes), tails, heads, capacities, coarse)
    flow = concurrent_flow(*network, gap=LOOSE_GAP, automorphisms=generators)
    return _ApproximateAnswer(topology, demands, coarse, flow.amount / 2**shift, flow)
