"""`collopt bound`, and traffic from files."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import collopt
from cli_calls import Cli
from collopt.topologies import mi250


def test_two_boxes_of_mi250_as_the_paper_has_them(cli: Cli) -> None:
    """1/x* = 15/166, 354.13 GB/s and k = 83 (ForestColl, Table 1)."""
    answer = cli("bound", "mi250", "--boxes", 2, "allgather", "--json")
    assert answer.status == 0
    assert answer.err == ""
    data = answer.data
    assert data["inverse_rate"] == "15/166"
    assert (round(data["algbw"], 2), data["algbw_exact"]) == (354.13, "5312/15")
    assert data["trees_per_root"] == 83
    assert (data["topology"], data["collective"], data["num_ranks"]) == ("mi250-2boxes", "allgather", 32)
    assert data["digest"] == mi250(boxes=2).digest


def test_the_cut_that_is_printed_proves_the_bound(cli: Cli) -> None:
    """The ranks inside the cut over the bandwidth that leaves it is 1/x*."""
    data = cli("bound", "mi250", "--boxes", 2, "allgather", "--json").data
    network, inside = mi250(boxes=2), set(data["cut"])
    leaving = sum(
        (link.bandwidth for link in network.links if link.tail in inside and link.head not in inside), Fraction(0)
    )
    ranks = len(inside & set(network.compute_nodes))
    assert (data["cut_ranks"], Fraction(data["cut_bandwidth"])) == (ranks, leaving)
    assert ranks / leaving == Fraction(data["inverse_rate"])
    assert 0 < ranks < network.num_ranks


def test_least_time_at_a_size(cli: Cli) -> None:
    """The bound at a size names the flow that takes the time, and guessed costs as such."""
    answer = cli("bound", "dgx-a100", "--boxes", 2, "allgather", "--size", "4M", "--costs", "fused")
    assert answer.out.splitlines() == [
        "allgather on dgx-a100-2boxes, 16 ranks (not calibrated)",
        "  size   4M (4194304 bytes)",
        "  time   at least 19.7 µs",
        "  algbw  at most 212.81 GB/s",
        "  busbw  at most 199.51 GB/s",
        "  flow   3932.16 kB of box0/gpu1..7, box1/gpu0..7 must reach box0/gpu0",
    ]


def test_least_times_at_several_sizes(cli: Cli) -> None:
    """Several sizes make a table, and the same figures as JSON and CSV, each size once."""
    words = ("bound", "ring", "--set", "n=4", "--set", "latency=1", "allgather", "--size", "1K", "--size", "1M")
    assert cli(*words, "--size", "1K").out.splitlines()[1:] == [
        "size  time at least  algbw at most  busbw at most  by its",
        "1K    2.13 µs        481.20 MB/s    360.90 MB/s    flow",
        "1M    394 µs         2.66 GB/s      1.99 GB/s      flow",
    ]
    data = cli(*words, "--json").data
    assert (data["topology"], data["num_ranks"], data["costs"], data["costs_label"]) == ("ring-4", 4, {}, "links alone")
    assert [row["bytes"] for row in data["sizes"]] == [2**10, 2**20]
    times = [collopt.bound(collopt.topologies.ring(4, latency=1), "allgather", size=size).time for size in ("1K", "1M")]
    assert [Fraction(row["time_exact"]) for row in data["sizes"]] == times
    lines = cli(*words, "--csv").out.splitlines()
    assert lines[0] == "size,bytes,time_us,time_exact,algbw,busbw,argument,reason"
    assert len(lines) == 3


TRAFFIC = np.ones((8, 8), dtype=np.int64) + 4 * np.eye(8, k=1, dtype=np.int64)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A matrix as CSV."""
    np.savetxt(tmp_path / "traffic.csv", TRAFFIC, fmt="%d", delimiter=",")
    return tmp_path / "traffic.csv"


def test_bound_plan_and_compare_take_traffic(cli: Cli, table: Path) -> None:
    """CSV and numpy's own files have the same result."""
    np.save(table.with_suffix(".npy"), TRAFFIC)
    answers = [
        cli("bound", "dgx1-v100", "all_to_allv", "--traffic", path, "--json").data["inverse_rate"]
        for path in (table, table.with_suffix(".npy"))
    ]
    assert answers[0] == answers[1]
    planned = cli("plan", "dgx1-v100", "all_to_allv", "--traffic", table, "-o", table.with_name("plan.json"))
    assert planned.status == 0
    assert "paths" in planned.out
    assert "with a barrier after each step" in planned.out
    checked = cli("verify", table.with_name("plan.json"))
    assert "receive all data meant for them exactly once" in checked.out
    rows = cli("compare", "dgx1-v100", "all_to_allv", "--traffic", table, "--json").data
    assert [row["planner"] for row in rows if row["status"] != "ok"] == ["fast"]
    assert len(rows) == 4
