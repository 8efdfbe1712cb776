"""Writer of MSCCL XML for microsoft/msccl, Azure/msccl-executor-nccl, and RCCL from ROCm 5.5 to 7.12 (2.28.3).

Their parsers take less than XML and check little, so a program is checked before it is written and when it is read.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate

from ...errors import UnsupportedError
from ...schedules import as_bytes
from ..interpreter.check import check_program
from ..interpreter.interpret import run_program
from ..programs.ordering import Site, match_transfers
from ..programs.program import Dependency, Instruction, Program, RankProgram, check_choice, require_program
from .limits import PROTOCOLS, RuntimeLimits, check_limits, dialect_of, largest_chunk, runtime_limits

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
        max_bytes = max(low, SCRATCH_MAX_BYTES) if loads_scratch else min(DEFAULT_MAX_BYTES, limit)
    # 0 means no limit to one runtime and "never" to another.
    largest = as_bytes(max_bytes, "max_bytes")
    if largest < low:
        raise UnsupportedError(f"max_bytes is {largest}; expected at least min_bytes = {low}")
    if not _NAME.fullmatch(program.name):
        raise UnsupportedError(
            f"program name {program.name[:80]!r} cannot stand in an MSCCL file; expected at most 63 letters, digits, "
            "spaces and ._+-"
        )
    check_program(program)
    check_limits(program, limits, max_thread_blocks)
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
    return ET.tostring(root, encoding="unicode") + "\n"


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
