"""The table of ``nvidia-smi topo -m``, and square tables as people paste them."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest

from collopt import bound
from collopt.errors import ColloptError, FileFormatError, TopologyError
from collopt.topologies import compose, dgx1_v100, dgx_a100, dgx_b200, dgx_b300, dgx_h100, read_topology
from collopt.topologies.importing.amd_tools import matches_bandwidths
from collopt.topologies.importing.documents import (
    MAX_LABELS,
    CellKind,
    Document,
    TextMatrix,
    find_headers,
    plain_lines,
    read_document,
    read_rows,
)
from collopt.topologies.importing.nvidia_smi import matches_nvidia_smi, read_nvidia_smi
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.switched.scale_out import Box, repeat_box
from nccl_texts import box_of, cpu, gpu, nic, pci, port, switched, system
from sample_files import sample
from vendor_tables import HALVES, all_pairs, cube_mesh, square, table


def read(text: str, **options: str | int) -> Box:
    """Read the text with options as people write them."""
    document = Document("topo.txt", text)
    assert matches_nvidia_smi(document)
    return read_nvidia_smi(document, BoxOptions.of(**options))  # type: ignore[arg-type]


def link_set(box: Box) -> set[tuple[frozenset[str], Fraction]]:
    """Links without their direction and latency."""
    return {(frozenset((link.tail, link.head)), link.bandwidth) for link in box.links}


def test_the_real_table_of_a_dgx1_gives_our_dgx1() -> None:
    """The same links, and the one NIC next to two GPUs."""
    document = read_document(sample("nvidia-smi-topo_v100-hybrid-cube-mesh.txt"))
    box = read_nvidia_smi(document, BoxOptions.of(gpu="v100", nic_bandwidth="12.5"))
    assert repeat_box(box, 1) == dgx1_v100()
    assert [nic.near for nic in box.nics] == [("gpu2", "gpu3")]
    assert (box.name, box.nics[0].bandwidth) == ("v100-8gpu", Fraction(25, 2))


def test_nics_have_the_names_of_the_legend_or_of_old_tables() -> None:
    """GPUs have NVML's numbers, also where some are hidden."""
    rows = ["", "GPU1  X   PIX PXB PXB", "GPU4 PIX  X  PXB PXB", "{0} PXB PXB  X  PIX", "{1} PXB PXB PIX  X "]
    for labels, legend, names in (
        (("NIC0", "NIC1"), "NIC Legend:\n\n  NIC0: mlx5_8\n  NIC1: mlx5_bond_0\n", ("mlx5_8", "mlx5_bond_0")),
        (("mlx5_3", "mlx5_1"), "", ("mlx5_3", "mlx5_1")),
        (("NIC0", "NIC1"), "", ()),
    ):
        rows[0] = f"     GPU1 GPU4 {labels[0]} {labels[1]}"
        box = read("\n".join(rows).format(*labels) + "\n" + legend, pcie_bandwidth=24)
        assert [device.number for device in box.devices[:2]] == [1, 4]
        assert tuple(device.name for device in box.devices[2:]) == names


def test_the_real_table_of_eight_a100_gives_our_dgx_a100() -> None:
    """Twelve links into one switch; two NICs next to every two GPUs, whose speed the table does not say."""
    document = read_document(sample("nvidia-smi-topo_a100-8gpu-8nic.txt"))
    box = read_nvidia_smi(document, BoxOptions.of(gpu="a100"))
    assert repeat_box(box, 1) == dgx_a100()
    assert [nic.near for nic in box.nics] == [(f"gpu{nic // 2 * 2}", f"gpu{nic // 2 * 2 + 1}") for nic in range(8)]
    assert {nic.bandwidth for nic in box.nics} == {None}
    with pytest.raises(TopologyError, match="the bandwidth of nic0"):
        repeat_box(box, 2)


def test_the_real_table_of_two_gpus_on_one_cpu_gives_two_links_to_it() -> None:
    """With tabs, and with the column GPU NUMA ID."""
    document = read_document(sample("nvidia-smi-topo_2gpu-phb-tabs.txt"))
    box = read_nvidia_smi(document, BoxOptions.of(pcie_bandwidth=63))
    assert link_set(box) == {(frozenset((f"gpu{gpu}", "cpu0")), Fraction(63)) for gpu in range(2)}
    assert (box.name, box.switches) == ("nvidia-2gpu", ("cpu0",))


