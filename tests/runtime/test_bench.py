"""Benchmarks on real ranks: what is measured, and that wrong data are seen."""

from __future__ import annotations

from functools import partial
from typing import Any

import bench_tasks
import pytest
from runtime_forests import random_schedule, ring_forest, weighted_forest

import collopt
from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime import BenchReport, lower, measure_plans
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import ring

TIMEOUT_S = 200


@pytest.mark.parametrize(
    "collective",
    ["allreduce", *(pytest.param(name, marks=pytest.mark.slow) for name in ("reduce_scatter", "broadcast"))],
)
def test_a_plan_and_the_backend_are_measured_side_by_side(collective: str) -> None:
    """Every size has a row for each, with both places, and no wrong element."""
    program = lower(random_schedule(collective, 3, 2, seed=1, root=2), collective)
    report = measure_plans(
        {"mine": program}, minbytes=1024, maxbytes=4096, stepfactor=2, iters=2, warmup_iters=1, timeout_s=TIMEOUT_S
    )
    assert report.names == ("gloo", "mine")
    assert [row.name for row in report.rows] == ["gloo", "mine"] * 3
    parted = collective in ("allgather", "reduce_scatter")
    assert [row.size for row in report.rows[::2]] == ([1020, 2040, 4092] if parted else [1024, 2048, 4096])
    assert [row.count for row in report.rows[::2]] == ([85, 170, 341] if parted else [256, 512, 1024])
    assert report.wrong_elements == 0
    assert all(len(row.readings) == 2 for row in report.rows)
    assert all(
        reading.microseconds > 0 and reading.wrong_elements == 0 for row in report.rows for reading in row.readings
    )
    assert report.root == (2 if collective in ("broadcast", "reduce") else -1)
    assert [device.rank for device in report.devices] == [0, 1, 2]


def test_rows_are_reported_one_by_one() -> None:
    """Each comes with those before it and their number; without a check nothing is known of wrong elements."""
    reports: list[tuple[BenchReport, int]] = []
    report = measure_plans(
        {"mine": lower(ring_forest(2), "allgather")},
        minbytes=64,
        maxbytes=128,
        stepfactor=2,
        iters=1,
        warmup_iters=0,
        check=0,
        timeout_s=TIMEOUT_S,
        on_row=lambda *news: reports.append(news),
    )
    assert [(so_far.rows, total) for so_far, total in reports] == [(report.rows[:done], 4) for done in range(1, 5)]
    assert {(so_far.backend, so_far.start_time, so_far.end_time) for so_far, _ in reports} == {
        ("gloo", report.start_time, "")
    }
    assert [reading.wrong_elements for row in report.rows for reading in row.readings] == [None] * 8


@pytest.mark.parametrize("traffic", [pytest.param(None, marks=pytest.mark.slow), [[0, 2, 1], [3, 1, 0], [0, 1, 1]]])
def test_all_to_alls_are_measured_out_of_place_only(traffic: list[list[int]] | None) -> None:
    """Neither torch nor `execute` exchanges in place; the size is that of one rank in all, on average."""
    options = {} if traffic is None else {"traffic": traffic}
    plan = collopt.plan(ring(3, bandwidth=25), "all_to_all" if traffic is None else "all_to_allv", **options)
    report = measure_plans({"mine": plan}, minbytes=1024, maxbytes=1024, iters=1, warmup_iters=0, timeout_s=TIMEOUT_S)
    assert [(row.name, row.size, row.count, row.in_place) for row in report.rows] == [
        (name, 1020, 85, None) for name in ("gloo", "mine")
    ]
    assert report.wrong_elements == 0


@pytest.mark.slow
@pytest.mark.parametrize(("op", "datatype"), [("avg", "bfloat16"), ("sum", "int8"), ("prod", "half")])
def test_operations_and_types_come_out_right(op: str, datatype: str) -> None:
    """Plan and backend agree with the data, also where sums do not fit many numbers."""
    program = lower(random_schedule("allreduce", 3, 2, seed=4), "allreduce")
    report = measure_plans(
        {"mine": program}, minbytes=40000, maxbytes=40000, iters=1, warmup_iters=0, op=op, datatype=datatype,
        timeout_s=TIMEOUT_S,
    )  # fmt: skip
    assert report.wrong_elements == 0
    assert (report.redop, report.datatype) == (op, datatype)


