"""A model restated in CVXPY has the same feasible points, the same names, and room for convex objectives."""

from __future__ import annotations

import cvxpy
import numpy as np
import pyomo.environ as pyo
import pytest

import collopt
from collopt.errors import UnsupportedError
from collopt.formulations import cvxpy_constraints, sharing, throughput
from collopt.topologies import dgx_a100, mi250, ring, torus

TOPOLOGIES = [ring(4, bandwidth=30), torus(3, 3, bandwidth=10), dgx_a100(boxes=1), mi250(boxes=1)]


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda topology: topology.name)
def test_linear_objective_gives_the_same_optimum(topology: collopt.Topology) -> None:
    """CVXPY and HiGHS solve the same program."""
    model = throughput.build(topology)
    program = cvxpy_constraints.restate(model)
    problem = program.maximize(program.variables["rate"])
    problem.solve(solver=cvxpy.HIGHS)
    assert problem.value == pytest.approx(collopt.solve(model).objective)


def test_blocks_are_arrays_of_expressions() -> None:
    """Models of blocks keep the shape of each block, and equations, bounds and ranges all hold."""
    blocks = collopt.Blocks("diet")
    amount = blocks.variables("amount", (2, 2), upper=[[3, np.inf], [1, 2]])
    blocks.constraint("total", (), [(0, amount.ravel(), 1)], lower=4, upper=4)
    blocks.constraint("pair", 2, [(np.array([0, 1]), amount[0], 1)], lower=[0.5, 0.25])
    program = cvxpy_constraints.restate(blocks)
    assert program.variables["amount"].shape == (2, 2)
    problem = program.minimize(cvxpy.sum_squares(program.variables["amount"]))
    problem.solve(solver=cvxpy.CLARABEL)
    np.testing.assert_allclose(program.variables["amount"].value, 1, atol=1e-3)


def test_proportional_fairness_meets_its_optimality_condition() -> None:
    """At the best sum of logarithms no other division gains more, in relative terms, than it loses."""
    topology = ring(4, bandwidth=30)
    parts = {"gather": throughput.build(topology), "spread": throughput.build(topology, weights=[1, 0, 0, 0])}
    program = cvxpy_constraints.restate(sharing.build(topology, parts))
    rates = [program.variables["gather.rate"], program.variables["spread.rate"]]
    program.maximize(sum(map(cvxpy.log, rates))).solve(solver=cvxpy.CLARABEL)
    # 4 units of broadcast cost as much as 1 of allgather, and each gets half of the fabric.
    assert [rate.value for rate in rates] == pytest.approx([10, 30], rel=1e-4)


def test_refuses_what_cvxpy_could_not_solve() -> None:
    """Things that are no model, whole variables, and objectives of the wrong curvature."""
    with pytest.raises(UnsupportedError, match="cannot restate a int"):
        cvxpy_constraints.restate(3)
    whole = throughput.build(ring(4, bandwidth=30))
    whole.program.rate.domain = pyo.NonNegativeIntegers
    with pytest.raises(UnsupportedError, match="whole variables"):
        cvxpy_constraints.restate(whole)
    program = cvxpy_constraints.restate(throughput.build(ring(4, bandwidth=30)))
    with pytest.raises(UnsupportedError, match="not seen to be concave"):
        program.maximize(cvxpy.square(program.variables["rate"]))
    with pytest.raises(UnsupportedError, match="not seen to be convex"):
        program.minimize(cvxpy.log(program.variables["rate"]))
    with pytest.raises(UnsupportedError, match="no scalar expression"):
        program.minimize(cvxpy.hstack(list(program.variables["share"].values())))
