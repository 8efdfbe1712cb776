"""Max-min fair bandwidths of NICs that share links on the paths to their nearest GPUs.

A NIC is assumed to spread its traffic evenly over the nodes near it.  The bandwidths of all NICs are raised together
until their ports or a link on their paths are full (max-min fairness; Bertsekas and Gallager, Data Networks, chapter
6), so NICs that need less than an even share leave the rest to the others.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .scale_out import Box, Nic, SharedLink

UNLIMITED = Fraction(5000)  # GB/s without a known limit, as in NCCL

MAX_NAMES = 4  # NICs that a note lists

OWN_LINK = "a card's own PCIe link"
GPU_LINK = "a GPU's own PCIe link"  # names of shared links


class Share(NamedTuple):
    """Bandwidth of one NIC."""

    bandwidth: Fraction  # GB/s in each direction
    near_bandwidth: Fraction  # GB/s of its link to each node near it
    limit: SharedLink | None  # the link that limits it below its ports, if any


class AttachedNics(NamedTuple):
    """The NICs of a box, in the order of the file, with the links that limit them and notes on them."""

    nics: tuple[Nic, ...]
    shared: tuple[SharedLink, ...]
    notes: tuple[str, ...]


def attach_nics(
    near: Sequence[tuple[str, ...]], ports: Sequence[Fraction | None], shared: Sequence[SharedLink]
) -> AttachedNics:
    """Make NICs with their max-min fair bandwidths. Units: `ports` in GB/s."""
    shares = max_min_shares([len(nodes) for nodes in near], ports, shared)
    notes = share_notes(shares, ports)
    if any(
        share.near_bandwidth < share.bandwidth for share, port in zip(shares, ports, strict=True) if port is not None
    ):
        notes.append("network cards that share a GPU's PCIe link divide their bandwidth among the GPUs near to them")
    nics = []
    for nodes, port, share in zip(near, ports, shares, strict=True):
        bandwidth = None if port is None else share.bandwidth
        nics.append(Nic(nodes, share.near_bandwidth, bandwidth, port=None if bandwidth == port else port))
    return AttachedNics(tuple(nics), tuple(shared), tuple(notes))


def max_min_shares(near: Sequence[int], ports: Sequence[Fraction | None], shared: Sequence[SharedLink]) -> list[Share]:
    """Compute max-min fair bandwidths of NICs by progressive filling. Units: `ports` in GB/s."""
    port_rates = [UNLIMITED if port is None else port for port in ports]
    results: list[tuple[Fraction, SharedLink | None]] = [(port, None) for port in port_rates]
    rising_nics = set(range(len(port_rates)))
    parts = [{nic: Fraction(count, near[nic]) for nic, count in link.paths} for link in shared]
    # Links that suffice for all ports together are no limit.
    contended = [
        _ContendedLink(link, link.bandwidth, sum(part.values(), Fraction(0)), part)
        for link, part in zip(shared, parts, strict=True)
        if sum(port_rates[nic] * share for nic, share in part.items()) > link.bandwidth
    ]
    for nic in rising_nics - {nic for link in contended for nic in link.parts}:
        rising_nics.remove(nic)
    # Raise all NICs until a port or a contended link is full, and stop the NICs that it holds.
    while rising_nics:
        level = min(port_rates[nic] for nic in rising_nics)
        full = min((link for link in contended if link.rising), key=_ContendedLink.level, default=None)
        stopped: dict[int, tuple[Fraction, SharedLink | None]]
        if full is not None and full.level() < level:
            stopped = {nic: (full.level(), full.link) for nic in full.parts if nic in rising_nics}
        else:
            stopped = {nic: (level, None) for nic in rising_nics if port_rates[nic] == level}
        for nic, result in stopped.items():
            results[nic] = result
        for link in contended:
            link.stop(stopped)
        rising_nics -= stopped.keys()
    return _with_link_bandwidths(results, near, shared)


class _ContendedLink:
    """A link that its NICs could overload, during progressive filling."""

    def __init__(self, link: SharedLink, left: Fraction, rising: Fraction, parts: dict[int, Fraction]) -> None:
        self.link, self.left, self.rising, self.parts = link, left, rising, parts

    def level(self) -> Fraction:
        """Return the GB/s of every rising NIC at which the link is full."""
        return self.left / self.rising

    def stop(self, nics: dict[int, tuple[Fraction, SharedLink | None]]) -> None:
        """Subtract NICs that rise no further."""
        for nic in nics.keys() & self.parts.keys():
            self.left -= nics[nic][0] * self.parts[nic]
            self.rising -= self.parts[nic]


def _with_link_bandwidths(
    results: Sequence[tuple[Fraction, SharedLink | None]], near: Sequence[int], shared: Sequence[SharedLink]
) -> list[Share]:
    overloaded: set[int] = set()
    for link in shared:
        load = sum((results[nic][0] * min(1, count) for nic, count in link.paths), Fraction(0))
        if load > link.bandwidth:
            overloaded.update(nic for nic, count in link.paths if count < near[nic])
    return [
        Share(bandwidth, bandwidth / near[nic] if nic in overloaded else bandwidth, limit)
        for nic, (bandwidth, limit) in enumerate(results)
    ]


def with_port_bandwidth(box: Box, port: Fraction) -> tuple[Nic, ...]:
    """Replace the port bandwidth of all NICs of a box. Units: `port` in GB/s."""
    limited = {number for link in box.shared for number, _ in link.paths}
    shares = max_min_shares([len(nic.near) for nic in box.nics], [port] * len(box.nics), box.shared)
    return tuple(
        nic._replace(
            near_bandwidth=share.near_bandwidth if number in limited else nic.near_bandwidth,
            bandwidth=share.bandwidth,
            port=None if share.bandwidth == port else port,
        )
        for number, (nic, share) in enumerate(zip(box.nics, shares, strict=True))
    )


def share_notes(shares: Sequence[Share], ports: Sequence[Fraction | None]) -> list[str]:
    """Note which NICs count with less than their ports, and why."""
    groups: dict[tuple[str, Fraction, int, Fraction, Fraction], list[str]] = {}
    for nic, (share, port) in enumerate(zip(shares, ports, strict=True)):
        if share.limit is not None and port is not None:
            name, bandwidth, paths = share.limit
            groups.setdefault((name, bandwidth, len(paths), share.bandwidth, port), []).append(f"nic{nic}")
    return [
        f"{_listed(nics)} with {float(lowered):.4g} of {float(port):.4g} GB/s, because {name} has "
        f"{float(bandwidth):.4g} GB/s{f' for {sharing} of them' if sharing > 1 else ''}"
        for (name, bandwidth, sharing, lowered, port), nics in groups.items()
    ]


def _listed(nics: Sequence[str]) -> str:
    remainder = f" and {len(nics) - MAX_NAMES} more" if len(nics) > MAX_NAMES else ""
    return f"{', '.join(nics[:MAX_NAMES])}{remainder} {'is modeled' if len(nics) == 1 else 'are modeled'}"
