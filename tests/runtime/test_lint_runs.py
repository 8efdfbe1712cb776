"""Parts of the lint of MSCCL files by themselves: what loading takes, which files are run, and with which queues."""

from __future__ import annotations

from pathlib import Path

import pytest
from msccl_documents import AZURE, MSCCL, RCCL, Found, agree, block, document, gpu, step
from runtime_forests import ring_forest

import collopt
from collopt.runtime import ChunkRange, Instruction, Program, RankProgram, ThreadBlock, lower, to_xml_text
from collopt.runtime.msccl import lint_runs as run
from collopt.runtime.msccl import linter as lint
from collopt.runtime.msccl.document import Document
from collopt.runtime.msccl.limits import dialect_of
from collopt.runtime.msccl.lint_runs import Queue
from collopt.runtime.programs.findings import Findings
from collopt.topologies import ring


def test_environments_name_the_files() -> None:
    """Of a folder, that of the first."""
    paths = ["/a/x.xml", "/b/y.xml"]
    for runtime, expected in (
        (MSCCL, {"MSCCL_XML_FILES": "/a/x.xml:/b/y.xml", "NCCL_ALGO": "MSCCL,RING,TREE"}),
        (AZURE, {"NCCL_MSCCL_ENABLE": "1", "MSCCL_ALGO_DIR": "/a"}),
        (RCCL, {"RCCL_MSCCL_ENABLE": "1", "RCCL_MSCCL_FORCE_ENABLE": "1", "MSCCL_ALGO_DIR": "/a"}),
    ):
        assert lint.loading_environment(paths, dialect_of(runtime)) == expected
        assert lint.loading_environment([], dialect_of(runtime)) == {}
    assert lint.loading_environment(paths, dialect_of(RCCL, "7.13")) == {}


@pytest.mark.parametrize(
    ("runtime", "made", "summary"),
    [
        (AZURE, None, ""),
        (AZURE, document(), "allreduce on 1 ranks, out of place, from 0 to 1048576 bytes"),
        (MSCCL, document(), "allreduce on 1 ranks, out of place, from 0 to 1048575 bytes"),
        (AZURE, document(inplace=1), "allreduce on 1 ranks, in place and out of place, from 0 to 1048576 bytes"),
        (AZURE, document(inplace=1, outofplace=0, maxBytes=0), "allreduce on 1 ranks, in place, of any size"),
        (AZURE, document(minBytes=1, maxBytes=0), "allreduce on 1 ranks, out of place, from 1 bytes"),
        (AZURE, document(minBytes=9, maxBytes=9), "allreduce on 1 ranks, out of place, from 9 to 9 bytes"),
        (MSCCL, document(minBytes=9, maxBytes=9), "allreduce on 1 ranks, out of place, of no size"),
        (AZURE, document(inplace=None, outofplace=None), "allreduce on 1 ranks, for no call, of no size"),
        (MSCCL, document(inplace=None, outofplace=None), "allreduce on 1 ranks, out of place, from 0 to 1048575 bytes"),
        (AZURE, document(coll="x" * 41), f"{'x' * 40} on 1 ranks, out of place, from 0 to 1048576 bytes"),
    ],
)
def test_summaries_name_the_calls(runtime: str, made: Document | None, summary: str) -> None:
    """Of a file without windows, none."""
    assert lint.summarize(dialect_of(runtime), made) == summary


def many(ranks: int, coll: str, *, scratch: int = 0, **changes: int) -> Document:
    """A file of so many ranks, the last of which has scratch."""
    gpus = [gpu(number=number) for number in range(ranks)]
    gpus[-1].scratch_chunks = scratch
    return document(*gpus, coll=coll, **changes)


def rooted(coll: str, *sizes: tuple[int, int], ends: tuple[tuple[int, int], ...] = ()) -> Document:
    """A file with these chunks of input and output, and these peers of one thread block, on each rank."""
    blocks = [(block(send=send, recv=recv),) for send, recv in ends] or [()] * len(sizes)
    gpus = (gpu(*blocks[rank], number=rank, sizes=(*size, 0)) for rank, size in enumerate(sizes))
    return document(*gpus, coll=coll)


