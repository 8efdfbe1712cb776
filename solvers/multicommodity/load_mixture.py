"""The best mixture of some flows: a small linear program over their loads.

A flow of every commodity may be replaced by a mixture of such flows, whose loads mix likewise.  So with loads c(k, e)
of flow k on link e, over capacity, the best mixture is

    minimise z  subject to  sum over k of x(k) c(k, e) <= z  for each link e,  sum of x(k) = 1,  x >= 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..highs.options import Algorithm, HighsOptions
from ..highs.session import solve
from ..highs.solution import PrimalStatus
from ..lp.program import BoolArray, FloatArray, Labels

__all__ = ["best_mixture"]

NEGLIGIBLE = 1e-7
"""Loads below this are left out: the solver does not take numbers of very different sizes."""


@dataclass(frozen=True)
class _Program:
    """A `collopt.solvers.lp.program.LinearProgram` of few columns, that is its own model."""

    costs: FloatArray
    matrix: Any
    row_bounds: tuple[FloatArray, FloatArray]
    column_bounds: tuple[FloatArray, FloatArray]
    whole: BoolArray
    name: str = "mixture of flows"
    maximize: bool = False
    offset: float = 0.0
    variables: Mapping[str, Labels] = field(default_factory=dict)
    constraints: Mapping[str, Labels] = field(default_factory=dict)

    def linear_program(self) -> _Program:
        """Return itself."""
        return self


def best_mixture(loads: FloatArray) -> FloatArray:
    """Find the shares of some flows whose greatest load is least.

    Parameters
    ----------
    loads : ndarray of float64, shape (flows, links)
        Over capacity; best near 1.

    Returns
    -------
    ndarray of float64, shape (flows,)
        Not negative, with sum 1; equal shares if the program could not be solved.

    Examples
    --------
    >>> import numpy as np
    >>> best_mixture(np.array([[1.0, 0.0], [0.0, 3.0]])).round(6)
    array([0.75, 0.25])
    """
    from scipy.sparse import csc_array

    flows, links = loads.shape
    matrix = np.zeros((links + 1, flows + 1))
    matrix[:links, :flows], matrix[:links, flows], matrix[links, :flows] = loads.T, -1, 1
    matrix[np.abs(matrix) < NEGLIGIBLE] = 0
    limits = np.append(np.zeros(links), 1.0)
    program = _Program(
        np.append(np.zeros(flows), 1.0),
        csc_array(matrix),
        (np.append(np.full(links, -np.inf), 1.0), limits),
        (np.zeros(flows + 1), np.full(flows + 1, np.inf)),
        np.zeros(flows + 1, dtype=np.bool_),
    )
    solution = solve(program, HighsOptions(algorithm=Algorithm.SIMPLEX))
    shares = np.ones(flows)
    if solution.status.primal is PrimalStatus.FEASIBLE:
        found = np.maximum(solution.evidence.values[:flows], 0.0)
        shares = found if found.any() else shares
    return np.asarray(shares / shares.sum())
