"""Topology files and collectives that make no sense: one line, status 2, no data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli_calls import call, netfile, refusal
from collopt.topologies import Topology


def document(**fields: Any) -> str:
    """A topology file of two nodes with some fields changed."""
    pair = {
        "format": "collopt-topology",
        "version": 1,
        "name": "pair",
        "compute": ["a", "b"],
        "switches": [],
        "links": [["a", "b", 25, 0], ["b", "a", 25, 0]],
    }
    return json.dumps(pair | fields)


def with_bandwidth(text: str) -> str:
    """The same file with a bandwidth as it would be typed."""
    return document().replace("25", text, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist; check the path"),
        ("", "is empty; expected a description of a network"),
        (document()[:-9], "is not valid JSON at line 1"),
        ("<system/>", "net.json, line 1: version of <system> is ''; expected 1 (NCCL) or 2 (RCCL)"),
        ("\0\udcff", "is a binary file; expected text"),
        (document(version=3), "is version 3; this release reads versions 1 to 2: upgrade collopt"),
        (document(format="collopt-plan"), "is a collopt plan, not a network; collopt verify "),
        (document(format="nccl"), "is of format 'nccl'"),
        (document(kind="mesh"), "field kind is not part of this format; remove it"),
        (with_bandwidth("NaN"), "NaN is not a JSON number; expected a finite one"),
        (with_bandwidth('"nan"'), "bandwidth of link ('a', 'b') is 'nan'; expected a positive number of GB/s"),
        (with_bandwidth("0"), "bandwidth of link ('a', 'b') is 0; expected a positive number of GB/s"),
        (with_bandwidth("-25"), "bandwidth of link ('a', 'b') is -25; expected a positive number of GB/s"),
        (with_bandwidth("1e30"), "expected at most 1e+09 GB/s (GB/s, not bytes/s)"),
        (with_bandwidth("1e999999"), "bandwidth of link ('a', 'b') is"),
        (document(links=[["a", "a", 25, 0]]), "link ('a', 'a') is a self-loop; remove it"),
        (document(links=[["a", "c", 25, 0]]), "link ('a', 'c') names the unknown node 'c'"),
        (document(compute=["a"], switches=[{"name": "b"}]), "at least 2 compute nodes; the topology has 1"),
        (document(compute=["a", "a"]), "compute node 'a' is listed twice"),
        (document(compute="ab"), "field compute"),
    ],
)
def test_a_file_that_is_not_what_it_claims(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None, message: str
) -> None:
    """Bound and plan say the same, and name the file."""
    path = tmp_path / "net.json"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogateescape"))
    refused = refusal(call(capsys, "bound", path, "allgather", "--json"))
    assert str(path) in refused
    assert message in refused
    assert refusal(call(capsys, "plan", path, "allgather", "-o", tmp_path / "plan.json")) == refused
    assert not (tmp_path / "plan.json").exists()


def test_a_folder_is_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Said so, and not as a missing permission."""
    assert refusal(call(capsys, "bound", tmp_path, "allgather")) == f"{tmp_path} is a folder; expected a file"
    for words in (("bound", "", "allgather"), ("verify", ""), ("show", "")):
        assert refusal(call(capsys, *words)) == "the path is empty, or ., which is a folder; expected a file"


@pytest.mark.parametrize(
    ("links", "switches", "message"),
    [
        ([("a", "b", 1)], [], "there is no path from rank 'b' to rank 'a'"),
        ([("a", "b", 1), ("b", "a", 1), ("a", "s", 1), ("s", "c", 1)], ["s"], "there is no path from rank 'c'"),
        (
            [("a", "s", 2), ("b", "s", 2), ("c", "s", 2), ("s", "a", 1), ("s", "b", 1), ("s", "c", 1)],
            ["s"],
            "switch 's' has 6 GB/s ingress and 3 GB/s egress; expected equal values",
        ),
    ],
)
def test_a_network_that_cannot_be_planned_on(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    links: list[tuple[str, str, int]],
    switches: list[str],
    message: str,
) -> None:
    """Disconnected, or with a switch whose ingress and egress differ."""
    compute = sorted({node for link in links for node in link[:2]} - set(switches))
    path = netfile(tmp_path, Topology.from_links(links, compute=compute, switches=switches))
    for command in ("bound", "plan"):
        assert message in refusal(call(capsys, command, path, "allgather"))


COLLECTIVE_TAKERS = [
    ("bound", "NET", "COLLECTIVE"),
    ("plan", "NET", "COLLECTIVE"),
    ("compare", "NET", "COLLECTIVE"),
    ("show", "NET", "COLLECTIVE"),
    ("family", "NET", "COLLECTIVE", "--planners", "auto", "--sizes", "1K-1M", "-o", "family"),
    ("bench", "--topology", "NET", "--collective", "COLLECTIVE"),
]


