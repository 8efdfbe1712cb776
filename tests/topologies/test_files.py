"""Topology files: faithful when written by us, clearly refused when damaged."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError, UnsupportedError
from collopt.support.files import write_all_whole, write_whole
from collopt.topologies import Topology, dgx_h100, mi250, read_topology, ring, write_topology
from collopt.topologies.network.topology_json import topology_from_json, topology_to_json
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies

DATA = Path(__file__).parents[1] / "data"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "topology-json.md"
PAIR = Topology.from_links(
    [("a", "s", "65/3", "0.7"), ("s", "b", 2)], compute=["a", "b"], switches=["s"], bidirectional=True, multicast=["s"]
)
SAME_FILE = settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])


def changed(**fields: Any) -> dict[str, Any]:
    """Describe `PAIR` with some fields replaced; `...` removes one."""
    document = topology_to_json(PAIR) | fields
    return {key: value for key, value in document.items() if value is not ...}


def with_link(*row: Any) -> dict[str, Any]:
    """Describe `PAIR` with one more row of links."""
    return changed(links=[*topology_to_json(PAIR)["links"], list(row)])


@pytest.mark.parametrize("topology", [PAIR, ring(3), dgx_h100(2), mi250(2), PAIR.scaled("1/7")], ids=lambda t: t.name)
def test_a_written_topology_is_read_back_equal(topology: Topology, tmp_path: Path) -> None:
    """A file keeps the order of links and the name."""
    path = tmp_path / "net.json"
    write_topology(topology, path)
    back = read_topology(str(path))
    assert back == topology
    assert back.name == topology.name
    assert back.digest == topology.digest
    json.loads(path.read_text(encoding="utf-8"))


@settings(max_examples=examples(60))
@given(
    eulerian_topologies() | switch_free_topologies(),
    st.integers(1, 9),
    st.text(st.characters(categories=["L"]), max_size=9),
)
def test_any_topology_survives_the_document(topology: Topology, divisor: int, name: str) -> None:
    """Through JSON text and back, whatever its fractions and name."""
    original = dataclasses.replace(topology.scaled(Fraction(1, divisor)), name=name)
    document = json.loads(json.dumps(topology_to_json(original)))
    back = topology_from_json(document, "document")
    assert back == original
    assert back.name == name


@pytest.mark.parametrize("written", ["12.5", '"12.5"', '"25/2"', "125e-1"])
def test_every_spelling_of_a_number_means_what_it_says(written: str, tmp_path: Path) -> None:
    """Decimals are read by their digits, not through binary floats."""
    path = tmp_path / "net.json"
    text = json.dumps(changed()).replace('"65/3"', written)
    path.write_text(text, encoding="utf-8")
    assert read_topology(path).link("a", "s").bandwidth == Fraction(25, 2)


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.name)
def test_sample_files_are_read(path: Path) -> None:
    """Handwritten files are read, and balanced at every node."""
    topology = read_topology(path)
    assert all(topology.ingress(node) == topology.egress(node) for node in topology.nodes)


def test_sample_files_say_what_they_mean() -> None:
    """Integer names, decimals, fractions and abilities keep their meaning."""
    boxes, derated = read_topology(DATA / "two-boxes.json"), read_topology(DATA / "derated-ring.json")
    assert boxes.compute_nodes == ("0", "1", "2", "3")
    assert boxes.ingress("3") == Fraction(625, 2)
    assert boxes.multicast == boxes.aggregation == {"left"}
    assert derated.digest == ring(4, bandwidth=25, latency="0.7").derate("gpu0", "gpu1", "1/3").digest


def test_the_example_of_the_reference_page_is_read(tmp_path: Path) -> None:
    """The page shows a file that works, and an error message that occurs."""
    page = PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "net.json"
    path.write_text(example, encoding="utf-8")
    topology = read_topology(path)
    assert topology.num_ranks == 4
    assert topology.ingress("b1") == 300 + Fraction(25, 6)
    path.write_text(example.replace('["a0", "a-switch", 300', '["a0", "a-switch", 0'), encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        read_topology(path)
    assert f"    {caught.value}\n".replace(str(path), "net.json") in page


def test_the_reference_page_names_every_field() -> None:
    """The page has a row for each field of a document."""
    page = PAGE.read_text(encoding="utf-8")
    document = topology_to_json(PAIR)
    for field in [*document, *(f"switches[].{key}" for key in document["switches"][0])]:
        assert f"| `{field}` |" in page


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed(compute=...), "field compute is missing"),
        (changed(extra=1), "field extra is not part of this format; remove it"),
        (changed(switches=[{"name": "s", "speed": 1}]), r"field switches\[0\].speed is not part of this format"),
        (changed(switches=[{"name": "s", "multicast": 1}]), r"field switches\[0\].multicast is 1; .*boolean"),
        (changed(compute="ab"), "field compute is 'ab'; it should be a valid list"),
        (changed(compute=["a", None]), r"field compute\[1\]: node name None is not usable"),
        (changed(compute=["a", "b", "b"]), "compute node 'b' is listed twice"),
        (changed(name="\x00"), "the topology's name is"),
        (with_link("a", "b", 1), r"field links\[4\]: is .* expected \[tail, head, bandwidth, latency\]"),
        (with_link("a", "b", 0, 0), r"field links\[4\]: bandwidth of link \('a', 'b'\) is 0"),
        (with_link("a", "b", "1e9999999", 0), "is '1e9999999'"),
        (with_link("a", "b", 1, -1), "latency"),
        (with_link("a", "a", 1, 0), "self-loop"),
        (changed(format="other"), "is of format 'other'; expected format 'collopt-topology'"),
        (changed(version=3), "net.json is version 3; this release reads versions 1 to 2: upgrade collopt"),
        (None, "expected a JSON object"),
    ],
)
def test_a_document_that_makes_no_sense_is_refused(document: Any, message: str) -> None:
    """The message starts with the document and names the field."""
    with pytest.raises(FileFormatError, match=message) as caught:
        topology_from_json(document, "net.json")
    assert "net.json" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    """A file cut short at any byte never passes for a smaller network."""
    path = tmp_path / "net.json"
    write_topology(PAIR, path)
    content = path.read_bytes()
    for length in range(len(content.rstrip())):
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError, match=re.escape(str(path))):
            read_topology(path)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["a", "b", "s", "1/3"]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["name", "links", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@SAME_FILE
@given(fields=st.dictionaries(st.sampled_from([*topology_to_json(PAIR), "other"]), VALUES, max_size=3))
def test_arbitrary_fields_give_a_topology_or_our_own_error(fields: dict[str, Any], tmp_path: Path) -> None:
    """Near misses of a valid file, written as JSON (NaN and Infinity included)."""
    path = tmp_path / "net.json"
    path.write_text(json.dumps(changed(**fields)), encoding="utf-8")
    problem = ""
    try:
        assert read_topology(path).num_ranks >= 2
    except FileFormatError as error:
        problem = str(error)
    assert "\n" not in problem


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If writing fails, the old content stays and no temporary file is left."""
    path = tmp_path / "net.json"
    write_topology(ring(3), path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_topology(ring(4), path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    write_topology(ring(4), path)
    assert read_topology(path).num_ranks == 4


def test_written_files_have_the_usual_permissions(tmp_path: Path) -> None:
    """A file has the permissions of any new file, not those of temporary ones."""
    ours, usual = tmp_path / "ours", tmp_path / "usual"
    write_whole(ours, "text\n")
    usual.write_text("text\n", encoding="utf-8")
    assert ours.read_bytes() == usual.read_bytes()
    assert ours.stat().st_mode == usual.stat().st_mode


def test_several_files_are_written_together(tmp_path: Path) -> None:
    """New ones and those that were there, text and bytes, with nothing beside them."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "link").symlink_to("target")
    write_all_whole({tmp_path / "a": "new a", str(tmp_path / "b"): b"new b", str(tmp_path / "link"): "new link"})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a": "new a",
        "b": "new b",
        "link": "new link",
        "target": "new link",
    }
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("spoiled", ["folder", "pipe", "no folder", "disk full", "same"])
def test_of_several_files_all_or_none_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: str
) -> None:
    """Whichever of them cannot be written, what was there stays."""
    (tmp_path / "a").write_text("old a")
    (tmp_path / "c").write_text("old c")
    names = ["a", "b", "c", "d"]
    if spoiled == "folder":
        (tmp_path / "d").mkdir()
    elif spoiled == "pipe":
        os.mkfifo(tmp_path / "d")
    elif spoiled == "no folder":
        names[3] = "none/d"
    elif spoiled == "same":
        (tmp_path / "d").symlink_to("b")
    before = sorted(path.name for path in tmp_path.iterdir())
    calls: list[Path] = []
    sync = os.fsync

    def fail_third(handle: int) -> None:
        calls.append(Path())
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    if spoiled == "disk full":
        monkeypatch.setattr("os.fsync", fail_third)
    with pytest.raises((OSError, UnsupportedError)) as caught:
        write_all_whole({str(tmp_path / name): "new" for name in names})
    assert ".tmp" not in str(caught.value)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert ((tmp_path / "a").read_text(), (tmp_path / "c").read_text()) == ("old a", "old c")
