"""What network cards can carry where they share links on the way to the GPUs near to them.

A card is taken to spread what it carries evenly over the nodes near to it.  All cards are raised together until their
ports or a link on their way are full (max-min fairness; Bertsekas and Gallager, Data Networks, chapter 6), so cards
that need less than an even part leave the rest to the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .scale_out import Box, Nic, SharedLink

UNLIMITED = Fraction(5000)
"""GB/s where nothing tells a limit, as in NCCL."""

MOST_NAMED = 4
"""Cards that a note names one by one."""


class Share(NamedTuple):
    """What one card can carry.

    `bandwidth`: GB/s in each direction.
    `each`: GB/s of its link to each of the nodes near to it.
    `limit`: What keeps it below its ports; None if nothing does.
    """

    bandwidth: Fraction
    each: Fraction
    limit: SharedLink | None


def share_out(near: Sequence[int], ports: Sequence[Fraction | None], shared: Sequence[SharedLink]) -> list[Share]:
    """Divide links among the cards that send over them.

    Units: `ports` in GB/s.

    >>> way = SharedLink("the link between CPUs", Fraction(22), ((0, 2), (1, 2)))
    >>> [str(share.bandwidth) for share in share_out([2, 2], [Fraction(50), Fraction(1)], [way])]
    ['21', '1']
    """
    most = [UNLIMITED if port is None else port for port in ports]
    found: list[tuple[Fraction, SharedLink | None]] = [(port, None) for port in most]
    open_cards = set(range(len(most)))
    parts = [{card: Fraction(count, near[card]) for card, count in link.ways} for link in shared]
    # A link that suffices for all ports together limits nobody.
    tight = [
        _Tight(link, link.bandwidth, sum(part.values(), Fraction(0)), part)
        for link, part in zip(shared, parts, strict=True)
        if sum(most[card] * share for card, share in part.items()) > link.bandwidth
    ]
    for card in open_cards - {card for link in tight for card in link.parts}:
        open_cards.remove(card)
    while open_cards:
        level = min(most[card] for card in open_cards)
        full = min((link for link in tight if link.rising), key=_Tight.level, default=None)
        stopped: dict[int, tuple[Fraction, SharedLink | None]]
        if full is not None and full.level() < level:
            stopped = {card: (full.level(), full.link) for card in full.parts if card in open_cards}
        else:
            stopped = {card: (level, None) for card in open_cards if most[card] == level}
        for card, end in stopped.items():
            found[card] = end
        for link in tight:
            link.stop(stopped)
        open_cards -= stopped.keys()
    return _with_links(found, near, shared)


class _Tight:
    """A link that its cards could overload, while the cards are raised."""

    def __init__(self, link: SharedLink, left: Fraction, rising: Fraction, parts: dict[int, Fraction]) -> None:
        self.link, self.left, self.rising, self.parts = link, left, rising, parts

    def level(self) -> Fraction:
        """GB/s of every card that still rises when the link is full."""
        return self.left / self.rising

    def stop(self, cards: dict[int, tuple[Fraction, SharedLink | None]]) -> None:
        """Take note of cards that rise no further."""
        for card in cards.keys() & self.parts.keys():
            self.left -= cards[card][0] * self.parts[card]
            self.rising -= self.parts[card]


def _with_links(
    found: Sequence[tuple[Fraction, SharedLink | None]], near: Sequence[int], shared: Sequence[SharedLink]
) -> list[Share]:
    crowded: set[int] = set()
    for link in shared:
        load = sum((found[card][0] * min(1, count) for card, count in link.ways), Fraction(0))
        if load > link.bandwidth:
            crowded.update(card for card, count in link.ways if count < near[card])
    return [
        Share(bandwidth, bandwidth / near[card] if card in crowded else bandwidth, limit)
        for card, (bandwidth, limit) in enumerate(found)
    ]


def as_nic(near: tuple[str, ...], port: Fraction | None, share: Share) -> Nic:
    """Make a card of its share."""
    bandwidth = None if port is None else share.bandwidth
    return Nic(near, share.each, bandwidth, port=None if bandwidth == port else port)


def with_ports(box: Box, port: Fraction) -> tuple[Nic, ...]:
    """Give all ports of all cards of a box another speed.

    Units: `port` in GB/s.
    """
    limited = {card for link in box.shared for card, _ in link.ways}
    shares = share_out([len(nic.near) for nic in box.nics], [port] * len(box.nics), box.shared)
    return tuple(
        nic._replace(
            near_bandwidth=share.each if card in limited else nic.near_bandwidth,
            bandwidth=share.bandwidth,
            port=None if share.bandwidth == port else port,
        )
        for card, (nic, share) in enumerate(zip(box.nics, shares, strict=True))
    )


def notes_on(shares: Sequence[Share], ports: Sequence[Fraction | None]) -> list[str]:
    """Say which cards count with less than their ports, and why."""
    groups: dict[tuple[str, Fraction, int, Fraction, Fraction], list[str]] = {}
    for card, (share, port) in enumerate(zip(shares, ports, strict=True)):
        if share.limit is not None and port is not None:
            name, bandwidth, ways = share.limit
            groups.setdefault((name, bandwidth, len(ways), share.bandwidth, port), []).append(f"nic{card}")
    return [
        f"{_listed(cards)} with {float(lowered):.4g} of {float(port):.4g} GB/s, because {name} has "
        f"{float(bandwidth):.4g} GB/s{f' for {sharing} of them' if sharing > 1 else ''}"
        for (name, bandwidth, sharing, lowered, port), cards in groups.items()
    ]


def _listed(cards: Sequence[str]) -> str:
    more = f" and {len(cards) - MOST_NAMED} more" if len(cards) > MOST_NAMED else ""
    return f"{', '.join(cards[:MOST_NAMED])}{more} {'is modeled' if len(cards) == 1 else 'are modeled'}"
