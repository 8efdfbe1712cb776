"""Boxes, of whatever kinds, joined by the network between them, which no tool on a box can see."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from ..errors import TopologyError
from .scale_out import FABRIC_LATENCY, MAX_BOXES, Box, Nic, join_boxes
from .sizes import as_size
from .topology import Link, Topology
from .validation import Exact, as_bandwidth, as_factor, as_list, as_title, shown

__all__ = ["FABRICS", "compose"]

FABRICS = {"full": "fabric", "rail": "rail{nic}", "leaf_spine": "leaf{leaf}"}
"""The switch into which a NIC is plugged, by its position in its box and the leaf of that box."""


def compose(
    nodes: Sequence[Box | str | os.PathLike[str]],
    *,
    fabric: str = "full",
    nic_bandwidth: Exact | None = None,
    nics: int | None = None,
    oversubscription: Exact | None = 1,
    boxes_per_leaf: int = 4,
    name: str | None = None,
) -> Topology:
    """Join boxes through their NICs.

    Parameters
    ----------
    nodes : sequence of Box or path
        Boxes in rank order, or the files that `read_box` reads; the same one may be there several times.
    fabric : {"full", "rail", "leaf_spine"}
        What is between the boxes.  ``"full"``: one switch that never blocks.  ``"rail"``: NIC i of every box on switch
        ``rail{i}``.  ``"leaf_spine"``: all NICs of `boxes_per_leaf` boxes on one leaf.  Rails and leaves are joined by
        ``spine``, which stands for a layer that never blocks.
    nic_bandwidth : int, float, str or Fraction, optional
        GB/s between every NIC and its switch, in each direction; overrules what the boxes say.
    nics : int, optional
        NICs of a box of which nothing is known: its GPUs share them evenly, neighbours on the same one.
    oversubscription : int, float, str, Fraction or None
        Bandwidth of the NICs of a rail or leaf over that of its uplink to the spine; None leaves out the spine of
        rails.
    boxes_per_leaf : int
        Of a leaf-spine fabric.
    name : str, optional
        What the network is called; by default after the boxes.

    Returns
    -------
    Topology
        ``box0/gpu0`` ...; a single box has neither NICs nor fabric.

    Raises
    ------
    TopologyError
        If an option is not usable, or a NIC's bandwidth is known to nobody.
    FileFormatError
        As `read_box`.

    Examples
    --------
    >>> from collopt.topologies.scale_out import Box, Nic
    >>> server = Box("server", 2, (Link("gpu0", "gpu1", 50),), (Nic(("gpu0", "gpu1"), 32, None),))
    >>> compose([server, server], nic_bandwidth=25)
    <Topology 'server-2boxes': 4 ranks, 3 switches, 16 links>
    """
    boxes = [_as_box(node, nic_bandwidth) for node in as_list(nodes, "the boxes", most=MAX_BOXES)]
    if not boxes:
        raise TopologyError("there are no boxes to compose; give at least one")
    if fabric not in FABRICS:
        raise TopologyError(f"fabric is {shown(fabric)}; expected one of {', '.join(FABRICS)}")
    if oversubscription is None and fabric != "rail":
        raise TopologyError(f"oversubscription is None; only rails can do without a spine, {fabric} cannot")
    per_leaf = as_size(boxes_per_leaf, "boxes_per_leaf")
    if len(boxes) > 1:
        boxes = [_with_nics(box, nics, nic_bandwidth) for box in boxes]
    names = list(dict.fromkeys(box.name for box in boxes))
    told = names[0] if len(boxes) == 1 else f"{'-and-'.join(names[:3])}-{len(boxes)}boxes"

    def plug(box: int, nic: int) -> str:
        return FABRICS[fabric].format(nic=nic, leaf=box // per_leaf)

    taper = None if oversubscription is None or fabric == "full" else as_factor(oversubscription, "oversubscription")
    backbone = [] if taper is None or len(boxes) == 1 else _uplinks(boxes, plug, taper)
    return join_boxes(boxes, told if name is None else as_title(name, "name"), plug=plug, backbone=backbone)


def _as_box(node: Box | str | os.PathLike[str], nic_bandwidth: Exact | None) -> Box:
    if isinstance(node, Box):
        return node
    from .importing.boxes import read_box

    # What a card's own link can carry is then no less than what the card can.
    return read_box(node, nic_bandwidth=nic_bandwidth)


def _with_nics(box: Box, nics: int | None, bandwidth: Exact | None) -> Box:
    """Give a box the NICs, and the NICs the bandwidth, that its source is silent about."""
    speed = None if bandwidth is None else as_bandwidth(bandwidth, "every NIC")
    if not box.nics:
        if nics is None or speed is None:
            raise TopologyError(
                f"nothing says which NICs box {box.name!r} has; give nics and nic_bandwidth, such as nics={box.gpus} "
                "and nic_bandwidth=50"
            )
        count = as_size(nics, "nics", most=box.gpus)
        shared = [[gpu for gpu in range(box.gpus) if gpu * count // box.gpus == nic] for nic in range(count)]
        return replace(box, nics=tuple(Nic(tuple(f"gpu{gpu}" for gpu in gpus), speed, speed) for gpus in shared))
    if nics is not None:
        raise TopologyError(f"box {box.name!r} has {len(box.nics)} NICs already; leave out nics")
    return box if speed is None else replace(box, nics=tuple(nic._replace(bandwidth=speed) for nic in box.nics))


def _uplinks(boxes: Sequence[Box], plug: Callable[[int, int], str], taper: Fraction) -> list[Link]:
    """Link every rail or leaf with the spine, unless there is only one."""
    below: dict[str, Fraction] = {}
    for number, box in enumerate(boxes):
        for position, nic in enumerate(box.nics):
            # A NIC whose bandwidth nobody knows is refused where it is linked.
            bandwidth = Fraction(0) if nic.bandwidth is None else as_bandwidth(nic.bandwidth, "every NIC")
            leaf = plug(number, position)
            below[leaf] = below.get(leaf, Fraction(0)) + bandwidth
    if len(below) == 1:
        return []
    return [Link(leaf, "spine", bandwidth / taper, FABRIC_LATENCY) for leaf, bandwidth in below.items()]
