"""Families of files: which is picked for a size, where there is none, and what one bad file does to the others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime_forests import ring_forest

import collopt
from collopt.errors import UnsupportedError
from collopt.runtime import lower, to_xml_text
from collopt.runtime.nccl.windows import lint_family, window_report
from collopt.runtime.programs.findings import LintReport, Window
from collopt.topologies import ring
from sample_sizes import examples

AZURE = "msccl-executor-nccl"


def family(folder: Path, windows: list[tuple[int, int]], runtime: str = AZURE) -> list[Path]:
    """An allgather for each of some ranges of sizes, last included."""
    paths = []
    for number, (least, most) in enumerate(windows):
        path = folder / f"{number:02}.xml"
        path.write_text(
            to_xml_text(lower(ring_forest(3), "allgather"), min_bytes=least, max_bytes=most, runtime=runtime)
        )
        paths.append(path)
    return paths


def test_every_size_picks_its_file(tmp_path: Path) -> None:
    """Bounds are part of the window; beyond the last the library does without."""
    small, large = family(tmp_path, [(0, 1023), (1024, 4096)])
    report = lint_family([tmp_path], AZURE)
    assert [str(span) for span in report.spans] == [
        f"allgather on 3 ranks, out of place, from 0 to 1023 bytes: {small}",
        f"allgather on 3 ranks, out of place, from 1024 to 4096 bytes: {large}",
        "allgather on 3 ranks, out of place, from 4097 bytes: the library's own algorithms",
    ]
    assert report.findings == ()
    for size, path in ((0, small), (1023, small), (1024, large), (4096, large), (4097, "")):
        assert report.path_for("allgather", 3, size) == str(path)
    assert report.path_for("allgather", 3, 5, in_place=True) == report.path_for("allgather", 4, 5) == ""
    assert report.environment["MSCCL_ALGO_DIR"] == str(tmp_path)


def test_microsofts_runtime_leaves_the_last_size_out(tmp_path: Path) -> None:
    """So that these two files have a gap of one size between them."""
    small, large = family(tmp_path, [(0, 1023), (1024, 4096)], "msccl")
    report = lint_family([small, large], "msccl")
    assert report.path_for("allgather", 3, 1022) == str(small)
    assert report.path_for("allgather", 3, 1023) == ""
    assert "from 1023 to 1023 bytes: the library's own algorithms, because there is a gap" in report.findings[0].message
    assert report.environment["MSCCL_XML_FILES"] == f"{small}:{large}"


@pytest.mark.parametrize(
    ("runtime", "message"),
    [
        (AZURE, "the first by name is picked"),
        ("rccl", "or by some versions the first that the file system lists"),
        ("msccl", "the runtime decides"),
    ],
)
def test_overlaps_are_told(tmp_path: Path, runtime: str, message: str) -> None:
    """With the file that comes first, where that is known."""
    paths = family(tmp_path, [(0, 2000), (1000, 4096)], runtime)
    report = lint_family(paths, runtime)
    (overlap,) = report.findings
    assert overlap.severity == "note"
    assert f"{paths[0]}, before {paths[1]}" in overlap.message
    assert message in overlap.message


def test_a_file_behind_others_is_never_picked(tmp_path: Path) -> None:
    """Both of the others together are before all of its sizes."""
    paths = family(tmp_path, [(0, 2000), (1000, 4096), (500, 3000)])
    ignored = [finding for finding in lint_family(paths, AZURE).findings if finding.severity == "ignored"]
    assert [finding.where for finding in ignored] == [str(paths[2])]


def test_order_is_that_of_names_in_a_folder_and_of_the_list_elsewhere(tmp_path: Path) -> None:
    """The first runtime is given a list."""
    first, second = family(tmp_path, [(0, 2000), (0, 2000)], "msccl")
    assert lint_family([second, first], AZURE).path_for("allgather", 3, 1) == str(first)
    assert lint_family([second, first], "msccl").path_for("allgather", 3, 1) == str(second)


def test_one_refused_file_stops_all_but_microsofts(tmp_path: Path) -> None:
    """The later runtimes load whole folders, and give up."""
    paths = family(tmp_path, [(0, 1023)])
    (tmp_path / "README").write_text("not XML")
    report = lint_family([tmp_path], AZURE)
    assert [(finding.severity, finding.where) for finding in report.findings] == [
        ("rejected", str(tmp_path / "README"))
    ]
    assert lint_family([*paths, tmp_path / "README"], "msccl").findings == ()


@pytest.mark.parametrize("content", ["plan", '{"name": 3}'])
def test_json_among_xml_is_told_for_what_it_is(tmp_path: Path, content: str) -> None:
    """The later runtimes open every file of the folder; the first one need not be told of it."""
    (path,) = family(tmp_path, [(0, 1023)])
    stranger = tmp_path / "plan.json"
    stranger.write_text(content)
    what = "JSON"
    if content == "plan":
        collopt.plan(ring(3, bandwidth=25), "allgather").to_mscclpp_json(stranger, max_bytes=4096)
        what = "an MSCCL\\+\\+ plan of allgather on 3 ranks, out of place, from .* to 4096 bytes"
    report = lint_family([tmp_path], AZURE)
    (finding,) = report.reports[1].findings
    assert finding.severity == "rejected"
    assert re.match(f"the file is {what}, and no MSCCL XML; move it out of the folder", finding.message)
    assert lint_family([tmp_path], "msccl").environment["MSCCL_XML_FILES"] == str(path)


def test_too_many_files_and_folders(tmp_path: Path) -> None:
    """The first runtime takes four, the others one folder."""
    paths = family(tmp_path, [(100 * number, 100 * number + 99) for number in range(5)])
    assert "5 files; msccl loads 4" in lint_family(paths, "msccl").findings[0].message
    other = tmp_path / "other"
    other.mkdir()
    moved = paths[0].rename(other / "00.xml")
    messages = [finding.message for finding in lint_family([moved, *paths[1:]], "rccl").findings]
    assert any("in 2 folders; rccl looks into one" in message for message in messages)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnsupportedError, match=r"there is no file in .*empty"):
        lint_family([tmp_path / "empty"], AZURE)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6), st.integers(0, 40))
def test_spans_say_what_a_search_would_find(windows: list[tuple[int, int]], size: int) -> None:
    """For every size the first file whose window has it."""
    reports = [
        LintReport(str(number), AZURE, "", (), windows=(Window("allgather", 2, False, *sorted(window)),))
        for number, window in enumerate(windows)
    ]
    wanted = [report.path for report in reports for window in report.windows if window.first <= size < window.end]
    spans = window_report(reports)
    found = [span for span in spans if span.first <= size < span.end]
    assert len(found) == bool(spans)
    for span in found:
        assert [path for path in (span.path, *span.later_paths) if path] == wanted


@pytest.mark.parametrize("runtime", [AZURE, "rccl", "msccl"])
def test_one_file_is_told_of_neighbors_that_stop_the_communicator(tmp_path: Path, runtime: str) -> None:
    """Only where the whole folder is loaded; another good file is nothing to tell of."""
    first, _ = family(tmp_path, [(0, 1023), (1024, 4096)], runtime)
    before = lint_family([first], runtime).reports[0].findings
    (tmp_path / "machine.json").write_text("{}")
    (tmp_path / "README").write_text("text")
    (report,) = lint_family([first], runtime).reports
    notes = [finding.message for finding in report.findings[len(before) :]]
    expected = "keep the communicator from starting, README and 1 more: move this one to a folder of its own"
    assert report.verdict == "accepted"
    assert notes == ([] if runtime == "msccl" else [f"other files in this folder {expected}"])
