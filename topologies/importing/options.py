"""GPU models with the bandwidths of their NVLinks or xGMI links, and options that complete a file of a box.

Links have two figures: the *line* rate of the vendors' data sheets and ForestColl, and the lower *nccl* figure that
NCCL and RCCL use (``src/graph/topo.h`` of both), which allows for packet headers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from ...errors import TopologyError
from ...support.quantities import Exact, as_bandwidth
from ...support.validation import shown
from ..network.topology import SwitchLimits
from ..switched.box_files import stored_box

FIGURES = ("line", "nccl")  # names of the two figures; the first is the default


CODING_8B10B = Fraction(8, 10)
CODING_128B130B = Fraction(128, 130)
CODING_FLIT = Fraction(242, 256)

LANE_RATES = {
    speed: {"line": Fraction(speed) * coding / 8, "nccl": Fraction(nccl, 80)}
    for speed, coding, nccl in (
        ("2.5", CODING_8B10B, 15),
        ("5", CODING_8B10B, 30),
        ("8", CODING_128B130B, 60),
        ("16", CODING_128B130B, 120),
        ("32", CODING_128B130B, 240),
        ("64", CODING_FLIT, 480),
    )
}
"""GB/s of one lane in one direction, by GT/s and one of `FIGURES`.

Of the bits on the line, 8 of 10 are data up to 5 GT/s, 128 of 130 up to 32, and 242 of 256 bytes of a flit at 64 (PCI
Express base specification)."""

DEFAULT_SPEED = "8"
DEFAULT_LANES = 16  # NCCL's defaults for missing values: generation 3 with sixteen lanes


class GpuProduct(NamedTuple):
    """One GPU model."""

    name: str  # in lower case
    vendor: str  # ``"nvidia"`` or ``"amd"``
    code: str  # NVIDIA's compute capability times ten (``"90"``), AMD's architecture (``"gfx942"``)
    links: int  # NVLinks or xGMI links of the GPU; 0 where it has none
    line: Fraction  # GB/s of one link in one direction, by data sheet
    nccl: Fraction  # GB/s of one link in one direction, as NCCL or RCCL counts
    lane_speed: str  # GT/s of each of its 16 PCIe lanes, a key of `LANE_RATES`
    per_pair: int = 0  # links of each two GPUs in every machine with it; 0 where that differs
    device: str = ""  # PCI device, where others have the same `code`

    def link(self, figures: str) -> Fraction:
        """Return GB/s of one link in one direction, by one of `FIGURES`."""
        return self.line if figures == "line" else self.nccl

    def rate_note(self, figures: str) -> str:
        """Return the note on the bandwidth that its links are modeled with."""
        kind, library = ("NVLink", "NCCL") if self.vendor == "nvidia" else ("xGMI link", "RCCL")
        whose = "its line rate" if figures == "line" else f"the bandwidth that {library} plans with"
        return (
            f"every {kind} of {self.name} is modeled with {float(self.link(figures)):g} GB/s in each direction, {whose}"
        )

    @property
    def switch_limits(self) -> tuple[SwitchLimits, ...]:
        """Limits of its NVSwitch; empty where that neither multicasts nor reduces."""
        return stored_box(NVLINK_SHARP[self.name]).limits if self.name in NVLINK_SHARP else ()

    def rack_of(self, gpus: int) -> str:
        """Return the rack in the catalogue whose NVSwitches join boxes of so few of these GPUs; empty if none does."""
        return RACKS.get(self.name, "") if gpus < MIN_RACK_GPUS else ""


NVLINK_SHARP = {
    "h100": "dgx-h100",
    "h800": "dgx-h100",
    "b200": "dgx-b200",
    "b300": "dgx-b300",
    "gb200": "gb200-nvl72",
    "gb300": "gb300-nvl72",
}
"""GPUs whose NVSwitch has NVLink SHARP, and a box with this NVSwitch."""
NVSWITCH_GPUS = (*NVLINK_SHARP, "a100", "a800")  # sold by eight, or in racks, with NVSwitches
RACKS = {"gb200": "gb200-nvl72", "gb300": "gb300-nvl72"}
MIN_RACK_GPUS = 36  # NVL36
PRODUCTS = {
    name: GpuProduct(name, vendor, code, links, Fraction(line), Fraction(nccl), lane_speed, *wiring)
    for name, vendor, code, links, line, nccl, lane_speed, *wiring in (
        ("p100", "nvidia", "60", 4, "20", "18", "8"),
        ("v100", "nvidia", "70", 6, "25", "20", "8"),
        ("rtx8000", "nvidia", "75", 2, "25", "20", "8"),
        ("t4", "nvidia", "75", 0, "0", "0", "8"),
        ("a100", "nvidia", "80", 12, "25", "20", "16"),
        ("a800", "nvidia", "80", 8, "25", "20", "16"),
        ("a30", "nvidia", "80", 4, "25", "20", "16"),
        ("a40", "nvidia", "86", 4, "14.0625", "12", "16"),
        ("a10", "nvidia", "86", 0, "0", "0", "16"),
        ("l40s", "nvidia", "89", 0, "0", "0", "16"),
        ("h100", "nvidia", "90", 18, "25", "20.6", "32"),
        ("h800", "nvidia", "90", 8, "25", "20.6", "32"),
        ("b200", "nvidia", "100", 18, "50", "40.1", "32"),
        ("b300", "nvidia", "103", 18, "50", "40.1", "64"),
        ("gb200", "nvidia", "100", 18, "50", "40.1", "32"),
        ("gb300", "nvidia", "103", 18, "50", "40.1", "64"),
        ("rtxpro6000", "nvidia", "120", 0, "0", "0", "32"),
        ("mi100", "amd", "gfx908", 3, "46", "24", "16", 1),
        ("mi250", "amd", "gfx90a", 8, "50", "36", "16"),
        ("mi210", "amd", "gfx90a", 3, "50", "36", "16", 0, "0x740f"),
        ("mi300x", "amd", "gfx942", 7, "64", "48", "32", 1),
        ("mi300a", "amd", "gfx942", 6, "64", "48", "32", 2, "0x74a0"),
        ("mi350x", "amd", "gfx950", 7, "76.8", "48", "32", 1),
    )
}
"""By name; the first of those with one code is the default for files that state only the code.

