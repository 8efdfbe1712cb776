"""The simulated training iteration: timelines worked out by hand, and what must hold for all."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from compute_trace import Layer, read_compute_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from training_model import (
    DirectConnectTimes,
    TrainingIteration,
    simulate_iteration,
)

from collopt.errors import UnsupportedError
from collopt.schedules import StepCost
from sample_sizes import examples

ROW = {"name": "mlp", "forward_us": 10, "backward_us": 20, "gradient_bytes": 100, "all_to_all_bytes": 0}


class Linear:
    """Allreduce takes `alpha` and 1 µs per 10 bytes, all-to-all `alpha` and 1 µs per byte."""

    def __init__(self, alpha: int = 5) -> None:
        self.alpha = alpha

    def allreduce_us(self, num_bytes: int) -> Fraction:
        """A tenth of a µs per byte."""
        return self.alpha + Fraction(num_bytes, 10)

    def all_to_all_us(self, num_bytes: int) -> Fraction:
        """A µs per byte."""
        return Fraction(self.alpha + num_bytes)


def spans(iteration: TrainingIteration) -> list[tuple[str, str, int, int]]:
    """The tasks without their streams, and with plain numbers."""
    return [(task.kind, task.name, int(task.start_us), int(task.end_us)) for task in iteration.tasks]


def test_gradients_are_added_up_while_earlier_layers_go_back() -> None:
    """The second layer's allreduce hides behind the first layer's way back; the first one's is seen."""
    iteration = simulate_iteration([{**ROW, "name": "a"}, {**ROW, "name": "b"}], Linear(), bucket_sizes=[100])
    assert spans(iteration) == [
        ("forward", "a", 0, 10),
        ("forward", "b", 10, 20),
        ("backward", "b", 20, 40),
        ("allreduce", "b", 40, 55),
        ("backward", "a", 40, 60),
        ("allreduce", "a", 60, 75),
    ]
    assert iteration.iteration_us == 75
    assert (iteration.compute_us, iteration.allreduce_us, iteration.unoverlapped_allreduce_us) == (60, 30, 15)


def test_bucket_waits_until_it_is_full_and_the_rest_goes_last() -> None:
    """Three layers of 100 bytes with buckets of 150: two of them together, then the one that is left."""
    iteration = simulate_iteration([{**ROW, "name": name} for name in "abc"], Linear(), bucket_sizes=[150])
    assert [task for task in spans(iteration) if task[0] == "allreduce"] == [
        ("allreduce", "b", 70, 95),
        ("allreduce", "a", 95, 110),
    ]


def test_experts_are_reached_by_four_all_to_alls_that_block_the_computation() -> None:
    """Before and after the layer, forward and backward, 5 + 7 µs each."""
    experts = {**ROW, "gradient_bytes": 0, "all_to_all_bytes": 7}
    iteration = simulate_iteration([experts], Linear())
    assert spans(iteration) == [
        ("all-to-all", "mlp", 0, 12),
        ("forward", "mlp", 12, 22),
        ("all-to-all", "mlp", 22, 34),
        ("all-to-all", "mlp", 34, 46),
        ("backward", "mlp", 46, 66),
        ("all-to-all", "mlp", 66, 78),
    ]
    assert (iteration.iteration_us, iteration.all_to_all_us, iteration.unoverlapped_allreduce_us) == (78, 48, 0)


def test_all_to_all_waits_for_the_allreduce_before_it() -> None:
    """Both use the same links: the experts' way back starts after the gradients of the layer behind them."""
    experts = {**ROW, "name": "experts", "gradient_bytes": 0, "all_to_all_bytes": 7}
    iteration = simulate_iteration([experts, {**ROW, "name": "head"}], Linear(), bucket_sizes=[100])
    assert spans(iteration)[4:] == [
        ("backward", "head", 44, 64),
        ("allreduce", "head", 64, 79),
        ("all-to-all", "experts", 79, 91),
        ("backward", "experts", 91, 111),
        ("all-to-all", "experts", 111, 123),
    ]
    assert iteration.unoverlapped_allreduce_us == 15


def test_best_bucket_size_is_chosen() -> None:
    """Small buckets overlap more, large ones pay alpha less often."""
    rows = [{**ROW, "name": str(number)} for number in range(4)]
    assert simulate_iteration(rows, Linear(alpha=1), bucket_sizes=[400, 100]).bucket_bytes == 100
    assert simulate_iteration(rows, Linear(alpha=500), bucket_sizes=[100, 400]).bucket_bytes == 400


