"""`collopt score`."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

import collopt
from cli_calls import Cli, refusal
from collopt.topologies import ring

RING = ["--topology", "ring", "--nodes", 4, "--set", "bandwidth=25"]


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    """A plan of one tree, with its MSCCL XML beside it."""
    made = collopt.plan(ring(4, bandwidth=25), "allgather", planner="blink")
    made.save(tmp_path / "plan.json")
    made.to_msccl_xml(tmp_path / "plan.xml")
    return tmp_path / "plan.json"


def test_shows_data_loads_rates_and_times(cli: Cli, plan: Path) -> None:
    """A file of a runtime is compared with the bound and the best plan."""
    xml = plan.with_suffix(".xml")
    answer = cli("score", xml, *RING, "--size", "64M", "--slices", 4)
    assert (answer.status, answer.err) == (0, "")
    title, *rows = answer.out.splitlines()
    assert title == f"{xml}: MSCCL XML, allgather on ring-4, 4 ranks"
    assert [row.split("  ")[1] for row in rows[:10]] == [
        "data", "routes", "busiest links", "gpu-gpu", "algbw", "bound", "optimality gap", "plan by auto", "times",
        *[row.split("  ")[1] for row in rows[9:10]],
    ]  # fmt: skip
    assert "  algbw           40.00 GB/s, by the busiest link" in rows
    assert "  bound           66.67 GB/s (200/3)" in rows
    assert "  optimality gap  40.00 % (2/5)" in rows
    assert "each send in 4 pieces" in answer.out
    assert " ".join(rows[-2].split()) == "size in bytes time plan by auto time / plan bound time / bound"
    assert rows[-1].split()[0] == str(2**26)


def test_json_has_everything(cli: Cli, plan: Path) -> None:
    """JSON has the loads of all links, which are the rows of CSV."""
    answer = cli("score", plan, "--json", "--size", "1M", "--size", "1K", "--planner", "ring")
    assert (answer.status, answer.err) == (0, "")
    data = answer.data
    assert (data["kind"], data["data"], data["gap"], data["bound_exact"]) == ("a collopt plan", "right", "2/5", "200/3")
    assert [row["size"] for row in data["times"]] == [2**20, 2**10]
    assert all(row["time_us"] > row["plan_time_us"] >= row["bound_time_us"] for row in data["times"])
    table = cli("score", plan, "--csv")
    rows = list(csv.DictReader(io.StringIO(table.out)))
    assert [float(row["share"]) for row in rows] == [row["share"] for row in data["links"]]
    assert list(rows[0]) == ["tail", "head", "bandwidth", "share", "busy"]


def test_wrong_data_fails(cli: Cli, tmp_path: Path) -> None:
    """Wrong data end in status 1 with the reason on standard output."""
    path = tmp_path / "sends.csv"
    path.write_text("step,from,to,chunk\n0,0,1,0\n0,0,3,0\n")
    words = ["score", path, *RING, "--collective", "broadcast", "--root"]
    answer = cli(*words, "gpu0")
    assert (answer.status, answer.err) == (1, "")
    assert "  data           wrong: rank 2 never gets chunk 0 of the shard of rank 0" in answer.out
    assert "time" not in answer.out
    assert cli(*words, 0, "--json").data["gap"] is None
    path.write_text("step,from,to,chunk\n0,0,1,0\n0,0,3,0\n1,1,2,0\n")
    assert cli(*words, 0).status == 0


def test_traces_need_to_be_told_what_they_are(cli: Cli, plan: Path) -> None:
    """Traces of collopt state their collective."""
    collopt.load_plan(plan).export("chakra-et", plan.with_name("trace"), size="1M")
    answer = cli("score", plan.with_name("trace"), *RING)
    assert answer.status == 0
    assert "not checked: traces say how many bytes are sent, and not which" in answer.out
    message = refusal(cli("score", plan.with_name("trace.0.et"), *RING, "--collective", "allreduce"))
    assert message.endswith("are of allgather, not allreduce")