def test_nccls_figures_are_those_that_nccl_plans_with() -> None:
    """A link of 25 GB/s counts with 20."""
    box = read(cube_mesh(), gpu="V100", figures="nccl")
    assert Counter(link.bandwidth for link in box.links) == {Fraction(20): 8, Fraction(40): 8}
    assert box.notes == (
        "every NVLink of v100 is modeled with 20 GB/s in each direction, the bandwidth that NCCL plans with",
        "PCIe between GPUs is left out, as faster links connect all of them",
    )


@pytest.mark.parametrize(
    ("gpu", "count", "ours"),
    [
        ("a100", 12, dgx_a100),
        ("h100", 18, dgx_h100),
        ("h200", 18, dgx_h100),
        ("b200", 18, dgx_b200),
        ("gb200", 18, dgx_b200),
        ("gb300", 18, dgx_b300),
    ],
)
def test_the_full_count_in_every_pair_is_a_switch(gpu: str, count: int, ours: object) -> None:
    """With the abilities and limits of the switch that is sold with the GPU."""
    assert repeat_box(read(table(all_pairs(f"NV{count}", 8)), gpu=gpu), 1) == ours()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("gpus", "count", "gpu", "switch"),
    [(4, 4, "a100", False), (4, 2, "v100", False), (4, 12, "a100", True), (3, 6, "a100", False), (3, 7, "a100", True),
     (2, 12, "a100", False), (8, 8, "h800", True)],
)  # fmt: skip
def test_equal_counts_are_a_switch_only_if_they_exceed_the_gpus_links(
    gpus: int, count: int, gpu: str, switch: bool
) -> None:
    """Four A100 with four links to each other are joined directly; with twelve they cannot be."""
    box = read(table(all_pairs(f"NV{count}", gpus)), gpu=gpu)
    assert (box.switches == ("nvswitch",)) is switch
    assert {link.bandwidth for link in box.links} == {Fraction(25 * count)}
    assert len(box.links) == (gpus if switch else gpus * (gpus - 1) // 2)


def test_a_gpu_that_lost_its_nvlinks_is_reached_over_pcie() -> None:
    """Its slot has to bring 7/8 of an allgather's data; the others keep their NVSwitch."""
    kinds = {(low, high): "NV18" for high in range(8) for low in range(high)}
    kinds |= {pair: "NODE" if pair[1] < 4 else "SYS" for pair in kinds if 2 in pair}
    rows = [" ".join(kinds[low, high] for high in range(low + 1, 8)) for low in range(7)]
    box = read(table(rows, HALVES), gpu="b200")
    ports = {link.tail: link.bandwidth for link in box.links if link.head == "nvswitch"}
    assert ports == {f"gpu{gpu}": 900 for gpu in range(8) if gpu != 2}
    assert bound(compose([box]), "allgather").algbw == Fraction(4096, 65) * Fraction(8, 7)
    assert any(note.startswith("gpu2: no NVLinks, which other GPUs") for note in box.notes)


def test_groups_of_gpus_may_have_nvswitches_of_their_own() -> None:
    """Two partitions of four GPUs each, joined by PCIe."""
    rows = [" ".join("NV18" if low // 4 == high // 4 else "SYS" for high in range(low + 1, 8)) for low in range(7)]
    box = read(table(rows, HALVES), gpu="h100")
    assert box.switches[:2] == box.abilities == ("nvswitch0", "nvswitch1")
    assert compose([box]).link("box0/gpu5", "box0/nvswitch1").bandwidth == 450


def test_a_gpu_with_fewer_links_to_the_switch_is_named() -> None:
    """The pairs of gpu3 show one NVLink less, as after a link has failed."""
    rows = [" ".join("NV17" if 3 in (low, high) else "NV18" for high in range(low + 1, 8)) for low in range(7)]
    box = read(table(rows), gpu="h100")
    assert {link.tail: link.bandwidth for link in box.links}["gpu3"] == 425
    assert bound(compose([box]), "allgather").algbw == Fraction(425 * 8, 7)
    assert any(note.startswith("gpu3 has 17 of 18 NVLinks") for note in box.notes)


def test_a_pair_that_an_nvswitch_would_join_is_named() -> None:
    """GPU0 and GPU1 have all of their links to the same two others; a switch is not taken for cards without any."""
    with pytest.raises(FileFormatError, match="cell GPU1-GPU0 is 'NODE'; expected NV12, as of the other pairs"):
        read(table(["NODE NV12 NV12", "NV12 NV12", "NV12"]), gpu="a100")
    with pytest.raises(FileFormatError, match="gpu0 would have 4 links to others, but rtx8000 has 2"):
        read(table(all_pairs("NV2", 3)), gpu="rtx8000")


def test_trays_of_a_rack_are_not_joined_by_their_cards_alone() -> None:
    """NVLink joins them, which the table of one tray does not show; the catalogue has the rack."""
    tray = read(table(all_pairs("NV18", 4)), gpu="gb200", nic_bandwidth=50)
    assert compose([tray]).egress("box0/gpu0") == 900
    with pytest.raises(TopologyError, match="collopt bound gb200-nvl72 allgather --ranks 0-7"):
        compose([tray] * 18, nics=4, nic_bandwidth=50)
    assert compose([read(table(all_pairs("NV18", 4)), gpu="b200")] * 2, nics=4, nic_bandwidth=50).num_ranks == 8


def test_cards_that_are_far_from_every_gpu_are_named() -> None:
    """They are counted, and the note says how to leave them out; where all are far, none is told apart."""
    near = {(0, 2): "PIX", (1, 3): "PIX"}
    labels = ["GPU0", "GPU1", "NIC0", "NIC1", "NIC2", "NIC3"]

    def cell(row: int, column: int) -> str:
        low, high = sorted((row, column))
        return "X" if low == high else "NV18" if high == 1 else near.get((low, high), "SYS")

    (note,) = [note for note in read(square(labels, cell), gpu="h100").notes if "SYS" in note]
    assert note.startswith("nic2..3: SYS from every GPU while other network cards are nearer")
    assert note.endswith("(--without box0/nic2)")
    near.clear()
    assert not any("SYS" in note for note in read(square(labels, cell), gpu="h100").notes)


def test_pcie_alone_gives_a_tree() -> None:
    """Two bridges on one CPU, and a GPU on the other."""
    box = read(table(["PIX NODE NODE SYS", "NODE NODE SYS", "PXB SYS", "SYS"]), pcie_bandwidth=24)
    pairs = {("gpu0", "pcie0"), ("gpu1", "pcie0"), ("gpu2", "pcie1"), ("gpu3", "pcie1"), ("pcie0", "cpu0"),
             ("pcie1", "cpu0"), ("gpu4", "cpu1"), ("cpu0", "cpu1")}  # fmt: skip
    assert {(link.tail, link.head) for link in box.links} == pairs
    assert {link.bandwidth for link in box.links} == {Fraction(24)}
    assert box.switches == ("pcie0", "pcie1", "cpu0", "cpu1")
    assert any("two CPUs are joined with 24 GB/s" in note for note in box.notes)


def test_a_cpu_stays_where_something_else_leads_to_it() -> None:
    """A GPU of its own, or the other CPU."""
    assert read(table(["PIX NODE", "NODE"]), pcie_bandwidth=1).switches == ("pcie0", "cpu0")
    assert read(table(["PIX SYS", "SYS"]), pcie_bandwidth=1).switches == ("pcie0", "cpu0", "cpu1")
    assert read(table(["PIX NODE NODE", "NODE NODE", "PIX"]), pcie_bandwidth=1).switches == ("pcie0", "pcie1", "cpu0")
    assert read(table(["SYS SYS", "PIX"]), pcie_bandwidth=1).switches == ("pcie0", "cpu0", "cpu1")


@pytest.mark.parametrize(
    ("tails", "cpus"),
    [
        (["CPU Affinity\tNUMA Affinity", "0-9\t0", "0-9\t0", "10-19\t1", "10-19\t1"], 2),
        (["CPU Affinity", "0-9", "0-9", "10-19", "10-19"], 2),
        (["CPU Affinity\tNUMA Affinity", *["0-19\tN/A"] * 4], 4),
        (["CPU Affinity", *["N/A"] * 4], 4),
    ],
)
def test_pcie_joins_what_nvlinks_do_not(tails: list[str], cpus: int) -> None:
    """Two pairs with bridges across the top, on one CPU if the driver says so of both."""
    box = read(table(["NV12 SYS SYS", "SYS SYS", "NV12"], tails), gpu="a100")
    assert link_set(box) >= {(frozenset(("gpu0", "gpu1")), Fraction(300)), (frozenset(("gpu2", "gpu3")), Fraction(300))}
    assert box.switches == tuple(f"cpu{cpu}" for cpu in range(cpus))
    assert repeat_box(box, 1).num_ranks == 4


def test_nics_in_a_tree_hang_on_what_they_share_with_gpus() -> None:
    """On the bridge that they share, or on the CPU."""
    text = (
        "\tGPU0\tGPU1\tmlx5_0\tmlx5_1\tCPU Affinity\n"
        "GPU0\t X \tSYS\tPIX\tSYS\t0-9\nGPU1\tSYS\t X \tSYS\tNODE\t10-19\n"
        "mlx5_0\tPIX\tSYS\t X \tSYS\nmlx5_1\tSYS\tNODE\tSYS\t X \n"
    )
    box = read(text, pcie_bandwidth=16, nic_bandwidth=25)
    assert [nic.near for nic in box.nics] == [("pcie0",), ("cpu1",)]
    assert {nic[1:3] for nic in box.nics} == {(Fraction(16), Fraction(16))}
    assert "nic0, nic1 are modeled with 16 of 25 GB/s, because a card's own PCIe link has 16 GB/s" in box.notes
    assert repeat_box(box, 2).num_ranks == 4


def test_a_lost_tab_before_the_affinity_is_mended_by_the_other_end_of_the_pair() -> None:
    """NV120-31 is NV12 and 0-31, as the other row says; SYS0-31 needs no help."""
    whole = table(all_pairs("NV12", 8), HALVES)
    assert read(whole.replace("NV12\t0-31", "NV120-31"), gpu="a100") == read(whole, gpu="a100")
    far = table(["SYS SYS", "SYS"], ["CPU Affinity", *["0-31"] * 3])
    assert read(far.replace("SYS\t0-31", "SYS0-31"), pcie_bandwidth=1) == read(far, pcie_bandwidth=1)
    with pytest.raises(FileFormatError, match=r"line 2: cell GPU0-GPU7 is 'NV120\+31'; expected X, NV#, PIX"):
        read(whole.replace("NV12\t0-31", "NV120+31"), gpu="a100")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\t", "     "),
        lambda text: text.replace("\t", " ").replace("  ", " "),
        lambda text: f"$ nvidia-smi topo -m\n{text}$ ",
        lambda text: "\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1),
        lambda text: "".join(f"2026-01-02T03:04:05 host-7 {line}\n" if line else "\n" for line in text.split("\n")),
        lambda text: text.split("\nLegend")[0],
        lambda text: text.replace("\n", " \n"),
        lambda text: text.replace("CPU Affinity", ""),
    ],
)
def test_copies_are_read_like_the_original(change: object) -> None:
    """Prompts, colors, prefixes and lost tabs do not matter."""
    assert read(change(cube_mesh()), gpu="v100") == read(cube_mesh(), gpu="v100")  # type: ignore[operator]


def test_a_slot_counts_no_more_than_the_nic_in_it() -> None:
    """A NIC of 12.5 GB/s on PCIe of 16, and one of 25."""
    text = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV1\tPIX\nGPU1\tNV1\tX\tSYS\nNIC0\tPIX\tSYS\tX\n"
    for speed, near in (("12.5", Fraction(25, 2)), ("25", Fraction(16))):
        box = read(text, gpu="v100", pcie_bandwidth=16, nic_bandwidth=speed)
        assert [(nic.near, nic.near_bandwidth) for nic in box.nics] == [(("gpu0",), near)]
    assert read(text, gpu="v100", pcie_bandwidth=16).nics[0].near_bandwidth == 16


SLOT = Fraction(2048, 65)
"""GB/s of a slot of the fourth generation."""


@pytest.mark.parametrize(
    ("cards", "near", "bandwidth", "each"),
    [
        ("01", "both", 25, Fraction(25, 2)),
        ("0", "both", 25, 25),
        ("012", "both", SLOT * 2 / 3, SLOT / 3),
        ("0123", "both", SLOT / 2, SLOT / 4),
        ("0123", "one", SLOT / 2, SLOT / 2),
    ],
)
def test_nics_share_slots_as_in_the_xml_of_the_same_machine(
    cards: str, near: str, bandwidth: Fraction, each: Fraction
) -> None:
    """NICs of 25 GB/s next to two GPUs, or half of them next to each."""
    labels = ["GPU0", "GPU1", *(f"NIC{card}" for card in cards)]

    def cell(row: int, column: int) -> str:
        low, high = sorted((row, column))
        if low == high:
            return "X"
        return "NV12" if high < 2 else "PIX" if near == "both" or low % 2 == high % 2 else "SYS"

    box = read(square(labels, cell), gpu="a100", nic_bandwidth=25)
    assert {nic[1:3] for nic in box.nics} == {(each, bandwidth)}
    slots = [nic(f"0000:9{card}:00.0", port(int(card), 200000)) for card in cards]
    gpus = [gpu(number, switched(count=12), sm=80) for number in range(2)]
    halves = [[gpus[0], *slots[::2]], [gpus[1], *slots[1::2]]]
    bridges = [[*gpus, *slots]] if near == "both" else halves
    dump = box_of(system(cpu(*(pci(f"0000:a{n}:00.0", *inside) for n, inside in enumerate(bridges)))))
    if len(bridges) == 1 or bandwidth < 25:
        assert [nic[:3] for nic in dump.nics] == [nic[:3] for nic in box.nics]
    assert bound(compose([box, box]), "allgather").algbw == bound(compose([dump, dump]), "allgather").algbw
    unknown = read(square(labels, cell), gpu="a100")
    assert compose([unknown] * 2, nic_bandwidth=25) == compose([box] * 2)


def test_all_that_a_network_lacks_is_asked_for_at_once(tmp_path: Path) -> None:
    """The GPU, the fabric and the NICs, and afterwards less; nothing more of one box."""
    file = tmp_path / "topo.txt"
    file.write_text(table(all_pairs("NV12", 4)), encoding="utf-8")
    fabric = "nothing describes the network between boxes; give fabric, one of full, rail, leaf_spine"
    nics = r"the NICs of box '.*' are unknown; give nics and nic_bandwidth, such as nics=4 and nic_bandwidth=50"
    gpu = r".*say which GPU it is \(gpu\), one of [^;]*"
    for options, lacks in (
        ({"boxes": 2}, f"{gpu}; {fabric}; {nics}"),
        ({"boxes": 2, "fabric": "full"}, f"{gpu}; {nics}"),
        ({"boxes": 2, "fabric": "full", "nics": 4, "nic_bandwidth": 50}, gpu),
        ({"boxes": 2, "gpu": "a100"}, f"{re.escape(str(file))}: {fabric}; {nics}"),
        ({}, gpu),
    ):
        with pytest.raises(ColloptError, match=f"^{lacks}$"):
            read_topology(file, **options)
    read_topology(file, boxes=2, fabric="full", gpu="a100", nics=4, nic_bandwidth=50)


LABEL = re.compile(r"N\d+")
CELL = CellKind(re.compile(r"[0-9]+(?!\S)"), "a number")


def read_matrix(text: str) -> TextMatrix:
    """Read the first table of a text."""
    document = Document("table.txt", text)
    lines = plain_lines(document)
    return read_rows(document, lines, next(find_headers(lines, LABEL)), CELL)


@pytest.mark.parametrize(
    "text",
    [
        "\tN0\tN1\nN0\t 0 \t1\nN1\t1\t 0 ",
        "\x1b[4m\tN0\tN1\x1b[0m\nN0\t0\t1\nN1\t1\t0",
        "12:01 host: N0 N1\n12:02 host: N0 0 1\n12:03 host: N1 1 0",
        "N0 N1\nN1 1 0\nN0 0 1",
        "N0 N1\nN0 0 1\nN1 1 0\nN0 N1\nN0 7 7\nN1 7 7",
    ],
)
def test_what_pasting_does_to_a_table_does_not_matter(text: str) -> None:
    """Tabs, colors, what stands before the rows, and a second table behind the first."""
    assert read_matrix(text).cells == (("0", "1"), ("1", "0"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N0 N0\nN0 0 1", "line 1: two columns are called 'N0'"),
        ("N0 N1\nN0 0 1\n", "line 1: the table has a column 'N1', but no row of that name below; is it cut short"),
        ("N0 N1\nN0 0\nN1 0 1", "line 2: row N0 has 1 cells; expected 2, one for each column: is the table cut or"),
        ("N0 N1\nN0 0 1\nN0 0 1\nN1 1 0", "line 3: row N0 appears twice, first on line 2; keep one"),
        ("N0 N1\nN0 0 -1\nN1 1 0", "line 2: cell N0-N1 is '-1'; expected a number"),
        ("N0 N1\nN0 0 1\nN1 1 0\nN2 1 0", "line 4: there is a row 'N2', but no column of that name"),
        (" ".join(f"N{label}" for label in range(MAX_LABELS + 1)), f"has {MAX_LABELS + 1} columns; expected at most"),
    ],
)
def test_a_table_that_is_cut_or_damaged_is_refused_with_its_line(text: str, message: str) -> None:
    """The message names the line and the row or column."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read_matrix(text)


def test_millions_of_lines_are_gone_through_once() -> None:
    """Blank lines and headers without a table take linear time."""
    lines = ["GPU0 GPU1"] * 200_000 + [""] * 200_000 + ["GPU0 N/A 1-2"]
    assert matches_bandwidths(Document("lines", "\n".join(lines)))
    assert not matches_bandwidths(Document("lines", "\n".join(lines[:-1])))
