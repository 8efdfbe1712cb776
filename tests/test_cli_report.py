"""`collopt report`: the page that it writes, and what it refuses before the work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli_calls import Cli, refusal
from nccl_logs import H100, devices, header, table, text

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


def test_a_log_is_shown_beside_the_plan(cli: Cli, plan_file: Path) -> None:
    """The page has the measured bandwidth; a log of other ranks, another collective, or no log at all is refused."""
    log, page = plan_file.with_name("log.txt"), plan_file.with_suffix(".html")
    for ranks, program, words in ((8, "all_gather", "of 8 ranks"), (4, "all_reduce", "measures allreduce")):
        log.write_text(text(header(program), devices(1, H100, ranks), table(20, ranks, program)))
        assert words in refusal(cli("report", plan_file, "--log", log))
    assert "is a collopt plan" in refusal(cli("report", plan_file, "--log", plan_file))
    assert "also read" in refusal(cli("report", plan_file, "--log", log, "-o", log))
    assert not page.exists()
    log.write_text(text(header("all_gather"), devices(1, H100, 4), table(20, 4, "all_gather")))
    assert cli("report", plan_file, "--log", log).status == 0
    assert '<td class="number">20.00</td>' in page.read_text(encoding="utf-8")