@pytest.mark.parametrize(
    ("made", "shards", "found"),
    [
        (many(2, "allreduce"), (), []),
        (many(1, "x" * 41), None, ["not checked: what 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' computes is not"]),
        (many(2, "allreduce", ngpus=3), None, []),
        (document(gpu(), gpu(), ngpus=2), None, []),
        (many(4096, "allreduce"), (), []),
        (many(4097, "allreduce"), None, ["not checked: 8194 chunks on 4097 ranks"]),
        (many(1024, "alltoall", nchunksperloop=1024), (), []),
        (many(1025, "alltoall"), None, ["not checked: 2050 chunks on 1025 ranks"]),
        (many(2, "allreduce", scratch=2**24 - 4), (), []),
        (many(2, "allreduce", scratch=2**24 - 3), None, ["not checked: 16777217 chunks on 2 ranks"]),
        (many(2, "allreduce", scratch=-9, nchunksperloop=2**22 + 1), None, ["not checked: 16777220 chunks on 2 ranks"]),
        (many(2, "allreduce", nchunksperloop=0), None, ["not checked: 0 chunks on 2 ranks"]),
        (many(2, "allgather"), None, ["wrong data: the file has 1 chunks"]),
        (rooted("broadcast", (0, 1), (1, 1), (0, 1)), (0, 1, 0), []),
        (rooted("reduce", (1, 0), (1, 0), (1, 1)), (0, 0, 1), []),
        (rooted("broadcast", (1, 1), (1, 1), ends=((-1, 0), (0, -1))), (0, 1), []),
        (rooted("reduce", (1, 1), (1, 1), ends=((-1, 1), (0, -1))), (1, 0), []),
        (rooted("reduce", (1, 1), (1, 1), ends=((1, 1), (0, -1))), None, ["wrong data: 0 ranks could be the"]),
        (rooted("broadcast", (1, 1), (1, 1)), None, ["wrong data: 2 ranks could be the"]),
    ],
)
def test_files_that_are_run_have_a_layout(made: Document, shards: tuple[int, ...] | None, found: Found) -> None:
    """Where there is none, a finding says why; shards are those of a root."""
    findings = Findings()
    layout = lint.layout_of(made, findings)
    assert agree(findings, found)
    assert (layout is None) == (shards is None)
    if layout is not None and shards:
        assert layout.shards == shards


@pytest.mark.parametrize(
    ("runtime", "made", "queue"),
    [
        (AZURE, document(proto="x"), Queue(2, 1)),
        (AZURE, document(nchunksperloop=8, maxBytes=2**22), Queue(2, 4)),
        (AZURE, document(nchunksperloop=8, maxBytes=2**22 + 1), Queue(2, 3)),
        (MSCCL, document(nchunksperloop=8, maxBytes=2**22 + 1), Queue(2, 4)),
        (MSCCL, document(nchunksperloop=8, maxBytes=2**22 + 2), Queue(2, 3)),
        (AZURE, document(minBytes=9, maxBytes=8), Queue(2, 1)),
        (AZURE, document(maxBytes=2**21 - 1), Queue(2, 1)),
        (AZURE, document(maxBytes=2**22), Queue(2, 1)),
        (AZURE, document(maxBytes=2**15, proto="LL"), Queue(8, 1)),
        (AZURE, document(maxBytes=2**14, proto="LL"), Queue(8, 2)),
        (AZURE, document(maxBytes=300000, proto="LL128"), Queue(8, 1)),
        (AZURE, document(maxBytes=288000, proto="LL128"), Queue(8, 2)),
        (MSCCL, document(maxBytes=1), Queue(2, 71)),
        (AZURE, document(maxBytes=2**19, coll="reduce"), Queue(2, 1)),
        (AZURE, document(maxBytes=2**18, coll="reduce"), Queue(2, 2)),
        (AZURE, document(maxBytes=2**14, coll="reduce", proto="LL"), Queue(8, 2)),
    ],
)
def test_queues_hold_what_the_largest_size_leaves(runtime: str, made: Document, queue: Queue) -> None:
    """Two or eight transfers of as many chunks as go into one."""
    assert run.queue_of(made, dialect_of(runtime)) == queue


def waiting(**changes: object) -> Document:
    """A file in which a step waits for thread block 0."""
    return document(gpu(block(step(), step(number=1, wait_block=0))), **{"proto": "LL", **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "found"),
    [
        (waiting(maxBytes=2**31), []),
        (waiting(maxBytes=2**31 + 1), ["note: calls of more than 2147483648"]),
        (waiting(maxBytes=2**32, nchunksperloop=2), []),
        (waiting(maxBytes=2**32 + 1, nchunksperloop=2), ["note: calls of more than 4294967296"]),
        (waiting(maxBytes=0, proto="LL128"), ["note: calls of more than 37748736000"]),
        (waiting(maxBytes=0, proto="Simple"), []),
        (waiting(maxBytes=0, nchunksperloop=0), []),
        (document(gpu(block(step())), proto="LL", maxBytes=0), []),
    ],
)
def test_rounds_are_counted_in_16_bits(made: Document, found: Found) -> None:
    """For files with waits."""
    findings = Findings()
    run.check_rounds(made, dialect_of(AZURE), findings)
    assert agree(findings, found)


