"""What the door to HiGHS promises: three statuses, values only where there are some, messages that name faults."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from collopt.errors import NoAnswerError, UnsupportedError
from collopt.formulations.blocks import Blocks
from collopt.solvers import (
    Algorithm,
    DualStatus,
    HighsOptions,
    PrimalStatus,
    Progress,
    Status,
    Termination,
    solve,
)
from collopt.solvers.lp.diagnosis import conflict
from collopt.solvers.lp.diagnosis import escape as escape_along
from collopt.support.linear_program import LinearProgram

algorithms = pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: algorithm.name.lower())


@dataclass(frozen=True)
class Whole:
    """The same model with whole variables, and a constant in its objective."""

    blocks: Blocks
    offset: float = 0.0

    def linear_program(self) -> LinearProgram:
        """As of `Blocks`."""
        program = self.blocks.linear_program()
        return program._replace(integral=np.ones(len(program.costs), dtype=np.bool_), offset=self.offset)


def diet() -> Blocks:
    """Cheapest x + 2 y with x + y >= 4 and x <= 3: 5, at (3, 1), and a unit more of the first costs 2."""
    blocks = Blocks("diet")
    amounts = blocks.variables("amount", 2)
    blocks.constraint("need", (), [(0, amounts, 1)], lower=4)
    blocks.constraint("stock", (), [(0, amounts[0], 1)], upper=3)
    blocks.minimize([(amounts, [1, 2])])
    return blocks


def contradiction() -> Blocks:
    """Two rows that no point meets, and an innocent one."""
    blocks = Blocks("wishes")
    amounts = blocks.variables("amount", 2)
    blocks.constraint("most", (), [(0, amounts, 1)], upper=3)
    blocks.constraint("least", (), [(0, amounts, 1)], lower=5)
    blocks.constraint("innocent", (), [(0, amounts[0], 1)], upper=100)
    blocks.minimize([(amounts, 1)])
    return blocks


def escape() -> Blocks:
    """An objective that grows along one variable only."""
    blocks = Blocks("greed")
    amounts = blocks.variables("amount", 3, upper=[1, np.inf, 1])
    blocks.constraint("ordered", (), [(0, amounts[:2], [1, -1])], upper=0)
    blocks.maximize([(amounts, 1)])
    return blocks


@algorithms
def test_an_optimum_has_value_and_price(algorithm: Algorithm) -> None:
    """All three statuses are good, and what they promise is there."""
    solution = solve(diet(), HighsOptions(algorithm=algorithm))
    assert solution.status == Status(Termination.OPTIMAL, PrimalStatus.FEASIBLE, DualStatus.FEASIBLE)
    assert solution.message == "diet is solved to optimality"
    assert solution.objective == pytest.approx(5, rel=1e-5)
    assert solution.values["amount"] == pytest.approx(np.array([3, 1]), rel=1e-5)
    assert float(solution.duals["need"]) == pytest.approx(2, rel=1e-5)
    assert float(solution.duals["stock"]) == pytest.approx(-1, rel=1e-5)
    assert solution.reduced_costs["amount"] == pytest.approx(np.zeros(2), abs=1e-5)


@algorithms
def test_an_infeasible_model_names_the_rows_at_fault(algorithm: Algorithm) -> None:
    """No value, no price, and the innocent constraint is left out."""
    solution = solve(contradiction(), HighsOptions(algorithm=algorithm))
    assert solution.status.termination is Termination.INFEASIBLE
    assert solution.message.startswith("wishes is infeasible: 'least', 'most' cannot hold together")
    for name in ("objective", "values", "duals", "reduced_costs"):
        with pytest.raises(NoAnswerError, match="wishes is infeasible"):
            getattr(solution, name)


@algorithms
def test_an_unbounded_model_names_the_variable_at_fault(algorithm: Algorithm) -> None:
    """HiGHS knows a feasible point, but it is not an answer."""
    solution = solve(escape(), HighsOptions(algorithm=algorithm))
    assert solution.status.termination is Termination.UNBOUNDED
    assert solution.status.primal is PrimalStatus.NONE
    assert "greed is unbounded: its objective improves without end along 'amount[1]'" in solution.message
    for name in ("objective", "values"):
        with pytest.raises(NoAnswerError, match="greed is unbounded"):
            getattr(solution, name)


@algorithms
def test_the_bounds_at_fault_are_those_of_the_right_side(algorithm: Algorithm) -> None:
    """Of two-sided bounds on rows and variables the ones in the way, whichever sign HiGHS gives its ray."""
    for sign, side in ((1, "upper"), (-1, "lower")):
        blocks = Blocks("tight")
        x = blocks.variables("x", (), lower=-3, upper=3)
        y = blocks.variables("y", (), lower=-1, upper=1)
        blocks.constraint(
            "sum", (), [(0, [int(x), int(y)], 1)], lower=min(5 * sign, 9 * sign), upper=max(5 * sign, 9 * sign)
        )
        blocks.minimize([(x, 1)])
        message = solve(blocks, HighsOptions(algorithm=algorithm)).message
        assert (
            message == f"tight is infeasible: 'sum' cannot hold together with the {side} bounds of 'y', 'x'; relax one"
        )


any_algorithm = pytest.mark.parametrize("algorithm", [None, *Algorithm])


@any_algorithm
def test_presolve_alone_does_not_make_a_model_infeasible(algorithm: Algorithm | None) -> None:
    """HiGHS 1.15.1's presolve says that no point meets this, although zeros do; a checked ray says what it is."""
    blocks = Blocks("steps")
    x = blocks.variables("x", 3, lower=[-np.inf, 0, 0], upper=[0, np.inf, np.inf])
    rows = np.array([[0.0, 1, -1], [-1, -1, 1], [1, 1, 0]])
    blocks.constraint("c", 3, [(np.arange(3)[:, None], x[None, :], rows)], lower=[-1, 0, 0])
    blocks.maximize([(x, [0.0, 1, 0])])
    solution = solve(blocks, HighsOptions(algorithm=algorithm))
    assert solution.status.termination is Termination.UNBOUNDED
    assert "its objective improves without end along 'x[0]' and" in solution.message


