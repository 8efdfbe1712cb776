"""Rates and flows of an all-to-all(v), best or within a gap, with bounds that prove them.

The linear program has one source of each orbit of ranks under the symmetries of the network, see
`collopt.formulations.all_to_all`; where it is too large even so, a maximum concurrent flow takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError, NoAnswerError, UnsupportedError
from ...support import progress
from ...support.arrays import IntArray, distances_from
from ...support.quantities import Exact, as_factor
from ...support.validation import shown
from ...topologies import DirectGraph, Topology, automorphisms, symmetries
from ...topologies.network.direct_graph import as_direct_graph, partial_hop_distances
from ...topologies.symmetry.isomorphism import link_orbits
from ..plans.stages import Trace

if TYPE_CHECKING:
    from ...formulations.all_to_all import AllToAllModel
    from ...solvers.flows.concurrent_flow import ConcurrentFlow

EXACT_COLUMNS = 20_000
"""Of the linear program: interior point, crossover and the exact optimum take about a second for so many."""
MAX_CERTIFIED_COLUMNS = 150_000  # interior point alone takes half a minute for so many
FINE_GAP = Fraction(1, 500)
"""Smaller ones take multiplicative weights about as long as the interior point, or more rounds than they have."""
MAX_COLUMNS = 25_000
"""Columns of a linear program that is solved to the end; beyond, a maximum concurrent flow comes within `LOOSE_GAP`."""
LOOSE_GAP = Fraction(1, 200)
ROW_BITS = 32  # bits that what a rank has for all others is rounded up to, for a concurrent flow
MAX_SCALE = 2**40  # whole numbers beyond which exact flows are rounded
MAX_RATIO = 10**7  # of two parts in a linear program, whose solver has tolerances
GRAIN = 2**24  # whole units that the largest part is cut into, where a flow is rounded

ObjectArray = npt.NDArray[np.object_]


def all_to_all_rate_bounds(
    graph: DirectGraph,
    gap: Exact = Fraction(1, 100),
    *,
    symmetries: IntArray | None = None,
    exact_columns: int = EXACT_COLUMNS,
    floor: Fraction = Fraction(0),
) -> tuple[Fraction, Fraction]:
    """Lower and upper bound on the rate f at which every node can send to every other.

    Both are in bandwidths of one link, the scale of the direct-connect paper's linear program (3): what a flow reaches,
    and what no flow can pass.  They are equal where the program is small.

    Parameters
    ----------
    graph : DirectGraph
        Strongly connected.
    gap : number
        At most what the bounds may be apart, as a part of the upper one: between 0 and 1.  Where the linear program is
        too large to be solved exactly, about 1e-5 can be had, and for the largest about 1e-3.
    symmetries : ndarray of int64, shape (found, nodes), optional
        Automorphisms of the graph, which are checked; searched for by default.
    exact_columns : int
        Columns of the linear program up to which it is solved exactly.
    floor : Fraction
        A rate of interest: bounds may be further apart where the upper one is no larger.

    Examples
    --------
    >>> from collopt.topologies import generalized_kautz
    >>> all_to_all_rate_bounds(generalized_kautz(4, 64).graph)
    (Fraction(15, 691), Fraction(15, 691))
    """
    part = as_factor(gap, "the gap")
    if part >= 1:
        raise UnsupportedError(f"the gap is {shown(gap)}; expected a number between 0 and 1")
    _check_connected(as_direct_graph(graph))
    generators = found_automorphisms(graph) if symmetries is None else symmetries
    demands = np.broadcast_to(np.int64(1), (graph.num_nodes, graph.num_nodes))
    orbits = link_orbits(*graph.adjacency, demands, generators)
    columns = len(orbits.sources) * len(orbits.classes)
    with suppress(NoAnswerError):
        if columns <= exact_columns:
            rate = exact_rate(graph, generators)
            return rate, rate
    with suppress(NoAnswerError):
        if columns <= MAX_CERTIFIED_COLUMNS and part < FINE_GAP:
            return certified_rate(graph, generators)
    from ...solvers.flows.concurrent_flow import concurrent_flow

    flow = concurrent_flow(graph.num_nodes, *graph.adjacency, demands, gap=part, floor=floor, automorphisms=generators)
    with suppress(NoAnswerError):
        if columns <= MAX_CERTIFIED_COLUMNS and flow.gap > part and flow.upper > floor:
            lower, upper = certified_rate(graph, generators)
            return max(flow.lower, lower), min(flow.upper, upper)
    return flow.lower, flow.upper


def found_automorphisms(graph: DirectGraph) -> IntArray:
    """Search for automorphisms; none if the search takes too long, since rates come to the same without."""
    with suppress(NoAnswerError):
        return automorphisms(graph)
    return np.empty((0, graph.num_nodes), dtype=np.int64)


def exact_rate(graph: DirectGraph, generators: IntArray) -> Fraction:
    """Solve linear program (3) exactly; `generators` int64 (generators, nodes)."""
    from ...formulations import all_to_all
    from ...solvers import Algorithm, HighsOptions, solve

    model = all_to_all.build(Topology.from_graph(graph), symmetries=generators)
    return solve(model, HighsOptions(algorithm=Algorithm.IPM)).exact.objective


def certified_rate(graph: DirectGraph, generators: IntArray) -> tuple[Fraction, Fraction]:
    """Solve linear program (3) by an interior point; return the rate of its flow and the bound of its duals."""
    from ...formulations import all_to_all
    from ...solvers import Algorithm, HighsOptions, solve
    from ...solvers.flows.concurrent_flow import rate_certificate

    model = all_to_all.build(Topology.from_graph(graph), symmetries=generators)
    solution = solve(model, HighsOptions(algorithm=Algorithm.IPM_WITHOUT_CROSSOVER))
    demands = np.broadcast_to(np.int64(1), (graph.num_nodes, graph.num_nodes))
    values, duals = solution.values, solution.duals["link_bandwidth"]
    return rate_certificate(
        graph.num_nodes, *graph.adjacency, demands, model.orbits, values["flow"], float(values["rate"]), duals
    )


def _check_connected(graph: DirectGraph) -> None:
    if graph.num_nodes < 2:
        raise UnsupportedError(f"{graph.name} has one node; expected some for it to send to")
    tails, heads, _ = graph.adjacency
    ahead, back = (distances_from(0, graph.num_nodes, *ends) for ends in ((tails, heads), (heads, tails)))
    if (disconnected := (ahead < 0) | (back < 0)).any():
        raise BoundError(
            f"node 0 of {graph.name} cannot reach node {disconnected.argmax()}, or the reverse; add arcs until it can"
        )


class PairFlows(NamedTuple):
    """Flow of each source on each link."""

    flows: IntArray  # int64 (ranks, links); flows that bring ``amount`` times its traffic, or more, to each rank
    amount: int  # what a traffic of 1 gets


class PairAnswer(NamedTuple):
    """Length duals of links, which bound the rate, whether they are optimal, and flows of all pairs on demand."""

    lengths: tuple[Fraction, ...]
    is_exact: bool
    flows: Callable[[], PairFlows]


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


def _solve_program(topology: Topology, demands: IntArray, generators: IntArray, trace: Trace) -> PairAnswer:
    """Solve the linear program: exact flows of one source per orbit, or flows in floats."""
    from ...formulations import all_to_all
    from ...solvers import solve

    # What is next to nothing is raised, as floats cannot tell it from nothing.  Flows then bring enough, and any
    # lengths prove something.
    floor = -(-int(demands.max()) // MAX_RATIO)
    raised = np.where(demands > 0, np.maximum(demands, floor), 0)
    model = all_to_all.build(_rescaled(topology), traffic=raised, symmetries=generators)
    solution = solve(model)
    largest = int(model.largest)
    try:
        answer = solution.exact
    except NoAnswerError:
        trace.note("flows", "linear program, in floats")
        duals = model.link_duals(solution.duals["link_bandwidth"])
        longest = max(float(duals.max()), 1e-300)
        lengths = tuple(Fraction(max(dual, 0.0) / longest).limit_denominator(10**9) for dual in duals.tolist())
        rows, rate = solution.values["flow"].astype(object), Fraction(solution.objective) / largest
        return PairAnswer(lengths, False, partial(_rounded_flows, model, demands, generators, rows, rate))
    trace.note("flows", "linear program, exact")
    lengths = tuple(map(Fraction, model.link_duals(answer.duals["link_bandwidth"]).tolist()))
    rows, rate = answer.values["flow"], answer.objective / largest
    return PairAnswer(lengths, True, partial(_exact_flows, model, demands, generators, rows, rate))


def _exact_flows(
    model: AllToAllModel, demands: IntArray, generators: IntArray, rows: ObjectArray, rate: Fraction
) -> PairFlows:
    """Lift the exact flows, or rounded ones if their integers are too large or they bring too little."""
    with suppress(CapacityOverflowError):
        flows, amount = _lifted(model, generators, rows, rate)
        topology, enough = model.topology, flows.max() < MAX_SCALE
        tails, heads, _, _ = topology.arrays
        for source in range(topology.num_ranks):
            kept = np.zeros(len(topology.nodes), dtype=np.int64)
            np.add.at(kept, heads, flows[source])
            np.subtract.at(kept, tails, flows[source])
            kept[source] = 0
            enough &= bool((kept >= amount * node_demands(topology, demands, source)).all())
        if enough:
            return PairFlows(flows, amount)
    return _rounded_flows(model, demands, generators, rows, rate)


def _rounded_flows(
    model: AllToAllModel, demands: IntArray, generators: IntArray, rows: ObjectArray, rate: Fraction
) -> PairFlows:
    """Round the flows of one source per orbit, and lift them."""
    integers, amount = _integer_flows(model.topology, demands, model.sources, rows, rate)
    return _lifted(model, generators, integers.astype(object), Fraction(amount))


def _lifted(model: AllToAllModel, generators: IntArray, rows: ObjectArray, rate: Fraction) -> PairFlows:
    """Lift flows of one source per orbit, with `rate` per unit of traffic, to all sources."""
    from ...solvers.flows.path_decomposition import lift_flows

    tails, heads, capacities, _ = model.topology.arrays
    network = (model.topology.num_ranks, tails, heads, capacities)
    lifted = lift_flows(*network, generators, model.sources, rows * rate.denominator)
    amount = rate.numerator * lifted.scale
    common = gcd(amount, int(np.gcd.reduce(lifted.flows, axis=None)))
    return PairFlows(lifted.flows // common, amount // common)


def _integer_flows(
    topology: Topology, demands: IntArray, sources: IntArray, rows: npt.NDArray[Any], rate: Fraction
) -> PairFlows:
    """Round the flows of some sources, with `rate` per unit of traffic, to integers."""
    from ...solvers.flows.rounding import rounded_flow

    tails, heads, _, _ = topology.arrays
    amount = max(1, GRAIN // int(demands.max()))
    floats = np.maximum(rows.astype(np.float64) * float(amount / rate), 0.0)
    integers = np.zeros(rows.shape, dtype=np.int64)
    for row, source in enumerate(progress.iterate(sources.tolist(), len(sources))):
        demand = node_demands(topology, demands, source) * amount
        integers[row] = rounded_flow(len(topology.nodes), tails, heads, floats[row], source, demand)
    return PairFlows(integers, amount)


def _rescaled(topology: Topology) -> Topology:
    """Express the bandwidths of slow networks in a smaller unit, above the solver's tolerances."""
    widest = max(link.bandwidth for link in topology.links)
    if widest >= 1:
        return topology
    unit = 10 ** len(str(int(1 / widest)))
    return replace(topology, links=tuple(link._replace(bandwidth=link.bandwidth * unit) for link in topology.links))


