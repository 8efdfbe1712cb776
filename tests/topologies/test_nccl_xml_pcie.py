"""PCIe, CPUs and network cards of NCCL's topology files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import bound
from collopt.errors import FileFormatError
from collopt.topologies import compose
from collopt.topologies.importing.pcie_tree import LANE_RATES
from collopt.topologies.switched.scale_out import Box
from nccl_texts import GPU, box_of, cpu, gpu, link, nic, pci, port, slot, switched, system, tag
from sample_sizes import examples

BROADCOM = {"vendor": "0x1000", "device": "0xc010", "subsystem_vendor": "0x1000", "subsystem_device": "0xa096"}


def rows(box: Box) -> dict[tuple[str, str], Fraction]:
    """Bandwidths by the two ends of a link, of which there is one."""
    assert len({row[:2] for row in box.links}) == len(box.links)
    return {(row.tail, row.head): row.bandwidth for row in box.links}


def alone(number: int, **place: object) -> str:
    """A GPU without NVLinks of a kind that has none."""
    return gpu(number, sm=89, **place)


def card(*ports: str, busid: str = "0000:90:00.0", **place: object) -> str:
    """A network card in a slot of its own."""
    return nic(busid, *ports, **place)


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
    """Less the coding on the line, or what NCCL plans with"""
    text = system(cpu(alone(0, speed=speed, width=width), alone(1)))
    assert rows(box_of(text))["gpu0", "cpu0"] == Fraction(line)
    assert rows(box_of(text, figures="nccl"))["gpu0", "cpu0"] == Fraction(nccl)


def test_nccl_plans_with_less_than_every_line_rate() -> None:
    """It leaves room for headers."""
    assert all(lane.nccl < lane.line for lane in LANE_RATES.values())


@pytest.mark.parametrize(
    ("told", "speed"),
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
def test_cpus_of_a_host_are_joined_by_nccls_figures(told: dict[str, object], speed: int) -> None:
    """By vendor, family and model; no file states a speed."""
    box = box_of(system(cpu(alone(0), numaid=0, **told), cpu(alone(1), numaid=1, **told)))
    assert rows(box)["cpu0", "cpu1"] == speed
    assert any("links between CPUs" in note for note in box.notes)


def test_bridges_of_a_virtual_machine_are_not_believed() -> None:
    """A bridge of one slow lane above fast devices counts with their speed, and a note says so."""
    bridges = [pci(f"0000:a{n}:00.0", alone(n), alone(n + 2), speed="2.5 GT/s PCIe", width=1) for n in range(2)]
    box = box_of(system(cpu(*bridges)), figures="nccl")
    assert rows(box)["pcie0", "cpu0"] == rows(box)["gpu0", "pcie0"] == 24
    assert any(note.startswith("2 PCIe links ignored") for note in box.notes)


def test_a_slow_bridge_is_believed_if_it_might_be_true() -> None:
    """Eight times slower is a real difference."""
    bridges = [pci(f"0000:a{n}:00.0", alone(n), alone(n + 2), speed="8 GT/s", width=4) for n in range(2)]
    box = box_of(system(cpu(*bridges)), figures="nccl")
    assert rows(box)["pcie0", "cpu0"] == 3
    assert not any("implausible" in note for note in box.notes)


def test_chains_of_bridges_count_with_their_slowest_link() -> None:
    """Only what branches is a switch."""
    chain = pci("0000:a0:00.0", pci("0000:a1:00.0", alone(0), speed="8 GT/s"), speed="16 GT/s")
    box = box_of(system(cpu(chain, alone(1))), figures="nccl")
    assert rows(box) == {("gpu0", "cpu0"): 12, ("gpu1", "cpu0"): 24}


def test_a_switch_alone_below_a_cpu_needs_no_cpu() -> None:
    """The CPU would lead nowhere."""
    box = box_of(system(cpu(pci("0000:a0:00.0", alone(0), alone(1), card(port(0))))), figures="nccl")
    assert rows(box) == {("gpu0", "pcie0"): 24, ("gpu1", "pcie0"): 24}
    assert [(found.near, found.near_bandwidth) for found in box.nics] == [(("pcie0",), 24)]


@pytest.mark.parametrize(("lower", "switches"), [("0xa096", ("pcie0", "cpu0")), ("0xb096", ("pcie0", "pcie1", "cpu0"))])
def test_the_two_levels_of_a_broadcom_switch_are_one(lower: str, switches: tuple[str, ...]) -> None:
    """As in NCCL; other switches in a row are two."""
    below = pci("0000:a1:00.0", alone(0), alone(1), **(BROADCOM | {"subsystem_device": lower}))
    box = box_of(system(cpu(pci("0000:a0:00.0", below, alone(2), **BROADCOM), alone(3))))
    assert sorted(box.switches) == sorted(switches)


def test_gpus_that_links_do_not_all_join_use_pcie_as_well() -> None:
    """Two bridged pairs, as PCIe cards have them."""
    pairs = [cpu(*(gpu(n, link(slot(n ^ 1), 4), sm=86) for n in (host, host + 1)), numaid=host) for host in (0, 2)]
    box = box_of(system(*pairs), figures="nccl")
    assert rows(box)["gpu0", "gpu1"] == 48
    assert rows(box)["gpu0", "cpu0"] == 24
    assert rows(box)["cpu0", "cpu1"] == 22
    assert "PCIe links are modeled with the bandwidth that NCCL plans with" in box.notes


def test_pcie_between_gpus_is_left_out_where_links_join_all() -> None:
    """As NCCL does, and a note says so."""
    box = box_of(system(cpu(gpu(0, switched()), gpu(1, switched()))))
    assert set(rows(box)) == {("gpu0", "nvswitch"), ("gpu1", "nvswitch")}
    assert "PCIe between GPUs was left out, as in NCCL: the links above join all of them" in box.notes


def test_cards_are_next_to_the_gpus_below_the_same_switch() -> None:
    """Else to all of their CPU, else to those of another."""
    first = pci("0000:a0:00.0", gpu(0, switched()), card(port(0), busid="0000:91:00.0"))
    second = cpu(card(port(2), busid="0000:93:00.0"), numaid=1)
    text = system(cpu(first, gpu(1, switched()), card(port(1), busid="0000:92:00.0")), second)
    box = box_of(text, figures="nccl")
    assert [found.near for found in box.nics] == [("gpu0",), ("gpu1",), ("gpu1",)]
    # The last two share the 24 GB/s of gpu1.
    assert [found.near_bandwidth for found in box.nics] == [24, 12, 12]


def test_the_slowest_link_to_the_card_counts() -> None:
    """Its port's 25 GB/s do not fit through eight lanes."""
    switch = pci("0000:a0:00.0", gpu(0, switched()), card(port(0), width=8))
    box = box_of(system(cpu(switch, gpu(1, switched()))), figures="nccl")
    assert box.nics[0][:3] == (("gpu0",), 12, 12)
    assert "nic0 is modeled with 12 of 25 GB/s, because a card's own PCIe link has 12 GB/s" in box.notes


