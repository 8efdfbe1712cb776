"""Bandwidths of PCIe links and of links between CPUs.

NCCL's figures are those of its ``src/graph/topo.h`` and ``src/graph/topo.cc``.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from .elements import Element


class Lane(NamedTuple):
    """GB/s of one lane in one direction: line rate, and NCCL's figure."""

    line: Fraction
    nccl: Fraction


def _lane(transfers: str, coding: Fraction, nccl: int) -> Lane:
    return Lane(Fraction(transfers) * coding / 8, Fraction(nccl, 80))


CODING_8B10B = Fraction(8, 10)
CODING_128B130B = Fraction(128, 130)
CODING_FLIT = Fraction(242, 256)

LANE_RATES = {
    "2.5": _lane("2.5", CODING_8B10B, 15),
    "5": _lane("5", CODING_8B10B, 30),
    "8": _lane("8", CODING_128B130B, 60),
    "16": _lane("16", CODING_128B130B, 120),
    "32": _lane("32", CODING_128B130B, 240),
    "64": _lane("64", CODING_FLIT, 480),
}
"""By GT/s.  Of the bits on the line, 8 of 10 are data up to 5 GT/s, 128 of 130 up to 32, and 242 of 256 bytes of a
flit at 64 (PCI Express base specification)."""

DEFAULT_SPEED = "8"
DEFAULT_LANES = 16  # NCCL's defaults for missing values: generation 3 with sixteen lanes

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