@pytest.mark.parametrize("algorithm", [None, Algorithm.SIMPLEX, Algorithm.IPM, Algorithm.IPM_WITHOUT_CROSSOVER])
def test_interior_point_alone_does_not_make_a_model_infeasible(algorithm: Algorithm | None) -> None:
    """What simplex finds where HiGHS 1.15.1's interior point sees no answer is the answer."""
    blocks = Blocks("sizes")
    x = blocks.variables("x", 5, upper=[*[np.inf] * 4, 1])
    rows = np.array([[-1, -10000, -1, 1, -3.5], [0, 0, 4500, -1, 4.5], [0, -1, 1, -10000, 0]])
    entries = [(np.arange(3)[:, None], x[None, :], rows)]
    blocks.constraint("c", 3, entries, lower=[7000 / 3, 0, -np.inf], upper=[7000 / 3, np.inf, 0])
    blocks.minimize([(x, [0, 4000 / 3, 0, 0, -9.0])])
    assert solve(blocks, HighsOptions(algorithm=algorithm)).objective == pytest.approx(-9)


def test_what_no_ray_proves_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """HiGHS's word alone is passed on as such, and nothing can be read from it."""
    monkeypatch.setattr("collopt.solvers.lp.session.proof", lambda *attempt, by_simplex: None)
    for blocks, said in ((contradiction(), "infeasible"), (escape(), "unbounded")):
        solution = solve(blocks)
        assert solution.status == Status(Termination.UNKNOWN, PrimalStatus.NONE, DualStatus.NONE)
        assert f"has no proved answer: HiGHS calls it {said} without a ray that proves it" in solution.message


def test_rays_are_checked() -> None:
    """Turned either way and scaled at will they hold; with a wrong or a missing part, or none at all, they do not."""
    program = contradiction().linear_program()
    for factor in (1, -3, 1e-12):
        proved = conflict(program, True, factor * np.array([-1.0, 1, 0]))
        assert proved is not None
        assert proved.tolist() == [-1, 1, 0]
    for wrong in ([1, 1, 0], [-1, 0, 0], [-1, 1, 1], [0, 0, 0], [np.nan, 1, 0]):
        assert conflict(program, True, np.array(wrong, dtype=np.float64)) is None
    assert conflict(program, False, np.array([-1.0, 1, 0])) is None
    program = escape().linear_program()
    assert escape_along(program, True, np.array([0.0, 5, 0])) is not None
    for wrong in ([0, -1, 0], [1, 1, 0], [0, 0, 0], [0, 1, -1]):
        assert escape_along(program, True, np.array(wrong, dtype=np.float64)) is None


