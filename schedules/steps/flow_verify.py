"""Check of an all-to-all's paths that every plan's certificate rests on.

It shares no code with the planners, the solvers or the methods of `FlowSchedule`: it reads the arrays and the
topology's links and nothing else.
"""

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray
from ...topologies import Topology
from ..path_checks import Hops, check_arrays, check_steps_used, refuse_if, routed_paths, verified_routes
from ..schedule import PairSchedule, RoutedSchedule

LOAD_LIMIT = 2**62


class FlowArrays(RoutedSchedule, PairSchedule):
    """The data of a `FlowSchedule`, which describes them: all that its check rests on; `servers` only of stages."""

    num_ranks: int
    chunks_per_unit: int
    weights: IntArray
    steps: IntArray
    servers: IntArray


def verified_flow(schedule: FlowArrays, topology: Topology) -> IntArray:
    """Verify that a schedule delivers the traffic of every pair, and sum its load on every link; int64 (links,).

    Checked: the arrays fit together; every path follows links of the topology and passes no node twice; its steps rise
    at ranks, and only there; something happens in every step; the paths of two ranks carry exactly the chunks of their
    traffic.
    """
    hops = _verified_paths(schedule, topology)
    loads = np.zeros(topology.num_links, dtype=np.int64)
    np.add.at(loads, hops.links, schedule.weights[hops.paths])
    return loads


def verified_stages(schedule: FlowArrays, topology: Topology) -> IntArray:
    """Verify a flow in stages as any flow, and that ranks have one partner at a time; loads are those of each step."""
    hops = _verified_paths(schedule, topology)
    check_partners(schedule)
    loads = np.zeros((int(schedule.steps.max()) + 1, topology.num_links), dtype=np.int64)
    np.add.at(loads, (schedule.steps, hops.links), schedule.weights[hops.paths])
    return loads


def check_partners(schedule: FlowArrays) -> None:
    """Check that in no step a rank sends to two ranks of other servers, or receives from two."""
    starts, ranks = schedule.path_starts, schedule.num_ranks
    check_arrays(schedule, {"servers": (ranks,)}, "schedule")
    tails, heads = (np.delete(schedule.path_nodes, ends) for ends in (starts[1:] - 1, starts[:-1]))
    begins = tails < ranks
    senders, receivers = tails[begins], heads[heads < ranks]
    away = schedule.servers[senders] != schedule.servers[receivers]
    rows = np.stack([schedule.steps[begins], senders, receivers])[:, away]
    steps, *ends = np.unique(rows, axis=1)
    for does, end in zip(("sends to", "receives from"), ends, strict=True):
        busy, counts = np.unique(steps * ranks + end, return_counts=True)
        if (counts > 1).any():
            step, rank = divmod(int(busy[counts > 1][0]), ranks)
            raise CertificateError(f"in step {step} rank {rank} {does} several ranks of other servers; expected one")


def _verified_paths(schedule: FlowArrays, topology: Topology) -> Hops:
    if not len(schedule.weights):
        raise CertificateError("the schedule has no paths")
    _check_shapes(schedule, topology.num_ranks)
    hops = verified_routes(schedule.path_starts, schedule.path_nodes, topology, "schedule")
    _check_steps(schedule, hops.paths)
    check_steps_used(schedule.steps)
    _check_amounts(schedule)
    return hops


def check_flow(schedule: FlowArrays) -> None:
    """Check all that `verified_loads` does without a topology, but for steps in which nothing happens."""
    _check_shapes(schedule, schedule.num_ranks)
    if len(schedule.weights):
        path = routed_paths(schedule.path_starts, schedule.path_nodes, schedule.num_ranks, "schedule")
        # No hop begins at the last node of a path.
        _check_steps(schedule, np.delete(path, schedule.path_starts[1:] - 1))
    _check_amounts(schedule)


def _check_shapes(schedule: FlowArrays, ranks: int) -> None:
    paths = len(schedule.weights)
    if schedule.num_ranks != ranks:
        raise CertificateError(f"the schedule is for {schedule.num_ranks} ranks; the topology has {ranks}")
    if not 1 <= schedule.chunks_per_unit < LOAD_LIMIT:
        raise CertificateError(f"the schedule has {schedule.chunks_per_unit} chunks per unit; expected 1 to 2^62 - 1")
    shapes: dict[str, tuple[int, ...]] = {
        "traffic": (ranks, ranks),
        "weights": (paths,),
        "path_starts": (paths + 1,),
        "path_nodes": (schedule.path_nodes.size,),
        "steps": (schedule.path_nodes.size - paths,),
    }
    check_arrays(schedule, shapes, "schedule")
    if (schedule.traffic < 0).any():
        source, destination = np.argwhere(schedule.traffic < 0)[0]
        raise CertificateError(f"the traffic from rank {source} to rank {destination} is negative")
    refuse_if(schedule.weights < 1, "path {} carries no chunk")
    # As a path passes a link at most once, no load is more than all weights together.
    if max(_total(schedule.weights), _total(schedule.traffic) * int(schedule.chunks_per_unit)) >= LOAD_LIMIT:
        raise CertificateError("the schedule's chunks could overflow the 64-bit sums of this check")


def _total(values: IntArray) -> int:
    """Sum without overflow, by halves of 32 bits."""
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _check_steps(schedule: FlowArrays, path_of_hop: IntArray) -> None:
    steps = schedule.steps
    if (steps < 0).any():
        raise CertificateError(f"path {path_of_hop[np.flatnonzero(steps < 0)[0]]} has a hop before step 0")
    goes_on = np.flatnonzero(np.diff(path_of_hop) == 0)
    # The first hop of path p is p less than its first node, so the node after hop h of it is h + p + 1.
    at_rank = schedule.path_nodes[goes_on + path_of_hop[goes_on] + 1] < schedule.num_ranks
    rises = np.diff(steps)[goes_on]
    misplaced = np.where(at_rank, rises <= 0, rises != 0)
    if misplaced.any():
        first = int(np.flatnonzero(misplaced)[0])
        rule = "rise at a rank" if at_rank[first] else "stay the same at a switch"
        raise CertificateError(f"the steps of path {path_of_hop[goes_on[first]]} do not {rule} that it passes")


def _check_amounts(schedule: FlowArrays) -> None:
    starts, nodes, ranks = schedule.path_starts, schedule.path_nodes, schedule.num_ranks
    brought = np.zeros((ranks, ranks), dtype=np.int64)
    np.add.at(brought, (nodes[starts[:-1]], nodes[starts[1:] - 1]), schedule.weights)
    expected = schedule.traffic * int(schedule.chunks_per_unit)
    np.fill_diagonal(expected, 0)
    if (brought != expected).any():
        source, destination = (int(rank) for rank in np.argwhere(brought != expected)[0])
        raise CertificateError(
            f"the paths from rank {source} to rank {destination} carry {brought[source, destination]} chunks; "
            f"expected {expected[source, destination]}"
        )
