"""The tables of ``amd-smi topology``, as text and as JSON."""

from __future__ import annotations

import json
import re
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError
from collopt.topologies import mi300x
from collopt.topologies.importing.amd_smi import matches_amd_smi, read_amd_smi
from collopt.topologies.importing.documents import Document, read_document
from collopt.topologies.importing.options import BoxOptions
from collopt.topologies.switched.scale_out import Box, repeat_box
from sample_files import sample
from sample_sizes import examples
from vendor_tables import FRONTIER, refusal, square

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


def read(content: str, **options: str | int) -> Box:
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
    assert repeat_box(read(content, gpu="mi300x"), 1).digest == mi300x().digest


@pytest.mark.parametrize("write", WRITERS)
def test_links_are_counted_by_the_quotient_of_the_bandwidths(write: object) -> None:
    """As in the table of rocm-smi."""
    box = read(write(cells(FRONTIER)), gpu="mi250", figures="nccl")  # type: ignore[operator]
    assert bandwidths(box) == {
        (f"gpu{a}", f"gpu{b}"): 36 * Fraction(FRONTIER[a][b]) for b in range(8) for a in range(b) if FRONTIER[a][b]
    }


def test_pairs_that_xgmi_does_not_join_are_joined_by_pcie() -> None:
    """Two GPUs each on two CPUs, by weight."""
    counts = ((0, 1, 0, 0), (1, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 0))
    box = read(text(cells(counts)), gpu="mi100", pcie_bandwidth=24)
    assert bandwidths(box)["gpu0", "gpu1"] == Fraction(46)
    assert repeat_box(box, 1).num_ranks == 4


def test_without_weights_all_gpus_are_on_one_cpu() -> None:
    """And the box says so."""
    tables = cells(((0, 0), (0, 0)))
    del tables["WEIGHT"]
    box = read(text(tables), pcie_bandwidth=24)
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
        read(content, **({} if gpu is None else {"gpu": gpu}))


def test_a_direct_link_without_the_bandwidth_that_others_have_is_refused() -> None:
    """The weight says direct, the bandwidth says not."""
    tables = cells(MESH)
    tables["NUMA BW"][0][1] = tables["NUMA BW"][1][0] = NO_BANDWIDTH
    with pytest.raises(FileFormatError, match=r"0000:0c:00.0-0000:1c:00.0 is XGMI of weight 15, but has no bandwidth"):
        read(text(tables))


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
        read(content)


@pytest.mark.parametrize("content", ["", "TABLE:", "[1, 2]", '{"link_type": 1}', "NUMA TABLE", "[" * 1000])
def test_what_is_of_another_tool_does_not_match(content: str) -> None:
    """So that another format is tried."""
    assert not matches_amd_smi(Document("a", content))


@pytest.mark.parametrize("whole", [text(cells(FRONTIER)), new_json(cells(MESH)), old_json(cells(MESH))])
@settings(max_examples=examples(100))
@given(data=st.data())
def test_damage_of_any_kind_gives_one_clear_error_or_a_box(whole: str, data: st.DataObject) -> None:
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
