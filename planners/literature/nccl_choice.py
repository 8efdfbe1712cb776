"""What NCCL would run: rings, double binary trees, NVLS, NVLSTree or PAT, by its own model of their times.

NCCL takes the algorithm and the protocol of least time for a size.  Constants and formulas are those of
src/graph/tuning.cc at 5067397 (June 2026), whose lines are in parentheses; bandwidths are those of collopt's plans.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from ...errors import UnsupportedError
from ...schedules import ALLGATHER, ALLREDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, Collective, as_bytes
from ...schedules.collective import TREE_COLLECTIVES, AnyCollective, as_collective
from ...topologies import Topology
from ..plans.plan import Plan
from ..plans.registry import register_planner
from ..trees.problem import shard_weights, tree_problem
from .nccl_trees import plan_double_binary_tree, plan_nvls, plan_nvls_tree
from .rank_offsets import plan_pat
from .ring import plan_ring
from .routes import Hops, find_boxes

PROTOCOLS = ("LL", "LL128", "Simple")

GENERATIONS = {"volta": 0, "ampere": 250, "hopper": 400, "blackwell": 800}
"""GB/s to the GPUs of a box from which on a GPU counts as one of a generation: below V100, A100, H100 and B200."""

Row = tuple[str, str, str]
"""A value for each protocol, in decimals."""

BASE: dict[str, Row] = {
    "tree": ("6.8", "14.0", "8.4"),
    "ring": ("6.6", "14.0", "8.4"),
    "nvls": ("0", "0", "0"),
    "nvls-tree": ("0", "0", "0"),
    "pat": ("8.0", "8.0", "8.0"),
}
"""Microseconds of a call (149-155)."""

HARDWARE: dict[str, dict[str, Row]] = {
    "nvlink": {
        "tree": ("0.6", "1.25", "4.0"),
        "ring": ("0.6", "1.9", "3.4"),
        "nvls": ("0", "0", "25"),
        "nvls-tree": ("0", "0", "25"),
        "pat": ("0", "0", "4.0"),
    },
    "net": {
        "tree": ("5.0", "8.5", "14"),
        "ring": ("2.7", "4.0", "14.0"),
        "nvls": ("0", "0", "18"),
        "nvls-tree": ("0", "0", "20.9"),
        "pat": ("0", "0", "14"),
    },
}
"""Microseconds of a step inside a box and between boxes (156-176)."""

LL_BANDWIDTHS = {
    "volta": ("39.0", "39.0", "20.4"),
    "ampere": ("87.7", "22.5", "19.0"),
    "hopper": ("141.0", "45.0", "35.0"),
    "blackwell": ("282.0", "90.0", "70.0"),
}
"""Largest bus bandwidths of LL in GB/s on one, two and more boxes (177-183).  Several boxes take the first row, that of
Intel's processors (269-272)."""

NVLS_EFFICIENCY = {"volta": "0", "ampere": "0", "hopper": "0.85", "blackwell": "0.74"}  # (139-144)

NET_OVERHEAD = 1  # microseconds of a message between boxes, three times that with Simple (228-233, 404-410)
TREE_CORRECTION = {
    "LL": "1 1 1 1 .9 .8 .7 .7 .7 .7 .6 .5 .4 .4 .5 .6 .7 .8 .9 1 1 1 1 1",
    "LL128": "1 1 1 1 1 .9 .8 .8 .8 .7 .6 .6 .6 .6 .6 .6 .8 .9 .9 .9 .9 1 1 1",
    "Simple": ".9 .9 .9 .9 .9 .9 .9 .8 .7 .6 .6 .5 .5 .5 .5 .6 .7 .8 .7 .7 .8 .9 .9 .9",
}
"""Shares of a tree's bandwidth from 64 bytes on, for each doubling (623-627)."""

ALGORITHMS: dict[Collective, tuple[str, ...]] = {
    ALLREDUCE: ("ring", "tree", "nvls", "nvls-tree"),
    ALLGATHER: ("ring", "nvls", "pat"),
    REDUCE_SCATTER: ("ring", "nvls", "pat"),
    BROADCAST: ("ring",),
    REDUCE: ("ring",),
}
"""What NCCL runs without CollNet (294-298)."""


