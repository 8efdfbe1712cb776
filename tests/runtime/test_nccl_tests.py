"""Reading what nccl-tests, rccl-tests and collopt bench print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import ColloptError, FileFormatError, UnsupportedError
from collopt.runtime.measuring.bench_report import BenchReport, BenchRow, Device, Reading
from collopt.runtime.measuring.measured_times import MeasuredTimes, read_nccl_tests
from sample_sizes import examples

HEADER = """\
# nccl-tests version 2.18.3 nccl-headers=23003 nccl-library=23003
# Collective test starting: all_gather_perf
# nThread 1 nGpus 2 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   1946 on    somewhere device  0 [0000:0f:00] NVIDIA A100-SXM4-40GB
#  Rank  1 Group  0 Pid   1947 on    somewhere device  1 [0000:15:00] NVIDIA A100-SXM4-40GB
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
ROWS = """\
           0             0     float    none      -1    12.10    0.00    0.00      0    11.90    0.00    0.00      0
          64             8     float    none      -1    20.00    0.00    0.00      0    21.50    0.00    0.00    N/A
"""


def written(folder: Path, text: str) -> Path:
    """Put a text into a file."""
    path = folder / "times.txt"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str) -> MeasuredTimes:
    """Read a text."""
    return read_nccl_tests(written(folder, text))


def test_both_columns_are_read_and_empty_sizes_are_not(tmp_path: Path) -> None:
    """Out of place comes first; N/A counts no wrong elements."""
    found = read(tmp_path, HEADER + ROWS + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 0.01\n")
    assert (str(found.collective), found.num_ranks) == ("allgather", 2)
    assert [tuple(row[:5]) for row in found.rows] == [(64, 20.0, False, "", 0.0), (64, 21.5, True, "", None)]


LABELS = (
    "0: ", " 3: ", "[1,0]<stdout>:", "[1,12]<stdout>: ", "[0] ", "[rank0]: ", "[prterun-host-12@1,0]<stdout>:",
    "2026-01-05T10:00:00.123456789Z ", "2026-01-05 10:00:00,123 [1,0]<stdout>:", "Jan  5 10:00:00 host perf[12]: ",
    "pod-0 ", "pod-0 worker ", "worker-1  | ", "[pod/perf-0/main] ",
    "2026/01/05 10:00:00.123 [INFO] worker-0 | ", "node1.local: ",
)  # fmt: skip


def test_rows_behind_an_unknown_label_are_told(tmp_path: Path) -> None:
    """The rows are there; what stands before them is named."""
    with pytest.raises(FileFormatError, match="has a row behind 'worker ~'; cut that from all lines"):
        read(tmp_path, "".join(f"worker ~ {line}\n" for line in (HEADER + ROWS).splitlines()))


def test_logs_and_labels_in_between_are_passed_over(tmp_path: Path) -> None:
    """`NCCL_DEBUG=INFO`, `srun --label` and `mpirun --tag-output` leave such lines."""
    noise = (
        "host:123:456 [0] NCCL INFO comm 0x1 rank 0 nranks 2\n\n17 processes started\nNCCL version 2.27.3+cuda12.8\n"
    )
    plain = read(tmp_path, HEADER + ROWS)
    assert read(tmp_path, noise + HEADER + noise.replace("17 processes started\n", "") + ROWS) == plain
    for label in LABELS:
        assert read(tmp_path, "".join(f"{label}{line}\n" for line in (HEADER + ROWS).splitlines())) == plain


OLD_HEADER = "#       size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error\n"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (
            OLD_HEADER + "1024 256 float sum 15.5 0.07 0.12 5e-07 1.6e1 0.06 0.11 5e-07\n",
            [(1024, 15.5, False, "", None), (1024, 16.0, True, "", None)],
        ),
        (
            OLD_HEADER + "1024 256 float     15.5 0.07 0.12 1e+00 1.6e1 0.06 0.11 1e+00\n",
            [(1024, 15.5, False, "", None), (1024, 16.0, True, "", None)],
        ),
        (
            HEADER + "64 8 float     20.00 0.0 0.0 0 21.50 0.0 0.0 0\n",
            [(64, 20.0, False, "", 0.0), (64, 21.5, True, "", 0.0)],
        ),
        (
            (HEADER + "64 8 float none -1[0] 20.0 0 0 0[0] 21.5 0 0 0").replace("\n", "\n[0] "),
            [(64, 20.0, False, "", 0.0), (64, 21.5, True, "", 0.0)],
        ),
        (ROWS, [(64, 20.0, False, "", 0.0), (64, 21.5, True, "", None)]),
        (HEADER + "64 8 float none -1                   21.50 0.00 0.00 0\n", [(64, 21.5, True, "", 0.0)]),
    ],
    ids=["old columns", "blank redop", "blank redop and root", "labels within lines", "no header", "in place only"],
)
def test_other_tables_are_read(tmp_path: Path, text: str, rows: list[tuple[object, ...]]) -> None:
    """Old tables count no wrong elements, copied rows have no header, and a reading may be blank."""
    assert [tuple(row[:5]) for row in read(tmp_path, text).rows] == rows


