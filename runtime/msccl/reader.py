"""Reader of MSCCL XML, which refuses what no runtime runs as it stands there."""

import os
from dataclasses import replace
from functools import partial

from ...errors import FileFormatError, UnsupportedError
from ...support.reading import name_of, read_bytes
from ..interpreter.findings import Findings, Severity
from ..interpreter.interpret import InterpreterReport, run_program
from ..programs.program import Program
from .document import read_document
from .limits import ATTRIBUTES, SPELLINGS, dialect_of
from .lint_rules import check_header
from .linter import checked_program

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
