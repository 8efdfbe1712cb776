"""Exporter of MSCCL XML, an entry point for `Plan.export`, and the reader of its files as programs."""

import os
import re
import xml.etree.ElementTree as ET
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import accumulate

from ...errors import ColloptError, FileFormatError, TooLargeError, UnsupportedError
from ...planners import Plan
from ...schedules import as_bytes
from ...support.files import name_of, read_bytes, write_whole
from ...support.validation import is_int
from ..lowering.devices import boxes_of
from ..lowering.lower import lower_plan
from ..lowering.trees import without_switches
from ..programs.channels import check_channels
from ..programs.check import check_program
from ..programs.findings import Finding, Findings, Severity
from ..programs.interpret import InterpreterReport, run_program
from ..programs.ordering import Site, match_transfers, sites
from ..programs.program import (
    Dependency,
    Instruction,
    Program,
    RankProgram,
    check_choice,
    check_counts,
    require_program,
)
from ..programs.transformations import document_steps, packed, without_receive_reduce
from .document import read_document
from .limits import (
    ATTRIBUTES,
    PROTOCOLS,
    SPELLINGS,
    RuntimeLimits,
    dialect_of,
    largest_chunk,
    runtime_limits,
)
from .lint_rules import check_header
from .linter import checked_program

__all__ = ["export_msccl_xml"]
MAX_BYTES = 1 << 30
MANY = 2**20
_ONE = dialect_of("msccl-executor-nccl")
ANY_RUNTIME = replace(
    _ONE,
    limits=replace(_ONE.limits, max_steps=MANY),
    max_channels=MANY,
    max_thread_blocks=MANY,
    other_collectives=(*_ONE.other_collectives, *SPELLINGS),
)
"""Takes what one of the runtimes takes, whatever its size."""


def export_msccl_xml(
    plan: Plan,
    path: str | os.PathLike[str],
    *,
    channels: int = 1,
    instances: int = 1,
    runtime: str = "msccl-executor-nccl",
    min_bytes: int | str = 0,
    max_bytes: int | str | None = None,
    protocol: str | None = None,
    max_thread_blocks: int | None = None,
    placement: str | None = None,
) -> None:
    """Lower a plan for one of the MSCCL runtimes and write it as XML.

    Raises `UnsupportedError` if the plan's schedule cannot be lowered or does not fit the runtime, saying what to
    change; `OSError` if the file cannot be written.

    Parameters
    ----------
    plan : Plan
        With equal shards; planned again where switches copy or add, and the log says what that costs.  A file for
        broadcast or reduce is right for the plan's root alone; see `to_xml_text`.
    path : path
        File to write.
    channels : int
        Channels per connection at least; more than the busiest connection has transfers are refused.  See `lower`.
    instances : int
        Parts that every transfer is divided into, with thread blocks and channels of their own; see `lower`.
    runtime : {"msccl", "msccl-executor-nccl", "rccl"}
        Its limit of steps decides how many channels a connection needs.
    min_bytes, max_bytes, protocol : int or str, int, str or None, str or None
        As for `to_xml_text`.
    max_thread_blocks : int or None
        Where a rank has more, some of them are joined.
    placement : {"out-of-place", "in-place", "both"} or None
        As for `to_xml_text`.
    """
    if not hasattr(plan, "schedule"):
        raise UnsupportedError(f"the plan is a {type(plan).__name__}; expected a Plan")
    plan = without_switches(plan, "MSCCL XML")
    if protocol == "Simple" and plan.collective.has_one_root and max(boxes_of(plan.topology)) > 0:
        raise UnsupportedError(
            f"protocol is 'Simple', with which a {plan.collective} over a network hangs, and {plan.topology.name} has "
            "several boxes; expected LL, or LL128 where NCCL uses it"
        )
    limits = runtime_limits(runtime)
    blocks = limits.max_thread_blocks if max_thread_blocks is None else max_thread_blocks
    check_counts({"instances": instances})
    if instances > limits.max_channels:
        raise UnsupportedError(
            f"instances is {instances}, each with channels of its own; {limits.name} has {limits.max_channels}"
        )
    lowered = partial(_program, plan, limits, channels, blocks)
    text_of = partial(
        to_xml_text,
        runtime=runtime,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        protocol=protocol,
        max_thread_blocks=max_thread_blocks,
        placement=placement,
    )

    def is_refused(fewer: int) -> bool:
        try:
            text_of(lowered(fewer))
        except UnsupportedError:
            return True
        return False

    try:
        text = text_of(lowered(instances))
    except UnsupportedError as error:
        if instances == 1:
            raise
        # If it refuses a single one too, instances are not what is wrong.
        text_of(lowered(1))
        fitting = 1 + bisect_left(range(2, instances), True, key=is_refused)
        raise type(error)(
            f"instances is {instances}: {str(error).partition('; lower it with')[0]}; expected fewer instances, such "
            f"as {fitting}, which fits"
        ) from None
    write_whole(path, text)


