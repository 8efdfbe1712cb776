"""What a person may add to a file that describes a box, where the file is silent or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ....support.quantities import Exact, as_bandwidth
from ...switched.nic_shares import as_nic, notes_on, share_out
from ...switched.scale_out import Nic, SharedLink
from .gpu_products import FIGURES, GpuProduct, as_figures, find_product

__all__ = ["GPU_LINK", "OPTIONS", "OWN_LINK", "BoxOptions", "Cards", "plugged_in"]

OWN_LINK = "a card's own PCIe link"
GPU_LINK = "a GPU's own PCIe link"
"""Names of links that cards share."""


class Cards(NamedTuple):
    """The network cards of a box.

    `nics`: In the order of the file's ``dev``.
    `shared`: What limits them.
    `notes`: What was left out or lowered.
    """

    nics: tuple[Nic, ...]
    shared: tuple[SharedLink, ...]
    notes: tuple[str, ...]


def plugged_in(
    near: Sequence[tuple[str, ...]], ports: Sequence[Fraction | None], shared: Sequence[SharedLink]
) -> Cards:
    """Plug cards in, each with what the links that it shares leave it.

    Units: `ports` in GB/s.
    """
    shares = share_out([len(nodes) for nodes in near], ports, shared)
    notes = notes_on(shares, ports)
    if any(share.each < share.bandwidth for share, port in zip(shares, ports, strict=True) if port is not None):
        notes.append("network cards that share a GPU's PCIe link divide their bandwidth among the GPUs near to them")
    nics = [as_nic(*row) for row in zip(near, ports, shares, strict=True)]
    return Cards(tuple(nics), tuple(shared), tuple(notes))


OPTIONS = ("figures", "gpu", "nic_bandwidth", "pcie_bandwidth")
"""What a person may say of a box."""


@dataclass(frozen=True)
class BoxOptions:
    """How to read a file that describes a box.

    `figures`: Whether NVLink, xGMI and PCIe count with their line rates or with the figures that NCCL and RCCL plan
        with.
    `gpu`: Which GPU it is, where the file does not say; what the file says is not overruled.
    `nic_bandwidth`: GB/s of every network card in each direction; overrules the file.
    `pcie_bandwidth`: GB/s of every PCIe link in each direction; overrules the file, which in virtual machines is often
        false.
    """

    figures: str = FIGURES[0]
    gpu: GpuProduct | None = None
    nic_bandwidth: Fraction | None = None
    pcie_bandwidth: Fraction | None = None

    def given(self) -> tuple[str, ...]:
        """Name what differs from what counts without being said.

        >>> BoxOptions.of(gpu="h100", figures="line").given()
        ('gpu',)
        """
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
        """Check what a person wrote.

        >>> BoxOptions.of(nic_bandwidth="12.5").nic_bandwidth
        Fraction(25, 2)
        """
        return cls(
            as_figures(figures),
            None if gpu is None else find_product(gpu),
            None if nic_bandwidth is None else as_bandwidth(nic_bandwidth, "every NIC"),
            None if pcie_bandwidth is None else as_bandwidth(pcie_bandwidth, "every PCIe link"),
        )
