"""Rings as an NCCL graph file (``NCCL_GRAPH_FILE``), in the form of NCCL's dumps (src/graph/xml.cc of NCCL 2.x).

``graph`` 0 stands for rings; a ``gpu`` is named by its hexadecimal number in the box; where a ring leaves the box, a
``net`` stands before the first gpu and after the last.  Every box reads a file of its own.
"""

import math
import os
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ...errors import UnsupportedError
from ...planners import Plan
from ...schedules import Forest
from ...support.files import write_whole
from ...support.validation import as_integers, as_kind, is_int, shown
from ..lowering.trees import refuse_relays
from ..programs.program import check_choice

__all__ = ["PATH_TYPES", "export_nccl_graph"]

RING_GRAPH, RING_PATTERN = "0", "4"
PATH_TYPES = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS")
"""NCCL's names of ways between two devices, the best first."""


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

    Raises `UnsupportedError` if the plan does not consist of rings, each of which enters each box once, or an option is
    invalid; `OSError` if the file cannot be written.

    Parameters
    ----------
    plan : Plan
        Of rings.
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
    """
    rings = ring_channels(plan)
    check_choice("type_intra", type_intra, PATH_TYPES)
    check_choice("type_inter", type_inter, PATH_TYPES)
    first, count, has_boxes = _box(plan, gpus_per_box, box)
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
        crossnic=str(int(has_boxes and any(enters != leaves for enters, leaves in ends))),
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
        for tag, device in [("net", str(enters)), *gpus, ("net", str(leaves))] if has_boxes else gpus:
            ET.SubElement(element, tag, dev=device)
    ET.indent(graphs)
    # NCCL's parser takes no declaration in front.
    write_whole(path, ET.tostring(graphs, encoding="unicode") + "\n")


def _box(plan: Plan, gpus_per_box: object, box: object) -> tuple[int, int, bool]:
    """First rank of a box, its number of ranks, and whether there are other boxes."""
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
    expected = f"a number of at least 0 for each of {count} GPUs"
    devices = as_integers(nics, "nics", expected)
    if devices.shape != (count,) or (devices < 0).any():
        raise UnsupportedError(f"nics is {shown(nics)}; expected {expected}")
    numbers: list[int] = devices.tolist()
    return numbers


def _channel(ring: tuple[int, ...], first: int, count: int) -> list[int]:
    """GPUs of a box in the order in which the ring passes them."""
    inside = [first <= rank < first + count for rank in ring]
    enters = [place for place in range(len(ring)) if inside[place] and not inside[place - 1]]
    if len(enters) > 1:
        box = f"the box of ranks {first} to {first + count - 1}"
        raise UnsupportedError(f"a ring of the plan enters {box} {len(enters)} times; expected once, as NCCL's do")
    start = enters[0] if enters else 0
    return [ring[(start + step) % len(ring)] - first for step in range(count)]


MAX_CHANNELS = 32  # What all versions of NCCL take

EXPECTED = "expected the same rings for all data, such as of a plan by 'ring'"

Ring = tuple[int, ...]


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
