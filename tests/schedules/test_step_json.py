"""Schedules in steps as JSON values: back and forth, and every way in which one can be malformed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import FileFormatError
from collopt.schedules import SCHEDULE_KINDS, Send, StepAllreduce, StepSchedule, schedule_from_json, schedule_to_json
from collopt.schedules.schedule import schedule_kind
from collopt.schedules.steps.step_schedule import ARRAYS
from sample_sizes import examples

NUMBERS = st.integers(0, 2**63 - 1)
EXCHANGE = StepSchedule.from_sends(2, 2, [(0, 0, 0, 2, (0, 1)), (0, 1, 0, 2, (1, 0))])


def assert_same(one: StepSchedule, other: StepSchedule) -> None:
    """All fields are equal, types included."""
    for name in ("num_ranks", "chunks_per_shard", "direction"):
        assert getattr(one, name) == getattr(other, name)
    for name in ARRAYS:
        mine, its = getattr(one, name), getattr(other, name)
        assert np.array_equal(mine, its)
        assert mine.dtype == its.dtype == np.int64


@given(
    st.lists(st.builds(Send, NUMBERS, NUMBERS, NUMBERS, NUMBERS, st.lists(NUMBERS, max_size=4).map(tuple)), max_size=8),
    st.integers(1, 2**63 - 1),
    st.sampled_from(["broadcast", "reduce"]),
)
@settings(max_examples=examples(60))
def test_schedules_come_back_as_they_were(sends: list[Send], count: int, direction: Any) -> None:
    """Whatever they hold, through JSON text."""
    made = StepSchedule.from_sends(count, count, sends, direction)
    decoded = json.loads(json.dumps(schedule_to_json(made)))
    assert schedule_kind(decoded) == "steps"
    again = schedule_from_json(decoded, "text")
    assert isinstance(again, StepSchedule)
    assert_same(again, made)


def test_allreduces_come_back_as_they_were() -> None:
    """With both parts."""
    made = StepAllreduce(StepSchedule.from_sends(2, 1, [(0, 0, 0, 1, (0, 1))], "reduce"), EXCHANGE)
    decoded = json.loads(json.dumps(schedule_to_json(made)))
    assert set(decoded) == {"kind", "reduce", "broadcast"}
    assert schedule_kind(decoded) == "steps"
    again = schedule_from_json(decoded, "text")
    assert isinstance(again, StepAllreduce)
    for mine, its in zip(made.schedules, again.schedules, strict=True):
        assert_same(mine, its)


COLUMN = "field schedule.{} is not a list of whole numbers"
BAD: dict[str, tuple[dict[str, object], str]] = {
    **{
        f"{name} {value!r}"[:50]: ({name: value}, COLUMN.format(name))
        for name in ("steps", "sources", "lower", "upper", "routes")
        for value in (None, 3, "01", {}, [0, 1.0], [0, True], [0, "1"], [0, None], [0, [1]], [0, Decimal(1)])
    },
    "a step beyond 64 bits": ({"steps": [0, 2**63]}, "field schedule.steps has a number beyond 64 bits"),
    "a source far beyond": ({"sources": [0, 10**90]}, "field schedule.sources has a number beyond 64 bits"),
    "a negative number far away": ({"lower": [0, -(10**90)]}, "field schedule.lower has a number beyond 64 bits"),
    "a negative step": ({"steps": [0, -1]}, "field schedule.steps has the negative number -1; expected numbers from 0"),
    "a send less": (
        {"upper": [2]},
        "field schedule.upper has 1 entries, but schedule.steps has 2; expected one for each send",
    ),
    "paths that are none": ({"paths": [0, 1]}, "field schedule.paths is not a list of lists of node numbers"),
    "paths of texts": ({"paths": [["gpu0", "gpu1"]]}, COLUMN.format("paths")),
    "paths in paths": ({"paths": [[[0, 1]]]}, COLUMN.format("paths")),
    "paths beyond 64 bits": ({"paths": [[0, 2**64]]}, "field schedule.paths has a number beyond 64 bits"),
    "no ranks": ({"num_ranks": 0}, "field schedule.num_ranks is 0; expected a whole number from 1"),
    "half a rank": ({"num_ranks": 0.5}, r"field schedule.num_ranks is 0\.5; expected a whole number from 1"),
    "true ranks": ({"num_ranks": True}, "field schedule.num_ranks is True; expected a whole number from 1"),
    "too many chunks": (
        {"chunks_per_shard": 2**63},
        "field schedule.chunks_per_shard is 9223372036854775808; expected",
    ),
    "another direction": ({"direction": "up"}, "field schedule.direction is 'up'; expected 'broadcast' or 'reduce'"),
    "a direction that is a list": ({"direction": ["reduce"]}, r"field schedule.direction is \['reduce'\]; expected"),
    "another field": (
        {"weights": [1, 1]},
        "field schedule is not of the kind .steps.; expected the fields kind, direct",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_malformed_is_refused(case: str) -> None:
    """In one line that names the document and the field."""
    changes, message = BAD[case]
    with pytest.raises(FileFormatError, match=f"^plan.json: {message}") as caught:
        schedule_from_json(schedule_to_json(EXCHANGE) | changes, "plan.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("data", [None, [], "steps", {}, {"kind": "steps"}, {"kind": ["steps"]}])
def test_what_has_no_fields_is_refused(data: object) -> None:
    """Whatever it is."""
    with pytest.raises(FileFormatError, match=r"field schedule is not of the kind .steps.; expected the fields"):
        SCHEDULE_KINDS["steps"].from_json(data, "plan.json")


def test_allreduces_are_of_one_kind() -> None:
    """Steps that add up go with steps that spread."""
    steps = schedule_to_json(EXCHANGE)
    with pytest.raises(FileFormatError, match=r"is not of the kind .steps."):
        schedule_from_json({"kind": "allreduce", "reduce": steps, "broadcast": {"kind": "forest"}}, "plan.json")
    with pytest.raises(FileFormatError, match=r"is not of the kind .forest."):
        schedule_from_json({"kind": "allreduce", "reduce": {"kind": "forest"}, "broadcast": steps}, "plan.json")
    with pytest.raises(
        FileFormatError, match=r"is not of the kind .allreduce.; expected the fields kind, reduce, broadcast"
    ):
        schedule_from_json({"kind": "allreduce", "reduce": steps}, "plan.json")
