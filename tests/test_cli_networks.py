"""What a person may type for TOPOLOGY, and `collopt topologies`, which says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_calls import call, netfile, refusal
from collopt.cli.terminal.networks import find_network, flag_of
from collopt.cli.terminal.options import NetworkOptions
from collopt.topologies import Topology, catalogue, fat_tree, mi250, rail, ring, torus


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("mi250", NetworkOptions(boxes="2"), mi250(boxes=2)),
        ("ring", NetworkOptions(nodes="5", settings=["bandwidth=12.5", "bidirectional=no"]),
         ring(5, bandwidth="12.5", bidirectional=False)),
        ("torus", NetworkOptions(shape="4x3"), torus(4, 3)),
        ("torus", NetworkOptions(settings=["shape=4,3"]), torus(4, 3)),
        ("fat-tree", NetworkOptions(settings=["k=4"]), fat_tree(4)),
        ("fat_tree", NetworkOptions(settings=["k=4", "latency = 1/3"]), fat_tree(4, latency="1/3")),
        ("rail", NetworkOptions(boxes="2", settings=["gpus-per-box=4", "oversubscription=none"]),
         rail(2, 4, oversubscription=None)),
        ("ring", NetworkOptions(nodes="6", ranks="5,0-1, gpu3"),
         ring(6).restrict([5, 0, 1, "gpu3"])),
    ],
)  # fmt: skip
def test_names_with_options(name: str, options: NetworkOptions, expected: Topology) -> None:
    """Each option reaches the builder, whichever way it is typed."""
    assert find_network(name, options) == expected


def test_options_may_stand_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    """Before, between and after the other words."""
    words = [
        ["--boxes", "2", "--json", "mi250", "allgather"],
        ["mi250", "--boxes", "2", "allgather", "--json"],
        ["mi250", "allgather", "--json", "--boxes=2"],
    ]
    first, second, third = (call(capsys, "bound", *each) for each in words)
    assert first.data["inverse_rate"] == "15/166"
    assert first == second == third


@pytest.mark.parametrize("path", ["net.json", "./net", "net", "folder/net"])
def test_a_path_is_told_by_its_look_or_by_being_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A separator, the ending `.json`, or a file of that name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    netfile(tmp_path).rename(path)
    assert find_network(path, NetworkOptions()) == ring(4, bandwidth=25)


def test_a_file_takes_ranks_and_nothing_else(tmp_path: Path) -> None:
    """Other ranks of the file's network."""
    path = netfile(tmp_path)
    assert find_network(str(path), NetworkOptions(ranks="0-2")).compute_nodes == ("gpu0", "gpu1", "gpu2")


@pytest.mark.parametrize("words", [["--boxes", "2"], ["--nodes", "4"], ["--shape", "4x4"], ["--set", "bandwidth=2"]])
def test_other_options_do_not_go_with_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str]
) -> None:
    """The message names the option and the file."""
    path = netfile(tmp_path)
    message = refusal(call(capsys, "bound", path, "allgather", "--ranks", "0-2", *words))
    named = "bandwidth" if words[0] == "--set" else words[0]
    assert message == f"{named} does not go with {path}, which describes its network completely; leave it out"


