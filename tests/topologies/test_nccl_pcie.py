"""PCIe, CPUs and network cards of NCCL's topology files."""

from __future__ import annotations

import random
from collections import defaultdict
from copy import deepcopy
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.topologies import compose
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.nccl_machine import read_machine, read_tree
from collopt.topologies.importing.options import LANE_RATES, BoxOptions
from collopt.topologies.importing.pcie import Node, read_pcie
from collopt.topologies.switched.scale_out import Box
from nccl_texts import GPU, box_of, cpu, gpu, link, nic, pci, port, slot, switched, system, tag
from sample_sizes import examples

BROADCOM = {"vendor": "0x1000", "device": "0xc010", "subsystem_vendor": "0x1000", "subsystem_device": "0xa096"}
UPPER = {"vendor": "0x1000", "device": "0xc030", "subsystem_vendor": "0x1000", "subsystem_device": "0x0004"}
LOWER = UPPER | {"subsystem_device": "0x1004"}
GEN4, GEN5 = Fraction(2048, 65), Fraction(4096, 65)
NCCL = {"figures": "nccl"}


def bandwidths(box: Box) -> dict[tuple[str, str], Fraction]:
    """Bandwidths by the two ends of a link, of which there is one."""
    assert len({row[:2] for row in box.links}) == len(box.links)
    return {(row.tail, row.head): row.bandwidth for row in box.links}


def alone(number: int, **place: object) -> str:
    """A GPU without NVLinks of a kind that has none."""
    return gpu(number, sm=89, **place)


def card(*ports: str, busid: str = "0000:90:00.0", **place: object) -> str:
    """A network card in a slot of its own."""
    return nic(busid, *ports, **place)


def two(*inside: str) -> str:
    """Two GPUs on an NVSwitch at one CPU, and more."""
    return system(cpu(gpu(0, switched()), gpu(1, switched()), *inside))


def four_gpus(*cards: str, speed: str = "32.0 GT/s PCIe") -> str:
    """Four GPUs below a switch, and cards beside it at the CPU."""
    gpus = [gpu(number, switched(), speed="32.0 GT/s PCIe") for number in range(4)]
    return system(cpu(pci("0000:a0:00.0", *gpus, speed=speed), *cards))


def fast_card(number: int, *, speed: int = 400000) -> str:
    """A card in a slot of the fifth generation."""
    return card(port(number, speed), busid=f"0000:9{number}:00.0", speed="32.0 GT/s PCIe")


def cards(count: int) -> list[str]:
    """Cards of 25 GB/s in slots of their own."""
    return [card(port(n), busid=f"0000:9{n}:00.0") for n in range(count)]


def below(*inside: str, busid: str = "0000:a0:00.0", **place: object) -> str:
    """A PCIe switch."""
    return pci(busid, *inside, **place)  # type: ignore[arg-type]


def bridges(**place: object) -> str:
    """Two bridges, each with two GPUs."""
    return system(cpu(*(below(alone(n), alone(n + 2), busid=f"0000:a{n}:00.0", **place) for n in range(2))))


def bridged_pairs() -> str:
    """Two CPUs, each with two GPUs that a bridge joins, as PCIe cards have them."""
    return system(
        *(cpu(*(gpu(n, link(slot(n ^ 1), 4), sm=86) for n in (host, host + 1)), numaid=host) for host in (0, 2))
    )


def graces(*, joined: bool) -> str:
    """Two chips with 14 C2C links of 32 GB/s, stated in MB/s, and a card each."""
    more = [switched()] if joined else []
    return system(*(
        cpu(gpu(n, *more, tag("c2c", bw=32000, count=14), speed="", width=0), fast_card(n), numaid=n, arch="arm64")
        for n in range(2)
    ))  # fmt: skip


