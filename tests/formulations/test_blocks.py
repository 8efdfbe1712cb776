"""Programs in blocks: what they compile to, and that all algorithms of HiGHS agree on them down to signs of prices."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from collopt.errors import NoAnswerError, UnsupportedError
from collopt.formulations.blocks import Blocks
from collopt.solvers import Algorithm, HighsOptions, Session, Solution, Termination, solve
from sample_sizes import examples

algorithms = pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: algorithm.name.lower())


def concurrent_flow(capacities: dict[tuple[int, int], float], nodes: int) -> Blocks:
    """All-to-all flow grouped by source: maximise what every ordered pair of nodes gets at the same time."""
    tails, heads = np.array(list(capacities)).T
    links = np.arange(len(capacities))
    blocks = Blocks("all to all")
    flow = blocks.variables("flow", (nodes, len(links)))
    rate = blocks.variables("rate", ())
    blocks.constraint("capacity", len(links), [(links, flow, 1)], upper=list(capacities.values()))
    sources = np.arange(nodes)[:, None]
    others = ~np.eye(nodes, dtype=bool)
    places = sources * nodes + np.arange(nodes)
    terms: list[Any] = [(sources * nodes + heads, flow, 1), (sources * nodes + tails, flow, -1)]
    terms.append((places[others], rate, -1))
    lower = np.where(others, 0, -np.inf)
    blocks.constraint("delivery", (nodes, nodes), terms, lower=lower)
    blocks.maximize([(rate, 1)])
    return blocks


def two_way_ring(nodes: int, bandwidth: float) -> dict[tuple[int, int], float]:
    """Links of a ring, both ways."""
    pairs = list(pairwise([*range(nodes), 0]))
    return dict.fromkeys(pairs + [(head, tail) for tail, head in pairs], bandwidth)


def check_optimality(blocks: Blocks, solution: Solution, tolerance: float) -> None:
    """Feasibility, signs of prices, stationarity and strong duality, in the model's own sense."""
    program = blocks.linear_program()
    sign = -1 if program.maximize else 1
    x = np.concatenate([np.ravel(solution.values[name]) for name in program.variables])
    y = sign * np.concatenate([np.ravel(solution.duals[name]) for name in program.constraints])
    z = sign * np.concatenate([np.ravel(solution.reduced_costs[name]) for name in program.variables])
    costs = sign * program.costs
    assert z == pytest.approx(costs - program.matrix.T @ y, abs=tolerance)
    bound = 0.0
    for values, prices, (lower, upper) in (
        (program.matrix @ x, y, program.row_bounds),
        (x, z, program.column_bounds),
    ):
        assert (values >= lower - tolerance).all()
        assert (values <= upper + tolerance).all()
        # A price above zero holds up a lower bound, one below zero an upper bound.
        assert (prices[np.isinf(lower)] <= tolerance).all()
        assert (prices[np.isinf(upper)] >= -tolerance).all()
        active = np.where(prices > 0, np.where(np.isinf(lower), 0, lower), np.where(np.isinf(upper), 0, upper))
        bound += float(prices @ active)
    assert bound == pytest.approx(float(costs @ x), abs=10 * tolerance)
    assert sign * solution.objective == pytest.approx(bound, abs=10 * tolerance)


@algorithms
def test_all_algorithms_agree_on_a_maximisation(algorithm: Algorithm) -> None:
    """HiGHS flips prices of a maximisation under two of the four; the door must not."""
    blocks = concurrent_flow(two_way_ring(5, 3.0), 5)
    solution = solve(blocks, HighsOptions(algorithm=algorithm))
    assert solution.status.termination is Termination.OPTIMAL
    # On a ring of 5 each of 10 links carries 3 of the 30 hops that a unit of every pair takes: 3 / 3.
    assert solution.objective == pytest.approx(1, rel=1e-4)
    prices = solution.duals["capacity"]
    assert prices.shape == (10,)
    assert (prices >= -1e-6).all()
    assert float(prices.sum() * 3) == pytest.approx(1, rel=1e-4)
    assert solution.duals["delivery"].shape == (5, 5)
    check_optimality(blocks, solution, 1e-3 if algorithm is Algorithm.PDLP else 1e-6)


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 10**6), maximize=st.booleans(), algorithm=st.sampled_from(list(Algorithm)[:3]))
def test_random_programs_agree_with_scipy(seed: int, maximize: bool, algorithm: Algorithm) -> None:
    """Random feasible programs within a box: optimality conditions hold, and another door finds the same value."""
    random = np.random.default_rng(seed)
    rows, columns = random.integers(1, 6, size=2)
    matrix = random.integers(-3, 4, size=(rows, columns)).astype(float)
    room = matrix @ random.random(columns) + random.random(rows)
    costs = random.integers(-5, 6, size=columns).astype(float)
    blocks = Blocks("random")
    x = blocks.variables("x", int(columns), upper=2)
    blocks.constraint("rows", int(rows), [(np.arange(rows)[:, None], x, matrix)], upper=room)
    (blocks.maximize if maximize else blocks.minimize)([(x, costs)])
    solution = solve(blocks, HighsOptions(algorithm=algorithm))
    try:
        check_optimality(blocks, solution, 1e-5)
    except NoAnswerError:  # such as seed 129: HiGHS stops with "Unknown", and the solution has no values to trust
        assert algorithm is Algorithm.IPM_WITHOUT_CROSSOVER
        return
    sign = -1 if maximize else 1
    other = linprog(sign * costs, A_ub=matrix, b_ub=room, bounds=(0, 2))
    assert solution.objective == pytest.approx(sign * other.fun, abs=1e-6)


