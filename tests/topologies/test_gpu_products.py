"""The table of GPUs."""

from __future__ import annotations

from fractions import Fraction

import pytest

from collopt.topologies.importing.options import ALIASES, PRODUCTS, find_product, product_of
from collopt.topologies.importing.pcie_tree import LANE_RATES
from nccl_texts import GPU, box_of, cpu, gpu, link, pci, slot, switched, system


@pytest.mark.parametrize(
    ("name", "one_way"),
    [
        ("p100", 80),
        ("v100", 150),
        ("A100", 300),
        ("a800", 200),
        ("a40", Fraction(225, 4)),
        ("h100", 450),
        ("H200", 450),
        ("h20", 450),
        ("h800", 200),
        ("b200", 900),
        ("GB200", 900),
        ("b300", 900),
        ("gb300", 900),
        ("mi300x", 448),
        ("mi325x", 448),
        ("mi355x", Fraction(2688, 5)),
        ("L40S", 0),
        ("l4", 0),
        ("rtx-pro-6000", 0),
        ("RTX 5090", 0),
    ],
)
def test_all_links_together_are_what_data_sheets_state(name: str, one_way: Fraction) -> None:
    """Half of the total, as vendors add up both directions."""
    product = find_product(name)
    assert product.links * product.line == one_way


def test_figures_of_the_libraries_are_below_line_rates() -> None:
    """They leave room for headers; and every GPU has a slot that is known."""
    assert all(product.nccl < product.line for product in PRODUCTS.values() if product.links)
    assert {product.lane_speed for product in PRODUCTS.values()} <= LANE_RATES.keys()
    assert set(ALIASES.values()) <= PRODUCTS.keys()
    assert not ALIASES.keys() & PRODUCTS.keys()


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
    assert product_of("nvidia", "90") == find_product("h100")


@pytest.mark.parametrize("sm", [86, 89, 120, 121])
def test_gpus_that_come_without_links_are_named_after_their_code(sm: int) -> None:
    """There are many of each, and an A10 is no A40."""
    assert box_of(system(cpu(gpu(0, sm=sm), gpu(1, sm=sm)))).name == f"sm{sm}-2gpu"


def test_a_bridge_of_ga102_has_the_rate_of_its_four_links() -> None:
    """112.5 GB/s in both directions."""
    box = box_of(system(cpu(gpu(0, link(slot(1), 4), sm=86), gpu(1, link(slot(0), 4), sm=86))))
    assert (box.name, box.links[0].bandwidth) == ("a40-2gpu", Fraction(225, 4))


@pytest.mark.parametrize(("name", "port"), [("a800", 200), ("h800", 200), ("b300", 900)])
def test_boxes_of_eight_behind_nvswitches_may_be_assumed(name: str, port: int) -> None:
    """For files of clouds, which list PCIe only."""
    box = box_of(system(cpu(*(pci(slot(number), kind=GPU) for number in range(8)))), gpu=name)
    assert {row.bandwidth for row in box.links} == {port}
