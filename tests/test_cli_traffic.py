"""Traffic from files, on the command line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cli_calls import call
from collopt.cli.terminal import options as shared
from collopt.cli.terminal.options import read_traffic
from collopt.errors import FileFormatError

TRAFFIC = np.ones((8, 8), dtype=np.int64) + 4 * np.eye(8, k=1, dtype=np.int64)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A matrix as CSV."""
    np.savetxt(tmp_path / "traffic.csv", TRAFFIC, fmt="%d", delimiter=",")
    return tmp_path / "traffic.csv"


def test_bound_plan_and_compare_take_traffic(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    """From CSV and from numpy's own files, with the same result."""
    np.save(table.with_suffix(".npy"), TRAFFIC)
    answers = [
        call(capsys, "bound", "dgx1-v100", "all_to_allv", "--traffic", path, "--json").data["inverse_rate"]
        for path in (table, table.with_suffix(".npy"))
    ]
    assert answers[0] == answers[1]
    planned = call(capsys, "plan", "dgx1-v100", "all_to_allv", "--traffic", table, "-o", table.with_name("plan.json"))
    assert planned.status == 0
    assert "paths" in planned.out
    assert "with a barrier after each step" in planned.out
    checked = call(capsys, "verify", table.with_name("plan.json"))
    assert "receive all data meant for them exactly once" in checked.out
    rows = call(capsys, "compare", "dgx1-v100", "all_to_allv", "--traffic", table, "--json").data
    assert [row["status"] for row in rows] == ["ok"] * 3 + ["not applicable"]


def test_people_see_where_the_bottleneck_is(capsys: pytest.CaptureFixture[str]) -> None:
    """And how fast pairs can be."""
    answer = call(capsys, "bound", "dgx-a100", "--boxes", 2, "all_to_all").out
    assert "at least 0.32 ns per byte of the data from one rank to another" in answer
    assert "egress of the cut around 8 of 16 ranks: 200 GB/s, carrying their traffic to the others" in answer
    assert "trees per root" not in answer


@pytest.mark.parametrize("line", ["\n", "\r\n", "\r"])
def test_as_many_entries_are_read_as_ranks_can_have(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str) -> None:
    """However lines end; one more rank is refused, as text and as numpy's own file."""
    monkeypatch.setattr(shared, "MAX_RANKS", 20)
    for ranks, suffix in ((20, ".csv"), (21, ".csv"), (21, ".npy")):
        path = tmp_path / f"{ranks}{suffix}"
        path.write_text("".join(",".join("7" * ranks) + line for _ in range(ranks)), newline="")
        if suffix == ".npy":
            np.save(path, np.ones((ranks, ranks)))
        if ranks == 20:
            assert read_traffic(path) == [["7"] * ranks] * ranks
        else:
            with pytest.raises(FileFormatError, match="the traffic has more than 20 ranks"):
                read_traffic(path)


def test_a_matrix_of_the_most_ranks_is_not_too_large_a_file(tmp_path: Path) -> None:
    """In the longest form that numpy writes by itself."""
    ranks = shared.MAX_RANKS
    row = ",".join(["1.234567890123456789e-100"] * ranks) + "\r\n"
    assert len(row) * ranks <= shared.MAX_BYTES
    assert ranks**2 * 16 + 1000 <= shared.MAX_BYTES
    (tmp_path / "large.csv").write_bytes(b"")
    os.truncate(tmp_path / "large.csv", shared.MAX_BYTES + 1)
    with pytest.raises(FileFormatError, match="is larger than 33554432 bytes"):
        read_traffic(tmp_path / "large.csv")
