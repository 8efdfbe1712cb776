"""Lint of an MSCCL XML file for a runtime: whether it is loaded and selected, deadlocks, or computes wrong results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ...errors import ProgramError, UnsupportedError
from ...schedules import Collective
from ...support.files import read_bytes
from ..mscclpp.lint import RUNTIME, lint_plan
from ..programs.findings import Findings, LintReport, Severity, TooManyFindingsError, Window
from ..programs.layout import Layout
from ..programs.program import (
    Buffer,
    ChunkRange,
    Dependency,
    Instruction,
    Kind,
    Program,
    RankProgram,
    ThreadBlock,
    check_counts,
)
from .document import Block, Document, Gpu, Step, at, read_document
from .limits import MAX_AWAITED_BLOCK, SPELLINGS, UNLIMITED, Dialect, dialect_of
from .lint_rules import buffer_chunks, check_blocks, check_gpus, check_header
from .lint_runs import check_execution, check_network, check_rounds, queue_of

MAX_BYTES = 2**26
"""Enough for hundreds of ranks with the maximum of 4095 elements of about 130 bytes each."""

WRONG: tuple[Severity, ...] = ("rejected", "hangs", "wrong data")  # With one of these there is nothing to run


def lint_file(
    path: str | os.PathLike[str],
    runtime: str,
    version: str | None = None,
    *,
    max_thread_blocks: int | None = None,
    gpus_per_box: int | None = None,
) -> LintReport:
    """Check whether a runtime loads an MSCCL XML file, selects it, and computes correct results with it.

    The report also says how to make the runtime load the file.  Raises `FileFormatError` if the file cannot be read or
    is too large.

    Parameters
    ----------
    path : path
        File to check; it need not be valid.
    runtime : {"msccl", "msccl-executor-nccl", "rccl"}
        Runtime that loads it.
    version : str or None
        For RCCL the release of ROCm, such as ``"6.4"``; by default the last that has MSCCL.
    max_thread_blocks : int or None
        Thread blocks that the GPU runs at once, if not the 108 of an A100 (RCCL: 64).
    gpus_per_box : int or None
        Ranks whose connections are no network, box by box.  A broadcast or reduce with the protocol Simple hangs over a
        network; without this number that is a note.

    Notes
    -----
    Beyond the parsers' own checks, steps are put in an order that excludes deadlocks, accesses are checked for races,
    and the file is run on numbers and its results compared with the collective's.
    """
    dialect = dialect_of(runtime, version)
    resident = dialect.limits.max_thread_blocks if max_thread_blocks is None else max_thread_blocks
    check_counts({"max_thread_blocks": resident} | ({} if gpus_per_box is None else {"gpus_per_box": gpus_per_box}))
    # The parsers know no encoding: each byte is a character of its own.
    text = read_bytes(path, MAX_BYTES).decode("latin-1")
    findings = Findings()
    document = None
    if dialect.absent:
        findings.add("ignored", f"{dialect.absent}; run the plan through torch.distributed, or load it elsewhere")
    try:
        if text.lstrip()[:1] == "{":
            findings.add("rejected", _json_finding(path, dialect))
        else:
            document = read_document(text, dialect.required, findings)
        if document is not None:
            _check(document, dialect, resident, gpus_per_box, findings)
    except TooManyFindingsError:
        pass
    return LintReport(
        str(path),
        dialect.name,
        dialect.version,
        tuple(findings),
        summarize(dialect, document),
        loading_environment([str(path)], dialect),
        loading_hints(dialect, document),
        call_windows(dialect, document) if not (dialect.absent or findings.has("rejected")) else (),
    )


def _json_finding(path: str | os.PathLike[str], dialect: Dialect) -> str:
    """Describe a file that is JSON instead of XML."""
    report = lint_plan(path)
    plan = f"an MSCCL++ plan of {report.summary}" if report.summary else "JSON"
    remedy = "leave it out" if dialect.is_microsoft else "move it out of the folder, as all files there are opened"
    return f"the file is {plan}, and no MSCCL XML; {remedy}, and look at it with --runtime {RUNTIME}"


def _check(document: Document, dialect: Dialect, resident: int, gpus_per_box: int | None, findings: Findings) -> None:
    check_header(document, dialect, findings)
    check_network(document, gpus_per_box, findings)
    check_rounds(document, dialect, findings)
    if (program := checked_program(document, dialect, resident, findings)) is not None:
        check_execution(program, *_placements(document, dialect), queue_of(document, dialect), findings)


def checked_program(document: Document, dialect: Dialect, resident: int, findings: Findings) -> Program | None:
    """Check all below the header, and convert it to a program; None, with the reason as a finding, if it is none."""
    layout = layout_of(document, findings)
    check_gpus(document, layout, dialect, findings)
    check_blocks(document, layout, dialect, resident, findings)
    if layout is None or findings.has(*WRONG):
        return None
    program = program_of(document, layout, findings)
    return None if findings.has(*WRONG) else program


LIBRARY = "the folder of the library"
FOLDERS = {
    "msccl-executor-nccl": f"{LIBRARY} + /msccl-algorithms or /../share/nccl/msccl-algorithms, or "
    "/usr/share/nccl/msccl-algorithms",
    "rccl": f"{LIBRARY} + /msccl-algorithms or /../share/rccl/msccl-algorithms",
}


def loading_environment(paths: list[str], dialect: Dialect) -> Mapping[str, str]:
    """Environment variables that make a runtime load files; runtimes that read a folder read the first file's."""
    if dialect.absent or not paths:
        return {}
    full = [Path(path).absolute() for path in paths]
    if dialect.is_microsoft:
        return {"MSCCL_XML_FILES": ":".join(map(str, full)), "NCCL_ALGO": "MSCCL,RING,TREE"}
    folder = str(full[0].parent)
    if dialect.name == "rccl":
        return {"RCCL_MSCCL_ENABLE": "1", "RCCL_MSCCL_FORCE_ENABLE": "1", "MSCCL_ALGO_DIR": folder}
    return {"NCCL_MSCCL_ENABLE": "1", "MSCCL_ALGO_DIR": folder}


