"""The tables of rocm-smi and amd-smi, and the driver's own count of links."""

from __future__ import annotations

import json
import re
from collections import Counter
from fractions import Fraction

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError
from collopt.topologies import mi300x
from collopt.topologies.importing.amd_smi import matches_amd_smi, read_amd_smi
from collopt.topologies.importing.documents import Document, read_document
from collopt.topologies.importing.formats import FORMATS, Format
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.switched.box_files import stored_fields
from collopt.topologies.switched.scale_out import Box, repeat_box
from sample_files import sample
from sample_sizes import examples
from vendor_tables import FRONTIER, node_bandwidths, refusal, rocm_topology, square, two_hives

READERS = {each.reader: each for each in FORMATS}
BANDWIDTHS, TYPES, COUNTS = (READERS[name] for name in ("bandwidths", "topology_tables", "link_counts"))
SYSFS = "".join(" ".join(f"{count:02x}" for count in row) + "\n" for row in FRONTIER)
NO_LINKS = [[0] * 4 for _ in range(4)]


def read(reader: Format, text: str, **options: str | int) -> Box:
    """Read the text with options as people write them."""
    document = Document("rocm.txt", text)
    assert reader.matches(document)
    box = reader.read(document, BoxOptions.of(**options))  # type: ignore[arg-type]
    assert isinstance(box, Box)
    return box


def counts_of(box: Box, link: int) -> tuple[tuple[int, ...], ...]:
    """Links between the GPUs of a box, of `link` GB/s each."""
    topology = repeat_box(box, 1)
    nodes = topology.compute_nodes
    links = {(link.tail, link.head): link.bandwidth for link in topology.links}
    return tuple(tuple(int(links.get((a, b), 0) / link) for b in nodes) for a in nodes)


def test_the_real_tables_of_four_mi250x_agree_with_the_count_of_the_driver() -> None:
    """Two tools, one graph of 4, 2 and 1 links."""
    table = BANDWIDTHS.read(read_document(sample("rocm-smi-shownodesbw_mi250x-8gcd.txt")), BoxOptions.of(gpu="mi250x"))
    driver = COUNTS.read(
        read_document(sample("amd-sysfs-xgmi_num_links_frontier-8gcd.txt")), BoxOptions.of(gpu="mi250x")
    )
    assert table.links == driver.links
    assert counts_of(table, 50) == FRONTIER


def test_links_of_rocm_smi_are_counted_by_the_quotient_of_the_bandwidths() -> None:
    """50000-200000 is four links, 0-0 is none."""
    box = read(BANDWIDTHS, node_bandwidths(FRONTIER))
    assert counts_of(box, 50) == FRONTIER
    assert box.name == "amd-8gpu"
    assert box.notes[0] == "an xGMI link is modeled with 50 GB/s in each direction, which the driver states unmeasured"


def test_the_driver_s_own_count_gives_the_same_box() -> None:
    """Its file says no bandwidth, so it takes that of the GPU."""
    table = read(BANDWIDTHS, node_bandwidths(FRONTIER), gpu="mi250")
    assert read(COUNTS, SYSFS, gpu="mi250") == table
    with pytest.raises(FileFormatError, match="does not state the speed of an xGMI link; say which GPU it is"):
        read(COUNTS, SYSFS)


