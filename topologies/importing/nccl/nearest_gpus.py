"""Which GPUs are nearest to a network card, and over which PCIe links the ways to them lead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from ...switched.nic_shares import UNLIMITED
from ...switched.scale_out import SharedLink
from ..sources.nics import GPU_LINK, OWN_LINK
from .machine import host_of
from .pcie_speeds import speed_between_cpus
from .pcie_tree import Node, Pcie

__all__ = ["nearest_gpus", "own_link", "shared_links"]


ON_THE_WAY = "a PCIe link on the way to GPUs"


class _Near(NamedTuple):
    """The GPUs at the least distance below a node; `by_cpu` where they are joined to that CPU besides PCIe."""

    hops: int
    gpus: tuple[int, ...]
    by_cpu: bool = False


class _Place(NamedTuple):
    """A node below which there are GPUs that are near to a card."""

    node: Node
    near: _Near


def nearest_gpus(pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> dict[int, tuple[_Place, ...]]:
    """Find the GPUs nearest to every card on whose host there are any.

    Near are those below the first node, from the card upwards, that has GPUs below; else those of other CPUs.

    Units: `to_cpu` in GB/s.
    """
    below: dict[Node, _Near | None] = {}
    for cpu in pcie.cpus:
        _find_below(cpu, to_cpu, below)
    found = {number: _from(node, pcie, below) for number, node in pcie.cards.items()}
    return {number: places for number, places in found.items() if places}


def shared_links(
    pcie: Pcie, nearest: Mapping[int, tuple[_Place, ...]], to_cpu: Mapping[int, Fraction]
) -> tuple[SharedLink, ...]:
    """List the links on the ways between cards and the GPUs nearest to them."""
    links: dict[object, tuple[str, Fraction]] = {}
    ways: dict[object, dict[int, int]] = {}
    for position, (card, places) in enumerate(nearest.items()):
        for place in places:
            for key, name, bandwidth, gpus in _way(pcie.cards[card], place, pcie, to_cpu):
                links[key] = name, bandwidth
                counts = ways.setdefault(key, {})
                counts[position] = counts.get(position, 0) + gpus
    return tuple(SharedLink(*links[key], tuple(counts.items())) for key, counts in ways.items())


def own_link(card: Node) -> tuple[str, Fraction]:
    """Name the link above a card, with its bandwidth."""
    return OWN_LINK, card.up or UNLIMITED


def _way(
    card: Node, place: _Place, pcie: Pcie, to_cpu: Mapping[int, Fraction]
) -> Iterator[tuple[object, str, Fraction, int]]:
    """Go from a card to the GPUs of one place; gives key, name, GB/s, and how many of the GPUs the link leads to."""
    gpus = len(place.near.gpus)
    yield card, *own_link(card), gpus
    node = card.parent
    while node is not None and node is not place.node:
        if node.parent is not None:
            yield node, ON_THE_WAY, node.up or UNLIMITED, gpus
        else:
            speed = min(speed_between_cpus(node.element), speed_between_cpus(place.node.element))
            yield (node, place.node), "the link between CPUs", speed, gpus
        node = node.parent
    for gpu in place.near.gpus:
        if place.near.by_cpu:
            yield (gpu,), "a GPU's link to its CPU", to_cpu[gpu], 1
            continue
        step = pcie.gpus[gpu]
        yield step, GPU_LINK, step.up or UNLIMITED, 1
        while step.parent is not None and (step := step.parent) is not place.node:
            yield step, ON_THE_WAY, step.up or UNLIMITED, 1


def _from(card: Node, pcie: Pcie, below: Mapping[Node, _Near | None]) -> tuple[_Place, ...]:
    node = card.parent
    while node is not None:
        if (found := below[node]) is not None:
            return (_Place(node, found),)
        if node.parent is None:
            break
        node = node.parent
    assert node is not None  # every card has a CPU above it
    host = host_of(node.element)
    others = [
        _Place(other, found)
        for other in pcie.cpus
        if other is not node and host_of(other.element) == host and (found := below[other]) is not None
    ]
    hops = min((place.near.hops for place in others), default=0)
    return tuple(place for place in others if place.near.hops == hops)


def _find_below(node: Node, to_cpu: Mapping[int, Fraction], below: dict[Node, _Near | None]) -> None:
    """Find the nearest GPUs below a node and all nodes below it."""
    for child in node.children:
        _find_below(child, to_cpu, below)
    found = [near for child in node.children if (near := below[child]) is not None]
    joined = [leaf.gpu for leaf in node.leaves() if leaf.gpu in to_cpu] if node.parent is None else []
    if node.gpu is not None:
        below[node] = _Near(0, (node.gpu,))
    elif joined:
        below[node] = _Near(1, tuple(gpu for gpu in joined if gpu is not None), by_cpu=True)
    elif found:
        hops = min(near.hops for near in found)
        below[node] = _Near(hops + 1, tuple(gpu for near in found if near.hops == hops for gpu in near.gpus))
    else:
        below[node] = None
