"""Wrong arguments for schedules in steps and their costs: one sentence of ours, never a bare error of Python's."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from collopt.errors import ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.schedules import (
    Forest,
    StepAllreduce,
    StepCost,
    StepSchedule,
    degree_expansion_schedule,
    line_graph_schedule,
    link_values,
    reduce_scatter_schedule,
    reversed_schedule,
    schedule_from_json,
    schedule_time,
    schedule_to_json,
    step_cost,
    without_repeats,
)
from collopt.topologies import build, circulant, complete

PAIR = complete(2)
GRAPH = PAIR.graph
assert GRAPH is not None
EXCHANGE = StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
COST = StepCost(1, Fraction(1, 2))
FAR = StepSchedule.from_sends(2, 1, [(10**9, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0))])
TREES = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])


class Rude:
    """A stranger that cannot be shown."""

    def __repr__(self) -> str:
        """Fail."""
        raise RuntimeError("no")


def runtime(num_bytes: Any = "1M", alpha: Any = 10, node_bandwidth: Any = 25) -> Fraction:
    """Time of the exchange."""
    return COST.runtime(num_bytes, alpha=alpha, node_bandwidth=node_bandwidth)


Call = tuple[Callable[[], object], type[ColloptError], str]
CALLS: dict[str, Call] = {
    **{
        f"{size!r} bytes": (lambda size=size: runtime(size), UnsupportedError, "size .* is not understood")  # type: ignore[misc]
        for size in (float("nan"), True, -1, 0, None, [], Fraction(1, 2))
    },
    **{
        f"alpha {alpha!r}": (lambda alpha=alpha: runtime(alpha=alpha), TopologyError, "latency of a step is ")  # type: ignore[misc]
        for alpha in (-50, "1/0", "nan", None, True, float("inf"))
    },
    **{
        f"bandwidth {speed!r}": (lambda speed=speed: runtime(node_bandwidth=speed), TopologyError, "node_bandwidth is ")  # type: ignore[misc]
        for speed in (-1, 0, "1e999999999", None, True)
    },
    **{
        f"{steps!r} steps": (lambda steps=steps: StepCost(steps, 1), UnsupportedError, "the steps of the cost are ")  # type: ignore[misc]
        for steps in (True, -1, 1.0, None, "1")
    },
    **{
        f"factor {factor!r}": (
            lambda factor=factor: StepCost(1, factor),  # type: ignore[misc]
            UnsupportedError,
            "the bandwidth factor of the cost is .*; expected a Fraction of at least 0",
        )
        for factor in (True, -1, 0.5, None, "1/2", Fraction(-1, 2))
    },
    "the cost of nothing": (lambda: step_cost(GRAPH, None), UnsupportedError, "the schedule is None"),  # type: ignore[arg-type]
    "the cost on nothing": (lambda: step_cost(None, EXCHANGE), UnsupportedError, "the graph is None"),  # type: ignore[arg-type]
    "the cost of trees": (lambda: step_cost(GRAPH, TREES), UnsupportedError, "the schedule is <Forest"),  # type: ignore[arg-type]
    "the cost on another graph": (
        lambda: step_cost(circulant(8, [1, 2]).graph, EXCHANGE),  # type: ignore[arg-type]
        UnsupportedError,
        r"the schedule is for 2 ranks; expected one for the 8 of C\(8, \{1, 2\}\)",
    ),
    "the cost of two allgathers": (
        lambda: step_cost(GRAPH, StepAllreduce(EXCHANGE, EXCHANGE)),
        UnsupportedError,
        "the two schedules of the allreduce have the directions .*; expected 'reduce' and 'broadcast'",
    ),
    "an allreduce of nothing": (
        lambda: StepAllreduce(None, None),  # type: ignore[arg-type]
        UnsupportedError,
        "the reduce of the allreduce is None; expected a StepSchedule",
    ),
    "half an allreduce": (
        lambda: StepAllreduce(reversed_schedule(EXCHANGE), "x"),  # type: ignore[arg-type]
        UnsupportedError,
        "the broadcast of the allreduce is 'x'; expected a StepSchedule",
    ),
    **{
        f"the time of {size!r} bytes": (
            lambda size=size: schedule_time(EXCHANGE, PAIR, size),  # type: ignore[misc]
            UnsupportedError,
            "size .* is not understood",
        )
        for size in (-1000, True, Fraction(1, 2), None)
    },
    "the time of nothing": (lambda: schedule_time(None, PAIR, 1), UnsupportedError, "the schedule is None"),  # type: ignore[arg-type]
    "the time on nothing": (lambda: schedule_time(EXCHANGE, None, 1), UnsupportedError, "the topology is None"),  # type: ignore[arg-type]
    "the time on another network": (
        lambda: schedule_time(EXCHANGE, build("mi250"), 1),
        UnsupportedError,
        "the schedule is for 2 ranks; expected one for the 16 of ",
    ),
    "the time of no trees": (
        lambda: schedule_time(3, PAIR, 1),
        UnsupportedError,
        "the schedule is 3; expected trees, steps or a flow",
    ),  # type: ignore[arg-type]
    "the time of trees and no bytes": (lambda: schedule_time(TREES, PAIR, True), UnsupportedError, "size True is not"),
    "loads on nothing": (lambda: EXCHANGE.link_loads(None), UnsupportedError, "the topology is None"),  # type: ignore[arg-type]
    "loads of steps far away": (lambda: FAR.link_loads(PAIR), UnsupportedError, "the schedule has 1000000001 steps"),
    "the cost of steps far away": (
        lambda: step_cost(GRAPH, FAR),
        UnsupportedError,
        "the schedule has 1000000001 steps",
    ),
    "the time of steps far away": (lambda: schedule_time(FAR, PAIR, 1), UnsupportedError, "has 1000000001 steps"),
    "copies of nothing": (
        lambda: degree_expansion_schedule(None, 2, EXCHANGE),  # type: ignore[arg-type]
        UnsupportedError,
        "the graph is None; expected a DirectGraph",
    ),
    "a line graph of line graphs": (
        lambda: line_graph_schedule(GRAPH, EXCHANGE, times=65),
        TopologyError,
        "times is 65; expected a whole number from 1 to 64",
    ),
    "JSON of no schedule": (
        lambda: schedule_to_json(None),
        UnsupportedError,
        "the schedule is None; expected a Schedule",
    ),  # type: ignore[arg-type]
    "repeats of nothing": (lambda: without_repeats(None), UnsupportedError, "the schedule is None"),  # type: ignore[arg-type]
    "a document without a name": (
        lambda: schedule_from_json({"kind": "steps"}, Rude()),  # type: ignore[arg-type]
        FileFormatError,
        "Rude instance at .*: field schedule is not of the kind .steps.",
    ),
    "prices of nothing": (lambda: link_values(None), UnsupportedError, "the bound is None; expected a Bound"),  # type: ignore[arg-type]
    "numbers that are booleans": (
        lambda: reduce_scatter_schedule(GRAPH, EXCHANGE, symmetry=[True, False]),
        UnsupportedError,
        r"the mapping is \[True, False\]; expected each number from 0 to 1 once",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_arguments_are_refused(case: str) -> None:
    """In one line that shows the value."""
    make, kind, message = CALLS[case]
    with pytest.raises(kind, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_costs_are_tuples_of_exact_numbers() -> None:
    """They unpack, compare, sort and copy as tuples do, and take text for bytes."""
    made = StepCost(np.int64(2), 1)  # type: ignore[arg-type]
    assert [type(figure) for figure in made] == [int, Fraction]
    steps, factor = made
    assert made == (steps, factor) == (2, 1)
    assert sorted([made, COST, StepCost(1, Fraction(1, 3))]) == [(1, Fraction(1, 3)), COST, made]
    assert pickle.loads(pickle.dumps(made)) == copy(made) == made
    assert isinstance(made._replace(steps=3), StepCost)
    assert repr(COST) == "StepCost(steps=1, bandwidth_factor=Fraction(1, 2))"
    assert runtime("1M") == runtime(2**20) == 10 + Fraction(2**20, 2 * 25_000)
    assert schedule_time(EXCHANGE, PAIR, "1K") == schedule_time(EXCHANGE, PAIR, 1024)
