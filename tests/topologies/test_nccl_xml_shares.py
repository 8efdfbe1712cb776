"""Network cards anywhere in random PCIe trees, against ways that are found anew, link by link."""

from __future__ import annotations

import random
from collections import defaultdict
from copy import deepcopy
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.topologies import compose
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.nccl_machine import read_machine, read_tree
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.importing.pcie_tree import Node, read_pcie
from collopt.topologies.switched.scale_out import Box
from nccl_texts import box_of, cpu, gpu, nic, pci, port, switched, system
from sample_sizes import examples

Tree = dict[str, Any]
SPEEDS = ["2.5 GT/s PCIe", "8.0 GT/s PCIe", "16.0 GT/s PCIe", "32.0 GT/s PCIe", "64.0 GT/s PCIe", "", "Unknown"]
OPTIONS: list[dict[str, Any]] = [{}, {"nic_bandwidth": "400Gb/s"}, {"figures": "nccl"}, {"pcie_bandwidth": 20}]


def machine(chance: random.Random) -> list[Tree]:
    """CPUs with bridges, GPUs and cards at any depth, with true and false speeds."""
    count = iter(range(10**6))

    def branch(depth: int) -> Tree:
        kind = chance.choice(["gpu", "nic", "pci", "pci"] if depth < 4 else ["gpu", "nic"])
        place = {"speed": chance.choice(SPEEDS), "width": chance.choice([0, 1, 8, 16, ""])}
        inside = [branch(depth + 1) for _ in range(chance.randint(1, 3))] if kind == "pci" else []
        ports = [chance.choice([0, 100_000, 200_000, 400_000]) for _ in range(chance.randint(1, 2))]
        return {"kind": kind, "number": next(count), "place": place, "inside": inside, "ports": ports}

    return [
        {"numaid": numaid, "vendor": chance.choice(["GenuineIntel", "AuthenticAMD"]), "inside": branches}
        for numaid in range(chance.randint(1, 3))
        if (branches := [branch(1) for _ in range(chance.randint(1, 3))])
    ]


def text_of(cpus: list[Tree], address: str, *, linked: bool) -> str:
    """Write the file; ``{}`` in an address is where the number goes."""

    def written(tree: Tree) -> str:
        busid, number = address.format(tree["number"]), tree["number"]
        if tree["kind"] == "gpu":
            return gpu(number, *([switched()] if linked else []), busid=busid, **tree["place"])
        if tree["kind"] == "nic":
            ports = (port(2 * number + n, speed, f"0x{number}", n) for n, speed in enumerate(tree["ports"]))
            return nic(busid, *ports, **tree["place"])
        return pci(busid, *map(written, tree["inside"]), **tree["place"])

    return system(*(cpu(*map(written, each["inside"]), numaid=each["numaid"], vendor=each["vendor"]) for each in cpus))


def shuffled(trees: list[Tree], chance: random.Random) -> list[Tree]:
    """The same with all elements in another order."""
    trees = deepcopy(trees)
    chance.shuffle(trees)
    for tree in trees:
        tree["inside"] = shuffled(tree["inside"], chance)
    return trees


def seen(box: Box) -> list[list[str]]:
    """What does not depend on the order of elements; switches of PCIe are numbered by it."""
    kinds = [[node if node.startswith("gpu") else node.rstrip("0123456789") for node in each.near] for each in box.nics]
    rows = [
        f"{sorted(near)} {card.near_bandwidth} {card.bandwidth} {card.port}"
        for near, card in zip(kinds, box.nics, strict=True)
    ]
    return [sorted(rows), sorted(str(link.bandwidth) for link in box.links)]


def above(node: Node) -> list[Node]:
    """The node and what it is plugged into, up to the CPU."""
    return [node, *(above(node.parent) if node.parent is not None else ())]


@settings(max_examples=examples(120))
@given(st.integers(0, 10**9), st.booleans(), st.sampled_from(OPTIONS))
def test_no_link_carries_more_than_it_can_in_whatever_order_it_is_listed(
    seed: int, linked: bool, options: dict[str, Any]
) -> None:
    """Cards that send all they have, spread evenly or not at all, fit the links of their ways; and no name, address or
    place in the file counts."""
    chance = random.Random(seed)
    cpus = machine(chance)
    if "'gpu'" not in str(cpus):
        return
    text = text_of(cpus, "0000:{}:00.0", linked=linked)
    box = box_of(text, **options)
    assert seen(box) == seen(box_of(text_of(shuffled(cpus, chance), "FFFF:{}a:1f.7", linked=linked), **options))
    if box.gpus > 1 and linked:
        check_loads(box, text, options)
        network = compose([box, box], fabric="rail", nic_bandwidth=50) if box.nics else compose([box])
        assert all(network.ingress(switch) == network.egress(switch) for switch in network.switch_nodes)


def check_loads(box: Box, text: str, options: dict[str, Any]) -> None:
    """Find the way of each card to each GPU, and add up."""
    told = BoxOptions.of(**options)
    tree = read_pcie(read_machine(read_tree(Document("x", text)), told), told)
    spread: defaultdict[Node, Fraction] = defaultdict(Fraction)
    alone: defaultdict[Node, defaultdict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for card, (found, leaf) in enumerate(zip(box.nics, tree.nics.values(), strict=True)):
        bandwidth, each = found.bandwidth, found.near_bandwidth
        assert isinstance(each, Fraction)
        if bandwidth is None:
            continue
        assert isinstance(bandwidth, Fraction)
        for node in found.near:
            one, other = above(leaf), above(tree.gpus[int(node[3:])])
            for step in {*one} ^ {*other}:
                spread[step] += bandwidth / len(found.near)
                alone[step][card] = min(bandwidth, alone[step][card] + each)
    for step, load in spread.items():
        assert step.up is None or load <= step.up
        assert step.up is None or sum(alone[step].values()) <= step.up


@pytest.mark.parametrize("seed", [3, 6, 178])
def test_what_the_trees_are_like(seed: int) -> None:
    """Else nothing would be tried."""
    text = text_of(machine(random.Random(seed)), "{}", linked=True)
    assert text.count("<pci") > 3
