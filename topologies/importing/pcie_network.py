"""PCIe part of a box: NICs attached to GPUs, or the whole PCIe network where GPUs have no other links."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from ..network.topology import Link
from ..switched.scale_out import GPU_LINK, OWN_LINK, PCIE_LATENCY, UNLIMITED, AttachedNics, SharedLink, attach_nics
from .nccl_machine import Machine, host_of
from .options import BoxOptions
from .pcie_tree import Node, Pcie, inter_cpu_bandwidth

PCIE_LINK = "a PCIe link on the way to GPUs"


class _NearestGpus(NamedTuple):
    """The GPUs at the least distance below a node; `by_cpu` if they have links to that CPU other than PCIe."""

    hops: int
    gpus: tuple[int, ...]
    by_cpu: bool = False


class _GpuSubtree(NamedTuple):
    """A node and the GPUs below it that are nearest to a NIC."""

    node: Node
    near: _NearestGpus


def nearest_gpus(pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> dict[int, tuple[_GpuSubtree, ...]]:
    """Find the nearest GPUs of NICs, below their lowest ancestor with GPUs or other CPUs; `to_cpu` in GB/s."""
    below: dict[Node, _NearestGpus | None] = {}
    for cpu in pcie.cpus:
        _find_below(cpu, to_cpu, below)
    subtrees_of = {number: _nearest_to(node, pcie, below) for number, node in pcie.nics.items()}
    return {number: subtrees for number, subtrees in subtrees_of.items() if subtrees}


def shared_links(
    pcie: Pcie, nearest: Mapping[int, tuple[_GpuSubtree, ...]], to_cpu: Mapping[int, Fraction]
) -> tuple[SharedLink, ...]:
    """List the links on the paths between NICs and their nearest GPUs."""
    links: dict[object, tuple[str, Fraction]] = {}
    paths: dict[object, dict[int, int]] = {}
    for position, (nic, subtrees) in enumerate(nearest.items()):
        for subtree in subtrees:
            for key, name, bandwidth, gpus in _path(pcie.nics[nic], subtree, pcie, to_cpu):
                links[key] = name, bandwidth
                counts = paths.setdefault(key, {})
                counts[position] = counts.get(position, 0) + gpus
    return tuple(SharedLink(*links[key], tuple(counts.items())) for key, counts in paths.items())


def own_link(nic: Node) -> tuple[str, Fraction]:
    """Return the name and bandwidth, in GB/s, of the link above a NIC."""
    return OWN_LINK, nic.up or UNLIMITED


def _path(
    nic: Node, subtree: _GpuSubtree, pcie: Pcie, to_cpu: Mapping[int, Fraction]
) -> Iterator[tuple[object, str, Fraction, int]]:
    """Yield key, name, GB/s and number of GPUs served of each link between a NIC and the GPUs of a subtree."""
    gpus = len(subtree.near.gpus)
    yield nic, *own_link(nic), gpus
    node = nic.parent
    while node is not None and node is not subtree.node:
        if node.parent is not None:
            yield node, PCIE_LINK, node.up or UNLIMITED, gpus
        else:
            speed = min(inter_cpu_bandwidth(node.element), inter_cpu_bandwidth(subtree.node.element))
            yield (node, subtree.node), "the link between CPUs", speed, gpus
        node = node.parent
    for gpu in subtree.near.gpus:
        if subtree.near.by_cpu:
            yield (gpu,), "a GPU's link to its CPU", to_cpu[gpu], 1
            continue
        step = pcie.gpus[gpu]
        yield step, GPU_LINK, step.up or UNLIMITED, 1
        while step.parent is not None and (step := step.parent) is not subtree.node:
            yield step, PCIE_LINK, step.up or UNLIMITED, 1


def _nearest_to(nic: Node, pcie: Pcie, below: Mapping[Node, _NearestGpus | None]) -> tuple[_GpuSubtree, ...]:
    node = nic.parent
    while node is not None:
        if (near := below[node]) is not None:
            return (_GpuSubtree(node, near),)
        if node.parent is None:
            break
        node = node.parent
    assert node is not None  # every NIC has a CPU above it
    host = host_of(node.element)
    subtrees = [
        _GpuSubtree(other, near)
        for other in pcie.cpus
        if other is not node and host_of(other.element) == host and (near := below[other]) is not None
    ]
    hops = min((subtree.near.hops for subtree in subtrees), default=0)
    return tuple(subtree for subtree in subtrees if subtree.near.hops == hops)


def _find_below(node: Node, to_cpu: Mapping[int, Fraction], below: dict[Node, _NearestGpus | None]) -> None:
    """Find the nearest GPUs below a node and all nodes below it."""
    for child in node.children:
        _find_below(child, to_cpu, below)
    near_children = [near for child in node.children if (near := below[child]) is not None]
    joined = [leaf.gpu for leaf in node.leaves() if leaf.gpu in to_cpu] if node.parent is None else []
    if node.gpu is not None:
        below[node] = _NearestGpus(0, (node.gpu,))
    elif joined:
        below[node] = _NearestGpus(1, tuple(gpu for gpu in joined if gpu is not None), by_cpu=True)
    elif near_children:
        hops = min(near.hops for near in near_children)
        below[node] = _NearestGpus(
            hops + 1, tuple(gpu for near in near_children if near.hops == hops for gpu in near.gpus)
        )
    else:
        below[node] = None


MAX_PAIRS = 2**16  # pairs of a NIC and a nearest GPU

DROPPED_NICS = "network cards of hosts without GPUs were left out"


def nics_of_nearest_gpus(machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction]) -> AttachedNics:
    """Attach every NIC to its nearest GPUs. Units: `to_cpu` in GB/s."""
    nearest = nearest_gpus(pcie, to_cpu)
    gpus = [tuple(f"gpu{gpu}" for place in places for gpu in place.near.gpus) for places in nearest.values()]
    if sum(map(len, gpus)) > MAX_PAIRS:
        raise machine.system.error(
            f"more than {MAX_PAIRS} pairs of a network card and a GPU are equally near; expected PCIe switches"
        )
    notes = []
    if len(machine.gpus) > 1:
        notes.append("PCIe between GPUs was left out, as in NCCL: the links above join all of them")
    if len(nearest) < len(machine.nics):
        notes.append(DROPPED_NICS)
    attached = attach_nics(gpus, [machine.nics[nic].bandwidth for nic in nearest], shared_links(pcie, nearest, to_cpu))
    return attached._replace(notes=(*notes, *attached.notes))


def pcie_network(
    machine: Machine, pcie: Pcie, to_cpu: Mapping[int, Fraction], options: BoxOptions
) -> tuple[list[Link], AttachedNics]:
    """Model CPUs and PCIe switches as switches ``cpu0``, ``pcie0``, .... Units: `to_cpu` in GB/s."""
    hosts = {host_of(gpu.pci) for gpu in machine.gpus}
    cpus = [cpu for cpu in pcie.cpus if host_of(cpu.element) in hosts]
    between = list(_between_cpus(cpus))
    # A CPU with one child and no other CPU connects nothing.
    roots = {gpu: _root(pcie.gpus[gpu]) for gpu in sorted(to_cpu)}
    joining = {cpu for cpu in cpus if len(cpu.children) > 1}.union(roots.values(), *(pair[:2] for pair in between))
    names = _names(node for cpu in cpus for node in cpu.inner() if node.parent is not None or node in joining)
    names |= {node: f"gpu{gpu}" for gpu, node in pcie.gpus.items()}
    paths = {
        (node, node.parent): node.up or UNLIMITED for node in names if node.parent is not None and node.parent in names
    }
    # A GPU that has both uses the faster of them.
    for gpu, top in roots.items():
        path = pcie.gpus[gpu], top
        paths[path] = max(to_cpu[gpu], paths.get(path, Fraction(0)))
    paths |= {(cpu, other): bandwidth for cpu, other, bandwidth in between}
    links = [Link(names[tail], names[head], bandwidth, PCIE_LATENCY) for (tail, head), bandwidth in paths.items()]
    inside = {nic: node for nic, node in pcie.nics.items() if node.parent in names}
    attached = attach_nics(
        [(names[node.parent],) for node in inside.values() if node.parent is not None],
        [machine.nics[nic].bandwidth for nic in inside],
        [SharedLink(*own_link(node), ((position, 1),)) for position, node in enumerate(inside.values())],
    )
    notes = _notes(len(inside) < len(machine.nics), bool(between), options)
    return links, attached._replace(notes=(*notes, *attached.notes))


def _names(nodes: Iterable[Node]) -> dict[Node, str]:
    """Name CPUs and PCIe switches by number."""
    names: dict[Node, str] = {}
    counts: Counter[str] = Counter()
    for node in nodes:
        kind = "cpu" if node.parent is None else "pcie"
        names[node] = f"{kind}{counts[kind]}"
        counts[kind] += 1
    return names


def _root(node: Node) -> Node:
    while node.parent is not None:
        node = node.parent
    return node


def _between_cpus(cpus: list[Node]) -> Iterator[tuple[Node, Node, Fraction]]:
    """Yield all pairs of CPUs of each host and the GB/s between them."""
    hosts: dict[str, list[tuple[Node, Fraction]]] = {}
    for cpu in cpus:
        cpus_of_host = hosts.setdefault(host_of(cpu.element), [])
        speed = inter_cpu_bandwidth(cpu.element)
        yield from ((other, cpu, min(speed, its)) for other, its in cpus_of_host)
        cpus_of_host.append((cpu, speed))


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
        notes.append(DROPPED_NICS)
    return notes
