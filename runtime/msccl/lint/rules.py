"""Lint rules for the header, the gpu elements, the thread blocks and the steps of an MSCCL file."""

from __future__ import annotations

from collections import Counter, defaultdict

from ....schedules import ALLGATHER, REDUCE_SCATTER
from ....support.validation import shown
from ...interpreter.findings import Findings, Severity
from ...programs.channels import CONNECTIONS_PER_CHANNEL
from ...programs.layout import Layout
from ..format.document import Block, Document, Gpu, Step, at
from ..format.limits import FUSED, MAX_COUNT, MAX_NODES, MSCCL_DEFAULT_MAX_BYTES, SPELLINGS, Dialect

PROTOCOLS = ("Simple", "LL", "LL128")
NAME_LENGTH = 63
WARP = 32


def check_header(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Check the attributes of the algo element."""
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
        findings.add("hangs", f"nchannels is {channels}, so nothing is connected; expected 1 or more", where)
    if channels > dialect.max_channels:
        message = f"nchannels is {channels}; {dialect.name} {dialect.version} has {dialect.max_channels}"
        if dialect.is_microsoft:
            findings.add("wrong data", f"{message}, warns, and writes beyond them", where)
        else:
            findings.add("ignored" if dialect.name == "rccl" else "rejected", message, where)


def _check_placement(document: Document, dialect: Dialect, findings: Findings, where: str) -> None:
    for name in ("inplace", "outofplace"):
        if name in document.numbers and document.numbers[name] not in (0, 1):
            findings.add("note", f"{name} is {document.numbers[name]} and read as 1; expected 0 or 1", where)
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
            # Elsewhere they are compared as numbers without a sign, and are larger than any size.
            severity: Severity = "rejected" if dialect.is_microsoft else "ignored" if value is least else "note"
            findings.add(severity, f"{name} is {value}; expected 0 or more", where)
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
    """Note how much scratch microsoft/msccl allocates when it loads a file."""
    chunks, scratch = document.numbers["nchunksperloop"], max((gpu.scratch_chunks for gpu in document.gpus), default=0)
    if chunks > 0 and scratch > 0:
        size = beyond * scratch // chunks
        findings.add("note", f"loading it allocates {size} bytes of scratch, for maxBytes at once", where)


def check_gpus(document: Document, layout: Layout | None, dialect: Dialect, findings: Findings) -> None:
    """Check that every rank has a gpu element with the right sizes."""
    ranks = document.numbers["ngpus"]
    if ranks < 1:
        return
    found = Counter(gpu.number for gpu in document.gpus)
    for number in sorted(number for number, times in found.items() if times > 1):
        findings.add("wrong data", f"there are {found[number]} gpu elements with id {number}; the last one counts")
    missing = next((number for number in range(min(ranks, len(found) + 1)) if number not in found), None)
    if missing is not None:
        message = f"there is no gpu element with id {missing}, but ngpus is {ranks}; that rank launches nothing"
        findings.add("hangs", message)
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
                message = f"{name} is {sizes[name]}, which does not match nchunksperloop {chunks}"
                findings.add("rejected", message, where)
    if layout is None or not 0 <= gpu.number < ranks:
        return
    for name, real in zip(sizes, buffer_chunks(layout, gpu.number), strict=False):
        # A root's file says by 0 that the others have none, and one for calls in place that it does without.
        if sizes[name] not in (0, real) and not layout.collective.has_one_root:
            message = f"{name} is {sizes[name]}, but the buffer has {real} chunks; it only bounds offsets"
            findings.add("note", message, where)


def buffer_chunks(layout: Layout, rank: int) -> tuple[int, int]:
    """Actual chunks of the input and output of a rank."""
    begin, end = layout.input_range(rank)
    return end - begin, sum(last - first for first, last in layout.output_ranges(rank))


SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
RECEIVES = frozenset({"r", "rcs", "rrs", "rrc", "rrcs"})
READS = frozenset({"s", "cpy", "re", "rrc", "rrs", "rrcs"})  # Steps with a source
WRITES = frozenset({"r", "cpy", "re", "rcs", "rrc", "rrcs"})  # Steps with a target
CHECKED = {"s": "s", "r": "d", "rcs": "d", "rrs": "s", "rrc": "", "rrcs": "sd", "cpy": "sd", "re": "sd"}
"""Ends whose first chunk the parsers compare with the sizes in the gpu element."""
MAX_CHAIN = 16  # Additions to one chunk that are made in one go


def check_blocks(
    document: Document, layout: Layout | None, dialect: Dialect, resident: int, findings: Findings
) -> None:
    """Check everything inside the gpu elements except waits."""
    if not dialect.launches_fused:
        _check_fused(document, dialect, findings)
    for gpu in document.gpus:
        _check_numbers(gpu, dialect, resident, findings)
        _check_connections(gpu, dialect, findings)
        known = layout if 0 <= gpu.number < document.numbers["ngpus"] else None
        sizes = _sizes(gpu, known)
        for block in gpu.blocks:
            _check_block(document, gpu, block, dialect, findings)
            for position, step in enumerate(block.steps):
                _check_step(step, position, block, dialect, findings)
                _check_ends(step, gpu, sizes, findings)
            _check_chains(block, findings)


def _check_fused(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Report the first fused step that is read but not launched."""
    steps = (step for gpu in document.gpus for block in gpu.blocks for step in block.steps if step.kind in FUSED)
    if (first := next(steps, None)) is not None:
        more = sum(1 for _ in steps)
        message = (
            f"type {first.kind} is read, but {dialect.name} {dialect.version} launches no step that receives and does "
            f"something else, so calls fail; write it, and {more} more, as r and s or re"
        )
        findings.add("rejected", message, at(first.line))


def _check_numbers(gpu: Gpu, dialect: Dialect, resident: int, findings: Findings) -> None:
    numbers, rank = Counter(block.number for block in gpu.blocks), f"rank {gpu.number}"
    for number, times in numbers.items():
        if times > 1:
            findings.add("rejected", f"{rank} has {times} thread blocks with id {number}", at(gpu.line))
    missing = next((number for number in range(len(numbers)) if number not in numbers), None)
    if missing is not None:
        findings.add("rejected", f"{rank} has {len(gpu.blocks)} thread blocks but none with id {missing}", at(gpu.line))
    count = len(gpu.blocks)
    if count > dialect.max_thread_blocks:
        findings.add(
            "rejected",
            f"{rank} has {count} thread blocks; {dialect.name} {dialect.version} takes {dialect.max_thread_blocks}",
            at(gpu.line),
        )
    elif count > resident:
        message = f"{rank} has {count} thread blocks, which wait for each other, and the GPU runs {resident} at once"
        findings.add("hangs", message, at(gpu.line))


def _check_connections(gpu: Gpu, dialect: Dialect, findings: Findings) -> None:
    """Refuse two blocks on one connection, and too many connections on a channel."""
    for way, side in (("send to", "send"), ("receive from", "recv")):
        used: dict[tuple[int, int], int] = {}
        channels: dict[int, int] = defaultdict(int)
        for block in gpu.blocks:
            if (peer := getattr(block, side)) < 0:
                continue
            channels[block.channel] += 1
            twin = used.setdefault((peer, block.channel), block.number)
            if twin != block.number:
                message = (
                    f"rank {gpu.number} thread blocks {twin} and {block.number} both {way} rank {peer} on channel "
                    f"{block.channel}, which is one queue; give one of them another channel"
                )
                findings.add("wrong data", message, at(block.line))
        for channel, count in channels.items():
            if count > CONNECTIONS_PER_CHANNEL:
                message = (
                    f"rank {gpu.number} has {count} thread blocks that {way} a rank on channel {channel}; "
                    f"{dialect.name} takes {CONNECTIONS_PER_CHANNEL}"
                )
                findings.add("rejected", message, at(gpu.line))


def _check_block(document: Document, gpu: Gpu, block: Block, dialect: Dialect, findings: Findings) -> None:
    where, ranks, channels = at(block.line), document.numbers["ngpus"], document.numbers["nchannels"]
    for name, peer in (("send", block.send), ("recv", block.recv)):
        if peer == gpu.number or peer < -1:
            findings.add("rejected", f"{name} is {peer}; expected another rank, or -1 for none", where)
        elif peer >= ranks:
            severity: Severity = "rejected" if dialect.is_microsoft else "hangs"
            findings.add(severity, f"{name} is {peer}; the last rank is {ranks - 1}", where)
    if not 0 <= block.channel <= dialect.max_channels:
        findings.add("rejected", f"chan is {block.channel}; expected 0 to {dialect.max_channels - 1}", where)
    elif block.channel >= channels:
        findings.add("hangs", f"chan is {block.channel}, but connections exist for 0 to {channels - 1} only", where)
    if len(block.steps) > dialect.limits.max_steps:
        compilable = dialect.name == "msccl-executor-nccl"
        compiled = "; it can be compiled with MSCCL_MAX_NUM_STEPS for more" if compilable else ""
        message = (
            f"rank {gpu.number} thread block {block.number} has {len(block.steps)} steps; {dialect.name} takes "
            f"{dialect.limits.max_steps}{compiled}"
        )
        # What they check is the number that a step has.
        numbered = all(step.number < dialect.limits.max_steps for step in block.steps)
        findings.add("wrong data" if numbered else "rejected", message, where)


def _check_step(step: Step, position: int, block: Block, dialect: Dialect, findings: Findings) -> None:
    where = at(step.line)
    if step.kind not in dialect.step_types:
        findings.add("rejected", f"type is {shown(step.kind)}; expected {', '.join(sorted(dialect.step_types))}", where)
        return
    if not 0 <= step.number < dialect.limits.max_steps:
        findings.add("rejected", f"s is {step.number}; expected 0 to {dialect.limits.max_steps - 1}", where)
    elif step.number != position:
        findings.add("note", f"s is {step.number}, but steps are numbered by their position: this is {position}", where)
    for name, buffer in (("srcbuf", step.source), ("dstbuf", step.target)):
        if buffer not in ("i", "o", "s"):
            findings.add("rejected", f"{name} is {shown(buffer)}; expected i, o or s", where)
    if step.kind == "nop":
        return
    if step.signals not in (0, 1):
        findings.add("rejected", f"hasdep is {step.signals}; expected 0 or 1", where)
    if not 0 <= step.chunks <= MAX_COUNT:
        findings.add("rejected", f"cnt is {step.chunks}; expected 1 to {MAX_COUNT}", where)
    elif step.chunks == 0:
        findings.add("wrong data", f"cnt is 0, so nothing is moved; expected 1 to {MAX_COUNT}", where)
    for kinds, peer, name in ((SENDS, block.send, "send"), (RECEIVES, block.recv, "recv")):
        if step.kind in kinds and peer < 0:
            findings.add("rejected", f"type is {step.kind}, but {name} of its thread block is {peer}", where)


def _sizes(gpu: Gpu, layout: Layout | None) -> dict[str, tuple[int, int]]:
    """For each buffer the stated and the actual number of chunks."""
    stated = {"i": gpu.input_chunks, "o": gpu.output_chunks, "s": gpu.scratch_chunks}
    real = dict(stated)
    if layout is not None:
        real["i"], real["o"] = buffer_chunks(layout, gpu.number)
    return {buffer: (stated[buffer], real[buffer]) for buffer in stated}


def _check_ends(step: Step, gpu: Gpu, sizes: dict[str, tuple[int, int]], findings: Findings) -> None:
    for letter, kinds, name, buffer, start in (
        ("s", READS, "src", step.source, step.source_start),
        ("d", WRITES, "dst", step.target, step.target_start),
    ):
        if buffer not in sizes or step.kind not in CHECKED:
            continue
        stated, real = sizes[buffer]
        if letter in CHECKED[step.kind] and not -1 <= start < stated:
            message = f"{name}off is {start}, but {buffer}_chunks of rank {gpu.number} is {stated}"
            findings.add("rejected", message, at(step.line))
        elif step.kind in kinds and not 0 <= start <= real - step.chunks:
            message = (
                f"chunks {start} to {start + step.chunks - 1} of {buffer} are outside of the {real} that rank "
                f"{gpu.number} has there"
            )
            findings.add("wrong data", message, at(step.line))


def _check_chains(block: Block, findings: Findings) -> None:
    """Report steps that end a block, waits that are nobody's, and reductions that are merged and must not be."""
    total = length = waits = chunks = 0
    before = None
    for step in block.steps:
        where, reduces = at(step.line), step.kind == "re"
        waits += step.wait_block >= 0
        if step.kind == "ra":
            findings.add("wrong data", "type is ra, which is read, but the kernel ends the thread block there", where)
        if step.kind == "nop":
            continue
        place = (step.target, step.target_start, step.source) if reduces else None
        joins = reduces and place == before and step.wait_block == -1
        total, length = total + reduces, length + 1 if joins else 1
        if joins and (waits or chunks != step.chunks):
            what = "wait for what the nop before this one" if waits else "have as many chunks as this one"
            findings.add(
                "wrong data", f"consecutive reductions into one chunk are made in one go, and {what} has", where
            )
        if length == MAX_CHAIN + 1:
            message = f"more than {MAX_CHAIN} reductions into one chunk are made in one go, for which there is no space"
            findings.add("wrong data", message, where)
        if not joins and waits and step.wait_block < 0:
            findings.add("rejected", "the step waits for nothing, but comes after a nop that waits", where)
        if not joins:
            waits = 0
        # The parsers count all reductions of a thread block, so that only one chain is cut.
        before, chunks = None if step.signals or total == MAX_CHAIN else place, step.chunks
