"""What the door to HiGHS promises: three statuses, values only where there are some, messages that name faults."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numpy as np
import pytest

from collopt.errors import ColloptError, NoAnswerError, UnsupportedError
from collopt.formulations.blocks import BlockProgram, Blocks
from collopt.solvers import Algorithm, DualStatus, HighsOptions, PrimalStatus, Progress, Status, Termination, solve

algorithms = pytest.mark.parametrize("algorithm", Algorithm, ids=lambda algorithm: algorithm.name.lower())


@dataclass(frozen=True)
class Whole:
    """The same model with whole variables, and a constant in its objective."""

    blocks: Blocks
    offset: float = 0.0

    def linear_program(self) -> BlockProgram:
        """As of `Blocks`."""
        program = self.blocks.linear_program()
        return replace(program, whole=np.ones(len(program.costs), dtype=np.bool_), offset=self.offset)


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


def test_crossed_bounds_are_named() -> None:
    """A variable whose bounds exclude each other is at fault all by itself."""
    blocks = contradiction()
    blocks.variables("crossed", 2, lower=[0, 4], upper=3)
    solution = solve(blocks)
    assert solution.status.termination is Termination.INFEASIBLE
    assert "the lower bound of 'crossed[1]' is above its upper bound" in solution.message


def test_many_rows_at_fault_are_counted() -> None:
    """A message stays one line however many rows disagree."""
    blocks = Blocks("chain")
    steps = blocks.variables("step", 11)
    blocks.constraint("up", 10, [(range(10), steps[1:], 1), (range(10), steps[:-1], -1)], lower=1)
    blocks.constraint("end", (), [(0, steps[10], 1)], upper=9)
    message = solve(blocks).message
    assert message.startswith("chain is infeasible: 'end', 'up[0]' and 9 more cannot hold together")


def test_no_time_means_no_objective() -> None:
    """The message names the option; a limit is no proof."""
    solution = solve(diet(), HighsOptions(time_limit=0))
    assert solution.status.termination is Termination.TIME_LIMIT
    with pytest.raises(NoAnswerError, match=r"diet was not solved within time_limit=0 seconds"):
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


@algorithms
def test_an_algorithm_for_linear_programs_keeps_variables_whole(algorithm: Algorithm) -> None:
    """Early versions of HiGHS solved the relaxation when an algorithm was named."""
    blocks = Blocks("halves")
    count = blocks.variables("count", 2)
    blocks.constraint("sum", (), [(0, count, 2)], lower=5)
    blocks.minimize([(count, 1)])
    options = HighsOptions(algorithm=algorithm)
    assert solve(blocks, options).objective == pytest.approx(2.5, rel=1e-4)
    assert solve(Whole(blocks), options).objective == pytest.approx(3)


def test_an_integer_program_without_end_says_so() -> None:
    """Presolve does not find out whether this is infeasible or unbounded; there is no number either way."""
    solution = solve(Whole(escape()))
    assert solution.status.termination in (Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED)
    assert solution.message.startswith("greed ")
    with pytest.raises(NoAnswerError, match="there is no objective value: greed"):
        solution.objective  # noqa: B018


def test_an_integer_program_without_answer_says_so() -> None:
    """There is no ray to read the rows at fault from, but there is a sentence."""
    blocks = Blocks("between")
    blocks.variables("count", ())
    blocks.constraint("gap", (), [(0, 0, 3)], lower=1, upper=2)
    assert solve(blocks).status.termination is Termination.OPTIMAL
    solution = solve(Whole(blocks))
    assert solution.status.termination is Termination.INFEASIBLE
    assert "between is infeasible: its constraints cannot hold together with whole values" in solution.message


def test_an_unknown_name_lists_the_known_ones() -> None:
    """Names are looked up in a mapping, whose error helps."""
    solution = solve(diet())
    assert list(solution.duals) == ["need", "stock"]
    assert len(solution.duals) == 2
    with pytest.raises(KeyError, match=r"no constraint 'ned'; this model has need, stock"):
        solution.duals["ned"]


def test_the_number_of_threads_can_change_between_solves() -> None:
    """HiGHS by itself refuses the second of these."""
    for threads in (1, 2, None, 1):
        assert solve(diet(), HighsOptions(threads=threads)).objective == pytest.approx(5)


def knapsack(items: int = 60, rooms: int = 40) -> Blocks:
    """Branch and bound works on this for longer than any test waits."""
    random = np.random.default_rng(0)
    blocks = Blocks("knapsack")
    taken = blocks.variables("taken", items, upper=5, whole=True)
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
    assert "knapsack was not solved, since the listener" in solution.message
    with pytest.raises(NoAnswerError, match="listener"):
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


@algorithms
def test_a_listener_changes_no_answer(algorithm: Algorithm) -> None:
    """Short solves may not call it at all."""
    options = HighsOptions(algorithm=algorithm, progress=lambda progress: True)
    assert solve(diet(), options).objective == pytest.approx(5, rel=1e-5)


def test_the_bound_of_an_unsolved_linear_program_is_not_known() -> None:
    """Only branch and bound keeps one on its way."""
    assert solve(diet()).bound == pytest.approx(5)
    with pytest.raises(NoAnswerError, match="there is no bound: wishes is infeasible"):
        solve(contradiction()).bound  # noqa: B018


def test_the_log_is_printed_on_request_only(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS's own words, or none."""
    solve(diet())
    assert capfd.readouterr().out == ""
    solve(diet(), HighsOptions(log=True))
    assert "HiGHS" in capfd.readouterr().out


