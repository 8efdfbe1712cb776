"""`collopt bench`, and its table while it is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import collopt
from cli_calls import Answer, Cli, netfile
from collopt.cli.commands.run import LiveTable
from collopt.planners.plans.stages import on_stage
from collopt.runtime import BenchReport
from collopt.runtime.measuring.bench_report import BenchRow, Device, Reading
from collopt.topologies import ring
from test_cli_run_launched import free_port

SHORT = ["-b", "1K", "-e", "4K", "-f", "2", "-n", "2", "-w", "1"]


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allreduce of two ranks."""
    path = tmp_path_factory.mktemp("plans") / "pair.json"
    collopt.plan(ring(2, bandwidth=25), "allreduce").save(path)
    return path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stands in for measuring: what it was asked, while the last plan leaves five wrong elements."""
    asked: list[dict[str, Any]] = []

    def measure_plans(plans: dict[str, Any], **options: Any) -> BenchReport:
        asked.append({"plans": list(plans), **options})
        rows = tuple(BenchRow(name, 64, 16, Reading(1.0, 0), Reading(1.0, 0)) for name in ("gloo", *plans))
        wrong = rows[-1].__class__(rows[-1].name, 64, 16, Reading(1.0, 5), None)
        config = {"minimum_bytes": 64, "maximum_bytes": 64, "step_bytes": 1, "warmup_iters": 0, "iterations": 1}
        return BenchReport(
            "allreduce", "gloo", 2, "float", "sum", -1, {**config, "validation": 1},
            (Device(0, 1, "host", -1, "", "cpu"),), (*rows[:-1], wrong), "then", "now",
        )  # fmt: skip

    monkeypatch.setattr("collopt.runtime.measure_plans", measure_plans)
    return asked


def rows_of(printed: str) -> list[list[str]]:
    """The words of what is no comment."""
    return [line.split() for line in printed.splitlines() if not line.startswith("#")]


def test_prints_the_table_of_nccl_tests(cli: Cli, plan_file: Path) -> None:
    """A sweep of three sizes prints a row for the plan and one for gloo at each."""
    answer = cli("bench", plan_file, *SHORT)
    assert (answer.status, answer.err) == (0, "")
    rows = rows_of(answer.out)
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        (str(size), str(size // 4), name) for size in (1024, 2048, 4096) for name in ("gloo", str(plan_file))
    ]
    assert all(row[2:5] == ["float", "sum", "-1"] and (row[8], row[12]) == ("0", "0") for row in rows)
    assert "# Out of bounds values : 0 OK\n" in answer.out
    assert answer.out.count("# Avg bus bandwidth") == 2
    assert answer.out.endswith(f"# Planned bus bandwidth: 50 {plan_file} on ring-2\n")


def test_plans_on_the_spot_and_prints_json(cli: Cli, tmp_path: Path) -> None:
    """Plans from a file and of two planners are measured side by side, and JSON is the only output."""
    path = tmp_path / "plan.json"
    collopt.plan(ring(3, bandwidth=25), "broadcast", root=1).save(path)
    net = netfile(tmp_path, ring(3, bandwidth=25))
    answer = cli("bench", path, "--topology", net, "--collective", "broadcast", "-r", 1, "--planner", "forestcoll",
        "--planner", "blink", "-b", 100, "-e", 200, "-i", 100, "-n", 1, "-w", 0, "-d", "uint8", "--json",
    )  # fmt: skip
    assert (answer.status, answer.err) == (0, "")
    data = answer.data
    assert [(row["size"], row["experiment_name"], row["root"]) for row in data["results"]] == [
        (size, name, "1") for size in (100, 200) for name in ("gloo", str(path), "forestcoll", "blink")
    ]
    assert all(row["out_of_place"]["nwrong"] == 0 for row in data["results"])
    assert data["config"]["step_bytes"] == 100
    assert data["planned_bus_bandwidth"] == {str(path): 50, "forestcoll": 50, "blink": 50}
    assert data["out_of_bounds"] == {"count": 0, "okay": "true"}


def test_wrong_data_fail_the_check(cli: Cli, plan_file: Path, calls: list[dict[str, Any]]) -> None:
    """Wrong elements end in status 1 and a line that names the plan, after the table."""
    answer = cli("bench", plan_file)
    assert answer.status == 1
    assert "# Out of bounds values : 5 FAILED" in answer.out
    assert answer.err == (
        f"collopt: error: 5 elements computed by {plan_file} are wrong; rule out faulty hardware, and report this\n"
    )
    answer = cli("bench", plan_file, "--json")
    assert (answer.status, answer.data["out_of_bounds"]) == (1, {"count": 5, "okay": "false"})


def test_every_option_reaches_the_measurement(cli: Cli, plan_file: Path, calls: list[dict[str, Any]]) -> None:
    """Options have the defaults of nccl-tests and reach the library under its names."""
    usual = {
        "plans": [str(plan_file)],
        "minbytes": 2**25,
        "maxbytes": 2**25,
        "stepfactor": None,
        "stepbytes": 2**20,
        "iters": 20,
        "warmup_iters": 5,
        "check": 1,
        "datatype": "float",
        "op": "sum",
        "backend": "gloo",
        "slices": 1,
        "timeout_s": 600.0,
        "seed": 0,
    }
    cli("bench", plan_file)
    cli("bench", plan_file, "-b", "8", "-e", "1.5K", "-f", 3, "-n", 7, "-w", 0, "-c", 2, "-d", "half",
        "-o", "max", "--backend", "nccl", "--slices", 4, "--timeout", 9, "--seed", 5,
    )  # fmt: skip
    cli("bench", plan_file, "--minbytes", 8, "--maxbytes", 9, "--stepbytes", 1, "--iters", 2,
         "--warmup_iters", 3, "--check", 4, "--datatype", "int8", "--op", "min")  # fmt: skip
    short = {"minbytes": 8, "maxbytes": 1536, "stepfactor": 3, "iters": 7, "warmup_iters": 0, "check": 2,
             "datatype": "half", "op": "max", "backend": "nccl", "slices": 4, "timeout_s": 9.0, "seed": 5}  # fmt: skip
    long = {"minbytes": 8, "maxbytes": 9, "stepbytes": 1, "iters": 2, "warmup_iters": 3, "check": 4,
            "datatype": "int8", "op": "min"}  # fmt: skip
    for asked in calls:
        del asked["on_row"]
    assert calls == [usual, usual | short, usual | long]


@pytest.mark.slow
def test_torchrun_starts_the_ranks(plan_file: Path) -> None:
    """Ranks that torchrun starts measure together."""
    result = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()),
         "-m", "collopt", "bench", str(plan_file), *SHORT, "--json"],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )  # fmt: skip
    answer = Answer(result.returncode, result.stdout, result.stderr)
    assert answer.status == 0, answer.err
    assert len(answer.data["devices"]) == 2
    assert answer.data["out_of_bounds"]["okay"] == "true"


CONFIG = {"minimum_bytes": 64, "maximum_bytes": 128, "step_factor": 2, "warmup_iters": 0, "iterations": 1}


def report(rows: int) -> BenchReport:
    """An allreduce of two ranks, with so many rows of three."""
    told = tuple(BenchRow("mine", size, size // 4, Reading(1.0, 0), None) for size in (64, 96, 128)[:rows])
    return BenchReport("allreduce", "gloo", 2, "float", "sum", -1, {**CONFIG, "validation": 1}, (), told, "then", "")


def sizes(printed: str) -> list[str]:
    """The first words of what is no comment."""
    return [line.split()[0] for line in printed.splitlines() if not line.startswith("#")]


def test_rows_are_printed_when_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    """Head, rows and tail come one after the other and are the whole table together."""
    with LiveTable("measuring", prints=True) as table:
        assert capsys.readouterr().out == ""
        printed = []
        for done in (1, 2, 3):
            table.add(report(done), 3)
            printed.append(capsys.readouterr().out)
    assert [sizes(each) for each in printed] == [["64"], ["96"], ["128"]]
    table.finish(report(3), {"mine": collopt.plan(ring(2, bandwidth=25), "allreduce")})
    whole = "".join(printed) + capsys.readouterr().out
    assert whole == f"{report(3)}\n# Planned bus bandwidth: 50 mine on ring-2\n"


def test_programs_hear_nothing_in_between(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a table on standard output the rows are only counted."""
    counts: list[tuple[int, int]] = []
    with (
        on_stage(lambda _: None, lambda done, total: counts.append((done, total))),
        LiveTable("measuring", prints=False) as table,
    ):
        for done in (1, 2, 3):
            table.add(report(done), 3)
    assert capsys.readouterr() == ("", "")
    assert counts == [(0, 3), (1, 3), (2, 3), (3, 3)]
