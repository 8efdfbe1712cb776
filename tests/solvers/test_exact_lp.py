"""Exact answers: what floats stand for, systems in rationals, optima with proofs, and intervals where there is none."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, random_array

from collopt.errors import CertificateError, NoAnswerError
from collopt.formulations import Blocks
from collopt.solvers import Algorithm, HighsOptions, solve
from collopt.solvers.lp.exact_optimum import RationalSystem
from collopt.solvers.lp.rationals import IntegerMatrix, as_exact, exact, float_fraction, simplest_between
from sample_sizes import examples

without_basis = pytest.mark.parametrize("algorithm", [Algorithm.IPM_WITHOUT_CROSSOVER, Algorithm.PDLP])

fractions = st.fractions(-1000, 1000, max_denominator=1000)


def thirds() -> Blocks:
    """Maximise x + y with 3 x + y <= 1 and x + 3 y <= 1/10: 13/40 at 29/80 and -7/80, but y is at least 0."""
    blocks = Blocks("thirds")
    x = blocks.variables("x", 2)
    blocks.constraint("room", 2, [([0, 0, 1, 1], x[[0, 1, 0, 1]], [3, 1, 1, 3])], upper=[1, 0.1])
    blocks.maximize([(x, 1)])
    return blocks


def transport(seed: int, supplies: int = 6, demands: int = 8) -> Blocks:
    """A random transport problem with decimal costs and bounds."""
    random = np.random.default_rng(seed)
    blocks = Blocks("transport")
    flow = blocks.variables("flow", (supplies, demands), upper=random.integers(5, 50, (supplies, demands)) / 10)
    slack = blocks.variables("missing", demands)
    blocks.constraint("supply", supplies, [(np.arange(supplies)[:, None], flow, 1)], upper=random.random(supplies) * 9)
    terms: list[Any] = [(np.arange(demands), flow, 1), (np.arange(demands), slack, 1)]
    blocks.constraint("demand", demands, terms, lower=random.integers(1, 100, demands) / 7)
    blocks.minimize([(flow, random.integers(1, 1000, (supplies, demands)) / 100), (slack, 99)])
    return blocks


@given(fraction=st.fractions(max_denominator=10**6).filter(lambda fraction: abs(fraction) < 10**4))
def test_a_float_means_the_fraction_that_was_rounded(fraction: Fraction) -> None:
    """Every fraction of moderate size comes back from its float."""
    assert float_fraction(float(fraction)) == fraction


@given(least=fractions, width=st.fractions(0, 2, max_denominator=500))
def test_the_simplest_fraction_has_the_smallest_denominator(least: Fraction, width: Fraction) -> None:
    """Compared with trying one denominator after the other."""
    most = least + width
    found = simplest_between(least, most)
    smaller = (Fraction(math.ceil(least * under), under) for under in range(1, found.denominator))
    assert least <= found <= most
    assert all(fraction > most for fraction in smaller)


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 10**6), size=st.integers(1, 40))
def test_systems_are_solved_exactly(seed: int, size: int) -> None:
    """Random sparse matrices whose diagonal outweighs 40 entries of 9, both ways, put into the equations."""
    random = np.random.default_rng(seed)
    matrix = random_array((size, size), density=0.2, rng=random, data_sampler=lambda size: random.integers(-9, 9, size))
    matrix = csc_array(matrix + np.diag(random.integers(4000, 9999, size)) / 10)
    sides = as_exact(random.integers(-50, 50, size) / 3)
    system = RationalSystem(matrix)
    for found, whole in ((system.solve(sides), matrix), (system.solve_transposed(sides), matrix.T)):
        assert found is not None
        rows, factors = IntegerMatrix.from_floats(whole)
        assert (rows.times(found) == factors * sides).all()


def test_a_system_beyond_floats_is_solved_all_the_same() -> None:
    """The inverse of the Hilbert matrix of order 14 is whole, and floats do not get one digit of it right."""
    size = 14
    hilbert = np.array([[1 / (row + column + 1) for column in range(size)] for row in range(size)])
    found = RationalSystem(csc_array(hilbert)).solve(exact([Fraction(1)] * size))
    assert found is not None
    assert sum(found) == size**2
    assert all(value.denominator == 1 for value in found)


@pytest.mark.parametrize("under", [1, 3], ids=["for floats", "only exactly"])
def test_a_singular_system_has_no_answer(under: int) -> None:
    """Whether floats see it or not."""
    matrix = csc_array(np.array([[1 / 10, 7 / 10], [1 / 10 / under, 7 / (10 * under)]]))
    assert RationalSystem(matrix).solve(exact([Fraction(1), Fraction(1)])) is None


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 10**6))
def test_random_programs_are_exact_in_both_senses(seed: int) -> None:
    """Exact and float values agree, and the opposite objective has the opposite answer and prices of its own sense."""
    blocks = transport(seed)
    solution = solve(blocks)
    answer = solution.exact
    answer.verify()
    assert float(answer.objective) == pytest.approx(solution.objective, rel=1e-9)
    costs = blocks.linear_program().costs
    blocks.maximize([(np.arange(len(costs)), -costs)])
    opposite = solve(blocks).exact
    opposite.verify()
    assert opposite.objective == -answer.objective


def test_ranges_equations_free_and_fixed_variables_are_exact() -> None:
    """Every kind of bound that HiGHS knows."""
    blocks = Blocks("kinds")
    free = blocks.variables("free", 2, lower=-np.inf)
    fixed = blocks.variables("fixed", (), lower=1 / 3, upper=1 / 3)
    upper = blocks.variables("upper", (), lower=-np.inf, upper=0.7)
    blocks.constraint("equation", (), [(0, free, 1), (0, fixed, 1)], lower=1, upper=1)
    blocks.constraint("range", (), [(0, free, [1, -1])], lower=-0.1, upper=0.2)
    blocks.maximize([(free[0], 2), (free[1], 1), (upper, 1), (fixed, 3)])
    answer = solve(blocks).exact
    answer.verify()
    assert answer.values["free"].tolist() == [Fraction(13, 30), Fraction(7, 30)]
    assert answer.objective == Fraction(33, 30) + Fraction(7, 10) + 1
    assert answer.duals["equation"] == Fraction(3, 2)
    assert answer.duals["range"] == Fraction(1, 2)


@without_basis
def test_without_a_basis_there_is_an_interval(algorithm: Algorithm) -> None:
    """The reason names the remedy; prices are rounded and mended, and enclose the optimum."""
    for blocks in (thirds(), transport(7)):
        solution, answer = solve(blocks, HighsOptions(algorithm=algorithm)), solve(blocks).exact
        with pytest.raises(NoAnswerError, match=r"was solved without a basis.*Algorithm.SIMPLEX"):
            solution.exact  # noqa: B018
        low, high = solution.interval
        proved = high if blocks.name == "thirds" else low
        assert proved is not None
        assert float(proved) == pytest.approx(float(answer.objective), rel=1e-4)
        assert low is None or low <= answer.objective
        assert high is None or high >= answer.objective


def test_a_basis_that_only_tolerances_allow_is_not_exact() -> None:
    """A conflict of 1e-8, which HiGHS overlooks, is named; nothing false is in the interval."""
    blocks = Blocks("narrow")
    x = blocks.variables("x", (), upper=1)
    blocks.constraint("more", (), [(0, x, 1)], lower=1 + 1e-8)
    blocks.minimize([(x, 1)])
    solution = solve(blocks, HighsOptions(algorithm=Algorithm.SIMPLEX))
    with pytest.raises(
        NoAnswerError, match=r"narrow is optimal only within tolerances: '(x|more)' of narrow is 1.0e-08"
    ):
        solution.exact  # noqa: B018
    assert solution.interval.upper is None


def test_whole_values_are_checked_exactly_and_bounds_are_not() -> None:
    """Of an integer program the interval has one end, the exact value of an answer that was checked."""
    blocks = Blocks("knapsack")
    items = blocks.variables("items", 3, upper=4, integral=True)
    rest = blocks.variables("rest", ())
    blocks.constraint("room", (), [(0, items, [3, 5, 7]), (0, rest, 3)], upper=20)
    blocks.maximize([(items, [4, 7, 10]), (rest, 1)])
    solution = solve(blocks)
    with pytest.raises(NoAnswerError, match="knapsack has whole variables, and branch and bound proves nothing"):
        solution.exact  # noqa: B018
    low, high = solution.interval
    assert low == 28
    assert high is None
    assert solution.bound == pytest.approx(28)


def test_a_tampered_answer_is_found_out() -> None:
    """Values, prices and the figure are each checked."""
    answer = solve(thirds()).exact
    changes: list[tuple[dict[str, Any], str]] = [
        ({"objective": Fraction(1, 5)}, "claims 1/5, but its primal values reach 1/10 and its dual values prove 1/10"),
        ({"_point": exact([Fraction(1, 5), Fraction(0)])}, r"'room\[1\]' of thirds is 1.0e-01 above its upper bound"),
        ({"_point": exact([Fraction(-1), Fraction(0)])}, r"'x\[0\]' of thirds is 1.0e\+00 below its lower bound"),
        ({"_duals": exact([Fraction(0), Fraction(2)])}, "its dual values prove 1/5"),
        (
            {"_duals": exact([Fraction(0), Fraction(0)])},
            r"reduced cost of 'x\[0\]' and 1 more in thirds has the wrong",
        ),
        ({"_duals": exact([Fraction(-1), Fraction(9)])}, r"dual value of 'room\[0\]' in thirds has the wrong sign"),
    ]
    for change, message in changes:
        with pytest.raises(CertificateError, match=message):
            replace(answer, **change).verify()


def test_a_solution_can_be_sent_to_another_process() -> None:
    """Executors pickle what comes back; the proof comes with it."""
    solution = pickle.loads(pickle.dumps(solve(thirds())))
    assert solution.exact.objective == Fraction(1, 10)