def test_tolerances_reach_the_solver() -> None:
    """With a huge tolerance, HiGHS takes a conflict of 0.1 for feasible."""
    blocks = Blocks("near")
    amount = blocks.variables("amount", (), lower=0, upper=1)
    blocks.constraint("more", (), [(0, amount, 1)], lower=1.1)
    blocks.minimize([(amount, 1)])
    strict = HighsOptions(algorithm=Algorithm.SIMPLEX)
    assert solve(blocks, strict).status.termination is Termination.INFEASIBLE
    settings = replace(strict, primal_tolerance=0.5, dual_tolerance=1e-9).settings()
    assert settings["primal_feasibility_tolerance"] == 0.5
    assert settings["dual_feasibility_tolerance"] == 1e-9


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


@pytest.mark.parametrize("size", [1e-12, -1e-12, 1e16])
def test_refuses_coefficients_that_highs_would_drop(size: float) -> None:
    """Left alone, HiGHS drops the tiny ones and answers another question; zeros are harmless."""
    blocks = diet()
    blocks.constraint("odd", 2, [(0, 0, 0), (1, 1, size)], lower=0)
    with pytest.raises(UnsupportedError, match=r"a coefficient of 'odd\[1\]' in diet is .*; expected sizes of 1e-09"):
        solve(blocks)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"costs": np.array([1.0, np.inf])}, r"the objective of diet has 'amount\[1\]' with coefficient inf"),
        ({"costs": np.array([np.nan, 1.0])}, r"the objective of diet has 'amount\[0\]' with coefficient nan"),
        ({"column_bounds": (np.zeros(2), np.full(2, np.nan))}, "HiGHS refuses diet; look for bounds"),
    ],
)
def test_refuses_numbers_that_are_none(changes: dict[str, Any], message: str) -> None:
    """Models that check nothing themselves still get a sentence."""

    class Careless:
        def linear_program(self) -> BlockProgram:
            return replace(diet().linear_program(), **changes)

    with pytest.raises(UnsupportedError, match=message):
        solve(Careless())


def test_answers_are_frozen_and_errors_are_of_the_family() -> None:
    """A result is a value; its errors are caught with every other of collopt's solvers."""
    solution = solve(diet())
    with pytest.raises(FrozenInstanceError):
        solution.message = ""  # type: ignore[misc]
    assert issubclass(NoAnswerError, ColloptError)