BOTH = ("gpu0", "gpu1")
PER_CARD = "is modeled with 31.51 of 50 GB/s, because a PCIe link on the way to GPUs has 31.51 GB/s"
SHARED = "nic0, nic1 are modeled with 11 of 50 GB/s, because the link between CPUs has 22 GB/s for 2 of them"
ONE_GUID = card(port(0, guid="0xa"), port(1, guid="0xa", number=2))
TWO_FUNCTIONS = card(port(0, guid="0xa")) + card(port(1, guid="0xA", number=2), busid="0000:90:00.1")
TWO_SLOTS = card(port(0, guid="0xa")) + card(port(1, guid="0xa", number=2), busid="0000:91:00.0")
NETS = [
    tag("net", name="veth0", dev=0, speed=10000),
    tag("net", name="mlx5_0", dev=1, speed=100000, net=0),
    tag("net", name="mlx5_0+1", dev=2, speed=200000, net=1),
]
OTHER_CPU = system(
    cpu(*(gpu(number, switched(), speed="32.0 GT/s PCIe") for number in range(2))),
    cpu(fast_card(0), fast_card(1), numaid=1),
)
NEAREST = system(
    cpu(
        below(gpu(0, switched()), card(port(0), busid="0000:91:00.0")),
        gpu(1, switched()),
        card(port(1), busid="0000:92:00.0"),
    ),
    cpu(card(port(2), busid="0000:93:00.0"), numaid=1),
)
BRANCHES = system(cpu(
    *(below(*(gpu(number, switched(), speed="32.0 GT/s") for number in (first, first + 1)), busid=f"0000:a{first}:00.0",
            speed="32.0 GT/s") for first in (0, 2)),
    fast_card(0), fast_card(1),
))  # fmt: skip
GIVEN = system(cpu(below(alone(0), alone(1), card(port(0)), speed="2.5 GT/s PCIe", width=1), alone(2)))

