"""Planners side by side."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

import collopt
from collopt.planners import PLANNERS, Plan, Planner
from collopt.planners.what_if.compare import BOUNDS, compare
from collopt.schedules import ALLGATHER, TREE_COLLECTIVES
from collopt.topologies import Topology, complete, dgx_a100, dgx_h100, mi250, ring

COLUMNS = ["kind", "planner", "status", "reason", "algbw", "algbw_exact", "bound", "bound_exact", "gap"]
COLUMNS += ["tree_bound", "tree_bound_exact", "tree_gap", "num_trees", "max_height", "num_steps", "seconds"]
COLUMNS += ["compile_seconds", "plan"]

OF_TREES = (
    [name for name in BOUNDS if name not in ("multicommodity", "steiner-trees")],
    [name for name, planner in PLANNERS.items() if name != "auto" and any(map(planner.plans, TREE_COLLECTIVES))],
)
"""Bounds and planners of collectives that trees carry out."""


def rows(frame: pd.DataFrame, kind: str = "plan") -> dict[str, dict[str, Any]]:
    """By name of planner or bound."""
    return {row["planner"]: row for row in frame.to_dict("records") if row["kind"] == kind}


def test_every_planner_and_bound_has_a_row() -> None:
    """In their order; all columns are there whatever came of it."""
    frame = compare(ring(4), "allgather")
    assert list(frame.columns) == COLUMNS
    assert frame["planner"].tolist() == [*OF_TREES[0], *OF_TREES[1]]
    assert frame["kind"].tolist() == ["bound"] * len(OF_TREES[0]) + ["plan"] * len(OF_TREES[1])
    assert (frame["seconds"] > 0).all()
    assert (frame["compile_seconds"] >= 0).all()
    assert set(frame["status"]) == {"ok", "not applicable"}
    silent = frame[frame["planner"] != "milp"]  # which says what its search has proved
    assert (silent["reason"] == "").tolist() == (silent["status"] == "ok").tolist()


def test_plans_in_steps_stand_beside_plans_of_trees() -> None:
    """Each has the figures of its kind, and a predicted time of its own."""
    topology = ring(5, bandwidth=25, latency=2)
    found = rows(compare(topology, "allgather", planners=["bfb", "ring"], bounds=[], sizes=["1M"]))
    steps, trees = found["bfb"], found["ring"]
    assert steps["num_steps"] == steps["plan"].num_steps == 2
    assert pd.isna(steps["num_trees"])
    assert pd.isna(steps["max_height"])
    assert (steps["gap"], steps["us_1M"]) == (0, steps["plan"].estimate("1M"))
    assert pd.isna(trees["num_steps"])
    assert trees["max_height"] == 4


def test_gaps_are_to_the_lowest_bound() -> None:
    """The strength bounds this allreduce lower than any cut that ForestColl's bound looks at, or as low."""
    triangle = Topology.from_links([("a", "b", 2), ("a", "c", 2), ("b", "c", 3)], compute="abc", bidirectional=True)
    frame = compare(triangle, "allreduce")
    found, bounds = rows(frame), rows(frame, "bound")
    assert bounds["strength"]["algbw_exact"] == Fraction(7, 2) <= bounds["forestcoll"]["algbw_exact"]
    assert set(frame["bound_exact"]) == {Fraction(7, 2)}
    assert found["strength"]["gap"] == found["allreduce-lp"]["gap"] == 0
    assert found["forestcoll"]["gap"] == pytest.approx(1 / 7)


def test_bounds_on_trees_alone_are_not_taken_for_bounds() -> None:
    """The linear program of an allreduce is about roots; its row says so, and gaps do not count it."""
    links = [("g0", "g1", 2), ("g1", "g2", 2), ("g2", "g3", 4), ("g3", "g4", 2), ("g4", "g0", 4), ("g4", "g1", 3)]
    frame = compare(Topology.from_links(links, compute=[f"g{rank}" for rank in range(5)]), "allreduce")
    program = rows(frame, "bound")["linear-program"]
    assert (
        program["reason"] == "holds for allreduces that reduce every byte at one rank and broadcast it from there only"
    )
    assert program["algbw_exact"] == Fraction(4, 3) < program["bound_exact"]
    assert rows(frame)["allreduce-lp"]["algbw_exact"] == Fraction(4, 3)
    assert rows(frame)["allreduce-lp"]["gap"] > 0
    assert set(frame["tree_bound_exact"]) == {Fraction(4, 3)}
    assert rows(frame)["allreduce-lp"]["tree_gap"] == 0