def test_four_mi250x_are_no_part_of_the_machine_with_eight() -> None:
    """Packages are wired alike, with four links; between packages the two machines differ."""
    small = nx.Graph((a, b, {"links": FRONTIER[a][b]}) for a in range(8) for b in range(a) if FRONTIER[a][b])
    large = nx.Graph((a, b, {"links": links}) for a, b, links in stored_fields("mi250")["links"]["pairs"])
    for graph in (small, large):
        inside = {frozenset((a, b)) for a, b, links in graph.edges(data="links") if links == 4}
        assert inside == {frozenset((2 * package, 2 * package + 1)) for package in range(len(graph) // 2)}
    assert Counter(sum(row) for row in FRONTIER) == {7: 4, 6: 4}
    matcher = nx.algorithms.isomorphism.GraphMatcher(large, small, edge_match=lambda a, b: a == b)
    assert not matcher.subgraph_is_monomorphic()


def test_a_gpu_brings_its_own_figure_and_the_file_s_is_told() -> None:
    """The driver states 50 GB/s for every GPU."""
    mesh = [[int(a != b) for b in range(8)] for a in range(8)]
    box = read(BANDWIDTHS, node_bandwidths(mesh), gpu="mi300x")
    assert {link.bandwidth for link in box.links} == {Fraction(64)}
    assert "the file states 50 GB/s for a link, which the driver does not measure" in box.notes
    planned = read(BANDWIDTHS, node_bandwidths(mesh), gpu="mi300x", figures="nccl")
    assert {link.bandwidth for link in planned.links} == {Fraction(48)}
    with pytest.raises(
        FileFormatError, match="the bandwidth that RCCL plans with for an xGMI link; say which GPU it is"
    ):
        read(BANDWIDTHS, node_bandwidths(mesh), figures="nccl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (node_bandwidths(NO_LINKS), "every pair has 0-0, which newer drivers print whatever the links are"),
        (node_bandwidths(FRONTIER).replace("0-0", "N/A").replace("50000-50000", "N/A").replace("50000-100000", "N/A"),
         "xGMI does not join all of its GPUs, and it says nothing about PCIe; use the output of `rocm-smi --showtopo`"),
        (node_bandwidths(FRONTIER).replace("50000-200000", "50000-120000"), "line 4: cell GPU0-GPU1 is '50000-12"),
        (node_bandwidths(FRONTIER).replace("50000-200000", "-50000-200000", 1), "expected min-max in MB/s"),
        (node_bandwidths(FRONTIER).replace("50000-200000", "0-200000"), "expected MB/s of one link and"),
        (node_bandwidths(FRONTIER).replace("50000-200000", "50000-0"), "expected the smaller number first"),
        (node_bandwidths(FRONTIER).replace("50000-200000", "1-" + "9" * 5000), "expected MB/s of one link and"),
        (node_bandwidths(FRONTIER).replace("50000-100000", "50000-50000", 1), "line 10: cell GPU6-GPU0 is '50000-100"),
        (node_bandwidths(FRONTIER).replace("mps", "kbps"), "line 12: units are 'kbps'; expected mps, which is MB/s"),
        (node_bandwidths(FRONTIER).replace("N/A", "50000-50000", 1), "line 4: cell GPU0-GPU0 is '50000-50000'; expec"),
        (node_bandwidths(FRONTIER).replace("\n", " 0-0\n").replace("7 0-0\n", "7\n", 1), "goes on with"),
        (node_bandwidths(FRONTIER)[:404], "line 8: row GPU4 has 6 cells; expected 8, one for each column"),
    ],
)  # fmt: skip
def test_a_table_of_bandwidths_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    """With the line, and what to take instead."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read(BANDWIDTHS, text)


def test_more_links_than_the_gpu_has_are_refused() -> None:
    """An MI300X has seven, one to each peer."""
    with pytest.raises(FileFormatError, match="gpu0 would have 7 links to others, but mi100 has 3"):
        read(BANDWIDTHS, node_bandwidths(FRONTIER), gpu="mi100")


def test_the_real_table_of_two_hives_gives_two_meshes_joined_by_pcie() -> None:
    """Each hive on the CPU of its NUMA node."""
    document = read_document(sample("rocm-smi-showtopo_8gpu-two-hives.txt"))
    box = TYPES.read(document, BoxOptions.of(gpu="mi100", pcie_bandwidth=24))
    assert box == read(TYPES, rocm_topology(two_hives(), [0] * 4 + [1] * 4), gpu="mi100", pcie_bandwidth=24)
    assert Counter(link.bandwidth for link in box.links) == {Fraction(46): 12, Fraction(24): 9}


@pytest.mark.parametrize("numa", [[], [-1] * 8, [0] * 4], ids=["absent", "unknown", "cut"])
def test_weights_place_gpus_on_cpus_where_numa_nodes_are_not_known(numa: list[int]) -> None:
    """72 is a path between CPUs."""
    box = read(TYPES, rocm_topology(two_hives(), numa), gpu="mi100", pcie_bandwidth=24)
    assert box.switches == ("cpu0", "cpu1")
    assert any("weight of their path is at most 40" in note for note in box.notes)
    assert repeat_box(box, 1).num_ranks == 8


def test_a_weight_of_two_pcie_segments_is_within_a_cpu() -> None:
    """40, and no more."""
    for weight, cpus in ((40, ("cpu0",)), (41, ("cpu0", "cpu1"))):
        box = read(TYPES, rocm_topology([[0, weight], [weight, 0]]), pcie_bandwidth=32)
        assert box.switches == cpus


def test_numa_nodes_count_more_than_weights() -> None:
    """By their weights all GPUs would be on one CPU."""
    weights = [[40 if weight == 72 else weight for weight in row] for row in two_hives()]
    box = read(TYPES, rocm_topology(weights, [8] * 4 + [1] * 4), gpu="mi100", pcie_bandwidth=24)
    assert {(link.tail, link.head) for link in box.links if link.bandwidth == 24} == {
        ("cpu0", "cpu1"),
        *((f"gpu{gpu}", f"cpu{gpu < 4:d}") for gpu in range(8)),
    }
    assert "every NUMA node is modeled as one CPU" in box.notes


def test_only_weight_15_is_a_direct_link() -> None:
    """The hops are 1 on every xGMI path, so a ring of four looks like a mesh by hops."""
    ring = [[0 if a == b else 15 if (a - b) % 2 else 30 for b in range(4)] for a in range(4)]
    box = read(TYPES, rocm_topology(ring), gpu="mi100")
    assert {frozenset((link.tail, link.head)) for link in box.links} == {
        frozenset((f"gpu{gpu}", f"gpu{(gpu + 1) % 4}")) for gpu in range(4)
    }
    assert "a pair of mi100 is taken to have one xGMI link" in box.notes


def test_pcie_only_needs_no_gpu() -> None:
    """A box without xGMI."""
    box = read(TYPES, rocm_topology([[0, 40], [40, 0]], [0, 0]), pcie_bandwidth=32)
    assert {(link.tail, link.head, link.bandwidth) for link in box.links} == {
        ("gpu0", "cpu0", Fraction(32)),
        ("gpu1", "cpu0", Fraction(32)),
    }


TWO_HIVES = rocm_topology(two_hives())


@pytest.mark.parametrize(
    ("text", "gpu", "message"),
    [
        (
            TWO_HIVES,
            None,
            "states neither the speed of xGMI links nor their number per pair; say which GPU it is (gpu)",
        ),
        (TWO_HIVES, "mi250", "pairs of mi250 have one to four links, and it does not say how many; use the"),
        (TWO_HIVES, "h100", "h100 has no such links; say which GPU it is (gpu), one of mi100, mi250, mi300x"),
        (TWO_HIVES.replace("Link Type between", "X"), "mi100", "there is no table 'Link Type between two GPUs'"),
        (TWO_HIVES.replace("Weight between", "X"), "mi100", "no table of weights, which identifies direct links"),
        (TWO_HIVES.replace("XGMI", "NVLINK", 1), "mi100", "line 27: cell GPU0-GPU1 is 'NVLINK'; expected XGMI or PCIE"),
        (TWO_HIVES.replace("XGMI", "PCIE", 1), "mi100", "but cell GPU0-GPU1 on line 27 is 'PCIE'; expected the same"),
        (TWO_HIVES.replace("XGMI", "0"), "mi100", "line 27: cell GPU0-GPU1 is '0'; expected XGMI or PCIE"),
        (TWO_HIVES.replace("\t15", "\t-15", 1), "mi100", "line 5: cell GPU0-GPU1 is '-15'; expected a whole number"),
        (TWO_HIVES.replace("\t15", "\t16", 1), "mi100", "line 6: cell GPU1-GPU0 is '15', but cell GPU0-GPU1 on line 5"),
        (TWO_HIVES + "GPU[0] : (Topology) Numa Node: 0\nGPU[0] : (Topology) Numa Node: 1\n", "mi100",
         "GPU0 is on two NUMA nodes, 0 and 1; expected one"),
        (TWO_HIVES[:TWO_HIVES.index("Link Type") + 40], "mi100", "two GPUs or more follows the title"),
        (TWO_HIVES.replace("\nGPU7\t72", "\nGPU8\t72", 1).replace("GPU7", "GPU8", 1), "mi100",
         "its tables of weights and of link types are of different GPUs"),
        (TWO_HIVES.replace("\t72\n", "\t72\t72\n", 1), "mi100", "line 5: row GPU0 goes on with '72' after its 8 cells"),
        (rocm_topology([[int(a != b) * 15 for b in range(4)] for a in range(4)]).replace("15", "16", 1), "mi100",
         "line 6: cell GPU1-GPU0 is '15', but cell GPU0-GPU1 on line 5 is '16'"),
        (rocm_topology([[int(a != b) * 15 for b in range(8)] for a in range(8)]), "mi100", "gpu0 would have 7 links"),
    ],
)  # fmt: skip
def test_topology_tables_that_make_no_sense_are_refused(text: str, gpu: str | None, message: str) -> None:
    """With what to take or to say instead."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read(TYPES, text, pcie_bandwidth=24, **({} if gpu is None else {"gpu": gpu}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SYSFS.replace("04", "03", 1), "line 2: cell GPU1-GPU0 is '04', but cell GPU0-GPU1 on line 1 is '03'"),
        (SYSFS.replace("00", "01", 1), "line 1: cell GPU0-GPU0 is '01'; expected 00"),
        ("00 00\n00 00\n", "xGMI does not join all of its GPUs"),
        ("00 ff\nff 00\n", "gpu0 would have 255 links to others, but mi250 has 8"),
    ],
)
def test_counts_that_make_no_sense_are_refused(text: str, message: str) -> None:
    """Of the driver's own file."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read(COUNTS, text, gpu="mi250")


@pytest.mark.parametrize("text", ["", "00", "00 01\n01 00 00\n", "00 01\n", "00 0x\n0x 00", "zz zz\nzz zz", "0 1\n1 0"])
def test_what_is_no_square_of_counts_does_not_match(text: str) -> None:
    """So that another format is tried."""
    assert not COUNTS.matches(Document("a", text))


@pytest.mark.parametrize("reader", [BANDWIDTHS, TYPES, COUNTS])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_damaged_tables_of_rocm_smi_give_one_clear_error_or_a_box(reader: Format, data: st.DataObject) -> None:
    """Never another exception."""
    text = {
        BANDWIDTHS: node_bandwidths(FRONTIER),
        TYPES: rocm_topology(two_hives(), [0] * 4 + [1] * 4),
        COUNTS: SYSFS,
    }[reader]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        piece = data.draw(st.sampled_from(["", "0", "99999999999", "\t", "\n", "GPU0", "XGMI", "-", "²", "N/A", "00"]))
        text = text[:start] + piece + text[end:]
    document = Document("rocm.txt", text)
    if reader.matches(document):
        options = BoxOptions.of(gpu=data.draw(st.sampled_from(["mi100", "mi250", "mi300x"])))
        assert "\n" not in refusal(lambda: repeat_box(reader.read(document, options), 1))


MESH = tuple(tuple(int(a != b) for b in range(8)) for a in range(8))
NO_BANDWIDTH = "0-0"


def addresses(count: int) -> list[str]:
    """PCIe addresses as the tool writes them."""
    return [f"0000:{16 * gpu + 12:02x}:00.0" for gpu in range(count)]


def cells(counts: tuple[tuple[int, ...], ...], *, stated: bool = True) -> dict[str, list[list[object]]]:
    """What each table says of some links: pairs without any are on PCIe."""
    size = range(len(counts))

    def kind(a: int, b: int) -> str:
        return "SELF" if a == b else "XGMI" if counts[a][b] else "PCIE"

    def bandwidth(a: int, b: int) -> str:
        links = counts[a][b]
        return "N/A" if not links else f"50000-{50000 * links}" if stated else NO_BANDWIDTH

    return {
        "WEIGHT": [[0 if a == b else 15 if counts[a][b] else 72 for b in size] for a in size],
        "LINK TYPE": [[kind(a, b) for b in size] for a in size],
        "NUMA BW": [[bandwidth(a, b) for b in size] for a in size],
    }


def text(tables: dict[str, list[list[object]]]) -> str:
    """Write the tables as text."""
    written = ""
    for title, rows in tables.items():
        written += f"{title} TABLE:\n" + square(addresses(len(rows)), lambda a, b, rows=rows: rows[a][b]) + "\n"
    return written + "Legend:\n  SELF = Current GPU\n"


def new_json(tables: dict[str, list[list[object]]]) -> str:
    """Write the tables as ROCm 6.3 and later do."""
    keys = {"WEIGHT": "weight", "LINK TYPE": "link_type", "NUMA BW": "bandwidth"}
    size = range(len(tables["WEIGHT"]))
    return json.dumps(
        [
            {"gpu": a, "bdf": addresses(a + 1)[a],
             "links": [{"gpu": b, "num_hops": 1} | {keys[title]: rows[a][b] for title, rows in tables.items()}
                       for b in reversed(size)]}
            for a in size
        ],
        indent=4,
    )  # fmt: skip


def old_json(tables: dict[str, list[list[object]]]) -> str:
    """Write the tables as earlier releases do."""
    keys = {"WEIGHT": "weight", "LINK TYPE": "link_type", "NUMA BW": "numa_bandwidth"}
    size = range(len(tables["WEIGHT"]))
    return json.dumps(
        [
            {"gpu": a} | {keys[title]: {f"gpu_{b}": rows[a][b] for b in size} for title, rows in tables.items()}
            for a in size
        ]
    )


WRITERS = [text, new_json, old_json]


def read_amd(content: str, **options: str | int) -> Box:
    """Read the content with options as people write them."""
    document = Document("amd.txt", content)
    assert matches_amd_smi(document)
    return read_amd_smi(document, BoxOptions.of(**options))  # type: ignore[arg-type]


def bandwidths(box: Box) -> dict[tuple[str, str], Fraction]:
    """GB/s of each link, from the smaller name."""
    return {(min(link[:2]), max(link[:2])): link.bandwidth for link in box.links}


def test_the_real_tables_of_eight_mi300x_give_our_mi300x() -> None:
    """With the figure of the GPU; the driver states 50 GB/s."""
    document = read_document(sample("amd-smi-topology_mi300x.txt"))
    assert repeat_box(read_amd_smi(document, BoxOptions.of(gpu="mi300x")), 1).digest == mi300x().digest
    assert set(bandwidths(read_amd_smi(document, BoxOptions())).values()) == {Fraction(50)}


def test_the_real_tables_of_two_gpus_on_pcie_give_one_cpu() -> None:
    """Nine tables without blank lines, of which three are read."""
    document = read_document(sample("amd-smi-topology_2gpu-pcie.txt"))
    box = read_amd_smi(document, BoxOptions.of(pcie_bandwidth=32))
    assert bandwidths(box) == {("cpu0", "gpu0"): Fraction(32), ("cpu0", "gpu1"): Fraction(32)}


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("stated", [True, False])
def test_a_full_mesh_gives_our_mi300x(write: object, *, stated: bool) -> None:
    """Also where newer drivers print 0-0 for every pair: then weights tell."""
    content = write(cells(MESH, stated=stated))  # type: ignore[operator]
    assert repeat_box(read_amd(content, gpu="mi300x"), 1).digest == mi300x().digest


@pytest.mark.parametrize("write", WRITERS)
def test_links_are_counted_by_the_quotient_of_the_bandwidths(write: object) -> None:
    """As in the table of rocm-smi."""
    box = read_amd(write(cells(FRONTIER)), gpu="mi250", figures="nccl")  # type: ignore[operator]
    assert bandwidths(box) == {
        (f"gpu{a}", f"gpu{b}"): 36 * Fraction(FRONTIER[a][b]) for b in range(8) for a in range(b) if FRONTIER[a][b]
    }


def test_pairs_that_xgmi_does_not_join_are_joined_by_pcie() -> None:
    """Two GPUs each on two CPUs, by weight."""
    counts = ((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0))
    box = read_amd(text(cells(counts)), gpu="mi100", pcie_bandwidth=24)
    assert bandwidths(box)["gpu0", "gpu1"] == Fraction(46)
    assert repeat_box(box, 1).num_ranks == 4


def test_without_weights_all_gpus_are_on_one_cpu() -> None:
    """And the box says so."""
    tables = cells(((0, 0), (0, 0)))
    del tables["WEIGHT"]
    box = read_amd(text(tables), pcie_bandwidth=24)
    assert box.switches == ("cpu0",)
    assert "all GPUs are assumed to be on one CPU, as there is no table of weights" in box.notes


WHOLE = text(cells(MESH))
BARE = text(cells(MESH, stated=False))


@pytest.mark.parametrize(
    ("content", "gpu", "message"),
    [
        (BARE, None, "states neither the speed of xGMI links nor their number per pair; say which GPU it is (gpu)"),
        (BARE, "mi250", "pairs of mi250 have one to four links"),
        (WHOLE.replace("LINK TYPE", "KIND"), None, "there is no table of link types; expected all that `amd-smi"),
        (WHOLE.replace("XGMI", "PCIE"), None, "cell 0000:0c:00.0-0000:1c:00.0 is PCIE, but has a bandwidth; expected"),
        (WHOLE.replace("XGMI", "UNKNOWN"), None, "is 'UNKNOWN'; expected XGMI or PCIE"),
        (WHOLE.replace("XGMI", "N/A"), None, "is 'N/A'; expected XGMI or PCIE"),
        (WHOLE.replace("50000-50000", "50000-75000", 1), None, "-0000:0c:00.0 is '50000-50000', but cell"),
        (WHOLE.replace("50000-50000", "50000-75000"), None, "expected MB/s of one link and"),
        (WHOLE.replace("0000:0c:00.0", "0000:0d:00.0", 2), None, "tables of link types and WEIGHT are of different GP"),
        (WHOLE[:-200], None, "is the table cut or wrapped?"),
        (text({"LINK TYPE": cells(MESH)["LINK TYPE"]}), "mi300x", "no table of weights, which identifies direct"),
        (WHOLE.replace("15\n", "15\t15\n", 1), None, "row 0000:0c:00.0 goes on with '15' after its 8 cells"),
        (WHOLE.replace("15", "16", 1), None, "-0000:0c:00.0 is '15', but cell 0000:0c:00.0-0000:1c:00.0 on line 3 is"),
        (
            "WEIGHT TABLE:\n",
            None,
            "line 1: no line that names two GPUs or more follows the title 'WEIGHT TABLE:'; is it",
        ),
        ("LINK TYPE TABLE:\n", None, "no line that names two GPUs or more follows the title 'LINK TYPE TABLE:'"),
    ],
)
def test_tables_that_make_no_sense_are_refused(content: str, gpu: str | None, message: str) -> None:
    """With what to take or to say instead."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read_amd(content, **({} if gpu is None else {"gpu": gpu}))


