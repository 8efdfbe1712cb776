"""Lint rules for the header, the gpu elements, the thread blocks and the steps of an MSCCL file.

Each rule is a generator of what is wrong with one element, as severities and messages.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain

from ...schedules import ALLGATHER, REDUCE_SCATTER
from ...support.validation import shown
from ..programs.channels import CONNECTIONS_PER_CHANNEL
from ..programs.findings import Findings, Severity
from ..programs.layout import Layout
from .document import Block, Document, Gpu, Step, at
from .limits import FUSED, MAX_COUNT, MAX_NODES, MSCCL_DEFAULT_MAX_BYTES, PROTOCOLS, SPELLINGS, Dialect

NAME_LENGTH = 63
WARP = 32

Problems = Iterator[tuple[Severity, str]]


def _report(problems: Iterable[tuple[Severity, str]], line: int, findings: Findings) -> None:
    for severity, message in problems:
        findings.add(severity, message, at(line))


def check_header(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Check the attributes of the algo element."""
    rules = (_call, _channels, _placement, _window)
    _report(chain.from_iterable(rule(document, dialect) for rule in rules), document.line, findings)


def _call(document: Document, dialect: Dialect) -> Problems:
    numbers, collective = document.numbers, document.words["coll"]
    if (protocol := document.words.get("proto", "Simple")) not in PROTOCOLS:
        yield "rejected", f"proto is {shown(protocol)}; expected {', '.join(PROTOCOLS)}"
    collective_of = SPELLINGS.get(collective)
    names = (*dialect.collectives, *dialect.other_collectives)
    if collective not in names:
        spelling = next((theirs for theirs, ours in dialect.collectives.items() if ours is collective_of), None)
        hint = f"it is {spelling} there" if spelling else f"expected one of {', '.join(names)}"
        yield "rejected", f"coll is {shown(collective)}, which {dialect.name} does not know; {hint}"
    if collective_of and collective_of.has_one_root:
        yield "note", f"the file is for one root, and every {collective} picks it, whatever its root"
    if (chunks := numbers["nchunksperloop"]) < 1:
        yield "wrong data", f"nchunksperloop is {chunks}, by which sizes are divided; expected 1 or more"
    if (ranks := numbers["ngpus"]) < 1:
        yield "ignored", f"ngpus is {ranks}, and no call has as many ranks; expected 1 or more"
    if dialect.is_microsoft and numbers.get("nthreads", 0) % WARP:
        yield "rejected", f"nthreads is {numbers['nthreads']}; expected a multiple of {WARP}"
    if dialect.is_microsoft and len(document.words.get("name", "")) > NAME_LENGTH:
        yield "note", f"name is cut after {NAME_LENGTH} characters"


def _channels(document: Document, dialect: Dialect) -> Problems:
    if (channels := document.numbers["nchannels"]) < 1:
        yield "hangs", f"nchannels is {channels}, so nothing is connected; expected 1 or more"
    if channels > dialect.max_channels:
        message = f"nchannels is {channels}; {dialect.name} {dialect.version} has {dialect.max_channels}"
        if dialect.is_microsoft:
            yield "wrong data", f"{message}, warns, and writes beyond them"
        else:
            yield "ignored" if dialect.name == "rccl" else "rejected", message


def _placement(document: Document, dialect: Dialect) -> Problems:
    for name in ("inplace", "outofplace"):
        if document.numbers.get(name) not in (None, 0, 1):
            yield "note", f"{name} is {document.numbers[name]} and read as 1; expected 0 or 1"
    if "outofplace" not in document.numbers:
        return
    inplace, outofplace = document.numbers.get("inplace", 0), document.numbers["outofplace"]
    if not any(dialect.placements(inplace, outofplace)):
        yield "ignored", "inplace and outofplace are 0, so no call picks the file; set one of them to 1"
    if dialect.is_microsoft and bool(inplace) == bool(outofplace):
        place = "in place" if inplace else "out of place"
        yield "note", f"outofplace is not read; with inplace {inplace} the file is for calls {place} alone"