@pytest.mark.parametrize(
    ("collective", "op", "datatype"),
    [
        ("allreduce", "avg", "double"),
        pytest.param("reduce_scatter", "max", "float", marks=pytest.mark.slow),
    ],
)
def test_each_spoiled_element_is_counted(collective: str, op: str, datatype: str) -> None:
    """Rank 1 spoils four elements in each of two checks and places, and the backend's data is right."""
    task = partial(bench_tasks.measure, collective=collective, op=op, datatype=datatype)
    for report in run_ranks(task, bench_tasks.RANKS, timeout_s=TIMEOUT_S):
        right, spoiled = report.rows
        assert (right.name, right.wrong_elements) == ("gloo", 0)
        wrong = [reading.wrong_elements for reading in spoiled.readings]
        # Of the three that change places, those may be right whose neighbor is one less.
        assert all(6 <= (each or 0) <= 8 for each in wrong)
        assert report.wrong_elements == spoiled.wrong_elements == sum(each or 0 for each in wrong)


def test_data_of_the_wrong_rank_are_wrong() -> None:
    """Nearly all elements differ; a few numbers of two ranks are equal."""
    (first, *others) = run_ranks(bench_tasks.swap_inputs, bench_tasks.RANKS, timeout_s=TIMEOUT_S)
    elements = bench_tasks.SIZE // 4 * bench_tasks.RANKS
    assert 0.99 * elements < first[0] <= elements
    assert others == [first] * 3


@pytest.mark.slow
def test_unequal_shares_are_measured_without_the_backend() -> None:
    """Torch has no collective for them; a rank may even have none."""
    program = lower(weighted_forest([1, 0, 3], 2, seed=5, direction="broadcast"), "allgather")
    report = measure_plans(
        {"unequal": program}, minbytes=1000, maxbytes=1000, iters=1, warmup_iters=0, timeout_s=TIMEOUT_S
    )
    assert report.names == ("unequal",)
    assert report.wrong_elements == 0


FIRST = lower(ring_forest(3), "allgather")


@pytest.mark.parametrize(
    ("plans", "message"),
    [
        ({"a": FIRST, "b": lower(ring_forest(4), "allgather")}, "a and b differ in ranks: 3 and 4"),
        ({"a": FIRST, "b": lower(random_schedule("allreduce", 3, 1, seed=0), "allreduce")}, "differ in collective"),
        (
            {str(root): lower(random_schedule("broadcast", 3, 1, 0, root=root), "broadcast") for root in (0, 1)},
            "differ in root: 0 and 1",
        ),
        (
            {"a": FIRST, "b": lower(weighted_forest([1, 2, 3], 1, seed=5, direction="broadcast"), "allgather")},
            "differ in the shares",
        ),
        ({}, "there is no plan"),
        ({"gloo": FIRST}, "called gloo"),
        ([FIRST], "expected a mapping of names"),
        ({3: FIRST}, "a plan is called 3"),
        ({"a\nb": FIRST}, "a plan is called"),
    ],
)
def test_plans_that_cannot_be_compared_are_refused(plans: Any, message: str) -> None:
    """The message names the difference, before any process is started."""
    with pytest.raises(UnsupportedError, match=message):
        measure_plans(plans)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"datatype": "int7"}, "datatype is 'int7'"),
        ({"op": "xor"}, "op is 'xor'"),
        ({"backend": "mpi"}, "backend is 'mpi'"),
        ({"iters": 0}, "iters is 0"),
        ({"check": -1}, "check is -1"),
        ({"stepfactor": 1}, "stepfactor is 1"),
        ({"minbytes": 2, "maxbytes": 1}, "ends at 1 bytes and begins at 2"),
        ({"minbytes": 1, "maxbytes": 2**20, "stepbytes": 1}, "more than 10000 sizes"),
        ({"minbytes": 1, "maxbytes": 4}, "less than one element of 4 bytes for each part; go up to 12 bytes"),
        ({"op": "avg", "datatype": "int8"}, "avg is not supported on int8"),
        ({"timeout_s": 0}, "timeout_s is 0"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], message: str) -> None:
    """The message names option and value."""
    program = lower(random_schedule("reduce_scatter", 3, 1, seed=0), "reduce_scatter")
    with pytest.raises(UnsupportedError, match=message):
        measure_plans({"a": program}, **options)  # type: ignore[arg-type]


def test_more_than_memory_holds_is_told() -> None:
    """The message names the option to change."""
    with pytest.raises((UnsupportedError, ProgramError), match="give a smaller maxbytes"):
        measure_plans(
            {"ring": lower(ring_forest(2), "allgather")}, minbytes=10**17, maxbytes=10**17, timeout_s=TIMEOUT_S
        )
