"""Lint rules for the header and the gpu elements of an MSCCL file."""

from __future__ import annotations

from collections import Counter

from ....schedules import ALLGATHER, REDUCE_SCATTER
from ....support.validation import shown
from ...interpreter.findings import Findings
from ...programs.layout import Layout
from ..format.document import Document, Gpu, at
from ..format.limits import MAX_NODES, MSCCL_DEFAULT_MAX_BYTES, SPELLINGS, Dialect

PROTOCOLS = ("Simple", "LL", "LL128")
NAME_LENGTH = 63
WARP = 32


def check_header(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Look at the attributes of the algo element."""
    where, numbers = at(document.line), document.numbers
    protocol, collective = document.words.get("proto", "Simple"), document.words["coll"]
    if protocol not in PROTOCOLS:
        findings.add("rejected", f"proto is {shown(protocol)}; expected {', '.join(PROTOCOLS)}", where)
    known = SPELLINGS.get(collective)
    if collective not in (*dialect.collectives, *dialect.other_collectives):
        meant = next((theirs for theirs, ours in dialect.collectives.items() if ours is known), None)
        names = ", ".join([*dialect.collectives, *dialect.other_collectives])
        hint = f"it is {meant} there" if meant else f"expected one of {names}"
        findings.add("rejected", f"coll is {shown(collective)}, which {dialect.name} does not know; {hint}", where)
    if known and known.has_one_root:
        findings.add("note", f"the file is for one root, and every {collective} picks it, whatever its root", where)
    if (chunks := numbers["nchunksperloop"]) < 1:
        findings.add("wrong data", f"nchunksperloop is {chunks}, by which sizes are divided; expected 1 or more", where)
    if (ranks := numbers["ngpus"]) < 1:
        findings.add("ignored", f"ngpus is {ranks}, and no call has as many ranks; expected 1 or more", where)
    if dialect.is_microsoft and numbers.get("nthreads", 0) % WARP:
        findings.add("rejected", f"nthreads is {numbers['nthreads']}; expected a multiple of {WARP}", where)
    if dialect.is_microsoft and len(document.words.get("name", "")) > NAME_LENGTH:
        findings.add("note", f"name is cut after {NAME_LENGTH} characters", where)
    _check_channels(numbers["nchannels"], dialect, findings, where)
    _check_placement(document, dialect, findings, where)
    _check_window(document, dialect, findings, where)


def _check_channels(channels: int, dialect: Dialect, findings: Findings, where: str) -> None:
    if channels < 1:
        findings.add("rejected", f"nchannels is {channels}; expected 1 or more", where)
    if channels > dialect.max_channels:
        message = f"nchannels is {channels}; {dialect.name} {dialect.version} has {dialect.max_channels}"
        severities = {"msccl": "wrong data", "rccl": "ignored"}
        if severities.get(dialect.name) == "wrong data":
            findings.add("wrong data", f"{message}, warns, and writes beyond them", where)
        elif severities.get(dialect.name) == "ignored":
            findings.add("ignored", message, where)
        else:
            findings.add("rejected", message, where)


def _check_placement(document: Document, dialect: Dialect, findings: Findings, where: str) -> None:
    for name in ("inplace", "outofplace"):
        if name in document.numbers and document.numbers[name] not in (0, 1):
            findings.add("ignored", f"{name} is {document.numbers[name]}; expected 0 or 1", where)
    inplace, outofplace = document.numbers.get("inplace", 0), document.numbers.get("outofplace", 0)
    if not any(dialect.placements(inplace, outofplace)) and "outofplace" in document.numbers:
        findings.add("ignored", "inplace and outofplace are 0, so no call picks the file; set one of them to 1", where)
    if dialect.is_microsoft and "outofplace" in document.numbers and bool(inplace) == bool(outofplace):
        message = (
            f"outofplace is not read; with inplace {inplace} the file is for calls {'in' if inplace else 'out of'} "
            "place alone"
        )
        findings.add("note", message, where)


def _check_window(document: Document, dialect: Dialect, findings: Findings, where: str) -> None:
    least, most = document.numbers.get("minBytes"), document.numbers.get("maxBytes")
    for name, value in (("minBytes", least), ("maxBytes", most)):
        if value is not None and value < 0:
            findings.add("rejected", f"{name} is {value}; expected 0 or more", where)
    if (least or 0) < 0 or (most or 0) < 0:
        return
    first, beyond = dialect.sizes(least, most)
    if dialect.is_microsoft:
        if most is None:
            message = f"without maxBytes only sizes below {MSCCL_DEFAULT_MAX_BYTES} bytes pick the file; give one"
            findings.add("note", message, where)
        limit = MSCCL_DEFAULT_MAX_BYTES if most is None else most
        if (least or 0) > limit:
            findings.add("rejected", f"minBytes is {least}, above maxBytes {limit}", where)
        elif first == beyond:
            message = f"no size is at least {least or 0} and below maxBytes {limit}; give a larger maxBytes"
            findings.add("ignored", message, where)
        _check_scratch(document, beyond, findings, where)
    elif first >= beyond:
        findings.add("ignored", f"no size is at least minBytes {least} and at most maxBytes {most}", where)


def _check_scratch(document: Document, beyond: int, findings: Findings, where: str) -> None:
    """Say how much scratch microsoft/msccl allocates when it loads a file."""
    chunks, scratch = document.numbers["nchunksperloop"], max((gpu.scratch_chunks for gpu in document.gpus), default=0)
    if chunks > 0 and scratch > 0:
        size = beyond * scratch // chunks
        findings.add("note", f"loading it allocates {size} bytes of scratch, for maxBytes at once", where)


def check_gpus(document: Document, layout: Layout | None, dialect: Dialect, findings: Findings) -> None:
    """Look for the element of every rank, and at its sizes."""
    ranks = document.numbers["ngpus"]
    if ranks < 1:
        return
    found = Counter(gpu.number for gpu in document.gpus)
    for number in sorted(number for number, times in found.items() if times > 1 or not 0 <= number < ranks):
        what = f"there are {found[number]} gpu elements with id {number}"
        findings.add("rejected", f"{what}; expected one for each rank from 0 to {ranks - 1}")
    if missing := next((number for number in range(min(ranks, len(found) + 1)) if number not in found), None):
        findings.add("rejected", f"there is no gpu element with id {missing}, but ngpus is {ranks}")
    elif missing == 0:
        findings.add("rejected", f"there is no gpu element with id 0, but ngpus is {ranks}")
    for gpu in document.gpus:
        _check_sizes(document, gpu, layout, dialect, findings)
        nodes = 1 + len(document.gpus) + len(gpu.blocks) + sum(len(block.steps) for block in gpu.blocks)
        if nodes > MAX_NODES:
            message = f"rank {gpu.number} needs {nodes} elements; the parsers store {MAX_NODES}"
            findings.add("rejected", message, at(gpu.line))
        if not gpu.blocks:
            findings.add("note", f"rank {gpu.number} has no thread block, which is untested", at(gpu.line))


def _check_sizes(document: Document, gpu: Gpu, layout: Layout | None, dialect: Dialect, findings: Findings) -> None:
    where, ranks, chunks = at(gpu.line), document.numbers["ngpus"], document.numbers["nchunksperloop"]
    sizes = {"i_chunks": gpu.input_chunks, "o_chunks": gpu.output_chunks, "s_chunks": gpu.scratch_chunks}
    if gpu.scratch_chunks < 0:
        findings.add("rejected", f"s_chunks is {gpu.scratch_chunks}; expected 0 or more", where)
    if dialect.is_microsoft:
        collective = dialect.collectives.get(document.words["coll"])
        for name, divided in (("i_chunks", ALLGATHER), ("o_chunks", REDUCE_SCATTER)):
            times = ranks if collective is divided else 1
            if sizes[name] > 0 and sizes[name] * times != chunks:
                message = f"{name} is {sizes[name]}, which does not go with nchunksperloop {chunks}"
                findings.add("rejected", message, where)
    if layout is None or not 0 <= gpu.number < ranks:
        return
    for name, real in zip(sizes, chunks_of_buffers(layout, gpu.number), strict=False):
        # A root's file says by 0 that the others have none, and one for calls in place that it does without.
        if sizes[name] not in (0, real) and not layout.collective.has_one_root:
            message = f"{name} is {sizes[name]}, but the buffer has {real} chunks; it only bounds offsets"
            findings.add("note", message, where)


def chunks_of_buffers(layout: Layout, rank: int) -> tuple[int, int]:
    """Chunks that the input and the output of a rank really have."""
    begin, end = layout.input_range(rank)
    return end - begin, sum(last - first for first, last in layout.output_ranges(rank))