def test_a_card_that_says_nothing_of_its_speed_stays_unknown() -> None:
    """-1 is what some drivers state."""
    for speed in (-1, 0, ""):
        box = box_of(system(cpu(gpu(0, switched()), gpu(1, switched()), card(port(0, speed)))))
        assert box.nics[0].bandwidth is None


def test_cards_that_would_overload_a_gpu_divide_themselves() -> None:
    """Two cards of 25 GB/s and two GPUs below one switch: half a card each, so a GPU's own link suffices."""
    cards = [card(port(n), busid=f"0000:9{n}:00.0") for n in range(2)]
    box = box_of(system(cpu(pci("0000:a0:00.0", gpu(0, switched()), gpu(1, switched()), *cards))))
    assert [(found.near, found.near_bandwidth) for found in box.nics] == [(("gpu0", "gpu1"), Fraction(25, 2))] * 2
    assert any("divide their bandwidth" in note for note in box.notes)


GEN4, GEN5 = Fraction(2048, 65), Fraction(4096, 65)


def four_gpus(*cards: str, speed: str = "32.0 GT/s PCIe") -> str:
    """Four GPUs below a switch, and cards beside it at the CPU."""
    gpus = [gpu(number, switched(), speed="32.0 GT/s PCIe") for number in range(4)]
    return system(cpu(pci("0000:a0:00.0", *gpus, speed=speed), *cards))


def fast_card(number: int, *, speed: int = 400000) -> str:
    """A card in a slot of the fifth generation."""
    return card(port(number, speed), busid=f"0000:9{number}:00.0", speed="32.0 GT/s PCIe")


