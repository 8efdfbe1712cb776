"""Rings as an NCCL graph file (``NCCL_GRAPH_FILE``), in the form of NCCL's dumps.

``graph`` 0 stands for rings; ``dev`` of a ``gpu`` is NVML's number; where a ring leaves the box, a ``net`` with NCCL's
number of the NIC stands before the first gpu and after the last.  Both are read as hexadecimal (src/graph/search.cc of
NCCL 2.30.7, line 902).  Every box reads a file of its own.
"""

from __future__ import annotations

import math
import os
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Forest
from ...support.validation import as_integers, as_kind, is_int, shown
from ...topologies import Topology
from ...topologies.network.links import node_kind
from ..lowering.devices import Crossing, boxes_of, crossings, environment_script, visible_gpus, write_with_environment
from ..lowering.trees import refuse_relays
from ..programs.program import check_choice

__all__ = ["PATH_TYPES", "export_nccl_graph"]

RING_GRAPH, RING_PATTERN = "0", "4"
PATH_TYPES = ("LOC", "NVL", "NVB", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""NCCL's names of ways between two devices, the best first (search.cc, line 887); others it takes for the best."""

Ring = tuple[int, ...]


def export_nccl_graph(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    gpus_per_box: int | None = None,
    box: int = 0,
    nics: Sequence[int] | None = None,
    type_intra: str = "NVL",
    type_inter: str = "PIX",
) -> None:
    """Write the rings of a plan as an NCCL graph file, each divided among as many channels as NCCL's search takes.

    Raises `UnsupportedError` if the plan does not consist of rings, each of which enters each box once, an option is
    invalid, or the number of a device is unknown; `OSError` if the file cannot be written.

    Parameters
    ----------
    plan : Plan
        Of rings.
    path : path
        File to write; beside it ``PATH.env``, a script that names GPUs and NICs, where the topology has their devices.
    gpus_per_box : int, optional
        Ranks per box, one box after the other; by default those whose names agree up to the last slash.
    box : int
        Which box's file to write.
    nics : sequence of int, optional
        NCCL's number of the NIC that each GPU of the box uses; by default those of the NICs that the plan takes.
    type_intra, type_inter : str
        How GPUs of the box reach each other and their NICs, in NCCL's terms: one of `PATH_TYPES`.
    """
    rings = ring_channels(plan)
    check_choice("type_intra", type_intra, PATH_TYPES)
    check_choice("type_inter", type_inter, PATH_TYPES)
    first, count, has_boxes = _box(plan, gpus_per_box, box)
    devices = _Devices(plan.topology, range(first, first + count))
    numbers = None if nics is None else _as_numbers(nics, count)
    parts, speed = channel_split(plan, len(rings), one_box=not has_boxes)
    ways = crossings(plan.schedule, plan.topology) if has_boxes and nics is None else {}
    channels = [
        channel
        for ring, copies in Counter(rings).items()
        for channel in devices.channels(ring, _channel(ring, first, count), copies * parts, ways)
    ]
    if len(channels) > MAX_CHANNELS:
        raise UnsupportedError(
            f"the plan divides rings among NICs so that they make {len(channels)} channels; NCCL takes {MAX_CHANNELS}: "
            "plan fewer rings, or give the NIC of each GPU (nics)"
        )
    speed = speed * parts * len(rings) / len(channels)
    if not has_boxes:
        channels = [channel._replace(enters=-1, leaves=-1) for channel in channels]
    elif numbers is not None:
        channels = [
            channel._replace(enters=numbers[channel.ranks[0] - first], leaves=numbers[channel.ranks[-1] - first])
            for channel in channels
        ]
    text = _text(channels, devices, float(speed), type_intra, type_inter)
    script = environment_script([devices.environment(named=has_boxes and nics is None)], "Environment of an NCCL graph")
    # NCCL's parser takes no declaration in front.
    write_with_environment(path, text, script)


class _Channel(NamedTuple):
    """Ranks of a box in the order in which a channel passes them, and NCCL's numbers of its NICs."""

    ranks: list[int]
    enters: int = -1
    leaves: int = -1


def _text(channels: list[_Channel], devices: _Devices, speed: float, type_intra: str, type_inter: str) -> str:
    """Format the file; channels in one box have no NICs."""
    graphs = ET.Element("graphs", version="1")
    graph = ET.SubElement(
        graphs,
        "graph",
        id=RING_GRAPH,
        pattern=RING_PATTERN,
        crossnic=str(int(any(channel.enters != channel.leaves for channel in channels))),
        nchannels=str(len(channels)),
        speedintra=f"{speed:g}",
        speedinter=f"{speed:g}",
        latencyinter="0",
        typeintra=type_intra,
        typeinter=type_inter,
        samechannels=str(int(len({tuple(channel.ranks) for channel in channels}) == 1)),
    )
    for channel in channels:
        element = ET.SubElement(graph, "channel")
        gpus = [("gpu", devices.gpus[rank]) for rank in channel.ranks]
        ends = [("net", channel.enters)], [("net", channel.leaves)]
        for tag, number in [*ends[0], *gpus, *ends[1]] if channel.enters >= 0 else gpus:
            ET.SubElement(element, tag, dev=f"{number:x}")
    ET.indent(graphs)
    return ET.tostring(graphs, encoding="unicode") + "\n"


class _Devices:
    """NCCL's numbers of the GPUs and NICs of a box."""

    def __init__(self, topology: Topology, ranks: Sequence[int]) -> None:
        self.topology, self.ranks = topology, ranks
        numbers = [topology.device(topology.compute_nodes[rank]).number for rank in ranks]
        counted = [place if number is None else number for place, number in enumerate(numbers)]
        if len(set(counted)) < len(counted):
            raise UnsupportedError(
                f"the GPUs of the box have the numbers {shown(numbers)} in NVML, one of them twice; expected those of "
                "one host"
            )
        self.gpus = dict(zip(ranks, counted, strict=True))
        prefix = topology.compute_nodes[ranks[0]].rpartition("/")[0] + "/"
        inside = [topology.device(node) for node in topology.switch_nodes if node.startswith(prefix)]
        # NCCL_IB_HCA leaves out all others, such as broken ones, which NCCL does not count either when they are down.
        named = sorted((number, device) for device in inside if (number := device.number) is not None)
        single = all(device.name and not {*device.name} & {*"+,:"} for _, device in named)
        self.nics = [device for _, device in named] if single else []

    def nic(self, node: int) -> int:
        """Return NCCL's number of a NIC."""
        name = self.topology.nodes[node]
        device = self.topology.device(name)
        if device in self.nics:
            return self.nics.index(device)
        digits = name[len(name.rstrip("0123456789")) :]
        if device.number is None and (device.stated or not digits):
            raise UnsupportedError(f"NCCL's number of {name} is not known; give those of all GPUs' NICs (nics)")
        return int(digits) if device.number is None else device.number

    def environment(self, *, named: bool) -> dict[str, str]:
        """Return the variables with which NCCL finds these GPUs, and if `named` these NICs, by these numbers."""
        if not named or not self.nics:
            return visible_gpus(self.topology, self.ranks)
        buses = [device.bus for device in self.nics]
        # NCCL sorts NICs by address since 2.29.7, unless told otherwise (net_ib/init.cc of 2.30.7, line 484).
        order = {"NCCL_IB_DEVICE_PCI_ORDER": str(int(buses == sorted(buses)))}
        names = ",".join(device.name for device in self.nics)
        return {**visible_gpus(self.topology, self.ranks), "NCCL_IB_HCA": f"={names}", **order}

    def channels(self, ring: Ring, order: list[int], count: int, ways: Mapping[Crossing, int]) -> list[_Channel]:
        """Divide a ring into `count` channels, or as many more as give each NIC that its data takes a whole number."""
        before, after = ring[ring.index(order[0]) - 1], ring[(ring.index(order[-1]) + 1) % len(ring)]
        enters, leaves = Counter[int](), Counter[int]()
        for way, amount in ways.items():
            if way[:2] == (before, order[0]):
                enters[way.into] += amount
            if way[:2] == (order[-1], after):
                leaves[way.out] += amount
        ends = self._shares(enters, order[0]), self._shares(leaves, order[-1])
        count = math.lcm(count, *(share.denominator for shares in ends for share in shares.values()))
        nics = [[nic for nic in sorted(shares) for _ in range(int(shares[nic] * count))] for shares in ends]
        return [_Channel(order, *pair) for pair in zip(*nics, strict=True)]

    def _shares(self, amounts: Counter[int], rank: int) -> dict[int, Fraction]:
        """Return the share of each NIC by NCCL's number; a rank without a NIC has that of its own number."""
        if not amounts or -1 in amounts:
            return {self.gpus[rank]: Fraction(1)}
        return {self.nic(nic): Fraction(amount, amounts.total()) for nic, amount in amounts.items()}


MOST_PER_CHANNEL = {80: 40, 90: 60, 100: 90}
"""GB/s of a channel that NCCL's search begins with, by the least compute capability (search.cc, lines 1051-1063)."""
NVLINKS = {80: (25, Fraction(20)), 90: (25, Fraction("20.6")), 100: (50, Fraction("40.1"))}
"""Line rate of one NVLink, and NCCL's figure, GB/s (topo.h, lines 21-26)."""


def channel_split(plan: Plan, rings: int, *, one_box: bool) -> tuple[int, Fraction]:
    """Return among how many channels NCCL's search divides one of some rings, and its GB/s for each of them."""
    speed, gpu = plan.busbw / rings, plan.topology.compute_nodes[0]
    box = gpu.rpartition("/")[0]
    inside = sum(
        link.bandwidth
        for link in plan.topology.out_links(gpu)
        if link.head.rpartition("/")[0] == box and node_kind(link.head) != "nic"
    )
    capability = 100 if inside >= 500 else 90 if inside > 300 else 80
    line, counted = NVLINKS[capability]
    if one_box and inside >= 4 * line and inside % line == 0:
        speed *= counted / line
    largest = MOST_PER_CHANNEL[capability]
    # The search rounds down to one of its speeds.
    parts = max(1, min(math.ceil(speed / largest * Fraction(20, 21)), MAX_CHANNELS // rings))
    speed = min(speed / parts, Fraction(largest))
    is_slow = speed <= 25 or (capability > 80 and speed <= 50 and rings * parts > 4)
    doubled = not is_slow and 2 * rings * parts <= MAX_CHANNELS  # search.cc, lines 1037-1040
    return (2 * parts, speed / 2) if doubled else (parts, speed)


def _box(plan: Plan, gpus_per_box: object, box: object) -> tuple[int, int, bool]:
    """First rank of a box, its number of ranks, and whether there are other boxes."""
    ranks = plan.topology.num_ranks
    boxes = boxes_of(plan.topology)
    if gpus_per_box is not None:
        if not is_int(gpus_per_box) or gpus_per_box < 1 or ranks % gpus_per_box:
            raise UnsupportedError(
                f"gpus_per_box is {shown(gpus_per_box)}; expected a number that divides the {ranks} ranks"
            )
        boxes = [rank // gpus_per_box for rank in range(ranks)]
    if not is_int(box) or not 0 <= box <= max(boxes):
        raise UnsupportedError(f"box is {shown(box)}; expected a number from 0 to {max(boxes)}")
    first, count = boxes.index(box), boxes.count(box)
    if boxes[first : first + count] != [box] * count:
        raise UnsupportedError(f"the ranks of box {box} are not numbered one after the other; give gpus_per_box")
    return first, count, count < ranks


def _as_numbers(nics: Sequence[int], count: int) -> list[int]:
    expected = f"a number of at least 0 for each of {count} GPUs"
    devices = as_integers(nics, "nics", expected)
    if devices.shape != (count,) or (devices < 0).any():
        raise UnsupportedError(f"nics is {shown(nics)}; expected {expected}")
    numbers: list[int] = devices.tolist()
    return numbers


def _channel(ring: tuple[int, ...], first: int, count: int) -> list[int]:
    """Ranks of a box in the order in which the ring passes them."""
    inside = [first <= rank < first + count for rank in ring]
    enters = [place for place in range(len(ring)) if inside[place] and not inside[place - 1]]
    if len(enters) > 1:
        box = f"the box of ranks {first} to {first + count - 1}"
        raise UnsupportedError(f"a ring of the plan enters {box} {len(enters)} times; expected once, as NCCL's do")
    start = enters[0] if enters else 0
    return [ring[(start + step) % len(ring)] for step in range(count)]


MAX_CHANNELS = 32  # What all versions of NCCL take

EXPECTED = "expected the same rings for all data, such as of a plan by 'ring'"


def ring_channels(plan: Plan) -> tuple[Ring, ...]:
    """List the rings among which a plan divides its data equally."""
    as_kind(plan, Plan, "the plan")
    refuse_relays(plan.schedule, plan.topology, "NCCL's graph")
    shares = [_shares(forest, plan.planner) for forest in plan.trees.forests]
    reversed_rings = {_rotate_to_lowest(ring[::-1]): share for ring, share in shares[0].items()}
    if shares[-1] not in (shares[0], reversed_rings):
        raise UnsupportedError(f"the plan by {plan.planner!r} reduces along other rings than it broadcasts; {EXPECTED}")
    # The least common number of shares that makes each ring's a whole one.
    total = math.lcm(*(share.denominator for share in shares[-1].values()))
    if total > MAX_CHANNELS:
        raise UnsupportedError(
            f"the plan by {plan.planner!r} makes {total} channels; NCCL takes {MAX_CHANNELS}: plan fewer rings"
        )
    return tuple(ring for ring in sorted(shares[-1]) for _ in range(int(shares[-1][ring] * total)))


def _shares(forest: Forest, planner: str) -> dict[Ring, Fraction]:
    """Share of every root's shard on each ring."""
    ranks = forest.num_ranks
    chains = np.argsort(forest.depths, axis=1)
    if (np.sort(forest.depths, axis=1) != np.arange(ranks)).any():
        raise UnsupportedError(f"the plan by {planner!r} has trees in which a rank sends to several others; {EXPECTED}")
    if forest.direction == "reduce":
        chains = chains[:, ::-1]
    uses: dict[int, Counter[Ring]] = {}
    for root, weight, chain in zip(forest.roots.tolist(), forest.weights.tolist(), chains.tolist(), strict=True):
        uses.setdefault(root, Counter())[_rotate_to_lowest(chain)] += weight
    shares = [{ring: Fraction(weight, use.total()) for ring, weight in use.items()} for use in uses.values()]
    if any(share != shares[0] for share in shares):
        raise UnsupportedError(
            f"the plan by {planner!r} sends the data of some ranks around other rings than that of others; {EXPECTED}"
        )
    return shares[0]


def _rotate_to_lowest(ring: Sequence[int]) -> Ring:
    first = ring.index(min(ring))
    return tuple(ring[first:]) + tuple(ring[:first])
