"""MSCCL++ plans as others write them: packets, barriers, parts, remote reads, shared channels and unknown collectives.

Verdicts are those of MSCCL++'s loader and of the handlers of ``execution_kernel.hpp`` (main of August 2026), compiled
for a CPU with threads as fibers, on plans of these shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from collopt.errors import ProgramError, UnsupportedError
from collopt.runtime.mscclpp.execution_plan import document_of, text_of
from collopt.runtime.mscclpp.export import write_registration
from collopt.runtime.mscclpp.interpret import interpret_mscclpp, run_execution_plan
from collopt.runtime.mscclpp.lint import lint_plan
from collopt.runtime.mscclpp.reader import parse_document, read_mscclpp
from collopt.runtime.scoring.score import score
from collopt.topologies import Link, Topology

Json = dict[str, Any]
NOP = {"name": "nop"}
READY = ({"name": "rlxsignal"}, {"name": "rlxwait"}, NOP)
DONE = (NOP, {"name": "signal"}, {"name": "wait"}, NOP)


def end(buffer: str, index: int, size: int = 1) -> Json:
    """Return a place: of the GPU itself by a letter, of the other one by a capital letter."""
    key: Json = {"buffer_id": "IOS".index(buffer)} if buffer.isupper() else {"type": buffer}
    return key | {"index": index, "size": size}


def moves(name: str, sources: Sequence[str], targets: Sequence[str], part: tuple[int, int] | None = None) -> Json:
    """Return an operation whose places are a letter and a chunk each; it has no channels, only their type."""
    ends = ([end(text[0], int(text[1:])) for text in texts] for texts in (sources, targets))
    operation = {"name": name, "channel_type": "memory", **dict(zip(("src_buff", "dst_buff"), ends, strict=True))}
    return operation | ({} if part is None else {"tbg_info": dict(zip(("tb_id", "tbg_size"), part, strict=True))})


def document(
    blocks: Sequence[Sequence[Sequence[Json]]],
    chunks: tuple[int, int, int],
    collective: str = "allreduce",
    **options: Any,
) -> Json:
    """Return a plan of two GPUs, each with one memory channel to the other that all its thread blocks share."""
    gpus = []
    for rank, own in enumerate(blocks):
        threadblocks = []
        for number, operations in enumerate(own):
            ops = [
                op | {"channel_type": "memory", "channel_ids": [0]}
                if "signal" in op["name"] or "wait" in op["name"]
                else op
                for op in operations
            ]
            channels = [{"channel_type": "memory", "channel_ids": [0]}]
            refs = [{"access_channel_type": "memory", "remote_buffer_ids": [0, 1, 2]}]
            threadblocks.append({"id": number, "channels": channels, "remote_buffer_refs": refs, "ops": ops})
        remote = [{"rank": 1 - rank, "type": kind, "access_channel_types": ["memory"]} for kind in "ios"]
        sizes = dict(zip(("input_chunks", "output_chunks", "scratch_chunks"), chunks, strict=True))
        channels = [{"channel_type": "memory", "connected_to": [1 - rank]}]
        gpus.append({"id": rank, **sizes, "channels": channels, "remote_buffers": remote, "threadblocks": threadblocks})
    top = {"name": "shapes", "collective": collective, "protocol": "Simple", "inplace": True}
    return top | options | {"gpus": gpus}


def packets(*, double: bool = True, read: bool = True) -> Json:
    """Return an allreduce of one chunk by packets, whose halves of scratch take turns."""
    block = [moves("ppkt", ["i0"], ["S0"]), moves("repkt", ["i0", "s0"], ["i0"])]
    return document([[block if read else block[:1]]] * 2, (1, 1, 1), protocol="LL", use_double_scratch_buffer=double)


def forwarded() -> Json:
    """Return an allgather in which packets are made in scratch, sent on from there, and unpacked by other blocks."""
    blocks = [
        [
            [moves("cpkt", [f"o{rank}"], [f"s{rank}"]), moves("rppkt", [f"s{rank}"], [f"S{rank}"])],
            [moves("upkt", [f"s{1 - rank}"], [f"o{1 - rank}"])],
        ]
        for rank in range(2)
    ]
    return document(blocks, (1, 2, 2), "allgather", protocol="LL", use_double_scratch_buffer=True)


def remote_reads(last: Json = READY[0]) -> Json:
    """Return an allreduce of two chunks: each GPU adds up one, by reading the other's, and stores it on both."""
    blocks = [
        [[*READY, moves("rres", [f"i{rank}", f"I{rank}"], [f"i{rank}", f"I{rank}"]), NOP, last, {"name": "wait"}, NOP]]
        for rank in range(2)
    ]
    return document(blocks, (2, 2, 0))