def _program(plan: Plan, limits: RuntimeLimits, channels: int, max_thread_blocks: int, instances: int) -> Program:
    """Lower a plan within the runtime's limit of steps per block, and merge blocks if there are too many."""
    max_steps = limits.max_steps
    while True:
        program = lower_plan(plan, max_steps=max_steps, channels=channels, instances=instances)
        check_channels(program, channels, instances)
        if not limits.adds_on_receive:
            program = without_receive_reduce(program)
        longest = max(document_steps(block) for rank in program.ranks for block in rank.thread_blocks)
        if longest <= limits.max_steps or max_steps == 1:
            return packed(program, max_thread_blocks, limits.max_steps)
        # Steps were split, or wait for several; the fewer there are of them, the sooner they fit.
        max_steps = min(max_steps - 1, max_steps * limits.max_steps // longest)


class _Refusals(Findings):
    """Raises the first finding that is no note as the error that a function makes of it."""

    def __init__(self, error_of: Callable[[Finding], ColloptError]) -> None:
        super().__init__()
        self.error_of = error_of

    def add(self, severity: Severity, message: str, where: str = "") -> None:
        """Refuse the file."""
        if severity != "note":
            raise self.error_of(Finding(severity, message, where))


def read_xml(path: str | os.PathLike[str]) -> Program:
    """Read an MSCCL algorithm; nops are folded into the steps after them, so `to_xml_text` round-trips.

    The program is well formed, but not yet checked: see `check_program` and `run_program`.  Raises `FileFormatError` if
    the file cannot be read, is not in the form that the runtimes' parsers take, or has missing or invalid values, with
    the file and the place; `UnsupportedError` if the collective is not known.
    """
    return read_algorithm(path)[0]


def interpret_file(
    path: str | os.PathLike[str], *, interleavings: int = 8, seed: int = 0, fifo_depth: int = 2
) -> InterpreterReport:
    """Read an MSCCL XML file and run it as `run_program` does: in place, out of place, or both ways, as it says.

    Raises `FileFormatError` if the file is not an MSCCL algorithm that the runtimes would accept; `ProgramError` if the
    algorithm is wrong.

    Parameters
    ----------
    path : str or path
        File to read.
    interleavings, seed, fifo_depth : int
        As for `run_program`.
    """
    program, in_place = read_algorithm(path)
    run = partial(run_program, interleavings=interleavings, seed=seed, fifo_depth=fifo_depth)
    if in_place and not program.in_place:
        run(replace(program, in_place=True))
    return run(program)


def read_algorithm(path: str | os.PathLike[str]) -> tuple[Program, bool]:
    """Read a program, which is in place if the file is for nothing else, and whether the file is for that too."""
    where, content = name_of(path), read_bytes(path, MAX_BYTES)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not UTF-8; expected an MSCCL XML file"
        raise FileFormatError(f"{where}: {what}") from error

    def error_of(finding: Finding) -> ColloptError:
        error = UnsupportedError if finding.severity == "not checked" else FileFormatError
        return error(f"{where}: {f'{finding.where}: ' if finding.where else ''}{finding.message}")

    refusals = _Refusals(error_of)
    document = read_document(text, ATTRIBUTES, refusals)
    assert document is not None  # What is not read has been refused.
    check_header(document, ANY_RUNTIME, refusals)
    program = checked_program(document, ANY_RUNTIME, MANY, refusals)
    assert program is not None
    in_place = bool(document.numbers["inplace"])
    return replace(program, in_place=not document.numbers.get("outofplace", not in_place)), in_place


FEWER_TREES = "trees, such as by planner 'forestcoll' with trees_per_root=1"
DEFAULT_MAX_BYTES = 2**40
SCRATCH_MAX_BYTES = 2**30
"""Default where scratch for the largest size is allocated when the file is loaded, as microsoft/msccl does."""
TYPES = {"send": "s", "recv": "r", "copy": "cpy", "reduce": "re", "recv_reduce": "rrc"}
PLACEMENTS = {"out-of-place": (False, True), "in-place": (True, False), "both": (True, True)}
"""Whether a file is for calls in place, and out of place."""
NOP_ENDS = {"srcbuf": "i", "srcoff": -1, "dstbuf": "o", "dstoff": -1, "cnt": 0}
NO_WAIT = {"depid": -1, "deps": -1}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,62}")
"""microsoft/msccl keeps 63 characters of a name and no parser decodes entities."""


