"""What-if changes of a topology: removed links, nodes or ranks, and changed bandwidths."""

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact, as_amount, as_factor
from ...support.validation import as_flag, as_names, as_several, shown
from .devices import Device, devices_of
from .links import Link, LinkColumns, grouped_links, rank_number
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
    devices: tuple[Device, ...]

    @property
    @abstractmethod
    def node_index(self) -> Mapping[str, int]:
        """Position of each node, compute nodes in rank order first."""

    @property
    @abstractmethod
    def columns(self) -> LinkColumns:
        """The links as arrays of their ends and kinds."""

    @abstractmethod
    def link(self, tail: str, head: str) -> Link:
        """Return the link from `tail` to `head`, or raise `TopologyError` if there is none."""

    @abstractmethod
    def link_places(self, tails: IntArray, heads: IntArray) -> IntArray:
        """Return the places in `links` of the links between nodes, given by number; -1 where there is none."""

    def restrict(self, ranks: Iterable[int | str], *, relay: bool = False) -> Self:
        """Keep only the given ranks (indices or names, in the new rank order) and drop the other compute nodes.

        Switches left without a link disappear too.  With `relay`, the others stay with their links as nodes that own no
        data and pass it on like switches, see `SwitchLimits.relay`.  Unknown or repeated ranks, fewer than two, or a
        relay without links raise `TopologyError`.
        """
        kept = as_names((self._rank_name(rank) for rank in as_several(ranks, "ranks")), "compute")
        relays = tuple(rank for rank in self.compute_nodes if rank not in set(kept)) if as_flag(relay, "relay") else ()
        name = f"{self.name} [{len(kept)} of {len(self.compute_nodes)} ranks{', others relay' if relay else ''}]"
        if relay and not relays:
            raise TopologyError(f"no compute node of {self} is left to relay; leave relay out, or leave ranks out")
        return self._restricted(kept, self.switch_nodes, name, relays)

    def without_link(self, tail: str, head: str, *, bidirectional: bool = True) -> Self:
        """Remove the link from `tail` to `head`, and its opposite if `bidirectional` and present."""
        gone = self._places(tail, head, bidirectional=bidirectional)
        links = _where(self.columns, ~np.isin(np.arange(len(self.columns.tails)), gone))
        return self._with(links=links, name=f"{self.name} without {tail}-{head}")

    def without_node(self, node: str) -> Self:
        """Remove a failed GPU, NIC or switch with its links, and switches left without any; later ranks move up."""
        if not isinstance(node, str) or node not in self.node_index:
            raise TopologyError(f"node {shown(node)} is not in {self}")
        kept = tuple(rank for rank in self.compute_nodes if rank != node)
        switches = tuple(switch for switch in self.switch_nodes if switch != node)
        return self._restricted(kept, switches, f"{self.name} without {node}")

    def derate(self, tail: str, head: str, factor: Exact, *, bidirectional: bool = True) -> Self:
        """Multiply the bandwidth of one link (and of its opposite if `bidirectional`) by `factor`."""
        exact = as_factor(factor, "derating factor")
        changed = self._places(tail, head, bidirectional=bidirectional)
        rates = [self.columns.rates[kind] for kind in self.columns.kinds[changed].tolist()]
        links = _with_rates(self.columns, changed, [(bandwidth * exact, latency) for bandwidth, latency in rates])
        return self._with(links=links, name=f"{self.name} with {tail}-{head} x {exact}")

    def scaled(self, factor: Exact) -> Self:
        """Multiply every bandwidth by `factor`."""
        exact = as_factor(factor, "scale factor")
        rates = tuple((bandwidth * exact, latency) for bandwidth, latency in self.columns.rates)
        return self._with(links=self.columns._replace(rates=rates), name=f"{self.name} x {exact}")

    def with_bandwidths(self, bandwidths: Mapping[tuple[str, str], Exact]) -> Self:
        """Replace bandwidths of links, in GB/s by ``(tail, head)``; a link of 0 GB/s is removed."""
        if not isinstance(bandwidths, Mapping):
            raise TopologyError(f"bandwidths are {shown(bandwidths)}; expected a mapping from (tail, head) to GB/s")
        rates_at: dict[int, tuple[Fraction, Fraction]] = {}
        for ends, bandwidth in bandwidths.items():
            if not isinstance(ends, tuple) or len(ends) != 2:
                raise TopologyError(f"bandwidths name {shown(ends)}; expected pairs (tail, head)")
            latency = self.link(*ends).latency
            rates_at[int(self._places(*ends, bidirectional=False)[0])] = as_amount(bandwidth), latency
        alive = np.ones(len(self.columns.tails), dtype=np.bool_)
        alive[[place for place, (bandwidth, _) in rates_at.items() if not bandwidth]] = False
        rates = {place: rate for place, rate in rates_at.items() if rate[0]}
        links = _with_rates(self.columns, np.array([*rates], dtype=np.int64), rates.values())
        return self._with(links=_where(links, alive), name=f"{self.name} with other bandwidths")

    def _with(self, **changes: object) -> Self:
        """Change fields; shares of link classes that are lost leave the costs."""
        changed: Any = replace(cast("Any", self), **changes)
        if changed.costs is not None and changed.costs.efficiency:
            lost = _class_names(self) - _class_names(changed)
            kept = [row for row in changed.costs.efficiency if row[0] not in lost]
            changed = replace(changed, costs=replace(changed.costs, efficiency=kept))
        return cast("Self", changed)

    def _restricted(
        self, ranks: tuple[str, ...], nodes: tuple[str, ...], name: str, relays: tuple[str, ...] = ()
    ) -> Self:
        """Keep these ranks, and of other nodes those that still have a link; `relays` become switches, and need one."""
        # Links between nodes that stay, and the nodes that these links reach.
        alive = np.zeros(len(self.node_index), dtype=np.bool_)
        alive[[self.node_index[node] for node in (*ranks, *nodes, *relays)]] = True
        links = _where(self.columns, alive[self.columns.tails] & alive[self.columns.heads])
        linked = np.zeros_like(alive)
        linked[links.tails] = linked[links.heads] = True
        if alone := [relay for relay in relays if not linked[self.node_index[relay]]]:
            raise TopologyError(f"compute node {alone[0]!r} of {self} has no link to relay over; leave relay out")
        # New numbers of the nodes: ranks in their new order, then switches that still have a link.
        switches = tuple(switch for switch in (*nodes, *relays) if linked[self.node_index[switch]])
        numbers = np.empty(len(self.node_index), dtype=np.int64)
        numbers[[self.node_index[node] for node in (*ranks, *switches)]] = np.arange(len(ranks) + len(switches))
        left = set(switches)
        costs = self.costs
        if costs is not None and set(ranks) != set(self.compute_nodes):
            # The costs were measured on other ranks.
            costs = replace(costs, calibrated=False)
        return self._with(
            compute_nodes=ranks,
            switch_nodes=switches,
            links=links._replace(tails=numbers[links.tails], heads=numbers[links.heads]),
            multicast=self.multicast & left,
            aggregation=self.aggregation & left,
            limits=(
                *(limits for limits in self.limits if limits.switch in left),
                *(SwitchLimits(relay, relay=True) for relay in relays),
            ),
            name=name,
            costs=costs,
            devices=devices_of(self.devices, (*ranks, *switches)),
        )

    def _places(self, tail: str, head: str, *, bidirectional: bool) -> IntArray:
        """Return the place of an existing link, and that of its opposite link if there is one."""
        ends = np.array([self.node_index[node] for node in self.link(tail, head)[:2]])
        both = as_flag(bidirectional, "bidirectional")
        places = self.link_places(ends, ends[::-1]) if both else self.link_places(ends[:1], ends[1:])
        return places[places >= 0]

    def _rank_name(self, rank: object) -> str:
        number = rank_number(self.compute_nodes, rank)
        if number is None:
            expected = f"0..{len(self.compute_nodes) - 1} or a name such as {self.compute_nodes[0]!r}"
            raise TopologyError(f"rank {shown(rank)} is not in {self}; expected {expected}")
        return self.compute_nodes[number]


def _class_names(topology: WhatIf) -> set[str]:
    classes = grouped_links(topology.compute_nodes, topology.switch_nodes, topology.links)
    return {*classes, *(kinds for kinds, _ in classes.values())}


def _where(columns: LinkColumns, kept: npt.NDArray[np.bool_]) -> LinkColumns:
    """Keep some links."""
    tails, heads, kinds = (column[kept] for column in columns[:3])
    return LinkColumns(tails, heads, kinds, columns.rates)


def _with_rates(columns: LinkColumns, places: IntArray, rates: Collection[tuple[Fraction, Fraction]]) -> LinkColumns:
    """Give the links at these places rates of their own."""
    kinds = columns.kinds.copy()
    kinds[places] = len(columns.rates) + np.arange(len(rates))
    return columns._replace(kinds=kinds, rates=(*columns.rates, *rates))
