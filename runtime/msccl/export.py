"""Exporter of MSCCL XML, an entry point for `Plan.export`, and the reader of its files as programs."""

import os
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from ...errors import FileFormatError, UnsupportedError
from ...planners import Plan
from ...support.files import name_of, read_bytes, write_whole
from ..interpreter.findings import Findings, Severity
from ..interpreter.interpret import InterpreterReport, run_program
from ..lowering.lower import lower_plan
from ..lowering.trees import refuse_switches
from ..mscclpp.export import boxes_of
from ..programs.channels import check_channels
from ..programs.program import Program, check_counts
from ..programs.transformations import document_steps, packed, without_receive_reduce
from .document import read_document
from .limits import ATTRIBUTES, SPELLINGS, RuntimeLimits, check_limits, dialect_of, runtime_limits
from .lint_rules import check_header
from .linter import checked_program
from .writer import to_xml_text

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
        With equal shards.  A file for broadcast or reduce is right for the plan's root alone; see `to_xml_text`.
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
    refuse_switches(plan.schedule, "MSCCL XML")
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
    program = lowered(instances)
    if instances > 1:
        _check_instances(program, instances, limits, blocks, lowered)
    text = to_xml_text(
        program,
        runtime=runtime,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        protocol=protocol,
        max_thread_blocks=max_thread_blocks,
        placement=placement,
    )
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


def _check_instances(
    program: Program, instances: int, limits: RuntimeLimits, blocks: int, lowered: Callable[[int], Program]
) -> None:
    """Refuse too many instances, if a single one is within the limits; the message has the largest possible number."""

    def is_refused(fewer: int) -> bool:
        try:
            check_limits(lowered(fewer), limits, blocks)
        except UnsupportedError:
            return True
        return False

    try:
        check_limits(program, limits, blocks)
    except UnsupportedError as error:
        # If it refuses a single one too, instances are not what is wrong.
        check_limits(lowered(1), limits, blocks)
        fitting = 1 + bisect_left(range(2, instances), True, key=is_refused)
        raise type(error)(
            f"instances is {instances}: {str(error).partition(';')[0]}; expected fewer instances, such as {fitting}, "
            "which fits"
        ) from None


class _Refusals(Findings):
    """Raises the first finding that is no note."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def add(self, severity: Severity, message: str, where: str = "") -> None:
        """Refuse the file."""
        if severity != "note":
            error = UnsupportedError if severity == "not checked" else FileFormatError
            raise error(f"{self.path}: {f'{where}: ' if where else ''}{message}")


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
    refusals = _Refusals(where)
    document = read_document(text, ATTRIBUTES, refusals)
    assert document is not None  # What is not read has been refused.
    check_header(document, ANY_RUNTIME, refusals)
    program = checked_program(document, ANY_RUNTIME, MANY, refusals)
    assert program is not None
    in_place = bool(document.numbers["inplace"])
    return replace(program, in_place=not document.numbers.get("outofplace", not in_place)), in_place
