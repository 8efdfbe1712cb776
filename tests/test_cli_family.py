"""`collopt family`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from cli_calls import Cli, netfile, refusal
from collopt.topologies import Topology, write_topology
from switched_forests import switched_boxes

WORDS = ("family", "dgx1-v100", "allgather", "--sizes", "1K-1M")


def test_writes_a_folder_and_says_how_to_load_it(cli: Cli, tmp_path: Path) -> None:
    """A table, the environment and the planner without a file follow the folder."""
    folder = tmp_path / "family"
    answer = cli(*WORDS, "--planners", "forestcoll,ring,bfb", "--runtime", "rccl", "-o", folder)
    assert answer.status == 0
    assert [path.name for path in sorted(folder.iterdir())] == ["00-allgather-bfb.xml", "01-allgather-forestcoll.xml"]
    lines = answer.out.splitlines()
    assert lines[0] == "allgather on dgx1-v100, 8 ranks, for rccl"
    assert lines[2].split()[:2] == ["1024", "419999"]
    assert lines[3].split()[:2] == ["420000", "1048576"]
    assert f"  environment  MSCCL_ALGO_DIR={folder}" in lines
    assert answer.err.splitlines()[-2:] == [
        f"wrote 2 files to {folder}",
        "collopt: note: ring has no file, as it is not the fastest for any size",
    ]
    assert cli("lint", folder, "--runtime", "rccl").status == 0


def test_a_folder_is_all_that_has_to_be_named(cli: Cli, tmp_path: Path) -> None:
    """`auto` plans for 1K to 1G by default."""
    assert "the path is ''; expected the path" in refusal(cli(*WORDS, "--planners", "auto", "-o", ""))
    files = cli("family", "dgx1-v100", "allgather", "-o", tmp_path, "--json").data["files"]
    assert (files[0]["min_bytes"], files[-1]["max_bytes"]) == (2**10, 2**30)


def test_json_has_every_file(cli: Cli, tmp_path: Path) -> None:
    """JSON lists MSCCL++ plans by size for their runtime."""
    answer = cli(*WORDS, "--planners", "forestcoll,bfb", "--runtime", "mscclpp", "-o", tmp_path, "--json")
    files = answer.data["files"]
    assert {Path(each["file"]).suffix for each in files} == {".json"}
    assert len(files) > 1
    assert all(small["us_at_max"] <= large["us_at_max"] for small, large in pairwise(files))
    assert answer.data["environment"] == {}


def test_says_how_mscclpp_loads_the_folder(cli: Cli, tmp_path: Path) -> None:
    """Every line of loading has a text, the same as the lint of a file gives."""
    folder = tmp_path / "family"
    answer = cli(*WORDS, "--planners", "ring", "--runtime", "mscclpp", "-o", folder)
    lines = [line for line in answer.out.splitlines() if line.startswith("  loading")]
    linted = cli("lint", next(folder.iterdir()), "--runtime", "mscclpp").out
    assert len(lines) == 3
    assert all(line in linted.splitlines() for line in lines)


def test_a_planner_that_plans_for_a_size_is_asked_for_several(cli: Cli, tmp_path: Path) -> None:
    """Where links differ in latency, few steps and much bandwidth are two plans of one planner."""
    links = [("a", "b", 10, 1), ("a", "c", 5, 0), ("b", "d", 10, 1), ("c", "d", 5, 0), ("b", "c", 10, 1)]
    square = Topology.from_links(links, compute="abcd", bidirectional=True, name="square")
    write_topology(square, tmp_path / "square.json")
    words = ("family", tmp_path / "square.json", "allgather", "--sizes", "1K-1G", "--planners", "bfb")
    answer = cli(*words, "-o", tmp_path / "family", "--json")
    files = answer.data["files"]
    assert {each["planner"] for each in files} == {"bfb"}
    assert len(files) > 1
    assert files[0]["algbw"] < files[-1]["algbw"]


def test_switches_copy_and_add_where_the_runtime_can_ask_them_to(cli: Cli, tmp_path: Path) -> None:
    """Plans for MSCCL XML use no switch that copies or adds, and notes say so."""
    for boxes, rates in {1: {"msccl": 267, "mscclpp": 400}, 2: {"msccl": 200, "mscclpp": 200}}.items():
        network = netfile(tmp_path, switched_boxes(boxes, 4))
        words = ("family", network, "allreduce", "--sizes", "1M-1G", "--planners", "forestcoll")
        found = {
            runtime: cli(*words, "--runtime", runtime, "-o", tmp_path / f"{runtime}{boxes}", "--json")
            for runtime in ("msccl", "mscclpp")
        }
        assert {runtime: round(answer.data["files"][0]["algbw"]) for runtime, answer in found.items()} == rates
        assert "collopt: note: no switch copies or adds in MSCCL XML\n" in found["msccl"].err
        assert ("collopt: note: ranks add up what switches add up" in found["mscclpp"].err) == (boxes > 1)


def test_writes_code_that_registers_the_files(cli: Cli, tmp_path: Path) -> None:
    """Code registers MSCCL++ files by their paths from it."""
    code = tmp_path / "register.py"
    words = (*WORDS, "--planners", "forestcoll", "-o", tmp_path / "family", "--register", code)
    assert "give --runtime mscclpp too" in refusal(cli(*words))
    answer = cli(*words, "--runtime", "mscclpp")
    assert (answer.status, f"wrote {code}" in answer.err) == (0, True)
    assert "'family/00-allgather-forestcoll.json'" in code.read_text()