def two_boxes(text: str) -> Fraction:
    """What an allgather on two such boxes can reach."""
    box = box_of(text)
    return bound(compose([box, box]), "allgather").algbw


def test_a_slot_limits_what_a_card_gives_all_of_its_gpus_together() -> None:
    """Two ports of 25 GB/s in a slot of 31.5: 31.5 enter the box, and half of 4 shards has to."""
    gpus = [gpu(number, switched()) for number in range(2)]
    text = system(cpu(pci("0000:a0:00.0", *gpus, card(port(0, guid="0xa"), port(1, guid="0xa", number=2)))))
    assert box_of(text).nics[0][:3] == (("gpu0", "gpu1"), GEN4, GEN4)
    assert two_boxes(text) == 2 * GEN4


def test_the_way_to_gpus_limits_what_a_card_gives_them_together() -> None:
    """A switch on 31.5 GB/s, and a card of 50 above it."""
    text = four_gpus(fast_card(0), speed="16.0 GT/s PCIe")
    assert box_of(text).nics[0].bandwidth == GEN4
    assert two_boxes(text) == 2 * GEN4
    assert (
        "nic0 is modeled with 31.51 of 50 GB/s, because a PCIe link on the way to GPUs has 31.51 GB/s"
        in box_of(text).notes
    )


def test_cards_divide_the_way_to_their_gpus() -> None:
    """Two of 50 GB/s above a switch on 63."""
    text = four_gpus(fast_card(0), fast_card(1))
    assert [found.bandwidth for found in box_of(text).nics] == [GEN5 / 2] * 2
    assert two_boxes(text) == 2 * GEN5


def test_a_card_that_needs_less_than_its_part_leaves_the_rest() -> None:
    """One of 1 Gb/s beside one of 800, which no PCIe link here would carry whole."""
    box = box_of(four_gpus(fast_card(0), fast_card(1, speed=1000), speed="16.0 GT/s PCIe"))
    assert [found.bandwidth for found in box.nics] == [GEN4 - Fraction(1, 8), Fraction(1, 8)]


def test_cards_of_another_cpu_divide_the_link_between_cpus() -> None:
    """22 GB/s, by NCCL's figures, for two cards of 50; 2 of 4 shards pass it."""
    gpus = cpu(*(gpu(number, switched(), speed="32.0 GT/s PCIe") for number in range(2)))
    text = system(gpus, cpu(fast_card(0), fast_card(1), numaid=1))
    box = box_of(text)
    assert [found[:3] for found in box.nics] == [(("gpu0", "gpu1"), 11, 11)] * 2
    assert two_boxes(text) == 44
    assert (
        "nic0, nic1 are modeled with 11 of 50 GB/s, because the link between CPUs has 22 GB/s for 2 of them"
        in box.notes
    )


def test_a_way_that_branches_is_loaded_with_a_part_only() -> None:
    """Two switches on 63 GB/s each take the two cards of 50 together, if they spread what they carry."""
    switches = [
        pci(f"0000:a{n}:00.0", *(gpu(2 * n + k, switched(), speed="32.0 GT/s") for k in (0, 1)), speed="32.0 GT/s")
        for n in (0, 1)
    ]
    box = box_of(system(cpu(*switches, fast_card(0), fast_card(1))))
    assert [found.bandwidth for found in box.nics] == [50, 50]
    assert [found.near_bandwidth for found in box.nics] == [Fraction(25, 2)] * 2


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
    """Two switches ports of 50 GB/s at 2:1 have 50 to the spine, whatever PCIe brings the cards."""
    box = box_of(four_gpus(fast_card(0), speed="16.0 GT/s PCIe"))
    network = compose([box] * 4, fabric="leaf_spine", boxes_per_leaf=2, oversubscription=2)
    assert network.link("leaf0", "spine").bandwidth == 50
    assert network.link("box0/nic0", "leaf0").bandwidth == GEN4