def to_xml_text(
    program: Program,
    *,
    runtime: str = "msccl-executor-nccl",
    min_bytes: int | str = 0,
    max_bytes: int | str | None = None,
    protocol: str | None = None,
    max_thread_blocks: int | None = None,
    placement: str | None = None,
) -> str:
    """Return a program as MSCCL XML.

    Raises `UnsupportedError` if the runtime cannot run the program, with the limit, the value and what to
    change; `ProgramError` if the program itself is wrong.

    Parameters
    ----------
    program : Program
        Out of place, as `lower` makes it.  A file for broadcast or reduce is right for its own root alone, which no
        runtime checks.
    runtime : {"msccl", "msccl-executor-nccl", "rccl"}
        They differ in limits and in the names of collectives.
    min_bytes, max_bytes : int, str or None
        Sizes of the whole buffer for which the runtime picks this algorithm.  By default `max_bytes` is 2^40, or 2^30
        where microsoft/msccl would allocate scratch for that much at once; with "LL" and "LL128" at most what the
        kernel can count, for "LL" 2 GiB a chunk and in RCCL 1 GiB.
    protocol : {"Simple", "LL", "LL128"} or None
        NCCL's transport protocol.  None is "Simple", and for broadcast and reduce "LL": with "Simple", they hang in all
        three runtimes as soon as a connection is over a network, so that it is for ranks in one box.
    max_thread_blocks : int or None
        Thread blocks that the GPU runs at once, if not the 108 of an A100 (RCCL: always 64).
    placement : {"out-of-place", "in-place", "both"} or None
        Calls that the runtime picks this algorithm for; "both" is not for microsoft/msccl.  None is "out-of-place" for
        allgather, reduce_scatter and all_to_all, and for the others, which PyTorch calls in place, "both", or for
        microsoft/msccl "in-place".

    Examples
    --------
    >>> from collopt.schedules import Forest
    >>> from collopt.runtime.lowering.lower import lower
    >>> forest = Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])])
    >>> print(to_xml_text(lower(forest, "allgather")).splitlines()[2])
        <tb id="0" send="-1" recv="1" chan="0">
    """
    require_program(program)
    limits = runtime_limits(runtime)
    in_place, out_of_place = PLACEMENTS[_placement(program, limits, placement)]
    if protocol is None:
        protocol = "LL" if program.collective.has_one_root else "Simple"
    check_choice("protocol", protocol, PROTOCOLS)
    # Of an all-to-all, the runtimes take the input of one rank for the whole buffer.
    chunks = program.chunks_per_loop // (program.num_ranks if program.layout.in_pairs else 1)
    low = as_bytes(min_bytes, "min_bytes", low=0)
    if max_bytes is None:
        limit = DEFAULT_MAX_BYTES if protocol == "Simple" else chunks * largest_chunk(dialect_of(runtime), protocol)
        loads_scratch = limits.name == "msccl" and any(rank.scratch_chunks for rank in program.ranks)
        max_bytes = max(low + 1, SCRATCH_MAX_BYTES) if loads_scratch else min(DEFAULT_MAX_BYTES, limit)
    # 0 means no limit to one runtime and "never" to another.
    largest = as_bytes(max_bytes, "max_bytes")
    # microsoft/msccl takes sizes below it, the others up to it.
    if largest < low + (limits.name == "msccl"):
        raise UnsupportedError(f"max_bytes is {largest}; expected more than min_bytes = {low}, in {limits.name}")
    if not _NAME.fullmatch(program.name):
        raise UnsupportedError(
            f"program name {program.name[:80]!r} cannot stand in an MSCCL file; expected at most 63 letters, digits, "
            "spaces and ._+-"
        )
    resident = limits.max_thread_blocks if max_thread_blocks is None else max_thread_blocks
    if not is_int(resident) or not 1 <= resident <= limits.hard_thread_blocks:
        raise UnsupportedError(
            f"max_thread_blocks is {resident!r}; {limits.name} takes from 1 to {limits.hard_thread_blocks}"
        )
    check_program(program)
    _check_call(program, limits)
    if in_place:
        run_program(replace(program, in_place=True), interleavings=1)
    root = _element(
        "algo",
        name=program.name,
        proto=protocol,
        nchannels=program.num_channels,
        nchunksperloop=chunks,
        ngpus=program.num_ranks,
        coll=limits.collectives[program.collective],
        inplace=int(in_place),
        outofplace=int(out_of_place),
        minBytes=low,
        maxBytes=largest,
    )
    sends = match_transfers(program)
    partners = sends | {receive: send for send, receive in sends.items()}
    root.extend(_gpu(program, rank, partners) for rank in program.ranks)
    ET.indent(root, space="  ")
    text = ET.tostring(root, encoding="unicode") + "\n"
    _check_limits(text, program, limits, resident)
    return text


