"""Bandwidths of PCIe links and of links between CPUs.

NCCL's figures are those of its ``src/graph/topo.h`` and ``src/graph/topo.cc``.
"""

import re
from fractions import Fraction

from ..sources.options import DEFAULT_LANES, DEFAULT_SPEED, LANE_RATES
from .elements import Element

_TRANSFERS = re.compile(r"([0-9]+(?:\.[0-9]+)?) *GT/s(?: PCIe)?")


def states_bandwidth(pci: Element) -> bool:
    """Return whether the file states the speed and number of lanes."""
    return _transfers(pci) in LANE_RATES and pci.integer("link_width", 0, 64, default=0) > 0


def pcie_bandwidth(pci: Element, figures: str) -> Fraction:
    """Return GB/s of the link above a ``pci``, one way, by one of ``FIGURES``; unknown values count as in NCCL."""
    lane = LANE_RATES.get(_transfers(pci), LANE_RATES[DEFAULT_SPEED])
    width = pci.integer("link_width", 0, 64, default=0) or DEFAULT_LANES
    return width * (lane.line if figures == "line" else lane.nccl)


def _transfers(pci: Element) -> str:
    found = _TRANSFERS.fullmatch(pci.get("link_speed").strip())
    return found[1].removesuffix(".0") if found else ""


AMD_CPUS = {0x8F: 16, 0xAF: 24, 0xBF: 32, 25: 24, 26: 32}
"""GB/s by family: as the processor states it, or as older releases of NCCL wrote it.  Zen 1 and 2 have 16."""
INTEL_CPUS = ((0xCF, 40), (0x8F, 22), (0x55, 10))
"""GB/s of family 6, from this model on: Emerald Rapids, Sapphire Rapids, Skylake.  Before them 6."""
GRANITE_RAPIDS = (0xAD, 0xAE, 0xAF)
OTHER_CPUS = {"ppc64": 32, "arm64": 6}
DEFAULT_CPU_LINK = 6


def inter_cpu_bandwidth(cpu: Element) -> Fraction:
    """Return NCCL's figure for the GB/s between a ``cpu`` element and another one of its machine."""
    if cpu.get("arch") in OTHER_CPUS:
        return Fraction(OTHER_CPUS[cpu.get("arch")])
    family = cpu.integer("familyid", 0, 2**31, default=0)
    model = cpu.integer("modelid", 0, 2**31, default=0)
    if cpu.get("vendor") == "AuthenticAMD":
        return Fraction(AMD_CPUS.get(family, 16))
    if cpu.get("vendor") == "GenuineIntel" and family == 6:
        if model in GRANITE_RAPIDS:
            return Fraction(INTEL_CPUS[0][1])
        return Fraction(next((speed for first, speed in INTEL_CPUS if model >= first), DEFAULT_CPU_LINK))
    return Fraction(DEFAULT_CPU_LINK)
