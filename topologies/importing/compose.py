"""Composition of boxes and a scale-out fabric into one network."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from ...errors import TopologyError
from ...support.quantities import Exact, as_bandwidth, as_factor
from ...support.validation import as_list, as_size, as_title, shown
from ..network.topology import Link, Topology
from ..switched.nic_shares import with_port_bandwidth
from ..switched.scale_out import FABRIC_LATENCY, MAX_BOXES, Box, Nic, join_boxes
from .boxes import read_box

FABRICS = {"full": "fabric", "rail": "rail{nic}", "leaf_spine": "leaf{leaf}"}
"""Name of the switch of a NIC, by its position in its box and the leaf of that box."""
BOXES_PER_LEAF = 4


def compose(
    nodes: Sequence[Box | str | os.PathLike[str]],
    *,
    fabric: str = "full",
    nic_bandwidth: Exact | None = None,
    nics: int | None = None,
    oversubscription: Exact | None = 1,
    boxes_per_leaf: int | None = None,
    name: str | None = None,
) -> Topology:
    """Join boxes through their NICs.

    Nodes are ``box0/gpu0`` ...; a single box has neither NICs nor fabric.

    Parameters
    ----------
    nodes : sequence of Box or path
        Boxes in rank order, or the files that `read_box` reads; the same one may be there several times.
    fabric : {"full", "rail", "leaf_spine"}
        The network between the boxes.  ``"full"``: one non-blocking switch.  ``"rail"``: NIC i of every box on switch
        ``rail{i}``.  ``"leaf_spine"``: all NICs of `boxes_per_leaf` boxes on one leaf.  Rails and leaves are joined by
        ``spine``, which represents a non-blocking layer.
    nic_bandwidth : int, float, str or Fraction, optional
        GB/s of the ports of every NIC, in each direction; overrules what the boxes say.  Where a box says that PCIe
        brings a NIC less, that counts.  Text may have a unit, such as ``"400Gb/s"`` for 50.
    nics : int, optional
        NICs of each box whose source does not describe them: its GPUs share them evenly, neighbors on the same one.
    oversubscription : int, float, str, Fraction or None
        Bandwidth of the ports of the NICs of a rail or leaf over that of its uplink to the spine; None leaves out the
        spine of rails.
    boxes_per_leaf : int, optional
        Of a leaf-spine fabric; 4 by default.
    name : str, optional
        Name of the network; by default after the boxes.

    Examples
    --------
    >>> from collopt.topologies.switched.scale_out import Box, Nic
    >>> server = Box("server", 2, (Link("gpu0", "gpu1", 50),), (Nic(("gpu0", "gpu1"), 32, None),))
    >>> compose([server, server], nic_bandwidth=25)
    <Topology 'server-2boxes': 4 ranks, 3 switches, 16 links>
    """
    # A file that does not say how fast its NICs are may ask for it.
    boxes = [node if isinstance(node, Box) else read_box(node, nic_bandwidth=nic_bandwidth) for node in _listed(nodes)]
    taper, per_leaf = _checked(fabric, oversubscription, boxes_per_leaf)
    speed = None if nic_bandwidth is None else as_bandwidth(nic_bandwidth, "every NIC")
    if nics is not None:
        as_size(nics, "nics")
        if all(box.nics for box in boxes):
            raise TopologyError(f"box {boxes[0].name!r} has {len(boxes[0].nics)} NICs already; leave out nics")
    if len(boxes) > 1:
        boxes = [_with_nics(box, nics, speed) for box in boxes]
    names = list(dict.fromkeys(box.name for box in boxes))
    default_name = names[0] if len(boxes) == 1 else f"{'-and-'.join(names[:3])}-{len(boxes)}boxes"

    def fabric_switch(box: int, nic: int) -> str:
        return FABRICS[fabric].format(nic=nic, leaf=box // per_leaf)

    backbone = [] if taper is None or len(boxes) == 1 else _uplinks(boxes, fabric_switch, taper)
    return join_boxes(
        boxes, default_name if name is None else as_title(name, "name"), fabric_switch=fabric_switch, backbone=backbone
    )


def _listed(nodes: Sequence[Box | str | os.PathLike[str]]) -> tuple[Box | str | os.PathLike[str], ...]:
    if isinstance(nodes, (str, bytes, os.PathLike, Box)):
        raise TopologyError(f"boxes is {shown(nodes)}, a single box; expected a list, such as [box, box]")
    boxes = as_list(nodes, "the boxes", most=MAX_BOXES)
    if not boxes:
        raise TopologyError("there are no boxes to compose; give at least one")
    return boxes


def _checked(fabric: str, oversubscription: Exact | None, boxes_per_leaf: int | None) -> tuple[Fraction | None, int]:
    """Check the options of a fabric; return the oversubscription, None without a spine, and the boxes per leaf."""
    if not isinstance(fabric, str) or fabric not in FABRICS:
        raise TopologyError(f"fabric is {shown(fabric)}; expected one of {', '.join(FABRICS)}")
    per_leaf = BOXES_PER_LEAF if boxes_per_leaf is None else as_size(boxes_per_leaf, "boxes_per_leaf")
    if boxes_per_leaf is not None and fabric != "leaf_spine":
        raise TopologyError(f"boxes_per_leaf is {per_leaf}, but fabric {fabric!r} has no leaves; leave it out")
    if oversubscription is None:
        if fabric != "rail":
            raise TopologyError(
                f"oversubscription is None, but fabric {fabric!r} needs a spine; expected a number, or fabric 'rail'"
            )
        return None, per_leaf
    taper = as_factor(oversubscription, "oversubscription")
    if fabric != "full":
        return taper, per_leaf
    if taper != 1:
        raise TopologyError(
            f"oversubscription is {shown(oversubscription)}, but fabric 'full' is non-blocking; leave it out, or use "
            "rail or leaf_spine"
        )
    return None, per_leaf


def _with_nics(box: Box, nics: int | None, speed: Fraction | None) -> Box:
    """Add the NICs, or the bandwidth of the NICs, that the source of a box does not state."""
    if not box.nics:
        if nics is None or speed is None:
            raise TopologyError(
                f"the NICs of box {box.name!r} are unknown; give nics and nic_bandwidth, such as nics={box.gpus} "
                "and nic_bandwidth=50"
            )
        count = as_size(nics, "nics", most=box.gpus)
        shared = [[gpu for gpu in range(box.gpus) if gpu * count // box.gpus == nic] for nic in range(count)]
        return replace(box, nics=tuple(Nic(tuple(f"gpu{gpu}" for gpu in gpus), speed, speed) for gpus in shared))
    return box if speed is None else replace(box, nics=with_port_bandwidth(box, speed))


def _uplinks(boxes: Sequence[Box], fabric_switch: Callable[[int, int], str], taper: Fraction) -> list[Link]:
    """Link every rail or leaf to the spine, unless there is only one."""
    below: dict[str, Fraction] = {}
    for number, box in enumerate(boxes):
        for position, nic in enumerate(box.nics):
            # NICs of unknown bandwidth are refused where they are linked.
            port = nic.bandwidth if nic.port is None else nic.port
            bandwidth = Fraction(0) if port is None else as_bandwidth(port, "every NIC")
            leaf = fabric_switch(number, position)
            below[leaf] = below.get(leaf, Fraction(0)) + bandwidth
    if len(below) == 1:
        return []
    return [Link(leaf, "spine", bandwidth / taper, FABRIC_LATENCY) for leaf, bandwidth in below.items()]