def staged(name: str) -> Json:
    """Return an allreduce by copies to scratch that the other GPU gets and adds, or reads and adds."""
    if name == "get":
        # Each offset is for the other end.
        added = [moves("get", ["S1"], ["s0"]), NOP, moves("re", ["i0", "s1"], ["o0"])]
    else:
        added = [moves("rre", ["i0", "S0"], ["o0"])]
    ops = [moves("copy", ["i0"], ["s0"]), *DONE, *added, *DONE]
    return document([[ops]] * 2, (1, 1, 2), inplace=False)


def parts(*, together: bool = True) -> Json:
    """Return an allgather whose puts two blocks share; they meet, and the first one signals for both."""
    meeting = {"name": "barrier", "barrier_id": 3, "num_threadblocks": 2}
    blocks = [
        [
            [
                *(READY if number == 0 else ()),
                meeting,
                moves("put", [f"o{rank}"], [f"O{rank}"], (number, 2)),
                *((meeting,) if together else ()),
                *(DONE if number == 0 else (NOP,)),
            ]
            for number in range(2)
        ]
        for rank in range(2)
    ]
    return document(blocks, (1, 2, 0), "allgather")


def shared(*, blocks: int = 2) -> Json:
    """Return an in-place all-to-all, whose blocks all signal and wait on one channel."""
    own = [
        [
            [
                *READY,
                moves("put", [f"i{2 * number + 1 - rank}"], [f"S{number}"]),
                *DONE,
                {"name": "barrier", "barrier_id": 0, "num_threadblocks": blocks},
                moves("copy", [f"s{number}"], [f"i{2 * number + 1 - rank}"]),
            ]
            for number in range(blocks)
        ]
        for rank in range(2)
    ]
    for rank in range(2):
        for number in range(blocks):
            chunk = (1 - rank) * blocks + number
            own[rank][number][3] = moves("put", [f"i{chunk}"], [f"S{number}"])
            own[rank][number][-1] = moves("copy", [f"s{number}"], [f"i{chunk}"])
    return document(own, (2 * blocks, 2 * blocks, blocks), "alltoall")


