"""Public measurements of collectives, and the networks of the catalogue that they were made on.

`measured.csv` has a row for each measured value, with its source; docs/reference/measurements.md describes its columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...planners.literature.nccl_choice import separate_boxes
from ...planners.literature.routes import Hops
from ...planners.trees.problem import TreeProblem, cut_problem
from ...solvers.flows.max_flow import max_flow
from ...topologies import Topology
from ...topologies.network.topology import as_topology
from ...topologies.switched.box_files import stored_box
from ...topologies.switched.scale_out import Nic, repeat_box

if TYPE_CHECKING:
    import pandas as pd

CATALOGUE = {
    "A100": "dgx-a100", "H100": "dgx-h100", "H200": "dgx-h200", "B200": "dgx-b200", "GB200": "gb200-nvl72",
    "MI250X": "mi250", "MI300X": "mi300x", "MI355X": "mi355x",
}  # fmt: skip
"""Box of the catalogue by the first word of a measured GPU."""
COUNTS = ("boxes", "gpus_per_box", "ranks", "nics_per_box", "size_bytes")
NOT_STATED = ("None", "nan", "<NA>")
SEVERAL = 8  # GPUs of a box and boxes that are looked at
TOLERANCE = Fraction(9, 8)
"""Ratio up to which bandwidths count as those of the same hardware: files subtract protocols and encodings."""


class Shape(NamedTuple):
    """What a machine's speed depends on: GPUs, how they are joined in boxes, and how boxes are."""

    boxes: int
    gpus_per_box: int
    is_direct: bool  # Whether links join the GPUs of a box without switches
    gpu_rate: Fraction  # GB/s from a GPU into the network of its box, or to each neighbor if links are direct
    box_rate: Fraction  # GB/s out of a box; 0 of a single one
    reduces: bool  # Whether the network between boxes adds up, as InfiniBand SHARP

    def is_like(self, other: Shape) -> bool:
        """Whether counts are equal and bandwidths nearly so."""
        rates = ((self.gpu_rate, other.gpu_rate), (self.box_rate, other.box_rate))
        return self._replace(gpu_rate=other.gpu_rate, box_rate=other.box_rate) == other and all(
            max(pair) <= TOLERANCE * min(pair) for pair in rates
        )


def measurements() -> pd.DataFrame:
    """Read the public measurements.

    Returns
    -------
    pandas.DataFrame
        A row for each value: the columns of ``measured.csv``, of which ``algbw_gbps`` and ``busbw_gbps`` are GB/s and
        ``nic_gbps`` is Gb/s, and ``machine``, such as ``"2 boxes of 8 x H100, 8 NICs of 400 Gb/s"``.

    Examples
    --------
    >>> rows = measurements()
    >>> len(rows), rows.table.nunique()
    (587, 40)
    """
    return _stored().copy()


