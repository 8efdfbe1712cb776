"""Whole flows near flows in floats: they bring what is asked for, over links that these use if that is possible."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.solvers.flows.rounding import rounded_flow
from sample_sizes import examples

TAILS, HEADS = np.array([0, 0, 1, 2, 1]), np.array([1, 2, 3, 3, 2])


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(-1e-7, 1e-7))
@settings(max_examples=examples(50))
def test_sums_of_paths_come_back_whole(amounts: list[int], error: float) -> None:
    """Whatever floats lost, each node is brought exactly what it asks for, or more."""
    upper, lower, across, near = amounts
    flow = np.array([upper + across + near, lower, upper, lower + across, across], dtype=np.float64)
    demands = np.array([0, near, 0, upper + lower + across])
    if not demands.any():
        return
    found = rounded_flow(4, TAILS, HEADS, flow * (1 + error), 0, demands)
    kept = np.zeros(4, dtype=np.int64)
    np.add.at(kept, HEADS, found)
    np.subtract.at(kept, TAILS, found)
    assert kept[1:].tolist() == demands[1:].tolist()
    assert (found <= np.ceil(flow * (1 + error)) + 1).all()


def test_a_flow_that_goes_elsewhere_may_use_other_links() -> None:
    """A solver's tolerances can hide a demand that is small beside others."""
    found = rounded_flow(4, TAILS, HEADS, np.array([10.0, 0.0, 0.0, 0.0, 0.0]), 0, np.array([0, 10, 0, 3]))
    assert found[0] - found[2] - found[4] == 10
    assert found[2] + found[3] == 3
