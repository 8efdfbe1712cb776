"""What PCIe adds to a box: network cards next to GPUs that have links of their own, or else all of its switches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction

from ..scale_out import PCIE_LATENCY, Nic
from ..topology import Link
from .box_options import BoxOptions
from .nccl_machine import Machine, host_of
from .pcie_speeds import speed_between_cpus
from .pcie_tree import Nearest, Node, Pcie, flatten, least

__all__ = ["attached_cards", "pcie_network"]

MAX_PLUGGED = 2**16
"""Pairs of a card and a GPU that are near to each other."""

LEFT_OUT = "network cards of hosts without GPUs were left out"

UNLIMITED = Fraction(5000)
"""GB/s between a CPU and a card without a slot whose speed nothing tells, as in NCCL."""


def attached_cards(machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> tuple[list[Nic], list[str]]:
    """Plug every network card into the GPUs nearest to it.

    Parameters
    ----------
    machine : Machine
        GPUs and cards.
    pcie : Pcie
        Their trees.
    to_cpu : dict
        GB/s between a GPU and its CPU besides PCIe, by number of the GPU.

    Returns
    -------
    cards : list of Nic
        In the order of the file's ``dev``.
    notes : list of str
        What was left out.

    Raises
    ------
    FileFormatError
        If there are too many pairs of a card and a GPU.

    Notes
    -----
    The links of a card have the bandwidth of its ports, as nothing else goes there.  Where a PCIe link on the way is
    slower, or a GPU's cards together exceed the GPU's own PCIe link, the ports' bandwidth is divided evenly among the
    GPUs near to the card; and if that is still too much, the links have the bandwidth of the slowest one on the way,
    and no more than an even part of the GPU's own.
    """
    nearest = pcie.nearest(to_cpu)
    if sum(len(near.gpus) for near in nearest.values()) > MAX_PLUGGED:
        raise machine.system.error(
            f"more than {MAX_PLUGGED} pairs of a network card and a GPU are equally near; expected PCIe switches"
        )
    notes = []
    if len(machine.gpus) > 1:
        notes.append("PCIe between GPUs was left out, as in NCCL: the links above join all of them")
    if len(nearest) < len(machine.cards):
        notes.append(LEFT_OUT)
    ports = {card: machine.cards[card].bandwidth for card in nearest}
    bandwidths = {card: _bandwidth(near, ports[card]) for card, near in nearest.items()}
    if any(near.slowest is not None and (ports[card] or 0) > near.slowest for card, near in nearest.items()):
        notes.append("PCIe to the nearest GPU is slower than some network cards, whose links to GPUs have less for it")
    own = {gpu: node.up or UNLIMITED for gpu, node in pcie.gpus.items()}
    own |= {gpu: max(bandwidth, own[gpu]) for gpu, bandwidth in to_cpu.items()}
    if _crowded(nearest, bandwidths, own):
        notes.append("network cards that share a GPU's PCIe link divide their bandwidth among the GPUs near to them")
        bandwidths = _divided(nearest, bandwidths, ports, own)
    return [
        Nic(tuple(f"gpu{gpu}" for gpu in near.gpus), bandwidths[card], ports[card]) for card, near in nearest.items()
    ], notes


def _bandwidth(near: Nearest, port: Fraction | None) -> Fraction:
    """GB/s of the links between a card and each of the GPUs near to it."""
    if port is None:
        return near.slowest or UNLIMITED
    if near.slowest is None or port <= near.slowest:
        return port
    return min(port / len(near.gpus), near.slowest)


def _divided(
    nearest: dict[int, Nearest],
    bandwidths: dict[int, Fraction],
    ports: dict[int, Fraction | None],
    own: dict[int, Fraction],
) -> dict[int, Fraction]:
    """Lower the bandwidths between cards and GPUs until no GPU's own link is exceeded."""
    divided = dict(bandwidths)
    crowded = _crowded(nearest, divided, own)
    for card, near in nearest.items():
        port = ports[card]
        if port is not None and crowded.intersection(near.gpus):
            divided[card] = min(divided[card], port / len(near.gpus))
    crowded = _crowded(nearest, divided, own)
    sharing = Counter(gpu for near in nearest.values() for gpu in near.gpus)
    for card, near in nearest.items():
        divided[card] = min([divided[card], *(own[gpu] / sharing[gpu] for gpu in near.gpus if gpu in crowded)])
    return divided


def _crowded(nearest: dict[int, Nearest], bandwidths: dict[int, Fraction], own: dict[int, Fraction]) -> set[int]:
    """GPUs whose cards together exceed the GPU's own link."""
    loads: dict[int, Fraction] = {}
    for card, near in nearest.items():
        for gpu in near.gpus:
            loads[gpu] = loads.get(gpu, Fraction(0)) + bandwidths[card]
    return {gpu for gpu, load in loads.items() if load > own[gpu]}


def pcie_network(
    machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction], options: BoxOptions
) -> tuple[list[Link], list[Nic], list[str]]:
    """Make switches ``cpu0``, ``pcie0``, ... of CPUs and PCIe switches.

    Parameters
    ----------
    machine, pcie, to_cpu
        As in `attached_cards`.
    options : BoxOptions
        Only `figures` counts here.

    Returns
    -------
    links : list of Link
        Each stands for both directions.
    cards : list of Nic
        Plugged into the switches.
    notes : list of str
        Which figures count.
    """
    hosts = {host_of(gpu.pci) for gpu in machine.gpus}
    cpus = [cpu for cpu in pcie.cpus if host_of(cpu.element) in hosts]
    for cpu in cpus:
        flatten(cpu)
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
    cards = []
    for card, node in pcie.cards.items():
        if node.parent in names:
            port = machine.cards[card].bandwidth
            cards.append(Nic((names[node.parent],), least((node.up, port)) or UNLIMITED, port))
    return links, cards, _notes(len(cards) < len(machine.cards), bool(between), options)


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
