"""`collopt diagnose`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from cli_calls import Cli
from nccl_logs import H100, Machine, devices, header, info, table, text

AG = "all_gather"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Log of two boxes, one of whose NICs NCCL does not list."""
    path = tmp_path / "log.txt"
    machine = Machine(nics=(8, 7), used=tuple(range(7)), channels=7)
    path.write_text(text(header(AG), devices(2, H100), info(machine), table(290, 16, AG)))
    return path


def test_the_screen_says_what_is_wrong(cli: Cli, log: Path) -> None:
    """Verdict, limit, channels, sizes, explanations and notes; status 1."""
    answer = cli("diagnose", log)
    assert answer.status == 1
    assert answer.out.startswith("allgather on dgx-h100-2boxes, 16 ranks: low\n")
    for words in (
        "its 7 rings reach 70.00 % of the bound",
        "2 of 16 NICs are not used: box0/nic7, box1/nic7",
        "this explains it:\n  1 of 8 NICs not in NCCL's list on node-2",
        "note  assumed from the log",
    ):
        assert words in answer.out
    assert len(answer.out.splitlines()) < 20


def test_json_and_csv_have_everything(cli: Cli, log: Path) -> None:
    """JSON has runs, channels and explanations; CSV a row for each size."""
    data = cli("diagnose", log, "--json").data
    assert (data["verdict"], data["runs"][0]["channels"][0]["share"]) == ("low", 0.7)
    assert data["explanations"][0]["failure"] == "box0/nic0"
    assert data["explanations"][0]["confirmed"]
    rows = list(csv.DictReader(io.StringIO(cli("diagnose", log, "--csv").out)))
    assert [int(row["size"]) for row in rows] == [size["size"] for size in data["runs"][0]["sizes"]]


def test_a_healthy_log_has_status_0(cli: Cli, tmp_path: Path) -> None:
    """Health checks go by the status; two runs are two blocks."""
    path = tmp_path / "log.txt"
    both = [
        (header(program), devices(1, H100), table(busbw, 8, program))
        for program, busbw in (("all_reduce", 470), (AG, 361))
    ]
    path.write_text(text(*both[0], *both[1]))
    answer = cli("diagnose", path)
    assert answer.status == 0
    assert answer.out.count(": normal\n") == 2


def test_a_network_may_be_given(cli: Cli, log: Path) -> None:
    """With NICs of 7 x 50 GB/s in both boxes, the run is normal."""
    answer = cli(
        "diagnose", log, "--topology", "dgx-h100", "--boxes", 2, "--without", "box0/nic7", "--without", "box1/nic7"
    )
    assert ": normal\n" in answer.out
    assert "assumed" not in answer.out
