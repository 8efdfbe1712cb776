"""NICs that a plan takes between boxes, and the environment that makes a runtime take the same GPUs and NICs."""

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...schedules import Schedule
from ...support.files import write_all_whole
from ...support.validation import as_path
from ...topologies import Topology


def boxes_of(topology: Topology) -> list[int]:
    """Box number of each rank; names that agree up to the last slash are in one box.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> set(boxes_of(dgx_h100())), boxes_of(dgx_h100(boxes=2))[7:9]
    ({0}, [0, 1])
    """
    names = [name.rpartition("/")[0] for name in topology.compute_nodes]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def names_of_boxes(topology: Topology) -> tuple[str, ...]:
    """Boxes of a network, by the names of its ranks."""
    return tuple(dict.fromkeys(name.rpartition("/")[0] for name in topology.compute_nodes))


def boxes_of_nodes(topology: Topology) -> dict[str, str]:
    """Map each node to its box, which the part of its name before the last slash names; switches between boxes to none.

    A compute node without such a part is a box of its own.
    """
    folders = {node.rpartition("/")[0] for node in topology.compute_nodes} - {""}
    owners = {node: node.rpartition("/")[0] for node in topology.nodes}
    loners = [node for node in topology.compute_nodes if not owners[node]]
    return {node: box for node, box in owners.items() if box in folders} | {node: node for node in loners}


class Crossing(NamedTuple):
    """A way of data from a rank of one box to one of another; NICs by node number, -1 where a rank has its own port."""

    sender: int
    receiver: int
    out: int  # the NIC by which it leaves the sender's box
    into: int  # the NIC by which it enters the receiver's


def crossings(schedule: Schedule, topology: Topology) -> Counter[Crossing]:
    """Sum the data, in a unit of the schedule, on each way between boxes: nodes with one name up to the last slash."""
    places: dict[str, int] = {}
    boxes = np.array([places.setdefault(node.rpartition("/")[0], len(places)) for node in topology.nodes])
    transfers = schedule.transfers(topology)
    ends = np.stack([transfers.senders, transfers.receivers])
    if len(np.unique(boxes[: topology.num_ranks])) == 1 or not (boxes[ends[0]] != boxes[ends[1]]).any():
        return Counter()
    owners, links = transfers.hop_owners, transfers.hop_links
    tails, heads = topology.columns.tails[links], topology.columns.heads[links]
    # The last node inside the sender's box, and the first one inside the receiver's.
    out, into = ends.copy()
    leaves = np.flatnonzero((boxes[tails] == boxes[ends[0][owners]]) & (boxes[heads] != boxes[tails]))[::-1]
    out[owners[leaves]] = tails[leaves]
    enters = np.flatnonzero((boxes[heads] == boxes[ends[1][owners]]) & (boxes[heads] != boxes[tails]))
    into[owners[enters]] = heads[enters]
    ways: Counter[Crossing] = Counter()
    ports = np.where(np.stack([out, into]) == ends, -1, np.stack([out, into]))
    across = np.flatnonzero(boxes[ends[0]] != boxes[ends[1]])
    for row, amount in zip(
        np.concatenate([ends, ports])[:, across].T.tolist(), transfers.amounts[across].tolist(), strict=True
    ):
        ways[Crossing(*row)] += amount
    return ways


class RankNics(NamedTuple):
    """One NIC for each rank, among those that its data takes."""

    nics: list[int]  # node numbers; of a rank without data between boxes one that others of its box use, -1 if none
    overload: Fraction  # data on the busiest of them, over that on the busiest NIC of the plan


def nics_of_ranks(ways: Mapping[Crossing, int], boxes: Sequence[int]) -> RankNics:
    """Choose one NIC for each rank; ranks that share several divide them. `boxes`: of each rank."""
    uses = [Counter[tuple[int, bool]]() for _ in boxes]
    for way, amount in ways.items():
        uses[way.sender][way.out, True] += amount
        uses[way.receiver][way.into, False] += amount
    planned = sum(uses, Counter[tuple[int, bool]]())
    loads, nics = Counter[tuple[int, bool]](), [-1] * len(boxes)

    def load_after(rank: int, nic: int) -> int:
        own = Counter[bool]()
        for (_, sends), amount in uses[rank].items():
            own[sends] += amount
        return max(loads[nic, sends] + own[sends] for sends in (True, False))

    busy = [rank for rank in range(len(boxes)) if uses[rank]]
    for rank in sorted(busy, key=lambda rank: len({nic for nic, _ in uses[rank]})):
        nics[rank] = min({nic for nic, _ in uses[rank]}, key=lambda nic: (load_after(rank, nic), nic))
        for (_, sends), amount in uses[rank].items():
            loads[nics[rank], sends] += amount
    for rank in set(range(len(boxes))).difference(busy):
        inside = {nics[other] for other in busy if boxes[other] == boxes[rank]}
        nics[rank] = min(inside, key=lambda nic: (load_after(rank, nic), nic), default=-1)
    return RankNics(nics, Fraction(max(loads.values(), default=1), max(planned.values(), default=1)))


def visible_gpus(topology: Topology, ranks: Sequence[int]) -> dict[str, str]:
    """Return the variables that make a process on rank i of a box find its GPU as number i, where NVML's are known."""
    numbers = [topology.device(topology.compute_nodes[rank]).number for rank in ranks]
    if None in numbers or len(set(numbers)) < len(numbers):
        return {}
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))}


def environment_script(boxes: Sequence[Mapping[str, str]], purpose: str) -> str:
    """Return a shell script that exports the variables of a box; where boxes differ, COLLOPT_BOX has its number."""
    exports = [
        "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()) for variables in boxes
    ]
    title = f"# {purpose}, by: . ./FILE\n"
    if not any(exports):
        return ""
    if len(set(exports)) == 1:
        return title + exports[0]
    numbers: dict[str, list[str]] = {}
    for number, text in enumerate(exports):
        numbers.setdefault(text, []).append(str(number))
    cases = "".join(f"{'|'.join(matching)})\n{text};;\n" for text, matching in numbers.items())
    last = f'*) echo "COLLOPT_BOX is $COLLOPT_BOX; expected 0 to {len(boxes) - 1}" >&2; false;;\n'
    return f'{title}case "${{COLLOPT_BOX:?is the number of this box}}" in\n{cases}{last}esac\n'


def write_with_environment(path: str | os.PathLike[str], text: str, script: str) -> None:
    """Write a file, and beside it the script of its environment if that is not empty, or neither."""
    target = as_path(path)
    write_all_whole({target: text, **({Path(f"{target}.env"): script} if script else {})})
