"""What NCCL would run: rings, double binary trees, NVLS, NVLSTree or PAT, by its own model of their times.

NCCL takes, for each size, the algorithm and the protocol with the least time by the constants of its tuning; see
`nccl_tuning` for those, with their lines, and for what is left out.  The bandwidths here are those of collopt's plans
of these algorithms, the generation of GPUs is guessed from their bandwidth inside a box, and the plan is that of the
algorithm chosen.  A protocol makes no difference to the plan.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Collective, as_bytes
from ...schedules.traffic.collective import TREE_COLLECTIVES, AnyCollective, as_collective
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ..patterns.double_binary_tree import plan_double_binary_tree
from ..patterns.fixed_pattern import Hops, find_boxes
from ..patterns.nvls import plan_nvls, plan_nvls_tree
from ..patterns.ring import plan_ring
from ..plans.plan import Plan
from ..trees.problem import tree_problem
from .nccl_tuning import ALGORITHMS, GENERATIONS, Choice, Machine, choices
from .rank_offsets import plan_pat

LARGE = 2**32  # bytes, where bandwidth decides

PLANS: dict[str, Callable[..., Plan]] = {
    "ring": plan_ring,
    "tree": plan_double_binary_tree,
    "nvls": plan_nvls,
    "nvls-tree": lambda topology, _: plan_nvls_tree(topology),
    "pat": plan_pat,
}


def plan_nccl(
    topology: Topology, collective: AnyCollective, *, size: int | str | None = None, root: int | str | None = None
) -> Plan:
    """Plan as NCCL would choose for a size, by default one so large that bandwidth decides.

    The ``provenance`` says which algorithm and protocol it is, and the µs of NCCL's model.
    """
    as_topology(topology)
    known = as_collective(collective, TREE_COLLECTIVES, "NCCL's planner does not implement")
    num_bytes = LARGE if size is None else as_bytes(size)
    machine = machine_of(topology)
    found = list[tuple[Choice, Plan]]()
    refusals = list[str]()
    for algorithm in ALGORITHMS[known]:
        try:
            made = _plan(algorithm, topology, known, root)
        except UnsupportedError as error:
            refusals.append(str(error))
            continue
        timed = choices(machine, known, algorithm, made.algbw, _channels(made), num_bytes)
        found += [(choice, made) for choice in timed]
    if not found:
        raise UnsupportedError(f"NCCL's algorithms do not suit {topology}: {refusals[0]}")
    best, made = min(found, key=lambda pair: pair[0].time)
    notes: dict[str, float | str] = {
        "algorithm": best.algorithm,
        "protocol": best.protocol,
        "generation": machine.generation,
        "nccl_us": round(float(best.time), 3),
    }
    options: dict[str, int | str] = {}
    if size is not None:
        options["size"] = num_bytes
        notes["planned_for"] = f"{num_bytes} bytes, NCCL's {best.algorithm} with {best.protocol}"
    return replace(made, planner="nccl", options=options, provenance={**made.provenance, **notes})


def machine_of(topology: Topology) -> Machine:
    """Describe the hardware as NCCL's model sees it; ranks that only meet outside their group are boxes."""
    problem = tree_problem(topology, "broadcast", ())
    hops = Hops(problem)
    boxes = find_boxes(hops)
    first = boxes[0][0]
    inside = {
        route.links[0] for rank in hops.nearest(first)[1] if rank in boxes[0] for route in hops.routes(first, rank)
    }
    if len(boxes) > 1 and inside & {route.links[0] for route in hops.routes(first, boxes[1][0])}:
        boxes, inside = tuple((rank,) for rank in range(topology.num_ranks)), set()
    speed = int(problem.capacities[np.array(sorted(inside), dtype=np.int64)].sum()) * topology.arrays.unit
    generation = max((name for name, least in GENERATIONS.items() if least <= speed), key=GENERATIONS.__getitem__)
    return Machine(topology.num_ranks, len(boxes), generation)


def _plan(algorithm: str, topology: Topology, collective: Collective, root: int | str | None) -> Plan:
    options: dict[str, Any] = {} if root is None else {"root": root}
    return PLANS[algorithm](topology, collective, **options)


def _channels(plan: Plan) -> int:
    """Rings or trees among which the data is divided."""
    return plan.trees.forests[-1].trees_per_root if plan.schedule.pipelined else 1
