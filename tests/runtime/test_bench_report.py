"""The sizes of a benchmark, and what it prints: the columns and the key names of nccl-tests."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.runtime.measuring.bench_report import BenchReport, BenchRow, Device, Reading, extents, sweep
from collopt.runtime.programs.layout import Layout

CONFIG = {
    "minimum_bytes": 1024,
    "maximum_bytes": 2048,
    "step_factor": 2,
    "warmup_iters": 1,
    "iterations": 3,
    "validation": 1,
}
ROWS = (
    BenchRow("gloo", 1024, 64, Reading(10.0, 0), Reading(5.0, 0)),
    BenchRow("plan.json", 1024, 64, Reading(8.0, 0), None),
    BenchRow("gloo", 2048, 128, Reading(20.0, 0), Reading(123456.789, 0)),
    BenchRow("plan.json", 2048, 128, Reading(16.0, 3), None),
)


def report(rows: tuple[BenchRow, ...] = ROWS) -> BenchReport:
    """An allgather of four ranks."""
    devices = tuple(Device(rank, 100 + rank, "host", -1, "", "cpu") for rank in range(4))
    return BenchReport("allgather", "gloo", 4, "float", "none", -1, CONFIG, devices, rows, "then", "now")


def test_columns_are_those_of_nccl_tests_and_who_did_it() -> None:
    """Names are in one comment, units in the next."""
    places, names, units = str(report()).splitlines()[4:7]
    assert places.split() == ["#", "out-of-place", "in-place"]
    four = ["time", "algbw", "busbw", "#wrong"]
    assert names.split() == ["#", "size", "count", "type", "redop", "root", *four, *four, "by"]
    three = ["(us)", "(GB/s)", "(GB/s)"]
    assert units.split() == ["#", "(B)", "(elements)", *three, *three]


def test_a_row_has_thirteen_words_and_the_name() -> None:
    """Bandwidths are size over time, and that times (n - 1) / n."""
    lines = [line.split() for line in str(report()).splitlines() if not line.startswith("#")]
    assert lines == [
        ["1024", "64", "float", "none", "-1", "10.00", "0.10", "0.08", "0", "5.00", "0.20", "0.15", "0", "gloo"],
        ["1024", "64", "float", "none", "-1", "8.00", "0.13", "0.10", "0", "N/A", "N/A", "N/A", "N/A", "plan.json"],
        ["2048", "128", "float", "none", "-1", "20.00", "0.10", "0.08", "0", "123457", "0.00", "0.00", "0", "gloo"],
        ["2048", "128", "float", "none", "-1", "16.00", "0.13", "0.10", "3", "N/A", "N/A", "N/A", "N/A", "plan.json"],
    ]


def test_the_end_counts_wrong_elements_and_averages_busbw() -> None:
    """Each plan and library has an average of its own."""
    ends = str(report()).splitlines()[-3:]
    assert ends[0] == "# Out of bounds values : 3 FAILED"
    average = (1.024 / 10 + 1.024 / 5 + 2.048 / 20 + 2.048 / 123456.789) * 3 / 4 / 4
    assert ends[1] == f"# Avg bus bandwidth    : {average:g} gloo"
    assert ends[2] == f"# Avg bus bandwidth    : {0.128 * 3 / 4:g} plan.json"
    assert str(report(ROWS[:3])).splitlines()[-3] == "# Out of bounds values : 0 OK"


def test_json_has_the_key_names_of_nccl_tests() -> None:
    """The experiment is the plan or library, and the root is a text, as there."""
    data = json.loads(json.dumps(report().to_json()))
    assert {"version", "start_time", "config", "devices", "results", "out_of_bounds", "average_bus_bandwidth",
            "end_time"} < set(data)  # fmt: skip
    assert set(data["devices"][3]) == {"rank", "group", "pid", "hostname", "device", "device_hex", "device_info"}
    first, second = data["results"][:2]
    assert list(first) == ["size", "count", "type", "redop", "root", "out_of_place", "in_place", "actual_iterations",
                           "experiment_name"]  # fmt: skip
    assert first["out_of_place"] == {
        "time": 10.0,
        "alg_bw": pytest.approx(0.1024),
        "bus_bw": pytest.approx(0.0768),
        "nwrong": 0,
    }
    assert (second["in_place"], second["experiment_name"], second["root"]) == (None, "plan.json", "-1")
    assert data["out_of_bounds"] == {"count": 3, "okay": "false"}
    average = data["average_bus_bandwidth"]
    assert average["okay"] == "unchecked"
    assert set(average["experiments"]) == {"gloo", "plan.json"}
    assert average["experiments"]["plan.json"] == pytest.approx(0.096)


def test_a_sweep_goes_up_by_factors_or_steps() -> None:
    """The end counts only if it is met."""
    assert sweep(1 << 10, 16 << 10, 2, 1) == (1024, 2048, 4096, 8192, 16384)
    assert sweep(10, 95, 3, 1) == (10, 30, 90)
    assert sweep(10, 95, None, 40) == (10, 50, 90)
    assert sweep(7, 7, None, 1) == (7,)


@pytest.mark.parametrize("collective", ["allgather", "reduce_scatter", "all_to_all"])
def test_sizes_with_parts_count_what_one_part_has(collective: str) -> None:
    """Counts follow nccl-tests; sizes without an element for each part are left out."""
    (extent,) = extents(Layout.of(collective, 8, 64), (4, 8, 31, 32, 35), 4)
    assert (extent.size, extent.count, extent.elements) == (32, 1, 64 if collective == "all_to_all" else 8)


def test_unequal_parts_count_on_average() -> None:
    """Sizes are multiples of the traffic in lowest terms, here of 1 + 3 elements."""
    layout = Layout.of("all_to_allv", 2, 8, [0, 2, 6, 0])
    assert [(each.size, each.count, each.elements) for each in extents(layout, (7, 8, 40), 4)] == [
        (8, 1, 4),
        (40, 5, 20),
    ]


@pytest.mark.parametrize("collective", ["allreduce", "broadcast", "reduce"])
def test_sizes_of_a_buffer_count_all_of_it(collective: str) -> None:
    """The count does not depend on the number of ranks."""
    found = extents(Layout.of(collective, 8, 8, [8, *[0] * 7] if collective != "allreduce" else ()), (1, 8, 31), 4)
    assert [(extent.size, extent.count, extent.elements) for extent in found] == [(8, 2, 2), (28, 7, 7)]


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 10**6), min_size=1, max_size=20).map(sorted),
    st.sampled_from([1, 2, 4, 8]),
)
def test_sizes_are_whole_distinct_and_none_is_exceeded(ranks: int, sizes: list[int], width: int) -> None:
    """Sizes are rounded down by less than one element per part."""
    unit = ranks * width
    if max(sizes) < unit:
        return
    found = extents(Layout.of("allgather", ranks, ranks), tuple(sizes), width)
    assert [extent.size for extent in found] == sorted({size - size % unit for size in sizes} - {0})
    assert all(extent.elements * width == extent.size == extent.count * unit for extent in found)
