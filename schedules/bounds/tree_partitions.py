"""`TreePartition`, the witness of allreduces by trees that branch at switches."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from ...errors import CertificateError
from ...support.arrays import BoolArray, IntArray, components
from ...support.formatting import exact
from ...topologies import Topology
from ..traffic.collective import ALLREDUCE, AnyCollective, as_collective
from .cuts import Partition, total_data
from .witness import Crossing, Pair


@dataclass(frozen=True)
class TreePartition(Partition):
    """A partition whose parts without ranks may hold switches that multicast and aggregate.

    *Allreduce by trees*: reduce trees and broadcast trees that span all ranks and branch at ranks and able switches.
    With p parts that hold ranks, the hops of one tree leave and enter them ``2 (p - 1)`` times, if they branch at no
    switch outside.  Switches in the other parts form components; one that is next to D of the p parts, and that can
    branch the tree, saves at most ``D - 2`` of these crossings.  It saves ``D - 3`` if all its able switches loop back
    the copy of the rank above, and none of the D parts holds an able switch, which could be above instead.  What all
    parts together give out and take in bounds the rate of both trees;
    ``docs/explanation/in-network.md`` proves it.

    Examples
    --------
    Eight ranks around a switch of 450 GB/s per rank, which loops copies back: n / (n + 1) of a link.

    >>> from collopt.topologies import SwitchLimits, Topology
    >>> box = Topology.from_links(
    ...     [(rank, "s", 450) for rank in "abcdefgh"], compute="abcdefgh", switches="s", bidirectional=True,
    ...     multicast="s", aggregation="s", limits=[SwitchLimits("s", loopback=True)],
    ... )
    >>> amount, bandwidth = TreePartition(tuple(frozenset({node}) for node in box.nodes)).crossing(box, "allreduce")
    >>> 8 * bandwidth / amount
    Fraction(400, 1)
    """

    field: ClassVar[str] = "tree_partition"

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up the links that leave or enter parts with ranks, see `Witness.crossing`."""
        if (collective := as_collective(collective)) is not ALLREDUCE:
            raise CertificateError(f"a partition does not bound {collective.name!r}")
        parts = self._numbered(topology)
        count = int(parts.max()) + 1
        saved = _saved(topology, parts, topology.multicast) + _saved(topology, parts, topology.aggregation)
        tails, heads, capacities, unit = topology.arrays
        apart = parts[tails] != parts[heads]
        leaving, entering = apart & (parts[tails] >= 0), apart & (parts[heads] >= 0)
        bandwidth = int(capacities[leaving].sum()) + int(capacities[entering].sum())
        return Crossing((4 * (count - 1) - saved) * total_data(topology, weights), bandwidth * unit)

    def scope(self, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say which schedules the bound is about."""
        return "allreduces by trees"

    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """Say how many parts there are, and what crosses their borders."""
        amount, bandwidth = self.crossing(topology, collective)
        carried = f"{exact(bandwidth, 'GB/s')}, carrying {exact(amount / topology.num_ranks)} times all data"
        return f"ingress and egress of p = {len(self._parties(topology))} parts: {carried}"

    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:  # noqa: ARG002
        """Weight 1 for every link between a part with ranks and one without, 2 between two with ranks."""
        parts = self._numbered(topology)
        tails, heads, _, _ = topology.arrays
        ends = np.where(parts[tails] != parts[heads], (parts[tails] >= 0).astype(int) + (parts[heads] >= 0), 0)
        pairs = ((link.tail, link.head) for link in topology.links)
        return {pair: Fraction(count) for pair, count in zip(pairs, ends.tolist(), strict=True) if count}

    def _check_idle(self, topology: Topology, parties: list[frozenset[str]]) -> None:
        """Accept able switches outside of the parts with ranks; `crossing` counts what they save."""


def _saved(topology: Topology, parts: IntArray, able: frozenset[str]) -> int:
    """Crossings that switches of no part save in a tree at most, where those in `able` branch it."""
    tails, heads, _, _ = topology.arrays
    idle = parts < 0
    inner = idle[tails] & idle[heads]
    size = len(parts)
    labels = components(size, np.column_stack((tails[inner], heads[inner])))
    branches = _mask(topology, able) & idle
    whole = branches & ~_mask(topology, topology.loopback)
    saved = 0
    border = [(labels[tails], parts[heads], idle[tails] & ~idle[heads])]
    border += [(labels[heads], parts[tails], idle[heads] & ~idle[tails])]
    near = np.unique(np.hstack([np.stack([label[here], part[here]]) for label, part, here in border]), axis=1)
    counts = np.bincount(near[0], minlength=size)
    # A switch in a part may be above one outside, which then loops nothing back to any rank.
    hidden = np.isin(near[1], np.unique(parts[_mask(topology, able) & ~idle]))
    above = np.bincount(near[0][hidden], minlength=size)
    for label in np.unique(labels[branches]).tolist():
        looped = not whole[labels == label].any() and not above[label]
        saved += max(0, int(counts[label]) - 2 - looped)
    return saved


def _mask(topology: Topology, names: frozenset[str]) -> BoolArray:
    mask = np.zeros(len(topology.nodes), dtype=np.bool_)
    mask[[topology.node_index[name] for name in names]] = True
    return mask
