"""`collopt run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import collopt
from cli_calls import Cli, refusal
from collopt.runtime import RunReport
from collopt.topologies import dgx_h100, ring


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan for a ring of four."""
    path = tmp_path_factory.mktemp("plans") / "ring.json"
    collopt.plan(ring(4, bandwidth=25), "allgather").save(path)
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for execution: what it was asked, while rank 2 gets wrong data."""
    asked: list[dict[str, Any]] = []

    def run_local(program: Any, **options: Any) -> RunReport:
        asked.append(options)
        correct = (True, True, False, True)
        return RunReport(options["backend"], 4, options["elements"], options["dtype"], options["repeats"], correct, 0.5)

    monkeypatch.setattr("collopt.runtime.run_local", run_local)
    return asked


def test_runs_on_four_processes(cli: Cli, plan_file: Path) -> None:
    """Real tensors over gloo, compared with torch's own all_gather."""
    answer = cli("run", plan_file, "--backend", "gloo", "--elements", 1001, "--dtype", "int32", "--json")
    assert (answer.status, answer.err) == (0, "")
    data = answer.data
    assert (data["correct"], data["wrong_ranks"]) == (True, [])
    assert (data["backend"], data["num_ranks"], data["elements"], data["dtype"]) == ("gloo", 4, 1001, "int32")
    assert data["total_bytes"] == 4 * 1001 * 4
    assert data["busbw"] == pytest.approx(data["algbw"] * 3 / 4)


def test_wrong_data_fail_the_check(cli: Cli, plan_file: Path, calls: list[dict[str, Any]]) -> None:
    """Wrong data end in status 1 and a line on standard error, after the report."""
    answer = cli("run", plan_file)
    assert answer.status == 1
    assert answer.out.startswith("gloo, 4 ranks, 65536 float32 each: WRONG on ranks [2], ")
    assert answer.out.count("\n") == 1
    assert answer.err.startswith(f"collopt: error: {plan_file} left wrong data on ranks [2]")
    answer = cli("run", plan_file, "--json")
    assert answer.status == 1
    assert (answer.data["correct"], answer.data["wrong_ranks"]) == (False, [2])


def test_every_option_reaches_the_run(cli: Cli, tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    """Options reach the library under its names."""
    path = tmp_path / "plan.json"
    collopt.plan(ring(4), "allreduce").save(path)
    cli("run", path, "--backend", "nccl", "--elements", 5, "--dtype", "int8", "--repeats", 7,
        "--slices", 2, "--timeout", 9.5, "--op", "max", "--seed", 3,
    )  # fmt: skip
    assert calls == [
        {
            "backend": "nccl",
            "elements": 5,
            "dtype": "int8",
            "repeats": 7,
            "slices": 2,
            "timeout_s": 9.5,
            "op": "max",
            "seed": 3,
        }
    ]


def test_says_that_ranks_do_what_switches_do(cli: Cli, tmp_path: Path, calls: list[dict[str, Any]]) -> None:
    """A note says that ranks copy and add in place of switches."""
    plan = tmp_path / "plan.json"
    collopt.plan(dgx_h100(), "allreduce").save(plan)
    told = f"collopt: note: ranks copy and add up what switches do in the trees of {plan}, as torch.distributed sends"
    assert told in cli("run", plan).err


@pytest.mark.parametrize(("rank", "printed"), [("0", True), ("3", False)])
def test_only_the_first_rank_prints_under_torchrun(
    cli: Cli,
    plan_file: Path,
    calls: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    rank: str,
    printed: bool,
) -> None:
    """All ranks end with the same status."""
    for name, value in {"RANK": rank, "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    answer = cli("run", plan_file)
    assert (answer.status, bool(answer.out)) == (1, printed)


def test_a_run_that_does_not_finish_fails_the_check(cli: Cli, plan_file: Path) -> None:
    """A timeout ends in status 1."""
    assert "0.1 s" in refusal(cli("run", plan_file, "--timeout", 0.1), status=1)


def test_too_many_elements_for_memory_are_told_in_one_line(cli: Cli, tmp_path: Path) -> None:
    """A tensor beyond memory ends in one line."""
    path = tmp_path / "plan.json"
    collopt.plan(ring(2), "allgather").save(path)
    message = refusal(cli("run", path, "--elements", 10**15))
    assert "there is not enough memory for elements=1000000000000000 of float32" in message