def _window(document: Document, dialect: Dialect) -> Problems:
    low, high = document.numbers.get("minBytes"), document.numbers.get("maxBytes")
    limits = {"minBytes": low, "maxBytes": high}
    negative = {name: value for name, value in limits.items() if value is not None and value < 0}
    for name, value in negative.items():
        # Elsewhere they are compared as numbers without a sign, and are larger than any size.
        severity: Severity = "rejected" if dialect.is_microsoft else "ignored" if name == "minBytes" else "note"
        yield severity, f"{name} is {value}; expected 0 or more"
    if negative:
        return
    first, end = dialect.sizes(low, high)
    if not dialect.is_microsoft:
        if first >= end:
            yield "ignored", f"no size is at least minBytes {low} and at most maxBytes {high}"
        return
    if high is None:
        high = MSCCL_DEFAULT_MAX_BYTES
        yield "note", f"without maxBytes only sizes below {high} bytes pick the file; give one"
    if (low or 0) > high:
        yield "rejected", f"minBytes is {low}, above maxBytes {high}"
    elif first == end:
        yield "ignored", f"no size is at least {low or 0} and below maxBytes {high}; give a larger maxBytes"
    chunks, scratch = document.numbers["nchunksperloop"], max((gpu.scratch_chunks for gpu in document.gpus), default=0)
    if chunks > 0 and scratch > 0:
        size = end * scratch // chunks
        yield "note", f"loading it allocates {size} bytes of scratch, for maxBytes at once"


def check_gpus(document: Document, layout: Layout | None, dialect: Dialect, findings: Findings) -> None:
    """Check that every rank has a gpu element with the right sizes."""
    ranks = document.numbers["ngpus"]
    counts = Counter(gpu.number for gpu in document.gpus)
    for number in sorted(number for number, times in counts.items() if times > 1):
        findings.add("wrong data", f"there are {counts[number]} gpu elements with id {number}; the last one counts")
    missing = next((number for number in range(ranks) if number not in counts), None)
    if missing is not None:
        message = f"there is no gpu element with id {missing}, but ngpus is {ranks}; that rank launches nothing"
        findings.add("hangs", message)
    for gpu in document.gpus:
        _report(_gpu(document, gpu, layout, dialect), gpu.line, findings)


def _gpu(document: Document, gpu: Gpu, layout: Layout | None, dialect: Dialect) -> Problems:
    ranks, chunks = document.numbers["ngpus"], document.numbers["nchunksperloop"]
    sizes = {"i_chunks": gpu.input_chunks, "o_chunks": gpu.output_chunks, "s_chunks": gpu.scratch_chunks}
    if gpu.scratch_chunks < 0:
        yield "rejected", f"s_chunks is {gpu.scratch_chunks}; expected 0 or more"
    if dialect.is_microsoft:
        collective = dialect.collectives.get(document.words["coll"])
        for name, divided in (("i_chunks", ALLGATHER), ("o_chunks", REDUCE_SCATTER)):
            if sizes[name] > 0 and sizes[name] * (ranks if collective is divided else 1) != chunks:
                yield "rejected", f"{name} is {sizes[name]}, which does not match nchunksperloop {chunks}"
    # A root's file says by 0 that the others have none, and one for calls in place that it does without.
    if layout is not None and not layout.collective.has_one_root:
        for name, real in zip(sizes, buffer_chunks(layout, gpu.number), strict=False):
            if sizes[name] not in (0, real):
                yield "note", f"{name} is {sizes[name]}, but the buffer has {real} chunks; it only bounds offsets"
    nodes = 1 + len(document.gpus) + len(gpu.blocks) + sum(len(block.steps) for block in gpu.blocks)
    if nodes > MAX_NODES:
        yield "rejected", f"rank {gpu.number} needs {nodes} elements; the parsers store {MAX_NODES}"
    if not gpu.blocks:
        yield "note", f"rank {gpu.number} has no thread block, which is untested"


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
        _report(_numbers(gpu, dialect, resident), gpu.line, findings)
        _check_connections(gpu, dialect, findings)
        stated = gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks
        real = stated if layout is None else (*buffer_chunks(layout, gpu.number), gpu.scratch_chunks)
        sizes = dict(zip("ios", zip(stated, real, strict=True), strict=True))
        for block in gpu.blocks:
            _report(_block(document, gpu, block, dialect), block.line, findings)
            for position, step in enumerate(block.steps):
                _report(_step(step, position, block, dialect), step.line, findings)
                _report(_ends(step, gpu, sizes), step.line, findings)
            _check_chains(block, findings)


