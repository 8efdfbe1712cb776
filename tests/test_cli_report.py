"""`collopt report`: the page that it writes, and what it refuses before the work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_calls import Cli, refusal

pytest.importorskip("jinja2", reason="reports need jinja2")

import collopt
from collopt.topologies import ring


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    """A plan of an allgather on a ring of four."""
    path = tmp_path / "plan.json"
    collopt.plan(ring(4, bandwidth=25), "allgather").save(path)
    return path


def test_the_page_is_beside_the_plan_and_named_like_it(cli: Cli, plan_file: Path) -> None:
    """The default output is the plan's path with the suffix .html."""
    answer = cli("report", plan_file)
    page = plan_file.with_suffix(".html")
    assert (answer.status, answer.out, answer.err) == (0, "", f"wrote {page}\n")
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_several_plans_are_compared_by_their_files(cli: Cli, plan_file: Path) -> None:
    """The page names plans by their files and has the sizes and title of the options."""
    other, page = plan_file.with_name("ring.json"), plan_file.with_name("page.html")
    collopt.plan(ring(4, bandwidth=25), "allgather", planner="ring").save(other)
    words = ("-o", page, "--size", "2M", "--size", "1G", "--title", "Which one?", "--failures")
    assert cli("report", plan_file, other, *words).status == 0
    text = page.read_text(encoding="utf-8")
    assert "<title>Which one?</title>" in text
    assert '<th scope="row">plan</th>' in text
    assert '<th scope="row">ring</th>' in text
    assert '<option value="0">2M</option>' in text
    assert "What if something fails" in text


def test_a_plan_that_was_tampered_with_has_no_page(cli: Cli, plan_file: Path) -> None:
    """A false plan ends in status 1."""
    content = json.loads(plan_file.read_text(encoding="utf-8"))
    plan_file.write_text(json.dumps(content | {"inverse_rate": "1/65"}), encoding="utf-8")
    assert "claims 1/x = 1/65" in refusal(cli("report", plan_file), status=1)
    assert not plan_file.with_suffix(".html").exists()