@cache
def _stored() -> pd.DataFrame:
    import pandas as pd

    with files(__package__).joinpath("measured.csv").open(encoding="utf-8") as file:
        rows = pd.read_csv(file).astype(dict.fromkeys(COUNTS, "Int64"))
    return rows.assign(machine=[_machine_name(row) for row in _records(rows)])


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with None for what is not stated."""
    return rows.astype(object).where(rows.notna(), None).to_dict("records")  # type: ignore[return-value]


def _machine_name(row: Mapping[str, Any]) -> str | None:
    """Name a machine after its parts; None if its GPUs or boxes are not stated."""
    if None in (row["gpu"], row["boxes"], row["gpus_per_box"]):
        return None
    box = f"{row['gpus_per_box']} x {row['gpu'].split()[0]}"
    if row["boxes"] == 1:
        return box
    if None in (row["nics_per_box"], row["nic_gbps"]):
        return f"{row['boxes']} boxes of {box}, NICs not stated"
    sharp = " with SHARP" if "SHARP" in row["system"] else ""
    return f"{row['boxes']} boxes of {box}, {row['nics_per_box']} NICs of {row['nic_gbps']:.0f} Gb/s{sharp}"


def network(row: Mapping[str, Any]) -> Topology | None:
    """Build a measured machine from the catalogue, with its own NICs and as many of the GPUs as took part.

    Parameters
    ----------
    row : mapping
        A row of `measurements`, as a Series or a dict, or a machine in its terms: ``gpu``, ``boxes``, ``gpus_per_box``,
        and of several boxes ``nics_per_box``, ``nic_gbps`` and ``system``.

    Returns
    -------
    Topology or None
        None if the catalogue has no such GPU, or the row does not state its boxes, or the NICs of several.

    Examples
    --------
    >>> network({"gpu": "H100 SXM", "boxes": 1, "gpus_per_box": 4})
    <Topology 'dgx-h100 [4 of 8 ranks]': 4 ranks, 1 switch, 8 links>
    """
    keys = ("gpu", "boxes", "gpus_per_box", "nics_per_box", "nic_gbps")
    gpu, boxes, size, nics, rate = (None if str(row.get(key)) in NOT_STATED else row[key] for key in keys)
    name = CATALOGUE.get(str(gpu).split(maxsplit=1)[0])
    if name is None or boxes is None or size is None:
        return None
    box = stored_box(name)
    if boxes > 1:
        if nics is None or rate is None or (box.gpus % nics and nics % box.gpus):
            return None
        # A GPU's own NICs count as one; a NIC of several GPUs is near to neighbors.
        ports = min(nics, box.gpus)
        bandwidth = Fraction(rate) * nics / (8 * ports)
        near = np.split(np.array([f"gpu{gpu}" for gpu in range(box.gpus)]), ports)
        box = replace(box, nics=tuple(Nic(tuple(group.tolist()), bandwidth, bandwidth) for group in near))
    built = repeat_box(box, boxes)
    if size < box.gpus:
        built = built.restrict([f"box{box}/gpu{gpu}" for box, gpu in product(range(boxes), range(size))])
    if boxes > 1 and "SHARP" in row["system"]:
        return built.changed(multicast=built.multicast | {"ib"}, aggregation=built.aggregation | {"ib"})
    return built


def machine_of(topology: Topology) -> tuple[str, ...]:
    """List the measured machines that a network compares to, by its `shape` and not its names.

    Parameters
    ----------
    topology : Topology
        The network.

    Returns
    -------
    tuple of str
        Values of the column ``machine`` of `measurements`; none if nothing like it was measured.

    Examples
    --------
    >>> from collopt.topologies import dgx_h100
    >>> machine_of(dgx_h100())
    ('8 x H100', '8 x H200')
    """
    own = shape(as_topology(topology))
    return tuple(name for name, measured in _measured_shapes().items() if own is not None and own.is_like(measured))


@cache
def _measured_shapes() -> Mapping[str, Shape]:
    """Shapes of all machines of `measurements` that the catalogue has, by name."""
    rows = _stored().dropna(subset=["machine"]).drop_duplicates("machine")
    shapes = {}
    for row in _records(rows):
        # Two boxes have the shape of any number.
        network_of_few = network(row | {"boxes": min(row["boxes"], 2)})
        if network_of_few is not None and (measured := shape(network_of_few)) is not None:
            shapes[row["machine"]] = measured._replace(boxes=row["boxes"])
    return shapes


def shape(topology: Topology) -> Shape | None:
    """Describe a network by its boxes; None if these differ in size.

    Bandwidths are those of the median GPU and of the best box, so that few broken links change nothing.
    """
    problem = cut_problem(topology, "broadcast", ())
    hops = Hops(problem)
    boxes = separate_boxes(hops)
    if len({len(box) for box in boxes}) > 1:
        return None
    unit, first = topology.arrays.unit, boxes[0]
    is_direct = len(first) > 1 and hops.nearest(first[0])[0] == 1
    rates = [0]
    if len(first) > 1:
        rates = sorted(_rate_inside(hops, rank, is_direct=is_direct) for rank in first[:SEVERAL])
    out = max(_rate_out(problem, box) for box in boxes[:SEVERAL]) if len(boxes) > 1 else 0
    in_boxes = {topology.nodes[node] for rank in range(topology.num_ranks) for node in hops.following(rank)}
    reduces = len(boxes) > 1 and bool((topology.multicast & topology.aggregation) - in_boxes)
    return Shape(len(boxes), len(first), is_direct, rates[len(rates) // 2] * unit, out * unit, reduces)


def _rate_inside(hops: Hops, rank: int, *, is_direct: bool) -> Fraction:
    """Capacity from a GPU to the nearest others, of each if links are direct."""
    peers = hops.nearest(rank)[1]
    links = {route.links[0] for peer in peers for route in hops.routes(rank, peer)}
    return Fraction(int(hops.problem.capacities[list(links)].sum()), len(peers) if is_direct else 1)


def _rate_out(problem: TreeProblem, box: Sequence[int]) -> int:
    """Capacity from a box to all other ranks: the minimum cut around it."""
    ranks, nodes = problem.topology.num_ranks, problem.num_nodes
    others = np.setdiff1d(np.arange(ranks), box)
    ends = np.concatenate([np.full(len(box), nodes), others]), np.concatenate([box, np.full(len(others), nodes + 1)])
    unlimited = np.full(ranks, problem.capacities.sum())
    links = (
        np.concatenate(pair)
        for pair in zip((problem.tails, problem.heads, problem.capacities), (*ends, unlimited), strict=True)
    )
    return max_flow(nodes + 2, *links, nodes, nodes + 1).value