@pytest.mark.parametrize("joined", [True, False])
def test_a_card_below_one_half_of_a_broadcom_switch_is_as_near_to_gpus_below_the_other(joined: bool) -> None:
    """The two levels are one before anybody asks what is near."""
    upper = {"vendor": "0x1000", "device": "0xc030", "subsystem_vendor": "0x1000", "subsystem_device": "0x0004"}
    lower = upper | {"subsystem_device": "0x1004"}
    gpus = [gpu(number, switched() if joined else "") for number in range(2)]
    halves = [
        pci("0000:a1:00.0", gpus[0], **lower),
        pci("0000:a2:00.0", gpus[1], card(port(1), busid="0000:91:00.0"), **lower),
        pci("0000:a3:00.0", card(port(0)), **lower),
    ]
    box = box_of(system(cpu(pci("0000:a0:00.0", *halves, **upper))))
    assert [found.near for found in box.nics] == [("gpu0", "gpu1") if joined else ("pcie0",)] * 2


def test_one_gpu_with_many_cards_divides_its_own_link() -> None:
    """Three cards of 25 GB/s behind 24 GB/s"""
    cards = [card(port(n), busid=f"0000:9{n}:00.0") for n in range(3)]
    box = box_of(system(cpu(pci("0000:a0:00.0", gpu(0, switched()), *cards), gpu(1, switched()))), figures="nccl")
    assert [found.near_bandwidth for found in box.nics] == [8, 8, 8]


@settings(max_examples=examples(60))
@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=4),
    st.lists(
        st.tuples(st.sampled_from([10000, 25000, 100000, 200000, 400000, 0]), st.sampled_from([4, 8, 16])), max_size=5
    ),
)
def test_no_gpu_gives_its_cards_more_than_its_own_link(widths: list[int], cards: list[tuple[int, int]]) -> None:
    """And no card gets more than PCIe brings it, or than its ports take."""
    gpus = [gpu(number, switched(), width=width) for number, width in enumerate(widths)]
    slots = [card(port(n, speed), busid=f"0000:9{n}:00.0", width=width) for n, (speed, width) in enumerate(cards)]
    box = box_of(system(cpu(pci("0000:a0:00.0", *gpus, *slots), gpu(9, switched()))), figures="nccl")
    for number, width in enumerate(widths):
        assert sum(found.near_bandwidth for found in box.nics if f"gpu{number}" in found.near) <= Fraction(width * 3, 2)
    for (speed, width), found in zip(cards, box.nics, strict=True):
        ports, slot_ = Fraction(speed or 10**6, 8000), Fraction(width * 3, 2)
        # A slot four times slower than the ports is not believed.
        assert 0 < found.near_bandwidth <= (ports if speed and 4 * slot_ <= ports else min(ports, slot_))


def test_two_ports_of_one_guid_are_one_card() -> None:
    """They share its slot, whether in one function or in two."""
    gpus = [gpu(0, switched()), gpu(1, switched())]
    one = card(port(0, guid="0xa"), port(1, guid="0xa", number=2))
    two = card(port(0, guid="0xa")) + card(port(1, guid="0xA", number=2), busid="0000:90:00.1")
    for cards in (one, two):
        box = box_of(system(cpu(*gpus, cards)))
        assert [found.port for found in box.nics] == [50]
        assert [found.bandwidth for found in box.nics] == [Fraction(2048, 65)]
        assert any("one network card" in note for note in box.notes)
    elsewhere = card(port(0, guid="0xa")) + card(port(1, guid="0xa", number=2), busid="0000:91:00.0")
    assert len(box_of(system(cpu(*gpus, elsewhere))).nics) == 2


def test_virtual_and_disabled_interfaces_are_no_cards() -> None:
    """A container's interface sends through another, and NCCL marks the halves of a fused card as no nets."""
    ports = [
        tag("net", name="veth0", dev=0, speed=10000),
        tag("net", name="mlx5_0", dev=1, speed=100000, net=0),
        tag("net", name="mlx5_0+1", dev=2, speed=200000, net=1),
    ]
    box = box_of(system(cpu(gpu(0, switched()), gpu(1, switched()), tag("nic", *ports))))
    assert [found.bandwidth for found in box.nics] == [25]
    assert any("left out 'veth0'" in note for note in box.notes)


def test_a_controller_that_understates_its_link_is_not_believed() -> None:
    """Ten Gb/s do not come out of one lane of the first generation."""
    box = box_of(system(cpu(gpu(0, switched()), gpu(1, switched()), card(port(0, 10000), speed="2.5 GT/s", width=1))))
    assert box.nics[0].near_bandwidth == Fraction(5, 4)
    assert any("1 PCIe link ignored: stated speed is implausible" in note for note in box.notes)


