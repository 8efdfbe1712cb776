"""Plans for several numbers of trees per root, side by side."""

from __future__ import annotations

import pytest

import collopt
from collopt.errors import UnsupportedError
from collopt.topologies import Topology, mi250, ring


def test_rows_are_the_plans_that_they_describe() -> None:
    """Heights, trees and time are read off the plan in the row."""
    frame = collopt.scan_trees_per_root(mi250(boxes=1), "reduce_scatter", [1, 2], size="64M")
    for _, row in frame.iterrows():
        plan = row["plan"]
        plan.verify()
        assert row["num_trees"] == plan.schedule.num_trees
        assert row["estimate_us"] == plan.estimate("64M")
        assert row["min_height"] <= row["mean_height"] <= row["max_height"] == plan.schedule.heights.max()


def test_rows_that_another_beats_in_everything_are_not_on_the_frontier() -> None:
    """The optimum is never beaten; a row is marked off exactly if some other is as good everywhere and better once."""
    frame = collopt.scan_trees_per_root(mi250(), "allgather")
    assert frame["pareto"].iloc[-1]
    for number, row in frame.iterrows():
        others = frame.drop(index=number)
        good = (
            (others["algbw"] >= row["algbw"])
            & (others["max_height"] <= row["max_height"])
            & (others["num_trees"] <= row["num_trees"])
        )
        better = (
            (others["algbw"] > row["algbw"])
            | (others["max_height"] < row["max_height"])
            | (others["num_trees"] < row["num_trees"])
        )
        assert row["pareto"] == (not (good & better).any())


def test_no_row_of_an_allreduce_beats_the_last() -> None:
    """All rows are the best of the exact planners, and each says whose it is."""
    links = [("a", "b", 2), ("b", "c", 1), ("c", "a", 4)]
    topology = Topology.from_links(links, compute="abc")
    frame = collopt.scan_trees_per_root(topology, "allreduce", [1, 2, 3, 4])
    assert frame["algbw"].max() == frame["algbw"].iloc[-1] == 1
    assert frame["gap"].iloc[-1] == 0
    assert frame["planner"].tolist() == [plan.planner for plan in frame["plan"]]
    assert frame["planner"].iloc[-1] == "allreduce-lp"
    alone = collopt.scan_trees_per_root(topology, "allreduce", [1, 2, 3, 4], planner="forestcoll")
    assert set(alone["planner"]) == {"forestcoll"}
    assert (alone["algbw"] <= frame["algbw"]).all()
    assert len(collopt.scan_trees_per_root(topology, "allreduce")) == 9


def test_planners_that_take_no_number_of_trees_are_refused() -> None:
    """By the message of `plan`."""
    with pytest.raises(UnsupportedError, match=r"^planner 'strength' has no option 'trees_per_root'"):
        collopt.scan_trees_per_root(ring(4), "allreduce", planner="strength")