@pytest.mark.parametrize("words", COLLECTIVE_TAKERS, ids=lambda words: words[0])
def test_an_unknown_collective(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """Everywhere with the one that was meant, or those there are, and before the network is looked at."""

    def refused(collective: str, network: str = "mi250") -> str:
        typed = {"NET": network, "COLLECTIVE": collective}
        return refusal(call(capsys, *(typed.get(word, word) for word in words)))

    known = "allgather, reduce_scatter, allreduce, broadcast, reduce, all_to_all, all_to_allv"
    assert refused("allgater") == "there is no collective 'allgater'; did you mean allgather?"
    assert refused("all_reduce", "nosuch.xml") == "there is no collective 'all_reduce'; did you mean allreduce?"
    assert refused("scan") == f"there is no collective 'scan'; expected one of {known}"


@pytest.mark.parametrize(
    "words",
    [
        ("plan", "nosuch.xml", "allgather", "--planner", "NAME"),
        ("compare", "nosuch.xml", "allgather", "--planner", "NAME"),
        ("show", "nosuch.xml", "allgather", "--figure", "trees", "--planner", "NAME"),
        ("family", "nosuch.xml", "allgather", "--planners", "auto,NAME", "--sizes", "1K-1M", "-o", "family"),
        ("bench", "--topology", "nosuch.xml", "--collective", "allgather", "--planner", "NAME"),
        ("calibrate", "nosuch.txt", "--topology", "ring", "--planner", "NAME"),
    ],
    ids=lambda words: words[0],
)
def test_an_unknown_planner(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """Likewise."""

    def refused(planner: str) -> str:
        return refusal(call(capsys, *(word.replace("NAME", planner) for word in words)))

    assert refused("forest_coll") == "there is no planner 'forest_coll'; did you mean forestcoll?"
    assert refused("oracle").startswith("there is no planner 'oracle'; expected one of auto, forestcoll, ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bound"], "Missing argument 'TOPOLOGY'; see collopt bound --help"),
        (["bound", "mi250"], "Missing argument 'COLLECTIVE'; see collopt bound --help"),
        (["bound", "mi250", "allgather", "again"], "again"),
        (["bound", "mi250", "allgather", "--boxs", "2"], "--boxs"),
        (["bond"], "No such command 'bond'"),
        (["--color"], "No such option: --color"),
    ],
)
def test_words_that_are_not_understood(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """In one line too, that leads to the help."""
    refused = refusal(call(capsys, *words))
    assert message in refused
    assert "; see collopt" in refused
    assert refused.endswith("--help")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["plan", "mi250", "allgather", "--chunks", "2.5"], "--chunks is '2.5'; expected a whole number"),
        (["plan", "mi250", "allgather", "--chunks", "1.0"], "--chunks is '1.0'; expected a whole number"),
        (
            ["plan", "mi250", "allgather", "--trees-per-root", "1_0"],
            "--trees-per-root is '1_0'; expected",
        ),
        (["plan", "mi250", "allgather", "--channels", "nan"], "--channels is 'nan'; expected a whole number"),
        (["plan", "mi250", "allgather", "--max-bytes", "9" * 19], f"--max-bytes '{'9' * 19}' is too large"),
        (["run", "plan.json", "--timeout", "1e9"], "--timeout is '1e9'; expected a number from 0.001 to 1000000"),
        (["run", "plan.json", "--timeout", "٣"], "--timeout is '٣'; expected a number from 0.001 to 1000000"),
        (["run", "plan.json", "--timeout", "nan"], "--timeout is 'nan'; expected a number from 0.001 to 1000000"),
        (["run", "plan.json", "--timeout", "soon"], "--timeout is 'soon'; expected a number from 0.001 to 1000000"),
        (
            ["run", "plan.json", "--repeats", "many"],
            "--repeats is 'many'; expected a whole number from 1 to 10",
        ),
        (["run", "plan.json", "--slices", "0"], "--slices is '0'; expected a whole number from 1 to 1000000000"),
        (["run", "plan.json", "--elements", "-1"], "--elements is '-1'; expected a whole number from 1 to 10"),
    ],
)
def test_numbers_that_are_none(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """The message names the option and repeats the value; 1.0 is no whole number here, as with --set."""
    assert message in refusal(call(capsys, *words))


def test_an_option_without_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says all there is to say."""
    assert "--boxes" in refusal(call(capsys, "bound", "mi250", "allgather", "--boxes"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bound", "ring", "--nodes", "4", "--nodes", "5", "allgather"], "--nodes is given twice; keep one"),
        (["bound", "ring", "--nodes=4", "allgather", "--nodes=4"], "--nodes is given twice; keep one"),
        (["plan", "ring", "--nodes", "4", "allgather", "-o", "a", "--output", "b"], "is given twice; keep one"),
        (["bound", "ring", "--nodes", "0", "allgather"], "--nodes is 0; expected a whole number"),
        (["plan", "ring", "--nodes", "4", "allgather", "-o", "-"], "such as ./-.json"),
    ],
)
def test_options_are_named_as_they_are_typed(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """And never half ignored."""
    assert message in refusal(call(capsys, *words))
