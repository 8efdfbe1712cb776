"""Networks for tests of trees that branch at switches: ``from looping_star import STAR``."""

from __future__ import annotations

from collopt.topologies import SwitchLimits, Topology

__all__ = ["BELOW", "STAR"]

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

BELOW = Topology.from_links(
    [("a", "b", 3), ("a", "s", 4), ("b", "s", 3), ("c", "s", 6)],
    compute="abc",
    switches="s",
    bidirectional=True,
    multicast="s",
    aggregation="s",
)
"""Trees gain by branching at the switch, but do not reach the bound of all schedules of an allreduce."""
