"""The tables of rocm-smi and amd-smi, and the driver's own count of links."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest

from collopt.errors import FileFormatError
from collopt.topologies import mi300x
from collopt.topologies.importing.amd_tools import matches_amd_smi, read_amd_smi
from collopt.topologies.importing.documents import Document, read_document
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.importing.read import FORMATS, Format
from collopt.topologies.switched.scale_out import Box, repeat_box
from sample_files import sample
from vendor_tables import (
    FRONTIER,
    MESH,
    SYSFS,
    amd_text,
    cells,
    new_json,
    node_bandwidths,
    old_json,
    rocm_topology,
    two_hives,
)

READERS = {each.reader: each for each in FORMATS}
BANDWIDTHS, TYPES, COUNTS = (READERS[name] for name in ("bandwidths", "topology_tables", "link_counts"))


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
    """A pair of 50000-200000 has four links, a pair of 0-0 none."""
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


def test_the_real_table_of_two_hives_gives_two_meshes_joined_by_pcie() -> None:
    """Each hive on the CPU of its NUMA node."""
    document = read_document(sample("rocm-smi-showtopo_8gpu-two-hives.txt"))
    box = TYPES.read(document, BoxOptions.of(gpu="mi100", pcie_bandwidth=24))
    assert box == read(TYPES, rocm_topology(two_hives(), [0] * 4 + [1] * 4), gpu="mi100", pcie_bandwidth=24)
    assert Counter(link.bandwidth for link in box.links) == {Fraction(46): 12, Fraction(24): 9}


@pytest.mark.parametrize("numa", [[], [-1] * 8, [0] * 4], ids=["absent", "unknown", "cut"])
def test_weights_place_gpus_on_cpus_where_numa_nodes_are_not_known(numa: list[int]) -> None:
    """GPUs whose path has the weight 72 are on different CPUs."""
    box = read(TYPES, rocm_topology(two_hives(), numa), gpu="mi100", pcie_bandwidth=24)
    assert box.switches == ("cpu0", "cpu1")
    assert any("weight of their path is at most 40" in note for note in box.notes)
    assert repeat_box(box, 1).num_ranks == 8


def test_a_weight_of_two_pcie_segments_is_within_a_cpu() -> None:
    """Paths of weight 40 stay within a CPU, paths of 41 do not."""
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


def test_lost_links_are_named() -> None:
    """A pair over two hops, of GPUs that are sold as a mesh; each two MI300A have two links."""
    weights = [[0 if a == b else 30 if a + b == 1 else 15 for b in range(4)] for a in range(4)]
    box = read(TYPES, rocm_topology(weights), gpu="mi300a")
    assert {link.bandwidth for link in box.links} == {128}
    assert any(note.startswith("no direct link of gpu0-gpu1, though mi300a has") for note in box.notes)


def test_only_weight_15_is_a_direct_link() -> None:
    """The hops are 1 on every xGMI path, so a ring of four looks like a mesh by hops."""
    ring = [[0 if a == b else 15 if (a - b) % 2 else 30 for b in range(4)] for a in range(4)]
    box = read(TYPES, rocm_topology(ring), gpu="mi100")
    assert {frozenset((link.tail, link.head)) for link in box.links} == {
        frozenset((f"gpu{gpu}", f"gpu{(gpu + 1) % 4}")) for gpu in range(4)
    }
    assert "a pair of mi100 is taken to have 1 xGMI link" in box.notes


@pytest.mark.parametrize("weight", [13, 41])
def test_partitions_of_gpus_are_refused_by_name(weight: int) -> None:
    """Those of two packages share a link, which no table of weights shows."""
    with pytest.raises(FileFormatError, match=f"is '{weight}'; expected 15, .* CPX mode.* set SPX mode"):
        read(TYPES, rocm_topology([[0, weight], [weight, 0]]).replace("PCIE", "XGMI"), gpu="mi300x", pcie_bandwidth=32)


WRITERS = [amd_text, new_json, old_json]


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
    """All three forms of amd-smi give the links of rocm-smi's table."""
    box = read_amd(write(cells(FRONTIER)), gpu="mi250", figures="nccl")  # type: ignore[operator]
    assert bandwidths(box) == {
        (f"gpu{a}", f"gpu{b}"): 36 * Fraction(FRONTIER[a][b]) for b in range(8) for a in range(b) if FRONTIER[a][b]
    }
