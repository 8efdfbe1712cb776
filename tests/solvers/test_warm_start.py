"""Solving again: simplex goes on from a basis, and answers are those of a new start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from collopt.errors import UnsupportedError
from collopt.formulations import Blocks, throughput
from collopt.solvers import Algorithm, HighsOptions, Progress, Session, Solution, Termination, solve
from collopt.solvers.lp.session import _Run
from collopt.support.linear_program import LinearProgram
from collopt.topologies import dgx_a100, ring


def routing(nodes: int = 12) -> Blocks:
    """Cheapest flow of one unit from every node of a complete network to the last one, with capacities."""
    random = np.random.default_rng(nodes)
    tails, heads = np.nonzero(~np.eye(nodes, dtype=bool))
    blocks = Blocks("routing")
    flow = blocks.variables("flow", len(tails), upper=random.integers(1, 4, len(tails)))
    balance: list[Any] = [(tails, flow, 1), (heads, flow, -1)]
    blocks.constraint("balance", nodes, balance, lower=[*[1] * (nodes - 1), -(nodes - 1)], upper=np.inf)
    blocks.minimize([(flow, random.integers(1, 30, len(tails)))])
    return blocks


def knapsack(items: int = 60, rooms: int = 40) -> Blocks:
    """Branch and bound works on this for longer than any test waits."""
    random = np.random.default_rng(0)
    blocks = Blocks("knapsack")
    taken = blocks.variables("taken", items, upper=5, integral=True)
    sizes = random.integers(1, 100, (rooms, items))
    blocks.constraint("room", rooms, [(np.arange(rooms)[:, None], taken, sizes)], upper=sizes.sum(axis=1) // 2)
    blocks.maximize([(taken, random.integers(1, 100, items))])
    return blocks


@dataclass
class Sketch:
    """A model whose arrays are changed by hand."""

    program: LinearProgram

    def linear_program(self) -> LinearProgram:
        """As of `Blocks`."""
        return self.program


def test_simplex_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing changed, nothing to do; a small change takes fewer steps than a new start."""
    answer, iterations = _Run._answer, list[int]()

    def counted(run: _Run, *arguments: Any) -> Solution:
        iterations.append(int(run.highs.getInfo().simplex_iteration_count))
        return answer(run, *arguments)

    monkeypatch.setattr(_Run, "_answer", counted)
    blocks = routing()
    session = Session(blocks)
    session.solve()
    session.solve()
    blocks.constraint("quiet", (), [(0, np.arange(11), 1)], upper=1)
    assert session.solve().exact.objective == solve(blocks).exact.objective
    first, second, third, _ = iterations
    assert (second, 0 < third < first) == (0, True)


def test_new_blocks_join_and_old_ones_may_leave() -> None:
    """New columns and rows come after the others; where others moved, the basis goes by name."""
    first, second = routing(), routing()
    extra = second.variables("extra", 3, upper=2)
    second.constraint("supply", 2, [(0, extra, 1), (1, [0, 1, 2], 1)], lower=1)
    second.minimize([(np.arange(132), 5), (extra, [3, 2, 1])])
    sketch = Sketch(first.linear_program())
    session = Session(sketch)
    for blocks in (first, second, first):
        sketch.program = blocks.linear_program()
        assert session.solve().exact.objective == solve(blocks).exact.objective


def test_a_pyomo_model_is_swept_in_place() -> None:
    """Bandwidths, added and deactivated constraints, another objective."""
    topology = dgx_a100()
    model = throughput.build(topology)
    session = Session(model)
    link = topology.links[0]
    share = model.variables.share[link.tail, link.head]
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: model.program.bandwidth.__setitem__((link.tail, link.head), 30.5),
        lambda: model.constrain("quiet", share <= 7),
        lambda: model.program.quiet.deactivate(),  # noqa: PLW0108 - there is no such constraint yet
        lambda: model.maximize(model.variables.rate + share),
    ]
    for step in steps:
        step()
        assert session.solve().exact.objective == solve(model).exact.objective


def test_a_session_survives_a_model_without_answer() -> None:
    """Infeasible in between, then solved again, with all options as they were."""
    model = throughput.build(ring(4, bandwidth=30))
    session = Session(model, HighsOptions(algorithm=Algorithm.IPM))
    assert session.solve().exact.objective == 20
    model.constrain("wish", model.variables.rate >= 50)
    assert "'wish'" in session.solve().message
    model.program.wish.deactivate()
    assert session.solve().exact.objective == 20


def test_an_earlier_solution_is_a_start() -> None:
    """Its basis is taken over, also where the model has grown."""
    blocks = routing()
    earlier = solve(blocks)
    blocks.constraint("quiet", (), [(0, np.arange(11), 1)], upper=1)
    session = Session(blocks)
    assert session.solve(earlier).exact.objective == solve(blocks).exact.objective


def test_values_are_a_start_for_whole_variables() -> None:
    """The first answer that the listener hears of is no worse than what was given; some values are enough."""
    blocks = knapsack()
    rough = solve(blocks, HighsOptions(progress=lambda progress: progress.best is None))
    heard: list[Progress] = []

    def listener(progress: Progress) -> bool:
        heard.append(progress)
        return False

    for start in (rough, rough.values, {"taken": rough.values["taken"]}):
        solve(blocks, HighsOptions(progress=listener), start=start)
        least = rough.interval.lower
        assert least is not None
        assert heard[-1].best is not None
        assert heard[-1].best >= float(least)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"wrong": 1}, "the start names variable 'wrong', which small has not; it has count"),
        ({"count": [1, 2, 3]}, r"the start of 'count' has shape \(3,\); expected \(2,\)"),
        ({"count": "many"}, "the start of 'count' is 'many'; expected numbers"),
        ({"count": float("nan")}, "the start of 'count' is not a number"),
    ],
)
def test_refuses_starts_that_do_not_fit(start: dict[str, Any], message: str) -> None:
    """Each message names the variable."""
    blocks = Blocks("small")
    blocks.variables("count", 2, upper=3, integral=True)
    with pytest.raises(UnsupportedError, match=message):
        solve(blocks, start=start)


def test_a_warm_start_that_leads_nowhere_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more run, from nothing, finds what a new session would; a run that was cold is not repeated."""
    run, bases = _Run._run, []

    def lost(handle: _Run) -> Termination:
        bases.append(handle.highs.getBasis().valid)
        return Termination.UNKNOWN if bases[-1] or len(bases) == 1 else run(handle)

    blocks = routing()
    session = Session(blocks)
    monkeypatch.setattr(_Run, "_run", lost)
    assert session.solve().status.termination is Termination.UNKNOWN
    assert bases == [False]
    assert session.solve().objective == solve(blocks).objective
    assert session.solve().status.termination is Termination.OPTIMAL
    assert bases[-2:] == [True, False]
