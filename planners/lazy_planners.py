"""The functions of all planners, which import what they need when they are called.

Modules with kernels take seconds to import, and nobody needs all planners: see ``docs/explanation/architecture.md``.
What a planner takes beyond the topology is in the signature of its function here, where `collopt.plan` reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..topologies import Topology
from .plans.plan import Plan

__all__ = [
    "Make",
    "allreduce_lp",
    "bfb",
    "blink",
    "double_binary_tree",
    "forestcoll",
    "hierarchical_ring",
    "multicommodity",
    "multitree",
    "recursive_doubling",
    "ring",
    "shortest_paths",
    "strength",
]

Make = Callable[..., Plan]


def forestcoll(collective: str) -> Make:
    """Return `plan_trees` for one collective."""

    def make(
        topology: Topology,
        *,
        trees_per_root: int | None = None,
        root: int | str | None = None,
        weights: Sequence[object] | None = None,
    ) -> Plan:
        from .trees.forestcoll import plan_trees

        return plan_trees(topology, collective, trees_per_root=trees_per_root, root=root, weights=weights)

    return make


def strength(topology: Topology) -> Plan:
    """Call `plan_strength`."""
    from .trees.strength import plan_strength

    return plan_strength(topology)


def allreduce_lp(topology: Topology, *, trees_per_root: int | None = None) -> Plan:
    """Call `plan_allreduce_lp`."""
    from .trees.allreduce_lp import plan_allreduce_lp

    return plan_allreduce_lp(topology, trees_per_root=trees_per_root)


def ring(collective: str) -> Make:
    """Return `plan_ring` for one collective."""

    def make(
        topology: Topology,
        *,
        channels: int | None = None,
        order: str | Sequence[int | str] | None = None,
        root: int | str | None = None,
        weights: Sequence[object] | None = None,
    ) -> Plan:
        from .patterns.ring import plan_ring

        return plan_ring(topology, collective, channels=channels, order=order, root=root, weights=weights)

    return make


def double_binary_tree(collective: str) -> Make:
    """Return `plan_double_binary_tree` for one collective."""

    def make(topology: Topology, *, root: int | str | None = None) -> Plan:
        from .patterns.double_binary_tree import plan_double_binary_tree

        return plan_double_binary_tree(topology, collective, root=root)

    return make


def recursive_doubling(collective: str) -> Make:
    """Return `plan_recursive_doubling` for one collective."""

    def make(topology: Topology) -> Plan:
        from .patterns.recursive_halving_doubling import plan_recursive_doubling

        return plan_recursive_doubling(topology, collective)

    return make


def hierarchical_ring(collective: str) -> Make:
    """Return `plan_hierarchical_ring` for one collective."""

    def make(topology: Topology, *, weights: Sequence[object] | None = None) -> Plan:
        from .patterns.hierarchical_ring import plan_hierarchical_ring

        return plan_hierarchical_ring(topology, collective, weights=weights)

    return make


def multitree(collective: str) -> Make:
    """Return `plan_multitree` for one collective."""

    def make(topology: Topology, *, weights: Sequence[object] | None = None) -> Plan:
        from .patterns.multitree import plan_multitree

        return plan_multitree(topology, collective, weights=weights)

    return make


def blink(collective: str) -> Make:
    """Return `plan_blink` for one collective."""

    def make(topology: Topology, *, root: int | str | None = None, weights: Sequence[object] | None = None) -> Plan:
        from .patterns.blink import plan_blink

        return plan_blink(topology, collective, root=root, weights=weights)

    return make


def bfb(collective: str) -> Make:
    """Return `plan_bfb` for one collective."""

    def make(topology: Topology, *, chunks: int | None = None, size: int | str | None = None) -> Plan:
        from .bfb.bfb import plan_bfb

        return plan_bfb(topology, collective, chunks=chunks, size=size)

    return make


def multicommodity(collective: str) -> Make:
    """Return `plan_pairs` for one collective."""

    def make(topology: Topology, *, chunks: int | None = None, order: str | None = None) -> Plan:
        from .pairs.multicommodity import plan_pairs

        return plan_pairs(topology, collective, chunks=chunks, order=order)

    def make_with_traffic(
        topology: Topology, *, traffic: Any = None, chunks: int | None = None, order: str | None = None
    ) -> Plan:
        from .pairs.multicommodity import plan_pairs

        return plan_pairs(topology, collective, traffic=traffic, chunks=chunks, order=order)

    return make_with_traffic if collective == "all_to_allv" else make


def shortest_paths(collective: str) -> Make:
    """Return `plan_shortest_paths` for one collective."""

    def make(topology: Topology) -> Plan:
        from .pairs.shortest_paths import plan_shortest_paths

        return plan_shortest_paths(topology, collective)

    def make_with_traffic(topology: Topology, *, traffic: Any = None) -> Plan:
        from .pairs.shortest_paths import plan_shortest_paths

        return plan_shortest_paths(topology, collective, traffic=traffic)

    return make_with_traffic if collective == "all_to_allv" else make
