"""What PCIe adds to a box: network cards next to GPUs that have links of their own, or else all of its switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from ...network.topology import Link
from ...switched.nic_shares import UNLIMITED
from ...switched.scale_out import PCIE_LATENCY, SharedLink
from ..sources.nics import Cards, plugged_in
from ..sources.options import BoxOptions
from .machine import Machine, host_of
from .nearest_gpus import nearest_gpus, own_link, shared_links
from .pcie_speeds import speed_between_cpus
from .pcie_tree import Node, Pcie

__all__ = ["attached_cards", "pcie_network"]

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
    notes = ["PCIe joins the GPUs that have no other way to each other: switches and CPUs are switches of the box"]
    if options.pcie_bandwidth is None:
        whose = "the line rate of their lanes" if options.figures == "line" else "what NCCL plans with"
        notes.append(f"PCIe links count with {whose}")
    if several_cpus:
        notes.append("links between CPUs count with what NCCL plans with, as no file states their speed")
    if left_out:
        notes.append(LEFT_OUT)
    return notes
