"""Environment of the ranks of MSCCL++ plans: GPUs and InfiniBand devices by their numbers in a box.

The executor takes one of eight InfiniBand transports by the rank's number in its box (``executor.cc`` of 0.9.0, lines
103 and 273), also on ranks that send to no other box (line 294).  ``MSCCLPP_HCA_DEVICES`` lists their devices
(``ib.cc``, line 588); otherwise they are those of libibverbs, in its order.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import UnsupportedError
from ...schedules import Schedule
from ...topologies import Topology
from ..lowering.devices import crossings, nics_of_ranks, visible_gpus

TRANSPORTS = 8
LARGEST_HOST = 16  # GPUs; larger boxes are racks, whose hosts the executor counts by themselves
HCA_DEVICES = "MSCCLPP_HCA_DEVICES"
NUMBER = re.compile(r"[0-9]+$")  # at the end of the name of a node


class Environment(NamedTuple):
    """The variables of each box, and what users have to know of them."""

    boxes: list[dict[str, str]]
    notes: list[str]


def environment_of(schedule: Schedule, topology: Topology, boxes: Sequence[int]) -> Environment:
    """Return the environment in which the ranks of boxes use the GPUs and NICs of a schedule without sums at switches.

    Raises `UnsupportedError` if the executor has no transport for a rank.
    """
    members: dict[int, list[int]] = {}
    for rank, box in enumerate(boxes):
        members.setdefault(box, []).append(rank)
    variables = [visible_gpus(topology, ranks) for ranks in members.values()]
    ways = crossings(schedule, topology) if len(members) > 1 else {}
    assigned = nics_of_ranks(ways, boxes)
    size = len(members[boxes[0]])
    if size > LARGEST_HOST or set(assigned.nics) == {-1}:
        return Environment(variables, [])
    if size > TRANSPORTS and ways:
        raise UnsupportedError(
            f"the plan has {size} ranks in a box, and MSCCL++ InfiniBand transports for {TRANSPORTS}, IB0 to "
            f"IB{TRANSPORTS - 1}; run it through torch.distributed or as MSCCL XML"
        )
    nodes = [[topology.nodes[assigned.nics[rank]] for rank in ranks] for ranks in members.values()]
    notes = []
    if assigned.overload > 1:
        notes.append(
            f"MSCCL++ takes one NIC for each GPU, with up to {float(assigned.overload):.3g} times the data that the "
            "plan puts on one"
        )
    ports = [[topology.device(node).name.split("+") for node in listed] for listed in nodes]
    if all(names[0] and "," not in names[0] for listed in ports for names in listed):
        for own, listed in zip(variables, ports, strict=True):
            own[HCA_DEVICES] = ",".join(names[0] for names in listed)
        if any(len(names) > 1 for listed in ports for names in listed):
            notes.append("MSCCL++ takes the first port of each NIC, and the plan all of them")
    elif any(NUMBER.findall(node) != [str(place)] for listed in nodes for place, node in enumerate(listed)):
        order = dict.fromkeys(", ".join(node.rpartition("/")[2] for node in listed) for listed in nodes)
        notes.append(
            f"MSCCL++ takes the devices of libibverbs in their order, the plan {'; or '.join(order)} for the ranks of "
            f"a box; list the names of these in {HCA_DEVICES}"
        )
    return Environment(variables, notes)
