"""Networks as they are typed, what failures leave of them, and `collopt topologies`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cli_calls import Cli, netfile
from collopt.cli.terminal.networks import find_network
from collopt.cli.terminal.parameters import NetworkOptions
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


@pytest.mark.parametrize("path", ["net.json", "./net", "net", "folder/net"])
def test_a_path_is_told_by_its_look_or_by_being_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A separator, the ending `.json` or an existing file makes a path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    netfile(tmp_path).rename(path)
    assert find_network(path, NetworkOptions()) == ring(4, bandwidth=25)


def test_a_catalogue_name_comes_before_a_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says how to mean the file."""
    monkeypatch.chdir(tmp_path)
    netfile(tmp_path).rename("mi250")
    answer = cli("bound", "mi250", "allgather", "--json")
    assert answer.data["num_ranks"] == 16
    assert answer.err == "collopt: note: using mi250 from the catalogue; write ./mi250 for the file of that name\n"
    answer = cli("bound", "./mi250", "allgather", "--json")
    assert (answer.data["num_ranks"], answer.err) == (4, "")


def test_the_list_names_every_topology_and_its_options(cli: Cli) -> None:
    """The list has one line for each topology."""
    answer = cli("topologies")
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


def test_a_failed_nic_is_planned_around_and_the_loss_is_told(cli: Cli) -> None:
    """The loss is the share of the intact network's bound."""
    answer = cli("plan", "dgx-a100", "--boxes", "2", "allgather", "--without", "box1/nic3", "--json")
    assert answer.status == 0
    assert answer.data["optimal"]
    assert answer.data["num_ranks"] == 16
    assert answer.data["intact_algbw"] == pytest.approx(346.67, abs=0.01)
    assert answer.data["loss"] == pytest.approx(1 - answer.data["algbw"] / answer.data["intact_algbw"])
    assert answer.data["loss"] > 0


@pytest.mark.parametrize("link", ["gpu0--gpu1", "gpu1--gpu0"])
def test_a_failed_link_is_gone_in_both_directions(cli: Cli, link: str) -> None:
    """A ring without a link is a chain, whose ends have half the bandwidth."""
    answer = cli("bound", "ring", "--nodes", "4", "allgather", "--without", link, "--json")
    assert answer.data["inverse_rate"] == "3"


def test_an_interrupt_while_the_program_is_imported_ends_it_quietly() -> None:
    """An interrupt during imports ends in status 130 without a word."""
    code = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from collopt.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")
