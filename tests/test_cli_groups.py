"""`collopt groups`: tables, files of plans, and requests that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import collopt
from cli_calls import call, refusal

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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a file of groups, or --mesh and --axis"),
        (["--mesh", "2x2"], "expected a file of groups, or --mesh and --axis"),
        (["--mesh", "2x8", "--axis", "1:allgather"], "--mesh 2x8 has 16 ranks, and ring-4 has 4"),
        (["--mesh", "2xx", "--axis", "1:allgather"], "--mesh is '2xx'"),
        (["--mesh", "2x2", "--axis", "allgather"], "--axis is 'allgather'"),
        (["--mesh", "2x2", "--axis", "2:allgather"], "the axes are [2]; expected some of 0..1"),
        (["--mesh", "4x1", "--axis", "1:allgather"], "have 1 rank each"),
        (["--mesh", "2x2", "--axis", "1:allgather", "--axis", "1:allgather"], "--axis has 1 twice"),
        (["missing.json"], "missing.json does not exist"),
    ],
)
def test_refuses_what_are_no_groups(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """One line that says what was expected."""
    assert message in refusal(call(capsys, "groups", *NETWORK, *words))