def test_a_catalogue_name_comes_before_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is said, with the way to mean the file."""
    monkeypatch.chdir(tmp_path)
    netfile(tmp_path).rename("mi250")
    answer = call(capsys, "bound", "mi250", "allgather", "--json")
    assert answer.data["num_ranks"] == 16
    assert answer.err == "collopt: note: using mi250 from the catalogue; write ./mi250 for the file of that name\n"
    answer = call(capsys, "bound", "./mi250", "allgather", "--json")
    assert (answer.data["num_ranks"], answer.err) == (4, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["mi25"],
            "there is no topology called 'mi25' (did you mean mi250 or mi325x?); expected one of dgx-a100, dgx-h100",
        ),
        (["MI250"], "there is no topology called 'MI250' (did you mean mi250 or mi325x?)"),
        (["zzz"], "there is no topology called 'zzz'; expected one of dgx-a100"),
        (["zzz"], "complete, or the path of a file"),
        (["nowhere/net"], "nowhere/net does not exist; check the path"),
        (["net.json"], "net.json does not exist; check the path"),
        (["nosuch.xml"], "nosuch.xml does not exist; check the path"),
        (["mi250", "--nodes", "2"], "mi250 has no option --nodes; expected --boxes"),
        (["ring", "--nodes", "4", "--boxes", "2"], "ring has no option --boxes; expected --nodes, --set bandwidth=..."),
        (["ring", "--nodes", "4", "--shape", "2x2"], "ring has no option --shape"),
        (["ring"], "ring needs --nodes: a whole number"),
        (["torus"], "torus needs --shape: sizes such as 4x4"),
        (["torus", "--set", "dims=4x4"], "there is no option of torus called 'dims'; expected one of shape, bandwidth"),
        (["torus", "--set", "bandwidth=2"], "torus needs --shape: sizes such as 4x4"),
        (["fat-tree"], "fat-tree needs --set k=...: a whole number"),
        (
            ["dragonfly", "--set", "hosts_per_router=2"],
            "dragonfly needs --set routers_per_group=...: a whole number and --set global_links_per_router=...: a",
        ),
        (["torus", "--shape", "4x"], "--shape of torus is '4x'; expected sizes such as 4x4"),
        (["mi250", "--boxes", "two"], "--boxes of mi250 is 'two'; expected a whole number"),
        (["mi250", "--boxes", "0"], "boxes is 0; expected a whole number from 1 to 131072"),
        (["mi250", "--boxes", "-1"], "boxes is -1; expected a whole number from 1 to 131072"),
        (["mi250", "--set", "bxes=2"], "there is no option of mi250 called 'bxes' (did you mean boxes?)"),
        (["mi250", "--set", "boxes"], "--set 'boxes' is not of the form NAME=VALUE"),
        (["mi250", "--set", "=2"], "--set '=2' is not of the form NAME=VALUE"),
        (["mi250", "--boxes", "2", "--set", "boxes=2"], "option 'boxes' of mi250 is given twice; keep one"),
        (["mi250", "--set", "boxes=2", "--set", "boxes=3"], "option 'boxes' of mi250 is given twice; keep one"),
        (["mi250", "--ranks", "7-0"], "the range 7-0 of --ranks is descending; expected 0-7"),
        (["mi250", "--ranks", "0-999999999"], "rank 16 is not in mi250; expected 0..15 or a name such as"),
        (["mi250", "--ranks", "0,1,"], "rank '' is not in"),
        (["mi250", "--ranks", "0,gpu99"], "rank 'gpu99' is not in"),
        (["mi250", "--ranks", "0,1,0"], "is listed twice"),
        (["mi250", "--ranks", "3"], "a collective needs at least 2 compute nodes; the topology has 1"),
    ],
)
def test_refuses_what_makes_no_sense(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    """In one line that says what was expected."""
    monkeypatch.chdir(tmp_path)
    assert message in refusal(call(capsys, "bound", *words, "allgather"))


def test_the_list_names_every_topology_and_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    """One line each where no person looks on."""
    answer = call(capsys, "topologies")
    assert (answer.status, answer.err) == (0, "")
    header, *rows = answer.out.splitlines()
    assert header.split() == ["name", "summary", "options"]
    assert [row.split()[0] for row in rows] == [entry.name for entry in catalogue()]
    for row, entry in zip(rows, catalogue(), strict=True):
        assert entry.summary in row
        for option in entry.parameters:
            assert option.name in row
    assert any(row.endswith("  n bandwidth=1 latency=0 bidirectional=true") for row in rows)
    assert "groups=none" in answer.out


def test_json_of_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    """With kinds and defaults as JSON has them; exact numbers that are not whole are texts."""
    entries = {entry["name"]: entry for entry in call(capsys, "topologies", "--json").data}
    assert list(entries) == [entry.name for entry in catalogue()]
    options = {option["name"]: option for option in entries["dragonfly"]["options"]}
    assert options["groups"] == {
        "name": "groups", "kind": "integer", "expected": "a whole number, or none", "required": False, "default": None,
    }  # fmt: skip
    assert options["latency"]["default"] == "1/2"
    assert options["bandwidth"]["default"] == 25
    assert options["routers_per_group"]["required"] is True


def test_one_entry_says_how_its_options_are_typed(capsys: pytest.CaptureFixture[str]) -> None:
    """As `--nodes` where there is such an option, else by `--set`."""
    answer = call(capsys, "topologies", "ring")
    assert [line.split("  ")[0] for line in answer.out.splitlines()] == [
        "ring: Ring of n compute nodes.",
        "option",
        "--nodes",
        "--set bandwidth=...",
        "--set latency=...",
        "--set bidirectional=...",
    ]
    assert call(capsys, "topologies", "ring", "--json").data["name"] == "ring"


def test_an_unknown_entry_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A file has no place here."""
    message = refusal(call(capsys, "topologies", "rung"))
    assert message.startswith("there is no topology called 'rung' (did you mean ring?)")
    assert message.endswith("hypercube, complete")


def test_a_file_instead_of_an_entry(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Leads to the command for it, and not to a list of names."""
    assert refusal(call(capsys, "topologies", "nosuch.xml")) == "nosuch.xml does not exist; check the path"
    path = netfile(tmp_path)
    message = refusal(call(capsys, "topologies", path))
    assert message.startswith(f"{path} is a file, not a topology of the catalogue; collopt import {path} shows")


def test_every_option_of_the_command_line_is_of_some_topology() -> None:
    """`--boxes`, `--nodes` and `--shape` would go stale if the builders' parameters changed their names."""
    flags = {flag_of(option.name) for entry in catalogue() for option in entry.parameters}
    assert {"--boxes", "--nodes", "--shape"} <= flags
