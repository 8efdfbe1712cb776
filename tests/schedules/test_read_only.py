"""Nobody writes to the arrays of a schedule or a plan, however it came about."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from collopt import Plan, plan
from collopt.errors import UnsupportedError
from collopt.schedules import Allreduce, Forest
from collopt.schedules.trees.tree_arrays import ARRAYS
from collopt.support.arrays import read_only
from collopt.topologies import ring

Thing = TypeVar("Thing")

WAYS: dict[str, Callable[[object], object]] = {
    "made": lambda made: made,
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    "pickled": lambda made: pickle.loads(pickle.dumps(made)),
    "replaced": replace,  # type: ignore[dict-item]
}


def came(way: str, thing: Thing) -> Thing:
    """The thing after one of the ways in which things come about."""
    return WAYS[way](thing)  # type: ignore[return-value]


def two_way() -> Forest:
    """Two ranks that send to each other."""
    return Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*ARRAYS, "parents", "depths"])
def test_a_forest_cannot_be_written_to(name: str, way: str) -> None:
    """Neither its own arrays nor what is derived from them."""
    forest = two_way()
    assert forest.depths.tolist() == [[0, 1], [1, 0]]
    again = came(way, forest)
    assert np.array_equal(getattr(again, name), getattr(forest, name))
    with pytest.raises(ValueError, match="read-only"):
        getattr(again, name)[...] = 0


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_cannot_be_written_to(way: str) -> None:
    """And still proves itself."""
    made = came(way, plan(ring(4), "allreduce"))
    assert isinstance(made, Plan)
    assert isinstance(made.schedule, Allreduce)
    made.verify()
    for array in (made.link_loads, made.schedule.reduce.weights, made.schedule.broadcast.routes):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_the_arrays_that_came_in_are_left_alone() -> None:
    """Their owner may write to them; they are not copied either."""
    old = two_way()
    weights = np.array([1, 1])
    forest = replace(old, weights=weights)
    assert weights.flags.writeable
    assert np.shares_memory(forest.weights, weights)
    made = plan(ring(4), "allgather")
    loads = made.link_loads.copy()
    assert replace(made, link_loads=loads).link_loads is not loads
    assert loads.flags.writeable


def test_what_cannot_be_written_to_is_not_wrapped_again() -> None:
    """So two forests can share arrays, and be seen to."""
    view = read_only(np.arange(3))
    assert read_only(view) is view
    forest = two_way()
    assert replace(forest, direction="reduce").routes is forest.routes


def test_what_is_no_array_is_refused() -> None:
    """When a schedule or a plan is made."""
    with pytest.raises(UnsupportedError, match=r"^the forest's roots is \[0, 1\]; expected a numpy array of integers$"):
        replace(two_way(), roots=[0, 1])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match=r"^the plan's link_loads is None; expected a numpy array of integers$"):
        replace(plan(ring(4), "allgather"), link_loads=None)  # type: ignore[arg-type]
