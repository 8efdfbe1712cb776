"""Tables and JSON of vendors' tools that no box could have: what is refused, and damage of any kind."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError
from collopt.topologies.importing.documents import Document
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.importing.read import FORMATS
from collopt.topologies.switched.scale_out import repeat_box
from sample_sizes import examples
from vendor_tables import (
    FRONTIER,
    HALVES,
    LEGEND,
    MESH,
    NO_BANDWIDTH,
    SYSFS,
    all_pairs,
    amd_text,
    cells,
    cube_mesh,
    new_json,
    node_bandwidths,
    old_json,
    refusal,
    rocm_topology,
    table,
    two_hives,
)

READERS = {each.reader: each for each in FORMATS}
DGX1, TWO_HIVES = cube_mesh(), rocm_topology(two_hives())
RATES, JSON = node_bandwidths(FRONTIER), new_json(cells(MESH))
NOT_JOINED = RATES.replace("0-0", "N/A").replace("50000-50000", "N/A").replace("50000-100000", "N/A")
NO_LINKS = [[0] * 4 for _ in range(4)]
NIC_LINKS = "\tGPU0\tGPU1\tNIC0\nGPU0\tX\tNV1\tNV1\nGPU1\tNV1\tX\tPIX\nNIC0\tNV1\tPIX\tX\n"
WHOLE, BARE = amd_text(cells(MESH)), amd_text(cells(MESH, stated=False))
HALF = cells(MESH)
HALF["NUMA BW"][0][1] = HALF["NUMA BW"][1][0] = NO_BANDWIDTH
HALF_STATED = amd_text(HALF)

USUAL: dict[str, dict[str, Any]] = {
    "nvidia_smi": {"gpu": "v100"},
    "bandwidths": {},
    "topology_tables": {"pcie_bandwidth": 24, "gpu": "mi100"},
    "link_counts": {"gpu": "mi250"},
    "amd_smi": {},
}
# Output of each tool, options other than those in `USUAL`, and part of the message.
REFUSED: dict[str, list[tuple[Any, ...]]] = {
    "nvidia_smi": [
        (DGX1.replace("NV2", "NV1", 1), "line 5: cell GPU3-GPU0 is 'NV2'; expected 'NV1' of cell GPU0-GPU3 on line 2"),
        (DGX1.replace(" X ", "SYS", 1), "line 2: cell GPU0-GPU0 is 'SYS'; expected X"),
        (DGX1.replace("NV1", "X", 1), "line 2: cell GPU0-GPU1 is 'X'; expected a kind of connection"),
        (DGX1.replace("NV1", "OK", 1), "line 2: cell GPU0-GPU1 is 'OK'; expected X, NV#"),
        (DGX1.replace("NV1", "NV0"), "line 3: cell GPU1-GPU0 is 'NV0'; expected NV1 to NV999"),
        (DGX1[: DGX1.index("\nGPU6")] + LEGEND, "a column 'GPU6', but no row of that name below"),
        (DGX1[: len(DGX1) // 3], "line 4: row GPU2 has 3 cells; expected 8, one for each column: is the"),
        (DGX1.replace("GPU5\t", "GPU4\t"), "two columns are called 'GPU4'"),
        (DGX1.replace(" X \tNV1", " X \tNV1\tNV1", 1), "line 2: row GPU0 has more than 8 cells"),
        (table(["PIX SYS", "PIX"]), {"pcie_bandwidth": 1}, "line 4: cell GPU2-GPU0 is 'SYS'; expected a nearer class"),
        (NIC_LINKS, "line 4: cell NIC0-GPU0 is 'NV1'; expected a path over PCIe"),
        (table(all_pairs("NV18", 8)), {"gpu": "a100"}, "line 2: gpu0 would have 126 links to others, but a100 has 12"),
        (DGX1, {"gpu": "p100"}, "gpu0 would have 6 links to others, but p100 has 4; is it another GPU"),
        (DGX1, {}, "say which GPU it is (gpu), one of p100, v100, rtx8000, a100, a800, a30, a40, h100"),
        (table(["PHB"]), {}, "the PCIe bandwidth is unknown; give it in GB/s (pcie_band"),
    ],
    "bandwidths": [
        (node_bandwidths(NO_LINKS), "every pair has 0-0, which newer drivers print whatever the links are"),
        (NOT_JOINED, "xGMI does not join all of its GPUs, and it says nothing about PCIe; use the output of `rocm-smi"),
        (RATES.replace("50000-200000", "50000-120000"), "line 5: cell GPU1-GPU0 is '50000-12"),
        (RATES.replace("50000-100000", "50000-50000", 1), "line 10: cell GPU6-GPU0 is '50000-100"),
        (RATES.replace("mps", "kbps"), "line 12: units are 'kbps'; expected mps, which is MB/s"),
        (RATES.replace("N/A", "50000-50000", 1), "line 4: cell GPU0-GPU0 is '50000-50000'; expec"),
        (RATES, {"gpu": "mi100"}, "gpu0 would have 7 links to others, but mi100 has 3"),
        (node_bandwidths(MESH), {"figures": "nccl"}, "the bandwidth that RCCL plans with for an xGMI link; say which"),
    ],
    "topology_tables": [
        (TWO_HIVES, {"pcie_bandwidth": 24}, "states neither the speed of xGMI links nor their number per pair; say wh"),
        (TWO_HIVES, {"pcie_bandwidth": 24, "gpu": "mi250"}, "pairs of mi250 have one to four links, and it does not s"),
        (TWO_HIVES.replace("Link Type between", "X"), "there is no table 'Link Type between two GPUs'"),
        (TWO_HIVES.replace("Weight between", "X"), "no table of weights, which identifies direct links"),
        (TWO_HIVES.replace("XGMI", "PCIE", 1), "expected 'PCIE' of cell GPU0-GPU1 on line 27"),
        (TWO_HIVES.replace("XGMI", "0"), "line 27: cell GPU0-GPU1 is '0'; expected XGMI or PCIE"),
        (TWO_HIVES + "GPU[0] : (Topology) Numa Node: 0\nGPU[0] : (Topology) Numa Node: 1\n", "GPU0 is on two NUMA nod"),
        (TWO_HIVES.replace("\nGPU7\t72", "\nGPU8\t72", 1).replace("GPU7", "GPU8", 1), "its tables of weights and of l"),
        (TWO_HIVES.replace("\t72\n", "\t72\t72\n", 1), "line 5: row GPU0 goes on with '72' after its 8 cells"),
        (rocm_topology([[int(a != b) * 15 for b in range(8)] for a in range(8)]), "gpu0 would have 7 links"),
    ],
    "link_counts": [
        (SYSFS.replace("04", "03", 1), "line 2: cell GPU1-GPU0 is '04'; expected '03'"),
        (SYSFS.replace("00", "01", 1), "line 1: cell GPU0-GPU0 is '01'; expected 00"),
        ("00 00\n00 00\n", "xGMI does not join all of its GPUs"),
        ("00 ff\nff 00\n", "gpu0 would have 255 links to others, but mi250 has 8"),
        (SYSFS, {}, "does not state the speed of an xGMI link; say which GPU it is"),
    ],
    "amd_smi": [
        (BARE, "states neither the speed of xGMI links nor their number per pair; say which GPU it is (gpu)"),
        (WHOLE.replace("LINK TYPE", "KIND"), "there is no table of link types; expected all that `amd-smi"),
        (WHOLE.replace("XGMI", "PCIE"), "0000:1c:00.0 is 'PCIE'; expected XGMI, as it has a bandwidth"),
        (WHOLE.replace("XGMI", "UNKNOWN"), "is 'UNKNOWN'; expected XGMI or PCIE"),
        (WHOLE.replace("50000-50000", "50000-75000", 1), "-0000:0c:00.0 is '50000-50000'; expected"),
        (WHOLE.replace("0000:0c:00.0", "0000:0d:00.0", 2), "tables of WEIGHT and of link types are of different GP"),
        (amd_text({"LINK TYPE": cells(MESH)["LINK TYPE"]}), {"gpu": "mi300x"}, "no table of weights, which identifies"),
        (WHOLE.replace("15", "16", 1), "-0000:0c:00.0 is '15'; expected '16'"),
        ("WEIGHT TABLE:\n", "line 1: no line that names two GPUs or more follows the title 'WEIGHT TABLE:'; is it"),
        (HALF_STATED, "0000:0c:00.0-0000:1c:00.0 is 'XGMI'; expected a bandwidth of it"),
        ('[{"link_type": ', "is not valid JSON at line 1, column 16 (Expecting value); is it cut short"),
        ('[{"gpu": 0, "link_type": {}}]', "it lists 1 GPUs; expected 2 to 512"),
        ('[{"gpu": -1, "link_type": {}}, {"gpu": 0}]', "a GPU has the number -1; expected a whole number from 0"),
        ('[{"gpu": 0, "link_type": {}}, {"gpu": 0}]', "two of its GPUs have the same number"),
        ('[{"gpu": 0, "link_type": {}}, {"gpu": 1, "link_type": 3}]', "field link_type of GPU 1 is 3; expected an obj"),
        ('[{"gpu": 0, "link_type": 1}, {"gpu": 1}]', "links of GPU 0 are None; expected an object for each GPU"),
        ('[{"gpu": 0, "links": [{"gpu": 1, "link_type": 1}, {"gpu": 1}]}, {"gpu": 1}]', "to another GPU twice"),
        ('[{"gpu": 0, "links": [1]}, {"gpu": 1, "x": "link_type", "link_type": 1}]', "links of GPU 0 are [1]; exp"),
        (JSON.replace('"XGMI"', "true"), "link_type of a pair of GPUs is True; expected XGMI or PCIE"),
        (JSON.replace('"gpu": 7, "num', '"gpu": 6, "num').replace("15", "-15"), "weight of a pair of"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "row"), [(reader, row) for reader in REFUSED for row in range(len(REFUSED[reader]))]
)
def test_output_that_makes_no_sense_is_refused(reader: str, row: int) -> None:
    """The message has the line or field, and the tool or option to use instead."""
    text, *options, message = REFUSED[reader][row]
    document = Document("output.txt", text)
    assert READERS[reader].matches(document)
    with pytest.raises(FileFormatError) as caught:
        READERS[reader].read(document, BoxOptions.of(**(options[0] if options else USUAL[reader])))
    assert message in str(caught.value)


OTHER = {
    "nvidia_smi": ["", "GPU0 GPU1", "GPU0 GPU1\nGPU0 0 15\nGPU1 15 0", "<system/>", '{"GPU0": "X"}', "GPU0 X NV1",
                   "GPU0\tX", "\0GPU0 X", "GPU" * 100_000, "GPU0 " * 100_000],
    "link_counts": ["", "00", "00 01\n01 00 00\n", "00 01\n", "00 0x\n0x 00", "zz zz\nzz zz", "0 1\n1 0"],
    "amd_smi": ["", "TABLE:", "[1, 2]", '{"link_type": 1}', "NUMA TABLE", "[" * 1000],
}  # fmt: skip


@pytest.mark.parametrize("reader", OTHER)
def test_other_text_is_left_to_other_formats(reader: str) -> None:
    """The content decides."""
    assert not any(READERS[reader].matches(Document("a", text)) for text in OTHER[reader])


DAMAGED = {
    "nvidia_smi": [DGX1, table(all_pairs("NV12", 8), HALVES), table(["PIX SYS", "SYS"])],
    "bandwidths": [node_bandwidths(FRONTIER)],
    "topology_tables": [rocm_topology(two_hives(), [0] * 4 + [1] * 4)],
    "link_counts": [SYSFS],
    "amd_smi": [amd_text(cells(FRONTIER)), new_json(cells(MESH)), old_json(cells(MESH))],
}
PIECES = ["", "0", "9", "9" * 11, "\t", "\n", "GPU0", "X", "NV", "NV999999", "SYS", "XGMI", "-", "-1", "²", "\x1b["]
PIECES += ["N/A", "00", "[", "{}", '"']


@pytest.mark.parametrize("reader", DAMAGED)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_damage_of_any_kind_gives_one_clear_error_or_a_box(reader: str, data: st.DataObject) -> None:
    """No other exception escapes from a reader."""
    text = data.draw(st.sampled_from(DAMAGED[reader]))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 30)))
        text = text[:start] + data.draw(st.sampled_from(PIECES)) + text[end:]
    document, format_ = Document("output.txt", text), READERS[reader]
    if format_.matches(document):
        gpu = "v100" if reader == "nvidia_smi" else data.draw(st.sampled_from(["mi100", "mi250", "mi300x"]))
        options = BoxOptions.of(gpu=gpu, pcie_bandwidth=data.draw(st.sampled_from([None, 32])))
        assert "\n" not in refusal(lambda: repeat_box(format_.read(document, options), 1))
