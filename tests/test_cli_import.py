"""``collopt import``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_calls import call, refusal
from collopt import read_topology
from collopt.topologies import compose, read_box, ring, write_topology

PROFILE = {"name": "lab_1MB", "gpus_per_node": 4, "nics_per_node": 2, "alpha": 1, "node_betas_list": [20]}
REMOTE = {"remote_alpha": 2, "remote_beta": 80, "remote_invbw": 82}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of TACCL, whose name says nothing."""
    path = tmp_path / "lab"
    path.write_text(json.dumps(PROFILE | REMOTE), encoding="utf-8")
    return path


def test_it_says_what_was_understood(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    """Nodes, and links by class; notes go to standard error."""
    answer = call(capsys, "import", profile, "--fabric", "rail", "--boxes", "2")
    assert answer.status == 0
    assert "8: box0/gpu0..3, box1/gpu0..3" in answer.out
    assert "16 x gpu-nvswitch" in answer.out
    assert "50.00 GB/s" in answer.out
    assert "note: bandwidths are" in answer.err


def test_it_writes_a_topology_file(capsys: pytest.CaptureFixture[str], profile: Path, tmp_path: Path) -> None:
    """Which reads back as the network that the same options make."""
    target = tmp_path / "cluster.json"
    options = ("--fabric", "leaf_spine", "--boxes", "3", "--set", "boxes_per_leaf=2", "--set", "nic_bandwidth=25")
    answer = call(capsys, "import", profile, *options, "-o", target)
    assert (answer.status, answer.err.splitlines()[-1]) == (0, f"wrote {target}")
    expected = read_topology(profile, boxes=3, fabric="leaf_spine", boxes_per_leaf=2, nic_bandwidth=25)
    assert read_topology(target) == expected


def test_several_files_are_boxes_of_different_kinds(
    capsys: pytest.CaptureFixture[str], profile: Path, tmp_path: Path
) -> None:
    """In the order given; what is said of both is said once."""
    other = tmp_path / "other"
    other.write_text(json.dumps(PROFILE | REMOTE | {"gpus_per_node": 2, "name": "small_1MB"}), encoding="utf-8")
    target = tmp_path / "cluster.json"
    answer = call(capsys, "import", profile, other, profile, "--fabric", "rail", "-o", target)
    assert answer.status == 0
    assert f", from {profile}, {other}\n" in answer.out
    assert answer.err.count("note: bandwidths are TACCL's") == 1
    assert f"{profile}: " not in answer.err
    boxes = [read_box(path) for path in (profile, other, profile)]
    assert read_topology(target) == compose(boxes, fabric="rail")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "the files say nothing about the network between boxes; give --fabric, one of full, rail, leaf_spine"),
        (("--fabric", "rail", "--boxes", "2"), "--boxes does not go with several files, which describe one box each"),
        (("--fabric", "mesh"), "--fabric is 'mesh'"),
        (("--fabric", "rail", "--set", "speed=3"), "there is no option 'speed'"),
    ],
)
def test_what_does_not_go_with_several_files_is_refused(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str], profile: Path
) -> None:
    """As it is typed."""
    assert message in refusal(call(capsys, "import", profile, profile, *options))


def test_a_whole_network_is_no_box(capsys: pytest.CaptureFixture[str], profile: Path, tmp_path: Path) -> None:
    """Nor is a topology of the catalogue."""
    network = tmp_path / "ring.json"
    write_topology(ring(4), network)
    words = ("import", profile, network, "--fabric", "rail")
    assert f"{network}: it describes a whole network, not a box" in refusal(call(capsys, *words))
    assert "mi250 is a topology of the catalogue" in refusal(call(capsys, "import", profile, "mi250"))
    assert "there is no topology called 'mi25'" in refusal(call(capsys, "import", profile, "mi25"))