def test_a_direct_link_without_the_bandwidth_that_others_have_is_refused() -> None:
    """The weight says direct, the bandwidth says not."""
    tables = cells(MESH)
    tables["NUMA BW"][0][1] = tables["NUMA BW"][1][0] = NO_BANDWIDTH
    with pytest.raises(FileFormatError, match=r"0000:0c:00.0-0000:1c:00.0 is XGMI of weight 15, but has no bandwidth"):
        read_amd(text(tables))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"link_type": ', "is not valid JSON at line 1, column 16 (Expecting value); is it cut short"),
        ('["link_type"]', "it is not a list of GPUs"),
        ('[{"gpu": 0, "link_type": {}}]', "it lists 1 GPUs; expected 2 to 512"),
        ("[" * 100_000 + '"link_type"', "nested too deeply"),
        ('[{"link_type": ' + "9" * 5000 + "}]", "an integer has 5000 digits"),
        ('[{"gpu": -1, "link_type": {}}, {"gpu": 0}]', "a GPU has the number -1; expected a whole number from 0"),
        ('[{"gpu": 0, "link_type": {}}, {"gpu": 0}]', "two of its GPUs have the same number"),
        (
            '[{"gpu": 0, "link_type": {}}, {"gpu": 1, "link_type": 3}]',
            "field link_type of a GPU is 3; expected an obje",
        ),
        ('[{"gpu": 0, "link_type": 1}, {"gpu": 1}]', "links of GPU 0 are None; expected one for each GPU"),
        (
            '[{"gpu": 0, "links": [{"gpu": 1, "link_type": 1}, {"gpu": 1}]}, {"gpu": 1}]',
            "its link to GPU 1 twice; expe",
        ),
        (
            '[{"gpu": 0, "links": [1]}, {"gpu": 1, "x": "link_type", "link_type": 1}]',
            "a link of GPU 0 is 1; expected an",
        ),
        (new_json(cells(MESH)).replace('"XGMI"', "true"), "link_type of a pair of GPUs is True; expected XGMI or PCIE"),
        (new_json(cells(MESH)).replace('"XGMI"', "null", 1), "link_type of a pair of GPUs is None; expected XGMI or"),
        (new_json(cells(MESH)).replace('"gpu": 7,\n', '"gpu": 6,\n'), "the same number"),
        (new_json(cells(MESH)).replace('"gpu": 7, "num', '"gpu": 6, "num').replace("15", "-15"), "weight of a pair of"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_json_of_another_form_is_refused(content: str, message: str) -> None:
    """Field by field."""
    with pytest.raises(FileFormatError, match=re.escape(message)):
        read_amd(content)


@pytest.mark.parametrize("content", ["", "TABLE:", "[1, 2]", '{"link_type": 1}', "NUMA TABLE", "[" * 1000])
def test_what_is_of_another_tool_does_not_match(content: str) -> None:
    """So that another format is tried."""
    assert not matches_amd_smi(Document("a", content))


@pytest.mark.parametrize("whole", [text(cells(FRONTIER)), new_json(cells(MESH)), old_json(cells(MESH))])
@settings(max_examples=examples(100))
@given(data=st.data())
def test_damaged_output_of_amd_smi_gives_one_clear_error_or_a_box(whole: str, data: st.DataObject) -> None:
    """Never another exception."""
    content = whole
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(start, min(len(content), start + 30)))
        piece = data.draw(
            st.sampled_from(["", "0", "99999999999", "\t", "\n", "XGMI", "-", "²", "N/A", "[", "{}", '"'])
        )
        content = content[:start] + piece + content[end:]
    document = Document("amd.txt", content)
    if matches_amd_smi(document):
        options = BoxOptions.of(gpu="mi250", pcie_bandwidth=32)
        assert "\n" not in refusal(lambda: repeat_box(read_amd_smi(document, options), 1))