# Machine, options, links that the box has, and its NICs: near nodes, GB/s to each of them and to the network.
MACHINES: dict[str, tuple[str, dict[str, Any], dict[tuple[str, str], object], list[tuple[object, ...]], str]] = {
    "an implausible bridge counts with the speed of the devices below it": (
        bridges(speed="2.5 GT/s PCIe", width=1), NCCL, {("pcie0", "cpu0"): 24, ("gpu0", "pcie0"): 24}, [],
        " 2 PCIe links ignored"),
    "a bridge that is eight times slower is believed": (
        bridges(speed="8 GT/s", width=4), NCCL, {("pcie0", "cpu0"): 3}, [], ""),
    "a chain of bridges counts with its slowest link": (
        system(cpu(below(below(alone(0), busid="0000:a1:00.0", speed="8 GT/s")), alone(1))), NCCL,
        {("gpu0", "cpu0"): 12, ("gpu1", "cpu0"): 24}, [], ""),
    "a switch alone below a CPU needs no CPU": (
        system(cpu(below(alone(0), alone(1), card(port(0))))), NCCL, {("gpu0", "pcie0"): 24, ("gpu1", "pcie0"): 24},
        [(("pcie0",), 24, 24)], ""),
    "links that do not join all GPUs are completed by PCIe": (
        bridged_pairs(), NCCL, {BOTH: 48, ("gpu0", "cpu0"): 24, ("cpu0", "cpu1"): 22}, [],
        "PCIe links are modeled with the bandwidth that NCCL plans with"),
    "PCIe between GPUs is left out where links join all": (
        two(), {}, {("gpu0", "nvswitch"): 450, ("gpu1", "nvswitch"): 450}, [],
        "PCIe between GPUs was left out, as in NCCL: the links above join all of them"),
    "cards are next to GPUs of their switch, else of their CPU, else of another": (
        NEAREST, NCCL, {}, [(("gpu0",), 24, 24), (("gpu1",), 12, 12), (("gpu1",), 12, 12)], ""),
    "the slot of a card may be narrower than its port": (
        system(cpu(below(gpu(0, switched()), card(port(0), width=8)), gpu(1, switched()))), NCCL, {},
        [(("gpu0",), 12, 12)], "nic0 is modeled with 12 of 25 GB/s, because a card's own PCIe link has 12 GB/s"),
    "-1 is no speed": (two(card(port(0, -1))), {}, {}, [(BOTH, ..., None)], ""),
    "0 is no speed": (two(card(port(0, 0))), {}, {}, [(BOTH, ..., None)], ""),
    "an empty speed is unknown": (two(card(port(0, ""))), {}, {}, [(BOTH, ..., None)], ""),
    "cards that would overload a GPU divide themselves": (
        system(cpu(below(gpu(0, switched()), gpu(1, switched()), *cards(2)))), {}, {},
        [(BOTH, Fraction(25, 2), 25)] * 2, "divide their bandwidth"),
    "one GPU with three cards divides its own link": (
        system(cpu(below(gpu(0, switched()), *cards(3)), gpu(1, switched()))), NCCL, {}, [(("gpu0",), 8, 8)] * 3, ""),
    "a slot limits all that a card gives": (
        system(cpu(below(gpu(0, switched()), gpu(1, switched()), ONE_GUID))), {}, {}, [(BOTH, GEN4, GEN4)], ""),
    "the way to GPUs limits all that a card gives": (
        four_gpus(fast_card(0), speed="16.0 GT/s PCIe"), {}, {}, [(..., ..., GEN4)], f"nic0 {PER_CARD}"),
    "cards divide the way to their GPUs": (
        four_gpus(fast_card(0), fast_card(1)), {}, {}, [(..., ..., GEN5 / 2)] * 2, ""),
    "a card that needs less than its part leaves the rest": (
        four_gpus(fast_card(0), fast_card(1, speed=1000), speed="16.0 GT/s PCIe"), {}, {},
        [(..., ..., GEN4 - Fraction(1, 8)), (..., ..., Fraction(1, 8))], ""),
    "cards of another CPU divide the link between CPUs": (OTHER_CPU, {}, {}, [(BOTH, 11, 11)] * 2, SHARED),
    "a way that branches carries a part of the traffic": (BRANCHES, {}, {}, [(..., Fraction(25, 2), 50)] * 2, ""),
    "two ports of one guid are one card": (two(ONE_GUID), {}, {}, [(BOTH, ..., GEN4)], "one network card"),
    "ports of two functions are one card": (two(TWO_FUNCTIONS), {}, {}, [(BOTH, ..., GEN4)], "one network card"),
    "ports of two slots are two cards": (two(TWO_SLOTS), {}, {}, [(BOTH, ..., 25)] * 2, ""),
    "virtual and disabled interfaces are no cards": (
        two(tag("nic", *NETS)), {}, {}, [(BOTH, ..., 25)], "left out 'veth0'"),
    "a controller that understates its link is not believed": (
        two(card(port(0, 10000), speed="2.5 GT/s", width=1)), {}, {}, [(BOTH, Fraction(5, 4), Fraction(5, 4))],
        "1 PCIe link ignored: stated speed is implausible"),
    "a card without a slot is next to its CPU": (
        system(cpu(alone(0), alone(1), tag("nic", port(0, 100000)))), {}, {}, [(("cpu0",), Fraction(25, 2), ...)], ""),
    "cards are counted by their number": (
        two(card(port(2, 1000), busid="0000:91:00.0"), card(port(1, 2000), busid="0000:92:00.0")), {}, {},
        [(BOTH, ..., Fraction(1, 4)), (BOTH, ..., Fraction(1, 8))], ""),
    "a given PCIe bandwidth overrules the file": (
        GIVEN, {"nic_bandwidth": 50, "pcie_bandwidth": 14}, {("gpu0", "pcie0"): 14, ("pcie0", "cpu0"): 14},
        [(("pcie0",), 14, 14)], "every PCIe link is modeled with the given 14 GB/s"),
    "a given bandwidth of cards overrules the file": (
        GIVEN, {"nic_bandwidth": 50, "pcie_bandwidth": 99}, {}, [(("pcie0",), 50, 50)],
        "every network card is modeled with the given 50 GB/s"),
    "a GPU may have a better way to its CPU than PCIe": (
        graces(joined=False), {}, {("gpu0", "cpu0"): 448}, [(("cpu0",), 50, 50), (("cpu1",), 50, 50)], ""),
    "a card reaches a GPU over this way": (graces(joined=True), {}, {}, [(("gpu0",), 50, 50), (("gpu1",), 50, 50)], ""),
    "CPUs of POWER have NVLinks of their own": (
        system(*(cpu(gpu(n, link("x", 3, "0x068001"), sm=70), numaid=n, arch="ppc64") for n in range(2))), NCCL,
        {("gpu1", "cpu1"): 60, ("cpu0", "cpu1"): 32}, [], ""),
    "halves of a Broadcom switch are one before distances are compared": (
        system(cpu(below(
            below(gpu(0, switched()), busid="0000:a1:00.0", **LOWER),
            below(gpu(1, switched()), card(port(1), busid="0000:91:00.0"), busid="0000:a2:00.0", **LOWER),
            below(card(port(0)), busid="0000:a3:00.0", **LOWER), **UPPER))), {}, {}, [(BOTH, ..., ...)] * 2, ""),
    "cards below any half of a Broadcom switch are on it": (
        system(cpu(below(
            below(alone(0), busid="0000:a1:00.0", **LOWER),
            below(alone(1), card(port(1), busid="0000:91:00.0"), busid="0000:a2:00.0", **LOWER),
            below(card(port(0)), busid="0000:a3:00.0", **LOWER), **UPPER))), {}, {}, [(("pcie0",), ..., ...)] * 2, ""),
    "cards that a cloud lists by class have no speed": (
        system(cpu(*(pci(slot(n), kind=GPU) for n in range(8)), pci("0000:90:00.0", kind="0x020000"))),
        {"gpu": "h100"}, {("gpu7", "nvswitch"): 450}, [(..., ..., None)], ""),
}  # fmt: skip


