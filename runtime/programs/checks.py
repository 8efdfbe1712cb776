"""Validation of arguments, and of the types of a program's fields."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import ProgramError, UnsupportedError
from ...schedules import Collective
from ...support.validation import as_kind, is_int, shown
from .program import ChunkRange, Dependency, Instruction, Program, RankProgram, ThreadBlock


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of `choices`."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        raise UnsupportedError(f"{name} is {shown(value)}; expected one of {', '.join(names)}")


def check_counts(values: Mapping[str, object], minimum: int = 1) -> None:
    """Refuse values, by name, that are not integers of at least `minimum`; numpy integers are refused too."""
    for name, value in values.items():
        if not is_int(value) or value < minimum:
            raise UnsupportedError(f"{name} is {shown(value)}; expected a whole number of at least {minimum}")


def check_seconds(name: str, value: object) -> None:
    """Refuse a value that is not a positive, finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise UnsupportedError(f"{name} is {shown(value)}; expected a positive number of seconds")


def require_program(program: object) -> None:
    """Refuse a value that is not a program."""
    as_kind(program, Program, "the program", hint=", such as lower makes of a plan's schedule")


NUMBERS: dict[type[Any], tuple[str, ...]] = {
    Program: ("num_ranks", "chunks_per_loop"),
    RankProgram: ("rank", "input_chunks", "output_chunks", "scratch_chunks"),
    ThreadBlock: ("channel",),
    Instruction: ("count",),
    ChunkRange: ("start",),
    Dependency: ("thread_block", "step"),
}
"""Fields that are whole numbers."""


def check_structure(program: Program) -> None:
    """Refuse a program with a field of the wrong type."""
    require_program(program)
    _check_kind(program, Program, "the program")
    if not isinstance(program.name, str):
        raise _refusal("the program's name", program.name, "text")
    if not isinstance(program.collective, Collective | str):  # `Program.layout` refuses names that are no collective's
        raise _refusal("the program's collective", program.collective, "text")
    if not isinstance(program.in_place, bool):
        raise _refusal("the program's in_place", program.in_place, "True or False")
    for shard in _tuple(program.shards, "the program's shards"):
        _check_number(shard, "a shard of the program")
    for rank_number, rank in enumerate(_tuple(program.ranks, "the program's ranks")):
        where = f"rank {rank_number}"
        _check_kind(rank, RankProgram, where)
        for number, block in enumerate(_tuple(rank.thread_blocks, f"the thread blocks of {where}")):
            _check_block(block, f"{where} thread block {number}")


def _check_block(block: object, where: str) -> None:
    _check_kind(block, ThreadBlock, where)
    assert isinstance(block, ThreadBlock)  # That was checked.
    for peer in (block.send_peer, block.recv_peer):
        if peer is not None:
            _check_number(peer, f"a peer of {where}")
    for number, step in enumerate(_tuple(block.instructions, f"the instructions of {where}")):
        # The common case without a call, because programs have millions of steps.
        if type(step) is not Instruction or type(step.count) is not int or type(step.kind) is not str:
            _check_kind(step, Instruction, f"{where} step {number}")
            if not isinstance(step.kind, str):
                raise _refusal(f"the kind of {where} step {number}", step.kind, "text")
        for end in (step.source, step.target):
            if end is not None and (type(end) is not ChunkRange or type(end.start) is not int):
                _check_kind(end, ChunkRange, f"a source or target of {where} step {number}")
        for wait in step.depends if type(step.depends) is tuple else _tuple(step.depends, f"the waits of {where}"):
            if type(wait) is not Dependency or type(wait.step) is not int or type(wait.thread_block) is not int:
                _check_kind(wait, Dependency, f"a wait of {where} step {number}")


def _check_kind(thing: object, kind: type[Any], where: str) -> None:
    as_kind(thing, kind, where, error=ProgramError)
    for name in NUMBERS[kind]:
        _check_number(getattr(thing, name), f"{name} of {where}")


def _check_number(value: object, where: str) -> None:
    if not is_int(value):
        raise _refusal(where, value, "a whole number")


def _tuple(value: object, where: str) -> tuple[Any, ...]:
    return as_kind(value, tuple, where, error=ProgramError)


def _refusal(where: str, value: object, expected: str) -> ProgramError:
    return ProgramError(f"{where} is {shown(value)}; expected {expected}")
