"""`collopt plan`."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

import collopt
from cli_calls import Cli, netfile, refusal, uneven_torus
from collopt.planners import load_plan
from collopt.runtime import interpret_file, read_mscclpp, read_xml
from switched_forests import switched_boxes

RING = ("ring", "--nodes", 4, "--set", "bandwidth=25", "allgather")


def left_in(folder: Path) -> list[str]:
    """Names of what is there."""
    return sorted(path.name for path in folder.iterdir())


CUBE = ("hypercube", "--set", "dimension=3", "--set", "bandwidth=25", "--set", "latency=1")
"""Each of 8 ranks has 3 links."""


def test_tells_the_steps_of_a_plan_that_has_steps(cli: Cli) -> None:
    """In place of trees; what they take is added up."""
    answer = cli("plan", *CUBE, "allgather", "--planner", "bfb", "--size", 2400)
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.splitlines() == [
        "allgather on hypercube-3, 8 ranks, by bfb, verified",
        "  algbw           85.71 GB/s (600/7)",
        "  busbw           75.00 GB/s",
        "  bound           algbw at most 85.71 GB/s (600/7)",
        "  optimality gap  0 (optimal)",
        "  steps           3 steps, 3 chunks per shard, 72 sends",
        "  busiest links   24 of 24, each in at least one step",
        "  estimate        3.03 µs for 2400 bytes (links alone), synchronous steps",
    ]
    both = cli("plan", *CUBE, "allreduce", "--planner", "bfb").out
    assert "6 steps, 3 chunks per shard, 144 sends (3 reduce-scatter, 3 allgather)" in both


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """A torus of 4 x 4 whose columns are slower and take longer to set out."""
    return netfile(tmp_path, uneven_torus())


def test_a_size_reaches_the_planner_that_takes_one(cli: Cli, uneven: Path) -> None:
    """As from Python: small data leave the slow columns out of what rows can bring."""
    words = ("plan", uneven, "allgather", "--planner", "bfb")
    made = collopt.plan(uneven_torus(), "allgather", planner="bfb", size="64K")
    answer = cli(*words, "--size", "64K", "--json").data
    assert answer["options"] == {"size": 2**16}
    assert answer["planned_for"] == "65536 bytes"
    assert (answer["estimate_us"], answer["algbw_exact"]) == (made.estimate("64K"), str(made.algbw))
    unsized = collopt.plan(uneven_torus(), "allgather", planner="bfb")
    assert unsized.estimate("64K") > 1.5 * made.estimate("64K")
    assert unsized.algbw > made.algbw
    printed = cli(*words, "--size", "64K").out
    assert "estimate        12.9 µs for 64K bytes (links alone), synchronous steps; planned for 65536 bytes" in printed


def test_auto_plans_for_a_size(cli: Cli, uneven: Path) -> None:
    """The fastest of several plans, with the costs that are named; without a size there is nothing to cost."""
    words = ("plan", uneven, "allgather", "--size", "64K", "--costs", "fused")
    data = cli(*words, "--json").data
    exact = collopt.plan(uneven_torus(), "allgather")
    assert data["planned_for"] == "65536 bytes"
    assert data["costs"] == "not calibrated"
    assert data["predicted_us"] <= exact.simulate("64K", costs="fused")
    assert "for 64K bytes (not calibrated), the fastest of" in cli(*words).out
    refused = cli("plan", uneven, "allgather", "--costs", "fused")
    assert (refused.status, "--size" in refused.err) == (2, True)


def test_says_where_an_allreduce_adds_up(cli: Cli, tmp_path: Path) -> None:
    """Only where not all ranks do alike; what is written is checked and runs."""
    plan, xml = tmp_path / "plan.json", tmp_path / "plan.xml"
    chain = ("ring", "--nodes", 4, "--without", "gpu0--gpu3", "allreduce")
    answer = cli("plan", *chain, "--planner", "strength", "-o", plan, "--xml", xml)
    assert answer.status == 0
    assert "  optimality gap  0 (optimal)\n" in answer.out
    assert " alone reduces all data\n" in answer.out
    boxes = cli("plan", "dgx-a100", "--boxes", 2, "--ranks", "0-11", "allreduce", "--planner", "strength")
    assert re.search(r" of 12 ranks reduce [0-9.]+ % \(1/", boxes.out)
    many = cli("plan", "mi250", "--boxes", 2, "allreduce", "--planner", "strength")
    assert " distinct trees, by the root's share of the data\n" in many.out
    assert re.search(r"^  trees +(\d+) distinct \(\d+ reduce trees, \d+ broadcast trees\), ", many.out, re.MULTILINE)
    assert "  roots" not in cli("plan", "ring", "--nodes", 4, "allreduce", "--planner", "forestcoll").out
    assert "per unit of each root's share of the data" in cli("verify", plan).out
    interpret_file(xml)
    for command in ("verify", "run"):
        assert refusal(cli(command, xml)).startswith(f"{xml} is MSCCL XML, not a collopt plan; ")
    assert cli("run", plan, "--elements", 1001, "--repeats", 1, "--json").data["correct"] is True


def test_writes_msccl_xml_as_asked(cli: Cli, tmp_path: Path) -> None:
    """Every option reaches the exporter."""
    path = tmp_path / "ring.xml"
    answer = cli("plan", *RING, "--xml", path, "--runtime", "rccl", "--channels", 2, "--protocol", "LL128",
        "--min-bytes", 4096, "--max-bytes", 8192, "--max-thread-blocks", 32,
    )  # fmt: skip
    assert (answer.status, answer.err) == (0, f"wrote {path}\n")
    interpret_file(path)
    assert read_xml(path).num_channels == 2
    header = path.read_text(encoding="utf-8").splitlines()[0]
    assert 'proto="LL128"' in header
    assert '"4096"' in header
    assert '"8192"' in header


def test_writes_code_that_registers_the_plan(cli: Cli, tmp_path: Path) -> None:
    """By its path from the code; without a plan there is nothing to register."""
    path, code = tmp_path / "plans" / "plan.json", tmp_path / "register.py"
    path.parent.mkdir()
    answer = cli("plan", *RING, "--mscclpp", path, "--register", code)
    assert (answer.status, f"wrote {code}" in answer.err) == (0, True)
    assert "'plans/plan.json'" in code.read_text()
    assert "give --mscclpp FILE too" in refusal(cli("plan", *RING, "--register", code))


def test_says_what_becomes_of_switches(cli: Cli, tmp_path: Path) -> None:
    """On standard error, also when a plan is exported later; XML, and the plan with it, does without."""
    network, path, plan = netfile(tmp_path, switched_boxes(2, 3)), tmp_path / "a.json", tmp_path / "plan.json"
    words = ("plan", network, "allreduce", "--planner", "steiner")
    answer = cli(*words, "-o", plan, "--mscclpp", path)
    assert answer.status == 0
    assert "collopt: note: the file stores to switches" in answer.err
    assert "collopt: note: ranks add up what switches add up in the plan" in answer.err
    options = "--format", "mscclpp-json", "-o", path, "--set", "version=0.9.0"
    answer = cli("export", plan, *options)
    assert "collopt: note: ranks send each copy that switches make in the plan" in answer.err
    answer = cli(*words, "-o", plan, "--xml", tmp_path / "a.xml")
    assert "collopt: warning: the plan's trees branch at switches, which MSCCL XML has no operations" in answer.err
    assert "in-network      no switch copies or adds" in answer.out
    assert not any(len(forest.switches) for forest in load_plan(plan).trees.forests)


@pytest.mark.parametrize(("options", "place"), [([], "out-of"), (["--in-place"], "in")])
def test_calls_in_place_have_files_of_their_own(cli: Cli, tmp_path: Path, options: list[str], place: str) -> None:
    """And what was written says for which calls it is."""
    xml, path = tmp_path / "plan.xml", tmp_path / "plan.json"
    answer = cli("plan", *RING, "--mscclpp", path, "--xml", xml, *options)
    assert answer.status == 0
    assert answer.err.endswith(f"wrote {path}, for {place}-place calls\n")
    assert (f"wrote {xml}, for in-place calls\n" in answer.err) == bool(options)
    assert read_mscclpp(path).in_place == read_xml(xml).in_place == bool(options)


def test_a_refused_xml_leaves_the_plan_alone(cli: Cli, tmp_path: Path) -> None:
    """It may have taken an hour, and has all that another try of the XML needs; it is told."""
    plan, xml = tmp_path / "plan.json", tmp_path / "ring.xml"
    answer = cli("plan", *RING, "-o", plan, "--xml", xml, "--max-thread-blocks", 1)
    assert (answer.status, answer.out) == (2, "")
    assert "thread blocks" in answer.err
    assert f"wrote {plan}\n" in answer.err
    assert left_in(tmp_path) == ["plan.json"]
    load_plan(plan).verify()


@pytest.mark.parametrize("before", [0, 1, 2, 3])
def test_on_a_full_disk_a_plan_and_its_files_are_written_together(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """None of four, whichever does not fit, and the old ones stay."""
    names = {"-o": "x", "--xml": "y", "--mscclpp": "z", "--register": "code.py"}
    files = {flag: tmp_path / name for flag, name in names.items()}
    files["-o"].write_text("old")
    synced = []
    sync = os.fsync

    def fill(handle: int) -> None:
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(tmp_path):
            synced.append(handle)
            if len(synced) > before:
                raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", fill)
    options = [word for flag, path in files.items() for word in (flag, path)]
    answer = cli("plan", "ring", "--nodes", "4", "allgather", *options)
    name = [*files.values()][before]
    assert answer.status == 2
    assert answer.err == f"collopt: error: {name} cannot be written: No space left on device\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert files["-o"].read_text() == "old"
