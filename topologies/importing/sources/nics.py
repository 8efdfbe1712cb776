"""The network cards of a box that a file describes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from ...switched.nic_shares import as_nic, notes_on, share_out
from ...switched.scale_out import Nic, SharedLink

__all__ = ["GPU_LINK", "OWN_LINK", "Cards", "plugged_in"]

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
