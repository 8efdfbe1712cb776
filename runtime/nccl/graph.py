"""Writes rings as a graph file of NCCL: what ``NCCL_GRAPH_FILE`` makes it use instead of a search of its own.

The form is that of NCCL's own dumps (``NCCL_GRAPH_DUMP_FILE``; src/graph/xml.cc and search.cc of NCCL 2.x): elements
``graphs``, ``graph`` (0 stands for rings), ``channel`` and ``gpu``, the last by its hexadecimal number in the box;
where a ring leaves the box, a ``net`` before the first and one behind the last.  Every box reads a file of its own.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from ...errors import UnsupportedError
from ...planners import Plan
from ...support.validation import as_integers, is_int, shown
from ...support.writing import write_whole
from ..programs.checks import check_choice
from .ring_channels import ring_channels

__all__ = ["PATH_TYPES", "export_nccl_graph"]

RING_GRAPH, RING_PATTERN = "0", "4"
PATH_TYPES = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
"""What NCCL calls ways between two devices, the best first."""


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
    """Write the rings of a plan as an NCCL graph file.

    Parameters
    ----------
    plan : Plan
        Of rings; see `collopt.runtime.nccl.ring_channels.ring_channels`.
    path : path
        File to write.
    gpus_per_box : int, optional
        Ranks per box, one box after the other; all by default.  Ranks of a box count as its GPUs do in NVML.
    box : int
        Which box's file to write.
    nics : sequence of int, optional
        Number of the NIC that each GPU of the box uses; by default that of the GPU.
    type_intra, type_inter : str
        How GPUs of the box reach each other and their NICs, in NCCL's terms: one of `PATH_TYPES`.

    Raises
    ------
    UnsupportedError
        If the plan does not consist of rings, one of which enters each box once, or an option makes no sense.
    OSError
        If the file cannot be written.
    """
    rings = ring_channels(plan)
    check_choice("type_intra", type_intra, PATH_TYPES)
    check_choice("type_inter", type_inter, PATH_TYPES)
    first, count, several = _box(plan, gpus_per_box, box)
    devices = _devices(nics, count)
    channels = [_channel(ring, first, count) for ring in rings]
    ends = [(devices[channel[0]], devices[channel[-1]]) for channel in channels]
    speed = f"{float(plan.busbw / len(rings)):g}"
    graphs = ET.Element("graphs", version="1")
    graph = ET.SubElement(
        graphs,
        "graph",
        id=RING_GRAPH,
        pattern=RING_PATTERN,
        crossnic=str(int(several and any(enters != leaves for enters, leaves in ends))),
        nchannels=str(len(channels)),
        speedintra=speed,
        speedinter=speed,
        latencyinter="0",
        typeintra=type_intra,
        typeinter=type_inter,
        samechannels=str(int(len(set(map(tuple, channels))) == 1)),
    )
    for channel, (enters, leaves) in zip(channels, ends, strict=True):
        element = ET.SubElement(graph, "channel")
        gpus = [("gpu", f"{gpu:x}") for gpu in channel]
        for tag, device in [("net", str(enters)), *gpus, ("net", str(leaves))] if several else gpus:
            ET.SubElement(element, tag, dev=device)
    ET.indent(graphs)
    # NCCL's parser takes no declaration in front.
    write_whole(path, ET.tostring(graphs, encoding="unicode") + "\n")


def _box(plan: Plan, gpus_per_box: object, box: object) -> tuple[int, int, bool]:
    """First rank of a box, how many it has, and whether there are other boxes."""
    ranks = plan.topology.num_ranks
    size = ranks if gpus_per_box is None else gpus_per_box
    if not is_int(size) or size < 1 or ranks % size:
        raise UnsupportedError(f"gpus_per_box is {shown(size)}; expected a number that divides the {ranks} ranks")
    if not is_int(box) or not 0 <= box < ranks // size:
        raise UnsupportedError(f"box is {shown(box)}; expected a number from 0 to {ranks // size - 1}")
    return box * size, size, size < ranks


def _devices(nics: Sequence[int] | None, count: int) -> list[int]:
    if nics is None:
        return list(range(count))
    if not hasattr(nics, "__len__"):
        raise UnsupportedError(f"nics is {shown(nics)}; expected a number of at least 0 for each of {count} GPUs")
    devices = as_integers(nics, "nics", f"{count} numbers of NICs").tolist()
    if len(devices) != count or min(devices) < 0:
        raise UnsupportedError(f"nics is {shown(nics)}; expected a number of at least 0 for each of {count} GPUs")
    return [int(device) for device in devices]


def _channel(ring: tuple[int, ...], first: int, count: int) -> list[int]:
    """GPUs of a box in the order in which the ring passes them."""
    inside = [first <= rank < first + count for rank in ring]
    enters = [place for place in range(len(ring)) if inside[place] and not inside[place - 1]]
    if len(enters) > 1:
        raise UnsupportedError(
            f"a ring of the plan enters the box of ranks {first} to {first + count - 1} {len(enters)} times; NCCL's "
            "enter each box once"
        )
    start = enters[0] if enters else 0
    return [ring[(start + step) % len(ring)] - first for step in range(count)]
