"""What-if changes of a topology: removed links, nodes or ranks, and changed bandwidths."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self, cast

from ...errors import TopologyError
from ...support.quantities import Exact, as_amount, as_factor
from ...support.validation import as_flag, as_names, as_several, shown
from .links import Link, grouped_links, rank_number
from .runtime_costs import RuntimeCosts
from .switch_limits import SwitchLimits


class WhatIf:
    """Mixin with the changes of a topology; each returns a new topology."""

    compute_nodes: tuple[str, ...]
    switch_nodes: tuple[str, ...]
    links: tuple[Link, ...]
    multicast: frozenset[str]
    aggregation: frozenset[str]
    limits: tuple[SwitchLimits, ...]
    name: str
    costs: RuntimeCosts | None

    @abstractmethod
    def link(self, tail: str, head: str) -> Link:
        """Return the link from `tail` to `head`, or raise `TopologyError` if there is none."""

    def restrict(self, ranks: Iterable[int | str], *, relay: bool = False) -> Self:
        """Keep only the given ranks (indices or names, in the new rank order) and drop the other compute nodes.

        Links of dropped compute nodes disappear, as in the paper's MI250 8+8 setting, and switches left without a link.
        With `relay`, the others stay with their links as nodes that own no data and pass it on like switches, see
        `SwitchLimits.relay`.  Unknown or repeated ranks, fewer than two, or a relay without links raise
        `TopologyError`.
        """
        kept = as_names((self._rank_name(rank) for rank in as_several(ranks, "ranks")), "compute")
        others = tuple(rank for rank in self.compute_nodes if rank not in set(kept)) if as_flag(relay, "relay") else ()
        alive = {*kept, *others, *self.switch_nodes}
        links = tuple(link for link in self.links if link.tail in alive and link.head in alive)
        name = f"{self.name} [{len(kept)} of {len(self.compute_nodes)} ranks{', others relay' if relay else ''}]"
        if relay and not others:
            raise TopologyError(f"no compute node of {self!r} is left to relay; leave relay out, or leave ranks out")
        linked = {end for link in links for end in link[:2]}
        if alone := [other for other in others if other not in linked]:
            raise TopologyError(f"compute node {alone[0]!r} of {self!r} has no link to relay over; leave relay out")
        return self._restricted(kept, links, name, others)

    def without_link(self, tail: str, head: str, *, bidirectional: bool = True) -> Self:
        """Remove the link from `tail` to `head`, and its opposite if `bidirectional` and present."""
        gone = self._ends(tail, head, bidirectional=bidirectional)
        links = tuple(link for link in self.links if link[:2] not in gone)
        return self._with(links=links, name=f"{self.name} without {tail}-{head}")

    def without_node(self, node: str) -> Self:
        """Remove a failed GPU, NIC or switch with all its links.

        Ranks after a removed one move up; switches left without a link disappear too.  An unknown node, or fewer than
        two ranks left, raise `TopologyError`.
        """
        if not isinstance(node, str) or node not in (*self.compute_nodes, *self.switch_nodes):
            raise TopologyError(f"node {shown(node)} is not in {self!r}")
        kept = tuple(rank for rank in self.compute_nodes if rank != node)
        links = tuple(link for link in self.links if node not in link[:2])
        return self._restricted(kept, links, f"{self.name} without {node}")

    def derate(self, tail: str, head: str, factor: Exact, *, bidirectional: bool = True) -> Self:
        """Multiply the bandwidth of one link (and of its opposite if `bidirectional`) by `factor`."""
        exact = as_factor(factor, "derating factor")
        changed = self._ends(tail, head, bidirectional=bidirectional)
        links = tuple(_scaled(link, exact) if link[:2] in changed else link for link in self.links)
        return self._with(links=links, name=f"{self.name} with {tail}-{head} x {exact}")

    def scaled(self, factor: Exact) -> Self:
        """Multiply every bandwidth by `factor`."""
        exact = as_factor(factor, "scale factor")
        return self._with(links=tuple(_scaled(link, exact) for link in self.links), name=f"{self.name} x {exact}")

    def with_bandwidths(self, bandwidths: Mapping[tuple[str, str], Exact]) -> Self:
        """Replace bandwidths of links; a link of 0 GB/s is removed.

        Bandwidths are GB/s, at least 0, by ``(tail, head)`` of existing links; links that are not named keep theirs.

        Examples
        --------
        >>> from collopt.topologies import Topology
        >>> triangle = Topology.from_links([("a", "b", 2), ("b", "c", 2), ("c", "a", 2)], compute="abc")
        >>> triangle.with_bandwidths({("a", "b"): "1/3"}).links[0].bandwidth
        Fraction(1, 3)
        """
        if not isinstance(bandwidths, Mapping):
            raise TopologyError(f"bandwidths are {shown(bandwidths)}; expected a mapping from (tail, head) to GB/s")
        chosen = {}
        for ends, bandwidth in bandwidths.items():
            if not isinstance(ends, tuple) or len(ends) != 2:
                raise TopologyError(f"bandwidths name {shown(ends)}; expected pairs (tail, head)")
            chosen[self.link(*ends)[:2]] = as_amount(bandwidth)
        links = [link._replace(bandwidth=chosen.get(link[:2], link.bandwidth)) for link in self.links]
        alive = tuple(link for link in links if link.bandwidth)
        return self._with(links=alive, name=f"{self.name} with other bandwidths")

    def _with(self, **changes: object) -> Self:
        """Change fields; shares of link classes that are lost leave the costs."""
        changed: Any = replace(cast("Any", self), **changes)
        if changed.costs is not None and changed.costs.efficiency:
            lost = _class_names(self) - _class_names(changed)
            kept = [row for row in changed.costs.efficiency if row[0] not in lost]
            changed = replace(changed, costs=replace(changed.costs, efficiency=kept))
        return cast("Self", changed)

    def _restricted(
        self, ranks: tuple[str, ...], links: tuple[Link, ...], name: str, relays: tuple[str, ...] = ()
    ) -> Self:
        """Keep these ranks and links, and the switches that still have a link; `relays` become switches."""
        linked = {end for link in links for end in link[:2]}
        switches = tuple(switch for switch in (*self.switch_nodes, *relays) if switch in linked)
        costs = self.costs
        if costs is not None and set(ranks) != set(self.compute_nodes):
            # Measured on other ranks, which says little about these.
            costs = replace(costs, calibrated=False)
        return self._with(
            compute_nodes=ranks,
            switch_nodes=switches,
            links=links,
            multicast=self.multicast & set(switches),
            aggregation=self.aggregation & set(switches),
            limits=(
                *(limits for limits in self.limits if limits.switch in switches),
                *(SwitchLimits(relay, relay=True) for relay in relays),
            ),
            name=name,
            costs=costs,
        )

    def _ends(self, tail: str, head: str, *, bidirectional: bool) -> set[tuple[str, str]]:
        """Return the ends of an existing link, and of its opposite link."""
        ends = self.link(tail, head)[:2]
        return {ends, (head, tail)} if as_flag(bidirectional, "bidirectional") else {ends}

    def _rank_name(self, rank: object) -> str:
        number = rank_number(self.compute_nodes, rank)
        if number is None:
            last = len(self.compute_nodes) - 1
            raise TopologyError(f"rank {shown(rank)} is not in {self!r}; expected 0..{last} or a compute node's name")
        return self.compute_nodes[number]


def _class_names(topology: WhatIf) -> set[str]:
    classes = grouped_links(topology.compute_nodes, topology.switch_nodes, topology.links)
    return {*classes, *(kinds for kinds, _ in classes.values())}


def _scaled(link: Link, factor: Fraction) -> Link:
    return link._replace(bandwidth=link.bandwidth * factor)
