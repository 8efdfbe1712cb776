"""Public measurements of collectives, and the networks of the catalogue that they were made on.

`measured.csv` has a row for each measured value, with its source; docs/reference/measurements.md describes its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib.resources import files
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...planners.literature.nccl_choice import machine_of as nccl_machine
from ...planners.literature.nccl_tuning import Machine
from ...schedules import COLLECTIVES
from ...topologies import Topology, dgx_spark
from ...topologies.network.topology import Link, as_topology
from ...topologies.switched.box_files import stored_box
from ...topologies.switched.scale_out import FABRIC_LATENCY, Box, Nic, repeat_box

if TYPE_CHECKING:
    import pandas as pd

CATALOGUE = {
    "A100": "dgx-a100", "H100": "dgx-h100", "H200": "dgx-h200", "B200": "dgx-b200", "GB200": "gb200-nvl72",
    "MI250X": "mi250", "MI300X": "mi300x", "MI355X": "mi355x", "H800": "hgx-h800", "A800": "hgx-a800",
    "GB10": "dgx-spark",
}  # fmt: skip
"""Box of the catalogue by the first word of a measured GPU."""
FEWER_LINKS = {"hgx-h800": "dgx-h100", "hgx-a800": "dgx-a100"}
"""Boxes with 8 NVLinks per GPU, 200 GB/s, by those of the catalogue that they equal otherwise."""


class Efa(NamedTuple):
    """NICs of an instance of AWS."""

    nics: int
    rate: Fraction  # GB/s of each
    latency: int  # µs from box to box, as the plugin aws-ofi-nccl states it to NCCL

    @property
    def link_latency(self) -> Fraction:
        """µs of the link from a NIC to the network."""
        return FABRIC_LATENCY + Fraction(self.latency, 2)


EFA = {
    "A100": Efa(4, Fraction(25, 2), 75), "H100": Efa(32, Fraction(25, 2), 75), "H200": Efa(16, Fraction(25), 35),
    "B200": Efa(8, Fraction(50), 35), "B300": Efa(16, Fraction(50), 35),
}  # fmt: skip
"""Instances p4d and p4de, p5, p5en, p6-b200 and p6-b300 by their GPUs: rates of the user guide of EC2, latencies of
src/platform-aws.cpp of the plugin at 2daf7d30."""
COUNTS = ("boxes", "gpus_per_box", "ranks", "nics_per_box", "size_bytes")
NOT_STATED = ("None", "nan", "<NA>")
TOLERANCE = Fraction(9, 8)
"""Ratio up to which bandwidths count as those of the same hardware: files subtract protocols and encodings."""


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
    names: list[Any] = [_machine_name(row) for row in records(rows)]
    return rows.assign(machine=names)


def records(rows: pd.DataFrame) -> list[dict[str, Any]]:
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


@cache
def usual_rows() -> pd.DataFrame:
    """Rows of NCCL and RCCL with a size, without those whose algorithm was forced or switched off."""
    rows = _stored()
    unusual = rows.algorithm.str.contains("forced|off|ENABLE=0", na=False) | rows.software.str.contains(
        "MSCCL", na=False
    )
    named = rows.machine.notna() & rows.collective.isin(list(COLLECTIVES))
    return rows[named & ~unusual & rows.busbw_gbps.gt(0) & rows.size_bytes.gt(0)]


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
    if name == "dgx-spark":
        return dgx_spark(boxes) if 1 < boxes < 4 and size == 1 else None
    box = known_box(name)
    if boxes > 1:
        if nics is None or rate is None or (nics > box.gpus and nics % box.gpus):
            return None
        # A GPU's own NICs count as one; a NIC of several GPUs is near to neighbors.
        ports = min(nics, box.gpus)
        bandwidth = Fraction(rate) * nics / (8 * ports)
        near = np.array_split(np.array([f"gpu{gpu}" for gpu in range(box.gpus)]), ports)
        efa = EFA.get(str(gpu).split(maxsplit=1)[0]) if "EFA" in str(row.get("fabric")) else None
        latency = FABRIC_LATENCY if efa is None else efa.link_latency
        nic_list = (Nic(tuple(group.tolist()), bandwidth, bandwidth, latency=latency) for group in near)
        box = replace(box, nics=tuple(nic_list))
    topology = repeat_box(box, boxes)
    if size < box.gpus:
        topology = topology.restrict([f"box{box}/gpu{gpu}" for box, gpu in product(range(boxes), range(size))])
    if boxes > 1 and "SHARP" in row["system"]:
        return topology.changed(multicast=topology.multicast | {"ib"}, aggregation=topology.aggregation | {"ib"})
    return topology


@cache
def known_box(name: str) -> Box:
    """Return a box of the catalogue, or one that has fewer NVLinks."""
    if name not in FEWER_LINKS:
        return stored_box(name)
    box = stored_box(FEWER_LINKS[name])
    links = tuple(Link(tail, head, Fraction(200), latency) for tail, head, _, latency in box.links)
    return replace(box, name=name, links=links)


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
    return tuple(name for name, measured in measured_machines().items() if _is_like(own, measured))


@cache
def measured_machines() -> Mapping[str, tuple[Machine, bool]]:
    """Shapes of all machines of `measurements` that the catalogue has, by name."""
    rows = _stored().dropna(subset=["machine"]).drop_duplicates("machine")
    shapes = {}
    for row in records(rows):
        # Two boxes have the shape of any number.
        smaller = network(row | {"boxes": min(row["boxes"], 2)})
        if smaller is not None:
            machine, reduces = shape(smaller)
            boxes = row["boxes"] if machine.boxes > 1 else 1  # Cabled machines without NICs are one box
            shapes[row["machine"]] = machine._replace(boxes=boxes, ranks=row["ranks"]), reduces
    return shapes


def shape(topology: Topology) -> tuple[Machine, bool]:
    """Describe a network by its boxes, and whether what joins them adds up, as InfiniBand SHARP."""
    machine = nccl_machine(topology)
    ranks, (tails, heads, _, _) = topology.num_ranks, topology.arrays
    reducers = topology.multicast & topology.aggregation
    beside_ranks = {topology.nodes[node] for node in heads[tails < ranks].tolist()}
    return machine, machine.boxes > 1 and not reducers <= beside_ranks


def _is_like(own: tuple[Machine, bool], measured: tuple[Machine, bool]) -> bool:
    """Whether counts are equal, and bandwidths nearly so."""
    (machine, reduces), (other, other_reduces) = own, measured
    counts = (machine.ranks, machine.boxes, machine.is_switched, reduces)
    rates = ((machine.gpu_rate, other.gpu_rate), (machine.box_rate, other.box_rate))
    return counts == (other.ranks, other.boxes, other.is_switched, other_reduces) and all(
        max(pair) <= TOLERANCE * min(pair) for pair in rates
    )
