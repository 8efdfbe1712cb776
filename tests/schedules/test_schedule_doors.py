"""Doors of schedules: files and constructors refuse wrong values by one line that names the field or argument."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import CertificateError, ColloptError, FileFormatError, TopologyError, UnsupportedError
from collopt.schedules import (
    FlowSchedule,
    Forest,
    Send,
    StagedFlow,
    StepAllreduce,
    StepCost,
    StepExchange,
    StepSchedule,
    degree_expansion_schedule,
    line_graph_schedule,
    link_values,
    reduce_scatter_schedule,
    schedule_from_json,
    schedule_time,
    schedule_to_json,
    step_cost,
    verified_loads,
    without_repeats,
)
from collopt.schedules.collective import as_weights
from collopt.topologies import build, circulant, complete
from sample_sizes import examples

PAIR = complete(2)
GRAPH = PAIR.graph
STEPS = StepSchedule.from_sends(2, 2, [(0, 0, 0, 2, (0, 1)), (0, 1, 0, 2, (1, 0))])
TREES = Forest.from_paths(2, 2, [(0, 1, [(0, 2, 1)]), (0, 1, [(0, 1)]), (1, 2, [(1, 2, 0)])])
FLOW = FlowSchedule.from_paths(np.ones((2, 2), dtype=np.int64), 1, [(1, (0, 1), (0,)), (1, (1, 0), (0,))])
EXCHANGE = StepExchange.from_sends(2, 1, [(0, True, 0, 1, (0, 1)), (0, True, 0, 1, (1, 0))])
FILES = {
    "steps": STEPS,
    "forest": TREES,
    "flow": FLOW,
    "exchange": EXCHANGE,
    "staged-flow": StagedFlow.of(FLOW, np.array([0, 1])),
}
NO_NUMBER = [None, "2", Decimal(2), Decimal("NaN"), 2**63, -(2**63) - 1, 10**90, [2], {}, True, False]
NO_COLUMN = [None, 3, "01", {}, *([0, value] for value in (1.0, True, "1", None, [1], Decimal(1), 2**63, 10**90, -1))]
NO_ROWS = [None, 3, {}, "01", [3], ["01"], [None]]
COLUMNS = {
    "steps": ("steps", "sources", "lower", "upper", "routes"),
    "flow": ("weights", "steps"),
    "exchange": ("steps", "adds", "lower", "upper", "routes"),
    "staged-flow": ("weights", "steps", "servers"),
}
COUNTS = {
    "steps": ("num_ranks", "chunks_per_shard"),
    "forest": ("trees_per_root",),
    "flow": ("chunks_per_unit",),
    "exchange": ("num_ranks", "chunks"),
    "staged-flow": ("chunks_per_unit",),
}
PLACES: list[tuple[str, tuple[str | int, ...], list[Any]]] = [
    *((kind, (name,), NO_COLUMN) for kind, names in COLUMNS.items() for name in names),
    *((kind, (name,), [0, -1, 0.5, *NO_NUMBER]) for kind, names in COUNTS.items() for name in names),
    *((kind, ("paths",), NO_ROWS) for kind in FILES),
    *((kind, ("paths", 0, 1), [-1, *NO_NUMBER]) for kind in FILES),
    ("steps", ("direction",), ["up", ["reduce"], None]),
    ("steps", ("upper",), [[2], []]),
    ("exchange", ("adds",), [[1], [2, 2], [True, True]]),
    ("flow", ("traffic",), [[[0, 1], [1]], 3, [[0, True], [1, 0]], None]),
    ("forest", ("trees",), [[], *NO_ROWS]),
    ("forest", ("trees", 1), [[0, 1], [0, 1, [-1, 0], 1], {}, "abc", "ab", None]),
    ("forest", ("trees", 1, 0), NO_NUMBER),
    ("forest", ("trees", 1, 1), NO_NUMBER),
    ("forest", ("trees", 1, 2), [None, 3, "ab", {}, [], [-1], [-1, 0, 0], [[-1, 0]]]),
    ("forest", ("trees", 1, 2, 1), [2**31, *NO_NUMBER]),
    ("forest", ("root_weights",), [None, 3, [True, 1]]),
]


@pytest.mark.parametrize(("kind", "place", "values"), PLACES, ids=lambda value: str(value)[:40])
def test_files_with_a_wrong_field_are_refused(kind: str, place: tuple[str | int, ...], values: list[Any]) -> None:
    """The line names the document and the field, and the document stays as it was."""
    for value in values:
        data: Any = json.loads(json.dumps(schedule_to_json(FILES[kind])))
        target = data
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value
        before = copy.deepcopy(data)
        with pytest.raises(FileFormatError, match=rf"^here: .*schedule\.{place[0]}") as caught:
            schedule_from_json(data, "here")
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
        assert repr(data) == repr(before)


@pytest.mark.parametrize("kind", FILES)
def test_files_of_other_fields_are_refused(kind: str) -> None:
    """One field more or less, another kind, or no object at all."""
    data = schedule_to_json(FILES[kind])
    other = "steps" if kind == "forest" else "forest"
    changes = [data | {"extra": 1}, data | {"kind": other}]
    changes += [{key: value for key, value in data.items() if key != name} for name in data]
    for changed in [*changes, None, 3, "forest", [], [1], {}, {"kind": ["steps"]}]:
        with pytest.raises(FileFormatError, match=r"^here: field schedule is not of the kind"):
            schedule_from_json(changed, "here")


def test_files_of_allreduces_have_two_parts_of_one_kind() -> None:
    """Steps that add up go with steps that spread."""
    steps = schedule_to_json(STEPS)
    for parts, kind in (
        ({"reduce": steps, "broadcast": {"kind": "forest"}}, "steps"),
        ({"reduce": {"kind": "forest"}, "broadcast": steps}, "forest"),
        ({"reduce": steps}, "allreduce"),
    ):
        with pytest.raises(FileFormatError, match=f"is not of the kind '{kind}'"):
            schedule_from_json({"kind": "allreduce", **parts}, "here")


def test_only_the_form_of_files_is_checked() -> None:
    """Values that make no sense on a network are for the verification to refuse."""
    data = json.loads(json.dumps(schedule_to_json(TREES)))
    assert data["paths"] == [[0, 2, 1], [0, 1], [1, 2, 0]]
    assert data["trees"] == [[0, 1, [-1, 0]], [0, 1, [-1, 1]], [1, 2, [2, -1]]]
    data["trees"][0] = [7, -3, [99, 99]]
    assert schedule_from_json(data, "here").roots.tolist() == [7, 0, 1]  # type: ignore[attr-defined]
    for paths in ([], [[]]):
        with pytest.raises(CertificateError, match="path_starts do not cut its path_nodes into paths of two or more"):
            verified_loads(schedule_from_json(schedule_to_json(TREES) | {"paths": paths}, "here"), PAIR)


NUMBERS = st.integers(0, 2**63 - 1)


@given(
    st.lists(st.builds(Send, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.lists(NUMBERS, max_size=4).map(tuple)), max_size=8),
    st.integers(1, 2**63 - 1),
    st.sampled_from(["broadcast", "reduce"]),
)
@settings(max_examples=examples(60))
def test_steps_come_back_from_files_as_they_were(sends: list[Send], count: int, direction: Any) -> None:
    """Any numbers survive JSON text."""
    made = StepSchedule.from_sends(count, count, sends, direction)
    again = schedule_from_json(json.loads(json.dumps(schedule_to_json(made))), "text")
    assert isinstance(again, StepSchedule)
    assert again.to_json() == made.to_json()


class Rude:
    """A stranger that cannot be shown."""

    def __repr__(self) -> str:
        """Fail."""
        raise RuntimeError("no")


def runtime(num_bytes: Any = "1M", alpha: Any = 10, node_bandwidth: Any = 25) -> Fraction:
    """Time of an exchange of two ranks."""
    return StepCost(1, Fraction(1, 2)).runtime(num_bytes, alpha=alpha, node_bandwidth=node_bandwidth)


def sends(*rows: Any, chunks: Any = 1) -> StepSchedule:
    """A schedule of two ranks from rows."""
    return StepSchedule.from_sends(2, chunks, rows)  # type: ignore[arg-type]


FAR = sends((10**9, 0, 0, 1, (0, 1)), (0, 1, 0, 1, (1, 0)))
NONE: Any = None
Call = Callable[[], object]
CALLS: list[tuple[type[ColloptError], str, list[Call]]] = [
    # error, the argument that its message names, calls
    (UnsupportedError, "size", [lambda v=v: runtime(v) for v in (float("nan"), True, -1, 0, None, [], Fraction(1, 2))]),  # type: ignore[misc]
    (UnsupportedError, "size", [lambda v=v: schedule_time(STEPS, PAIR, v) for v in (-1000, True, None)]),  # type: ignore[misc]
    (UnsupportedError, "size True", [lambda: schedule_time(TREES, PAIR, True)]),
    (TopologyError, "latency of a step", [lambda v=v: runtime(alpha=v) for v in (-50, "1/0", "nan", None, True)]),  # type: ignore[misc]
    (TopologyError, "node_bandwidth", [lambda v=v: runtime(node_bandwidth=v) for v in (-1, 0, "1e999999999", None)]),  # type: ignore[misc]
    (UnsupportedError, "the schedule is None", [
        lambda: step_cost(GRAPH, NONE), lambda: schedule_time(NONE, PAIR, 1), lambda: schedule_to_json(NONE),
        lambda: without_repeats(NONE),
    ]),
    (UnsupportedError, "the graph is None", [
        lambda: step_cost(NONE, STEPS), lambda: degree_expansion_schedule(NONE, 2, STEPS),
    ]),
    (UnsupportedError, "the topology is None", [lambda: schedule_time(STEPS, NONE, 1), lambda: STEPS.link_loads(NONE)]),
    (UnsupportedError, "the schedule is <Forest", [lambda: step_cost(GRAPH, TREES)]),  # type: ignore[arg-type]
    (UnsupportedError, "the schedule is for 2 ranks", [
        lambda: step_cost(circulant(8, [1, 2]).graph, STEPS), lambda: schedule_time(STEPS, build("mi250"), 1),  # type: ignore[arg-type]
    ]),
    (UnsupportedError, "directions", [lambda: step_cost(GRAPH, StepAllreduce(STEPS, STEPS))]),
    (UnsupportedError, "1000000001 steps", [
        lambda: FAR.link_loads(PAIR), lambda: step_cost(GRAPH, FAR), lambda: schedule_time(FAR, PAIR, 1),
    ]),
    (TopologyError, "times is 65", [lambda: line_graph_schedule(GRAPH, STEPS, times=65)]),
    (FileFormatError, "Rude instance", [lambda: schedule_from_json({"kind": "steps"}, Rude())]),  # type: ignore[arg-type]
    (UnsupportedError, "the bound is None", [lambda: link_values(NONE)]),
    (UnsupportedError, "the mapping", [lambda: reduce_scatter_schedule(GRAPH, STEPS, symmetry=[True, False])]),
    (UnsupportedError, "the sends are None", [lambda: StepSchedule.from_sends(2, 1, NONE)]),
    (UnsupportedError, "send 0", [
        lambda row=row: sends(row)  # type: ignore[misc]
        for row in (
            None, (0, 0, 0, 1), (0.9, 0, 0, 1, (0, 1)), (0, 0, 0, 1, (0, 0.9)), ("0", 0, 0, 1, (0, 1)), (0, 0, 0, 1, 7)
        )
    ]),
    (UnsupportedError, "send 1", [lambda: sends((0, 0, 0, 1, (0, 1)), (0, 0, 0, 1))]),
    (UnsupportedError, "beyond 64 bits", [
        lambda: sends((0, 0, 0, 2**70, (0, 1))), lambda: sends((0, 0, 0, 1, (0, 2**70))),
        lambda: FlowSchedule.from_paths(FLOW.traffic, 1, [(2**70, (0, 1), (0,))]),
    ]),
    (UnsupportedError, "send 0", [lambda: StepExchange.from_sends(2, 1, [(0, 1, 0)])]),  # type: ignore[list-item]
    (UnsupportedError, "the paths are 5", [lambda: FlowSchedule.from_paths(FLOW.traffic, 1, 5)]),  # type: ignore[arg-type]
    (UnsupportedError, "path 0", [
        lambda path=path: FlowSchedule.from_paths(FLOW.traffic, 1, [path])
        for path in ((1, (0, 1)), (1.5, (0, 1), (0,)), (1, (), ()), (1, (0, 1), (0, 1)), (1, (0, 1, 2), (2,)))
    ]),
    (UnsupportedError, "the traffic", [
        lambda traffic=traffic: FlowSchedule.from_paths(traffic, 1, []) for traffic in (np.ones((2, 2)), [[0, 1], [1]])
    ]),
    (UnsupportedError, "weights", [
        lambda value=value: as_weights(value, 3)
        for value in (
            3, "111", b"111", {0: 1, 1: 1, 2: 1}, pd.Series([1, 2, 3]), pd.Series(["x" * 1000] * 100), np.array(3),
            np.ones((3, 1)), [1, 1], [0, 0, 0],
        )
    ]),
    (UnsupportedError, "of rank 1", [
        lambda value=value: as_weights([1, value, 1], 3) for value in (None, True, -1, float("inf"), "1/0")
    ]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "argument", "calls"), CALLS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_wrong_arguments_are_refused(error: type[ColloptError], argument: str, calls: list[Call]) -> None:
    """One short line names the argument."""
    for call in calls:
        with pytest.raises(error, match=argument) as caught:
            call()
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 250


def test_weights_are_any_exact_numbers() -> None:
    """Floats by their shortest decimal form, numpy's integers like Python's; without any, all are 1."""
    written = [1, "1/3", 0.1, Decimal("2.50"), Fraction(2, 7), np.int64(4), 0]
    assert as_weights(written, 7) == (1, Fraction(1, 3), Fraction(1, 10), Fraction(5, 2), Fraction(2, 7), 4, 0)
    assert as_weights(np.array([2, 3]), 2) == (2, 3)
    assert as_weights(None, 3) == (1, 1, 1)


@pytest.mark.parametrize("schedule", [STEPS, EXCHANGE], ids=["steps", "exchange"])
def test_loads_of_too_many_ranks_are_refused(schedule: StepSchedule | StepExchange) -> None:
    """Nothing is allocated for ranks that the network does not have."""
    with pytest.raises(UnsupportedError, match="is for 10000000000000 ranks; expected one for the 2 of complete-2"):
        replace(schedule, num_ranks=10**13).link_loads(PAIR)