def _check_fused(document: Document, dialect: Dialect, findings: Findings) -> None:
    """Report the first fused step that is read but not launched."""
    steps = [step for gpu in document.gpus for block in gpu.blocks for step in block.steps if step.kind in FUSED]
    if steps:
        message = (
            f"type {steps[0].kind} is read, but {dialect.name} {dialect.version} launches no step that receives and "
            f"does something else, so calls fail; write it, and {len(steps) - 1} more, as r and s or re"
        )
        findings.add("rejected", message, at(steps[0].line))


def _numbers(gpu: Gpu, dialect: Dialect, resident: int) -> Problems:
    numbers, count = Counter(block.number for block in gpu.blocks), len(gpu.blocks)
    has = f"rank {gpu.number} has {count} thread blocks"
    for number, times in numbers.items():
        if times > 1:
            yield "rejected", f"rank {gpu.number} has {times} thread blocks with id {number}"
    missing = next((number for number in range(len(numbers)) if number not in numbers), None)
    if missing is not None:
        yield "rejected", f"{has} but none with id {missing}"
    if count > dialect.max_thread_blocks:
        yield "rejected", f"{has}; {dialect.name} {dialect.version} takes {dialect.max_thread_blocks}"
    elif count > resident:
        yield "hangs", f"{has}, which wait for each other, and the GPU runs {resident} at once"


def _check_connections(gpu: Gpu, dialect: Dialect, findings: Findings) -> None:
    """Refuse two blocks on one connection, and too many connections on a channel."""
    rank = f"rank {gpu.number}"
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
                    f"{rank} thread blocks {twin} and {block.number} both {way} rank {peer} on channel "
                    f"{block.channel}, which is one queue; give one of them another channel"
                )
                findings.add("wrong data", message, at(block.line))
        for channel, count in channels.items():
            if count > CONNECTIONS_PER_CHANNEL:
                limit = f"{dialect.name} takes {CONNECTIONS_PER_CHANNEL}"
                message = f"{rank} has {count} thread blocks that {way} a rank on channel {channel}; {limit}"
                findings.add("rejected", message, at(gpu.line))


def _block(document: Document, gpu: Gpu, block: Block, dialect: Dialect) -> Problems:
    ranks, channels, max_steps = document.numbers["ngpus"], document.numbers["nchannels"], dialect.limits.max_steps
    for name, peer in (("send", block.send), ("recv", block.recv)):
        if peer == gpu.number or peer < -1:
            yield "rejected", f"{name} is {peer}; expected another rank, or -1 for none"
        elif peer >= ranks:
            yield "rejected" if dialect.is_microsoft else "hangs", f"{name} is {peer}; the last rank is {ranks - 1}"
    if not 0 <= block.channel <= dialect.max_channels:
        yield "rejected", f"chan is {block.channel}; expected 0 to {dialect.max_channels - 1}"
    elif block.channel >= channels:
        yield "hangs", f"chan is {block.channel}, but connections exist for 0 to {channels - 1} only"
    if len(block.steps) > max_steps:
        message = f"rank {gpu.number} thread block {block.number} has {len(block.steps)} steps; {dialect.name} takes"
        compilable = dialect.name == "msccl-executor-nccl"
        compiled = "; it can be compiled with MSCCL_MAX_NUM_STEPS for more" if compilable else ""
        # What they check is the number that a step has.
        numbered = all(step.number < max_steps for step in block.steps)
        yield "wrong data" if numbered else "rejected", f"{message} {max_steps}{compiled}"


