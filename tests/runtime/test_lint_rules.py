"""Each rule for MSCCL files by itself: the last number that it lets pass, the first it reports, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from msccl_documents import AZURE, MSCCL, RCCL, Found, agree, block, document, gpu, step

from collopt.runtime.msccl import lint_rules as rules
from collopt.runtime.msccl import linter as lint
from collopt.runtime.msccl.document import Block, Document
from collopt.runtime.msccl.limits import dialect_of
from collopt.runtime.programs.findings import Findings

AT_ONCE = "note: loading it allocates 2097152 bytes"
HEADERS: list[tuple[str, Document, Found]] = [
    (AZURE, document(), []),
    (AZURE, document(proto="LL129"), ["rejected: proto is 'LL129'"]),
    (AZURE, document(coll="custom"), ["rejected: coll is 'custom'"]),
    (AZURE, document(coll="reduce_scatter"), ["rejected: coll is 'reduce_scatter'"]),
    (AZURE, document(coll="reduce"), ["note: the file is for one"]),
    (AZURE, document(coll="gather"), []),
    (AZURE, document(nchunksperloop=0), ["wrong data: nchunksperloop is 0"]),
    (AZURE, document(ngpus=0), ["ignored: ngpus is 0"]),
    (MSCCL, document(nthreads=64), []),
    (MSCCL, document(nthreads=16), ["rejected: nthreads is 16"]),
    (AZURE, document(nthreads=16), []),
    (MSCCL, document(name="x" * 63), []),
    (MSCCL, document(name="x" * 64), ["note: name is cut after 63"]),
    (AZURE, document(name="x" * 64), []),
    (AZURE, document(nchannels=0), ["hangs: nchannels is 0"]),
    (AZURE, document(nchannels=32), []),
    (AZURE, document(nchannels=33), ["rejected: nchannels is 33"]),
    (RCCL, document(nchannels=128), []),
    (RCCL, document(nchannels=129), ["ignored: nchannels is 129"]),
    (MSCCL, document(nchannels=32), []),
    (MSCCL, document(nchannels=33), ["wrong data: nchannels is 33"]),
    (AZURE, document(inplace=1), []),
    (AZURE, document(inplace=2), ["note: inplace is 2 and read"]),
    (AZURE, document(outofplace=-1), ["note: outofplace is -1 and read"]),
    (AZURE, document(inplace=1, outofplace=0), []),
    (AZURE, document(inplace=0, outofplace=0), ["ignored: inplace and outofplace are 0"]),
    (
        AZURE,
        document(inplace=None, outofplace=0),  # type: ignore[arg-type]
        ["ignored: inplace and outofplace are 0"],
    ),
    (MSCCL, document(inplace=1, outofplace=0), []),
    (MSCCL, document(outofplace=None), []),  # type: ignore[arg-type]
    (MSCCL, document(inplace=1), ["note: outofplace is not read"]),
    (MSCCL, document(outofplace=0), ["note: outofplace is not read"]),
    (AZURE, document(minBytes=-1), ["ignored: minBytes is -1"]),
    (AZURE, document(maxBytes=-1), ["note: maxBytes is -1"]),
    (AZURE, document(minBytes=-1, maxBytes=-1), ["ignored: minBytes is -1", "note: maxBytes is -1"]),
    (MSCCL, document(minBytes=-1), ["rejected: minBytes is -1"]),
    (MSCCL, document(maxBytes=-1), ["rejected: maxBytes is -1"]),
    (AZURE, document(minBytes=9, maxBytes=9), []),
    (AZURE, document(minBytes=9, maxBytes=8), ["ignored: no size is at least"]),
    (AZURE, document(maxBytes=None), []),  # type: ignore[arg-type]
    (
        MSCCL,
        document(maxBytes=None),  # type: ignore[arg-type]
        ["note: without maxBytes only sizes below"],
    ),
    (MSCCL, document(minBytes=8, maxBytes=9), []),
    (MSCCL, document(minBytes=9, maxBytes=9), ["ignored: no size is at least"]),
    (MSCCL, document(minBytes=10, maxBytes=9), ["rejected: minBytes is 10"]),
    (
        MSCCL,
        document(minBytes=None, maxBytes=0),  # type: ignore[arg-type]
        ["ignored: no size is at least"],
    ),
    (MSCCL, document(gpu(sizes=(1, 1, 2))), [AT_ONCE]),
    (MSCCL, document(gpu(sizes=(1, 1, 1)), gpu(sizes=(1, 1, 4)), nchunksperloop=2), [AT_ONCE]),
    (MSCCL, document(gpu(sizes=(1, 1, 2)), nchunksperloop=0), ["wrong data: nchunksperloop is 0"]),
    (AZURE, document(gpu(sizes=(1, 1, 2))), []),
]


@pytest.mark.parametrize(("runtime", "made", "found"), HEADERS)
def test_headers(runtime: str, made: Document, found: Found) -> None:
    """All findings about each."""
    findings = Findings()
    rules.check_header(made, dialect_of(runtime), findings)
    assert agree(findings, found)


def elements(count: int) -> Document:
    """A file of which rank 0 needs so many elements."""
    return document(gpu(block(*[step()] * (count - 3))))


GOOD = block(step())
GPUS: list[tuple[str, Document, Found]] = [
    (AZURE, document(gpu(GOOD)), []),
    (AZURE, document(gpu(GOOD, sizes=(0, 0, 0))), []),
    (AZURE, document(ngpus=0), []),
    (AZURE, document(ngpus=-1), []),
    (AZURE, document(ngpus=1), ["hangs: there is no gpu element"]),
    (
        AZURE,
        document(gpu(GOOD), gpu(GOOD), gpu(GOOD, number=2), ngpus=3),
        ["hangs: there is no gpu element", "wrong data: there are 2 gpu elements"],
    ),
    (AZURE, document(gpu(GOOD, sizes=(1, 1, -1))), ["rejected: s_chunks is -1"]),
    (AZURE, document(gpu(GOOD, sizes=(2, 3, 0))), ["note: i_chunks is 2", "note: o_chunks is 3"]),
    (AZURE, document(gpu(GOOD, sizes=(2, 3, 0)), coll="broadcast"), []),
    (AZURE, document(gpu()), ["note: rank 0 has no thread"]),
    (AZURE, elements(4095), []),
    (AZURE, elements(4096), ["rejected: rank 0 needs 4096 elements"]),
    (
        MSCCL,
        document(gpu(GOOD), gpu(GOOD, number=1), coll="allgather", nchunksperloop=2),
        ["rejected: o_chunks is 1"] * 1 + ["note: o_chunks is 1"],
    ),
    (
        MSCCL,
        document(gpu(GOOD, sizes=(1, 2, 0)), gpu(GOOD, number=1, sizes=(1, 2, 0)), coll="allgather", nchunksperloop=2),
        [],
    ),
    (
        MSCCL,
        document(
            gpu(GOOD, sizes=(2, 1, 0)), gpu(GOOD, number=1, sizes=(2, 1, 0)), coll="reduce_scatter", nchunksperloop=2
        ),
        [],
    ),
    (MSCCL, document(gpu(GOOD, sizes=(0, 0, 0))), []),
]


@pytest.mark.parametrize(("runtime", "made", "found"), GPUS)
def test_gpu_elements(runtime: str, made: Document, found: Found) -> None:
    """All findings about each."""
    findings = Findings()
    rules.check_gpus(made, lint.layout_of(made, Findings()), dialect_of(runtime), findings)
    assert agree(findings, found)


def alone(*blocks: Block, sizes: tuple[int, int, int] = (1, 1, 1), **changes: Any) -> Document:
    """A file of one rank with these blocks, and another rank."""
    return document(gpu(*blocks, sizes=sizes), gpu(number=1), **changes)


def steps(count: int, last: int) -> Document:
    """A file with a thread block of so many steps, the last of which has a number."""
    return alone(block(*(step(number=number) for number in (*range(count - 1), last))))


def several(count: int) -> Document:
    """A file with so many thread blocks."""
    return alone(*(block(step(), number=number) for number in range(count)))


BLOCKS: list[tuple[str, Document, Found]] = [
    (AZURE, alone(block(step())), []),
    (AZURE, several(7), []),
    (AZURE, several(8), ["hangs: rank 0 has 8 thread"]),
    (AZURE, several(1024), ["hangs: rank 0 has 1024 thread"]),
    (AZURE, several(1025), ["rejected: rank 0 has 1025 thread"]),
    (
        AZURE,
        alone(block(), block(), block(number=2)),
        ["rejected: rank 0 has 2 thread", "rejected: rank 0 has 3 thread"],
    ),
    (AZURE, alone(block(number=1)), ["rejected: rank 0 has 1 thread"]),
    (AZURE, alone(block(send=0)), ["rejected: send is 0"]),
    (AZURE, alone(block(recv=-2)), ["rejected: recv is -2"]),
    (AZURE, alone(block(send=1, recv=1)), []),
    (AZURE, alone(block(send=2)), ["hangs: send is 2"]),
    (MSCCL, alone(block(recv=2)), ["rejected: recv is 2"]),
    (AZURE, alone(block(channel=-1)), ["rejected: chan is -1"]),
    (AZURE, alone(block(channel=3), nchannels=4), []),
    (AZURE, alone(block(channel=4), nchannels=4), ["hangs: chan is 4"]),
    (AZURE, alone(block(channel=32)), ["hangs: chan is 32"]),
    (AZURE, alone(block(channel=33)), ["rejected: chan is 33"]),
    (AZURE, alone(block(send=1), block(number=1, send=1)), ["wrong data: rank 0 thread blocks 0"]),
    (AZURE, alone(block(recv=1), block(number=1, recv=1)), ["wrong data: rank 0 thread blocks 0"]),
    (AZURE, alone(block(send=1), block(number=1, send=1, channel=1), nchannels=2), []),
    (AZURE, steps(64, 63), []),
    (AZURE, steps(65, 64), ["rejected: rank 0 thread block 0", "rejected: s is 64"]),
    (AZURE, steps(65, 63), ["wrong data: rank 0 thread block 0", "note: s is 63"]),
    (MSCCL, steps(256, 255), []),
    (MSCCL, steps(257, 255), ["wrong data: rank 0 thread block 0", "note: s is 255"]),
    (AZURE, alone(block(step(number=-1))), ["rejected: s is -1"]),
    (AZURE, alone(block(step("x"))), ["rejected: type is 'x'"]),
    (AZURE, alone(block(step(source="x"))), ["rejected: srcbuf is 'x'"]),
    (AZURE, alone(block(step(target="x"))), ["rejected: dstbuf is 'x'"]),
    (AZURE, alone(block(step("nop", chunks=72, signals=2))), []),
    (AZURE, alone(block(step(signals=1))), []),
    (AZURE, alone(block(step(signals=2))), ["rejected: hasdep is 2"]),
    (AZURE, alone(block(step(signals=-1))), ["rejected: hasdep is -1"]),
    (AZURE, alone(block(step(chunks=71)), sizes=(71, 71, 0), nchunksperloop=71), []),
    (AZURE, alone(block(step(chunks=72)), sizes=(72, 72, 0), nchunksperloop=72), ["rejected: cnt is 72"]),
    (AZURE, alone(block(step(chunks=0))), ["wrong data: cnt is 0"]),
    (AZURE, alone(block(step(chunks=-1))), ["rejected: cnt is -1"]),
    (AZURE, alone(block(step("s"))), ["rejected: type is s"]),
    (AZURE, alone(block(step("s"), send=1)), []),
    (AZURE, alone(block(step("r"), send=1)), ["rejected: type is r"]),
    (AZURE, alone(block(step("r"), recv=1)), []),
    (AZURE, alone(block(step(source_start=1))), ["rejected: srcoff is 1"]),
    (AZURE, alone(block(step(target_start=-2))), ["rejected: dstoff is -2"]),
    (AZURE, alone(block(step(source="s"))), []),
    (AZURE, alone(block(step(source="s", source_start=1))), ["rejected: srcoff is 1"]),
    (AZURE, alone(block(step(target_start=-1))), ["wrong data: chunks -1 to -1 of"]),
    (AZURE, alone(block(step(source_start=1)), sizes=(2, 2, 0), nchunksperloop=2), []),
    (
        AZURE,
        alone(block(step(source_start=1, chunks=2)), sizes=(2, 2, 0), nchunksperloop=2),
        ["wrong data: chunks 1 to 2 of"],
    ),
    (AZURE, alone(block(step(source_start=1)), sizes=(2, 2, 0)), ["wrong data: chunks 1 to 1 of"]),
    (AZURE, alone(block(step("s", target_start=9), send=1)), []),
    (RCCL, alone(block(step("rcs"), step("rrs", 1), send=1, recv=1)), ["rejected: type rcs is read"]),
    (MSCCL, alone(block(step("ra"))), ["wrong data: type is ra"]),
    (AZURE, alone(block(step("nop", wait_block=0), step(number=1))), ["rejected: the step waits for nothing"]),
    (AZURE, alone(block(step("nop", wait_block=0), step(number=1, wait_block=0))), []),
    (
        AZURE,
        alone(block(step("re"), step("nop", 1, wait_block=0), step("re", 2))),
        ["wrong data: consecutive reductions into one chunk"],
    ),
    (
        AZURE,
        alone(block(step("re"), step("re", 1, chunks=2)), sizes=(2, 2, 0), nchunksperloop=2),
        ["wrong data: consecutive reductions into one chunk"],
    ),
    (AZURE, alone(block(step("re"), step("re", 1))), []),
    (AZURE, alone(block(step("re", signals=1), step("re", 1, chunks=2)), sizes=(2, 2, 0), nchunksperloop=2), []),
    (AZURE, alone(block(*(step("re", number) for number in range(32)))), []),
    (AZURE, alone(block(*(step("re", number) for number in range(34)))), ["wrong data: more than 16 reductions into"]),
    (AZURE, alone(block(step(wait_block=0), step(number=1))), []),
    (
        AZURE,
        document(gpu(), gpu(block(step("s"), send=0), block(number=1, send=0), number=1)),
        ["wrong data: rank 1 thread blocks 0"],
    ),
]


@pytest.mark.parametrize(("runtime", "made", "found"), BLOCKS)
def test_thread_blocks(runtime: str, made: Document, found: Found) -> None:
    """All findings about each, on a GPU that runs seven at once."""
    findings = Findings()
    rules.check_blocks(made, lint.layout_of(made, Findings()), dialect_of(runtime), 7, findings)
    assert agree(findings, found)


def test_the_first_fused_step_is_named() -> None:
    """By its line."""
    made = alone(block(step("rcs", line=5), step("rrs", 1, line=6), send=1, recv=1))
    findings = Findings()
    rules.check_blocks(made, lint.layout_of(made, Findings()), dialect_of(RCCL), 7, findings)
    assert [finding.where for finding in findings] == ["line 5"]
