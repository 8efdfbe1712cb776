"""What becomes of an MSCCL++ plan, whoever wrote it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mscclpp_plans import TWO_BOXES, Document, operations, small_document

from collopt.errors import FileFormatError, UnsupportedError
from collopt.runtime import lint_family, read_mscclpp
from collopt.runtime.mscclpp.lint import EQUAL_OFFSETS, lint_plan


@pytest.fixture(scope="module")
def good() -> Document:
    """An allreduce."""
    return small_document("allreduce", slice_bytes=4096)


def written(folder: Path, document: Document) -> Path:
    """As a file."""
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return path


def without(name: str) -> Callable[[Document], None]:
    """Take the first operation of that name out."""

    def change(document: Document) -> None:
        for gpu in document["gpus"]:
            for block in gpu["threadblocks"]:
                for held in (block["ops"], *(outer["ops"] for outer in block["ops"] if "ops" in outer)):
                    if found := [each for each in held if each["name"] == name]:
                        held.remove(found[0])
                        return
        raise AssertionError(name)

    return change


def test_a_good_plan_is_accepted(tmp_path: Path, good: Document) -> None:
    """With what is worth knowing."""
    report = lint_plan(written(tmp_path, good))
    assert report.runs
    assert report.summary.startswith(f"allreduce on {len(good['gpus'])} ranks, out of place, from ")
    assert [finding.message for finding in report.findings] == [
        EQUAL_OFFSETS,
        "the executor always sums, whatever reduction operation the call requests",
    ]
    (window,) = report.windows
    assert (window.first, window.end) == (good["min_message_size"], good["max_message_size"] + 1)


@pytest.mark.parametrize(
    ("change", "verdict", "message"),
    [
        (lambda d: d.pop("gpus"), "rejected", "the plan has no gpus"),
        (lambda d: d.update(buffer_alignment=32), "not checked", "collopt runs plans with 16 only"),
        (without("wait"), "hangs", "wait"),
        (lambda d: d["gpus"][0]["threadblocks"][0]["ops"].extend([{"name": "nop"}] * 64), "rejected", "limit is 64"),
        (
            lambda d: d["gpus"][1].update(
                {f"{end}put_chunks": 2 * d["gpus"][1][f"{end}put_chunks"] for end in ("in", "out")}
            ),
            "not checked",
            "other numbers of input and output chunks than gpu 0",
        ),
        (without("nop"), "wrong data", "race"),
    ],
)
def test_a_bad_plan_is_not(
    tmp_path: Path, good: Document, change: Callable[[Document], object], verdict: str, message: str
) -> None:
    """And the file is not named twice."""
    document = copy.deepcopy(good)
    change(document)
    report = lint_plan(written(tmp_path, document))
    assert (report.verdict, report.runs) == (verdict, False)
    assert message in report.findings[0].message
    assert "plan.json" not in report.findings[0].message


def test_sources_without_offset_are_wrong_for_tensors(tmp_path: Path) -> None:
    """Where those are not at the start of their allocation."""
    document = small_document("allgather", boxes=TWO_BOXES, slice_bytes=None)
    for held, position in operations(document):
        for source in held[position].get("src_buff", ()):
            source.pop("buffer_id", None)
    (finding, *_) = lint_plan(written(tmp_path, document)).findings
    assert finding.severity == "wrong data"
    assert finding.message.startswith("where a buffer begins behind the start of its allocation")


@pytest.mark.parametrize(
    ("change", "verdict", "message"),
    [
        ({"tbg_info": {"tb_id": 0, "tbg_size": 1}}, "accepted", EQUAL_OFFSETS),
        ({"tbg_info": {"tb_id": 0, "tbg_size": 2}}, "not checked", "a part of an operation (tbg_info) in a pipeline"),
        ({"tbg_info": {"tb_id": 0}}, "rejected", "has no tbg_size"),
        ({"comment": "first"}, "accepted", "the loader does not read ['comment']"),
        ({"name": "gstore"}, "rejected", "an invalid operation for MSCCL++ 0.9.0"),
    ],
)
def test_what_the_loader_reads_of_an_operation_decides(
    tmp_path: Path, good: Document, change: Document, verdict: str, message: str
) -> None:
    """Thread block groups are read, other keys are not."""
    document = copy.deepcopy(good)
    held, position = next(each for each in operations(document) if each[0][each[1]]["name"] == "put")
    held[position].update(change)
    report = lint_plan(written(tmp_path, document), "0.9.0")
    assert (report.verdict, message in report.findings[0].message) == (verdict, True)


def test_more_thread_blocks_than_the_gpu_runs_hang(tmp_path: Path, good: Document) -> None:
    """They wait for each other."""
    path = written(tmp_path, good)
    assert lint_family([path], "mscclpp", max_thread_blocks=1).reports[0].verdict == "hangs"
    with pytest.raises(UnsupportedError, match="max_thread_blocks is 0"):
        lint_family([path], "mscclpp", max_thread_blocks=0)
    with pytest.raises(UnsupportedError, match=r"version is .1\.0.; those known of mscclpp are 0\.8\.0, 0\.9\.0"):
        lint_family([path], "mscclpp", "1.0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda d: d["gpus"][0].update(threadblocks=d["gpus"][0]["threadblocks"][:1] * 1025),
            "threadblocks of gpu 0 has 1025 entries",
        ),
        (
            lambda d: d["gpus"][0].update(semaphores=[{"init_value": 0}] * 20_000),
            "semaphores of gpu 0 has 20000 entries",
        ),
        (lambda d: d["gpus"][0].update(semaphores=[{"init_value": 2**15}] * 3), "begin with 98304 in all"),
        (
            lambda d: d["gpus"][0]["threadblocks"][0].update(ops=[{"name": "nop"}] * 65),
            "has 65 operations; the limit is 64",
        ),
        (lambda d: d["gpus"][0]["channels"][0].update(connected_to=[1] * 20_000), "has 20000 entries"),
    ],
)
def test_more_than_an_executor_could_take_is_refused_before_it_is_looked_at(
    tmp_path: Path, good: Document, change: Callable[[Document], object], message: str
) -> None:
    """By the lengths of lists."""
    document = copy.deepcopy(good)
    change(document)
    with pytest.raises(FileFormatError, match=message):
        read_mscclpp(written(tmp_path, document))


def test_a_key_that_stands_twice_is_named(tmp_path: Path) -> None:
    """However many there are."""
    path = tmp_path / "twice.json"
    path.write_text("{" + ",".join(f'"{number}": 0' for number in range(200_000)) + ', "7": 0}')
    with pytest.raises(FileFormatError, match="key '7' is repeated in one object"):
        read_mscclpp(path)
