"""What PCIe adds to a box: network cards next to GPUs that have links of their own, or else all of its switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from ...network.topology import Link
from ...switched.nic_shares import UNLIMITED
from ...switched.scale_out import PCIE_LATENCY, SharedLink
from ..sources.options import GPU_LINK, OWN_LINK, BoxOptions, Cards, plugged_in
from .machine import Machine, host_of
from .pcie_speeds import speed_between_cpus
from .pcie_tree import Node, Pcie

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


MAX_PLUGGED = 2**16
"""Pairs of a card and a GPU that are near to each other."""

LEFT_OUT = "network cards of hosts without GPUs were left out"


def attached_cards(machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> Cards:
    """Plug every network card into the GPUs nearest to it.

    Units: `to_cpu` in GB/s.
    """
    nearest = nearest_gpus(pcie, to_cpu)
    gpus = [tuple(f"gpu{gpu}" for place in places for gpu in place.near.gpus) for places in nearest.values()]
    if sum(map(len, gpus)) > MAX_PLUGGED:
        raise machine.system.error(
            f"more than {MAX_PLUGGED} pairs of a network card and a GPU are equally near; expected PCIe switches"
        )
    notes = []
    if len(machine.gpus) > 1:
        notes.append("PCIe between GPUs was left out, as in NCCL: the links above join all of them")
    if len(nearest) < len(machine.cards):
        notes.append(LEFT_OUT)
    cards = plugged_in(gpus, [machine.cards[card].bandwidth for card in nearest], shared_links(pcie, nearest, to_cpu))
    return cards._replace(notes=(*notes, *cards.notes))


def pcie_network(
    machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction], options: BoxOptions
) -> tuple[list[Link], Cards]:
    """Make switches ``cpu0``, ``pcie0``, ... of CPUs and PCIe switches."""
    hosts = {host_of(gpu.pci) for gpu in machine.gpus}
    cpus = [cpu for cpu in pcie.cpus if host_of(cpu.element) in hosts]
    between = list(_between_cpus(cpus))
    # A CPU that only hands on to one switch, with no other CPU beside it, joins nothing.
    tops = {gpu: _top(pcie.gpus[gpu]) for gpu in sorted(to_cpu)}
    joining = {cpu for cpu in cpus if len(cpu.children) > 1}.union(tops.values(), *(pair[:2] for pair in between))
    names = _names(node for cpu in cpus for node in cpu.inner() if node.parent is not None or node in joining)
    names |= {node: f"gpu{gpu}" for gpu, node in pcie.gpus.items()}
    ways = {
        (node, node.parent): node.up or UNLIMITED for node in names if node.parent is not None and node.parent in names
    }
    # A GPU that has both uses the faster of them.
    for gpu, top in tops.items():
        way = pcie.gpus[gpu], top
        ways[way] = max(to_cpu[gpu], ways.get(way, Fraction(0)))
    ways |= {(cpu, other): bandwidth for cpu, other, bandwidth in between}
    links = [Link(names[tail], names[head], bandwidth, PCIE_LATENCY) for (tail, head), bandwidth in ways.items()]
    inside = {card: node for card, node in pcie.cards.items() if node.parent in names}
    cards = plugged_in(
        [(names[node.parent],) for node in inside.values() if node.parent is not None],
        [machine.cards[card].bandwidth for card in inside],
        [SharedLink(*own_link(node), ((position, 1),)) for position, node in enumerate(inside.values())],
    )
    notes = _notes(len(inside) < len(machine.cards), bool(between), options)
    return links, cards._replace(notes=(*notes, *cards.notes))


def _names(nodes: Iterable[Node]) -> dict[Node, str]:
    """Count CPUs and PCIe switches."""
    names: dict[Node, str] = {}
    counts: Counter[str] = Counter()
    for node in nodes:
        kind = "cpu" if node.parent is None else "pcie"
        names[node] = f"{kind}{counts[kind]}"
        counts[kind] += 1
    return names


def _top(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def _between_cpus(cpus: list[Node]) -> Iterator[tuple[Node, Node, Fraction]]:
    """Join the CPUs of each host, each with each."""
    hosts: dict[str, list[tuple[Node, Fraction]]] = {}
    for cpu in cpus:
        others = hosts.setdefault(host_of(cpu.element), [])
        speed = speed_between_cpus(cpu.element)
        yield from ((other, cpu, min(speed, its)) for other, its in others)
        others.append((cpu, speed))


def _notes(left_out: bool, several_cpus: bool, options: BoxOptions) -> list[str]:
    notes = ["PCIe connects GPUs that have no other link: PCIe switches and CPUs are switches of the box"]
    if options.pcie_bandwidth is None:
        whose = "the line rate of their lanes" if options.figures == "line" else "the bandwidth that NCCL plans with"
        notes.append(f"PCIe links are modeled with {whose}")
    if several_cpus:
        notes.append(
            "links between CPUs are modeled with the bandwidth that NCCL plans with, as no file states their speed"
        )
    if left_out:
        notes.append(LEFT_OUT)
    return notes