def test_times_of_table_4_come_out() -> None:
    """L^3(C(16, {3, 4})), printed with 6 alpha, 1.020 M/B and 8.12e-4, has 291.0 and 403.5 µs in Table 4."""
    times = DirectConnectTimes(StepCost(6, Fraction(261, 256)), 8.12e-4, 1024, 4, alpha=10, node_bandwidth=12.5)
    assert round(float(times.allreduce_us(2**20)), 1) == 291.0
    assert float(times.all_to_all_us(2**20)) == pytest.approx(403.5, abs=0.1)
    assert isinstance(times.rate, Fraction)


@pytest.mark.parametrize("form", ["rows", "frame", "file", "layers", "generator"])
def test_trace_may_come_in_any_form(form: str, tmp_path: Path) -> None:
    """Rows, a DataFrame, a CSV file and what was read before mean the same."""
    rows = [{**ROW, "forward_us": 0.1}, {**ROW, "name": "x", "all_to_all_bytes": 3}]
    expected = (Layer("mlp", Fraction(1, 10), Fraction(20), 100, 0), Layer("x", Fraction(10), Fraction(20), 100, 3))
    pd.DataFrame(rows).to_csv(tmp_path / "trace.csv", index=False)
    given_as: dict[str, Any] = {
        "rows": rows,
        "frame": pd.DataFrame(rows),
        "file": tmp_path / "trace.csv",
        "layers": expected,
        "generator": (row for row in rows),
    }
    assert read_compute_trace(given_as[form]) == expected


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("forward_us", value) for value in (-1, float("nan"), float("inf"), True, "1/0")),
        *(("gradient_bytes", value) for value in (0.5, "many", 10**18)),
        *(("name", value) for value in ("", float("nan"))),
        ("all_to_all_bytes", None),
        ("optimizer_us", 3),
    ],
)
def test_bad_row_is_named(column: str, value: object) -> None:
    """One sentence says which row and which column."""
    with pytest.raises(UnsupportedError, match=f"{column}.*row 2|row 2.*{column}"):
        simulate_iteration([ROW, {**ROW, column: value}], Linear())


AMOUNTS = st.integers(0, 50)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.just("layer"),
            "forward_us": AMOUNTS,
            "backward_us": AMOUNTS,
            "gradient_bytes": st.integers(0, 300),
            "all_to_all_bytes": st.sampled_from([0, 0, 1, 30]),
        }
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=examples(100))
@given(rows=ROWS, bucket=st.integers(1, 400), alpha=st.integers(0, 40))
def test_streams_do_one_thing_at_a_time_and_nothing_is_lost(
    rows: list[dict[str, Any]], bucket: int, alpha: int
) -> None:
    """The iteration is no shorter than either stream, all gradients are added up, and blocking tasks run alone."""
    iteration = simulate_iteration(rows, Linear(alpha), bucket_sizes=[bucket])
    for stream in ("compute", "communication"):
        tasks = [task for task in iteration.tasks if task.stream == stream]
        assert all(before.end_us <= after.start_us for before, after in pairwise(tasks))
    blocking = [task for task in iteration.tasks if task.kind == "all-to-all"]
    for task in iteration.tasks:
        for other in blocking:
            assert task is other or task.end_us <= other.start_us or other.end_us <= task.start_us
    assert len(blocking) == 4 * sum(row["all_to_all_bytes"] > 0 for row in rows)
    assert iteration.iteration_us >= iteration.compute_us + iteration.all_to_all_us
    assert iteration.iteration_us >= iteration.allreduce_us + iteration.all_to_all_us
    assert 0 <= iteration.unoverlapped_allreduce_us <= iteration.allreduce_us
    buckets = [task.end_us - task.start_us - alpha for task in iteration.tasks if task.kind == "allreduce"]
    assert 10 * sum(buckets) == sum(row["gradient_bytes"] for row in rows)
    assert all(10 * size >= bucket for size in buckets[:-1])


@settings(max_examples=examples(60))
@given(rows=ROWS, alpha=st.integers(0, 40), more=st.integers(0, 40))
def test_slower_steps_never_make_a_faster_iteration(rows: list[dict[str, Any]], alpha: int, more: int) -> None:
    """With the same buckets, and with the best ones."""
    for sizes in ([100], [50, 100, 1000]):
        fast, slow = (simulate_iteration(rows, Linear(step), bucket_sizes=sizes) for step in (alpha, alpha + more))
        assert fast.iteration_us <= slow.iteration_us