def _check_call(program: Program, limits: RuntimeLimits) -> None:
    """Refuse programs of calls that the runtime does not have, and steps that it does not launch."""
    if program.collective.takes_traffic:
        raise UnsupportedError(
            f"the program is for all_to_allv; in {limits.name} all parts are of one size: plan all_to_all, or run the "
            "plan through torch.distributed"
        )
    if program.collective not in limits.collectives:
        raise UnsupportedError(
            f"the program is for {program.collective}; {limits.name} takes {', '.join(map(str, limits.collectives))}"
        )
    if program.collective.is_sharded and len(set(program.layout.shards)) > 1:
        raise UnsupportedError(
            f"the program's shards have {min(program.layout.shards)} to {max(program.layout.shards)} chunks; in "
            f"{limits.name} all shards are of one size: plan without weights, or run the plan through torch.distributed"
        )
    if not limits.adds_on_receive and any(step.kind == "recv_reduce" for _, step in sites(program)):
        raise UnsupportedError(
            f"the program has steps that receive and add, which {limits.name} does not launch in one step; give it to "
            "without_receive_reduce first"
        )


def _check_limits(text: str, program: Program, limits: RuntimeLimits, resident: int) -> None:
    """Refuse a file that the runtime would reject, hang on, or corrupt memory with: one that its lint refuses."""
    # RCCL takes more channels from ROCm 6.1 on.
    dialect = replace(dialect_of(limits.name), max_channels=limits.max_channels)
    fewer = "chunks, such as with chunks=1" if program.layout.in_pairs else FEWER_TREES

    def error_of(finding: Finding) -> ColloptError:
        return TooLargeError(
            f"{finding.message}, in {limits.name}; lower it with fewer channels or smaller max_steps and max_count, "
            f"plan with fewer {fewer}, or give max_thread_blocks where the GPU runs more"
        )

    refusals = _Refusals(error_of)
    if (document := read_document(text, dialect.required, refusals)) is not None:
        check_header(document, dialect, refusals)
        checked_program(document, dialect, resident, refusals)


