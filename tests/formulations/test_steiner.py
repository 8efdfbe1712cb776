"""The program of trees that branch at switches: its rows, what trees load, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from collopt import solve
from collopt.errors import CertificateError, UnsupportedError
from collopt.formulations import steiner
from collopt.formulations.steiner import SteinerTree
from looping_star import STAR

BRANCHED = ((0, 3), (3, 1), (3, 2))
PASSED = ((0, 3, 1), (1, 3, 2))


def test_a_tree_loads_what_its_schedule_loads() -> None:
    """Once for each path, and back from a switch that branches it; reductions the other way."""
    ends = [link[:2] for link in STAR.links]
    for paths, loads in ((BRANCHED, [1, 1, 0, 1, 0, 1]), (PASSED, [1, 0, 1, 1, 0, 1])):
        pairs = [("a", "s"), ("s", "a"), ("b", "s"), ("s", "b"), ("c", "s"), ("s", "c")]
        expected = dict(zip(pairs, loads, strict=True))
        assert SteinerTree(0, "broadcast", paths).loads(STAR).tolist() == [expected[pair] for pair in ends]
        assert SteinerTree(0, "reduce", paths).loads(STAR).tolist() == [expected[pair[::-1]] for pair in ends]


def test_trees_may_be_added_in_several_calls() -> None:
    """Each raises the rate: one in-tree with either out-tree, then both."""
    model = steiner.build(STAR)
    model.add_trees([SteinerTree(0, "reduce", BRANCHED)])
    assert solve(model).objective == 0
    model.add_trees([SteinerTree(0, "broadcast", BRANCHED)])
    assert solve(model).objective == 15
    model.add_trees([SteinerTree(root, kind, _turned(root)) for root in (1, 2) for kind in ("reduce", "broadcast")])
    assert solve(model).exact.objective == 22.5
    assert [tree.root for tree in model.trees] == [0, 0, 1, 1, 2, 2]


def _turned(root: int) -> tuple[tuple[int, ...], ...]:
    return ((root, 3), *((3, rank) for rank in range(3) if rank != root))


def test_a_tree_that_does_not_fit_leaves_no_trace() -> None:
    """Nor does none at all."""
    model = steiner.build(STAR)
    with pytest.raises(CertificateError, match="a link that the topology does not have"):
        model.add_trees([SteinerTree(0, "reduce", BRANCHED), SteinerTree(0, "broadcast", ((0, 1), (1, 3, 2)))])
    model.add_trees([])
    assert (model.trees, list(solve(model).values)) == ([], ["root_rate"])


def test_a_rate_counts_shards_by_weight() -> None:
    """Rank a has twice what b has; c has nothing."""
    model = steiner.build(STAR, "allgather", weights=(2, 1, 0))
    model.add_trees([SteinerTree(root, "broadcast", _turned(root)) for root in (0, 1)])
    solution = solve(model)
    assert solution.objective == 10
    assert solution.values["trees_0"].tolist() == [20, 10]
    model.constrain("slow", [(model.rate, 1.0)], upper=4)
    assert solve(model).objective == 4


@pytest.mark.parametrize("weights", [(1, 2), (1, 2, -1), (1, 2, 0.5), (0, 0, 0)])
def test_weights_are_whole_numbers_of_ranks(weights: Any) -> None:
    """One each, not all of them 0."""
    with pytest.raises(UnsupportedError, match="expected a whole number for each of 3 ranks"):
        steiner.build(STAR, "allgather", weights=weights)