NAMES = "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected the output of nccl-tests"),
        ("hello\n", "has no measured times"),
        (HEADER, "has no measured times"),
        (HEADER + "64 8 float none -1 20.0\n", "line 12 has 6 columns; expected 13: is it cut short?"),
        (
            HEADER + ROWS.replace("20.00", "twenty"),
            "line 13: time is 'twenty'; expected a number of at least 0, or N/A",
        ),
        (HEADER + ROWS.replace("20.00", "-1"), "line 13: time is '-1'"),
        (HEADER + ROWS.replace("20.00", "1e999"), "line 13: time is '1e999'"),
        (
            HEADER + "# Collective test starting: all_reduce_perf\n",
            "line 12 starts allreduce after the allgather of line 2",
        ),
        (
            HEADER + ROWS + HEADER.replace("Rank  1", "Rank  7") + ROWS,
            "ranks 8, and line 12 of one with 2; put each",
        ),
        (HEADER + ROWS + ROWS.replace("float", "half "), "line 14 is of a run with type 'half'"),
        ('[{"size": 1, "time": 1, "ranks": 2}, {"size": 1, "time": 1, "ranks": 4}]', "holds runs of 2, 4 ranks"),
        ("# Collective test starting: coffee_perf\n", "line 1 measures 'coffee_perf'"),
        ("{", "is not valid JSON at line 1, column 2"),
        ('{"results": 3}', "has no list 'results'"),
        ('{"results": [3]}', "results[0] is 3; expected an object"),
        ('{"results": [{"size": -1, "in_place": {"time": 1}}]}', "results[0].in_place: size is -1"),
        ('{"results": [{"size": 1, "in_place": {"time": -1}}]}', "results[0].in_place: time is -1"),
        ('{"collective": "tea", "results": []}', "collective is 'tea'"),
        ("[]", "has no measured times"),
        ('[{"size": 1, "time": "x"}]', "entry 0: time is 'x'"),
        (
            '[{"name": "AllReduce", "size": 1, "time": 1}, {"name": "AllGather", "size": 1, "time": 1}]',
            "file of its own",
        ),
        ("[[" * 10**5, "nested too deeply"),
        ('{"a": ' + "9" * 10**4 + "}", "an integer has 10000 digits"),
        (NAMES + "#  (B)  (elements)  (min)  (GB/s)  (GB/s)\n", "line 2 gives sizes and times in (B), (min)"),
        (NAMES + "#  (KB)  (elements)  (us)  (GB/s)  (GB/s)\n", "gives sizes and times in (KB), (us)"),
        (NAMES + "#  (B)  (elements)  (us)  (GB/s)  (ms)  (GB/s)\n", "in (B), (ms), (us)"),
        (NAMES + "#  size  count  type  redop  root  time(ms)  algbw  busbw  #wrong\n", "but no 'time' in µs"),
    ],
)
def test_bad_files_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    """The message is one line with the file and the place."""
    path = written(tmp_path, text)
    with pytest.raises(FileFormatError) as caught:
        read_nccl_tests(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "message"), [("none", "does not exist"), (".", "folder"), ("binary", "UTF-8")])
def test_paths_without_text_are_refused(tmp_path: Path, name: str, message: str) -> None:
    """A path is missing, a folder, or holds other bytes."""
    (tmp_path / "binary").write_bytes(b"\x80\xff\x00")
    with pytest.raises(FileFormatError, match=message):
        read_nccl_tests(tmp_path / name)


def test_json_of_nccl_tests(tmp_path: Path) -> None:
    """Its booleans are texts, its nan is a text, and readings may be null."""
    data = {
        "version": 3,
        "args": ["./build/all_reduce_perf", "-b", "8"],
        "devices": [{"rank": 0}, {"rank": 1}],
        "results": [
            {"size": 0, "out_of_place": {"time": 5.0, "nwrong": 0}, "in_place": None},
            {"size": 8, "out_of_place": None, "in_place": {"time": 6.5, "nwrong": None}, "experiment_name": ""},
            {"size": 16, "out_of_place": {"time": "nan", "nwrong": 0}, "in_place": {"cpu_time": 7, "nwrong": 2}},
        ],
    }
    found = read(tmp_path, json.dumps(data))
    assert (str(found.collective), found.num_ranks) == ("allreduce", 2)
    assert [tuple(row[:5]) for row in found.rows] == [(8, 6.5, True, "", None), (16, 7.0, True, "", 2.0)]


