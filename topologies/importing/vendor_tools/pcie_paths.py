"""PCIe trees from path types: GPUs below bridges below CPUs, and links between all CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from ...network.topology import Link
from ...switched.scale_out import PCIE_LATENCY
from ..nccl.pcie_speeds import DEFAULT_LANES, LANE_RATES
from ..sources.document import Document
from ..sources.options import BoxOptions


class PcieLocation(NamedTuple):
    """CPU and bridge, both numbered from 0, of a GPU or NIC; `bridge` is None if it is attached to the CPU."""

    cpu: int
    bridge: int | None = None


class PciePathTree(NamedTuple):
    """The PCIe part of a box."""

    links: tuple[Link, ...]  # each for both directions
    switches: tuple[str, ...]  # ``pcie0`` ... for bridges, ``cpu0`` ... for CPUs
    above: tuple[str, ...]  # the switch above each device


def pcie_link_bandwidth(document: Document, options: BoxOptions) -> tuple[Fraction, str]:
    """Return GB/s of one PCIe link in each direction, and a note on its source."""
    if options.pcie_bandwidth is not None:
        return (
            options.pcie_bandwidth,
            f"every PCIe link is modeled with {float(options.pcie_bandwidth):.4g} GB/s, as given",
        )
    if options.gpu is None:
        raise document.error(
            "the PCIe bandwidth is unknown; give it in GB/s (pcie_bandwidth), or the GPU (gpu), whose slot is then "
            "assumed"
        )
    speed = options.gpu.lane_speed
    lane = LANE_RATES[speed]
    bandwidth = DEFAULT_LANES * (lane.line if options.figures == "line" else lane.nccl)
    return bandwidth, (
        f"every PCIe link is modeled with {float(bandwidth):.4g} GB/s, what the slot of {options.gpu.name} has with "
        f"{DEFAULT_LANES} lanes of {speed} GT/s"
    )


def pcie_path_tree(locations: Sequence[PcieLocation], gpus: int, bandwidth: Fraction) -> PciePathTree:
    """Build the PCIe tree of devices, the first `gpus` of which are GPUs. Units: `bandwidth` in GB/s."""
    above = tuple(
        f"cpu{location.cpu}" if location.bridge is None else f"pcie{location.bridge}" for location in locations
    )
    pairs = [(f"gpu{gpu}", above[gpu]) for gpu in range(gpus)]
    cpu_of = {location.bridge: location.cpu for location in locations if location.bridge is not None}
    pairs += [(f"pcie{bridge}", f"cpu{cpu}") for bridge, cpu in sorted(cpu_of.items())]
    cpus = sorted({location.cpu for location in locations})
    pairs += [(f"cpu{one}", f"cpu{other}") for one, other in combinations(cpus, 2)]
    only = f"cpu{cpus[0]}"
    if len(cpus) == 1 and len(cpu_of) == 1 and only not in above:
        pairs = [pair for pair in pairs if only not in pair]
    switches = [f"pcie{bridge}" for bridge in sorted(cpu_of)] + [f"cpu{cpu}" for cpu in cpus]
    linked = {node for pair in pairs for node in pair}
    return PciePathTree(
        tuple(Link(one, other, bandwidth, PCIE_LATENCY) for one, other in pairs),
        tuple(switch for switch in switches if switch in linked),
        above,
    )
