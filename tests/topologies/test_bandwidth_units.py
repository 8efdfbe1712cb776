"""Bandwidths with their unit, and bare numbers that may have been meant in another one."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from collopt import read_topology
from collopt.errors import TopologyError
from collopt.support.quantities import as_bandwidth, as_gigabytes, nic_unit_warning
from collopt.topologies import rail, read_box
from collopt.topologies.importing.read import import_network
from nccl_texts import cpu, gpu, nic, port, switched, system


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two GPUs with a card each."""
    cards = (nic(f"0000:b{number}:00.0", port(number, 0)) for number in range(2))
    path = tmp_path / "machine.xml"
    path.write_text(system(cpu(gpu(0, switched()), gpu(1, switched()), *cards)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        ("400Gb/s", 50),
        ("400 Gbps", 50),
        (" 400Gbit/s ", 50),
        ("1.6Tb/s", 200),
        ("100000Mb/s", Fraction(25, 2)),
        ("25GB/s", 25),
        ("25GBps", 25),
        ("0.9TB/s", 900),
        ("31500MB/s", Fraction(63, 2)),
    ],
)
def test_bits_and_bytes_are_told_apart_exactly(text: str, gigabytes: Fraction) -> None:
    """By a small or a large b."""
    assert as_bandwidth(text, "every NIC") == gigabytes


@pytest.mark.parametrize("value", [400, "400", 12.5, None, "400gb/s", "400Kb/s", "400G", "GB/s", "1" * 65 + "Gb/s", []])
def test_anything_else_is_left_as_it_is(value: object) -> None:
    """A bare number above all."""
    assert as_gigabytes(value) is value


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
    """Nobody is nagged."""
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
    """In files' options and by builders alike."""
    options = {"nic_bandwidth": "400Gb/s", "pcie_bandwidth": "512Gb/s"}
    box = read_box(file, nic_bandwidth="400Gb/s", pcie_bandwidth="512Gb/s")
    assert [card.bandwidth for card in box.nics] == [50, 50]
    assert not any("no card has" in note for note in box.notes)
    assert read_topology(file, boxes=2, fabric="rail", **options) == read_topology(  # type: ignore[arg-type]
        file, boxes=2, fabric="rail", nic_bandwidth=50, pcie_bandwidth=64
    )
    assert rail(2, nic_bandwidth="200Gb/s") == rail(2, nic_bandwidth=25)


def test_a_unit_that_is_not_known_is_refused_with_one_that_is() -> None:
    """Lower case may be bits or bytes."""
    with pytest.raises(TopologyError, match=r"is '400gbps'; expected a positive number of GB/s, or one with another"):
        as_bandwidth("400gbps", "every NIC")
