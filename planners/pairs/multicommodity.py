"""All-to-all and all-to-allv on any network: flows at the best rate, cut into paths of whole chunks.

1. The linear program of `collopt.formulations.all_to_all` says what each rank's data puts on each link; where it is too
   large, a maximum concurrent flow comes near it.  Either also has lengths of links that prove how near.
2. The flow of each rank is cut into paths.
3. Each pair's chunks are shared out over its paths in proportion to what they carry, as evenly as whole numbers allow.
4. Hops are ordered in steps, so that those who wait for each step to end lose little.

The bound is the dual of the program, checked with shortest paths: `collopt.schedules.LinkLengths`.

Bounds of all-to-alls from lengths of links, told by a cut where the lengths are those of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...schedules import PAIR_COLLECTIVES, Bound, Collective, Cut, LinkLengths, LinkPrice
from ...schedules.traffic.collective import AnyCollective, as_collective
from ...schedules.traffic.sizes import as_pair_traffic
from ...support import progress
from ...support.arrays import IntArray
from ...support.validation import shown
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.proving import proved_plan
from ..plans.stages import Trace
from ..trees.problem import check_topology
from .chunks import as_chunks, shared_chunks
from .flows import PairAnswer, node_demands, solve_pairs
from .step_orders import ORDERS, best_order

if TYPE_CHECKING:
    from ...solvers.paths.decomposition import Paths


def plan_pairs(
    topology: Topology,
    collective: AnyCollective,
    *,
    traffic: Any = None,
    chunks: int | None = None,
    order: str | None = None,
) -> Plan:
    """Plan an all-to-all or an all-to-allv.

    Linear program (3) of the direct-connect paper (appendix A.5), with bandwidths, switches and traffic.

    Shapes: `traffic` (ranks, ranks).
    """
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic)
    count = None if chunks is None else as_chunks(chunks)
    if order is not None and (not isinstance(order, str) or order not in ORDERS):
        raise UnsupportedError(f"order is {shown(order)}; expected one of {', '.join(ORDERS)}")
    trace = Trace()
    answer = solve_pairs(topology, matrix, trace)
    with trace.stage("bound"):
        bound = lengths_bound(topology, collective, matrix, answer.lengths)
    with trace.stage("paths"):
        paths = _paths(topology, matrix, answer)
    with trace.stage("chunks"):
        per_unit, chosen = shared_chunks(paths, topology, matrix, count, bound)
    with trace.stage("order"):
        schedule = best_order(topology, matrix, per_unit, chosen, order)
    options = {name: value for name, value in (("chunks", count), ("order", order)) if value is not None}
    return proved_plan(topology, collective, schedule, "multicommodity", options, trace, bound)


def bound_pairs(topology: Topology, collective: AnyCollective, *, traffic: Any = None) -> Bound:
    """Find what no all-to-all(v) can beat; parameters and errors as for `plan_pairs`."""
    collective = as_pair_collective(topology, collective)
    matrix = checked_traffic(topology, collective, traffic)
    return lengths_bound(topology, collective, matrix, solve_pairs(topology, matrix, Trace()).lengths)


def as_pair_collective(topology: object, collective: object) -> Collective:
    """Look up a collective; raise `UnsupportedError` unless flows between pairs of a topology carry it out."""
    check_topology(topology)
    return as_collective(collective, PAIR_COLLECTIVES, "flows between pairs do not implement")


def checked_traffic(topology: Topology, collective: Collective, traffic: Any) -> IntArray:
    """Return the traffic in whole numbers, all 1 for an all-to-all; errors as of `plan_pairs`."""
    if not collective.takes_traffic:
        if traffic is not None:
            raise UnsupportedError("all_to_all has equal parts and takes no traffic; all_to_allv does")
        return np.ones((topology.num_ranks, topology.num_ranks), dtype=np.int64)
    if traffic is None:
        raise UnsupportedError("all_to_allv needs traffic: a matrix of bytes, one row of numbers per rank")
    return as_pair_traffic(traffic, topology.compute_nodes)


def _paths(topology: Topology, traffic: IntArray, answer: PairAnswer) -> Paths:
    """Cut the flows of all ranks into paths."""
    from ...solvers.paths.decomposition import joined, source_paths

    found = answer.flows()
    tails, heads, _, _ = topology.arrays
    size = len(topology.nodes)
    return joined(
        [
            source_paths(size, tails, heads, flow, source, found.amount * node_demands(topology, traffic, source))
            for source, flow in enumerate(progress.iterate(found.flows, len(found.flows)))
            if traffic[source].any()
        ]
    )


MAX_CUTS = 64
"""Different ones that are looked at."""
MAX_UNITS = 2**52
"""All lengths together, in their common unit."""


def lengths_bound(topology: Topology, collective: Collective, traffic: IntArray, lengths: Sequence[Fraction]) -> Bound:
    """State what lengths of links prove, by a cut if one proves as much.

    Shapes: `traffic` int64 (ranks, ranks).
    """
    weights = tuple(map(int, traffic.ravel().tolist())) if collective.takes_traffic else ()
    priced = tuple(
        LinkPrice(link.tail, link.head, length)
        for link, length in zip(topology.links, _short(lengths), strict=True)
        if length
    )
    best = Bound.from_witness(topology, collective, LinkLengths(priced), weights)
    for cut in _cuts(topology, lengths):
        try:
            simple = Bound.from_witness(topology, collective, cut, weights)
        except CertificateError:
            continue  # no ranks on one side, or nothing to cross
        if simple.inverse_rate >= best.inverse_rate:
            return simple
    return best


def _short(lengths: Sequence[Fraction]) -> Sequence[Fraction]:
    """Round lengths that have no common unit of a fair size: any lengths prove something, and these nearly as much."""
    total, unit = sum(lengths), lcm(*(length.denominator for length in lengths))
    if total * unit < MAX_UNITS:
        return lengths
    return [Fraction(round(length * MAX_UNITS / total)) for length in lengths]


def _cuts(topology: Topology, lengths: Sequence[Fraction]) -> Iterator[Cut]:
    """Sets of nodes that only links with a length leave: if the lengths are those of a cut, it is among them."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    tails, heads, _, _ = topology.arrays
    free = np.array([length == 0 for length in lengths], dtype=np.bool_)
    size = len(topology.nodes)
    known: set[bytes] = set()
    for ends in ((tails, heads), (heads, tails)):
        graph = csr_array((np.ones(int(free.sum())), (ends[0][free], ends[1][free])), shape=(size, size))
        for rank in range(topology.num_ranks):
            inside = np.zeros(size, dtype=np.bool_)
            inside[breadth_first_order(graph, rank, return_predecessors=False)] = True
            # What can reach a rank for nothing is entered over links with a length, so the others are left over them.
            inside ^= ends[0] is heads
            if len(known) < MAX_CUTS and inside.tobytes() not in known:
                known.add(inside.tobytes())
                yield Cut(frozenset(topology.nodes[node] for node in np.flatnonzero(inside).tolist()))