def loading_hints(dialect: Dialect, document: Document | None) -> tuple[str, ...]:
    """Notes on loading, besides the environment variables."""
    if dialect.absent:
        return ()
    lines = []
    if dialect.is_microsoft:
        lines.append("a file that is rejected is skipped with a warning; NCCL_DEBUG=INFO says which are connected")
        lines.append("MSCCL_XML_FILES holds 4 files at most, with colons between them, so that no path may hold one")
    else:
        lines.append(
            f"files are read from MSCCL_ALGO_DIR, or else from {FOLDERS[dialect.name]}; keep no other files there: "
            "all files for this number of ranks are loaded, and one that is rejected stops the communicator"
        )
    if dialect.name == "msccl-executor-nccl":
        lines.append("the library must be the executor's own libnccl.so, and each process have one GPU")
    if dialect.name == "rccl":
        lines.append("RCCL has no MSCCL from ROCm 7.13 on, and before it must have been built with its kernels")
        lines.append("RCCL needs RCCL_MSCCL_FORCE_ENABLE except on machines that it knows, such as 8x MI300X")
        lines.append("if ncclCommSplit crashes, set RCCL_MSCCL_ENABLE=0 to run without MSCCL (ROCm/TheRock#7874)")
    if document is None:
        return tuple(lines)
    if (channels := document.numbers["nchannels"]) > 1:
        lines.append(f"the communicator must have {channels} channels; NCCL_MAX_NCHANNELS must not be below")
    if (chunks := document.numbers["nchunksperloop"]) > 1:
        lines.append(f"only calls whose total number of elements is a multiple of {chunks} pick the file")
    return tuple(lines)


def call_windows(dialect: Dialect, document: Document | None) -> tuple[Window, ...]:
    """Calls for which a runtime selects a file."""
    if document is None:
        return ()
    numbers = document.numbers
    sizes = dialect.sizes(numbers.get("minBytes"), numbers.get("maxBytes"))
    return tuple(
        Window(document.words["coll"], numbers["ngpus"], in_place, *sizes)
        for in_place, applies in zip((True, False), _placements(document, dialect), strict=True)
        if applies
    )


def _placements(document: Document, dialect: Dialect) -> tuple[bool, bool]:
    """Whether a file is for calls in place, and for those out of place."""
    return dialect.placements(document.numbers.get("inplace", 0), document.numbers.get("outofplace", 0))


def summarize(dialect: Dialect, document: Document | None) -> str:
    """Describe the calls for which a runtime selects a file."""
    if document is None:
        return ""
    windows = call_windows(dialect, document)
    places = " and ".join("in place" if window.in_place else "out of place" for window in windows)
    sizes = sizes_text(windows[0].first, windows[0].end) if windows else "of no size"
    return f"{document.words['coll'][:40]} on {document.numbers['ngpus']} ranks, {places or 'for no call'}, {sizes}"


