"""Options that complete or override a file that describes a box."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ....support.quantities import Exact, as_bandwidth
from .gpu_products import FIGURES, GpuProduct, as_figures, find_product

OPTIONS = ("figures", "gpu", "nic_bandwidth", "pcie_bandwidth")


@dataclass(frozen=True)
class BoxOptions:
    """Options of a file that describes a box."""

    # Whether NVLink, xGMI and PCIe count with their line rates or with the figures that NCCL and RCCL plan with
    figures: str = FIGURES[0]
    gpu: GpuProduct | None = None  # the GPU model, where the file does not state it
    nic_bandwidth: Fraction | None = None  # GB/s of every NIC in each direction; overrules the file
    # GB/s of every PCIe link in each direction; overrules the file, which in virtual machines is often false
    pcie_bandwidth: Fraction | None = None

    def given(self) -> tuple[str, ...]:
        """Return the names of options that differ from their defaults."""
        unsaid = BoxOptions()
        return tuple(name for name in OPTIONS if getattr(self, name) != getattr(unsaid, name))

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
        return cls(
            as_figures(figures),
            None if gpu is None else find_product(gpu),
            None if nic_bandwidth is None else as_bandwidth(nic_bandwidth, "every NIC"),
            None if pcie_bandwidth is None else as_bandwidth(pcie_bandwidth, "every PCIe link"),
        )
