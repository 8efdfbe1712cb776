"""Planners by name, and what is not in the list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from collopt import compare, plan
from collopt.errors import CertificateError, UnsupportedError
from collopt.planners import PLANNERS, Plan, register_planner
from collopt.planners.plans.registry import _sources
from collopt.topologies import Topology, ring


def test_every_planner_is_listed_under_its_name() -> None:
    """With one line about it and at least one collective."""
    assert "forestcoll" in PLANNERS
    for name, entry in PLANNERS.items():
        assert entry.name == name
        assert entry.summary
        assert "\n" not in entry.summary
        assert entry.collectives


def test_a_planner_plans_what_it_lists() -> None:
    """`plan` takes the same options as the function behind it."""
    assert PLANNERS["forestcoll"].plans("allgather")
    made = plan(ring(3), "allgather", planner="forestcoll", trees_per_root=2)
    assert (made.planner, made.schedule.trees_per_root) == ("forestcoll", 2)
    direct = PLANNERS["forestcoll"](ring(3), "allgather", trees_per_root=2)
    assert direct.inverse_rate == made.inverse_rate


def test_without_a_planner_allreduce_takes_the_strength_where_that_is_better() -> None:
    """A triangle with one wide side, along which more should be added up than an equal part."""
    links = [("a", "b", 2), ("a", "c", 2), ("b", "c", 3)]
    triangle = Topology.from_links(links, compute="abc", bidirectional=True)
    assert plan(triangle, "allreduce", planner="forestcoll").algbw == 3
    made = plan(triangle, "allreduce")
    assert (made.planner, made.algbw, made.gap) == ("strength", Fraction(7, 2), 0)


def test_without_a_planner_allreduce_takes_the_program_where_links_lack_opposites() -> None:
    """All data should be added up before the slow link of a one-way ring and spread from there."""
    one_way = Topology.from_links([("a", "b", 2), ("b", "c", 1), ("c", "a", 4)], compute="abc")
    assert plan(one_way, "allreduce", planner="forestcoll").algbw == Fraction(3, 4)
    made = plan(one_way, "allreduce")
    assert (made.planner, made.algbw, made.gap) == ("allreduce-lp", 1, 0)


def rooms_on_one_leaf() -> Topology:
    """Three nodes of four GPUs on a switch each; every GPU also has a slow link of its own to one more switch."""
    links: list[tuple[str, str, int | str]] = []
    for number in range(3):
        for gpu in range(4):
            slow = 25 if number == 2 else "12.5"
            links += [(f"g{number}{gpu}", f"node{number}", 200), (f"g{number}{gpu}", "leaf", slow)]
    ranks = [f"g{number}{gpu}" for number in range(3) for gpu in range(4)]
    switches = ["node0", "node1", "node2", "leaf"]
    return Topology.from_links(links, compute=ranks, switches=switches, bidirectional=True)


def test_without_a_planner_a_number_of_trees_is_put_to_every_planner_that_takes_one() -> None:
    """Free roots use slow links that equal shards leave waiting; the strength takes no number and is not asked."""
    topology = rooms_on_one_leaf()
    equal = plan(topology, "allreduce", planner="forestcoll", trees_per_root=4)
    free = plan(topology, "allreduce", planner="allreduce-lp", trees_per_root=4)
    assert (equal.algbw, free.algbw) == (Fraction(75, 2), 50)
    made = plan(topology, "allreduce", trees_per_root=4)
    assert (made.planner, made.algbw, made.options) == ("allreduce-lp", 50, {"trees_per_root": 4})
    assert plan(topology, "allreduce", trees_per_root=1).algbw == Fraction(75, 2)


def test_a_registered_planner_is_asked() -> None:
    """With the options of its own function, and only for its collectives."""
    calls: list[tuple[Topology, int]] = []

    @register_planner("mine", "allgather")
    def make(topology: Topology, *, chunks: int = 1) -> Plan:
        """Plan for this test.  And more."""
        calls.append((topology, chunks))
        return plan(topology, "allgather")

    try:
        mine = PLANNERS["mine"]
        assert (mine.summary, mine.options) == ("for this test", ("chunks",))
        topology = ring(4)
        assert plan(topology, "allgather", planner="mine", chunks=3).topology is topology
        assert plan(topology, "allgather", planner=mine).topology is topology
        assert calls == [(topology, 3), (topology, 1)]
        assert "mine" in compare(topology, "allgather")["planner"].tolist()
        with pytest.raises(UnsupportedError, match="'mine' has no option 'trees_per_root'; its options: chunks"):
            plan(topology, "allgather", planner="mine", trees_per_root=1)
        with pytest.raises(UnsupportedError, match=r"planner 'mine' does not cover the collective 'reduce_scatter'"):
            plan(topology, "reduce_scatter", planner="mine")
        with pytest.raises(UnsupportedError, match="there is a planner 'mine' already"):
            register_planner("mine", "allgather")(make)
    finally:
        del PLANNERS["mine"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda _: None, "planner 'mine' returned None; expected a Plan"),
        (lambda topology: plan(topology, "allgather").schedule, "planner 'mine' returned <Forest.*; expected a Plan"),
        (lambda topology: plan(topology, "allreduce"), "a plan of allreduce on ring-4; expected one of allgather"),
        (lambda _: plan(ring(5), "allgather"), "returned a plan of allgather on ring-5; expected one of .* on ring-4"),
    ],
)
def test_what_a_planner_returns_is_a_plan_of_the_problem(result: Callable[[Topology], Any], reason: str) -> None:
    """Or an error, which is the planner's own row in comparisons."""
    register_planner("mine", "allgather")(result)
    try:
        with pytest.raises(CertificateError, match=reason):
            plan(ring(4), "allgather", planner="mine")
        table = compare(ring(4), "allgather", planners=["mine"])
        assert table.loc[table["planner"] == "mine", "status"].tolist() == ["failed"]
    finally:
        del PLANNERS["mine"]