@any_algorithm
def test_rows_without_variables_are_named(algorithm: Algorithm | None) -> None:
    """Asked for a ray of such a program, HiGHS 1.15.1's interior point would never come back."""
    blocks = Blocks("empty")
    x = blocks.variables("x", 1)
    blocks.constraint("first", (), [], lower=1, upper=1)
    blocks.constraint("fine", (), [(0, x, 1.0)], lower=1)
    options = HighsOptions(algorithm=algorithm)
    assert solve(blocks, options).message == (
        "empty is infeasible: 'first' has no variables, and its bounds exclude 0; change them"
    )
    blocks.constraint("second", (), [(0, x, 0.0)], upper=-1)
    assert solve(blocks, options).message == (
        "empty is infeasible: 'second', 'first' have no variables, and their bounds exclude 0; change them"
    )


@pytest.mark.parametrize("idle_row", [False, True])
@any_algorithm
def test_an_objective_without_constraints_can_be_unbounded(algorithm: Algorithm | None, idle_row: bool) -> None:
    """HiGHS has no ray of a program without coefficients; the columns in the way are plain."""
    blocks = Blocks("open")
    blocks.variables("x", 3, lower=[0, 0, -np.inf], upper=[np.inf, 5, np.inf])
    if idle_row:
        blocks.constraint("idle", (), [(0, range(3), 0.0)], upper=3)
    for minimised, named in (([1, -1, 2], "'x[2]'"), ([-1, 1, 0], "'x[0]'")):
        blocks.minimize([(range(3), minimised)])
        solution = solve(blocks, HighsOptions(algorithm=algorithm))
        assert solution.status.termination is Termination.UNBOUNDED
        assert f"without end along {named}; bound one" in solution.message


def test_no_time_means_no_objective() -> None:
    """The message names the option; a limit is no proof."""
    for whole, remedy in ((True, "raise it$"), (False, "raise it or choose another algorithm")):
        solution = solve(knapsack(whole=whole), HighsOptions(time_limit=0))
        assert solution.status.termination is Termination.TIME_LIMIT
        with pytest.raises(NoAnswerError, match=f"knapsack was not solved within time_limit=0 seconds; {remedy}"):
            solution.objective  # noqa: B018


def test_an_integer_program_has_values_but_no_prices() -> None:
    """Branch and bound proves no prices; the objective's constant counts."""
    blocks = diet()
    blocks.constraint("odd", (), [(0, [0, 1], [2, 4])], lower=11)
    relaxed, whole = solve(blocks), solve(Whole(blocks, offset=100))
    assert relaxed.objective == pytest.approx(5.5)
    assert whole.objective == pytest.approx(106)
    assert whole.status == Status(Termination.OPTIMAL, PrimalStatus.FEASIBLE, DualStatus.NONE)
    with pytest.raises(NoAnswerError, match="there are no duals: diet is solved to optimality"):
        whole.duals  # noqa: B018


