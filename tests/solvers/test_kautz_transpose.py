"""Transposed generalized Kautz graphs by arithmetic, against the kernel that looks at any graph."""

from __future__ import annotations

from fractions import Fraction

import pytest

from collopt.planners.direct_connect.bfb import bfb_cost
from collopt.solvers.steps.graph_costs import kautz_figures, kautz_transpose_factor
from collopt.topologies import generalized_kautz


@pytest.mark.parametrize("degree", [2, 3, 4, 5, 7])
def test_small_transposes_agree_with_the_general_kernel(degree: int) -> None:
    """Self-loops or not."""
    for size in range(degree + 1, 71):
        cost = bfb_cost(generalized_kautz(degree, size).graph.transpose())
        assert cost == (kautz_figures(degree, size).steps, kautz_transpose_factor(degree, size)), size


@pytest.mark.parametrize(
    ("degree", "size", "factor"), [(2, 9, (10, 9)), (2, 15, (4, 3)), (2, 36, (23, 18)), (3, 7, (12, 7))]
)
def test_transposes_can_be_better_or_worse(degree: int, size: int, factor: tuple[int, int]) -> None:
    """The graphs themselves take 14/9, 26/15, 31/18 and 9/7."""
    assert kautz_transpose_factor(degree, size) == Fraction(*factor)
    assert (kautz_figures(degree, size).bandwidth_factor < Fraction(*factor)) == (degree == 3)
