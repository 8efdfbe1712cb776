"""The table of GPUs, and bandwidths with their unit."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from collopt import read_topology
from collopt.support.quantities import as_bandwidth, nic_unit_warning
from collopt.topologies import rail, read_box
from collopt.topologies.importing.options import find_product, products_of
from collopt.topologies.importing.read import import_network
from nccl_texts import box_of, cpu, gpu, link, nic, port, slot, switched, system

ONE_WAY = {
    "p100": 80, "v100": 150, "A100": 300, "a800": 200, "a40": Fraction(225, 4), "h100": 450, "H200": 450, "h20": 450,
    "h800": 200, "b200": 900, "GB200": 900, "b300": 900, "gb300": 900, "mi300x": 448, "mi325x": 448, "MI300A": 384,
    "MI210": 150, "RTX 3090": Fraction(225, 4),
    "RTX A6000": Fraction(225, 4), "Quadro RTX 8000": 50, "A30": 100, "H200 NVL": 450, "T4": 0,
    "mi355x": Fraction(2688, 5), "L40S": 0, "l4": 0, "rtx-pro-6000": 0, "RTX 5090": 0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "one_way"), ONE_WAY.items(), ids=ONE_WAY.keys())
def test_all_links_together_are_what_data_sheets_state(name: str, one_way: Fraction) -> None:
    """Half of the total, as vendors add up both directions."""
    product = find_product(name)
    assert product.links * product.line == one_way


@pytest.mark.parametrize(("sm", "name", "port"), [(100, "b200", 900), (103, "b300", 900), (90, "h100", 450)])
def test_dumps_of_blackwell_need_no_option(sm: int, name: str, port: int) -> None:
    """The file says which GPU it is."""
    box = box_of(system(cpu(gpu(0, switched(), sm=sm), gpu(1, switched(), sm=sm))))
    assert (box.name, box.links[0].bandwidth, box.abilities) == (f"{name}-2gpu", port, ("nvswitch",))
    assert [(each.switch, each.loopback) for each in box.limits] == [("nvswitch", True)]


def test_gpus_of_one_code_are_told_apart_by_the_caller() -> None:
    """What the file says is the generation; its count of links is that of the smaller one."""
    text = system(cpu(gpu(0, switched(count=8)), gpu(1, switched(count=8))))
    box = box_of(text, gpu="h800")
    assert (box.name, box.links[0].bandwidth) == ("h800-2gpu", 200)
    assert not any(note.startswith("ignored") for note in box.notes)
    assert box_of(text).links == box.links
    assert products_of("nvidia", "90")[0] == find_product("h100")


def test_a_bridge_of_ga102_has_the_rate_of_its_four_links() -> None:
    """The bridge has 112.5 GB/s in both directions together."""
    box = box_of(system(cpu(gpu(0, link(slot(1), 4), sm=86), gpu(1, link(slot(0), 4), sm=86))))
    assert (box.name, box.links[0].bandwidth) == ("a40-2gpu", Fraction(225, 4))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two GPUs with a card each."""
    cards = (nic(f"0000:b{number}:00.0", port(number, 0)) for number in range(2))
    path = tmp_path / "machine.xml"
    path.write_text(system(cpu(gpu(0, switched()), gpu(1, switched()), *cards)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [("400Gb/s", 50), ("1.6Tb/s", 200), ("100000Mb/s", Fraction(25, 2)), ("25GB/s", 25), ("0.9TB/s", 900)],
)
def test_bits_and_bytes_are_told_apart_exactly(text: str, gigabytes: Fraction) -> None:
    """A small b means bits, a large B bytes."""
    assert as_bandwidth(text, "every NIC") == gigabytes


@pytest.mark.parametrize("value", [400, "400", 400.0, "800.0", Fraction(1600), 3200])
def test_bare_numbers_of_gigabits_are_doubted(value: float | str | Fraction) -> None:
    """No card has that many GB/s, but one is sold with as many Gb/s."""
    bandwidth = as_bandwidth(value, "every NIC")
    told = nic_unit_warning(value, bandwidth)
    assert told is not None
    assert f"means {bandwidth} GB/s" in told
    assert f"give nic_bandwidth='{bandwidth}Gb/s'" in told
    assert as_bandwidth(f"{bandwidth}Gb/s", "every NIC") == bandwidth / 8


@pytest.mark.parametrize("value", [25, 50, 100, 200, "200", 250, 401, "400GB/s", "3200Gb/s", "400 GBps"])
def test_what_cards_have_and_what_has_a_unit_is_not_doubted(value: int | str) -> None:
    """Plausible numbers get no warning."""
    assert nic_unit_warning(value, as_bandwidth(value, "every NIC")) is None


def test_the_doubt_is_among_the_notes_and_the_number_is_kept(file: Path) -> None:
    """Of a box, and of a network of boxes."""
    box = read_box(file, nic_bandwidth=400, pcie_bandwidth=1000)
    assert [card.port or card.bandwidth for card in box.nics] == [400, 400]
    assert sum("means 400 GB/s, which no card has" in note for note in box.notes) == 1
    made = import_network(file, {"boxes": 2, "fabric": "full", "nic_bandwidth": "400", "pcie_bandwidth": 1000})
    assert made.topology.link("box0/nic0", "fabric").bandwidth == 400
    assert sum("means 400 GB/s, which no card has" in note for note in made.notes) == 1


def test_units_are_taken_wherever_a_network_is_described(file: Path) -> None:
    """Options of files and builders take units alike."""
    options = {"nic_bandwidth": "400Gb/s", "pcie_bandwidth": "512Gb/s"}
    box = read_box(file, nic_bandwidth="400Gb/s", pcie_bandwidth="512Gb/s")
    assert [card.bandwidth for card in box.nics] == [50, 50]
    assert not any("no card has" in note for note in box.notes)
    assert read_topology(file, boxes=2, fabric="rail", **options) == read_topology(  # type: ignore[arg-type]
        file, boxes=2, fabric="rail", nic_bandwidth=50, pcie_bandwidth=64
    )
    assert rail(2, nic_bandwidth="200Gb/s") == rail(2, nic_bandwidth=25)
