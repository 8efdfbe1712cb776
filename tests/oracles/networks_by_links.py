"""Generated networks link by link, without arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

from collopt.topologies import DirectGraph, Topology
from collopt.topologies.switched.scale_out import Box

UP = Fraction(1, 2)
"""Latency of the fabrics' links."""


def boxes(
    boxes: Sequence[Box], name: str, fabric_switch: Callable[[int, int], str], backbone: Sequence[Any]
) -> Topology:
    """Boxes round switches, as `join_boxes` joins them; switches of boxes have at least two links."""
    joined = len(boxes) > 1
    links: list[Any] = []
    network: list[str] = []
    for number, box in enumerate(boxes):
        links += [link._replace(tail=f"box{number}/{link.tail}", head=f"box{number}/{link.head}") for link in box.links]
    for number, box in enumerate(boxes if joined else ()):
        for place, nic in enumerate(box.nics):
            own = f"box{number}/nic{place}"
            links += [(f"box{number}/{near}", own, nic.near_bandwidth, nic.near_latency) for near in nic.near]
            links.append((own, fabric_switch(number, place), nic.bandwidth, nic.latency))
            network.append(fabric_switch(number, place))
    if joined:
        links += backbone
        network += [node for link in backbone for node in link[:2]]
    nics = [f"box{number}/nic{nic}" for number, box in enumerate(boxes) for nic in range(joined * len(box.nics))]
    able = [f"box{number}/{switch}" for number, box in enumerate(boxes) for switch in box.abilities]
    return Topology.from_links(
        links,
        compute=[f"box{number}/gpu{gpu}" for number, box in enumerate(boxes) for gpu in range(box.gpus)],
        switches=[
            *(f"box{number}/{switch}" for number, box in enumerate(boxes) for switch in box.switches),
            *nics,
            *dict.fromkeys(network),
        ],
        bidirectional=True,
        multicast=able,
        aggregation=able,
        limits=[
            limits._replace(switch=f"box{number}/{limits.switch}")
            for number, box in enumerate(boxes)
            for limits in box.limits
        ],
        name=name,
    )


def torus(*shape: int) -> Topology:
    """Both links of every place and the next one of each row, closed to a ring."""
    places = list(product(*map(range, shape)))
    links = []
    for place in places:
        for axis, size in enumerate(shape):
            near = (*place[:axis], (place[axis] + 1) % size, *place[axis + 1 :])
            links += [(place, near), (near, place)]
    named = ((*("gpu" + ".".join(map(str, end)) for end in ends), 1) for ends in links)
    ranks = ["gpu" + ".".join(map(str, place)) for place in places]
    return Topology.from_links(named, compute=ranks, name=f"torus-{'x'.join(map(str, shape))}")


def of_graph(graph: DirectGraph) -> Topology:
    """The arcs of a graph, without self-loops."""
    arcs = zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)
    links = [(f"gpu{tail}", f"gpu{head}", "1/3") for tail, head in arcs if tail != head]
    return Topology.from_links(links, compute=[f"gpu{node}" for node in range(graph.num_nodes)], name=graph.name)


def leaf_spine(leaves: int, spines: int, hosts: int, oversubscription: int) -> Topology:
    """Hosts on leaves, and every leaf linked to every spine."""
    uplink = Fraction(25 * hosts, spines * oversubscription)
    links = [(f"host{leaf * hosts + host}", f"leaf{leaf}", 25, UP) for leaf in range(leaves) for host in range(hosts)]
    return Topology.from_links(
        [*links, *((f"leaf{leaf}", f"spine{spine}", uplink, UP) for leaf in range(leaves) for spine in range(spines))],
        compute=[f"host{host}" for host in range(leaves * hosts)],
        switches=[f"leaf{leaf}" for leaf in range(leaves)] + [f"spine{spine}" for spine in range(spines)],
        bidirectional=True,
        name=f"leaf-spine-{leaves}x{hosts}",
    )


def fat_tree(k: int, oversubscription: int) -> Topology:
    """Pods of edge and aggregate switches under core switches."""
    half, up = k // 2, Fraction(25, oversubscription)
    links: list[tuple[str, str, Any, Fraction]] = []
    for pod in range(k):
        for edge in range(half):
            first = (pod * half + edge) * half
            links += [(f"host{first + host}", f"pod{pod}/edge{edge}", 25, UP) for host in range(half)]
            links += [(f"pod{pod}/edge{edge}", f"pod{pod}/aggregate{peer}", up, UP) for peer in range(half)]
        for peer in range(half):
            links += [(f"pod{pod}/aggregate{peer}", f"core{peer * half + core}", up, UP) for core in range(half)]
    pods = [f"pod{pod}/{role}{number}" for pod in range(k) for role in ("edge", "aggregate") for number in range(half)]
    return Topology.from_links(
        links,
        compute=[f"host{host}" for host in range(k * half * half)],
        switches=pods + [f"core{core}" for core in range(half * half)],
        bidirectional=True,
        name=f"fat-tree-{k}",
    )


def dragonfly(a: int, p: int, h: int, groups: int, oversubscription: int) -> Topology:
    """Groups of routers; port q of a group leads to the (q mod (groups - 1)) + 1-st group after it."""
    ports, others = a * h, groups - 1
    links: list[tuple[str, str, Any, Fraction]] = []
    for group in range(groups):
        for router in range(a):
            own, first = f"group{group}/router{router}", (group * a + router) * p
            links += [(f"host{first + host}", own, 25, UP) for host in range(p)]
            links += [(own, f"group{group}/router{peer}", 25, UP) for peer in range(router)]
        for port in range(ports // others * others):
            turn, step = divmod(port, others)
            peer, back = (group + step + 1) % groups, turn * others + others - 1 - step
            if group < peer:
                ends = f"group{group}/router{port // h}", f"group{peer}/router{back // h}"
                links.append((*ends, Fraction(25, oversubscription), UP))
    return Topology.from_links(
        links,
        compute=[f"host{host}" for host in range(groups * a * p)],
        switches=[f"group{group}/router{router}" for group in range(groups) for router in range(a)],
        bidirectional=True,
        name=f"dragonfly-{a}-{p}-{h}" + ("" if groups == ports + 1 else f"-{groups}groups"),
    )
