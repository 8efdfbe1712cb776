"""A network for tests of trees that branch at switches: ``from looping_star import STAR``."""

from __future__ import annotations

from collopt.topologies import SwitchLimits, Topology

__all__ = ["STAR"]

STAR = Topology.from_links(
    [(rank, "s", 30) for rank in "abc"],
    compute="abc",
    switches="s",
    bidirectional=True,
    multicast="s",
    aggregation="s",
    limits=[SwitchLimits("s", loopback=True)],
)
"""Three ranks around a switch that copies, adds up and loops copies back."""
