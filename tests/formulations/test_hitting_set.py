"""Minimum hitting sets with routes that are not observed, against all sets of parts."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt import solve
from collopt.errors import UnsupportedError
from collopt.formulations import hitting_set
from collopt.solvers import Termination
from sample_sizes import examples

PARTS = 5
RUNS = st.lists(
    st.lists(st.frozensets(st.integers(0, PARTS - 1), min_size=1, max_size=3), min_size=1, max_size=3), max_size=5
)


@settings(max_examples=examples(60))
@given(slow=RUNS, fast=RUNS)
def test_finds_the_fewest_faulty_parts(slow: list[list[frozenset[int]]], fast: list[list[frozenset[int]]]) -> None:
    """The optimum is that of trying all sets, and infeasible where none explains the runs."""
    sets = [frozenset(some) for count in range(PARTS + 1) for some in combinations(range(PARTS), count)]
    consistent = [
        some
        for some in sets
        if all(any(route & some for route in run) for run in slow)
        and all(any(not route & some for route in run) for run in fast)
    ]
    solution = solve(hitting_set.build(PARTS, slow, fast))
    if consistent:
        faulty = frozenset(part for part in range(PARTS) if solution.values["faulty"][part] > 0.5)
        assert faulty in consistent
        assert len(faulty) == len(consistent[0])
    else:
        assert solution.status.termination is Termination.INFEASIBLE


@pytest.mark.parametrize("arguments", [(0, []), (2, [[(2,)]]), (2, [], [[(-1,)]]), (2, [[("a",)]])])
def test_refuses_other_parts(arguments: tuple[int, list[object]]) -> None:
    """Parts are numbers below their count."""
    with pytest.raises(UnsupportedError):
        hitting_set.build(*arguments)  # type: ignore[arg-type]