def test_json_has_the_same(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    """And nothing else is on standard output."""
    figures = json.loads(call(capsys, "import", profile, "--json").out)
    assert figures["ranks"] == [f"box0/gpu{gpu}" for gpu in range(4)]
    assert figures["link_classes"] == [{"name": "gpu-nvswitch", "links": 8, "bandwidth_gbps": 50.0}]


def test_cards_of_a_single_box_are_not_left_out_silently(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    """They lead nowhere; the note says how they would be used."""
    told = call(capsys, "import", profile).err
    assert "note: a single box has no network, so its network cards (2) are left out; give" in told
    assert "network cards (2)" not in call(capsys, "import", profile, "--boxes", "2", "--fabric", "full").err


def test_our_own_files_are_read_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """They say everything."""
    path = tmp_path / "ring.json"
    write_topology(ring(4, bandwidth=25), path)
    assert "8 x gpu-gpu" in call(capsys, "import", path).out
    assert refusal(call(capsys, "import", path, "--boxes", "2")).startswith("--boxes does not go with")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--boxes", "2"],
            "nothing describes the network between boxes; give --fabric, one of full, rail, leaf_spine",
        ),
        (["--fabric", "rail"], "--fabric does not go with one box, which has no network to others"),
        (["--boxes", "2", "--fabric", "full", "--set", "oversubscription=2"], "fabric 'full' is non-blocking"),
        (["--set", "gpu=h100"], "gpu does not go with a file of the format TACCL topology"),
        (["--boxes", "two"], "--boxes is 'two'; expected a whole number"),
        (["--set", "gpus=4"], "there is no option 'gpus' for a file of a network"),
        (["--set", "gpu=h1000"], "there is no GPU 'h1000' in the table of links"),
        (["--fabric", "clos", "--boxes", "2"], "--fabric is 'clos'; expected one of full, rail, leaf_spine"),
        (["--fabric", "rail", "--boxes", "2", "--set", "oversubscription=0"], "oversubscription is '0'"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    capsys: pytest.CaptureFixture[str], profile: Path, options: list[str], message: str
) -> None:
    """In one sentence, with the words that were typed."""
    assert message in refusal(call(capsys, "import", profile, *options))


def test_a_file_may_come_from_standard_input(profile: Path, tmp_path: Path) -> None:
    """From a pipe, as from another machine."""
    command = [sys.executable, "-m", "collopt", "import", "-", "-o", str(tmp_path / "lab.json")]
    done = subprocess.run(command, input=profile.read_bytes(), capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, b"lab_1MB, from standard input"), done.stderr
    assert read_topology(tmp_path / "lab.json") == read_topology(profile)


def test_names_of_the_catalogue_are_no_files(capsys: pytest.CaptureFixture[str]) -> None:
    """The message says how to name a file that is called so."""
    message = refusal(call(capsys, "import", "mi250"))
    assert message == "mi250 is a topology of the catalogue; write ./mi250 for the file of that name"


def test_a_bandwidth_may_have_a_unit_and_one_without_is_doubted(
    capsys: pytest.CaptureFixture[str], profile: Path
) -> None:
    """400 GB/s has no card; the number is kept all the same."""
    words = ("import", profile, "--boxes", "2", "--fabric", "full", "--json", "--set")
    bare, with_unit = (call(capsys, *words, f"nic_bandwidth={value}") for value in ("400", "400Gb/s"))
    rates = [{row["bandwidth_gbps"] for row in json.loads(answer.out)["link_classes"]} for answer in (bare, with_unit)]
    assert rates == [{50.0, 400.0}, {50.0}]
    assert "note: --set nic_bandwidth=400 means 400 GB/s" in bare.err
    assert "give --set nic_bandwidth=400Gb/s\n" in bare.err
    assert "no card has" not in with_unit.err
    assert "one with another unit, such as 400Gb/s" in refusal(call(capsys, *words, "nic_bandwidth=400gbps"))


def test_the_cards_of_a_fabric_of_the_catalogue_are_doubted_too(capsys: pytest.CaptureFixture[str]) -> None:
    """With the same words."""
    words = ("bound", "rail", "allgather", "--boxes", "2", "--set")
    assert "give --set nic_bandwidth=800Gb/s\n" in call(capsys, *words, "nic_bandwidth=800").err
    assert call(capsys, *words, "nic_bandwidth=100GB/s").err == ""


def test_the_file_itself_is_not_written_over(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    """As little as for any command."""
    before = profile.read_bytes()
    assert "--output" in refusal(call(capsys, "import", profile, "-o", profile))
    assert profile.read_bytes() == before


def test_rails_without_a_spine_can_be_asked_for(capsys: pytest.CaptureFixture[str], profile: Path) -> None:
    """``none`` is how to say so on a command line."""
    words = ("--fabric", "rail", "--boxes", "2", "--set", "oversubscription=none", "--json")
    switches = json.loads(call(capsys, "import", profile, *words).out)["switches"]
    assert "rail1" in switches
    assert "spine" not in switches