def _element(tag: str, **attributes: object) -> ET.Element:
    return ET.Element(tag, {name: str(value) for name, value in attributes.items()})


def _placement(program: Program, limits: RuntimeLimits, placement: str | None) -> str:
    """Return for which placements a file is used."""
    if program.in_place:
        raise UnsupportedError("the program is an in-place one; give the out-of-place program and placement='in-place'")
    if placement is None:
        if program.collective.is_sharded or program.layout.in_pairs:
            return "out-of-place"
        return "both" if limits.supports_both_placements else "in-place"
    check_choice("placement", placement, PLACEMENTS)
    if placement != "out-of-place" and program.layout.in_pairs:
        raise UnsupportedError(
            f"placement is {placement!r}, but an all-to-all has no part that stays where it is; expected 'out-of-place'"
        )
    if placement == "both" and not limits.supports_both_placements:
        raise UnsupportedError(
            f"{limits.name} takes a file for one placement; write one 'out-of-place', one 'in-place'"
        )
    return placement


def _gpu(program: Program, rank: RankProgram, partners: Mapping[Site, Site]) -> ET.Element:
    """Return the gpu element of a rank; `partners` maps each end of a transfer to the other."""
    gpu = _element(
        "gpu", id=rank.rank, i_chunks=rank.input_chunks, o_chunks=rank.output_chunks, s_chunks=rank.scratch_chunks
    )
    positions = _document_positions(rank)
    awaited = {wait for block in rank.thread_blocks for step in block.instructions for wait in step.depends}
    for number, block in enumerate(rank.thread_blocks):
        send, recv = (-1 if peer is None else peer for peer in (block.send_peer, block.recv_peer))
        element = _element("tb", id=number, send=send, recv=recv, chan=block.channel)
        gpu.append(element)
        for index, step in enumerate(block.instructions):
            waits = [{"depid": wait.thread_block, "deps": positions[wait]} for wait in step.depends] or [NO_WAIT]
            for wait in waits[:-1]:
                element.append(_element("step", s=len(element), type="nop", **NOP_ENDS, **wait, hasdep=0))
            far = step
            if (partner := partners.get(Site(rank.rank, number, index))) is not None:
                far = program.ranks[partner.rank].thread_blocks[partner.thread_block].instructions[partner.step]
            hasdep = int(Dependency(number, index) in awaited)
            kind = TYPES[step.kind]
            element.append(_element("step", s=len(element), type=kind, **_ends(step, far), **waits[-1], hasdep=hasdep))
    return gpu


def _ends(step: Instruction, far: Instruction) -> dict[str, object]:
    """Both ends of a step; of a transfer also the remote one, which runtimes ignore."""
    source, target = step.source or far.source, step.target or far.target
    # check_program has made sure that each side is given here or at the partner.
    assert source is not None
    assert target is not None
    return {
        "srcbuf": source.buffer[0],
        "srcoff": source.start,
        "dstbuf": target.buffer[0],
        "dstoff": target.start,
        "cnt": step.count,
    }


def _document_positions(rank: RankProgram) -> dict[Dependency, int]:
    """Position of each step in its tb element, nops included."""
    return {
        Dependency(number, index): end - 1
        for number, block in enumerate(rank.thread_blocks)
        for index, end in enumerate(accumulate(max(1, len(step.depends)) for step in block.instructions))
    }
