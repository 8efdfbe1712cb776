"""How fast PCIe links and the links between CPUs are, by what NCCL writes about them.

NCCL's figures are those of its ``src/graph/topo.h`` and ``src/graph/topo.cc``.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from .elements import Element


class Lane(NamedTuple):
    """GB/s of one lane in one direction, by its line rate and in NCCL's figures."""

    line: Fraction
    nccl: Fraction


def _lane(transfers: str, coding: Fraction, nccl: int) -> Lane:
    return Lane(Fraction(transfers) * coding / 8, Fraction(nccl, 80))


TWO_OF_TEN = Fraction(8, 10)
TWO_OF_130 = Fraction(128, 130)
FLIT = Fraction(242, 256)

LANE = {
    "2.5": _lane("2.5", TWO_OF_TEN, 15),
    "5": _lane("5", TWO_OF_TEN, 30),
    "8": _lane("8", TWO_OF_130, 60),
    "16": _lane("16", TWO_OF_130, 120),
    "32": _lane("32", TWO_OF_130, 240),
    "64": _lane("64", FLIT, 480),
}
"""By GT/s.  Of the bits on the line, 8 of 10 are data up to 5 GT/s, 128 of 130 up to 32, and 242 of 256 bytes of a
flit at 64 (PCI Express base specification)."""

SPEED = "8"
LANES = 16
"""What NCCL takes where a file does not say: a link of the third generation with sixteen lanes."""

_TRANSFERS = re.compile(r"([0-9]+(?:\.[0-9]+)?) *GT/s(?: PCIe)?")


def states_its_speed(pci: Element) -> bool:
    """Tell whether the file says both how fast a lane is and how many there are."""
    return _transfers(pci) in LANE and pci.integer("link_width", 0, 64, default=0) > 0


def pcie_bandwidth(pci: Element, figures: str) -> Fraction:
    """GB/s of the link above a ``pci`` element in one direction, by one of ``FIGURES``.

    A speed that NCCL does not know counts as `SPEED`, and no width, or 0, as `LANES`, as there.
    """
    lane = LANE.get(_transfers(pci), LANE[SPEED])
    width = pci.integer("link_width", 0, 64, default=0) or LANES
    return width * (lane.line if figures == "line" else lane.nccl)


def _transfers(pci: Element) -> str:
    found = _TRANSFERS.fullmatch(pci.get("link_speed").strip())
    return found[1].removesuffix(".0") if found else ""


AMD = {0x8F: 16, 0xAF: 24, 0xBF: 32, 25: 24, 26: 32}
"""By family: as the processor states it, or as older releases of NCCL wrote it.  Zen 1 and 2 have 16."""
INTEL = ((0xCF, 40), (0x8F, 22), (0x55, 10))
"""Of family 6, from this model on: Emerald Rapids, Sapphire Rapids, Skylake.  Before them 6."""
GRANITE_RAPIDS = (0xAD, 0xAE, 0xAF)
OTHERS = {"ppc64": 32, "arm64": 6}
SLOWEST = 6


def speed_between_cpus(cpu: Element) -> Fraction:
    """GB/s between a ``cpu`` element and another one of its machine, in NCCL's figures: there are no others."""
    if cpu.get("arch") in OTHERS:
        return Fraction(OTHERS[cpu.get("arch")])
    family = cpu.integer("familyid", 0, 2**31, default=0)
    model = cpu.integer("modelid", 0, 2**31, default=0)
    if cpu.get("vendor") == "AuthenticAMD":
        return Fraction(AMD.get(family, 16))
    if cpu.get("vendor") == "GenuineIntel" and family == 6:
        if model in GRANITE_RAPIDS:
            return Fraction(INTEL[0][1])
        return Fraction(next((speed for first, speed in INTEL if model >= first), SLOWEST))
    return Fraction(SLOWEST)
