"""Bound, scope, gap and optimum of a plan are the same in text, JSON, explorer and report, and those of `bound`."""

from __future__ import annotations

import re
from fractions import Fraction
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import collopt
from cli_calls import Cli
from collopt.report.pages.answers import Case, Scenario
from collopt.support.formatting import gap_text, percentage_text, rate_text
from looping_star import BELOW

REQUESTS = [
    ("dgx-h100", "allreduce"),
    ("dgx-h100", "allreduce", "--no-in-network"),
    ("dgx-h100", "allgather"),
    ("dgx-h100", "reduce_scatter"),
    ("dgx-h100", "allreduce", "--boxes", "2"),
    ("dgx-h100", "allreduce", "--boxes", "2", "--no-in-network"),
    ("dgx-h100", "allgather", "--boxes", "2"),
    ("dgx-h100", "reduce_scatter", "--boxes", "2", "--planner", "ring"),
    ("mi250", "allreduce"),
    ("torus", "allgather", "--shape", "3x3"),
    ("ring", "allreduce", "--nodes", "5"),
    ("ring", "all_to_all", "--nodes", "5"),
    ("three.json", "allreduce", "--planner", "steiner"),
    ("three.json", "allreduce", "--planner", "forestcoll"),
]


def rows_of(text: str) -> dict[str, str]:
    """Rows of a summary by name."""
    return dict(re.split(r"  +", line.strip(), maxsplit=1) for line in text.splitlines()[1:] if "  " in line.strip())  # type: ignore[misc]


def tiles_of(page: str) -> dict[str, tuple[str, str]]:
    """Tiles of a report by name: the value, and its small print."""
    tiles = re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)(?:<small>(.*?)</small>)?</dd></div>", page)
    return {unescape(name): (unescape(value), unescape(small)) for name, value, small in tiles}


def in_percent(gap: Fraction) -> str:
    """A gap as all faces write it."""
    return percentage_text(gap) if gap else "0"


@pytest.mark.parametrize("words", REQUESTS, ids=" ".join)
def test_all_faces_of_a_plan_state_the_same_bound_and_gap(
    words: tuple[str, ...], cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a gap of 0 to the bound of all schedules is called optimal; a narrower bound stands beside it."""
    monkeypatch.chdir(tmp_path)
    collopt.write_topology(BELOW, "three.json")
    name, collective, *options = words
    cut = options.index("--planner") if "--planner" in options else len(options)
    planner = "".join(options[cut + 1 :]) or "auto"
    own = [word for word in options[:cut] if word != "--no-in-network"]
    bound = cli("bound", name, collective, *own, "--json").data
    data = cli("plan", name, collective, *options, "-o", "plan.json", "--json").data
    plan = collopt.load_plan("plan.json")
    limit, gap, scoped = Fraction(bound["algbw_exact"]), Fraction(data["gap"]), data["scoped_bound"]
    assert (plan.bound.algbw, plan.gap, plan.algbw) == (limit, gap, limit * (1 - gap))
    assert (scoped is not None) is (planner == "steiner")
    of_json = data["bound"]["algbw_exact"], data["bound"]["scope"], data["optimal"]
    assert of_json == (bound["algbw_exact"], bound["scope"], gap == 0)
    assert bound["scope"] == "all schedules"
    scope, rate, missed = "", "", in_percent(gap)
    if scoped:
        scope, rate, missed = scoped["scope"], rate_text(Fraction(scoped["algbw_exact"])), data["scoped_gap"]
    # Text
    rows = rows_of(cli("plan", name, collective, *options).out)
    assert rows["bound"] == f"algbw at most {rate_text(limit)}" + (f"; {rate} for {scope}" if scope else "")
    assert rows["optimality gap"] == gap_text(gap) + (f"; {missed} for {scope}" if scope else "")
    # Report
    assert cli("report", "plan.json", "-o", "plan.html").status == 0
    page = Path("plan.html").read_text(encoding="utf-8")
    tiles = tiles_of(page)
    assert tiles["bound on algbw"][0] == rate_text(limit).partition(" (")[0]
    assert tiles["optimality gap"] == (in_percent(gap), f"exactly {gap}" if gap else "optimal")
    assert ("Optimal." in page) is (gap == 0)
    assert [name for name in tiles if name.startswith("bound of ")] == ([f"bound of {scope}"] if scope else [])
    # Explorer
    if "--no-in-network" not in options:
        answers: dict[str, Any] = {}
        for answer in Case(Scenario((name, *own), collective, planner=planner), plan.topology).answers():
            answers |= answer
        figures = answers["plan"]
        assert answers["bound"]["text"] == figures["bound"] == rate_text(limit)
        assert (figures["optimal"], figures["gap"]) == (gap == 0, in_percent(gap))
        assert (figures["scoped"], figures["scope"], figures["scopedGap"]) == (rate, scope, missed)
