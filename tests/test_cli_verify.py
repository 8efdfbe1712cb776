"""`collopt verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import collopt
from cli_calls import Cli, netfile, refusal
from collopt.topologies import dgx_a100


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """A plan for two boxes of DGX A100."""
    path = tmp_path / "plan.json"
    collopt.plan(dgx_a100(boxes=2), "allgather").save(path)
    return path


def changed(path: Path, **fields: Any) -> Path:
    """The plan file with some fields of its top level changed."""
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(content | fields), encoding="utf-8")
    return path


def test_json_has_the_verdict_and_the_figures(cli: Cli, plan_file: Path) -> None:
    """JSON is the only output."""
    data = cli("verify", plan_file, "--json").data
    assert (data["verified"], data["compared"], data["plan"]) == (True, False, str(plan_file))
    assert (data["inverse_rate"], data["gap"], data["trees_per_root"]) == ("3/65", "0", 13)


def test_compares_with_a_network_from_the_catalogue(cli: Cli, plan_file: Path) -> None:
    """Networks with equal links match."""
    answer = cli("verify", plan_file, "--topology", "dgx-a100", "--boxes", 2)
    assert answer.status == 0
    assert answer.out.splitlines()[-1].endswith("matches --topology")


@pytest.mark.parametrize("failed", [["box1/nic3"], ["box0/gpu2", "box1/nic3"], ["box0/gpu1--box0/nic1"]])
def test_compares_with_what_failures_leave_of_a_network(cli: Cli, tmp_path: Path, failed: list[str]) -> None:
    """`verify --without` finds the network of `plan --without`, in any order and from a file."""
    without = [word for name in failed for word in ("--without", name)]
    path = tmp_path / "plan.json"
    made = cli("plan", "dgx-a100", "--boxes", 2, "allgather", *without, "-o", path)
    assert made.status == 0
    again = [word for name in reversed(failed) for word in ("--without", name)]
    checked = cli("verify", path, "--topology", "dgx-a100", "--boxes", 2, *again)
    assert checked.status == 0
    assert checked.out.splitlines()[-1].endswith("matches --topology")
    whole = netfile(tmp_path, dgx_a100(boxes=2))
    assert cli("verify", path, "--topology", whole, *without).status == 0
    assert refusal(cli("verify", path, "--topology", whole)).endswith("plan again for this topology")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inverse_rate": "1/65"}, "the plan claims 1/x = 1/65; its busiest link gives 3/65"),
        ({"bound": {"inverse_rate": "2/65", "cut": ["box0/gpu0"]}}, "the bound claims 1/x* = 2/65"),
        ({"link_loads": [1, 2, 3]}, "the plan states link loads of shape"),
    ],
)
def test_a_plan_that_was_tampered_with_fails_the_check(
    cli: Cli, plan_file: Path, fields: dict[str, Any], message: str
) -> None:
    """A false claim ends in status 1 and one line."""
    assert message in refusal(cli("verify", changed(plan_file, **fields)), status=1)


def test_json_has_the_reason_why_a_check_failed(cli: Cli, plan_file: Path) -> None:
    """The reason is in JSON, and on standard error after the name of the file."""
    answer = cli("verify", changed(plan_file, inverse_rate="1/65"), "--json")
    assert answer.status == 1
    assert answer.data == {
        "plan": str(plan_file),
        "verified": False,
        "reason": "the plan claims 1/x = 1/65; its busiest link gives 3/65",
    }
    assert answer.err == f"collopt: error: {plan_file}: {answer.data['reason']}\n"
