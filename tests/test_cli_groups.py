"""`collopt groups`: tables, files of plans, and requests that cannot be used."""

import json
from pathlib import Path

import pytest

import collopt
from cli_calls import call

NETWORK = ["ring", "--nodes", "4", "--set", "bandwidth=10"]


def test_groups_of_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A table and JSON with equal figures, and one verified plan file for each group."""
    path, folder = tmp_path / "groups.json", tmp_path / "plans"
    rows = [{"name": name, "ranks": ranks, "collective": "allgather"} for name, ranks in (("x", [0, 1]), ("y", [1, 2]))]
    path.write_text(json.dumps({"format": "collopt-groups", "version": 1, "groups": rows}))
    answer = call(capsys, "groups", *NETWORK, path, "-o", folder, "--json")
    assert answer.status == 0, answer.err
    assert answer.err == f"wrote 2 plans to {folder}\n"
    shown = json.loads(answer.out)
    assert [row["algbw"] for row in shown["groups"]] == [20, 20]
    assert shown["gap"] == 0
    for name in "xy":
        plan = collopt.load_plan(folder / f"{name}.json")
        plan.verify()
        assert plan.algbw == 20
    table = call(capsys, "groups", *NETWORK, "--relay", path).out
    assert "2 groups on ring-4, 4 ranks, verified together" in table
    assert [line.split()[0] for line in table.splitlines()[1:]] == ["group", "x", "y"]
    assert call(capsys, "groups", *NETWORK, path, "--csv").out.startswith(
        "group,collective,ranks,size,algbw,limit,gap,"
    )


def test_groups_of_a_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    """Axes and sizes are those of the options."""
    words = ["groups", *NETWORK, "--mesh", "2x2", "--axis", "1:allgather:1K", "--axis", "0+1:all_to_all", "--json"]
    shown = json.loads(call(capsys, *words).out)["groups"]
    assert [(row["group"], row["ranks"], row["size"]) for row in shown] == [
        ("axis1_0", 2, 1024),
        ("axis1_1", 2, 1024),
        ("axis0-1_0", 4, 1),
    ]