@pytest.mark.parametrize("case", MACHINES)
def test_links_and_cards_are_those_computed_by_hand(case: str) -> None:
    """Every machine becomes the box whose bandwidths follow from its file; notes state assumptions."""
    text, options, links, nics, note = MACHINES[case]
    box = box_of(text, **options)
    assert links.items() <= bandwidths(box).items()
    assert len(box.nics) == len(nics)
    for found, expected in zip(box.nics, nics, strict=True):
        assert all(value in (..., field) for value, field in zip(expected, found[:3], strict=True))
    assert any(note in f" {line}" for line in box.notes)
    assert any("implausible" in line for line in box.notes) == ("implausible" in case + note)


@pytest.mark.parametrize(("lower", "switches"), [("0xa096", ("pcie0", "cpu0")), ("0xb096", ("pcie0", "pcie1", "cpu0"))])
def test_the_two_levels_of_a_broadcom_switch_are_one(lower: str, switches: tuple[str, ...]) -> None:
    """As in NCCL; other switches in a row are two."""
    inner = below(alone(0), alone(1), busid="0000:a1:00.0", **(BROADCOM | {"subsystem_device": lower}))
    box = box_of(system(cpu(below(inner, alone(2), **BROADCOM), alone(3))))
    assert sorted(box.switches) == sorted(switches)


@pytest.mark.parametrize(
    ("speed", "width", "line", "nccl"),
    [
        ("2.5 GT/s PCIe", 1, "0.25", "0.1875"),
        ("5 GT/s", 8, "4", "3"),
        ("8.0 GT/s PCIe", 16, Fraction(1024, 65), "12"),
        ("16 GT/s", 16, Fraction(2048, 65), "24"),
        ("32.0 GT/s PCIe", 16, Fraction(4096, 65), "48"),
        ("64.0 GT/s PCIe", 16, "121", "96"),
        ("", 0, Fraction(1024, 65), "12"),
        ("Unknown", "", Fraction(1024, 65), "12"),
    ],
)
def test_pcie_links_have_the_rate_of_their_lanes(speed: str, width: object, line: str, nccl: str) -> None:
    """The line rate less the coding, or NCCL's figure, which is lower."""
    text = system(cpu(alone(0, speed=speed, width=width), alone(1)))
    assert bandwidths(box_of(text))["gpu0", "cpu0"] == Fraction(line)
    assert bandwidths(box_of(text, figures="nccl"))["gpu0", "cpu0"] == Fraction(nccl)
    assert all(lane["nccl"] < lane["line"] for lane in LANE_RATES.values())


@pytest.mark.parametrize(
    ("attributes", "speed"),
    [
        ({"vendor": "GenuineIntel", "familyid": 6, "modelid": 79}, 6),
        ({"vendor": "GenuineIntel", "familyid": 6, "modelid": 85}, 10),
        ({"vendor": "GenuineIntel", "familyid": 6, "modelid": 143}, 22),
        ({"vendor": "GenuineIntel", "familyid": 6, "modelid": 207}, 40),
        ({"vendor": "GenuineIntel", "familyid": 6, "modelid": 173}, 40),
        ({"vendor": "AuthenticAMD", "familyid": 143, "modelid": 49}, 16),
        ({"vendor": "AuthenticAMD", "familyid": 175, "modelid": 1}, 24),
        ({"vendor": "AuthenticAMD", "familyid": 26, "modelid": 2}, 32),
        ({"arch": "ppc64"}, 32),
        ({"arch": "arm64"}, 6),
        ({"vendor": "somebody", "familyid": "", "modelid": ""}, 6),
    ],
)
def test_cpus_of_a_host_are_joined_by_nccls_figures(attributes: dict[str, object], speed: int) -> None:
    """Vendor, family and model decide, as no file states a speed."""
    box = box_of(system(cpu(alone(0), numaid=0, **attributes), cpu(alone(1), numaid=1, **attributes)))
    assert bandwidths(box)["cpu0", "cpu1"] == speed
    assert any("links between CPUs" in note for note in box.notes)