def knapsack(items: int = 60, rooms: int = 40, *, whole: bool = True) -> Blocks:
    """Branch and bound works on this for longer than any test waits, and presolve does not solve the relaxation."""
    random = np.random.default_rng(0)
    blocks = Blocks("knapsack")
    taken = blocks.variables("taken", items, upper=5, integral=whole)
    sizes = random.integers(1, 100, (rooms, items))
    blocks.constraint("room", rooms, [(np.arange(rooms)[:, None], taken, sizes)], upper=sizes.sum(axis=1) // 2)
    blocks.maximize([(taken, random.integers(1, 100, items))])
    return blocks


def test_a_listener_hears_how_far_it_is_and_can_stop_it() -> None:
    """Figures are those of the model's sense; what was found until then is there, and so is the bound."""
    heard: list[Progress] = []

    def listener(progress: Progress) -> bool:
        heard.append(progress)
        return progress.best is None

    solution = solve(knapsack(), HighsOptions(progress=listener))
    last = heard[-1]
    assert last.best is not None
    assert last.bound is not None
    assert 0 < last.best < last.bound
    assert last.seconds > 0
    assert solution.status == Status(Termination.INTERRUPTED, PrimalStatus.FEASIBLE, DualStatus.NONE)
    assert "knapsack was not solved, since the callback" in solution.message
    assert repr(solution).startswith("<Solution knapsack: interrupted, best so far ")
    with pytest.raises(NoAnswerError, match="callback"):
        solution.objective  # noqa: B018
    low, high = solution.interval
    assert low is not None
    assert high is None
    assert float(low) >= last.best
    assert float(low) <= solution.bound <= last.bound + 1e-6


def test_an_error_of_a_listener_comes_out() -> None:
    """It is not swallowed by HiGHS, and the door works afterwards."""

    def listener(progress: Progress) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        solve(knapsack(), HighsOptions(progress=listener))
    assert solve(diet()).objective == pytest.approx(5)


def test_ctrl_c_stops_a_solve() -> None:
    """Without a listener too, and soon."""
    alarm = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    alarm.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            solve(knapsack(), HighsOptions(time_limit=60))
    finally:
        alarm.join()


def test_errors_of_other_handlers_come_out_and_quiet_ones_do_not_stop_a_solve() -> None:
    """Such as time-outs of tests; Python may run them just before it calls back."""
    calls: list[int] = []

    def handler(number: int, _frame: object) -> None:
        calls.append(number)
        if len(calls) == 3:
            raise TimeoutError("of a handler")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        with pytest.raises(TimeoutError, match="of a handler"):
            solve(knapsack(), HighsOptions(time_limit=60))
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "simplex"}, "algorithm is 'simplex'; expected one of Algorithm.SIMPLEX"),
        ({"time_limit": -1}, "time_limit is -1; expected a number from 0 to inf"),
        ({"time_limit": float("nan")}, "time_limit is nan"),
        ({"time_limit": "1"}, "time_limit is '1'"),
        ({"threads": 0}, "threads is 0; expected a whole number from 1"),
        ({"threads": 1.5}, "threads is 1.5"),
        ({"threads": True}, "threads is True"),
        ({"primal_tolerance": 0}, "primal_tolerance is 0; expected a number from 1e-10 to 1"),
        ({"dual_tolerance": 2}, "dual_tolerance is 2"),
        ({"progress": 5}, "progress is 5; expected a function of one argument"),
    ],
)
def test_refuses_options_that_are_none(options: dict[str, Any], message: str) -> None:
    """Options are checked when they are made, not when they are used."""
    with pytest.raises(UnsupportedError, match=message):
        HighsOptions(**options)


def test_refuses_what_is_no_model() -> None:
    """Neither other objects, nor models without variables."""
    with pytest.raises(UnsupportedError, match="cannot solve a dict; expected a model"):
        solve({})  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="nothing has no variables"):
        solve(Blocks("nothing"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"costs": np.array([1.0, np.inf])}, r"the cost of 'amount\[1\]' in diet is inf"),
        (
            {"column_bounds": (np.zeros(2), np.full(2, np.nan))},
            r"the upper bound of 'amount\[0\]' in diet is nan; expected a number",
        ),
        (
            {"column_bounds": (np.zeros(2), np.array([3, 1e20]))},
            r"upper bound of 'amount\[1\]' in diet is 1e\+20; expected a number of a size below 1e\+20, or inf",
        ),
        (
            {"row_bounds": (np.array([-2e20, 1]), np.full(2, np.inf))},
            r"lower bound of 'need' in diet is -2e\+20; expected a number of a size below 1e\+20, or -inf for none",
        ),
        ({"offset": np.nan}, "the objective of diet has the constant nan"),
    ],
)
def test_refuses_numbers_that_are_none(changes: dict[str, Any], message: str) -> None:
    """Models that check nothing themselves still get a sentence."""

    class Careless:
        def linear_program(self) -> LinearProgram:
            return diet().linear_program()._replace(**changes)

    with pytest.raises(UnsupportedError, match=message):
        solve(Careless())