def _solve_approximately(topology: Topology, demands: IntArray, generators: IntArray, trace: Trace) -> PairAnswer:
    """Approximate a maximum concurrent flow."""
    from ...solvers.flows.concurrent_flow import concurrent_flow

    trace.note("flows", f"concurrent flow within {LOOSE_GAP}")
    tails, heads, capacities, _ = topology.arrays
    # Small numbers leave room for lengths of many digits.
    shift = max(0, int(demands.sum(axis=1).max()).bit_length() - ROW_BITS)
    network = (len(topology.nodes), tails, heads, capacities, -(-demands >> shift))
    flow = concurrent_flow(*network, gap=LOOSE_GAP, automorphisms=generators)
    lengths = tuple(map(Fraction, flow.lengths.tolist()))
    amount = flow.amount / 2**shift  # at least so much per unit of traffic
    return PairAnswer(lengths, False, partial(_concurrent_flows, topology, demands, network, flow, amount))


def _concurrent_flows(
    topology: Topology,
    demands: IntArray,
    network: tuple[int, IntArray, IntArray, IntArray, IntArray],
    flow: ConcurrentFlow,
    amount: Fraction,
) -> PairFlows:
    """Compute the flow of each source."""
    from ...solvers.flows.concurrent_flow import source_flows

    sources = np.arange(topology.num_ranks)
    return _integer_flows(topology, demands, sources, source_flows(*network, flow, sources), amount)
