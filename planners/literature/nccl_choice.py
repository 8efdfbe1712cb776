"""What NCCL would run: rings, double binary trees, NVLS, NVLSTree or PAT, by its own model of their times.

NCCL takes the algorithm and the protocol of least time for a size; `nccl_tuning` has its model.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Collective, as_bytes
from ...schedules.collective import TREE_COLLECTIVES, AnyCollective, as_collective
from ...solvers.flows.max_flow import max_flow
from ...topologies import Topology
from ...topologies.switched.scale_out import FABRIC_LATENCY
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import TreeProblem, cut_problem, shard_weights
from .nccl_trees import plan_double_binary_tree, plan_nvls, plan_nvls_tree
from .nccl_tuning import (
    ALGORITHMS,
    GENERATIONS,
    NVLINK,
    OTHER_LINKS,
    VERSIONS,
    Choice,
    Machine,
    as_version,
    choices,
    search,
)
from .rank_offsets import plan_pat
from .ring import plan_ring
from .routes import Hops, find_boxes

LARGE = 2**32  # bytes, where bandwidth decides
SEVERAL = 8  # GPUs of a box that are looked at

PLANS: dict[str, Callable[..., Plan]] = {
    "ring": plan_ring,
    "tree": plan_double_binary_tree,
    "nvls": plan_nvls,
    "nvls-tree": lambda topology, _: plan_nvls_tree(topology),
    "pat": plan_pat,
}


@register_planner("nccl", TREE_COLLECTIVES)
def plan_nccl(
    topology: Topology,
    collective: AnyCollective,
    *,
    size: int | str | None = None,
    version: str = VERSIONS[1],
    root: int | str | None = None,
) -> Plan:
    """Plan rings, trees, NVLS or PAT, whichever NCCL's tuning chooses for the size."""
    planned = as_collective(collective, TREE_COLLECTIVES, "NCCL's planner does not implement")
    shard_weights(topology, planned, root, None)  # refuses a root that the collective does not have
    num_bytes, rooted = LARGE if size is None else as_bytes(size), {} if root is None else {"root": root}
    machine, refusal = machine_of(topology), ""
    for best in nccl_choices(topology, planned, num_bytes, version=version, root=root):
        try:
            candidate = PLANS[best.algorithm](topology, planned, **rooted)
        except UnsupportedError as error:
            refusal = refusal or str(error)
            continue
        notes: dict[str, float | str] = {
            "algorithm": best.algorithm,
            "protocol": best.protocol,
            "generation": machine.generation,
            "nccl_us": round(float(best.time), 3),
        }
        if size is not None:
            notes["planned_for"] = f"{num_bytes} bytes, NCCL's {best.algorithm} with {best.protocol}"
        options: dict[str, int | str] = {} if size is None else {"size": num_bytes}
        if as_version(version) != VERSIONS[1]:
            options["version"] = version
        return replace(candidate, planner="nccl", options=options, provenance={**candidate.provenance, **notes})
    raise UnsupportedError(f"NCCL's algorithms do not suit {topology}: {refusal}")


def nccl_choices(
    topology: Topology,
    collective: Collective,
    size: int,
    *,
    version: str = VERSIONS[1],
    root: int | str | None = None,
) -> list[Choice]:
    """Time what NCCL could run, fastest first.

    Where NVSwitches do not join the GPUs, channels are not searched for; the bandwidth is that of a plan.
    """
    version, machine = as_version(version), machine_of(topology)
    if machine.is_switched and search(machine, "ring").channels:
        rates: dict[str, Fraction | None] = dict.fromkeys(ALGORITHMS[collective])
    else:
        rates = _planned_rates(topology, collective, machine, {} if root is None else {"root": root})
    timed = (choices(machine, collective, name, size, version, rate) for name, rate in rates.items())
    return sorted((choice for of_algorithm in timed for choice in of_algorithm), key=lambda choice: choice.time)


