"""What is wrong with a plan file is said in one sentence that names the place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mscclpp_plans import TWO_BOXES, Document, small_document

from collopt.errors import FileFormatError, UnsupportedError
from collopt.runtime.mscclpp.interpret import interpret_mscclpp, run_execution_plan
from collopt.runtime.mscclpp.reader import parse_document, read_mscclpp

Change = Callable[[Document], object]


@pytest.fixture(scope="module")
def good() -> Document:
    """Two boxes, so with memory and port channels, slices, semaphores and scratch."""
    return small_document("allreduce", boxes=TWO_BOXES, slice_bytes=4096)


def first(document: Document, name: str) -> Document:
    """First operation of that name, wherever it is."""
    for gpu in document["gpus"]:
        for block in gpu["threadblocks"]:
            for outer in block["ops"]:
                for operation in (outer, *outer.get("ops", ())):
                    if operation["name"] == name:
                        return operation  # type: ignore[no-any-return]
    raise AssertionError(name)


CHANGES: list[tuple[Change, str]] = [
    (lambda d: d.pop("protocol"), "the plan has no protocol"),
    (lambda d: d.update(name=""), "name is ''"),
    (lambda d: d.update(colective="allreduce"), "has 'colective', which the executor does not read"),
    (lambda d: d.update(collective=1), "collective is 1; expected a text"),
    (lambda d: d.update(collective="allgather"), "which is no allgather of 4 ranks"),
    (lambda d: d.update(inplace=1), "inplace is 1; expected true or false"),
    (lambda d: d.update(protocol="ll"), "protocol is 'll'"),
    (lambda d: d.update(gpus=[]), "gpus is ..; expected a list with entries"),
    (lambda d: d.update(max_message_size=16), "below which chunks have less than 16 bytes"),
    (lambda d: d.update(min_message_size=2**40, max_message_size=2**41), "above which an offset exceeds 32 bits"),
    (lambda d: d.update(num_threads_per_block=1025), "a whole number from 1 to 1024"),
    (
        lambda d: (d.update(num_threads_per_block=1), first(d, "rlxwait").update(channel_ids=[0, 1])),
        "takes 2 threads, a threadblock has 1|from 0 to 0",
    ),
    (lambda d: d["gpus"].pop(), "a whole number from 0 to 2"),
    (lambda d: d["gpus"].reverse(), "gpu 0 has id 3; expected its position"),
    (lambda d: d["gpus"][1].update(input_chunks=0), "input_chunks of gpu 1 is 0"),
    (
        lambda d: d["gpus"][1].update(input_chunks=99, output_chunks=99),
        "gpu 1 has other numbers of input and output chunks",
    ),
    (lambda d: d["gpus"][0]["channels"][0].update(channel_type="shared"), "channel type 'shared'"),
    (lambda d: d["gpus"][0]["channels"].append(d["gpus"][0]["channels"][0]), "two entries for memory channels"),
    (
        lambda d: d["gpus"][0]["channels"][0].update(connected_to=[0, 0]),
        "in several threadblocks|to itself|from 0 to 1",
    ),
    (lambda d: d["gpus"][1]["channels"][0]["connected_to"].pop(), "every channel has two ends|from 0 to"),
    (lambda d: d["gpus"][0]["remote_buffers"][0].update(type="x"), "buffer type 'x'; expected i, o or s"),
    (
        lambda d: d["gpus"][0]["remote_buffers"][0].update(access_channel_types=["port"]),
        "which its entry does not allow",
    ),
    (lambda d: d["gpus"][0]["semaphores"].pop(), "uses semaphore"),
    (lambda d: d["gpus"][0]["threadblocks"][1].update(id=0), "threadblock 1 has id 0"),
    (lambda d: d["gpus"][0]["threadblocks"][0].update(ops=[]), "ops of gpu 0 threadblock 0 is ..; expected"),
    (lambda d: d["gpus"][0]["threadblocks"][0]["ops"].extend([{"name": "nop"}] * 64), "the limit is 64"),
    (
        lambda d: d["gpus"][2]["threadblocks"][4].update(channels=d["gpus"][2]["threadblocks"][0]["channels"]),
        "gpu 0 waits 2 times on port channel 0, but its other end signals 4",
    ),
    (lambda d: first(d, "put").update(name="putt"), "has name 'putt'; expected one of"),
    (lambda d: first(d, "put").update(name="pws"), "a pws on a memory channel, which never signals"),
    (lambda d: first(d, "pws").pop("channel_ids"), "channel_ids of .* is None; expected a list"),
    (lambda d: first(d, "wait").update(channel_ids=[0] * 9), "has 9 channels; the limit is 8"),
    (lambda d: first(d, "pws").update(channel_ids=[0, 0]), "2 channels for 1 targets"),
    (lambda d: first(d, "wait").update(channel_ids=[9]), "expected a whole number from 0 to"),
    (lambda d: first(d, "put")["src_buff"][0].update(size=2), "places of different sizes"),
    (lambda d: first(d, "put")["dst_buff"][0].update(index=10**6), "chunks 1000000 to 1000000"),
    (lambda d: first(d, "put")["dst_buff"][0].update(buffer_id=77), "buffer_id of"),
    (lambda d: first(d, "put")["dst_buff"].append(first(d, "put")["dst_buff"][0]), "from 1 places to 2"),
    (
        lambda d: first(d, "put").update(
            channel_ids=[0, 0],
            src_buff=[{"type": buffer, "index": 0, "size": 1} for buffer in "io"],
            dst_buff=first(d, "put")["dst_buff"] * 2,
        ),
        "has sources in several buffers",
    ),
    (
        # Memory of GPU 3, by a channel to GPU 2.
        lambda d: d["gpus"][0]["threadblocks"][5]["remote_buffer_refs"][0].update(remote_buffer_ids=[2, 3]),
        "puts to gpu 3 by a channel to gpu 2",
    ),
    (
        lambda d: first(d, "pws")["src_buff"][0].update(type="s"),
        "has type s and buffer_id .*; the executor takes the number for the type",
    ),
    (
        lambda d: d["gpus"][0]["threadblocks"][5]["remote_buffer_refs"][0].update(remote_buffer_ids=[1, 1]),
        "has type i and buffer_id 0, of type o",
    ),
    (lambda d: first(d, "re").update(reduce_op="max"), "has 'reduce_op', which the executor does not read"),
    (lambda d: first(d, "re")["src_buff"].pop(), "a re from 1 places to 1"),
    (lambda d: first(d, "re")["dst_buff"][0].update(type="i"), "writes to the input"),
    (lambda d: first(d, "wait").update(name="rlxsignal"), "waits .* times on .* channel"),
    (
        lambda d: (operation := first(d, "rlxwait"), operation.clear(), operation.update(name="nop")),
        "waits 1 times on port channel 0, but its other end signals 2 times",
    ),
    (lambda d: first(d, "sem_acquire").update(name="sem_release"), "not acquired by one threadblock|is acquired"),
    (lambda d: first(d, "pipeline")["ops"].append(copy.deepcopy(first(d, "pipeline"))), "a pipeline in a pipeline"),
    (lambda d: first(d, "pipeline")["iter_context"].update(num_chunks=0), "num_chunks of"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES, ids=[words for _, words in CHANGES])
def test_wrong_files_are_refused(good: Document, change: Change, words: str) -> None:
    """Each with its place and what was expected."""
    document = copy.deepcopy(good)
    change(document)
    with pytest.raises(FileFormatError, match=words) as caught:
        parse_document(document, "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert "\n" not in str(caught.value)


def test_a_channel_without_another_end_is_only_refused_where_it_is_used(good: Document) -> None:
    """MSCCL++ makes the other end."""
    document = copy.deepcopy(good)
    document["gpus"][0]["channels"][0]["connected_to"].append(1)
    run_execution_plan(parse_document(document, "plan.json"), interleavings=1)


UNSUPPORTED: list[tuple[Change, str]] = [
    (lambda d: d.update(buffer_alignment=32), "buffer_alignment is 32"),
    (
        lambda d: first(d, "put").update(tbg_info={"tb_id": 1, "tbg_size": 2}),
        r"moves a part of an operation \(tbg_info\) in a pipeline",
    ),
    (
        lambda d: first(d, "pws").update(name="rppkt", src_buff=[{"type": "i", "index": 0, "size": 1}]),
        "has packets in the input; collopt runs those in scratch",
    ),
]


@pytest.mark.parametrize(("change", "words"), UNSUPPORTED, ids=[words for _, words in UNSUPPORTED])
def test_what_only_the_executor_knows_is_unsupported(good: Document, change: Change, words: str) -> None:
    """It may be a good plan, but collopt cannot tell."""
    document = copy.deepcopy(good)
    change(document)
    with pytest.raises(UnsupportedError, match=words):
        parse_document(document, "plan.json")


def test_slices_of_two_sizes_are_unsupported(good: Document) -> None:
    """They could not be interpreted slice by slice."""
    document = copy.deepcopy(good)
    first(document, "pipeline")["iter_context"]["unit_size"] = 8192
    with pytest.raises(UnsupportedError, match="slices of 2 kinds"):
        parse_document(document, "plan.json")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not JSON"),
        (b"[]", "the plan is \\[\\]; expected an object"),
        (b'{"name": "a", "name": "b"}', "is repeated"),
        (b"\xff\xfe", "not JSON"),
        (b'{"name": "a"', "not JSON"),
        (b"[" * 100000, "not JSON"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    """With the file's name."""
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=words) as caught:
        read_mscclpp(path)
    assert str(path) in str(caught.value)


def test_files_run(tmp_path: Path, good: Document) -> None:
    """A good file is read and run in one call."""
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(good))
    report = interpret_mscclpp(path, interleavings=2)
    assert report.interleavings == 2
    assert report.plan == good["name"]