def test_gaps_of_trees_are_those_that_their_plans_state() -> None:
    """Where a switch loops copies back, the bound of all schedules is reached; elsewhere the one of trees may be."""
    found = rows(compare(dgx_h100(), "allreduce", planners=["strength", "nvls", "ring"], bounds=["strength"]))
    assert [found[name]["gap"] for name in found] == [0, 0, pytest.approx(5 / 14)]
    assert [found[name]["tree_gap"] for name in found] == [0, 0, pytest.approx(5 / 14)]
    links = [("a", "b", 3), ("a", "s", 4), ("b", "s", 3), ("c", "s", 6)]
    able = {"multicast": "s", "aggregation": "s"}
    three = collopt.Topology.from_links(links, compute="abc", switches="s", bidirectional=True, **able)
    found = rows(compare(three, "allreduce", planners=["steiner"], bounds=[]))
    assert [found["steiner"][name] for name in ("bound", "gap", "tree_bound", "tree_gap")] == [
        6,
        pytest.approx(1 / 6),
        5,
        0,
    ]
    steps = compare(ring(4), "allreduce", planners=["bfb", "ring"], bounds=["linear-program"])
    assert pd.isna(rows(steps)["bfb"]["tree_gap"])
    assert rows(steps)["ring"]["tree_gap"] == 0


def test_planners_that_do_not_suit_say_why() -> None:
    """A topology, a collective, or shards that they do not plan for."""
    found = rows(compare(complete(6), "broadcast", root=2))
    assert {name for name, row in found.items() if row["status"] == "ok"} == {
        "forestcoll",
        "ring",
        "double-binary-tree",
        "blink",
        "nccl",
    }
    assert found["multitree"]["reason"].startswith("the planner 'multitree' does not cover the collective 'broadcast'")
    assert rows(compare(complete(6), "allgather", planners=["recursive-halving-doubling"]))[
        "recursive-halving-doubling"
    ]["reason"].startswith("recursive-halving-doubling needs a power of two ranks")
    weighted = rows(compare(dgx_a100(boxes=2), "allgather", weights=[1, 2] * 8, bounds=[]))
    assert weighted["recursive-halving-doubling"]["reason"].startswith(
        "planner 'recursive-halving-doubling' takes no weights"
    )
    assert weighted["ring"]["status"] == weighted["multitree"]["status"] == "ok"


def test_large_programs_are_not_solved_for_comparison() -> None:
    """Their row says how to solve them all the same."""
    frame = compare(mi250(boxes=2), "allreduce", planners=[], bounds=["linear-program"])
    (row,) = rows(frame, "bound").values()
    assert row["status"] == "not applicable"
    assert "about 13312 columns" in row["reason"]
    assert row["bound_exact"] is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ZeroDivisionError("division by zero\nand more"), "ZeroDivisionError: division by zero"),
        (RecursionError(), "RecursionError"),
    ],
)
def test_errors_that_nobody_raises_on_purpose_fail_one_row(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    """Of a planner and of a bound: with their type, and one line."""

    def fail(*_: object) -> Any:
        raise error

    monkeypatch.setitem(PLANNERS, "mine", Planner("mine", lambda topology: fail(), [ALLGATHER]))
    monkeypatch.setitem(BOUNDS, "mine", ([ALLGATHER], fail))
    frame = compare(ring(3), "allgather", planners=["mine", "ring"], bounds=["mine", "forestcoll"])
    for kind, other in (("plan", "ring"), ("bound", "forestcoll")):
        found = rows(frame, kind)
        assert (found["mine"]["status"], found["mine"]["reason"], found["mine"]["plan"]) == ("failed", reason, None)
        assert found[other]["status"] == "ok"


def test_whoever_interrupts_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of going on to the next planner."""

    def interrupt(topology: Topology) -> Plan:
        raise KeyboardInterrupt

    monkeypatch.setitem(PLANNERS, "mine", Planner("mine", interrupt, [ALLGATHER]))
    with pytest.raises(KeyboardInterrupt):
        compare(ring(3), "allgather", planners=["mine", "ring"])


def test_names_are_asked_once_and_auto_on_request() -> None:
    """In the order given."""
    asked: Sequence[str] = ["auto", "ring", "auto"]
    assert list(rows(compare(ring(4), "allgather", planners=asked, bounds=[]))) == ["auto", "ring"]
