"""Forests as JSON: back and forth, and every form that is not a forest."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from collopt.errors import CertificateError, FileFormatError
from collopt.planners import plan
from collopt.schedules import Forest, schedule_from_json, schedule_to_json, verified_loads
from collopt.topologies import Topology, complete
from strategies import eulerian_topologies

ARRAYS = ("roots", "weights", "routes", "path_starts", "path_nodes")


def document() -> dict[str, Any]:
    """Two ranks around a switch, two trees each, as `json.loads` gives it."""
    star = [(0, 1, [(0, 2, 1)]), (0, 1, [(0, 1)]), (1, 2, [(1, 2, 0)])]
    return json.loads(json.dumps(schedule_to_json(Forest.from_paths(2, 2, star))))  # type: ignore[no-any-return]


@given(eulerian_topologies())
def test_forests_come_back_as_they_were(topology: Topology) -> None:
    """Through JSON text, arrays with their types."""
    made = plan(topology, "allgather").schedule
    again = schedule_from_json(json.loads(json.dumps(schedule_to_json(made))), "text")
    assert (again.num_ranks, again.trees_per_root) == (made.num_ranks, made.trees_per_root)
    for name in ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(made, name))
        assert getattr(again, name).dtype == getattr(made, name).dtype


def test_the_form_is_the_documented_one() -> None:
    """Paths as node numbers; trees as root, weight and path per rank."""
    made = document()
    assert made["kind"] == "forest"
    assert made["trees_per_root"] == 2
    assert made["paths"] == [[0, 2, 1], [0, 1], [1, 2, 0]]
    assert made["trees"] == [[0, 1, [-1, 0]], [0, 1, [-1, 1]], [1, 2, [2, -1]]]


def test_only_the_form_is_checked() -> None:
    """What makes no sense on a network is for the checker to refuse."""
    made = document()
    made["trees"][0] = [7, -3, [99, 99]]
    assert schedule_from_json(made, "here").roots.tolist() == [7, 0, 1]


@pytest.mark.parametrize("paths", [[], [[]]])
def test_forests_without_paths_are_refused_on_a_network(paths: list[object]) -> None:
    """As what does not make paths of two nodes or more."""
    made = document()
    made["paths"] = paths
    with pytest.raises(CertificateError, match="path_starts do not cut its path_nodes into paths of two or more"):
        verified_loads(schedule_from_json(made, "here"), complete(2))


def put(value: object, *place: str | int) -> Callable[[dict[str, Any]], object]:
    """A change that writes `value` at some place of the document."""

    def change(made: dict[str, Any]) -> None:
        target: Any = made
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value

    return change


Cases = dict[str, tuple[Callable[[dict[str, Any]], object], str]]


def cases(what: str, values: list[object], message: str, *place: str | int) -> Cases:
    """One case for each value that is written to some place."""
    return {f"{what} {value!r}": (put(value, *place), message) for value in values}


NO_INTEGERS = [None, "2", Decimal(2), Decimal("NaN"), 2**63, -(2**63) - 1, 10**90, [2], {}, True, False]
NO_ROWS = [None, 3, {}, "01", [], [3], ["01"], [None]]
BAD: Cases = {
    "another kind": (put("flow", "kind"), "field schedule"),
    "a field more": (put(1, "extra"), "field schedule"),
    **{f"no {name}": (lambda made, name=name: made.pop(name), "field schedule") for name in document()},
    **cases(
        "count",
        [0, -1, *NO_INTEGERS],
        r"field schedule.trees_per_root is .*; expected a whole number from 1",
        "trees_per_root",
    ),
    **cases("paths", [rows for rows in NO_ROWS if rows], "schedule.paths is not", "paths"),
    **cases("path node", [*NO_INTEGERS, -1], "field schedule.paths (is not a list|has)", "paths", 0, 1),
    **cases("trees", NO_ROWS, "schedule.trees", "trees"),
    **cases("tree", [[0, 1], [0, 1, [-1, 0], 1], {}, "abc", "ab", None], "schedule.trees", "trees", 1),
    **cases("root", NO_INTEGERS, "the roots of schedule.trees are not whole numbers", "trees", 1, 0),
    **cases("weight", NO_INTEGERS, "the weights of schedule.trees are not whole numbers", "trees", 1, 1),
    **cases(
        "routes", [None, 3, "ab", {}, [], [-1], [-1, 0, 0], [[-1, 0]]], "the routes of schedule.trees", "trees", 1, 2
    ),
    **cases("route", [2**31, *NO_INTEGERS], "the routes of schedule.trees", "trees", 1, 2, 1),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_forest_is_refused(case: str) -> None:
    """In one line that names the document and the field."""
    change, message = BAD[case]
    made = document()
    change(made)
    before = copy.deepcopy(made)
    with pytest.raises(FileFormatError, match=rf"^here: .*{message}"):
        schedule_from_json(made, "here")
    assert made == before


@pytest.mark.parametrize("value", [None, 3, "forest", [], [1], {}])
def test_what_is_no_object_is_refused(value: object) -> None:
    """Before any field is looked at."""
    with pytest.raises(FileFormatError, match=r"^here: field schedule"):
        schedule_from_json(value, "here")