def line(*sends: int, **changes: str) -> Document:
    """A file in which each rank sends to the next of these."""
    return document(*(gpu(block(send=send), number=rank) for rank, send in enumerate(sends)), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "box", "found"),
    [
        (line(-1, -1, -1), None, []),
        (line(1, 2, 3, 4, 5, -1), 3, []),
        (line(1, 2, 3, 4, 5, -1), 4, ["note: boxes of 4 GPUs do"]),
        (line(-1, -1, coll="broadcast"), None, ["note: a broadcast with proto Simple"]),
        (line(-1, -1, coll="broadcast", proto="LL"), None, []),
        (line(1, 0, 3, -1, coll="broadcast"), 2, []),
        (line(1, 2, 3, -1, coll="broadcast"), 2, ["hangs: a broadcast with proto Simple"]),
        (line(-1, 0, coll="broadcast"), 1, ["hangs: a broadcast with proto Simple"]),
        (line(-1, -1, coll="broadcast"), 1, []),
    ],
)
def test_connections_between_boxes_are_found(made: Document, box: int | None, found: Found) -> None:
    """The first of them."""
    findings = Findings()
    run.check_network(made, box, findings)
    assert agree(findings, found)


@pytest.mark.parametrize(("seed", "seeds"), [("0", [0, 1]), ("3", [6, 7])])
def test_programs_run_with_connections_of_one_chunk(
    monkeypatch: pytest.MonkeyPatch, seed: str, seeds: list[int]
) -> None:
    """Unless ranks send before they receive."""
    runs: list[tuple[int, int]] = []
    monkeypatch.setattr(run, "current_seed", lambda: int(seed))
    monkeypatch.setattr(run, "run_interleaving", lambda _, *, seed, fifo_depth: runs.append((seed, fifo_depth)))
    run.check_execution(lower(ring_forest(3), "allgather"), False, True, Queue(2, 1), findings := Findings())
    assert (runs, list(findings)) == ([(number, 1) for number in seeds], [])


def copy_of(source: ChunkRange, target: ChunkRange) -> ThreadBlock:
    """A thread block that copies one chunk."""
    return ThreadBlock(None, None, 0, (Instruction("copy", source, target, 1),))


def test_a_rank_alone_has_nothing_to_do_in_place() -> None:
    """Its data is where it belongs."""
    block = copy_of(ChunkRange("input", 0), ChunkRange("output", 0))
    program = Program("alone", "allgather", 1, 1, (RankProgram(0, 1, 1, 0, (block,)),))
    run.check_execution(program, True, False, Queue(2, 1), findings := Findings())
    assert agree(findings, [])


@pytest.mark.parametrize(
    ("collective", "sizes", "output", "shared"), [("reduce_scatter", (2, 1), 0, 1), ("allgather", (1, 2), 1, 0)]
)
def test_memory_that_is_shared_in_place_is_input_where_it_is_read(
    collective: str, sizes: tuple[int, int], output: int, shared: int
) -> None:
    """And output where it is written; one more thread block copies what nobody writes."""
    kept, scratch, given = ChunkRange("output", output), ChunkRange("scratch", 0), ChunkRange("input", shared)
    ranks = tuple(RankProgram(rank, *sizes, 1, (copy_of(kept, scratch), copy_of(scratch, given))) for rank in range(2))
    found = run._alias_rank(Program("two", collective, 2, 2, ranks), ranks[1])
    assert found.thread_blocks == (copy_of(given, scratch), copy_of(scratch, kept), copy_of(given, kept))


def test_the_input_is_left_alone_out_of_place() -> None:
    """Also by a rank that writes what is there already."""
    given, kept = ChunkRange("input", 0), ChunkRange("output", 0)
    steps = (Instruction("copy", given, kept, 1), Instruction("copy", kept, given, 1))
    program = Program("alone", "allgather", 1, 1, (RankProgram(0, 1, 1, 0, (ThreadBlock(None, None, 0, steps),)),))
    run.check_execution(program, False, True, Queue(2, 1), findings := Findings())
    assert agree(findings, ["wrong data: out of place, rank 0 thread block 0 step 1 writes"])


def test_no_all_to_all_runs_in_place() -> None:
    """It is run out of place alone."""
    program = lower(collopt.plan(ring(3), "all_to_all").schedule, "all_to_all")
    found_in_place = ["wrong data: in place, no part of an alltoall"]
    for in_place, out_of_place, found in (
        (False, True, []),
        (True, True, found_in_place),
        (True, False, found_in_place),
    ):
        run.check_execution(program, in_place, out_of_place, Queue(2, 1), findings := Findings())
        assert agree(findings, found)


def test_only_files_that_are_loaded_have_windows(tmp_path: Path) -> None:
    """Not those that a runtime rejects, or that lacks MSCCL."""
    text, path = to_xml_text(lower(ring_forest(3), "allgather")), tmp_path / "file.xml"
    for content, version, windows in (
        (text, "7.12", 1),
        (text, "7.13", 0),
        (text.replace("Simple", "x"), "7.12", 0),
        (text.replace("Simple", "x"), "7.13", 0),
    ):
        path.write_text(content)
        assert len(lint.lint_file(path, RCCL, version).windows) == windows