RIGHT = {
    "packets": packets(),
    "packets forwarded": forwarded(),
    "remote reads": remote_reads({"name": "signal"}),
    "gets": staged("get"),
    "reads and sums": staged("rre"),
    "parts": parts(),
    "a shared channel": shared(),
    "scratch of one size": packets() | {"reuse_resources": True},
}
WRONG = {
    "packets without halves": (packets(double=False), "wrong data", "of two calls in a row"),
    "packets unread": (packets(read=False), "wrong data", "of two calls in a row|wrong data in output chunk 0"),
    "relaxed signals": (remote_reads({"name": "rlxsignal"}), "wrong data", "which only show arrival"),
    "no second meeting": (parts(together=False), "wrong data", "race"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a plan is to be written."""
    return tmp_path / "plan.json"


@pytest.mark.parametrize("name", RIGHT)
def test_right_plans_are_accepted_and_run(name: str, path: Path) -> None:
    """In any order of their thread blocks, and again when they have been written by the exporter."""
    path.write_text(json.dumps(RIGHT[name]))
    report = lint_plan(path)
    assert (report.verdict, [each.message for each in report.findings if each.severity != "note"]) == ("accepted", [])
    assert interpret_mscclpp(path, interleavings=6).interleavings == 6
    plan = read_mscclpp(path)
    path.write_text(text_of(document_of(plan)))
    assert read_mscclpp(path).gpus == plan.gpus


@pytest.mark.parametrize("name", WRONG)
def test_wrong_plans_are_not(name: str, path: Path) -> None:
    """And the first thing that goes wrong is said."""
    plan, verdict, words = WRONG[name]
    path.write_text(json.dumps(plan))
    report = lint_plan(path)
    assert report.verdict == verdict
    with pytest.raises(ProgramError, match=words):
        run_execution_plan(read_mscclpp(path), interleavings=8)


def changed(plan: Json, changes: str, /, **fields: Any) -> Json:
    """Return a plan whose first operation of a name has other fields."""
    plan = json.loads(json.dumps(plan))
    for gpu in plan["gpus"]:
        for block in gpu["threadblocks"]:
            for operation in block["ops"]:
                if operation["name"] == changes:
                    operation.update(fields)
                    return plan  # type: ignore[no-any-return]
    raise AssertionError(changes)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (changed(parts(), "barrier", num_threadblocks=3), "barrier 3 is passed by 2 threadblocks"),
        (changed(parts(), "barrier", name="nop"), "barrier 3 is not passed equally often"),
        (changed(packets(), "ppkt", name="nop"), "waits at operation .* for packets in scratch chunk 0"),
        (changed(shared(), "signal", name="nop"), "waits . times on memory channel 0"),
    ],
)
def test_blocks_that_wait_for_ever_hang(plan: Json, words: str, path: Path) -> None:
    """For others at a barrier, for packets, or for a signal on a channel that several blocks have."""
    path.write_text(json.dumps(plan))
    report = lint_plan(path)
    assert report.verdict == "hangs"
    assert re.search(words, report.findings[0].message)


def test_a_thousandth_of_a_chunk_is_enough_for_a_race(path: Path) -> None:
    """Which another part of the same chunk does not make."""
    other = changed(parts(), "put", tbg_info={"tb_id": 1, "tbg_size": 2})
    path.write_text(json.dumps(other))
    with pytest.raises(ProgramError, match=r"race|wrong data"):
        run_execution_plan(read_mscclpp(path), interleavings=4)


@pytest.mark.parametrize("collective", ["test", "sendrecv"])
def test_plans_of_unknown_collectives_run_without_a_verdict_on_data(collective: str, path: Path) -> None:
    """The executor does not look at the name."""
    path.write_text(json.dumps(parts() | {"collective": collective}))
    report = lint_plan(path)
    assert report.verdict == "accepted"
    assert any("none that collopt knows" in each.message for each in report.findings)
    result = score(path, star(2), sizes=["1M"])
    assert (result.data.outcome, result.bound, result.collective) == ("not checked", None, None)
    assert result.shares
    with pytest.raises(UnsupportedError):
        write_registration([path], path.with_name("register.py"))


def star(ranks: int) -> Topology:
    """Return GPUs on one switch, with 100 GB/s each."""
    links = [Link(*ends, Fraction(100)) for rank in range(ranks) for ends in ((f"g{rank}", "s"), ("s", f"g{rank}"))]
    return Topology(tuple(f"g{rank}" for rank in range(ranks)), ("s",), tuple(links))


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("packets", 1),
        ("packets forwarded", Fraction(1, 2)),
        ("remote reads", 1),
        ("gets", 1),
        ("parts", Fraction(1, 2)),
    ],
)
def test_scores_count_what_is_read_and_written(name: str, share: Fraction, path: Path) -> None:
    """On each link as much as crosses it: a read too, and a part once."""
    path.write_text(json.dumps(RIGHT[name]))
    result = score(path, star(2), sizes=["1M"])
    assert result.data.outcome == "right"
    assert set(result.shares) == {share}
    assert result.gap == 0
    assert result.times[0].microseconds > 0


def test_scratch_of_one_size_limits_the_message() -> None:
    """A chunk may not be larger than its share of 64 MiB, as slices would begin again from there."""
    plans = [parse_document(packets() | {"reuse_resources": reuses}, "plan") for reuses in (True, False)]
    assert [plan.largest_message for plan in plans] == [2**25, (2**32 - 1) // 4 // 16 * 16]


def test_a_get_takes_the_offset_of_each_end_for_the_other(path: Path) -> None:
    """As ``execution_kernel.hpp`` has it, line 139; so what looks right is wrong."""
    path.write_text(json.dumps(changed(staged("get"), "get", src_buff=[end("S", 0)], dst_buff=[end("s", 1)])))
    with pytest.raises(ProgramError, match=r"wrong data|race"):
        run_execution_plan(read_mscclpp(path), interleavings=2)