def _step(step: Step, position: int, block: Block, dialect: Dialect) -> Problems:
    if step.kind not in dialect.step_types:
        yield "rejected", f"type is {shown(step.kind)}; expected {', '.join(sorted(dialect.step_types))}"
        return
    if not 0 <= step.number < dialect.limits.max_steps:
        yield "rejected", f"s is {step.number}; expected 0 to {dialect.limits.max_steps - 1}"
    elif step.number != position:
        yield "note", f"s is {step.number}, but steps are numbered by their position: this is {position}"
    for name, buffer in (("srcbuf", step.source), ("dstbuf", step.target)):
        if buffer not in ("i", "o", "s"):
            yield "rejected", f"{name} is {shown(buffer)}; expected i, o or s"
    if step.kind == "nop":
        return
    if step.signals not in (0, 1):
        yield "rejected", f"hasdep is {step.signals}; expected 0 or 1"
    if not 0 <= step.chunks <= MAX_COUNT:
        yield "rejected", f"cnt is {step.chunks}; expected 1 to {MAX_COUNT}"
    elif step.chunks == 0:
        yield "wrong data", f"cnt is 0, so nothing is moved; expected 1 to {MAX_COUNT}"
    for kinds, peer, name in ((SENDS, block.send, "send"), (RECEIVES, block.recv, "recv")):
        if step.kind in kinds and peer < 0:
            yield "rejected", f"type is {step.kind}, but {name} of its thread block is {peer}"


def _ends(step: Step, gpu: Gpu, sizes: dict[str, tuple[int, int]]) -> Problems:
    """`sizes`: For each buffer the stated and the actual number of chunks."""
    for letter, kinds, name, buffer, start in (
        ("s", READS, "src", step.source, step.source_start),
        ("d", WRITES, "dst", step.target, step.target_start),
    ):
        if buffer not in sizes or step.kind not in CHECKED:
            continue
        stated, real = sizes[buffer]
        if letter in CHECKED[step.kind] and not -1 <= start < stated:
            yield "rejected", f"{name}off is {start}, but {buffer}_chunks of rank {gpu.number} is {stated}"
        elif step.kind in kinds and not 0 <= start <= real - step.chunks:
            chunks = f"chunks {start} to {start + step.chunks - 1} of {buffer}"
            yield "wrong data", f"{chunks} are outside of the {real} that rank {gpu.number} has there"


def _check_chains(block: Block, findings: Findings) -> None:
    """Report steps that end a block, waits that are nobody's, and reductions that are merged and must not be."""
    total = length = chunks = 0
    before, waits = None, False
    for step in block.steps:
        where, reduces = at(step.line), step.kind == "re"
        waits = waits or step.wait_block >= 0
        if step.kind == "ra":
            findings.add("wrong data", "type is ra, which is read, but the kernel ends the thread block there", where)
        if step.kind == "nop":
            continue
        place = (step.target, step.target_start, step.source) if reduces else None
        joins = reduces and place == before and step.wait_block == -1
        total, length = total + reduces, length + 1 if joins else 1
        if joins and (waits or chunks != step.chunks):
            what = "wait for what the nop before this one" if waits else "have as many chunks as this one"
            message = f"consecutive reductions into one chunk are made in one go, and {what} has"
            findings.add("wrong data", message, where)
        if length == MAX_CHAIN + 1:
            message = f"more than {MAX_CHAIN} reductions into one chunk are made in one go, for which there is no space"
            findings.add("wrong data", message, where)
        if not joins and waits and step.wait_block < 0:
            findings.add("rejected", "the step waits for nothing, but comes after a nop that waits", where)
        if not joins:
            waits = False
        # The parsers count all reductions of a thread block, so that only one chain is cut.
        before, chunks = None if step.signals or total == MAX_CHAIN else place, step.chunks