class Machine(NamedTuple):
    """What the model knows of the hardware: ranks, boxes, and the generation of GPUs."""

    ranks: int
    boxes: int
    generation: str

    @property
    def per_box(self) -> Fraction:
        """Ranks of a box."""
        return Fraction(self.ranks, self.boxes)


class Choice(NamedTuple):
    """An algorithm with a protocol, and its time in µs by NCCL's model."""

    time: Fraction
    algorithm: str
    protocol: str


def choices(
    machine: Machine, collective: Collective, algorithm: str, rate: Fraction, channels: int, size: int
) -> list[Choice]:
    """Time an algorithm with each of its protocols, at `rate` GB/s; none if the hardware does not have it."""
    options = []
    for place, protocol in enumerate(PROTOCOLS):
        speed = rate * _share(machine, collective, algorithm, place)
        if algorithm in ("ring", "tree") and protocol == "LL":
            # The limit is on the bus: the rate of data times this factor.
            factor = Fraction(_ring_steps(machine, collective), machine.ranks) if algorithm == "ring" else 2
            row = LL_BANDWIDTHS[machine.generation if machine.boxes == 1 else "volta"]
            speed = min(speed, Fraction(row[min(machine.boxes, 3) - 1]) / factor)
        if algorithm == "tree":
            speed *= _correction(protocol, size)
        if speed:
            delay = _latency(machine, collective, algorithm, place)
            is_large = machine.boxes > 1 and collective is ALLREDUCE and size // (channels * machine.ranks) >= 64
            if (algorithm, protocol) == ("ring", "Simple") and is_large:  # its latency counts more (647-650)
                delay *= Fraction("1.9" if machine.generation == "volta" else "1.4")
            options.append(Choice(delay + Fraction(size) / (1000 * speed), algorithm, protocol))
    return options


def _share(machine: Machine, collective: Collective, algorithm: str, place: int) -> Fraction:
    """Share of the bandwidth that a protocol reaches (301-337, 500-510); 0 if there is none."""
    one_box, each_alone = machine.boxes == 1, machine.boxes == machine.ranks
    if algorithm == "ring":
        return (Fraction(1, 2), Fraction("0.92"), Fraction(1))[place]
    if algorithm == "tree":
        steady = Fraction(7, 9) if one_box else Fraction(120, 128)
        return Fraction("0.92") * (Fraction(10, 38), steady, Fraction(1))[place]
    if PROTOCOLS[place] != "Simple":
        return Fraction(0)
    if algorithm == "pat":
        return Fraction("0.75") if each_alone and collective in (ALLGATHER, REDUCE_SCATTER) else Fraction(0)
    runs = one_box if algorithm == "nvls" else not one_box
    return Fraction(NVLS_EFFICIENCY[machine.generation]) if runs else Fraction(0)


def _latency(machine: Machine, collective: Collective, algorithm: str, place: int) -> Fraction:
    """Latencies of all steps, and of the call (383-435)."""
    inside = Fraction(HARDWARE["nvlink"][algorithm][place])
    # With one GPU for each box, latencies are fully exposed: those of the tree (386-388).
    between = Fraction(HARDWARE["net"]["tree" if machine.per_box == 1 else algorithm][place])
    total, doublings = Fraction(BASE[algorithm][place]), machine.boxes.bit_length() - 1
    if algorithm == "ring" and collective.has_one_root:
        return total + Fraction(HARDWARE["nvlink" if machine.boxes == 1 else "net"]["ring"][place])
    if algorithm == "ring":
        if machine.boxes > 1:
            inside = max(inside, Fraction(NET_OVERHEAD * (3 if PROTOCOLS[place] == "Simple" else 1)))
        far = (machine.boxes - 1) * (2 if collective.has_two_phases else 1)
        return total + (_ring_steps(machine, collective) - far) * inside + far * between
    if algorithm == "tree":
        return total + 2 * ((machine.per_box - 1) * inside + doublings * between)
    if algorithm == "nvls":
        return inside
    if algorithm == "nvls-tree":
        return total + inside + 2 * doublings * between
    return total + doublings * between / Fraction("3.5") + machine.ranks * Fraction("2.8")