Compute capabilities are those of NVIDIA's list (https://developer.nvidia.com/cuda-gpus).  Line rates and numbers of
links are those of the vendors' data sheets, which state both directions of all links together.  In one direction,
NVLink 1 has 20 GB/s, NVLink 2 to 4 25, NVLink 5 50 (1800 GB/s of 18 links), the bridge of GA102, as of A40, RTX A6000
and RTX 3090, 14.0625 (112.5 of four links); Turing has two links (100 GB/s, Quadro RTX 8000), A30 four (200); A800 and
H800 have 8 (400), H20 has all 18 (900).  An xGMI link of MI100 has 46 GB/s, of MI250 and MI210 50, of MI300X, MI325X
and MI300A 64, of MI350X and MI355X 76.8 (16 lanes of 38.4 GT/s, 153.6 GB/s in both directions).  MI210 has three links.
Each two of the four MI300A of a node are joined by two, 256 GB/s in both directions (https://hpc.llnl.gov/node/1244, on
El Capitan).  For compute capability 100 and more NCCL has one figure (``ncclTopoNVLinkBw``), for gfx94 and gfx95 RCCL
has the same.  PCI devices are those of RCCL's ``tools/topo_expl/models`` (topo_4p_940.xml, topo_3p_pcie.xml)."""

ALIASES = {
    alias: name
    for name, aliases in (
        ("rtx8000", "quadrortx8000 quadrortx6000 titanrtx rtx2080ti"),
        ("a100", "a100pcie"),
        ("h100", "h200 h20 gh200 h100pcie h100nvl h200nvl"),
        ("b200", "b100"),
        ("a40", "a6000 rtxa6000 a5000 rtxa5000 rtx3090"),
        ("mi250", "mi250x"),
        ("mi300x", "mi325x"),
        ("mi350x", "mi355x"),
        ("a10", "a10g a4000 rtxa4000"),
        ("l40s", "l4 l40 l20 rtx6000ada rtx4090"),
        ("rtxpro6000", "rtx5090 rtxpro5000"),
    )
    for alias in aliases.split()
}
"""GPUs with the same links, or none, as another."""


def find_product(name: str) -> GpuProduct:
    """Return the GPU of this name, in upper or lower case, with or without dashes."""
    word = name.lower().replace("-", "").replace(" ", "") if isinstance(name, str) else ""
    word = ALIASES.get(word, word)
    if word not in PRODUCTS:
        names = ", ".join([*PRODUCTS, *ALIASES])
        raise TopologyError(f"there is no GPU {shown(name)} in the table of links; expected one of {names}")
    return PRODUCTS[word]


def products_of(vendor: str, code: str, device: str = "") -> list[GpuProduct]:
    """Return the GPUs of a compute capability or architecture, that of the PCI device first, then the usual one."""
    products = [product for product in PRODUCTS.values() if (product.vendor, product.code) == (vendor, code)]
    return sorted(products, key=lambda product: not device or product.device != device)


class BoxOptions(NamedTuple):
    """Options that complete a file of a box; bandwidths, in GB/s in each direction, overrule the file.

    PCIe bandwidths that virtual machines report are often false.
    """

    figures: str = FIGURES[0]  # which figures of NVLink, xGMI and PCIe count
    gpu: GpuProduct | None = None  # the GPU model, where the file does not state it
    nic_bandwidth: Fraction | None = None  # of every NIC
    pcie_bandwidth: Fraction | None = None  # of every PCIe link

    @property
    def changed(self) -> list[str]:
        """Names of options that differ from their defaults."""
        return [name for name, value in self._asdict().items() if value != self._field_defaults[name]]

    @classmethod
    def of(
        cls,
        *,
        figures: str = FIGURES[0],
        gpu: str | None = None,
        nic_bandwidth: Exact | None = None,
        pcie_bandwidth: Exact | None = None,
    ) -> BoxOptions:
        """Validate options as users give them."""
        if figures not in FIGURES:
            raise TopologyError(f"figures are {shown(figures)}; expected {' or '.join(map(repr, FIGURES))}")
        return cls(
            figures,
            None if gpu is None else find_product(gpu),
            None if nic_bandwidth is None else as_bandwidth(nic_bandwidth, "every NIC"),
            None if pcie_bandwidth is None else as_bandwidth(pcie_bandwidth, "every PCIe link"),
        )


OPTIONS = BoxOptions._fields
