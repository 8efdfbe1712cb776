"""Rate of an all-to-all on a direct-connect network: exact where the program is small, or within a gap."""

from contextlib import suppress
from fractions import Fraction

import numpy as np

from ...errors import BoundError, NoAnswerError, UnsupportedError
from ...support.arrays import IntArray, distances_from
from ...support.quantities import Exact, as_factor
from ...support.validation import shown
from ...topologies import DirectGraph, Topology, automorphisms
from ...topologies.network.direct_graph import as_direct_graph
from ...topologies.symmetry.isomorphism import link_orbits

EXACT_COLUMNS = 20_000
"""Of the linear program: interior point, crossover and the exact optimum take about a second for so many."""
MAX_COLUMNS = 150_000  # interior point alone takes half a minute for so many
FINE_GAP = Fraction(1, 500)
"""Smaller ones take multiplicative weights about as long as the interior point, or more rounds than they have."""


def all_to_all_rate_bounds(
    graph: DirectGraph,
    gap: Exact = Fraction(1, 100),
    *,
    symmetries: IntArray | None = None,
    exact_columns: int = EXACT_COLUMNS,
    floor: Fraction = Fraction(0),
) -> tuple[Fraction, Fraction]:
    """Lower and upper bound on the rate f at which every node can send to every other.

    Both are in bandwidths of one link, the scale of the direct-connect paper's linear program (3): what a flow that was
    found reaches, and what no flow can pass.  They are equal where the program is small.

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

    Notes
    -----
    With the symmetries of the graph one source of each orbit is enough; see `collopt.formulations.all_to_all`.  Up to
    150,000 columns are solved by an interior point if the gap is to be small, whose flows and dual values
    `collopt.solvers.flows.concurrent_flow` turns into exact bounds.  Otherwise
    `collopt.solvers.flows.concurrent_flow` finds both.

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
        if columns <= MAX_COLUMNS and part < FINE_GAP:
            return certified_rate(graph, generators)
    from ...solvers.flows.concurrent_flow import concurrent_flow

    flow = concurrent_flow(graph.num_nodes, *graph.adjacency, demands, gap=part, floor=floor, automorphisms=generators)
    with suppress(NoAnswerError):
        if columns <= MAX_COLUMNS and flow.gap > part and flow.upper > floor:
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
            f"node 0 of {graph.name} cannot reach node {int(disconnected.argmax())}, or cannot be reached from it; "
            "add arcs until every node reaches every other"
        )
