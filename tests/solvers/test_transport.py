"""Integral transport plans: exact sums whatever the target."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collopt.solvers.flows.rounding import integral_transport


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """A plan that exists, and which entries may be positive."""
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    allowed = draw(hnp.arrays(np.bool_, shape))
    return draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 40))) * allowed, allowed


@given(problems(), st.integers(0, 2**32 - 1))
def test_sums_are_met_exactly_and_only_allowed_entries_used(problem: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    """Whenever some plan has these sums, one is found, for any target."""
    known, allowed = problem
    target = np.random.default_rng(seed).random(known.shape)
    plan = integral_transport(known.sum(axis=1), known.sum(axis=0), target, allowed)
    assert plan is not None
    assert plan.sum(axis=1).tolist() == known.sum(axis=1).tolist()
    assert plan.sum(axis=0).tolist() == known.sum(axis=0).tolist()
    assert plan.min() >= 0
    assert not plan[~allowed].any()


def test_rounding_stays_within_one_of_the_proportional_plan() -> None:
    """Ten units over three equal columns are 3, 3 and 4, not 10, 0 and 0."""
    plan = integral_transport(np.array([10, 5]), np.array([5, 5, 5]), np.ones((2, 3)), np.ones((2, 3), dtype=bool))
    assert plan is not None
    assert np.abs(plan - np.array([[10 / 3] * 3, [5 / 3] * 3])).max() < 1


def test_no_plan_where_none_exists() -> None:
    """The only column that the first row may use is too small."""
    allowed = np.array([[True, False], [True, True]])
    assert integral_transport(np.array([3, 1]), np.array([2, 2]), np.ones((2, 2)), allowed) is None