def sizes_text(first: int, end: int) -> str:
    """Describe the sizes from `first` up to, not including, `end`."""
    if first >= end:
        return "of no size"
    if end >= UNLIMITED:
        return f"from {first} bytes" if first else "of any size"
    return f"from {first} to {end - 1} bytes"


MAX_RANKS, MAX_RANKS_ALL_TO_ALL = 4096, 1024  # More the parsers do not keep, and make a table of pairs too large
MAX_CHUNKS = 2**24  # In all buffers of all ranks; each is a number in memory when the file is run


def layout_of(document: Document, findings: Findings) -> Layout | None:
    """Layout of a file's collective; None, with the reason as a finding, if it is unknown."""
    collective = SPELLINGS.get(document.words["coll"])
    ranks, chunks = document.numbers["ngpus"], document.numbers["nchunksperloop"]
    if collective is None:
        message = f"what {document.words['coll'][:40]!r} computes is not known, so its data is not checked"
        findings.add("not checked", message)
        return None
    if sorted(gpu.number for gpu in document.gpus) != list(range(len(document.gpus))) or ranks != len(document.gpus):
        return None  # There is a rank without an element, which is a finding of its own.
    limit = MAX_RANKS_ALL_TO_ALL if collective.in_pairs else MAX_RANKS
    total = sum(max(0, gpu.scratch_chunks) for gpu in document.gpus) + 2 * ranks * max(0, chunks)
    if ranks > limit or chunks < 1 or total > MAX_CHUNKS:
        message = f"{total} chunks on {ranks} ranks are too many to interpret, so data is not checked"
        findings.add("not checked", message)
        return None
    try:
        if collective.in_pairs:
            return Layout.of(collective, ranks, chunks * ranks)
        return Layout.of(collective, ranks, chunks, _shards(document, collective))
    except (ProgramError, UnsupportedError) as error:
        findings.add("wrong data", str(error).replace("the program", "the file"), at(document.line))
        return None


def _shards(document: Document, collective: Collective) -> tuple[int, ...]:
    """Find the root of a broadcast or reduce: the only rank with input or output, or without receives or sends."""
    if not collective.has_one_root:
        return ()
    ranks, chunks = document.numbers["ngpus"], document.numbers["nchunksperloop"]
    broadcast = not collective.reduces
    roots = {gpu.number for gpu in document.gpus if (gpu.input_chunks if broadcast else gpu.output_chunks) > 0}
    if len(roots) != 1:
        roots = {
            gpu.number
            for gpu in document.gpus
            if not any((block.recv if broadcast else block.send) >= 0 for block in gpu.blocks)
        }
    if len(roots) != 1:
        raise UnsupportedError(f"{len(roots)} ranks could be the root of the {collective}; expected one")
    return tuple(chunks if rank in roots else 0 for rank in range(ranks))


def program_of(document: Document, layout: Layout, findings: Findings) -> Program:
    """Convert a checked file to a program."""
    ranks = sorted(document.gpus, key=lambda gpu: gpu.number)
    shards = layout.shards if layout.collective.has_one_root else ()
    return Program(
        document.words.get("name", "unnamed"),
        layout.collective,
        document.numbers["ngpus"],
        layout.chunks,
        tuple(rank_program(gpu, *buffer_chunks(layout, gpu.number), findings) for gpu in ranks),
        shards=shards,
    )


BUFFERS: dict[str, Buffer] = {"i": "input", "o": "output", "s": "scratch"}
Place = tuple[int, int]  # A thread block, and the position of a step in it


def rank_program(gpu: Gpu, input_chunks: int, output_chunks: int, findings: Findings) -> RankProgram:
    """Convert a gpu element whose steps are of known types; invalid waits become findings."""
    blocks = sorted(gpu.blocks, key=lambda block: block.number)
    numbers = {}
    for block in blocks:
        ends = count()
        for position, step in enumerate(block.steps):
            for _ in _split_fused(step, (), 0):
                numbers[block.number, position] = next(ends)
    steps = {block.number: block.steps for block in blocks}
    scratch = gpu.scratch_chunks
    translated = []
    for block in blocks:
        waits = _Waits(gpu, block, steps, numbers, findings)
        instructions = tuple(_instructions(block, waits, scratch))
        scratch += max((step.chunks for step in block.steps if step.kind == "rrs"), default=0)
        send, recv = (None if peer < 0 else peer for peer in (block.send, block.recv))
        translated.append(ThreadBlock(send, recv, block.channel, instructions))
    return RankProgram(gpu.number, input_chunks, output_chunks, scratch, tuple(translated))


