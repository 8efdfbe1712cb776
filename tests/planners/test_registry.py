"""Planners by name, and what is not in the list."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from collopt import bound, plan
from collopt.errors import UnsupportedError
from collopt.planners import PLANNERS, Plan, Planner
from collopt.topologies import Topology, ring


def test_every_planner_is_listed_under_its_name() -> None:
    """With one line about it and at least one collective."""
    assert "forestcoll" in PLANNERS
    for name, entry in PLANNERS.items():
        assert entry.name == name
        assert entry.summary
        assert "\n" not in entry.summary
        assert entry.functions


def test_the_default_planner_plans_what_it_lists() -> None:
    """`plan` takes the same options as the function behind it."""
    assert inspect.signature(plan).parameters["planner"].default == "forestcoll"
    assert "allgather" in PLANNERS["forestcoll"].functions
    made = plan(ring(3), "allgather", planner="forestcoll", trees_per_root=2)
    assert (made.planner, made.schedule.trees_per_root) == ("forestcoll", 2)
    direct = PLANNERS["forestcoll"].functions["allgather"](ring(3), trees_per_root=2)
    assert direct.inverse_rate == made.inverse_rate


@pytest.mark.parametrize("name", ["forest", "FORESTCOLL", "", None, 3, [], {}, ("forestcoll",)])
def test_unknown_planners_are_refused(name: Any) -> None:
    """With the known ones."""
    with pytest.raises(UnsupportedError, match=r"^there is no planner .*; expected one of .*forestcoll"):
        plan(ring(3), "allgather", planner=name)


@pytest.mark.parametrize("collective", ["all_gather", "ALLGATHER", "gossip", "", None, 3, [], {}, ["allgather"]])
def test_unknown_collectives_are_refused(collective: Any) -> None:
    """With the known ones, by planner and bound."""
    with pytest.raises(
        UnsupportedError, match=r"planner 'forestcoll' does not cover the collective .*; expected one of .*allgather"
    ):
        plan(ring(3), collective)
    with pytest.raises(UnsupportedError, match=r"bound does not cover the collective .*; expected one of .*allgather"):
        bound(ring(3), collective)


@pytest.mark.parametrize("option", ["trees", "k", "topology", "Trees_per_root", "seed"])
def test_unknown_options_are_refused(option: str) -> None:
    """With the known ones; the topology is no option."""
    arguments: dict[str, Any] = {option: 3}
    if option == "topology":
        with pytest.raises(TypeError):
            plan(ring(3), "allgather", **arguments)
    else:
        with pytest.raises(
            UnsupportedError, match=rf"^planner 'forestcoll' has no option '{option}'; expected one of .*trees_per_root"
        ):
            plan(ring(3), "allgather", **arguments)


def test_a_planner_added_to_the_list_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the options of its own function, and only for its collectives."""
    asked: list[tuple[Topology, int]] = []

    def make(topology: Topology, *, effort: int = 1) -> Plan:
        asked.append((topology, effort))
        return plan(topology, "allgather")

    monkeypatch.setitem(PLANNERS, "mine", Planner("mine", "for this test", {"allgather": make}))
    topology = ring(4)
    assert plan(topology, "allgather", planner="mine", effort=3).topology is topology
    assert asked == [(topology, 3)]
    with pytest.raises(
        UnsupportedError, match=r"^planner 'mine' has no option 'trees_per_root'; expected one of effort$"
    ):
        plan(topology, "allgather", planner="mine", trees_per_root=1)
    with pytest.raises(UnsupportedError, match=r"planner 'mine' does not cover the collective 'reduce_scatter'"):
        plan(topology, "reduce_scatter", planner="mine")
