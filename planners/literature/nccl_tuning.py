"""NCCL's own model of its speed: channels that its graph search finds, and times of algorithms and protocols.

Versions are those of src/graph/search.cc and tuning.cc at tags v2.27.7-1 and v2.30.7-1, and of src/tuning of the branch
dev at 86fa684d for 2.31; lines in parentheses are those of 2.30.  The search over links is here a division of the
bandwidth of a GPU and of the NICs, as all GPUs of a box are alike.
"""

from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from ...errors import UnsupportedError
from ...schedules import ALLGATHER, ALLREDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, Collective
from ...support.validation import shown

PROTOCOLS = ("LL", "LL128", "Simple")
VERSIONS = ("2.27", "2.30", "2.31")
"""NCCL 2.27 stands for 2.23 to 2.27, and 2.30 for 2.28 to 2.30 but for limits of GB200."""
MAX_CHANNELS = 32  # of a ring: MAXCHANNELS / 2
MAX_HEADS = 32  # NCCL_MAX_NVLS_ARITY

Numbers = tuple[Fraction, ...]


@cache
def _numbers(text: str) -> Numbers:
    return tuple(map(Fraction, text.split()))


GENERATIONS = {"volta": 0, "ampere": 200, "hopper": 400, "blackwell": 800}
"""GB/s to the GPUs of a box from which on a GPU counts as one of a generation: below V100, A800, H100 and B200."""

NVLINK = {name: Fraction(text) for name, text in zip(GENERATIONS, ("4/5", "4/5", "103/125", "401/500"), strict=True)}
"""Share of a link's bandwidth that NCCL counts on: 20 of 25 GB/s, 20.6 of 25 and 40.1 of 50 (src/graph/topo.h)."""
OTHER_LINKS = Fraction(3, 4)
"""The same of AMD's links: 48 of 64 GB/s in topo.h of RCCL."""

_OLD_INSIDE = _numbers("40 30 20 18 15 12 10 9 7 6 5 4 3")
_OLD_BETWEEN = _numbers("48 30 28 24 20 18 15 12 10 9 7 6 5 4 3 2.4 1.2 .24 .12")
SPEEDS: dict[str, tuple[Numbers, Numbers]] = {
    "volta": (_OLD_INSIDE, _OLD_BETWEEN),
    "ampere": (_OLD_INSIDE, _OLD_BETWEEN),
    "hopper": (
        _numbers("60 50 40 30 24 20 15 12 11 6 3"),
        _numbers("48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12"),
    ),
    "blackwell": (
        _numbers("90 80 70 60 50 45 40 30 24 20 19 18"),
        _numbers("96 86 80 48 45.1 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 .24 .12"),
    ),
}
"""Speeds of a channel in GB/s that the search tries, in one box and between boxes (search.cc)."""

BASE = {"tree": "6.8 14 8.4", "ring": "6.6 14 8.4", "pat": "8 8 8"}
"""Microseconds of a call by protocol (149-155); none with NVLS."""
INSIDE = {"tree": ".6 1.25 4", "ring": ".6 1.9 3.4", "nvls": "0 0 25", "nvls-tree": "0 0 25", "pat": "0 0 4"}
BETWEEN = {"tree": "5 8.5 14", "ring": "2.7 4 14", "nvls": "0 0 18", "nvls-tree": "0 0 20.9", "pat": "0 0 14"}
"""Microseconds of a step inside a box over NVLink, and between boxes (156-176)."""
NVLS_TREE_2_27 = Fraction(14)  # between boxes

# Limits in GB/s for one, two and more boxes (177-212).
LL = {"volta": "39 39 20.4", "ampere": "87.7 22.5 19", "hopper": "141 45 35", "blackwell": "282 90 70"}
"""Of LL on the bus.  Several boxes take the first row, that of Intel's processors (269-272)."""
RING_LL128 = {"volta": "20 20 20", "ampere": "20 20 20", "hopper": "36.7 36.7 36.7", "blackwell": "40 40 40"}
TREE_LL128 = {"volta": "20 20 20", "ampere": "20 20 20", "hopper": "36.7 36.7 29", "blackwell": "55.6 31.67 20"}
TREE = {"volta": "26.5 18.5 10", "ampere": "24 23.6 17.8", "hopper": "38.7 41.4 36", "blackwell": "70 42.8 24"}
NVLS_TREE = {"volta": "26.5 18.5 10", "ampere": "24 23.6 17.8", "hopper": "0 57.7 45.5", "blackwell": "0 96 80"}
BLACKWELL_2_27 = {"ring": "73.4 73.4 73.4", "tree LL128": "73.4 73.4 58", "tree": "77.4 82.8 72"}