def _instructions(block: Block, waits: _Waits, scratch: int) -> Iterator[Instruction]:
    pending: list[Dependency] = []
    for position, step in enumerate(block.steps):
        wait = waits.answer(position, step)
        if wait is not None and wait not in pending:
            pending.append(wait)
        if step.kind != "nop":
            yield from _split_fused(step, tuple(pending), scratch)
            pending = []


def _split_fused(step: Step, depends: tuple[Dependency, ...], scratch: int) -> list[Instruction]:
    """Split a fused step into plain steps; forwarding without storing needs scratch."""
    if step.kind == "nop":
        return []
    source = ChunkRange(BUFFERS.get(step.source, "scratch"), step.source_start)
    target = ChunkRange(BUFFERS.get(step.target, "scratch"), step.target_start)
    if step.kind == "rrs":
        target = ChunkRange("scratch", scratch)
    kinds: dict[str, tuple[Kind, ChunkRange | None, ChunkRange | None]] = {
        "s": ("send", source, None),
        "r": ("recv", None, target),
        "rcs": ("recv", None, target),
        "cpy": ("copy", source, target),
        "re": ("reduce", source, target),
    }
    kind, source_end, target_end = kinds.get(step.kind, ("recv_reduce", source, target))
    first = Instruction(kind, source_end, target_end, step.chunks, depends)
    forwards = step.kind in ("rcs", "rrs", "rrcs")
    return [first, Instruction("send", target, None, step.chunks)] if forwards else [first]


class _Waits(NamedTuple):
    """Resolves the waits of one thread block, given the instructions of all steps of the rank."""

    gpu: Gpu
    block: Block
    steps: Mapping[int, Sequence[Step]]
    numbers: Mapping[Place, int]
    findings: Findings

    def answer(self, position: int, step: Step) -> Dependency | None:
        """Return the step that a step waits for; an invalid wait becomes a finding."""
        where, wait = at(step.line), (step.wait_block, step.wait_step)
        waits = wait[0] >= 0
        if wait[0] >= 0 > wait[1]:
            # The flag to wait for is below that of step 0, and of this call (``msccl_kernel_impl.h``, line 276).
            message = f"deps is {wait[1]}, so the step waits for the first signal of thread block {wait[0]}"
            self.findings.add("note", message, where)
        elif not waits and max(wait) >= 0:
            self.findings.add("note", f"depid is {wait[0]} but deps {wait[1]}, so the step waits for nothing", where)
        elif min(wait) < -1:
            self.findings.add("note", f"depid and deps are {wait[0]} and {wait[1]}, read as -1 for none", where)
        if step.kind == "nop" and not waits:
            message = "a nop that waits for nothing shifts the numbers of the steps after it"
            self.findings.add("wrong data", message, where)
        if step.kind == "nop" and position == len(self.block.steps) - 1:
            self.findings.add("note", "the thread block ends with a nop, which delays nothing", where)
        return self._answer(position, wait[0], max(wait[1], 0), where) if waits else None

    def _answer(self, position: int, number: int, awaited: int, where: str) -> Dependency | None:
        name = f"thread block {number} step {awaited}"
        steps = self.steps.get(number, ())
        # A flag says how far a block has come, so that one raised later answers, too.
        later = (place for place in range(awaited, len(steps)) if steps[place].signals == 1)
        signaling = next((place for place in later if steps[place].kind != "nop"), len(steps))
        problem = ""
        if awaited >= len(steps):
            problem = f"{name} of rank {self.gpu.number}, which does not exist"
        elif signaling == len(steps):
            what = "which is a nop and" if steps[awaited].kind == "nop" else 'which has no hasdep="1" and'
            problem = f"{name}, {what} never signals that it is done"
        elif number == self.block.number and signaling >= position:
            problem = f"{name}, which is not before it in its own thread block"
        if number > MAX_AWAITED_BLOCK and awaited < len(steps):
            message = f"the step waits for thread block {number}; numbers up to {MAX_AWAITED_BLOCK} are kept"
            self.findings.add("hangs", message, where)
        if problem:
            self.findings.add("hangs", f"the step waits for {problem}", where)
            return None
        if signaling != awaited:
            message = f"the step waits for {name}, which does not signal; step {signaling} of it does"
            self.findings.add("note", message, where)
        # What comes before a step in its own thread block has been done anyway.
        return None if number == self.block.number else Dependency(number, self.numbers[number, signaling])
