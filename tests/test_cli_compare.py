"""`collopt compare`."""

from pathlib import Path

import collopt
from cli_calls import Cli, netfile, uneven_torus

A100 = ("dgx-a100", "--boxes", 2, "allgather")


def test_people_see_bounds_then_plans_the_fastest_first(cli: Cli) -> None:
    """Bounds come first, then plans by bandwidth, then the reasons of planners without a plan."""
    answer = cli("compare", *A100, "--size", "1M", "--size", "1G")
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert lines[0] == "allgather on dgx-a100-2boxes, 16 ranks"
    assert lines[1].startswith("  bound by forestcoll      346.67 GB/s (1040/3), found in ")
    assert lines[2].startswith("  bound by linear-program  346.67 GB/s (1040/3), found in ")
    assert lines[3].split() == [
        "planner",
        "algbw",
        "GB/s",
        "optimality",
        "gap",
        "trees",
        "hops",
        "steps",
        "1M",
        "1G",
        "planning",
        "time",
    ]
    table = [line.split()[:3] for line in lines[4 : lines.index("searches")]]
    assert lines[lines.index("searches") + 1].startswith("  milp  branch and bound: at most ")
    assert table[0] == ["forestcoll", "346.67", "optimal"]
    assert ["ring", "213.33", "38.46"] in table
    assert ["blink", "240.00", "30.77"] in table
    assert [float(row[1]) for row in table] == sorted((float(row[1]) for row in table), reverse=True)
    assert any(
        line.startswith("  plan bfb  ") and line.endswith("expected direct links between ranks") for line in lines
    )


def test_one_size_is_planned_for_and_several_are_predicted(cli: Cli, tmp_path: Path) -> None:
    """With one size a row is that of the plan for it; with several, times alone are of plans for them."""
    words = (
        "compare",
        netfile(tmp_path, uneven_torus()),
        "allgather",
        "--planner",
        "bfb",
        "--planner",
        "ring",
        "--json",
    )
    one = {row["planner"]: row for row in cli(*words, "--size", "64K").data}
    sized = collopt.plan(uneven_torus(), "allgather", planner="bfb", size="64K")
    assert (one["bfb"]["us_64K"], one["bfb"]["algbw_exact"]) == (sized.simulate("64K"), str(sized.algbw))
    several = {row["planner"]: row for row in cli(*words, "--size", "64K", "--size", "1M").data}
    unsized = collopt.plan(uneven_torus(), "allgather", planner="bfb")
    assert several["bfb"]["us_64K"] == sized.simulate("64K") < unsized.simulate("64K")
    larger = collopt.plan(uneven_torus(), "allgather", planner="bfb", size="1M")
    assert several["bfb"]["us_1M"] == larger.simulate("1M")
    assert several["bfb"]["algbw_exact"] == str(unsized.algbw)


def test_json_has_every_row(cli: Cli) -> None:
    """Exact numbers are text, and missing ones null."""
    names = ("forestcoll", "ring", "strength", "auto")
    words = [word for name in names for word in ("--planner", name)]
    rows = cli("compare", *A100, "--size", "1M", *words, "--json").data
    plans = {row["planner"]: row for row in rows if row["kind"] == "plan"}
    assert plans.keys() == set(names)
    assert plans["auto"]["us_1M"] == min(row["us_1M"] for row in plans.values() if row["status"] == "ok")
    assert (plans["ring"]["algbw_exact"], plans["ring"]["bound_exact"]) == ("640/3", "1040/3")
    assert plans["ring"]["num_trees"] == 128
    assert plans["ring"]["us_1M"] > plans["forestcoll"]["us_1M"] > 0
    assert (plans["strength"]["algbw"], plans["strength"]["status"]) == (None, "not applicable")
    assert "plan" not in plans["ring"]


def test_it_fails_where_no_planner_has_a_plan(cli: Cli) -> None:
    """Status 2 and a reason follow the table."""
    answer = cli("compare", "ring", "--nodes", 4, "allgather", "--planner", "strength")
    assert answer.status == 2
    assert "bound by forestcoll" in answer.out
    assert answer.err.startswith("collopt: error: strength has no plan: the planner 'strength' does not cover")