NVLS_EFFICIENCY = dict(zip(GENERATIONS, _numbers("0 0 .85 .74"), strict=True))  # (139-144)
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
"""What NCCL runs without CollNet (294-298), and without windows of symmetric memory, which it needs calls for."""


class Machine(NamedTuple):
    """What the model knows of the hardware; rates are those of its links."""

    ranks: int
    boxes: int
    generation: str
    gpu_rate: Fraction  # GB/s from a GPU into its box
    box_rate: Fraction  # GB/s out of a box; 0 of a single one
    nic_rate: Fraction  # GB/s of a NIC
    is_switched: bool  # Whether NVSwitches join the GPUs of a box, or each has a box of its own
    has_nvls: bool  # Whether these add up and copy
    net_latency: Fraction = Fraction(0)  # µs that the plugin of the network states; 0 of InfiniBand and RoCE

    @property
    def per_box(self) -> int:
        """GPUs of a box, rounded down."""
        return self.ranks // self.boxes

    @property
    def nics(self) -> int:
        """NICs of a box."""
        return int(self.box_rate / self.nic_rate) if self.nic_rate else 0

    @property
    def nvlink_rate(self) -> Fraction:
        """GB/s from a GPU into its box as NCCL counts them."""
        return self.gpu_rate * NVLINK[self.generation]


class Choice(NamedTuple):
    """An algorithm with a protocol, and its time in µs by NCCL's model."""

    time: Fraction
    algorithm: str
    protocol: str


class Graph(NamedTuple):
    """Channels of an algorithm, with their GB/s inside boxes and between them."""

    channels: int
    inside: Fraction
    between: Fraction


def search(machine: Machine, algorithm: str) -> Graph:
    """Find the channels of an algorithm as `ncclTopoCompute` does, on a machine with NVSwitches."""
    speeds = SPEEDS[machine.generation][machine.boxes > 1]
    if algorithm.startswith("nvls"):
        return _heads(machine, speeds)
    ring = _ring(machine, speeds)
    if algorithm == "ring":
        return ring
    # Trees have as many channels; their bandwidth inside boxes goes up, by one speed after the other.
    inside, limit = ring.inside, machine.nvlink_rate
    if machine.boxes == 1 and machine.per_box > 2:
        limit *= Fraction(9, 10) if machine.per_box < 5 else 0  # beyond, its search gives up
    for speed in reversed([speed for speed in speeds if speed > ring.inside]):
        crowded = ring.channels * speed * (machine.per_box - 1) > limit * machine.per_box
        if inside >= 2 * ring.between or crowded:
            break
        inside = speed
    return Graph(ring.channels, inside, inside if machine.boxes == 1 else ring.between)