def _planned_rates(
    topology: Topology, collective: Collective, machine: Machine, rooted: dict[str, int | str]
) -> dict[str, Fraction | None]:
    """Bus bandwidths of plans, of which links reach the share that NCCL or RCCL counts on."""
    share = NVLINK["volta"] if machine.generation == "volta" else OTHER_LINKS
    rates: dict[str, Fraction | None] = {}
    refusals = []
    for name in ("ring", "tree", "pat"):
        if name in ALGORITHMS[collective]:
            try:
                algbw = PLANS[name](topology, collective, **rooted).algbw
            except UnsupportedError as error:
                refusals.append(str(error))
                continue
            factor = collective.bus_factor(topology.num_ranks) if name == "ring" else {"tree": 2}.get(name, 1)
            rates[name] = algbw * factor * share
    if not rates:
        raise UnsupportedError(f"NCCL's algorithms do not suit {topology}: {refusals[0]}")
    return rates


@lru_cache(maxsize=8)  # it is the same for all sizes
def machine_of(topology: Topology) -> Machine:
    """Describe the hardware as NCCL's model sees it: the median GPU of the first box, and what leaves this box.

    Links between boxes that take longer than InfiniBand's are those of a plugin, which states that latency.
    """
    problem = cut_problem(topology, "broadcast", ())
    hops, unit = Hops(problem), topology.arrays.unit
    boxes = separate_boxes(hops)
    first = boxes[0]
    rates = sorted(_rate_inside(hops, first, rank) for rank in first[:SEVERAL])
    inside = rates[len(rates) // 2] * unit
    out = nic = net_latency = Fraction(0)
    if len(boxes) > 1:
        out = _rate_out(problem, first) * unit
        nic = min(out, _nic_rate(hops, first[0], boxes[1][0]) * unit)
        links = [link for route in hops.routes(first[0], boxes[1][0])[:1] for link in route.links]
        slowest = max((topology.link_at(link).latency for link in links), default=FABRIC_LATENCY)
        net_latency = max(net_latency, 2 * (slowest - FABRIC_LATENCY))
    length = hops.nearest(first[0])[0]
    reducers = {topology.node_index[name] for name in topology.multicast & topology.aggregation}
    has_nvls = not reducers.isdisjoint(hops.following(first[0]))
    fitting = [name for name, floor in GENERATIONS.items() if floor <= inside]
    generation = "hopper" if has_nvls and len(fitting) < 3 else fitting[-1]  # H800 has fewer links
    return Machine(topology.num_ranks, len(boxes), generation, inside, out, nic, length != 1, has_nvls, net_latency)


def _nic_rate(hops: Hops, rank: int, other: int) -> int:
    """Capacity of a NIC on the way to another box, as one GPU fills it: imports may divide a GPU among several NICs."""
    routes, capacities = hops.routes(rank, other), hops.problem.capacities
    if not routes:
        return 0
    own = sum(int(capacities[link]) for link in {route.links[0] for route in routes})
    return min(own, max(min(int(capacities[link]) for link in route.links[1:-1] or route.links) for route in routes))


def separate_boxes(hops: Hops) -> tuple[tuple[int, ...], ...]:
    """Group the ranks into boxes; those that only meet outside their group are boxes of their own."""
    boxes = find_boxes(hops)
    if len(boxes) > 1:
        routes = hops.routes(boxes[0][0], boxes[1][0])
        if not _links_inside(hops, boxes[0], boxes[0][0]).isdisjoint(route.links[0] for route in routes):
            return tuple((rank,) for rank in range(hops.problem.topology.num_ranks))
    return boxes


def _links_inside(hops: Hops, box: Sequence[int], rank: int) -> set[int]:
    """First links from a rank to the nearest others of its box."""
    peers = set(hops.nearest(rank)[1]).intersection(box)
    return {route.links[0] for peer in peers for route in hops.routes(rank, peer)}


def _rate_inside(hops: Hops, box: Sequence[int], rank: int) -> int:
    """Capacity of these links."""
    return sum(int(hops.problem.capacities[link]) for link in _links_inside(hops, box, rank))


def _rate_out(problem: TreeProblem, box: Sequence[int]) -> int:
    """Capacity from a box to all other ranks: the minimum cut around it."""
    ranks, nodes = problem.topology.num_ranks, problem.num_nodes
    outside = np.setdiff1d(np.arange(ranks), box)
    tails = np.concatenate([problem.tails, np.full(len(box), nodes), outside])
    heads = np.concatenate([problem.heads, box, np.full(len(outside), nodes + 1)])
    capacities = np.concatenate([problem.capacities, np.full(ranks, problem.capacities.sum())])
    return max_flow(nodes + 2, tails, heads, capacities, nodes, nodes + 1).value