def test_json_of_rccl_tests(tmp_path: Path) -> None:
    """It is a list without an object around it."""
    row: dict[str, Any] = {
        "numCycle": 0,
        "name": "ReduceScatter",
        "ranks": 8,
        "size": 1024,
        "inPlace": 1,
        "time": "9.5",
    }
    found = read(tmp_path, json.dumps([row | {"wrong": "N/A"}, row | {"inPlace": 0, "wrong": "0"}]))
    assert (str(found.collective), found.num_ranks) == ("reduce_scatter", 8)
    assert [tuple(row[:5]) for row in found.rows] == [(1024, 9.5, True, "", None), (1024, 9.5, False, "", 0.0)]


def report() -> BenchReport:
    """What a benchmark of two plans gives."""
    config = {"minimum_bytes": 64, "maximum_bytes": 64, "step_factor": 2, "warmup_iters": 1, "iterations": 1}
    rows = (
        BenchRow("a plan.json", 64, 16, Reading(20.0, 0), Reading(21.0, None)),
        BenchRow("gloo", 64, 16, Reading(30.0, 1), None),
    )
    device = Device(0, 1, "host", -1, "", "")
    return BenchReport(
        "allgather", "gloo", 4, "float", "none", -1, config | {"validation": 1}, (device,), rows, "now", "then"
    )


@pytest.mark.parametrize("form", ["text", "json"])
def test_our_own_benchmarks_are_read_too(tmp_path: Path, form: str) -> None:
    """Text and JSON have the plan or library of each row."""
    found = read(tmp_path, str(report()) if form == "text" else json.dumps(report().to_json()))
    assert (str(found.collective), found.num_ranks, found.names) == ("allgather", 4, ("a plan.json", "gloo"))
    assert [tuple(row)[:4] for row in found.rows] == [
        (64, 20.0, False, "a plan.json"),
        (64, 21.0, True, "a plan.json"),
        (64, 30.0, False, "gloo"),
    ]
    with pytest.raises(UnsupportedError, match=r"several; choose one of 'a plan\.json', 'gloo'"):
        found.of(None)
    with pytest.raises(UnsupportedError, match="only wrong results"):
        found.of("gloo").right()
    assert len(found.of("a plan.json").right().rows) == 2


def assert_read_or_refused(path: Path) -> None:
    """Whatever it is, it has rows or is refused in one line."""
    problem = ""
    try:
        assert read_nccl_tests(path).rows
    except ColloptError as error:
        problem = str(error)
    assert "\n" not in problem


WORDS = st.sampled_from(
    ["#", "size", "time", "#wrong", "64", "0", "1e5", "N/A", "nan", "-1", "by", "Rank", "{", "[", "]"]
)
LINES = st.lists(WORDS | st.text(max_size=4), max_size=16).map(" ".join)


@settings(max_examples=examples(150))
@given(lines=st.lists(LINES, max_size=8), headed=st.booleans())
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, lines: list[str], headed: bool) -> None:
    """Any text is read or refused in one line."""
    path = tmp_path_factory.mktemp("fuzz") / "times.txt"
    path.write_bytes(((HEADER if headed else "") + "\n".join(lines)).encode("utf-8", "surrogatepass"))
    assert_read_or_refused(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["results", "size", "out_of_place", "in_place", "time", "nwrong", "args", "devices", "name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(150))
@given(data=st.lists(JSON, max_size=3) | st.fixed_dictionaries({"results": JSON, "args": JSON}))
def test_no_json_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, data: object) -> None:
    """Any JSON is read or refused in one line."""
    path = tmp_path_factory.mktemp("fuzz") / "times.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert_read_or_refused(path)


ROW = "1024 256 float none -1 5 0.2 0.2 0 4.6 0.2 0.2 0\n"


@pytest.mark.parametrize(
    ("unit", "factor"), [("(us)", 1), ("(ms)", 1000), ("(s)", 10**6), ("(ns)", 0.001), ("(µs)", 1)]
)
def test_times_in_other_units_come_in_microseconds(tmp_path: Path, unit: str, factor: float) -> None:
    """The row beneath the names has the unit, with which the rounding grows."""
    units = f"#  (B)  (elements)  {unit}  (GB/s)  (GB/s)  {unit}  (GB/s)  (GB/s)\n"
    first, second = read(tmp_path, NAMES + units + ROW).rows
    assert (first.microseconds, second.microseconds) == pytest.approx((5 * factor, 4.6 * factor))
    assert (first.rounding, second.rounding) == pytest.approx((0.5 * factor, 0.05 * factor))