def _ring(machine: Machine, speeds: Iterable[Fraction]) -> Graph:
    """Channels of rings: through all GPUs of a box, and between boxes from a NIC to a NIC."""
    total, best = machine.nvlink_rate, Graph(0, Fraction(0), Fraction(0))
    for speed in speeds:
        if best.channels and speed <= Fraction(49, 100) * best.inside:
            break
        limits = [MAX_CHANNELS]
        if machine.per_box > 1:  # a ring that leaves the box does not close in it
            links = machine.per_box - (machine.boxes > 1)
            limits.append(int(total * machine.per_box / (speed * links)))
        if machine.boxes > 1:
            limits.append(machine.nics * int(machine.nic_rate / speed))
        if min(limits) * speed > best.channels * best.inside:
            best = Graph(min(limits), speed, speed)
        if machine.per_box > 1 and best.channels * speed >= total:
            break
    # ncclTopoDupChannels: fast channels become two.
    slowest = 25 if machine.generation in ("volta", "ampere") or best.channels <= 4 else 50
    if best.inside >= slowest:
        twice = min(2 * best.channels, MAX_CHANNELS)
        parts = -(-twice // max(best.channels, 1))
        best = Graph(twice, best.inside / parts, best.between / parts)
    return best


def _heads(machine: Machine, speeds: Iterable[Fraction]) -> Graph:
    """Channels of NVLS: one for each head, which every GPU of the box sends to, the head itself twice."""
    heads = min(machine.per_box, MAX_HEADS, machine.nics if machine.boxes > 1 else MAX_HEADS)
    usable_speeds = [speed for speed in speeds if machine.boxes == 1 or speed <= machine.nic_rate]
    inside = next((speed for speed in usable_speeds if speed * (heads + 1) <= machine.nvlink_rate), Fraction(0))
    between = inside
    for speed in reversed([speed for speed in usable_speeds if speed > inside]):
        if between < 2 * inside:
            between = speed
    return Graph(heads if inside and machine.has_nvls else 0, inside, between)


def as_version(version: object) -> str:
    """Return the version that stands for a release of NCCL, such as ``"2.27"`` for ``"2.27.5"``."""
    parts = str(version).split(".")
    if parts[0] == "2" and len(parts) > 1 and parts[1].isdecimal() and int(parts[1]) >= 23:
        return VERSIONS[(int(parts[1]) > 27) + (int(parts[1]) > 30)]
    raise UnsupportedError(f"NCCL's version is {shown(version)}; expected one from 2.23 on, such as {VERSIONS[-2]!r}")


def choices(
    machine: Machine, collective: Collective, algorithm: str, size: int, version: str, rate: Fraction | None = None
) -> list[Choice]:
    """Time an algorithm with each of its protocols; none if the hardware does not have it.

    Where NVSwitches do not join the GPUs, `rate` is the bus bandwidth in GB/s that its channels have together.
    """
    graph = (
        search(machine, algorithm) if rate is None else Graph(MAX_CHANNELS, rate / MAX_CHANNELS, rate / MAX_CHANNELS)
    )
    options = []
    for place, protocol in enumerate(PROTOCOLS):
        speed = _bandwidth(machine, collective, algorithm, graph, place, version)
        if algorithm == "tree" or (
            algorithm == "nvls-tree" and machine.generation == "blackwell" and version != "2.27"
        ):
            speed *= _correction(protocol, size, last=23 if algorithm == "tree" else 24)
        if speed:
            delay = _latency(machine, collective, algorithm, place, version)
            is_large = machine.boxes > 1 and collective is ALLREDUCE and size // (graph.channels * machine.ranks) >= 64
            if (algorithm, protocol) == ("ring", "Simple") and is_large:  # its latency counts more (647-650)
                delay *= Fraction("1.9" if machine.generation == "volta" else "1.4")
            options.append(Choice(delay + Fraction(size) / (1000 * speed), algorithm, protocol))
    return options


def fastest(machine: Machine, collective: Collective, size: int, version: str = VERSIONS[1]) -> Choice:
    """Choose as NCCL does on a machine with NVSwitches."""
    timed = (choices(machine, collective, name, size, version) for name in ALGORITHMS[collective])
    return min((choice for of_algorithm in timed for choice in of_algorithm), key=lambda choice: choice.time)


def _bandwidth(
    machine: Machine, collective: Collective, algorithm: str, graph: Graph, place: int, version: str
) -> Fraction:
    """GB/s of data with a protocol (301-337, 500-510); 0 if it does not run."""
    two_boxes, protocol = machine.boxes <= 2, PROTOCOLS[place]

    def limit(rows: dict[str, str], old: str = "", generation: str = machine.generation) -> Fraction:
        is_old = version == "2.27" and generation == "blackwell" and old
        return _numbers(BLACKWELL_2_27[old] if is_old else rows[generation])[min(machine.boxes, 3) - 1]

    ll_limit = limit(LL, generation=machine.generation if machine.boxes == 1 else "volta")
    if algorithm.startswith("nvls"):
        runs = protocol == "Simple" and graph.channels > 1 and (machine.boxes == 1) == (algorithm == "nvls")
        return _nvls_bandwidth(machine, collective, graph, limit(NVLS_TREE), version) if runs else Fraction(0)
    if algorithm == "pat":
        runs = protocol == "Simple" and machine.per_box == 1 and machine.boxes > 1
        # As for trees with one GPU in each box, and not divided by steps (335, 372).
        return Fraction(3, 4) * graph.channels * (graph.inside if two_boxes else graph.between) if runs else Fraction(0)
    if algorithm == "ring":
        bus = graph.channels * graph.between
        if protocol == "LL":
            bus = min(bus / 2, ll_limit)
        if protocol == "LL128":
            bus = min(bus * Fraction("0.92"), graph.channels * limit(RING_LL128, "ring"))
        return bus * machine.ranks / _ring_steps(machine, collective)
    channel = graph.inside if two_boxes and version != "2.31" else graph.between
    bus = graph.channels * min(channel * Fraction("0.92"), limit(TREE, "tree"))
    if protocol == "LL":
        bus = min(bus / Fraction("3.8"), ll_limit)
    if protocol == "LL128":
        steady = Fraction(7, 9) if machine.boxes == 1 else Fraction(120, 128)
        bus = min(bus * steady, graph.channels * limit(TREE_LL128, "tree LL128"))
    return bus * (Fraction(17, 20) if _is_plain_tree(machine) else 1) / 2


def _is_plain_tree(machine: Machine) -> bool:
    """Whether the search finds no trees whose traffic with NICs is divided among two GPUs of a box."""
    if machine.boxes == 1:
        return machine.generation == "blackwell" and machine.per_box in (3, 4)
    return machine.per_box == 1 or (machine.generation in ("hopper", "blackwell") and machine.nics >= machine.per_box)


def _nvls_bandwidth(
    machine: Machine, collective: Collective, graph: Graph, channel_limit: Fraction, version: str
) -> Fraction:
    """GB/s of data of NVLS and NVLSTree (311-325; 264-274 of 2.27)."""
    per_box = machine.per_box
    if version == "2.27":
        if collective is not ALLREDUCE:  # not converted to data
            return graph.channels * min(graph.inside * (per_box - 1) / per_box, graph.between * Fraction(9, 10))
        halved = graph.between / 2 if machine.boxes > 2 else graph.between
        return graph.channels * min(graph.inside, halved) * Fraction(5, 6)
    efficiency = NVLS_EFFICIENCY[machine.generation] * (graph.channels - 1) / graph.channels
    inside = graph.inside * efficiency * (2 if collective is ALLREDUCE else Fraction(per_box - 1, per_box))
    between = graph.between * (2 if machine.boxes == 2 else 1)
    channel = min(inside, between, channel_limit) if machine.boxes > 1 else min(inside, between)
    is_data = collective is not ALLREDUCE and version != "2.31"
    return graph.channels * channel * (1 if is_data else Fraction(machine.ranks, _ring_steps(machine, collective)))


def _latency(machine: Machine, collective: Collective, algorithm: str, place: int, version: str) -> Fraction:
    """Latencies of all steps, and of the call (383-435)."""
    inside, between = _numbers(INSIDE[algorithm])[place], _numbers(BETWEEN[algorithm])[place]
    if algorithm == "nvls-tree" and version == "2.27":
        between = NVLS_TREE_2_27
    if machine.per_box == 1 and version != "2.31":  # latencies are fully exposed: those of the tree (386-388)
        between = _numbers(BETWEEN["tree"])[place]
    # The flush counts as much again (389-391); 2.31 leaves the first out of PAT (pat.cc:48).
    counted = (algorithm != "pat" or version != "2.31") + (PROTOCOLS[place] == "Simple")
    between += counted * machine.net_latency
    total = _numbers(BASE.get(algorithm, "0 0 0"))[place]
    doublings = machine.boxes.bit_length() - 1
    if algorithm == "ring" and collective.has_one_root:
        rows = INSIDE if machine.boxes == 1 or version == "2.31" else BETWEEN
        if machine.boxes == 1 or machine.per_box == 1:
            return total + _numbers(rows["ring"])[place]
        # Boxes have channels of different orders then, whose chunks wait for each other (392-398).
        return total + machine.ranks * _numbers(rows["tree" if PROTOCOLS[place] == "Simple" else "ring"])[place]
    if algorithm == "ring":
        if machine.boxes > 1:
            inside = max(inside, Fraction(NET_OVERHEAD * (3 if PROTOCOLS[place] == "Simple" else 1)))
        steps = (machine.boxes - 1) * (2 if collective.has_two_phases else 1)
        return total + (_ring_steps(machine, collective) - steps) * inside + steps * between
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


def _correction(protocol: str, size: int, *, last: int) -> Fraction:
    """Share of a tree's bandwidth at a size (639-646)."""
    doublings = (size >> 6).bit_length() - 1
    return _numbers(TREE_CORRECTION[protocol])[doublings] if 0 <= doublings < last else Fraction(1)