@pytest.mark.parametrize("speed", ["12.5", 50, 100])
@pytest.mark.parametrize(
    "text",
    [
        four_gpus(fast_card(0), fast_card(1)),
        four_gpus(fast_card(0), card(port(1, 100000), busid="0000:91:00.0", width=8), speed="16.0 GT/s PCIe"),
        four_gpus(fast_card(0), fast_card(1)).replace("nvlink", "unknown"),
        four_gpus(fast_card(0, speed=0), card(port(1, 0), busid="0000:91:00.0", speed="2.5 GT/s", width=1)),
    ],
)
def test_a_bandwidth_given_later_is_as_good_as_one_given_at_once(text: str, speed: str | int, tmp_path: Path) -> None:
    """For a box that was read without it, one that was read with it, and a file."""
    path = tmp_path / "machine.xml"
    path.write_text(text, encoding="utf-8")
    expected = compose([box_of(text, nic_bandwidth=speed)] * 2)
    assert compose([box_of(text)] * 2, nic_bandwidth=speed) == expected
    assert compose([path, path], nic_bandwidth=speed) == expected


def test_a_tapered_leaf_is_built_for_ports() -> None:
    """Two switch ports of 50 GB/s at 2:1 have 50 to the spine, whatever PCIe brings the cards."""
    box = box_of(four_gpus(fast_card(0), speed="16.0 GT/s PCIe"))
    network = compose([box] * 4, fabric="leaf_spine", boxes_per_leaf=2, oversubscription=2)
    assert network.link("leaf0", "spine").bandwidth == 50
    assert network.link("box0/nic0", "leaf0").bandwidth == GEN4


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from([10000, 25000, 100000, 200000, 400000, 0]), st.sampled_from([4, 8, 16])), max_size=5
    ),
)
def test_no_gpu_gives_its_cards_more_than_its_own_link(widths: list[int], ports: list[tuple[int, int]]) -> None:
    """And no card gets more than PCIe brings it, or than its ports take."""
    gpus = [gpu(number, switched(), width=width) for number, width in enumerate(widths)]
    slots = [card(port(n, speed), busid=f"0000:9{n}:00.0", width=width) for n, (speed, width) in enumerate(ports)]
    box = box_of(system(cpu(below(*gpus, *slots), gpu(9, switched()))), figures="nccl")
    for number, width in enumerate(widths):
        assert sum(found.near_bandwidth for found in box.nics if f"gpu{number}" in found.near) <= Fraction(width * 3, 2)
    for (speed, width), found in zip(ports, box.nics, strict=True):
        limit, slot_ = Fraction(speed or 10**6, 8000), Fraction(width * 3, 2)
        # A slot four times slower than the ports is not believed.
        assert 0 < found.near_bandwidth <= (limit if speed and 4 * slot_ <= limit else min(limit, slot_))


@pytest.mark.parametrize(("kind", "counted"), [("0x030200", 2), ("0x120000", 2), ("0x030000", 3)])
def test_a_display_of_the_board_is_no_gpu_beside_real_ones(kind: str, counted: int) -> None:
    """Where a file has classes only; if all are VGA controllers, they count."""
    box = box_of(
        system(cpu(*(pci(slot(n), kind=kind) for n in range(2)), pci("0000:70:00.0", kind="0x030000"))), gpu="a10"
    )
    assert box.gpus == counted
    assert any(note.startswith("1 VGA controller was not taken for a GPU") for note in box.notes) is (counted == 2)
    listed = system(cpu(alone(0), alone(1), pci("0000:70:00.0", kind="0x030000"), pci("0000:71:00.0", kind=GPU)))
    assert box_of(listed).gpus == 2


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
    tree = read_pcie(read_machine(read_tree(Document("x", text))[0], told), told)
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


def test_a_slow_slot_of_a_gpu_is_no_limit_of_cards_that_reach_others() -> None:
    """Two cards of 50 GB/s near four GPUs, of which one slot has four lanes of 16."""
    fast: dict[str, Any] = {"speed": "32.0 GT/s PCIe"}
    gpus = [gpu(number, switched(), width=4 if number == 1 else 16, **fast) for number in range(4)]
    box = box_of(system(cpu(*gpus, *(card(port(n, 400000), busid=f"0000:9{n}:00.0", **fast) for n in range(2)))))
    assert [(each.near, each.bandwidth) for each in box.nics] == [(("gpu0", "gpu2", "gpu3"), 50)] * 2
    assert any(note.startswith("gpu1: its PCIe link has 15.75 GB/s, less than half") for note in box.notes)