def _ring_steps(machine: Machine, collective: Collective) -> int:
    """Messages that follow each other around the ring (289-291)."""
    if collective.has_one_root:
        return machine.ranks
    return (machine.ranks - 1) * (2 if collective.has_two_phases else 1)


def _correction(protocol: str, size: int) -> Fraction:
    """Share of a tree's bandwidth at a size (639-642)."""
    doublings = (size >> 6).bit_length() - 1
    return Fraction(TREE_CORRECTION[protocol].split()[doublings]) if 0 <= doublings < 23 else Fraction(1)


LARGE = 2**32  # bytes, where bandwidth decides

PLANS: dict[str, Callable[..., Plan]] = {
    "ring": plan_ring,
    "tree": plan_double_binary_tree,
    "nvls": plan_nvls,
    "nvls-tree": lambda topology, _: plan_nvls_tree(topology),
    "pat": plan_pat,
}


@register_planner("nccl", TREE_COLLECTIVES)
def plan_nccl(
    topology: Topology, collective: AnyCollective, *, size: int | str | None = None, root: int | str | None = None
) -> Plan:
    """Plan rings, trees, NVLS or PAT, whichever NCCL's tuning chooses for the size."""
    planned = as_collective(collective, TREE_COLLECTIVES, "NCCL's planner does not implement")
    shard_weights(topology, planned, root, None)  # refuses a root that the collective does not have
    num_bytes = LARGE if size is None else as_bytes(size)
    machine, rooted = machine_of(topology), {} if root is None else {"root": root}
    plans, refusals = list[tuple[Choice, Plan]](), list[str]()
    for algorithm in ALGORITHMS[planned]:
        try:
            candidate = PLANS[algorithm](topology, planned, **rooted)
        except UnsupportedError as error:
            refusals.append(str(error))
            continue
        channels = candidate.trees.forests[-1].trees_per_root if candidate.schedule.pipelined else 1
        timed = choices(machine, planned, algorithm, candidate.algbw, channels, num_bytes)
        plans += [(choice, candidate) for choice in timed]
    if not plans:
        raise UnsupportedError(f"NCCL's algorithms do not suit {topology}: {refusals[0]}")
    best, candidate = min(plans, key=lambda pair: pair[0].time)
    notes: dict[str, float | str] = {
        "algorithm": best.algorithm,
        "protocol": best.protocol,
        "generation": machine.generation,
        "nccl_us": round(float(best.time), 3),
    }
    if size is not None:
        notes["planned_for"] = f"{num_bytes} bytes, NCCL's {best.algorithm} with {best.protocol}"
    options = {} if size is None else {"size": num_bytes}
    return replace(candidate, planner="nccl", options=options, provenance={**candidate.provenance, **notes})


def machine_of(topology: Topology) -> Machine:
    """Describe the hardware as NCCL's model sees it."""
    problem = tree_problem(topology, "broadcast", ())
    hops = Hops(problem)
    boxes = separate_boxes(hops)
    speed = sum(int(problem.capacities[link]) for link in _links_inside(hops, boxes[0])) * topology.arrays.unit
    return Machine(topology.num_ranks, len(boxes), [name for name, floor in GENERATIONS.items() if floor <= speed][-1])


def separate_boxes(hops: Hops) -> tuple[tuple[int, ...], ...]:
    """Group the ranks into boxes; those that only meet outside their group are boxes of their own."""
    boxes = find_boxes(hops)
    first = boxes[0][0]
    if len(boxes) > 1 and _links_inside(hops, boxes[0]) & {route.links[0] for route in hops.routes(first, boxes[1][0])}:
        return tuple((rank,) for rank in range(hops.problem.topology.num_ranks))
    return boxes


def _links_inside(hops: Hops, box: Sequence[int]) -> set[int]:
    """First links from the first rank of a box to the others."""
    return {route.links[0] for rank in hops.nearest(box[0])[1] if rank in box for route in hops.routes(box[0], rank)}