def test_blocks_compile_to_the_arrays_that_they_describe() -> None:
    """Positions, broadcasting, and the sum of entries that meet."""
    blocks = Blocks()
    single = blocks.variables("single", (), lower=-1, upper=1)
    grid = blocks.variables("grid", (2, 3), upper=[[1], [2]])
    assert single.shape == ()
    assert grid.tolist() == [[1, 2, 3], [4, 5, 6]]
    blocks.constraint("sums", 2, [([[0], [1]], grid, [1, 2, 3]), ([0, 1], single, 5), (1, single, 2)], upper=[8, 9])
    blocks.constraint("empty", 0, [])
    blocks.constraint("last", 1, [(0, grid[1, 2], -1)], lower=-4)
    blocks.minimize([(grid[0], 1), (grid[0, 0], 2), (single, 7)])
    program = blocks.linear_program()
    assert program.matrix.toarray().tolist() == [[5, 1, 2, 3, 0, 0, 0], [7, 0, 0, 0, 1, 2, 3], [0, 0, 0, 0, 0, 0, -1]]
    assert program.costs.tolist() == [7, 3, 1, 1, 0, 0, 0]
    assert [side.tolist() for side in program.row_bounds] == [[-np.inf, -np.inf, -4], [8, 9, np.inf]]
    assert [side.tolist() for side in program.column_bounds] == [[-1] + [0] * 6, [1, 1, 1, 1, 2, 2, 2]]
    assert not program.maximize
    assert program.variables["grid"].label(5) == "grid[1,2]"
    assert program.variables["single"].label(0) == "single"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", 2, {}), "variable 'x' exists already; choose another name"),
        (("", 2, {}), "the name of a variable block is ''; expected text"),
        ((3, 2, {}), "the name of a variable block is 3"),
        (("y", -1, {}), "the shape of a block is -1; expected whole numbers"),
        (("y", (2, 1.5), {}), "the shape of a block is"),
        (("y", 2, {"lower": [0, float("nan")]}), "a bound of variable 'y' is not a number"),
        (("y", 2, {"upper": "high"}), "a bound of variable 'y' is 'high'; expected numbers"),
        (("y", 2, {"upper": [1, 2, 3]}), r"a bound of variable 'y' has shape \(3,\); expected \(2,\)"),
    ],
)
def test_refuses_variables_that_make_no_sense(arguments: tuple[Any, Any, dict[str, Any]], message: str) -> None:
    """What is refused leaves no trace: the next block gets the next column."""
    blocks = Blocks()
    blocks.variables("x", 3)
    name, shape, bounds = arguments
    with pytest.raises(UnsupportedError, match=message):
        blocks.variables(name, shape, **bounds)
    assert blocks.variables("y", ()) == 3


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ((0, 0), "a term of constraint 'c' is .*; expected .rows, columns, coefficients."),
        ((2, 0, 1), "a row of constraint 'c' is 2; expected 0 to 1"),
        ((-1, 0, 1), "a row of constraint 'c' is -1"),
        ((0, 3, 1), "a column of constraint 'c' is 3; expected 0 to 2"),
        ((0, 0.5, 1), "a column of constraint 'c' is of type float64; expected whole numbers"),
        ((0, 0, float("inf")), "a coefficient of constraint 'c' is not finite"),
        ((0, 0, "one"), "a coefficient of constraint 'c' is 'one'; expected numbers"),
        (([0, 1], [0, 1, 2], 1), "which do not broadcast"),
    ],
)
def test_refuses_terms_that_make_no_sense(term: Any, message: str) -> None:
    """The message names the constraint; what is refused leaves no trace."""
    blocks = Blocks()
    blocks.variables("x", 3)
    with pytest.raises(UnsupportedError, match=message):
        blocks.constraint("c", 2, [(0, 0, 1), term])
    blocks.constraint("c", 2, [(0, 0, 1)])
    with pytest.raises(UnsupportedError, match="constraint 'c' exists already"):
        blocks.constraint("c", 2, [(0, 0, 1)])
    assert blocks.linear_program().matrix.shape == (2, 3)


def test_constraints_take_terms_of_later_variables() -> None:
    """As in column generation; a session goes on from where it was."""
    blocks = Blocks("cut stock")
    blocks.constraint("room", 2, [], upper=[4, 6])
    first = blocks.variables("first", ())
    blocks.extend("room", [(0, first, 1)])
    blocks.maximize([(first, 1)])
    session = Session(blocks)
    assert session.solve().objective == 4
    later = blocks.variables("later", 2)
    blocks.extend("room", [([0, 1], later, [2, 3])])
    blocks.maximize([(first, 1), (later, 1)])
    solution = session.solve()
    assert solution.objective == 6
    assert solution.duals["room"].tolist() == [1, pytest.approx(1 / 3)]
    with pytest.raises(UnsupportedError, match="there is no constraint 'rooms' to extend"):
        blocks.extend("rooms", [(0, first, 1)])
    with pytest.raises(UnsupportedError, match="a row of constraint 'room' is 2"):
        blocks.extend("room", [(2, first, 1)])