@pytest.mark.parametrize("name", [None, 3, ""])
def test_the_name_of_a_planner_is_a_string(name: Any) -> None:
    """Another would break the list of all planners."""
    with pytest.raises(UnsupportedError, match=r"the planner's name is .*; expected a string"):
        register_planner(name, "allgather")(lambda topology: plan(topology, "allgather"))


def test_planners_of_other_packages_enter_by_entry_points(tmp_path: Path) -> None:
    """Those that cannot be loaded cost nothing but a warning."""
    (tmp_path / "theirs.py").write_text(
        "from collopt.planners import plan, register_planner\n"
        "@register_planner('theirs', ['allgather'])\n"
        "def plan_theirs(topology, *, channels=None):\n"
        "    'Plan rings.'\n"
        "    return plan(topology, 'allgather', planner='ring', channels=channels)\n"
    )
    (tmp_path / "theirs-1.dist-info").mkdir()
    (tmp_path / "theirs-1.dist-info" / "METADATA").write_text("Name: theirs\nVersion: 1\n")
    (tmp_path / "theirs-1.dist-info" / "entry_points.txt").write_text(
        "[collopt.planners]\ntheirs = theirs:plan_theirs\ngone = gone:plan\n"
    )
    call = [sys.executable, "-m", "collopt", "plan", "ring", "--nodes", "3", "allgather", "--planner", "theirs"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    answer = subprocess.run(call, env=environment, capture_output=True, text=True, check=True)
    assert "by ring, verified" in answer.stdout
    assert "the planner gone of gone:plan cannot be loaded" in answer.stderr


def test_the_page_of_planners_lists_them_all() -> None:
    """With summary and options, and below with networks and sources."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "planners.md").read_text(encoding="utf-8")
    for planner in PLANNERS.values():
        options = ", ".join(f"`{option}`" for option in planner.options)
        assert re.search(rf"(?m)^\| `{planner.name}` \| {re.escape(planner.summary)} \| .* \| {options} \|$", page)
        assert page.count(f"\n| `{planner.name}` | ") == (1 if planner.name == "auto" else 2)


def test_a_planner_does_not_import_the_others() -> None:
    """Modules of planners are imported when somebody asks for them."""
    code = "import sys, collopt; collopt.plan(collopt.topology('ring', n=4), 'allgather', planner='forestcoll')"
    command = [sys.executable, "-c", f"{code}; print(*sys.modules)"]
    modules = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert "collopt.planners.trees.forestcoll" in modules
    assert modules.isdisjoint({"collopt.planners.portfolio", "collopt.planners.direct_connect.find", "collopt.runtime"})


def test_planners_lie_in_zip_files_too(tmp_path: Path) -> None:
    """Their modules are read there as in folders."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("one.py", "deep/er/two.py", "deep/three.pyc"):
            archive.writestr(f"planners/{name}", "text")
    modules = dict(_sources(zipfile.Path(archive.filename, "planners/"), "collopt.planners"))
    assert modules == {"collopt.planners.one": "text", "collopt.planners.deep.er.two": "text"}