def test_cards_without_a_slot_are_next_to_their_cpu() -> None:
    """The file knows no more of them."""
    box = box_of(system(cpu(alone(0), alone(1), tag("nic", port(0, 100000)))))
    assert [(found.near, found.near_bandwidth) for found in box.nics] == [(("cpu0",), Fraction(25, 2))]


def test_cards_are_counted_by_their_number() -> None:
    """The file has them in the order of addresses."""
    cards = [card(port(2, 1000), busid="0000:91:00.0"), card(port(1, 2000), busid="0000:92:00.0")]
    box = box_of(system(cpu(gpu(0, switched()), gpu(1, switched()), *cards)))
    assert [found.bandwidth for found in box.nics] == [Fraction(1, 4), Fraction(1, 8)]


def test_given_bandwidths_overrule_the_file() -> None:
    """Of cards and of PCIe links; notes say so."""
    slow = pci("0000:a0:00.0", alone(0), alone(1), card(port(0)), speed="2.5 GT/s PCIe", width=1)
    box = box_of(system(cpu(slow, alone(2))), nic_bandwidth=50, pcie_bandwidth=14)
    assert set(rows(box).values()) == {14}
    assert (box.nics[0].near_bandwidth, box.nics[0].bandwidth, box.nics[0].port) == (14, 14, 50)
    assert {
        "every PCIe link is modeled with the given 14 GB/s",
        "every network card is modeled with the given 50 GB/s",
    } <= set(box.notes)


def test_a_gpu_may_have_a_better_way_to_its_cpu() -> None:
    """C2C of Grace: 14 links of 32 GB/s, stated in MB/s; the card is next to the GPU through it."""
    chips = [
        cpu(
            gpu(number, tag("c2c", bw=32000, count=14), speed="", width=0),
            card(port(number, 400000), busid=f"0000:9{number}:00.0", speed="32.0 GT/s PCIe"),
            numaid=number,
            arch="arm64",
        )
        for number in range(2)
    ]
    box = box_of(system(*chips))
    assert rows(box)["gpu0", "cpu0"] == 448
    joined = [cpu_.replace("<c2c", '<nvlink target="f" tclass="0x068000" count="18"/><c2c') for cpu_ in chips]
    assert [(found.near, found.near_bandwidth) for found in box_of(system(*joined)).nics] == [
        (("gpu0",), 50),
        (("gpu1",), 50),
    ]


def test_power_cpus_have_nvlinks_of_their_own() -> None:
    """Three NVLinks from each GPU to its CPU; between the CPUs 32 GB/s"""
    text = system(*(cpu(gpu(n, link("x", 3, "0x068001"), sm=70), numaid=n, arch="ppc64") for n in range(2)))
    box = box_of(text, figures="nccl")
    assert rows(box)["gpu1", "cpu1"] == 60
    assert rows(box)["cpu0", "cpu1"] == 32


def test_display_controllers_of_a_dump_are_no_gpus() -> None:
    """Only what has a ``gpu`` element is, where there are any."""
    text = system(cpu(alone(0), alone(1), pci("0000:70:00.0", kind="0x030000"), pci("0000:71:00.0", kind=GPU)))
    assert box_of(text).gpus == 2


@pytest.mark.parametrize(("kind", "counted"), [("0x030200", 2), ("0x120000", 2), ("0x030000", 3)])
def test_a_display_of_the_board_is_no_gpu_beside_real_ones(kind: str, counted: int) -> None:
    """Where classes are all that there is; if all are VGA controllers, they count."""
    devices = [pci(slot(n), kind=kind) for n in range(2)]
    box = box_of(system(cpu(*devices, pci("0000:70:00.0", kind="0x030000"))), gpu="a10")
    assert box.gpus == counted
    assert any(note.startswith("1 VGA controller was not taken for a GPU") for note in box.notes) is (counted == 2)


def test_a_cloud_may_list_cards_by_class() -> None:
    """Their speed is unknown then."""
    text = system(cpu(*(pci(slot(n), kind=GPU) for n in range(8)), pci("0000:90:00.0", kind="0x020000")))
    box = box_of(text, gpu="h100")
    assert [found.bandwidth for found in box.nics] == [None]


def test_a_width_that_is_no_number_is_refused() -> None:
    """With its line."""
    with pytest.raises(FileFormatError, match="line 1: link_width of <pci> is 'many'; expected a whole number from 0"):
        box_of(system(cpu(alone(0, width="many"), alone(1))))
